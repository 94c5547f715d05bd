"""The training loop: learning rates, clipping, early stopping, best parameters, checkpoints, resuming."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from lresnet import Lorentz, LorentzResidual
from lresnet.models import LorentzGCN
from lresnet.optim import Optimizers, make_adam
from lresnet.train import LinkPrediction, TrainConfig, engine, seed_everything, train_model
from lresnet.train.checkpoint import load_checkpoint, save_checkpoint
from lresnet.train.checkpoint_state import first_difference
from lresnet.train.engine import TrainingState
from tests.train.toy import Line, network
from tests.train.tree import link_task
from tests.version_0_2 import as_0_2, optimizer_as_0_2, save_checkpoint_as_0_2


class Recorder(Optimizers):
    """Records the learning rate and the gradient norm of every step."""

    def __init__(self, inner: Optimizers) -> None:
        super().__init__(inner.optimizers)
        self.rates: list[float] = []
        self.norms: list[float] = []

    def step(self) -> None:
        group = self.optimizers[0].param_groups[0]
        self.rates.append(group["lr"])
        gradients = [p.grad for g in self.optimizers[0].param_groups for p in g["params"]]
        self.norms.append(float(torch.stack([g.norm() for g in gradients]).norm()))
        super().step()


@pytest.fixture
def recorder(monkeypatch):
    made: list[Recorder] = []

    def make(*args: object, **options: object) -> Recorder:
        made.append(Recorder(make_adam(*args, **options)))
        return made[-1]

    monkeypatch.setattr(engine, "make_adam", make)
    return made


def same(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


# --- one epoch --------------------------------------------------------------------------------------------------------


def test_training_equals_a_plain_loop():
    model, expected, objective = network(), network(), Line()
    outcome = train_model(model, objective, TrainConfig(epochs=12, lr=0.05, weight_decay=0.01, clip=0.7, eval_every=4))
    optimizers, line = make_adam(expected, 0.05, 0.01), Line()
    for _ in range(12):
        optimizers.zero_grad()
        line.loss(expected).backward()
        torch.nn.utils.clip_grad_norm_(expected.parameters(), 0.7)
        optimizers.step()
    assert line.losses == objective.losses
    assert (outcome.epochs, outcome.best_epoch) == (12, 12)
    assert same(model, expected)
    assert outcome.seconds > 0


def test_cudnn_is_enabled_and_benchmarks_its_algorithms():
    class Checks(Line):
        def loss(self, model: torch.nn.Module) -> torch.Tensor:
            assert torch.backends.cudnn.enabled
            assert torch.backends.cudnn.benchmark
            return super().loss(model)

    before = torch.backends.cudnn.benchmark
    train_model(network(), Checks(), TrainConfig(epochs=1))
    assert torch.backends.cudnn.benchmark == before


def test_the_loss_falls():
    model, objective = network(), Line()
    outcome = train_model(model, objective, TrainConfig(epochs=300, lr=0.03, eval_every=10))
    assert outcome.validation > -50  # percent of a distance that starts above 200
    assert sum(objective.losses[-10:]) < 0.1 * sum(objective.losses[:10])


def test_constant_and_cosine_rates(recorder):
    train_model(network(), Line(), TrainConfig(epochs=10, lr=0.2, eval_every=5))
    assert recorder[0].rates == [0.2] * 10
    train_model(network(), Line(), TrainConfig(epochs=10, lr=0.2, lr_schedule="cosine", eval_every=5))
    expected = [0.2 * 0.5 * (1 + math.cos(math.pi * epoch / 10)) for epoch in range(10)]
    assert recorder[1].rates == pytest.approx(expected)
    assert recorder[1].rates[0] == 0.2
    assert 0 < recorder[1].rates[-1] < 0.01


def test_multistep_rates_and_warm_up(recorder):
    train_model(network(), Line(), TrainConfig(epochs=10, lr=1.0, lr_schedule="multistep", eval_every=5))
    expected = [1.0] * 3 + [0.2] * 3 + [0.04] * 2 + [0.008] * 2
    assert recorder[0].rates == pytest.approx(expected)
    train_model(network(), Line(), TrainConfig(epochs=10, lr=1.0, lr_schedule="cosine", warmup=4, eval_every=5))
    after = [0.5 * (1 + math.cos(math.pi * epoch / 6)) for epoch in range(6)]
    assert recorder[1].rates == pytest.approx([0.25, 0.5, 0.75, 1.0, *after])


class Batches(Line):
    """Three steps per epoch; records the calls of the engine."""

    steps_per_epoch = 3

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[object] = []

    def start_epoch(self) -> None:
        self.calls.append("epoch")

    def advance(self, step: int) -> None:
        self.calls.append(step)


def test_an_epoch_may_have_several_steps(recorder):
    objective = Batches()
    train_model(network(), objective, TrainConfig(epochs=2, lr=1.0, warmup=1, eval_every=1))
    assert objective.calls == ["epoch", 0, 1, 2] * 2
    assert recorder[0].rates == pytest.approx([1 / 3, 2 / 3, 1, 1, 1, 1])


class NoValidation(Line):
    """An objective without validation data."""

    def validation(self, model: torch.nn.Module) -> None:
        return None


def test_without_validation_data_the_last_parameters_are_kept():
    model, expected = network(), network()
    outcome = train_model(model, NoValidation(), TrainConfig(epochs=7, eval_every=3))
    train_model(expected, Line([0.1, 0.2, 0.3]), TrainConfig(epochs=7, eval_every=3))
    assert (outcome.validation, outcome.best_epoch, outcome.epochs) == (None, 7, 7)
    assert same(model, expected)


def test_keep_last():
    model, objective = network(), Line([0.9, 0.5, 0.2])
    outcome = train_model(model, objective, TrainConfig(epochs=6, eval_every=2, keep="last"))
    assert (outcome.validation, outcome.best_epoch) == (20.0, 6)
    assert all(torch.equal(tensor, objective.passes[-1][name]) for name, tensor in model.state_dict().items())


def test_the_average_of_the_parameters_is_validated_and_kept():
    model, objective, plain = network(), Line([0.1, 0.2]), Line([0.1, 0.2, 0.3, 0.4])
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train_model(model, objective, TrainConfig(epochs=4, lr=0.05, eval_every=2, average=0.75))
    train_model(network(), plain, TrainConfig(epochs=4, lr=0.05, eval_every=1))
    for name, expected in start.items():
        for i, now in enumerate(plain.passes):
            expected = 0.75 * expected + 0.25 * now[name]
            if i == 1:
                torch.testing.assert_close(objective.passes[0][name], expected)
        torch.testing.assert_close(model.state_dict()[name], expected)


def test_clipping(recorder):
    train_model(network(), Line(), TrainConfig(epochs=10, lr=0.01))
    train_model(network(), Line(), TrainConfig(epochs=10, lr=0.01, clip=0.3))
    free, clipped = recorder[0].norms, recorder[1].norms
    assert max(free) > 1
    assert clipped[0] == pytest.approx(0.3, rel=1e-3)
    assert max(clipped) <= 0.3001
    train_model(network(), Line(), TrainConfig(epochs=10, lr=0.01, clip=1e6))
    assert recorder[2].norms == pytest.approx(free)


# --- validation, patience, the best parameters ------------------------------------------------------------------------


def test_validation_passes_come_every_few_epochs_and_at_the_end():
    seen, objective = [], Line([0.1, 0.3, 0.2])
    outcome = train_model(
        network(), objective, TrainConfig(epochs=12, eval_every=5), on_epoch=lambda *a: seen.append(a)
    )
    assert seen == [(5, 10.0), (10, 30.0), (12, 30.0)]
    assert (outcome.validation, outcome.best_epoch, outcome.epochs) == (30.0, 10, 12)
    assert outcome.curve == [(5, 10.0), (10, 30.0), (12, 20.0)]


def test_the_model_ends_with_the_best_parameters():
    model, objective = network(), Line([0.1, 0.5, 0.5, 0.2])
    train_model(model, objective, TrainConfig(epochs=20, eval_every=5))
    assert not model.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, objective.passes[1][name])  # the earlier one of two equal passes
        assert not torch.equal(tensor, objective.passes[3][name])


@pytest.mark.parametrize(
    ("eval_every", "patience", "scores", "epochs", "best"),
    [
        (1, 3, [0.1, 0.2, 0.1, 0.1, 0.1, 0.9], 5, 2),
        (1, 3, [0.1, 0.2, 0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.9], 8, 5),
        (5, 10, [0.5, 0.4, 0.4, 0.9], 15, 5),
        (5, 7, [0.5, 0.4, 0.4, 0.9], 15, 5),  # epoch 10 is 5 epochs after the best one: too early
        (5, 3, [0.5, 0.6, 0.4, 0.9], 15, 10),  # shorter than eval_every: the next pass decides
        (5, 1, [0.5, 0.4, 0.9], 10, 5),
        (4, None, [0.5] + [0.1] * 9, 40, 4),
    ],
)
def test_early_stopping(eval_every, patience, scores, epochs, best):
    objective = Line(scores)
    outcome = train_model(network(), objective, TrainConfig(epochs=40, eval_every=eval_every, patience=patience))
    assert (outcome.epochs, outcome.best_epoch) == (epochs, best)
    assert len(objective.losses) == epochs
    for name, tensor in objective.passes[best // eval_every - 1].items():
        assert tensor.isfinite().all(), name


class Losses(Line):
    """Given validation losses besides the scores."""

    def __init__(self, scores: list[float], losses: list[float]) -> None:
        super().__init__(scores)
        self.given = iter(losses)

    def validation_with_loss(self, model: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        return self.validation(model), torch.tensor(next(self.given))


def test_the_criterion_loss_keeps_the_pass_of_lowest_loss_and_stops_after_it():
    objective = Losses([0.1, 0.9, 0.2, 0.3, 0.4, 0.95], [3.0, 2.5, math.nan, 2.0, 2.0, 2.5])
    model, config = network(), TrainConfig(epochs=20, eval_every=1, patience=2, criterion="loss")
    outcome = train_model(model, objective, config)
    assert (outcome.best_epoch, outcome.validation, outcome.epochs) == (
        4,
        30.0,
        6,
    )  # the earlier one of two equal losses
    assert [value for _, value in outcome.curve] == [10.0, 90.0, 20.0, 30.0, 40.0, 95.0]
    assert all(torch.equal(tensor, objective.passes[3][name]) for name, tensor in model.state_dict().items())


def test_the_criterion_loss_needs_an_objective_that_computes_it():
    task = link_task()
    model = LorentzGCN(task.x.shape[1], 6)
    with pytest.raises(ValueError, match="criterion='loss' is for the classification of nodes and graphs"):
        train_model(model, LinkPrediction(task), TrainConfig(epochs=1, criterion="loss"))


def test_negative_scores_can_be_the_best():
    outcome = train_model(network(), Line([-1.0, -2.0]), TrainConfig(epochs=10))
    assert (outcome.validation, outcome.best_epoch) == (-100.0, 5)


def test_seed_everything_repeats_torch_s_random_numbers():
    seed_everything(3)
    a = torch.rand(2)
    seed_everything(3)
    assert torch.equal(a, torch.rand(2))


# --- checkpoints ------------------------------------------------------------------------------------------------------


class Interrupted(Exception):
    pass


class Interrupts(Line):
    """Raises in the middle of a step."""

    def __init__(self, at: int, **options: object) -> None:
        super().__init__(**options)
        self.at = at

    def loss(self, model: torch.nn.Module) -> torch.Tensor:
        if len(self.losses) == self.at:
            raise Interrupted
        return super().loss(model)


CONFIG = TrainConfig(epochs=30, lr=0.05, weight_decay=0.01, lr_schedule="cosine", clip=1.0, patience=25, eval_every=4)
SGD = TrainConfig(epochs=30, lr=0.02, optimizer="sgd", warmup=2.0, average=0.9, keep="last", eval_every=4)


@pytest.mark.parametrize("config", [CONFIG, SGD, dataclasses.replace(CONFIG, criterion="loss")])
@pytest.mark.parametrize("at", [0, 1, 6, 7, 13, 29])
def test_a_resumed_run_is_bit_identical(at, config, tmp_path):
    """Dropout draws from torch's generator, the points from the objective's own; both must continue."""
    whole = network(dropout=0.3)
    expected = train_model(whole, Line(), config)
    path = tmp_path / "run.ckpt"
    with pytest.raises(Interrupted):
        train_model(network(dropout=0.3), Interrupts(at), config, checkpoint=path, checkpoint_every=7)
    assert load_checkpoint(path)["epoch"] == at // 7 * 7
    model, objective = network(seed=99, dropout=0.3), Line(seed=99)
    torch.manual_seed(99)
    outcome = train_model(model, objective, config, checkpoint=path, checkpoint_every=7)
    assert len(objective.losses) == 30 - at // 7 * 7
    assert (outcome.validation, outcome.best_epoch, outcome.epochs) == (expected.validation, expected.best_epoch, 30)
    assert outcome.curve == expected.curve
    assert same(model, whole)


def test_writing_checkpoints_changes_nothing(tmp_path):
    plain, saved = network(dropout=0.3), network(dropout=0.3)
    torch.manual_seed(1)
    train_model(plain, Line(), CONFIG)
    torch.manual_seed(1)
    train_model(saved, Line(), CONFIG, checkpoint=tmp_path / "a" / "run.ckpt", checkpoint_every=1)
    assert same(plain, saved)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["run.ckpt", "run.ckpt.previous"]


def test_a_finished_run_started_again_returns_its_outcome(tmp_path):
    path = tmp_path / "run.ckpt"
    first = train_model(network(), Line(), CONFIG, checkpoint=path, checkpoint_every=30)
    objective = Line()
    again = train_model(network(seed=4), objective, CONFIG, checkpoint=path)
    assert objective.losses == []
    assert (again.validation, again.best_epoch, again.epochs) == (first.validation, first.best_epoch, first.epochs)
    assert again.seconds >= load_checkpoint(path)["seconds"] > 0


def test_patience_survives_a_resume(tmp_path):
    config = TrainConfig(epochs=40, eval_every=2, patience=6)
    path = tmp_path / "run.ckpt"
    with pytest.raises(Interrupted):
        train_model(network(), Interrupts(9, scores=[0.5, 0.9, 0.1, 0.1]), config, checkpoint=path, checkpoint_every=1)
    outcome = train_model(network(), Line([0.1] * 20), config, checkpoint=path)
    assert (outcome.epochs, outcome.best_epoch, outcome.validation) == (10, 4, 90.0)


def test_the_checkpoint_of_another_schedule_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    train_model(network(), Line(), TrainConfig(epochs=5), checkpoint=path)
    model, before = network(seed=2), network(seed=2)
    with pytest.raises(
        ValueError,
        match=r"run\.ckpt: the checkpoint belongs to another run: epochs is 5 there, not 6; delete it or use",
    ):
        train_model(model, Line(), TrainConfig(epochs=6), checkpoint=path)
    assert same(model, before)


def test_the_checkpoint_of_another_model_or_version_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    train_model(network(), Line(), TrainConfig(epochs=5), checkpoint=path)
    with pytest.raises(ValueError, match="belongs to a run with another model; delete it or use another folder"):
        train_model(
            torch.nn.Sequential(*network(), torch.nn.Linear(1, 1)), Line(), TrainConfig(epochs=5), checkpoint=path
        )
    state = load_checkpoint(path)
    del state["seconds"]
    save_checkpoint(path, state)
    with pytest.raises(ValueError, match="another version of lresnet wrote the checkpoint; delete it"):
        train_model(network(), Line(), TrainConfig(epochs=5), checkpoint=path)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"seed": 1}, "seed is 0 there, not 1"),
        ({"margin": 2.0}, "margin is None there, not 2.0"),
        ({"batch_size": 8}, "batch_size is None there, not 8"),
    ],
)
def test_the_checkpoint_of_another_seed_or_setting_is_refused(setting, words, tmp_path):
    path = tmp_path / "run.ckpt"
    train_model(network(), Line(), TrainConfig(epochs=5), checkpoint=path)
    with pytest.raises(ValueError, match=f"belongs to another run: {words}; delete it or use another folder"):
        train_model(network(), Line(), TrainConfig(epochs=5, **setting), checkpoint=path)


def test_the_checkpoint_of_a_model_with_other_settings_is_refused():
    state = TrainingState(network(), Line(), TrainConfig(epochs=5)).state_dict()
    other = state["identity"] | {"model": {"model": "lorentz_mlp", "dropout": 0.5}}
    own = state["identity"] | {"model": {"model": "lorentz_mlp", "dropout": 0.0, "added_later": 1}}
    assert first_difference(own, other) == "dropout of the model is 0.5 there, not 0.0"
    assert first_difference(own, own | {"model": {"model": "lorentz_mlp", "dropout": 0.0}}) is None


def test_a_setting_that_a_checkpoint_does_not_know_has_its_default_there():
    config = TrainConfig(epochs=5, margin=2.0)
    identity = TrainingState(network(), Line(), config).state_dict()["identity"]
    train = {name: value for name, value in identity["train"].items() if name != "margin"}
    assert first_difference(identity, identity | {"train": train}) == "margin is None there, not 2.0"
    assert (
        first_difference(identity, identity | {"train": identity["train"] | {"new": 1}}) == "new is 1 there, not None"
    )
    assert first_difference(identity, {"train": config.schedule(), "model": {}}) is None  # lresnet 0.2 recorded no more


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epoch": -1}, "damaged: its epoch is '-1'"),
        ({"epoch": 6}, "damaged: its epoch is '6'"),
        ({"best_epoch": 6}, "damaged: its best_epoch is '6'"),
        ({"best": "high"}, "damaged: its best is 'high'"),
        ({"curve": [1]}, r"damaged: its curve is '\[1\]'"),
        ({"seconds": -1.0}, "damaged: its seconds is '-1.0'"),
        ({"identity": None}, "damaged: its identity is 'None'"),
        ({"model": [1]}, r"damaged: its model is '\[1\]'"),
        ({"optimizers": {}}, "not one of this run: .*; delete it"),
        ({"random": torch.zeros(3)}, "not one of this run: .*; delete it"),
    ],
)
def test_a_checkpoint_of_the_wrong_structure_is_refused_in_one_line(change, words, tmp_path):
    path, config = tmp_path / "run.ckpt", TrainConfig(epochs=5)
    train_model(network(), Line(), config, checkpoint=path)
    save_checkpoint(path, load_checkpoint(path) | change)
    with pytest.raises(ValueError, match=words) as error:
        train_model(network(), Line(), config, checkpoint=path)
    assert "\n" not in str(error.value)


def test_a_folder_that_cannot_be_written_to_fails_before_the_first_step(tmp_path):
    (tmp_path / "file").write_text("")
    objective = Line()
    with pytest.raises(OSError, match="file"):
        train_model(network(), objective, TrainConfig(epochs=5), checkpoint=tmp_path / "file" / "run.ckpt")
    assert objective.losses == []


def test_progress_is_reported_after_every_epoch_of_several_steps():
    seen: list[tuple[int, float | None]] = []
    objective = Batches()
    objective.scores = iter([0.5])
    train_model(network(), objective, TrainConfig(epochs=3, eval_every=3), on_epoch=lambda *report: seen.append(report))
    assert seen == [(1, None), (2, None), (3, 50.0)]


@pytest.mark.parametrize("config", [CONFIG, SGD])
def test_the_checkpoint_of_an_earlier_version_resumes_bit_identically(config, tmp_path):
    """lresnet 0.2 had learned numbers without an axis, and no fixed curvature."""

    def curved() -> torch.nn.Module:
        linear = network()
        residual = LorentzResidual(Lorentz(-0.5), scale="learned")
        return Curved(linear, residual)

    whole, path = curved(), tmp_path / "run.ckpt"
    train_model(whole, Line(), config)
    with pytest.raises(Interrupted):
        train_model(curved(), Interrupts(13), config, checkpoint=path, checkpoint_every=7)
    state = load_checkpoint(path)
    for part in ("model", "average", "best_state"):
        state[part] = state[part] and as_0_2(state[part])
    moments = {key: optimizer_as_0_2(each) for key, each in state["optimizers"].items()}
    save_checkpoint_as_0_2(path, state | {"optimizers": moments}, config)
    model = curved()
    train_model(model, Line(), config, checkpoint=path)
    assert same(model, whole)


class Curved(torch.nn.Module):
    """A network and a residual of its output with itself."""

    def __init__(self, inner: torch.nn.Module, residual: torch.nn.Module) -> None:
        super().__init__()
        self.inner, self.residual = inner, residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return self.residual(y, 0.5 * y)


def test_averaging_and_keeping_leave_a_fixed_curvature_unchanged():
    model = Curved(network(), LorentzResidual(Lorentz(-0.3)))
    train_model(model, Line(), SGD)
    assert model.state_dict()["residual._extra_state"].item() == -0.3
