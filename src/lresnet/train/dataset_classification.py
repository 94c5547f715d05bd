"""Classification of a user's own data set by any network: batches from a loader, cross entropy, accuracy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lresnet.data.torch_dataset import DataRandomness, DatasetTask
from lresnet.train.config import Augment, TrainConfig
from lresnet.train.distributed import ONE_PROCESS, Processes
from lresnet.train.objective import Objective, require_no_graph_settings

__all__ = ["DatasetClassification", "network_input", "network_logits"]


def network_input(inputs: Tensor, device: torch.device | str) -> Tensor:
    """Return inputs on ``device``; bytes become float32 in [0, 1].

    Example:
        >>> network_input(torch.tensor([0, 255], dtype=torch.uint8), "cpu")
        tensor([0., 1.])
    """
    moved = inputs.to(device, non_blocking=True)
    return moved.float() / 255 if moved.dtype == torch.uint8 else moved


def network_logits(network: Callable[[Tensor], Any], inputs: Tensor) -> Tensor:
    """Return the logits of any network, in float32 or wider; on CUDA it runs in bfloat16 (autocast).

    The network returns a tensor, or an output with the attribute or key ``logits``, as the library transformers does.

    Raises:
        TypeError: the network returns no logits.
    """
    on_gpu = inputs.device.type == "cuda"
    with torch.autocast("cuda", torch.bfloat16) if on_gpu else contextlib.nullcontext():
        output = network(inputs)
    found = (
        output["logits"] if isinstance(output, Mapping) and "logits" in output else getattr(output, "logits", output)
    )
    if not isinstance(found, Tensor):
        raise TypeError(f"the network returns {type(output).__name__}; a tensor of logits [batch, classes] is needed")
    return found.to(torch.promote_types(found.dtype, torch.float32))


class DatasetClassification(Objective[torch.nn.Module]):
    """Objective of a :class:`~lresnet.data.DatasetTask`: cross entropy of the training batches, accuracy.

    The network maps inputs to logits ``[..., C]`` for labels ``[...]``; a label of -100 is ignored. Labels may also be
    probabilities ``[..., C]``, as MixUp makes them. On CUDA the network runs in bfloat16 (autocast), elsewhere as it
    is.

    While data are read, the global generators of torch, NumPy and Python are seeded by seed, epoch and process, see
    :class:`~lresnet.data.torch_dataset.DataRandomness`. The generator of a loader is part of the checkpoint.

    Args:
        task: the data.
        batch_size: items per step over all processes, for data without a loader; None: 128, fewer for small data.
        label_smoothing: fraction of the target that is spread evenly over all classes.
        seed: seed of shuffling and of random transforms.
        device: where the network is.
        processes: the processes that share each batch.

    Raises:
        ValueError: the loader cannot be shared among the processes, or they have different numbers of batches.
    """

    captures: ClassVar[bool] = False

    def __init__(
        self,
        task: DatasetTask,
        *,
        batch_size: int | None = None,
        label_smoothing: float = 0.0,
        seed: int = 0,
        device: torch.device | str = "cpu",
        processes: Processes = ONE_PROCESS,
    ) -> None:
        self.task, self.processes, self.device = task, processes, torch.device(device)
        self.seed, self.label_smoothing = seed, label_smoothing
        self.loader = task.training_batches(batch_size, seed, processes.rank, processes.size)
        self._steps = task.steps_per_epoch or len(self.loader)
        if len(set(processes.gather(self._steps))) > 1:
            raise ValueError(f"{task.name}: the processes have different numbers of batches; give all the same number")
        self._randomness, self._epoch = DataRandomness(), 0
        self._iterator: Iterator[Any] | None = None
        self._inputs = self._labels = torch.empty(0)

    @classmethod
    def from_config(
        cls, task: DatasetTask, config: TrainConfig, device: torch.device | str, processes: Processes
    ) -> DatasetClassification:
        require_no_graph_settings(task, config)
        smoothing = config.augment.label_smoothing
        if config.augment != Augment(label_smoothing=smoothing):
            raise ValueError(
                f"augment={config.augment} is for images that lresnet reads, but {task.name} has its own transforms; "
                "only label_smoothing applies"
            )
        if config.patience is not None and task.validation is None:
            raise ValueError(
                f"patience={config.patience} needs validation data, and {task.name} has none; give validation= or "
                "leave it out"
            )
        return cls(
            task,
            batch_size=config.batch_size,
            label_smoothing=smoothing,
            seed=config.seed,
            device=device,
            processes=processes,
        )

    @property
    def checkpoint_every(self) -> int:
        return 1  # an epoch reads all data, which may take hours

    @property
    def steps_per_epoch(self) -> int:
        return self._steps

    def start_epoch(self) -> None:
        self._randomness.seed(self.seed, self._epoch, self.processes.rank)
        for part in (self.loader.sampler, self.loader.batch_sampler, self.loader.dataset):
            if callable(set_epoch := getattr(part, "set_epoch", None)):
                set_epoch(self._epoch)
        if self.task.steps_per_epoch is None:  # a stream continues where the last epoch ended
            self._iterator = None
        self._epoch += 1

    def advance(self, step: int) -> None:
        with self._randomness.active():
            inputs, labels = self.task.pair(self._next())
        if step + 1 == self._steps and self.task.steps_per_epoch is None:
            self._iterator = None  # ends its worker processes before validation starts others
        self._inputs = network_input(inputs, self.device)
        self._labels = labels.to(self.device, non_blocking=True)

    def _next(self) -> Any:
        """Return the next batch; data that end early start again."""
        for _ in range(2):
            if self._iterator is None:
                self._iterator = iter(self.loader)
            batch = next(self._iterator, None)
            if batch is not None:
                return batch
            self._iterator = None
        raise ValueError(f"{self.task.name}: the training loader gives no batches; use a smaller batch size")

    def loss(self, model: Callable[[Tensor], Any]) -> Tensor:
        logits = self._logits(model, self._inputs)
        labels, flat = self._checked(logits, self._labels), logits.flatten(0, -2)
        return torch.nn.functional.cross_entropy(flat, labels, label_smoothing=self.label_smoothing)

    def validation(self, model: torch.nn.Module) -> Tensor | None:
        loader = self.task.evaluation_batches("validation")
        return None if loader is None else self._accuracy(model, loader)

    @torch.no_grad()
    def test(self, model: torch.nn.Module) -> dict[str, float]:
        loader = self.task.evaluation_batches("test")
        if loader is None:
            raise ValueError(f"{self.task.name} has no test data; give test= to dataset_task")
        return {"accuracy": 100 * float(self._accuracy(model, loader))}

    def state_dict(self) -> dict[str, Any]:
        generators = [generator.get_state() for generator in self._loader_generators()]
        return {"epoch": self._epoch, "generators": generators}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._epoch, self._iterator = state["epoch"], None
        for generator, saved in zip(self._loader_generators(), state["generators"], strict=True):
            generator.set_state(saved)

    def _loader_generators(self) -> list[torch.Generator]:
        """Return the generators that a user gave to the training loader and its sampler, each once."""
        owners = (self.loader, self.loader.sampler, getattr(self.loader.batch_sampler, "sampler", None))
        found = [getattr(owner, "generator", None) for owner in owners]
        return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())

    def _logits(self, model: Callable[[Tensor], Any], inputs: Tensor) -> Tensor:
        logits, classes = network_logits(model, inputs), self.task.classes
        if classes and logits.shape[-1] != len(classes):
            raise ValueError(
                f"the network returns logits of shape {list(logits.shape)}, but {self.task.name} has {len(classes)} "
                f"classes; its last axis must have {len(classes)}"
            )
        return logits

    def _checked(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the labels, one per row of the logits; probabilities have the shape of the logits."""
        if labels.is_floating_point() and labels.shape == logits.shape:
            return labels.flatten(0, -2).to(logits.dtype)
        if labels.is_floating_point() or labels.shape != logits.shape[:-1]:
            raise ValueError(
                f"logits of shape {list(logits.shape)} need whole numbers as labels, of shape "
                f"{list(logits.shape[:-1])}, but {self.task.name} gives {labels.dtype} {list(labels.shape)}"
            )
        if labels.device.type == "cpu" and labels.numel() and int(labels.max()) >= logits.shape[-1]:
            raise ValueError(
                f"{self.task.name} has the label {int(labels.max())}, but the network returns {logits.shape[-1]} logits"
            )
        return labels.flatten().long()

    @torch.no_grad()
    def _accuracy(self, model: torch.nn.Module, loader: DataLoader[Any]) -> Tensor:
        """Return the share of labels that have the largest logit, over all items of a loader."""
        right = torch.zeros((), device=self.device)
        count = torch.zeros((), device=self.device)
        randomness = DataRandomness()
        randomness.seed(self.seed)
        with randomness.active():
            batches = iter(loader)
        while True:
            with randomness.active():
                batch = next(batches, None)
            if batch is None:
                break
            inputs, labels = self.task.pair(batch)
            logits = self._logits(model, network_input(inputs, self.device))
            found = self._checked(logits, labels.to(self.device))
            found = found.argmax(-1) if found.is_floating_point() else found
            known = found >= 0
            right += (logits.flatten(0, -2).argmax(-1) == found)[known].sum()
            count += known.sum()
        if not bool(count > 0):
            raise ValueError(f"{self.task.name}: a loader for evaluation gives no labelled items")
        return right / count
