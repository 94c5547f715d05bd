"""Two processes and one model: the steps of one process, the same parameters everywhere, one decision."""

from __future__ import annotations

import contextlib
import os

import numpy as np
import pytest
import torch
from torch import Tensor

from lresnet.models import LorentzResNet
from lresnet.train import Augment, ImageClassification, NonFiniteError, Objective, TrainConfig, train_model
from lresnet.train.distributed import ALONE, Team, first_to_fail, joined
from tests.coloured import coloured_data
from tests.team import together

ALL_AT_ONCE = {"clip": 0.5, "weight_decay": 0.1, "decay": "all", "average": 0.7, "warmup": 1.0}


def arrays(model: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


class Plane(Objective[torch.nn.Module]):
    """Fit the sum of the coordinates in float64; every process has its own opinion of the outcome."""

    def __init__(self, team: Team) -> None:
        self.team, self.looks = team, 0
        self.points = torch.randn(16, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        self.rows = slice(0)

    @property
    def steps_per_epoch(self) -> int:
        return 2

    def advance(self, step: int) -> None:
        share = self.team.share(8, images=16)
        self.rows = slice(8 * step + share.start, 8 * step + share.stop)

    def loss(self, model: torch.nn.Module) -> Tensor:
        points = self.points[self.rows]
        return (model(points).squeeze(-1) - points.sum(-1)).square().mean()

    def validation(self, model: torch.nn.Module) -> Tensor:
        self.looks += 1
        return torch.tensor(1.0 + (-1) ** self.team.rank * self.looks)  # the leader's rises, the other's falls

    def test(self, model: torch.nn.Module) -> dict[str, float]:
        raise AssertionError("the engine must not read the test set")


def fit_plane(team: Team) -> tuple[dict[str, np.ndarray], int, int]:
    torch.manual_seed(team.rank)  # all begin with the parameters of the first
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1)).double()
    plan = TrainConfig(6, lr=0.1, optimizer="sgd", eval_every=1, patience=4, **ALL_AT_ONCE)
    outcome = train_model(model, Plane(team), plan)
    return arrays(model), outcome.best_epoch, outcome.epochs


def fit_images(team: Team, residual: str = "lorentz") -> dict[str, np.ndarray]:
    """A ResNet whose norms keep to the statistics they have: no image sees another."""
    torch.manual_seed(0)
    model = LorentzResNet(8, 3, widths=(4, 6, 8), residual=residual)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval().train = lambda mode=True: None  # type: ignore[method-assign]
    augment = Augment(pad=1, cutout=2)
    objective = ImageClassification(coloured_data(), holdout=0.2, batch_size=12, augment=augment, team=team)
    train_model(model, objective, TrainConfig(2, lr=0.02, optimizer="sgd", **ALL_AT_ONCE))
    return arrays(model)


def _without_seeing_each_other() -> tuple[tuple[dict[str, np.ndarray], int, int], dict[str, np.ndarray]]:
    with joined("cpu") as (team, _):
        return fit_plane(team), fit_images(team)


def test_two_processes_take_the_steps_of_one():
    """Clipping, weight decay, warm-up and the average of the parameters included; process 0 decides for both."""
    plane, images = fit_plane(ALONE), fit_images(ALONE)
    first, second = together(_without_seeing_each_other)
    assert plane[1:] == first[0][1:] == second[0][1:] == (6, 6)
    for name, values in plane[0].items():
        np.testing.assert_allclose(first[0][0][name], values, rtol=1e-12, atol=1e-14, err_msg=name)
        np.testing.assert_array_equal(second[0][0][name], first[0][0][name])
    for name, values in images.items():
        np.testing.assert_allclose(first[1][name], values, rtol=1e-4, atol=1e-6, err_msg=name)
        np.testing.assert_array_equal(second[1][name], first[1][name])


def _with_batch_norms() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    states = []
    with joined("cpu") as (team, _):
        for epochs, average in ((1, None), (3, 0.9)):
            torch.manual_seed(team.rank)
            model = LorentzResNet(8, 3, widths=(4, 6, 8))
            objective = ImageClassification(coloured_data(), batch_size=60 // epochs, augment=Augment(pad=1), team=team)
            train_model(model, objective, TrainConfig(epochs, lr=0.05, optimizer="sgd", average=average))
            states.append(arrays(model))
    return states[0], states[1]


def test_with_batch_norms_all_end_with_one_model():
    first, second = together(_with_batch_norms)
    for one, other in zip(first, second, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(other[name], values, err_msg=name)
    torch.manual_seed(0)
    alone = LorentzResNet(8, 3, widths=(4, 6, 8))
    objective = ImageClassification(coloured_data(), batch_size=60, augment=Augment(pad=1))
    train_model(alone, objective, TrainConfig(1, lr=0.05, optimizer="sgd"))
    norm = "stem.1.running_mean"  # after one step: the mean of the means of both shares is that of the batch
    np.testing.assert_allclose(first[0][norm], arrays(alone)[norm], rtol=1e-4, atol=1e-6)


class FaultyInOne(torch.nn.Module):
    """The identity, but in process 1 NaN from the third training step on."""

    steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        return x * float("nan") if self.steps > 2 and os.environ["RANK"] == "1" else x


def _not_finite_in_one() -> str:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), FaultyInOne(), torch.nn.Linear(4, 1)).double()
    with joined("cpu") as (team, _), pytest.raises(NonFiniteError) as caught:
        train_model(model, Plane(team), TrainConfig(9, optimizer="sgd"))
    return str(caught.value)


def test_what_is_not_finite_in_one_stops_all_and_is_named():
    first, second = together(_not_finite_in_one)
    assert first == second
    assert first.startswith("the loss stopped being finite at step 2: the output of module '1' (FaultyInOne) is not")


@pytest.mark.parametrize(
    ("batch_size", "size", "words"),
    [
        (50, 4, "batch_size 50 cannot be shared evenly among 4 processes; take 48 or 52"),
        (3, 4, "batch_size 3 cannot be shared evenly among 4 processes; take 4"),
        (512, 7, "batch_size 60, all images that there are, cannot be shared evenly among 7 processes; take 56"),
        (512, 61, "among 61 processes; take fewer processes, or more images"),
    ],
)
def test_a_batch_that_cannot_be_shared_evenly(batch_size, size, words):
    with pytest.raises(ValueError, match=words):
        ImageClassification(coloured_data(), batch_size=batch_size, team=Team(0, size))


def test_shares_are_the_batch_of_one_process_in_order():
    whole, *shares = (
        ImageClassification(coloured_data(), batch_size=20, seed=5, team=team)
        for team in (ALONE, Team(0, 2), Team(1, 2))
    )
    for objective in (whole, *shares):
        objective.start_epoch()
        objective.advance(1)
    assert torch.equal(torch.cat([share._batch for share in shares]), whole._batch)
    assert torch.equal(torch.cat([share._labels for share in shares]), whole._labels)
    assert whole.steps_per_epoch == shares[0].steps_per_epoch == 3


def test_alone_nothing_is_copied_or_sent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    value = torch.ones(3)
    with joined("auto") as (team, device):
        team.average_([value]), team.align_([value])
        assert (team, device) == (ALONE, "auto")
        assert team.mean(value).data_ptr() == value.data_ptr()
        assert team.same(value) is value
        assert team.all(value) == [value]
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cuda", "2 processes need a GPU each, and 1 can be used here; start fewer"),
        ("auto", "2 processes need a GPU each, and 1 can be used here; start fewer"),
        ("cuda:1", "device 'cuda:1' is none for several processes; take cuda"),
    ],
)
def test_a_gpu_for_each_process(device, words, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"WORLD_SIZE": 2, "RANK": 0, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(ValueError, match="MASTER_ADDR, MASTER_PORT is not set; start all with torchrun"), joined("cpu"):
        pass
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=words), joined(device):
        pass


@pytest.mark.parametrize("fails", [False, True])
def test_a_failure_on_a_gpu_does_not_wait_for_the_others(fails: bool, monkeypatch: pytest.MonkeyPatch):
    """What NCCL would do is not seen here: only which of torch's two ways out is taken."""
    for name in ("RANK", "LOCAL_RANK", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    calls = []
    for name in ("_meet", "torch.cuda.set_device"):
        monkeypatch.setattr(f"lresnet.train.distributed.{name}", lambda *_: None)
    for name in ("destroy_process_group", "_abort_process_group"):
        module = torch.distributed.distributed_c10d if name.startswith("_") else torch.distributed
        monkeypatch.setattr(module, name, lambda name=name: calls.append(name))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(MemoryError) if fails else contextlib.nullcontext(), joined("cuda") as (_, device):
        assert device == "cuda:0"
        if fails:
            raise MemoryError
    assert calls == ["_abort_process_group" if fails else "destroy_process_group"]


def test_a_process_that_is_gone_is_said_plainly():
    assert together(_one_leaves)[0].startswith("ConnectionError: lost the other processes of this training")


def _one_leaves() -> str:
    try:
        with joined("cpu") as (team, _):
            if team.leads:
                team.average_([torch.ones(2)])
        return "left"
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def test_a_new_start_knows_nothing_of_the_last_one():
    """torchrun's store outlives the processes: neither who failed nor where they listened is of use to the next."""
    first, second = together(_two_starts)
    assert (first, second) == ([False, True], [True, False])


def _two_starts() -> list[bool]:
    """Who was the first to fail: process 1 of the first start, process 0 of the next."""
    answers = []
    for count in range(2):
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(count)
        with joined("cpu") as (team, _):
            if team.rank != count:
                answers.append(first_to_fail())
            team.all(None)
            if team.rank == count:
                answers.append(first_to_fail())
            team.all(None)
    return answers
