"""Image classification: batches, held-out images, losses and evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lresnet.data.augmentation import normalise
from lresnet.models import LorentzResNet
from lresnet.train import Augment, ImageClassification, TrainConfig, image_classification, train_model
from lresnet.train.image_classification import class_scores
from tests.coloured import coloured_data, coloured_task

DATA = coloured_data()
TASK = coloured_task()
STILL = Augment(pad=0, flip=False)  # no random changes


def network(seed: int = 0, residual: str = "lorentz", num_classes: int = 3) -> LorentzResNet:
    torch.manual_seed(seed)
    return LorentzResNet(8, num_classes, widths=(4, 6, 8), residual=residual)


def trained(objective: ImageClassification, epochs: int = 8, **schedule: object) -> LorentzResNet:
    model = network()
    train_model(model, objective, TrainConfig(epochs, lr=0.05, optimizer="sgd", lr_schedule="cosine", **schedule))
    return model


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
def test_separable_classes_are_learned(residual):
    model = network(residual=residual)
    objective = ImageClassification(coloured_task(0.1), batch_size=9, augment=Augment(pad=1))
    before = objective.test(model.eval())["accuracy"]
    outcome = train_model(model, objective, TrainConfig(10, lr=0.05, optimizer="sgd", lr_schedule="cosine"))
    assert before < 70  # an untrained network
    assert outcome.validation == 100
    assert objective.test(model) == {"accuracy": 100.0}


def test_superclass_accuracy_is_reported_for_classes_with_superclasses():
    task = replace(TASK, data=replace(DATA, superclass_of=("one", "one", "other")))
    objective, model = ImageClassification(task, augment=STILL), network().eval()
    metrics = objective.test(model)
    assert list(metrics) == ["accuracy", "superclass_accuracy"]
    logits = class_scores(model, DATA.test.images, DATA.mean, DATA.std)
    same = (logits.argmax(1) == 2) == (DATA.test.labels == 2)
    assert metrics["superclass_accuracy"] == pytest.approx(100 * float(same.double().mean()))


def test_held_out_images_are_the_same_for_every_seed_and_not_trained_on():
    first, second = (ImageClassification(coloured_task(0.2), seed=seed) for seed in (0, 1))
    assert len(first.held_out) == 12
    assert torch.equal(first.held_out.images, second.held_out.images)
    assert torch.equal(first.train.images, second.train.images)
    seen = {image.numpy().tobytes() for image in first.train.images}
    assert len(seen) == 48
    assert seen.isdisjoint(image.numpy().tobytes() for image in first.held_out.images)
    first.start_epoch(), second.start_epoch()
    first.advance(0), second.advance(0)
    assert not torch.equal(first._batch, second._batch)  # shuffling and crops follow the seed


def test_without_held_out_images_there_is_no_validation():
    objective = ImageClassification(TASK, batch_size=20)
    assert len(objective.train) == 60
    assert objective.validation(network().eval()) is None
    passes = []
    outcome = train_model(
        network(), objective, TrainConfig(2, eval_every=1), on_epoch=lambda *each: passes.append(each)
    )
    assert outcome.validation is None
    assert (outcome.best_epoch, passes) == (2, [(1, None), (2, None)])


def test_the_last_partial_batch_is_dropped_and_every_other_image_is_seen_once():
    objective = ImageClassification(TASK, batch_size=25, augment=STILL)
    assert objective.steps_per_epoch == 2
    objective.start_epoch()
    seen = []
    for step in range(objective.steps_per_epoch):
        objective.advance(step)
        assert len(objective._batch) == 25
        seen += zip((image.numpy().tobytes() for image in objective._batch), objective._labels.tolist(), strict=True)
    known = {image.numpy().tobytes(): label for image, label in zip(DATA.train.images, DATA.train.labels, strict=True)}
    assert len({image for image, _ in seen}) == 50
    assert all(known[image] == int(label) for image, label in seen)  # labels are shuffled with the images


def test_a_batch_size_above_the_number_of_images_is_reduced_to_it():
    objective = ImageClassification(TASK, batch_size=512)
    assert (objective.steps_per_epoch, objective.batch_size) == (1, 60)
    objective.start_epoch()
    objective.advance(0)
    assert objective.loss(network().train()).isfinite()


def test_the_loss_is_cross_entropy_with_smoothed_labels():
    objective = ImageClassification(TASK, batch_size=60, augment=replace(STILL, label_smoothing=0.3))
    objective.start_epoch()
    objective.advance(0)
    model = network().eval()
    logits = model(normalise(objective._batch, DATA.mean, DATA.std)).double()
    target = torch.nn.functional.one_hot(objective._labels, 3) * 0.7 + 0.1
    expected = -(target * logits.log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(objective.loss(model).double(), expected, rtol=1e-5, atol=1e-6)


def test_cutmix_weighs_labels_by_the_remaining_pixels():
    objective = ImageClassification(TASK, batch_size=20, augment=replace(STILL, cutmix=0.7, label_smoothing=0.3))
    objective.start_epoch()
    objective.advance(1)
    model = network().eval()
    logits = model(normalise(objective._batch, DATA.mean, DATA.std)).double()
    own, other = (torch.nn.functional.one_hot(labels, 3) for labels in (objective._labels, objective._others))
    kept = objective._kept.double()[:, None]
    target = (kept * own + (1 - kept) * other) * 0.7 + 0.1
    expected = -(target * logits.log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(objective.loss(model).double(), expected, rtol=1e-5, atol=1e-6)
    assert 0 < (kept < 1).double().mean() < 1  # some images are mixed, some are not
    assert torch.equal(objective._labels[1:], objective._others[:-1])  # the rectangle comes from the next image


def test_cutmix_labels_match_the_mixed_pixels():
    """The brightest channel of a pixel is its class, so the pixels show the labels of a mixed image."""
    objective = ImageClassification(TASK, batch_size=60, augment=replace(STILL, cutmix=1.0))
    objective.start_epoch()
    objective.advance(0)
    found = torch.nn.functional.one_hot(objective._batch.argmax(-1), 3).double().mean((1, 2))
    own, other = (torch.nn.functional.one_hot(labels, 3) for labels in (objective._labels, objective._others))
    kept = objective._kept.double()[:, None]
    torch.testing.assert_close(found, kept * own + (1 - kept) * other)


@pytest.mark.parametrize("cutmix", [0.0, 0.5])
def test_without_cutmix_no_random_numbers_are_drawn_for_it(cutmix):
    plain, mixed = (ImageClassification(TASK, batch_size=60, augment=Augment(cutmix=share)) for share in (0.0, cutmix))
    for objective in (plain, mixed):
        objective.start_epoch()
    assert torch.equal(plain.generator.get_state(), mixed.generator.get_state()) == (cutmix == 0)


def test_flip_test_is_the_mean_over_an_image_and_its_mirror_image():
    model = trained(ImageClassification(TASK, batch_size=20), epochs=1)
    model.requires_grad_(False)
    plain, both = (ImageClassification(TASK, augment=Augment(flip_test=flip)) for flip in (False, True))
    images = DATA.test.images
    here, mirrored = (class_scores(model, part, DATA.mean, DATA.std) for part in (images, images.flip(2)))
    assert not torch.allclose(here, mirrored, rtol=1e-3)
    torch.testing.assert_close(both._evaluate(model, images), (here + mirrored) / 2)
    torch.testing.assert_close(plain._evaluate(model, images), here)


class Interruption(Exception):
    pass


@pytest.mark.parametrize("schedule", [{}, {"average": 0.9, "keep": "last"}], ids=["best", "average"])
def test_a_resumed_run_is_bit_identical(tmp_path: Path, schedule):
    plan = TrainConfig(6, lr=0.05, optimizer="sgd", eval_every=1, warmup=1, **schedule)
    task, options = coloured_task(0.2), {"batch_size": 10, "augment": Augment(pad=1, cutout=2, cutmix=0.5), "seed": 3}

    def stop(epoch: int, best: float | None) -> None:
        if epoch == 4:
            raise Interruption

    whole, interrupted = network(), network()
    expected = train_model(whole, ImageClassification(task, **options), plan)
    path = tmp_path / "run.pt"
    with pytest.raises(Interruption):
        train_model(
            interrupted, ImageClassification(task, **options), plan, checkpoint=path, checkpoint_every=3, on_epoch=stop
        )
    again, epochs = network(seed=9), []
    torch.manual_seed(12345)  # whatever this process drew in the meantime
    objective = ImageClassification(task, **options)
    outcome = train_model(again, objective, plan, checkpoint=path, on_epoch=lambda epoch, best: epochs.append(epoch))
    assert epochs == [4, 5, 6]
    assert (outcome.validation, outcome.best_epoch) == (expected.validation, expected.best_epoch)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("classes", [2, 5])
def test_a_model_with_another_number_of_classes_is_refused(classes):
    objective = ImageClassification(TASK, batch_size=20)
    words = f"the model has {classes} classes, but coloured has 3; build it with num_classes=3"
    with pytest.raises(ValueError, match=words):
        objective.test(network(num_classes=classes).eval())
    with pytest.raises(ValueError, match=words):
        train_model(network(num_classes=classes), objective, TrainConfig(1))


def test_images_need_not_be_square():
    task = coloured_task(0.25, train=24, test=12, height=24, width=40)
    objective = ImageClassification(task, batch_size=9, augment=Augment(cutout=6))
    train_model(network(), objective, TrainConfig(1))
    assert objective._batch.shape == (9, 24, 40, 3)
    assert 0 <= objective.test(network().eval())["accuracy"] <= 100


def test_an_image_has_the_same_logits_alone_and_in_a_batch(monkeypatch):
    objective = ImageClassification(coloured_task(0.5), batch_size=10)
    model = trained(objective, epochs=2).requires_grad_(False)
    metrics = objective.validation(model), objective.test(model)
    together = objective._evaluate(model, DATA.test.images)
    alone = torch.cat([objective._evaluate(model, image) for image in DATA.test.images.split(1)])
    torch.testing.assert_close(alone, together)
    seen = []
    evaluate = objective._evaluate
    monkeypatch.setattr(objective, "_evaluate", lambda model, part: (seen.append(len(part)), evaluate(model, part))[1])
    monkeypatch.setattr(image_classification, "_EVALUATION_PIXELS", 2 * DATA.test.images[0, ..., 0].numel() + 1)
    assert objective.test(model) == metrics[1]
    assert set(seen) == {2}
    monkeypatch.setattr(image_classification, "_EVALUATION_PIXELS", 1)
    assert (objective.validation(model), objective.test(model)) == metrics


def test_a_batch_size_below_1_is_refused():
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        ImageClassification(TASK, batch_size=0)


@pytest.mark.parametrize(
    ("holdout", "words"),
    [
        (1.0, "holdout must be .*at least 0 and below 1, got 1.0"),
        (0.001, "holdout 0.001 of 60 images is 0; "),
        (0.999, "holdout 0.999 of 60 images is 60; "),
    ],
)
def test_a_holdout_that_leaves_no_images_is_refused(holdout, words):
    with pytest.raises(ValueError, match=words):
        coloured_task(holdout)
