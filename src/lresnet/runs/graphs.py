"""Tasks on a user's graph, read and built as a configuration says."""

from __future__ import annotations

import functools
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
from lresnet.runs.task_config import GraphTaskConfig

__all__ = ["feature_source", "load_own_task", "read_own_graph"]


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
