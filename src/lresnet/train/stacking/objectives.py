"""What the engine asks of a stack of tasks: a loss and a validation figure for each member."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.data.negatives import NegativeSamplers
from lresnet.metrics import average_precision, roc_auc
from lresnet.models import LorentzGCN
from lresnet.nn.block_diagonal import BlockDiagonal
from lresnet.nn.fermi_dirac import FermiDirac
from lresnet.nn.input_map import Points
from lresnet.nn.pair_distance import lorentz_distance2, margin_loss
from lresnet.nn.sparse import SparseMatrix
from lresnet.train.graph_inputs import GraphInputs
from lresnet.train.link_prediction import LinkPrediction, kappa_of_model
from lresnet.train.node_classification import NodeClassification, class_hinges, class_margin
from lresnet.train.objective import Objective
from lresnet.train.stacking.model import StackError

__all__ = [
    "Beside",
    "StackedInputs",
    "StackedLinkPrediction",
    "StackedNodeClassification",
    "StackedObjective",
    "stack_objectives",
]


class StackedObjective(abc.ABC):
    """The objectives of S runs as one. What a member draws, it draws from its own generator, as it would alone."""

    @property
    def generators(self) -> Sequence[torch.Generator]:
        """What ``loss`` draws from, besides dropout."""
        return ()

    @abc.abstractmethod
    def loss(self, model: LorentzGCN) -> Tensor:
        """Training losses of one step, [S]; that of a member depends on no other."""

    @abc.abstractmethod
    def validation(self, model: LorentzGCN) -> Tensor:
        """The figures that epochs are chosen by, [S], on the device."""


def stack_objectives(objectives: Sequence[Objective[Any]], model: LorentzGCN) -> StackedObjective:
    """``objectives``, all of one kind, as one; ``model`` is that of the stack.

    Raises:
        StackError: there is no stack of this kind, or the tasks differ in shape or settings.
    """
    links = [each for each in objectives if isinstance(each, LinkPrediction)]
    nodes = [each for each in objectives if isinstance(each, NodeClassification)]
    if links and len(links) == len(objectives):
        return StackedLinkPrediction(links, model)
    if nodes and len(nodes) == len(objectives):
        return StackedNodeClassification(nodes, model)
    kinds = ", ".join(sorted({type(each).__name__ for each in objectives}))
    raise StackError(f"only link predictions or only node classifications can be stacked, got {kinds}")


class StackedLinkPrediction(StackedObjective):
    """Link prediction on one split graph, or on one for each member with equally many edges held out."""

    def __init__(self, objectives: Sequence[LinkPrediction], model: LorentzGCN) -> None:
        _require_one("loss and margin", [(each.kind, each.margin) for each in objectives])
        tasks = [each.task for each in objectives]
        parts = ("train_edges", "val_edges", "val_negatives")
        _require_one("numbers of edges", [tuple(getattr(task, part).shape[1] for part in parts) for task in tasks])
        self.kind, self.margin, self.members = objectives[0].kind, objectives[0].margin, len(objectives)
        self.inputs = StackedInputs([each.inputs for each in objectives], model)
        self.samplers = NegativeSamplers([each.sampler for each in objectives])
        # Node i of member s is row i S + s of the embeddings [N, S, n] seen as [N S, n].
        self._member = torch.arange(self.members, device=tasks[0].train_edges.device).unsqueeze(1)
        train, val, no_val = (self._rows(torch.stack([getattr(task, p) for task in tasks], dim=1)) for p in parts)
        self._beside = Beside(train.device)
        self._pairs = torch.cat([train, train], dim=-1)  # the second half is filled with negatives at every step
        self._positives, self._judged = train.shape[-1], torch.cat([val, no_val], dim=-1)
        self._labels = torch.arange(self._judged.shape[-1], device=val.device) < val.shape[-1]

    @property
    def generators(self) -> Sequence[torch.Generator]:
        return self.samplers.generators

    def loss(self, model: LorentzGCN) -> Tensor:
        self._beside.start(self._draw)  # as many small kernels as there are members, while the model runs
        z = self.inputs.apply(model)
        self._beside.join()
        if self.kind == "cross_entropy":
            return self._cross_entropy(model, z)
        kappa = kappa_of_model(model, z)
        margin = self.margin if kappa is None else self.margin / kappa
        d2 = self._distance2(model, z, self._pairs)
        positive, negative = d2.unflatten(1, (2, self._positives)).unbind(1)
        return margin_loss(positive, negative, margin)

    def validation(self, model: LorentzGCN) -> Tensor:
        scores = -self._distance2(model, self.inputs.apply(model), self._judged)
        return torch.vmap(lambda row: (roc_auc(row, self._labels) + average_precision(row, self._labels)) / 2)(scores)

    def _draw(self) -> None:
        self._rows(self.samplers(), out=self._pairs[..., self._positives :])

    def _rows(self, pairs: Tensor, out: Tensor | None = None) -> Tensor:
        """[2, S, P] of nodes -> the same of rows."""
        return torch.add(self._member, pairs, alpha=self.members, out=out)

    def _distance2(self, model: LorentzGCN, z: Tensor, pairs: Tensor) -> Tensor:
        """[N, S, n] and rows [2, S, P] -> [S, P]."""
        kappa = kappa_of_model(model, z)
        if isinstance(kappa, Tensor):
            kappa = kappa.expand(*z.shape[:-1], 1).flatten(0, 1)
        return lorentz_distance2(z.flatten(0, 1), pairs.flatten(1), kappa).view(pairs.shape[1:])

    def _cross_entropy(self, model: LorentzGCN, z: Tensor) -> Tensor:
        decoder = FermiDirac(model.manifold)
        x, y = z.flatten(0, 1)[self._pairs.mT]  # [P, S, n] each, so that a curvature [S, 1] of its own broadcasts
        if model.euclidean:
            logits = (decoder.radius - (x - y).square().sum(-1)) / decoder.temperature
        else:
            logits = decoder.logits(x, y)
        labels = torch.arange(logits.shape[0], device=logits.device) < self._positives
        labels = labels.to(logits.dtype).unsqueeze(1).expand_as(logits)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(0)


class StackedNodeClassification(StackedObjective):
    """Node classification on one graph, each member with its own index sets, of any size (the ten official splits)."""

    def __init__(self, objectives: Sequence[NodeClassification], model: LorentzGCN) -> None:
        settings = [(each.kind, each.margin, each.task.metric, each.task.num_classes) for each in objectives]
        _require_one("loss, margin, metric and number of classes", settings)
        self.kind, self.margin, self.objectives = objectives[0].kind, objectives[0].margin, list(objectives)
        self.inputs = StackedInputs([each.inputs for each in objectives], model)
        self._y = torch.stack([each.task.y for each in objectives], dim=1)
        # A mean over some nodes as a weighted sum over all: sets of different sizes, and nodes listed twice, fit in.
        self._weights = torch.stack([_shares(each) for each in objectives], dim=1)

    def loss(self, model: LorentzGCN) -> Tensor:
        logits = self.inputs.apply(model)
        if self.kind == "cross_entropy":
            rows = logits.flatten(0, 1), self._y.flatten()
            losses = torch.nn.functional.cross_entropy(*rows, reduction="none").view(self._y.shape)
        else:
            losses = class_hinges(logits, self._y, class_margin(model, self.margin, logits)).mean(-1)
        return (self._weights * losses).sum(0)

    def validation(self, model: LorentzGCN) -> Tensor:
        logits = self.inputs.apply(model)
        tasks = [each.task for each in self.objectives]
        selected = [(logits[task.val_index, i], task.y[task.val_index]) for i, task in enumerate(tasks)]
        return torch.stack([each.figure(*rows) for each, rows in zip(self.objectives, selected, strict=True)])


def _shares(objective: NodeClassification) -> Tensor:
    """[N]: how often a node is listed among the training nodes, divided by their number."""
    task = objective.task
    counts = torch.bincount(task.train_index, minlength=task.num_nodes)
    return counts.to(task.x.dtype) / task.train_index.numel()


def _require_one(what: str, values: Sequence[Any]) -> None:
    if len(set(values)) > 1:
        shown = " and ".join(map(str, sorted(set(values))[:2]))
        raise StackError(f"runs with different {what} cannot be stacked ({shown}); run them one by one")


Features = Tensor | SparseMatrix


class StackedInputs:
    """Features and edges of the members' graphs; :meth:`apply` runs a stack on them with everything constant cached.

    What all members have in common is kept and computed once.

    Args:
        inputs: of graphs with equally many nodes and features.
        model: the model of the stack.
    """

    def __init__(self, inputs: Sequence[GraphInputs], model: LorentzGCN) -> None:
        first = inputs[0]
        if len({(each.num_nodes, each.features.shape[-1], type(each.features)) for each in inputs}) > 1:
            raise StackError(
                "graphs with other numbers of nodes or kinds of features cannot be stacked; run them one by one"
            )
        same_graph = all(torch.equal(each.edge_index, first.edge_index) for each in inputs[1:])
        graphs = [model.graph(each.edge_index, each.num_nodes) for each in (inputs[:1] if same_graph else inputs)]
        self._graph = graphs[0] if same_graph else BlockDiagonal.of(graphs)
        # Dropout and a learned curvature give each member other values of sparse features.
        own_values = model.dropout > 0 or model.manifold.learnable
        self._features = _stacked([each.features for each in inputs], own_values)
        self._points = None if model.manifold.learnable else self._make_points(model)

    def apply(self, model: LorentzGCN) -> Tensor:
        """The model's output, [N, S, ...]. The input map is repeated only where the curvature is learned."""
        points = self._make_points(model) if self._points is None else self._points
        return model(points, self._graph)  # type: ignore[no-any-return]

    def _make_points(self, model: LorentzGCN) -> Points:
        points = model.input_points(self._features)
        # One sparse matrix for all members has times [N, 1], which have to broadcast against [N, S, n].
        return Points(points.x, points.time.unsqueeze(1)) if points.time.dim() == 2 else points


def _stacked(features: Sequence[Features], own_values: bool) -> Features:
    same = all(_equal(each, features[0]) for each in features[1:])
    dense = [each for each in features if isinstance(each, Tensor)]
    if dense:
        return dense[0].unsqueeze(1) if same else torch.stack(dense, dim=1)
    sparse = [each for each in features if isinstance(each, SparseMatrix)]
    return sparse[0] if same and not own_values else BlockDiagonal.of(sparse)


def _equal(a: Features, b: Features) -> bool:
    if isinstance(a, SparseMatrix) and isinstance(b, SparseMatrix):
        return torch.equal(a.row, b.row) and torch.equal(a.col, b.col) and torch.equal(a.values, b.values)
    return isinstance(a, Tensor) and isinstance(b, Tensor) and torch.equal(a, b)


class Beside:
    """Starts functions beside the current stream of a CUDA device; elsewhere they simply run.

    A recorded step keeps the two branches apart, and a replay runs them at the same time. What such a function gives
    is to be read after :meth:`join` only, from memory that stays where it is.

    Example:
        >>> beside, drawn = Beside(torch.device("cpu")), torch.empty(3)
        >>> beside.start(lambda: drawn.fill_(1.0))
        >>> beside.join()
        >>> drawn
        tensor([1., 1., 1.])
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def start(self, function: Callable[[], object]) -> None:
        """Run ``function`` after everything that was started before, and beside what comes next."""
        if self._stream is None:
            function()
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            function()

    def join(self) -> None:
        """Let the current stream go on only when what was started is done."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
