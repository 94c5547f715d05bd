"""Runs on a user's graph: the task of a configuration, and whether the graph has changed since a run was started."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from lresnet.data import (
    Graph,
    GraphLevelTask,
    Task,
    graph_task,
    hierarchy_task,
    link_task,
    node_task,
    read_graph,
    read_graphs,
)
from lresnet.data.source import FEATURE_SOURCES, FeatureSource
from lresnet.runs.task_config import GraphTaskConfig

__all__ = ["feature_source", "graph_facts", "load_own_task", "read_own_graph", "require_same_graph"]

# What run.json records of a graph, and what an error message calls it.
_WORDS = {"nodes": "nodes", "edges": "edges", "digest": "edges, features or labels"}


def load_own_task(config: GraphTaskConfig, seed: int) -> Task:
    """Build the task of a user's graph. The last few graphs and tasks stay in memory.

    Args:
        seed: seed of a random split.

    Raises:
        FileNotFoundError: the graph, or a file that the configuration names, is gone.
        ValueError: a file is damaged, or the task is impossible.
    """
    return _task(config, seed)


@functools.lru_cache(maxsize=4)
def _task(config: GraphTaskConfig, seed: int) -> Task:
    if config.task == "graph-level":
        graphs, labels = read_graphs(Path(config.name))
        metric = config.metric or "accuracy"
        return graph_task(graphs, labels, name=config.name, seed=seed, metric=metric, features=config.features)
    if config.task == "hierarchy":
        if not Path(config.name).exists():
            raise FileNotFoundError(
                f"the taxonomy {config.name} does not exist; move it back, or make that path a link"
            )
        return hierarchy_task(
            Path(config.name),
            name=config.name,
            split=config.split,  # type: ignore[arg-type]  # checked by the configuration
            seed=seed,
            metric=config.metric or "mrr",
            node_features=config.node_features,
        )
    graph = read_own_graph(config)
    source = feature_source(config)
    split = config.split_index if config.split_index is not None else config.split
    if config.task == "link":
        if isinstance(split, int):
            raise ValueError(f"--split {split} is for node classification; for links give a file, or leave it out")
        return link_task(
            graph,
            name=config.name,
            split=None if split == "random" else split,
            seed=seed,
            metric=config.metric,
            node_features=source,
            features=config.features,
        )
    return node_task(
        graph,
        name=config.name,
        split=split,
        seed=seed,
        metric=config.metric or "accuracy",
        node_features=source,
        features=config.features,
    )


def feature_source(config: GraphTaskConfig) -> FeatureSource | None:
    """Return where the node features come from; None: the graph's own ones, or learned points without any."""
    return next((source for source in FEATURE_SOURCES if source == config.node_features), None)


def read_own_graph(config: GraphTaskConfig) -> Graph:
    """Read the user's graph of a configuration, with the files of features and labels that it names."""
    features = None if config.node_features in (None, *FEATURE_SOURCES) else config.node_features
    return _graph(config.name, features, config.labels, bool(config.directed))


@functools.lru_cache(maxsize=2)
def _graph(name: str, features: str | None, labels: str | None, directed: bool) -> Graph:
    if not Path(name).exists():
        raise FileNotFoundError(f"the graph {name} does not exist; move it back, or make that path a link to it")
    return read_graph(Path(name), features=features, labels=labels, directed=directed)


def graph_facts(task: Task) -> dict[str, Any] | None:
    """Return the sizes and a checksum of a user's graph as JSON values; None for a task without its graph."""
    if isinstance(task, GraphLevelTask):
        parts: list[Any] = [task.x, task.edge_index, task.batch, task.y]
        return _facts(task.num_nodes, task.edge_index.shape[1] // 2, parts)
    graph = getattr(task, "graph", None)
    if graph is None:
        return None
    features = graph.features
    arrays = [features] if features is None or isinstance(features, np.ndarray) else [features.data, features.indices]
    return _facts(graph.num_nodes, graph.edges.shape[1], [graph.edges, graph.weights, graph.labels, *arrays])


def _facts(nodes: int, edges: int, parts: list[Any]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for part in parts:
        if part is None:
            digest.update(b"none")
            continue
        array = part.numpy() if isinstance(part, Tensor) else part
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return {"nodes": nodes, "edges": edges, "digest": digest.hexdigest()}


def require_same_graph(
    facts: Mapping[str, Any] | None, before: Mapping[str, Any] | None, name: str, folder: Path
) -> None:
    """Raise an error if a user's graph has changed since the run in ``folder`` was started.

    Args:
        facts: facts of the graph as it is now, see :func:`graph_facts`.
        before: facts that ``run.json`` of ``folder`` recorded; None: it recorded none.

    Raises:
        ValueError: the graph has changed; the message says in what.
    """
    for key, now in (facts or {}).items():
        if before is not None and before.get(key, now) != now:
            raise ValueError(
                f"{name} has other {_WORDS[key]} than when the run in {folder} was started; "
                "restore the file, or train in another folder"
            )
