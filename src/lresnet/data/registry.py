"""All data sets by name, discovered in the packages ``graphs``, ``images`` and ``texts`` of :mod:`lresnet.data`.

A data set is one module of these packages. It defines ``SOURCE``, the facts about the data set, and ``read``, its
reader. No other list of data sets exists. Importing this module imports neither torch nor NumPy.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from lresnet.data import graphs, images, texts
from lresnet.data.source import DataSource, GraphSource, ImageSource, OodSource, TaskSource, TextSource

__all__ = ["DATASETS", "GRAPHS", "IMAGE_SETS", "OOD_SETS", "TASKS", "TEXTS", "find_source", "reader"]


def _discover(package: ModuleType) -> dict[str, DataSource]:
    """Return the ``SOURCE`` of every module of ``package``, by name."""
    found: dict[str, DataSource] = {}
    for entry in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{entry.name}")
        source = module.SOURCE
        if source.name != entry.name:
            raise ImportError(f"{module.__name__} describes the data set {source.name!r}; give both the same name")
        found[source.name] = source
    return found


DATASETS: dict[str, DataSource] = _discover(graphs) | _discover(images) | _discover(texts)
"""Every data set, by name."""

GRAPHS = {name: source for name, source in DATASETS.items() if isinstance(source, GraphSource)}
"""The graphs, by name: what :func:`lresnet.data.read_graph` accepts."""

IMAGE_SETS = {name: source for name, source in DATASETS.items() if isinstance(source, ImageSource)}
"""The labelled image sets, by name: what :func:`lresnet.data.load_images` accepts besides paths."""

OOD_SETS = {name: source for name, source in DATASETS.items() if isinstance(source, OodSource)}
"""The out-of-distribution image sets, by name: what :func:`lresnet.data.load_ood_set` accepts besides paths."""

TEXTS = {name: source for name, source in DATASETS.items() if isinstance(source, TextSource)}
"""The texts, by name: what :func:`lresnet.data.text_task` accepts besides paths."""

TASKS: dict[str, TaskSource] = {task.name: task for source in GRAPHS.values() for task in source.tasks}
"""The tasks on graphs, by name: what :func:`lresnet.data.load_task` accepts."""


def find_source(name: str) -> DataSource:
    """Return the facts about the data set ``name``.

    Raises:
        ValueError: There is no data set of this name.
    """
    if name not in DATASETS:
        raise ValueError(f"there is no data set {name!r}; choose one of {', '.join(DATASETS)}")
    return DATASETS[name]


def reader(source: DataSource) -> Callable[..., Any]:
    """Return the function ``read`` of the module that describes ``source``."""
    package = graphs if isinstance(source, GraphSource) else texts if isinstance(source, TextSource) else images
    read: Callable[..., Any] = import_module(f"{package.__name__}.{source.name}").read
    return read
