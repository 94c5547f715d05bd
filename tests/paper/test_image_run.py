"""A run on images: settings reach their owners, and only the seed decides parameters and batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lresnet.models import LorentzResNet
from lresnet.train import Augment, ImageClassification
from lresnet_paper.run import Run, build, execute
from tests.coloured import write_coloured

CONFIG = {"model": "lorentz_resnet20", "epochs": 2, "eval_every": 1, "lr": 0.05, "optimizer": "sgd", "batch_size": 20}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_coloured(tmp_path_factory.mktemp("images") / "coloured.npz"))


def run(images: str, **change: object) -> Run:
    values = {"table": "t", "method": "lorentz", "protocol": "fast", "seed": 3, "config": CONFIG}
    return Run(**{"cell": images} | values | change)


def test_build_passes_every_setting_to_its_owner(images):
    own = {
        "holdout": 0.1,
        "pad": 1,
        "flip": False,
        "cutout": 2,
        "cutmix": 0.3,
        "label_smoothing": 0.2,
        "flip_test": True,
    }
    config = CONFIG | own | {"warmup": 1, "curvature": -0.5, "pooling": "centroid", "head": "prototypes", "scale": 3.0}
    model, objective, schedule = build(run(images, config=config))
    assert isinstance(model, LorentzResNet)
    assert isinstance(objective, ImageClassification)
    assert (model.config["depth"], model.config["num_classes"], model.config["in_channels"]) == (20, 3, 3)
    assert (model.config["curvature"], model.config["pooling"], model.config["head"]) == (
        -0.5,
        "centroid",
        "prototypes",
    )
    assert model.config["residual_options"] == {"scale": 3.0}
    assert (schedule.epochs, schedule.warmup, schedule.optimizer) == (2, 1, "sgd")
    assert (len(objective.held_out), objective.batch_size) == (6, 20)
    assert objective.augment == Augment(1, flip=False, cutout=2, cutmix=0.3, label_smoothing=0.2, flip_test=True)


@pytest.mark.parametrize("method", ["parallel_transport", "space", "euclidean", "none"])
def test_settings_that_a_residual_does_not_have_are_ignored(images, method):
    model, _, _ = build(run(images, method=method, config=CONFIG | {"weight": 0.5, "scale": "learned"}))
    assert model.config["residual_options"] is None
    assert model.config["residual"] == method


def test_the_euclidean_baseline_with_a_hyperbolic_head_has_the_given_curvature(images):
    baseline = run(images, method="euclidean", config=CONFIG | {"curvature": -3.0, "learn_curvature": True})
    assert sum("log_kappa" in name for name, _ in build(baseline)[0].named_parameters()) == 0
    headed, _, _ = build(run(images, method="euclidean", config=baseline.config | {"head": "mlr"}))
    assert float(headed.manifold.K.detach()) == pytest.approx(-3.0)
    assert sum("log_kappa" in name for name, _ in headed.named_parameters()) == 1


def test_grey_images_give_a_network_with_one_input_channel(tmp_path):
    grey = {f"{part}_images": np.zeros((count, 8, 8), np.uint8) for part, count in (("train", 60), ("test", 30))}
    model, _, _ = build(run(str(write_coloured(tmp_path / "grey.npz", **grey))))
    assert model.in_channels == 1


def test_only_the_seed_decides_parameters_and_batches(images):
    torch.manual_seed(99)
    a, first, _ = build(run(images))
    torch.manual_seed(1)
    b, second, _ = build(run(images))
    c, third, _ = build(run(images, seed=4))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not all(torch.equal(p, q) for p, q in zip(a.parameters(), c.parameters(), strict=True))
    for objective in (first, second, third):
        objective.start_epoch()
        objective.advance(0)
    assert torch.equal(first._batch, second._batch)
    assert not torch.equal(first._batch, third._batch)


def test_a_network_for_vectors_is_an_error(images):
    with pytest.raises((TypeError, ValueError), match="lorentz_mlp"):
        build(run(images, config=CONFIG | {"model": "lorentz_mlp"}))


def test_a_final_run_reads_the_test_set_and_a_search_run_does_not(images, monkeypatch):
    record, model = execute(run(images), command="c")
    assert record["validation"] is None  # no image was held out
    assert record["value"] == record["metrics"]["accuracy"]
    assert not model.training
    json.dumps(record, allow_nan=False)

    def forbidden(self: object, model: object) -> None:
        raise AssertionError("the test set was read")

    monkeypatch.setattr(ImageClassification, "test", forbidden)
    record, _ = execute(run(images, stage="search", config=CONFIG | {"holdout": 0.2}), command="c")
    assert 0 <= record["validation"] <= 100
    assert "value" not in record


def test_a_missing_file_is_an_error_with_its_path(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"gone\.npz does not exist"):
        build(run(str(tmp_path / "gone.npz")))


def test_images_of_two_sizes_are_resized_to_the_given_size(tmp_path: Path):
    from PIL import Image

    for part in ("train", "test"):
        for number, name in enumerate(("apple", "pear")):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for i in range(3):
                Image.new("RGB", (10 + number, 12 + i), (90 * number, 40, 7 * i)).save(folder / f"{i}.png")
    with pytest.raises(ValueError, match="size"):
        build(run(str(tmp_path)))
    _, objective, _ = build(run(str(tmp_path), config=CONFIG | {"size": 8}))
    assert objective.train.images.shape == (6, 8, 8, 3)
