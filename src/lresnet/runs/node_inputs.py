"""What a trained graph network is applied to: the graph of its run, or a new graph with features of the same kind."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lresnet.data import (
    TASKS,
    DatasetTask,
    GraphLevelTask,
    HierarchyTask,
    ImageTask,
    LinkTask,
    NodeTask,
    TextTask,
    read_graph,
)
from lresnet.data.edges import directed_pairs
from lresnet.data.graph import Graph
from lresnet.data.node_features import input_features
from lresnet.data.pairs import both_directions
from lresnet.runs.config import task_from_dict
from lresnet.runs.graphs import feature_source
from lresnet.runs.names import composed, did_you_mean
from lresnet.runs.task_config import GraphTaskConfig
from lresnet.train.graph_inputs import GraphInputs
from lresnet.train.host_graph import HostGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lresnet.runs.run import Run

__all__ = ["NodeInputs", "inputs_of_graph", "inputs_of_run", "named_by_numbers"]

_LISTED = 5  # nodes of one name that an error message lists


@dataclasses.dataclass(frozen=True, eq=False)
class NodeInputs:
    """A graph as the input of a trained network, with the names of its nodes.

    Args:
        source: what messages call the graph.
        x: features ``[n, f]``.
        edge_index: edges for message passing ``[2, m]``.
        edge_weight: weights ``[m]``; None: all 1.
        num_nodes: n.
        edges: the known edges, each once, ``[2, e]``.
        names: n names; numbers if the nodes have no names.
        labels: classes ``[n]``, -1 where unknown; None: no labels.
        classes: names of the classes.
    """

    source: str
    x: Tensor
    edge_index: Tensor
    edge_weight: Tensor | None
    num_nodes: int
    edges: Tensor
    names: tuple[str, ...]
    labels: Tensor | None
    classes: tuple[str, ...]

    def outputs(self, run: Run) -> Tensor:
        """Return the output of the run's network for all nodes: logits, or points without a head."""
        model: Any = run.model.eval()
        with torch.no_grad():
            if _in_batches(run):  # the graph may be too large for the device
                return HostGraph.of(self, run.device).apply(model)  # type: ignore[arg-type]
            return self._on(run.device).apply(model)

    def points(self, run: Run) -> Tensor:
        """Return the points of all nodes, float32 ``[n, d]``, on the CPU."""
        model: Any = run.model.eval()
        with torch.no_grad():
            if _in_batches(run):
                found = HostGraph.of(self, run.device).embed(model)  # type: ignore[arg-type]
            else:
                found = self._on(run.device).embed(model)
        return found.float().cpu()

    def number(self, name: str) -> int:
        """Return the number of the node that is called ``name``, or that has this number.

        Raises:
            ValueError: There is no such node, or several have the name; the message suggests names or lists numbers.
        """
        found = self._numbers.get(composed(name), [])
        if len(found) == 1:
            return found[0]
        if not found:
            if self._is_number(name):
                return int(name)
            question = did_you_mean(name, list(dict.fromkeys(self.names)))
            known = "names are numbers" if self._named_by_numbers else f"nodes are numbered 0 to {self.num_nodes - 1}"
            raise ValueError(f"{self.source} has no node {name!r}; {question}{'Its' if question else 'its'} {known}")
        listed = ", ".join(map(str, found[:_LISTED]))
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        raise ValueError(f"{len(found)} nodes are called {name!r}: {listed}{more}; use the number of one")

    def has(self, name: str) -> bool:
        """Whether a node has this name or number."""
        return composed(name) in self._numbers or self._is_number(name)

    def _is_number(self, name: str) -> bool:
        is_number = name.isdecimal() and len(name) < 20  # Python reads no number of thousands of digits
        return is_number and int(name) < self.num_nodes and not self._named_by_numbers

    @functools.cached_property
    def _named_by_numbers(self) -> bool:
        return named_by_numbers(self.names)

    @functools.cached_property
    def _numbers(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, name in enumerate(self.names):
            found.setdefault(composed(name), []).append(number)
        return found

    def _on(self, device: torch.device) -> GraphInputs:
        weight = None if self.edge_weight is None else self.edge_weight.to(device)
        return GraphInputs(self.x.to(device), self.edge_index.to(device), self.num_nodes, weight)


def _in_batches(run: Run) -> bool:
    """Whether the graph was trained in batches. A batch of a hierarchy has some of its pairs, and the whole graph."""
    return run.train_config.batch_size is not None and not isinstance(run.task, HierarchyTask)


def inputs_of_run(run: Run) -> NodeInputs:
    """Return the graph of a run as its network sees it: for link prediction without the held-out edges.

    Raises:
        ValueError: The run is on images or on many graphs, or its data have changed.
    """
    task = run.task
    if isinstance(task, ImageTask | DatasetTask | GraphLevelTask | TextTask):
        what = {ImageTask: "images", DatasetTask: "data set", TextTask: "text"}.get(type(task), "set of graphs")
        raise ValueError(f"{run.place} holds a run on the {what} {run.record.data_name}; this needs one on a graph")
    graph = task.graph
    if graph is None and run.record.task.get("kind") == "graph":
        graph = read_graph(TASKS[run.record.task_name].dataset)
    if graph is None:  # a task that was built in Python without a graph
        low, high = task.edge_index
        labels = task.y if isinstance(task, NodeTask) else None
        known = task.edge_index[:, low < high]
        count = task.num_classes if isinstance(task, NodeTask) else 0
        names: tuple[str, ...] = ()
        classes: tuple[str, ...] = ()
    else:
        labels, known, count, names, classes = graph.labels, graph.edges, graph.num_classes, graph.names, graph.classes
    return NodeInputs(
        source=run.record.data_name,
        x=task.x,
        edge_index=task.edge_index,
        edge_weight=task.edge_weight,
        num_nodes=task.num_nodes,
        edges=known,
        names=names or _numbers(task.num_nodes),
        labels=labels,
        classes=classes or _numbers(count),
    )


def inputs_of_graph(run: Run, source: Any) -> NodeInputs:
    """Return a new graph as the input of a run's network.

    Features are prepared as in training: with the columns and, if they were standardised, the means and deviations of
    the run's own graph.

    Args:
        run: a finished run on a user's graph.
        source: the new graph: anything that :func:`lresnet.data.read_graph` takes.

    Raises:
        ValueError: The network has one learned point per node, so that it knows no other nodes; the new graph has
            other features; or the run is not on a user's graph.
    """
    old, task = inputs_of_run(run), run.task
    if isinstance(task, HierarchyTask):
        raise ValueError(f"{run.place} holds a run on a taxonomy; `lresnet predict RUN --parents TERM` takes new terms")
    assert isinstance(task, LinkTask | NodeTask)
    graph = source if isinstance(source, Graph) else read_graph(source)
    own = task.graph
    config = task_from_dict(run.record.task) if run.record.task.get("kind") == "graph" else None
    kind = feature_source(config) if isinstance(config, GraphTaskConfig) and config.is_own else None
    if kind is None and own is not None:
        kind = "learned" if own.features is None else "own"
    if own is None or kind is None:
        raise ValueError(f"{run.place} was trained on a shipped task, whose features another graph does not have")
    if kind == "learned":
        raise ValueError(
            f"the network of {run.place} has one learned point for each node of {old.source} and knows no other nodes; "
            "train with --node-features structural, or on a graph with features, to apply it to new graphs"
        )
    prepared = config.features if isinstance(config, GraphTaskConfig) else "published"
    if kind == "own" and graph.features is None:
        raise ValueError(f"{graph.name} has no features, but the network of {run.place} needs {task.x.shape[1]}")
    proper = graph.edges[:, graph.edges[0] != graph.edges[1]]
    if graph.weights is None:
        edge_index, weight = both_directions(proper, graph.num_nodes), None
    else:
        kept = graph.weights[graph.edges[0] != graph.edges[1]]
        edge_index, weight = directed_pairs(proper, graph.num_nodes, kept)
    x = input_features(graph, edge_index, kind, prepared, like=own).x
    if x.shape[1] != task.x.shape[1]:
        raise ValueError(
            f"{graph.name} has {x.shape[1]} features per node, but the network of {run.place} needs {task.x.shape[1]}"
        )
    return NodeInputs(
        source=graph.name,
        x=x,
        edge_index=edge_index,
        edge_weight=weight,
        num_nodes=graph.num_nodes,
        edges=graph.edges,
        names=graph.names or _numbers(graph.num_nodes),
        labels=None,
        classes=old.classes,
    )


def named_by_numbers(names: Sequence[str]) -> bool:
    """Whether all names are numbers, but not those of the nodes. Then a number is a name: node 3 may be called 7.

    Example:
        >>> named_by_numbers(["7", "3"]), named_by_numbers(["0", "1"]), named_by_numbers(["Oslo", "7"])
        (True, False, False)
    """
    return all(name.isdecimal() for name in names) and tuple(names) != _numbers(len(names))


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))
