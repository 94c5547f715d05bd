"""Objectives of a stack: a training loss and a validation score for each member."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lresnet.data import NodeTask
from lresnet.data.negatives import NegativeSamplers
from lresnet.metrics import average_precision, link_metric, roc_auc
from lresnet.models import LorentzGCN
from lresnet.nn.fermi_dirac import FermiDirac
from lresnet.nn.input_map import Points
from lresnet.nn.pair_distance import lorentz_distance2, margin_loss
from lresnet.nn.sparse import BlockDiagonal, SparseMatrix
from lresnet.train.ancestor_retrieval import AncestorForest, AncestorRetrieval
from lresnet.train.graph_inputs import GraphInputs, in_precision_of
from lresnet.train.link_prediction import LinkPrediction, kappa_of_model
from lresnet.train.node_classification import NodeClassification, class_hinges, class_margin
from lresnet.train.objective import Objective
from lresnet.train.stacking.model import StackError

__all__ = [
    "SideStream",
    "StackedAncestorRetrieval",
    "StackedInputs",
    "StackedLinkPrediction",
    "StackedNodeClassification",
    "StackedObjective",
    "stack_objectives",
]

Features = Tensor | SparseMatrix


class StackedObjective(abc.ABC):
    """The objectives of S runs as one. Each member draws from its own generator, as it would alone."""

    @property
    def generators(self) -> Sequence[torch.Generator]:
        """The generators that ``loss`` draws from, except those of dropout."""
        return ()

    @abc.abstractmethod
    def loss(self, model: LorentzGCN) -> Tensor:
        """Return the training losses of one step, [S]. A member's loss does not depend on the others."""

    @abc.abstractmethod
    def validation(self, model: LorentzGCN) -> Tensor:
        """Return the validation scores, [S], on the device."""

    def validation_with_loss(self, model: LorentzGCN) -> tuple[Tensor, Tensor]:
        """Return the validation scores and the mean losses of the validation data, [S] each.

        It is optional, as for :class:`~lresnet.train.objective.Objective`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no validation_with_loss")


def stack_objectives(objectives: Sequence[Objective[Any]], model: LorentzGCN) -> StackedObjective:
    """Return objectives of one kind as one.

    Args:
        objectives: one for each member.
        model: the model of the stack.

    Raises:
        StackError: this kind cannot be stacked, or the tasks differ in shape or settings.
    """
    # A subclass has a loss of its own, e.g. that of sampled batches.
    links = [each for each in objectives if type(each) is LinkPrediction]
    nodes = [each for each in objectives if type(each) is NodeClassification]
    if links and len(links) == len(objectives):
        return StackedLinkPrediction(links, model)
    if nodes and len(nodes) == len(objectives):
        return StackedNodeClassification(nodes, model)
    retrievals = [each for each in objectives if type(each) is AncestorRetrieval]
    if retrievals and len(retrievals) == len(objectives):
        return StackedAncestorRetrieval(retrievals)
    kinds = ", ".join(sorted({type(each).__name__ for each in objectives}))
    raise StackError(
        "a stack needs LinkPrediction, NodeClassification or AncestorRetrieval objectives only, got "
        f"{kinds}; run them one by one"
    )


class StackedLinkPrediction(StackedObjective):
    """Link prediction on one graph, or on one graph per member with equal numbers of held-out edges."""

    def __init__(self, objectives: Sequence[LinkPrediction], model: LorentzGCN) -> None:
        _require_equal("loss and margin", [(each.kind, each.margin) for each in objectives])
        tasks = [each.task for each in objectives]
        _require_equal("metrics", [str(task.metric) for task in tasks])
        parts = ("train_edges", "val_edges", "val_negatives")
        _require_equal("numbers of edges", [tuple(getattr(task, part).shape[1] for part in parts) for task in tasks])
        self.kind, self.margin, self.members = objectives[0].kind, objectives[0].margin, len(objectives)
        self.metric = tasks[0].metric
        self.inputs = StackedInputs([each.inputs for each in objectives], model)
        self.samplers = NegativeSamplers([each.sampler for each in objectives])
        # Node i of member s is row i S + s of the embeddings [N, S, n] viewed as [N S, n].
        self._member = torch.arange(self.members, device=tasks[0].train_edges.device).unsqueeze(1)
        train, val, no_val = (self._rows(torch.stack([getattr(task, p) for task in tasks], dim=1)) for p in parts)
        self._side_stream = SideStream(train.device)
        self._pairs = torch.cat([train, train], dim=-1)  # every step writes its negatives into the second half
        self._positives, self._val_pairs = train.shape[-1], torch.cat([val, no_val], dim=-1)
        self._val_edges = val.shape[-1]
        self._labels = torch.arange(self._val_pairs.shape[-1], device=val.device) < self._val_edges

    @property
    def generators(self) -> Sequence[torch.Generator]:
        return self.samplers.generators

    def loss(self, model: LorentzGCN) -> Tensor:
        self._side_stream.start(self._draw)  # one small kernel per member, while the model runs
        z = self.inputs.apply(model)
        self._side_stream.join()
        if self.kind == "cross_entropy":
            return self._cross_entropy(model, z)
        kappa = kappa_of_model(model, z)
        margin = self.margin if kappa is None else self.margin / kappa
        d2 = self._distance2(model, z, self._pairs)
        positive, negative = d2.unflatten(1, (2, self._positives)).unbind(1)
        return margin_loss(positive, negative, margin)

    def validation(self, model: LorentzGCN) -> Tensor:
        scores = -self._distance2(model, self.inputs.apply(model), self._val_pairs)
        if self.metric is not None:
            metric, pairs = link_metric(self.metric), self._val_edges
            return torch.stack([metric(row[:pairs], row[pairs:]) for row in scores])
        return torch.vmap(lambda row: (roc_auc(row, self._labels) + average_precision(row, self._labels)) / 2)(scores)

    def _draw(self) -> None:
        self._rows(self.samplers(), out=self._pairs[..., self._positives :])

    def _rows(self, pairs: Tensor, out: Tensor | None = None) -> Tensor:
        """Rows of the flattened embeddings for pairs of nodes, [2, S, P]."""
        return torch.add(self._member, pairs, alpha=self.members, out=out)

    def _distance2(self, model: LorentzGCN, z: Tensor, pairs: Tensor) -> Tensor:
        """Squared distances [S, P] of pairs of rows [2, S, P] of the embeddings [N, S, n]."""
        kappa = kappa_of_model(model, z)
        if isinstance(kappa, Tensor):
            kappa = kappa.expand(*z.shape[:-1], 1).flatten(0, 1)
        return lorentz_distance2(z.flatten(0, 1), pairs.flatten(1), kappa).view(pairs.shape[1:])

    def _cross_entropy(self, model: LorentzGCN, z: Tensor) -> Tensor:
        decoder = FermiDirac(model.manifold)
        x, y = z.flatten(0, 1)[self._pairs.mT]  # [P, S, n] each, so that curvatures [S, 1] broadcast
        if model.euclidean:
            logits = (decoder.radius - (x - y).square().sum(-1)) / decoder.temperature
        else:
            logits = decoder.logits(x, y)
        labels = torch.arange(logits.shape[0], device=logits.device) < self._positives
        labels = labels.to(logits.dtype).unsqueeze(1).expand_as(logits)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(0)


class StackedNodeClassification(StackedObjective):
    """Node classification on one graph; each member has its own index sets of any size (the ten official splits)."""

    def __init__(self, objectives: Sequence[NodeClassification], model: LorentzGCN) -> None:
        settings = [(each.kind, each.margin, each.task.metric, each.task.num_classes) for each in objectives]
        _require_equal("loss, margin, metric and number of classes", settings)
        self.kind, self.margin, self.objectives = objectives[0].kind, objectives[0].margin, list(objectives)
        self.inputs = StackedInputs([each.inputs for each in objectives], model)
        self._y = torch.stack([each.task.y for each in objectives], dim=1)
        # A mean over some nodes is a weighted sum over all: index sets may differ in size and list a node twice.
        self._weights = torch.stack([_node_weights(each.task, each.task.train_index) for each in objectives], dim=1)
        self._val_weights = torch.stack([_node_weights(each.task, each.task.val_index) for each in objectives], dim=1)

    def loss(self, model: LorentzGCN) -> Tensor:
        return (self._weights * self._losses(model, self.inputs.apply(model))).sum(0)

    def _losses(self, model: LorentzGCN, logits: Tensor) -> Tensor:
        """Return the loss of every node in every member, [N, S]."""
        if self.kind == "cross_entropy":
            rows = logits.flatten(0, 1), self._y.flatten()
            return torch.nn.functional.cross_entropy(*rows, reduction="none").view(self._y.shape)
        return class_hinges(logits, self._y, class_margin(model, self.margin, logits)).mean(-1)

    def validation(self, model: LorentzGCN) -> Tensor:
        return self._scores(self.inputs.apply(model))

    def validation_with_loss(self, model: LorentzGCN) -> tuple[Tensor, Tensor]:
        logits = self.inputs.apply(model)
        return self._scores(logits), (self._val_weights * self._losses(model, logits)).sum(0)

    def _scores(self, logits: Tensor) -> Tensor:
        tasks = [each.task for each in self.objectives]
        selected = [(logits[task.val_index, i], task.y[task.val_index]) for i, task in enumerate(tasks)]
        return torch.stack([each.metric(*rows) for each, rows in zip(self.objectives, selected, strict=True)])


class StackedAncestorRetrieval(StackedObjective):
    """Ancestor retrieval on one forest; each member draws its own codes."""

    def __init__(self, objectives: Sequence[AncestorRetrieval]) -> None:
        first = objectives[0].task
        for each in objectives[1:]:
            parts = ("edge_index", "train_index", "val_index", "val_codes")
            if not all(torch.equal(getattr(each.task, part), getattr(first, part)) for part in parts):
                raise StackError("tasks with different forests or codes cannot be stacked; run them one by one")
        self.objectives, self._first = list(objectives), objectives[0]
        forest = self._first.val_forest
        self._val_codes = first.val_codes[:, forest.trees].flatten().unsqueeze(1).repeat(1, len(objectives))

    @property
    def generators(self) -> Sequence[torch.Generator]:
        return [generator for each in self.objectives for generator in each.generators]

    def loss(self, model: LorentzGCN) -> Tensor:
        codes = torch.stack([each.draw() for each in self.objectives], dim=1)
        logits, answers = self._first.train_forest.logits(model, codes)
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none")
        return self._first.train_forest.weight.to(losses.dtype) @ losses.view(answers.shape)

    def validation(self, model: LorentzGCN) -> Tensor:
        forest: AncestorForest = self._first.val_forest
        logits, answers = forest.logits(model, self._val_codes)
        return forest.weight @ (logits.argmax(-1) == answers).to(forest.weight.dtype)


def _node_weights(task: NodeTask, index: Tensor) -> Tensor:
    """[N]: how often a node is listed in ``index``, divided by the length of ``index``."""
    counts = torch.bincount(index, minlength=task.num_nodes)
    return counts.to(task.x.dtype) / index.numel()


def _require_equal(what: str, values: Sequence[Any]) -> None:
    if len(set(values)) > 1:
        shown = " and ".join(map(str, sorted(set(values))[:2]))
        raise StackError(f"runs with different {what} cannot be stacked ({shown}); run them one by one")


class StackedInputs:
    """Features and edges of the members' graphs. :meth:`apply` runs a stack on them and caches everything constant.

    What all members share is stored and computed once.

    Args:
        inputs: graphs with equal numbers of nodes and features.
        model: the model of the stack.

    Raises:
        StackError: the graphs differ in their numbers of nodes or features, or in whether features are sparse.
    """

    def __init__(self, inputs: Sequence[GraphInputs], model: LorentzGCN) -> None:
        first = inputs[0]
        if len({(each.num_nodes, each.features.shape[-1], type(each.features)) for each in inputs}) > 1:
            raise StackError(
                "graphs with different numbers of nodes or kinds of features cannot be stacked; run them one by one"
            )
        same_graph = all(_same_graph(each, first) for each in inputs[1:])
        graphs = [each.graph(model) for each in (inputs[:1] if same_graph else inputs)]
        self._graph = graphs[0] if same_graph else BlockDiagonal.of(graphs)
        # With dropout of the features or a learned curvature, each member has its own values of sparse features.
        own_values = (model.drops_features and model.dropout > 0) or model.manifold.learnable
        self._features = _stack_features([in_precision_of(model, each.features) for each in inputs], own_values)
        self._points = None if model.manifold.learnable else self._make_points(model)

    def apply(self, model: LorentzGCN) -> Tensor:
        """Return the model's output, [N, S, ...]. The input map is recomputed only if the curvature is learned."""
        points = self._make_points(model) if self._points is None else self._points
        return model(points, self._graph)  # type: ignore[no-any-return]

    def _make_points(self, model: LorentzGCN) -> Points:
        points = model.input_points(self._features)
        # One sparse matrix for all members has times [N, 1], which must broadcast against [N, S, n].
        return Points(points.x, points.time.unsqueeze(1)) if points.time.dim() == 2 else points


def _same_graph(one: GraphInputs, other: GraphInputs) -> bool:
    weights = [each.edge_weight for each in (one, other) if each.edge_weight is not None]
    same_weights = not weights or (len(weights) == 2 and torch.equal(*weights))
    return same_weights and torch.equal(one.edge_index, other.edge_index)


def _stack_features(features: Sequence[Features], own_values: bool) -> Features:
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


class SideStream:
    """A second CUDA stream for work that a later part of the step needs, such as drawing random numbers.

    A captured step keeps the two streams apart, and a replay runs them concurrently. Read the results after
    :meth:`join` only, from tensors that stay at their place in memory. On other devices functions run at once.

    Example:
        >>> stream, drawn = SideStream(torch.device("cpu")), torch.empty(3)
        >>> stream.start(lambda: drawn.fill_(1.0))
        >>> stream.join()
        >>> drawn
        tensor([1., 1., 1.])
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def start(self, function: Callable[[], object]) -> None:
        """Run ``function`` after all earlier work of the current stream, concurrently with what follows there."""
        if self._stream is None:
            function()
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            function()

    def join(self) -> None:
        """Make the current stream wait for the started work."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
