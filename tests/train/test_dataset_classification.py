"""Training on a user's own data: losses, labels, randomness, resuming, frozen parts, and two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import lresnet
from lresnet.data import dataset_task
from lresnet.train import Augment, DatasetClassification, TrainConfig, make_objective
from lresnet.train.distributed import ONE_PROCESS, Processes, join_processes
from lresnet.train.engine import frozen_parts
from tests.processes import run_in_two_processes


class Interruption(Exception):
    pass


class Noisy(Dataset[Any]):
    """Points whose transform draws from the global generators of torch and NumPy."""

    def __init__(self, count: int = 48) -> None:
        self.targets = [i % 3 for i in range(count)]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        label = self.targets[index]
        noise = torch.rand(4) + float(np.random.rand())  # noqa: NPY002
        return torch.nn.functional.one_hot(torch.tensor(label), 4) + 0.3 * noise, label


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(torch.full((4,), float(i)), i % 3) for i in range(10)])


def network(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def state(net: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in net.state_dict().items()}


def assert_equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def loader_with_generator() -> DataLoader[Any]:
    return DataLoader(Noisy(), 12, shuffle=True, generator=torch.Generator().manual_seed(3))


def loader_without_generator() -> DataLoader[Any]:
    return DataLoader(Noisy(), 12, shuffle=True)


@pytest.mark.parametrize("data", [Noisy, loader_with_generator, loader_without_generator])
def test_a_resumed_run_is_bit_identical(data: Any, tmp_path: Path) -> None:
    def stop(epoch: int, best: float | None) -> None:
        if epoch == 3:
            raise Interruption

    config = TrainConfig(5, lr=0.05, eval_every=1, batch_size=12 if data is Noisy else None)
    options: dict[str, Any] = {"device": "cpu", "checkpoint_every": 2}
    validation = Noisy(12)
    whole = lresnet.fit(dataset_task(data(), validation), network(), config, **options)
    with pytest.raises(Interruption):
        lresnet.fit(dataset_task(data(), validation), network(), config, out=tmp_path, on_epoch=stop, **options)
    torch.manual_seed(99)  # another process has other global generators
    np.random.seed(99)  # noqa: NPY002
    resumed = lresnet.fit(dataset_task(data(), validation), network(seed=5), config, out=tmp_path, **options)
    assert_equal(state(whole.model), state(resumed.model))
    assert resumed.record.validation == whole.record.validation


def test_global_generators_do_not_change_what_is_learned() -> None:
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        net = network()
        torch.manual_seed(seed)
        lresnet.fit(dataset_task(loader_without_generator()), net, TrainConfig(2, lr=0.05), device="cpu")
        found.append(state(net))
    assert_equal(*found)


def test_epochs_differ_in_their_noise() -> None:
    objective = DatasetClassification(dataset_task(Noisy(), holdout=0), batch_size=48)
    sums = []
    for _ in range(2):
        objective.start_epoch()
        objective.advance(0)
        sums.append(objective._inputs.sum().item())
    assert sums[0] != sums[1]


def test_a_stream_goes_on_and_starts_again() -> None:
    objective = DatasetClassification(dataset_task(Stream(), steps_per_epoch=2, classes=3), batch_size=4)
    assert objective.steps_per_epoch == 2
    seen = []
    for _ in range(2):
        objective.start_epoch()
        for step in range(2):
            objective.advance(step)
            seen.append(objective._inputs[:, 0].tolist())
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2  # an incomplete batch is left out


def test_without_validation_the_last_epoch_is_kept_and_patience_is_refused() -> None:
    task = dataset_task(loader_without_generator())
    run = lresnet.fit(task, network(), TrainConfig(3, lr=0.01, eval_every=1), device="cpu")
    assert (run.record.best_epoch, run.record.validation) == (3, None)
    with pytest.raises(ValueError, match="patience=2 needs validation data, and dataset has none"):
        lresnet.fit(task, network(), TrainConfig(3, patience=2), device="cpu")


def test_early_stopping_keeps_the_best_epoch_by_validation_only() -> None:
    """The test set has other labels: an epoch that it selected would be another one."""
    inputs = torch.eye(3).repeat(8, 1)
    train, test = (TensorDataset(inputs, (torch.arange(24) + shift) % 3) for shift in (0, 1))
    net = torch.nn.Linear(3, 3)
    torch.nn.init.zeros_(net.weight)
    task = dataset_task(train, validation=train, test=test)
    run = lresnet.fit(task, net, TrainConfig(50, lr=0.1, eval_every=1, patience=2), device="cpu")
    assert run.record.validation == 100
    assert run.record.epochs < 50
    assert run.evaluate() == {"accuracy": 0.0}


def test_only_label_smoothing_applies_to_own_data() -> None:
    task = dataset_task(Noisy(), holdout=0)
    smooth = make_objective(task, TrainConfig(1, augment=Augment(label_smoothing=0.5), batch_size=48))
    plain = make_objective(task, TrainConfig(1, batch_size=48))
    net = network().eval()
    losses = []
    for objective in (smooth, plain):
        objective.start_epoch()
        objective.advance(0)
        losses.append(objective.loss(net).item())
    assert losses[0] != losses[1]
    with pytest.raises(ValueError, match="dataset has its own transforms; only label_smoothing applies"):
        make_objective(task, TrainConfig(1, augment=Augment(cutout=4)))


def test_logits_and_labels_may_have_more_axes_and_labels_may_be_probabilities() -> None:
    tokens, labels = torch.rand(6, 5, 4), torch.randint(3, (6, 5))
    labels[0, 0] = -100
    soft = torch.nn.functional.one_hot(labels.clamp(0), 3).float()
    net = torch.nn.Linear(4, 3)
    for target in (labels, soft):
        data = TensorDataset(tokens, target)
        objective = DatasetClassification(dataset_task(data, validation=data, classes=3))
        objective.start_epoch()
        objective.advance(0)
        assert objective.loss(net).isfinite()
        assert 0 <= float(objective.validation(net)) <= 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("net", "labels", "error", "words"),
    [
        (torch.nn.Linear(4, 2), torch.zeros(6).long(), ValueError, r"shape \[6, 2\], but dataset has 3 classes"),
        (torch.nn.Linear(4, 3), torch.zeros(6, 1).long(), ValueError, r"need whole numbers as labels, of shape \[6\]"),
        (torch.nn.Linear(4, 3), torch.full((6,), 3), ValueError, "has the label 3, but the network returns 3 logits"),
        (torch.nn.LSTM(4, 3), torch.zeros(6).long(), TypeError, "the network returns tuple; a tensor of logits"),
    ],
)
def test_a_network_that_does_not_fit_is_named(net: Any, labels: Any, error: type[Exception], words: str) -> None:
    data = TensorDataset(torch.rand(6, 4), labels)
    with pytest.raises(error, match=words):
        lresnet.fit(dataset_task(data, validation=data, classes=3), net, TrainConfig(1), device="cpu")


class Outputs(torch.nn.Module):
    """A network that returns a dict of outputs, as those of the library transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"hidden": x, "logits": self.layer(x)}


def test_outputs_with_logits_are_accepted() -> None:
    run = lresnet.fit(dataset_task(Noisy()), Outputs(), TrainConfig(1), device="cpu")
    assert run.record.validation is not None


def test_frozen_parts_do_not_change_and_stay_in_eval_mode() -> None:
    net = network()
    backbone = net[:3]
    backbone.requires_grad_(False)
    assert frozen_parts(net) == [net[0], net[1]]
    before = state(net)
    lresnet.fit(dataset_task(Noisy()), net, TrainConfig(2, lr=0.1, weight_decay=0.1), device="cpu")
    after = state(net)
    for name in before:
        assert np.array_equal(before[name], after[name]) != name.startswith("3."), name


def test_dropout_in_a_frozen_part_is_off() -> None:
    frozen = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).requires_grad_(False)
    seen = []
    frozen.register_forward_hook(lambda module, inputs, output: seen.append(module[1].training))
    net = torch.nn.Sequential(frozen, torch.nn.Linear(4, 3), torch.nn.Dropout(0.5))
    lresnet.fit(dataset_task(Noisy(), holdout=0), net, TrainConfig(1), device="cpu")
    assert seen
    assert not any(seen)


def test_a_network_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="Sequential has no parameter to train: none has requires_grad=True"):
        lresnet.fit(dataset_task(Noisy()), network().requires_grad_(False), TrainConfig(1), device="cpu")


def train_shared(processes: Processes) -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(32, 4).double(), torch.arange(32) % 3)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
    net[0].requires_grad_(False)
    config = TrainConfig(3, lr=0.05, optimizer="sgd", eval_every=1, batch_size=8)
    lresnet.fit(dataset_task(data), net, config, device="cpu", processes=processes)
    return state(net)


def train_in_process() -> dict[str, np.ndarray]:
    with join_processes("cpu") as (processes, _):
        return train_shared(processes)


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one() -> None:
    whole = train_shared(ONE_PROCESS)
    for found in run_in_two_processes(train_in_process):
        for name, value in whole.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-12, err_msg=name)
