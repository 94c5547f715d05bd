"""Two processes train one model with DistributedDataParallel: they take the steps of one process."""

from __future__ import annotations

import contextlib
import os

import numpy as np
import pytest
import torch
from torch import Tensor

import lresnet
from lresnet.models import LorentzResNet
from lresnet.train import Augment, ImageClassification, NonFiniteError, Objective, TrainConfig, train_model
from lresnet.train.distributed import ONE_PROCESS, Processes, first_to_fail, join_processes, report_lost_processes
from tests.coloured import coloured_task
from tests.processes import run_in_two_processes

ALL_OPTIONS = {"clip": 0.5, "weight_decay": 0.1, "decay": "all", "average": 0.7, "warmup": 1.0}


def arrays(model: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


class Plane(Objective[torch.nn.Module]):
    """Fit the sum of the coordinates in float64. The validation scores of the processes differ."""

    def __init__(self, processes: Processes) -> None:
        self.processes, self.passes = processes, 0
        self.points = torch.randn(16, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        self.rows = slice(0)

    @property
    def steps_per_epoch(self) -> int:
        return 2

    def advance(self, step: int) -> None:
        share = self.processes.share(8, images=16)
        self.rows = slice(8 * step + share.start, 8 * step + share.stop)

    def loss(self, model: torch.nn.Module) -> Tensor:
        points = self.points[self.rows]
        return (model(points).squeeze(-1) - points.sum(-1)).square().mean()

    def validation(self, model: torch.nn.Module) -> Tensor:
        self.passes += 1
        return torch.tensor(1.0 + (-1) ** self.processes.rank * self.passes)  # rises in process 0, falls in process 1

    def test(self, model: torch.nn.Module) -> dict[str, float]:
        raise AssertionError("the engine must not read the test set")


def fit_plane(processes: Processes) -> tuple[dict[str, np.ndarray], int, int]:
    torch.manual_seed(processes.rank)  # all processes start with the parameters of process 0
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1)).double()
    config = TrainConfig(6, lr=0.1, optimizer="sgd", eval_every=1, patience=4, **ALL_OPTIONS)
    outcome = train_model(model, Plane(processes), config)
    return arrays(model), outcome.best_epoch, outcome.epochs


def fit_images(processes: Processes, residual: str = "lorentz") -> dict[str, np.ndarray]:
    """Train a ResNet with frozen batch norms, so that no image depends on another."""
    torch.manual_seed(0)
    model = LorentzResNet(8, 3, widths=(4, 6, 8), residual=residual, learn_curvature=True)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval().train = lambda mode=True: None  # type: ignore[method-assign]
    augment = Augment(pad=1, cutout=2)
    objective = ImageClassification(coloured_task(0.2), batch_size=12, augment=augment, processes=processes)
    train_model(model, objective, TrainConfig(2, lr=0.02, optimizer="sgd", **ALL_OPTIONS))
    return arrays(model)


class Curved(torch.nn.Module):
    """Points of a hyperboloid with learned curvature, and a parameter that nothing uses."""

    def __init__(self, in_forward: bool) -> None:
        super().__init__()
        self.manifold = lresnet.Lorentz(-1.0, learnable=True)
        self.linear, self.in_forward = torch.nn.Linear(5, 3), in_forward
        self.unused = torch.nn.Parameter(torch.ones(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.manifold.expmap0(self.linear(x)) if self.in_forward else self.linear(x)


class Distances(Plane):
    """A loss that reads the manifold outside the forward pass of the model."""

    def loss(self, model: Curved) -> Tensor:
        points = self.points[self.rows]
        z = model(points)
        return (model.manifold.dist(z, z.flip(-1)) - points.sum(-1)).square().mean()


def fit_curvature(processes: Processes, in_forward: bool) -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    model = Curved(in_forward).double()
    config = TrainConfig(4, lr=0.1, optimizer="sgd", clip=0.5, weight_decay=0.1, decay="all")
    train_model(model, Distances(processes), config)
    return arrays(model)


def _independent_images() -> tuple[object, ...]:
    with join_processes("cpu") as (processes, _):
        curved = [fit_curvature(processes, in_forward) for in_forward in (False, True)]
        return fit_plane(processes), fit_images(processes), *curved


def test_two_processes_take_the_steps_of_one():
    """With clipping, weight decay, warm-up and averaged parameters; process 0 selects the epoch for both."""
    plane, images = fit_plane(ONE_PROCESS), fit_images(ONE_PROCESS)
    first, second = run_in_two_processes(_independent_images)
    assert plane[1:] == first[0][1:] == second[0][1:] == (6, 6)
    for name, values in plane[0].items():
        np.testing.assert_allclose(first[0][0][name], values, rtol=1e-12, atol=1e-14, err_msg=name)
        np.testing.assert_array_equal(second[0][0][name], first[0][0][name])
    for name, values in images.items():
        np.testing.assert_allclose(first[1][name], values, rtol=1e-4, atol=1e-6, err_msg=name)
        np.testing.assert_array_equal(second[1][name], first[1][name])
    # The gradient of a learned curvature is averaged, also if only the loss reads it.
    for in_forward, one, other in ((False, first[2], second[2]), (True, first[3], second[3])):
        expected = fit_curvature(ONE_PROCESS, in_forward)
        assert abs(expected["manifold.log_kappa"]) > 1e-3  # it was trained
        np.testing.assert_array_equal(expected["unused"], 1.0)  # no gradient: no weight decay
        for name, values in expected.items():
            np.testing.assert_allclose(one[name], values, rtol=1e-12, atol=1e-14, err_msg=name)
            np.testing.assert_array_equal(other[name], one[name])


def _with_batch_norms() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    states = []
    with join_processes("cpu") as (processes, _):
        for epochs, average in ((1, None), (3, 0.9)):
            torch.manual_seed(processes.rank)
            model = LorentzResNet(8, 3, widths=(4, 6, 8))
            options = {"batch_size": 60 // epochs, "augment": Augment(pad=1), "processes": processes}
            objective = ImageClassification(coloured_task(), **options)
            train_model(model, objective, TrainConfig(epochs, lr=0.05, optimizer="sgd", average=average))
            states.append(arrays(model))
    return states[0], states[1]


def test_with_batch_norms_both_processes_end_with_one_model():
    first, second = run_in_two_processes(_with_batch_norms)
    for one, other in zip(first, second, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(other[name], values, err_msg=name)
    torch.manual_seed(0)
    alone = LorentzResNet(8, 3, widths=(4, 6, 8))
    objective = ImageClassification(coloured_task(), batch_size=60, augment=Augment(pad=1))
    train_model(alone, objective, TrainConfig(1, lr=0.05, optimizer="sgd"))
    norm = "stem.1.running_mean"  # after one step, the mean of the means of both shares is the mean of the batch
    np.testing.assert_allclose(first[0][norm], arrays(alone)[norm], rtol=1e-4, atol=1e-6)


class FaultyInOne(torch.nn.Module):
    """The identity, but NaN in process 1 from the third training step on."""

    steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        return x * float("nan") if self.steps > 2 and os.environ["RANK"] == "1" else x


def _not_finite_in_one() -> str:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), FaultyInOne(), torch.nn.Linear(4, 1)).double()
    with join_processes("cpu") as (processes, _), pytest.raises(NonFiniteError) as caught:
        train_model(model, Plane(processes), TrainConfig(9, optimizer="sgd"))
    return str(caught.value)


def test_a_non_finite_loss_in_one_process_stops_both_and_names_the_module():
    first, second = run_in_two_processes(_not_finite_in_one)
    assert first == second
    assert first.startswith("the loss stopped being finite at step 2: the output of module '1' (FaultyInOne) is not")


@pytest.mark.parametrize(
    ("batch_size", "size", "words"),
    [
        (50, 4, "batch_size 50 is not a multiple of the number of processes, 4; use 48 or 52"),
        (3, 4, "batch_size 3 is not a multiple of the number of processes, 4; use 4"),
        (512, 7, r"batch_size 60 \(all images\) is not a multiple of the number of processes, 7; use 56"),
        (512, 61, "processes, 61; use fewer processes, or more images"),
    ],
)
def test_an_uneven_batch_is_refused(batch_size, size, words):
    with pytest.raises(ValueError, match=words):
        ImageClassification(coloured_task(), batch_size=batch_size, processes=Processes(0, size))


def test_the_shares_are_the_batch_of_one_process_in_order():
    whole, *shares = (
        ImageClassification(coloured_task(), batch_size=20, seed=5, processes=processes)
        for processes in (ONE_PROCESS, Processes(0, 2), Processes(1, 2))
    )
    for objective in (whole, *shares):
        objective.start_epoch()
        objective.advance(1)
    assert torch.equal(torch.cat([share._batch for share in shares]), whole._batch)
    assert torch.equal(torch.cat([share._labels for share in shares]), whole._labels)
    assert whole.steps_per_epoch == shares[0].steps_per_epoch == 3


def test_one_process_copies_and_sends_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    value = torch.ones(3)
    with join_processes("auto") as (processes, device):
        processes.average_([value]), processes.broadcast_([value])
        assert (processes, device) == (ONE_PROCESS, "auto")
        assert processes.mean(value).data_ptr() == value.data_ptr()
        assert processes.broadcast(value) is value
        assert processes.gather(value) == [value]
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("cuda", "2 processes need one GPU each, but this machine has 1; start fewer"),
        ("auto", "2 processes need one GPU each, but this machine has 1; start fewer"),
        ("cuda:1", "device 'cuda:1' is not supported with several processes; use cuda"),
    ],
)
def test_every_process_needs_its_own_gpu(device, words, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"WORLD_SIZE": 2, "RANK": 0, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    words_env = "MASTER_ADDR, MASTER_PORT is not set; start all processes with torchrun"
    with pytest.raises(ValueError, match=words_env), join_processes("cpu"):
        pass
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=words), join_processes(device):
        pass


@pytest.mark.parametrize("fails", [False, True])
def test_a_failure_on_a_gpu_does_not_wait_for_the_others(fails: bool, monkeypatch: pytest.MonkeyPatch):
    """NCCL itself is not tested here, only which of torch's two ways out is taken."""
    for name in ("RANK", "LOCAL_RANK", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    calls = []
    for name in ("_init_process_group", "torch.cuda.set_device"):
        monkeypatch.setattr(f"lresnet.train.distributed.{name}", lambda *_: None)
    for name in ("destroy_process_group", "_abort_process_group"):
        module = torch.distributed.distributed_c10d if name.startswith("_") else torch.distributed
        monkeypatch.setattr(module, name, lambda name=name: calls.append(name))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(MemoryError) if fails else contextlib.nullcontext(), join_processes("cuda") as (_, device):
        assert device == "cuda:0"
        if fails:
            raise MemoryError
    assert calls == ["_abort_process_group" if fails else "destroy_process_group"]


class Leaves(torch.nn.Module):
    """The identity, but process 1 ends in the third training step."""

    steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        if self.steps > 2 and os.environ["RANK"] == "1":
            raise InterruptedError("process 1 leaves")
        return x


def _one_leaves() -> str:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), Leaves(), torch.nn.Linear(4, 1)).double()
    try:
        with join_processes("cpu") as (processes, _):
            train_model(model, Plane(processes), TrainConfig(9, optimizer="sgd"))
        return "no error"
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def test_the_loss_of_a_process_is_reported_in_one_line():
    first, second = run_in_two_processes(_one_leaves)
    assert first.startswith("ConnectionError: no connection to the other processes of this run: ")
    assert second == "InterruptedError: process 1 leaves"


def _one_leaves_in_the_backward_pass() -> str:
    with join_processes("cpu") as (processes, _):
        loss = torch.nn.Linear(2, 1)
        network = torch.nn.parallel.DistributedDataParallel(loss)
        result = network(torch.ones(1, 2)).sum()
        if not processes.is_main:
            return "left"
        try:
            with report_lost_processes():
                result.backward()
        except OSError as error:
            return f"{type(error).__name__}: {error}"
    return "no error"


def test_the_loss_of_a_process_in_the_backward_pass_is_reported_in_one_line():
    first, second = run_in_two_processes(_one_leaves_in_the_backward_pass)
    assert first.startswith("ConnectionError: no connection to the other processes of this run: ")
    assert second == "left"


@pytest.mark.parametrize(
    "error", [RuntimeError("mat1 and mat2 shapes differ"), NonFiniteError("module 'connection'"), ValueError("gloo")]
)
def test_other_errors_are_not_taken_for_a_lost_connection(error):
    with pytest.raises(type(error), match=str(error)), report_lost_processes():
        raise error


def test_a_restart_is_independent_of_the_previous_start():
    """torchrun's store outlives the processes and still holds their failures and addresses."""
    first, second = run_in_two_processes(_two_starts)
    assert (first, second) == ([False, True], [True, False])


def _two_starts() -> list[bool]:
    """Whether this process was the first to fail: process 1 in the first start, process 0 in the second."""
    answers = []
    for count in range(2):
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(count)
        with join_processes("cpu") as (processes, _):
            if processes.rank != count:
                answers.append(first_to_fail())
            processes.gather(None)
            if processes.rank == count:
                answers.append(first_to_fail())
            processes.gather(None)
    return answers
