"""Tasks on a user's graph, read and built as a configuration says."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path

from lresnet.data import (
    Graph,
    Task,
    graph_task,
    hierarchy_task,
    link_task,
    node_task,
    read_graph,
    read_graphs,
)
from lresnet.data.source import FEATURE_SOURCES, FeatureSource
from lresnet.runs.task_config import GraphTaskConfig, GraphTaskKind

__all__ = ["feature_source", "load_own_task", "read_own_graph"]


@functools.lru_cache(maxsize=4)
def load_own_task(config: GraphTaskConfig, seed: int) -> Task:
    """Build the task of a user's graph. The last few graphs and tasks stay in memory.

    Args:
        seed: seed of a random split.

    Raises:
        FileNotFoundError: the graph, or a file that the configuration names, is gone.
        ValueError: a file is damaged, or the task is impossible.
    """
    assert config.task is not None
    return _BUILDERS[config.task](config, seed)


def _link_task(config: GraphTaskConfig, seed: int) -> Task:
    graph = read_own_graph(config)
    if config.split_index is not None:
        raise ValueError(
            f"--split {config.split_index} is for node classification; for links give a file, or leave it out"
        )
    return link_task(
        graph,
        name=config.name,
        split=None if config.split == "random" else config.split,
        seed=seed,
        metric=config.metric,
        node_features=feature_source(config),
        features=config.features,
    )


def _node_task(config: GraphTaskConfig, seed: int) -> Task:
    return node_task(
        read_own_graph(config),
        name=config.name,
        split=config.split_index if config.split_index is not None else config.split,
        seed=seed,
        metric=config.metric or "accuracy",
        node_features=feature_source(config),
        features=config.features,
    )


def _graph_level_task(config: GraphTaskConfig, seed: int) -> Task:
    graphs, labels = read_graphs(Path(config.name))
    metric = config.metric or "accuracy"
    return graph_task(graphs, labels, name=config.name, seed=seed, metric=metric, features=config.features)


def _hierarchy_task(config: GraphTaskConfig, seed: int) -> Task:
    if not Path(config.name).exists():
        raise FileNotFoundError(f"the taxonomy {config.name} does not exist; move it back, or make that path a link")
    return hierarchy_task(
        Path(config.name),
        name=config.name,
        split=config.split,  # type: ignore[arg-type]  # checked by the configuration
        seed=seed,
        metric=config.metric or "ordered_mrr",
        node_features=config.node_features,
    )


_BUILDERS: Mapping[GraphTaskKind, Callable[[GraphTaskConfig, int], Task]] = {
    "link": _link_task,
    "node": _node_task,
    "graph-level": _graph_level_task,
    "hierarchy": _hierarchy_task,
}


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
