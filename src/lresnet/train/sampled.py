"""Training on sampled batches of a graph: seed nodes or training edges, and some neighbours of every node.

The loss of a batch estimates the loss of the whole graph. Training edges that are in the batch stay in the graph for
message passing, as they do when the whole graph is one batch: both ways estimate the same loss. (Removing them from a
batch would change the inputs that the model sees, and evaluation passes messages over all training edges.) No
validation or test edge is ever in that graph.

Everything that is random in a step is a function of the seed, the epoch and the step: the order of the epoch, the
negatives, and the neighbours of every node. A batch that a background thread prepares is therefore the batch that the
loop would have prepared, a resumed run draws what the interrupted one would have drawn, and N processes that share a
batch draw the subgraphs of one process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from lresnet.data import LinkTask, NegativeSampler, NodeTask
from lresnet.data.neighbour_sampler import mixed
from lresnet.models import LorentzGCN
from lresnet.train.distributed import ONE_PROCESS, Processes
from lresnet.train.host_graph import HostGraph, Subgraph, apply_layers
from lresnet.train.link_prediction import LinkPrediction
from lresnet.train.node_classification import NodeClassification
from lresnet.train.objective import Objective

__all__ = ["SampledLinkPrediction", "SampledNodeClassification"]

TaskT = TypeVar("TaskT", LinkTask, NodeTask)

# Batches whose mean statistics are those of batch norms in evaluation.
_STATISTICS_BATCHES = 32
_ORDER, _NEIGHBOURS, _NEGATIVES, _DROPOUT = range(4)
"""What a random number is for; part of its key."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Batch:
    """One process's share of a batch, on the host or on the device.

    Args:
        graph: Subgraph around the seeds.
        targets: Classes of the seeds ``[m]``; or the edges and the negatives ``[2, m]`` each, numbered as the seeds.
        scale: Factor on the mean loss of the share, so that the mean over the processes is the mean over the batch.
    """

    graph: Subgraph
    targets: tuple[Tensor, ...]
    scale: float

    def pin(self) -> _Batch:
        return _Batch(self.graph.pin(), tuple(part.pin_memory() for part in self.targets), self.scale)

    def to(self, device: torch.device) -> _Batch:
        targets = tuple(part.to(device, non_blocking=True) for part in self.targets)
        return _Batch(self.graph.to(device), targets, self.scale)


class _Sampled(Objective[LorentzGCN], Generic[TaskT]):
    """Batches of a graph: their order, their shares, and the thread that prepares the next one."""

    captures: ClassVar[bool] = False

    task: TaskT
    inputs: Any

    def _start(
        self,
        task: TaskT,
        samples: int,
        batch_size: int,
        neighbours: Sequence[int],
        seed: int,
        device: torch.device | str,
        processes: Processes,
        prefetch: int,
    ) -> None:
        if batch_size < processes.size:
            raise ValueError(
                f"batch_size {batch_size} is smaller than the number of processes, {processes.size}; use at least "
                f"{processes.size}, or fewer processes"
            )
        self.device, self.processes, self.seed = torch.device(device), processes, seed
        self.samples, self.batch_size, self.neighbours = samples, min(batch_size, samples), tuple(neighbours)
        self.inputs = HostGraph.of(task, self.device)
        self._prefetch, self._executor = prefetch, ThreadPoolExecutor(1, "lresnet-sampling")
        self._futures: dict[int, Future[_Batch]] = {}
        self._epoch, self._step = -1, 0
        self._order: tuple[int | None, Tensor] = None, torch.empty(0)
        self._batch: _Batch | None = None

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.samples // self.batch_size)

    def require_model(self, model: LorentzGCN) -> None:
        if not hasattr(model, "apply_layer"):
            raise ValueError(
                f"{getattr(model, 'model_name', type(model).__name__)} needs the whole graph in every step; leave "
                "batch_size out, or use lorentz_gcn or lorentz_sage"
            )
        self._fanouts(model)

    def start_epoch(self) -> None:
        self._epoch += 1
        if self.processes.size > 1:
            # Shares differ in size, so the processes draw different numbers of random numbers, and a checkpoint holds
            # the state of one process only.
            torch.manual_seed(mixed(self.seed, _DROPOUT, self._epoch, self.processes.rank) >> 1)

    def advance(self, step: int) -> None:
        self._step, self._batch = self._epoch * self.steps_per_epoch + step, None

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._epoch = state["epoch"]

    def current(self, model: LorentzGCN) -> _Batch:
        """Return the batch of this step, and let the thread prepare the next ones."""
        if self._batch is None:
            fanouts, now = self._fanouts(model), self._step
            if not self._prefetch:
                self._batch = self._prepare(now, fanouts).to(self.device)
                return self._batch
            ahead = {step: future for step, future in self._futures.items() if now <= step <= now + self._prefetch}
            for step in range(now, now + 1 + self._prefetch):  # one thread prepares all batches, one after the other
                if step not in ahead:
                    ahead[step] = self._executor.submit(self._prepare, step, fanouts)
            self._futures = ahead
            self._batch = ahead.pop(now).result().to(self.device)
        return self._batch

    def forward_training_data(self, model: LorentzGCN) -> None:
        """Run the model on the full batches, at most 32, of an epoch -1, which training does not have."""
        fanouts, steps = self._fanouts(model), self.steps_per_epoch
        for number in range(min(_STATISTICS_BATCHES, self.samples // self.batch_size)):
            # The thread that prepares training batches prepares these too, because they share a generator.
            batch = self._executor.submit(self._prepare, number - steps, fanouts).result()
            apply_layers(model, batch.graph.to(self.device))

    def _fanouts(self, model: LorentzGCN) -> tuple[int, ...]:
        layers = len(model.layers)
        if len(self.neighbours) not in (1, layers):
            raise ValueError(
                f"neighbours has {len(self.neighbours)} numbers, but the model has {layers} layers; give one number "
                "for all layers, or one for each"
            )
        return self.neighbours if len(self.neighbours) == layers else self.neighbours * layers

    def _prepare(self, step: int, fanouts: tuple[int, ...]) -> _Batch:
        """Return this process's share of the batch of a step, on the host; a function of its arguments."""
        epoch, number = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            generator = torch.Generator().manual_seed(mixed(self.seed, _ORDER, epoch) >> 1)
            self._order = epoch, torch.randperm(self.samples, generator=generator)
        chosen = self._order[1][number * self.batch_size : (number + 1) * self.batch_size]
        positions = torch.arange(len(chosen)).tensor_split(self.processes.size)[self.processes.rank]
        scale = len(positions) * self.processes.size / len(chosen)
        if not len(positions):  # a last batch smaller than the number of processes: every process takes part
            positions = torch.zeros(1, dtype=torch.int64)
        seeds, targets = self._examples(chosen, positions, step)
        graph = self.inputs.sample(seeds, fanouts, mixed(self.seed, _NEIGHBOURS, step))
        batch = _Batch(graph, targets, scale)
        return batch.pin() if self.device.type == "cuda" else batch

    def _examples(self, chosen: Tensor, positions: Tensor, step: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the seeds and the targets of the examples at ``positions`` of the batch ``chosen``."""
        raise NotImplementedError


class SampledNodeClassification(_Sampled[NodeTask], NodeClassification):
    """Objective of node classification on sampled batches of seed nodes.

    An epoch visits every training node once, in a new order; the last batch may be smaller. Validation and test use all
    neighbours: they compute all nodes layer by layer (:class:`~lresnet.train.host_graph.HostGraph`).

    Args:
        task: the graph, its labels and the three index sets; features and edges stay on the host.
        batch_size: seed nodes per step, over all processes together.
        neighbours: number of neighbours per node, one for all layers or one per layer, the last layer first; -1 takes
            all.
        loss: ``"cross_entropy"`` or ``"margin"``.
        margin: margin of the margin loss, in units of 1/kappa.
        seed: seed of the order and of the neighbours; the same in all processes.
        device: where the model is.
        processes: the processes that share each batch.
        prefetch: number of batches that a thread prepares ahead; the results do not depend on it.

    Raises:
        ValueError: ``batch_size`` is smaller than the number of processes.

    Example:
        >>> from lresnet.data import load_task
        >>> SampledNodeClassification(load_task("disease_tree/nc"), batch_size=64).steps_per_epoch
        11
    """

    def __init__(
        self,
        task: NodeTask,
        *,
        batch_size: int,
        neighbours: Sequence[int] = (10,),
        loss: Literal["margin", "cross_entropy"] = "cross_entropy",
        margin: float = 1.0,
        seed: int = 0,
        device: torch.device | str = "cpu",
        processes: Processes = ONE_PROCESS,
        prefetch: int = 1,
    ) -> None:
        samples = task.train_index.numel()
        self._start(task, samples, batch_size, neighbours, seed, device, processes, prefetch)
        self.kind, self.margin = loss, margin
        self.task, self._nodes, self._classes = _without_graph(task, device), task.train_index.cpu(), task.y.cpu()

    def loss(self, model: LorentzGCN) -> Tensor:
        batch = self.current(model)
        return self.loss_of_nodes(model, apply_layers(model, batch.graph), *batch.targets) * batch.scale

    def _examples(self, chosen: Tensor, positions: Tensor, step: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        seeds = self._nodes[chosen[positions]]
        return seeds, (self._classes[seeds],)


class SampledLinkPrediction(_Sampled[LinkTask], LinkPrediction):
    """Objective of link prediction on sampled batches of training edges, each with one exact negative.

    An epoch visits every training edge once, in a new order; the last batch may be smaller. Validation and test use all
    neighbours, see :class:`SampledNodeClassification`, which also describes the arguments.

    Args:
        task: the graph and its split; features and edges stay on the host.
        batch_size: training edges per step, over all processes together.
        neighbours: number of neighbours per node.
        margin: margin of the margin loss in units of 1/kappa.
        loss: ``"margin"`` or ``"cross_entropy"``.
        seed: seed of the order, the negatives and the neighbours.
        device: where the model is.
        processes: the processes that share each batch.
        prefetch: number of batches that a thread prepares ahead.
    """

    def __init__(
        self,
        task: LinkTask,
        *,
        batch_size: int,
        neighbours: Sequence[int] = (10,),
        margin: float = 2.0,
        loss: Literal["margin", "cross_entropy"] = "margin",
        seed: int = 0,
        device: torch.device | str = "cpu",
        processes: Processes = ONE_PROCESS,
        prefetch: int = 1,
    ) -> None:
        samples = task.train_edges.shape[1]
        self._start(task, samples, batch_size, neighbours, seed, device, processes, prefetch)
        self.kind, self.margin = loss, margin
        self.sampler = NegativeSampler(task, device="cpu")
        self.task, self._edges = _without_graph(task, device), task.train_edges.cpu()

    @property
    def generators(self) -> list[torch.Generator]:
        return []  # every step seeds the generator of the negatives anew

    def loss(self, model: LorentzGCN) -> Tensor:
        batch = self.current(model)
        return self.loss_of_pairs(model, apply_layers(model, batch.graph), *batch.targets) * batch.scale

    def _examples(self, chosen: Tensor, positions: Tensor, step: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        self.sampler.generator.manual_seed(mixed(self.seed, _NEGATIVES, step) >> 1)
        negative = self.sampler(len(chosen))[:, positions]  # of the whole batch, then the share: the same in 1 process
        pairs = torch.cat([self._edges[:, chosen[positions]], negative], dim=1)
        seeds, local = torch.unique(pairs, return_inverse=True)
        return seeds, local.tensor_split(2, dim=1)


def _without_graph(task: TaskT, device: torch.device | str) -> TaskT:
    """Return the task with its labels and splits on ``device``; features and edges stay where they are."""
    graph = ("x", "edge_index", "edge_weight")
    moved: dict[str, Any] = {
        key: value for key, value in vars(task).items() if isinstance(value, Tensor) and key not in graph
    }
    return dataclasses.replace(task, **{key: value.to(device) for key, value in moved.items()})
