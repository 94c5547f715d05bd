"""Presets: the settings that ``lresnet train`` uses for the shipped tasks, and how a run is configured from them.

A preset is a table of a TOML file in the folder ``presets``, one file per task. Its values were selected on validation
data only. A task without a preset uses the defaults of the library.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from lresnet._files import has_file
from lresnet.data.formats.graph_paths import looks_like_graph
from lresnet.data.registry import IMAGE_SETS, TASKS, TEXTS
from lresnet.data.source import FEATURE_SOURCES, DataKind
from lresnet.data.split_names import ALIASES, canonical_split, split_name
from lresnet.residual.registry import RESIDUALS
from lresnet.runs.config import DATA_KINDS, RunConfig, configure
from lresnet.runs.graph_trials import first_settings
from lresnet.runs.model_config import GRAPH_MODELS, IMAGE_MODELS, ViTConfig
from lresnet.runs.names import did_you_mean, require_known
from lresnet.runs.task_config import GraphTaskConfig, GraphTaskKind, ImageTaskConfig, TextTaskConfig

__all__ = ["find_task", "has_searched_preset", "image_recipes", "is_own_graph", "run_config"]

_TEXT = "text"  # all texts share the recipes of one file
# CIFAR's learning rate suits 50,000 images; on a few hundred its first steps spoil the network.
# benchmarks/small_images.py, 540 images, seeds 0 to 2: after 12 epochs the test accuracy is 35, 43 and 46 % without
# clipping and 53, 61 and 70 % with it; after 40 epochs it is 79, 80 and 80 %, and with the rate 0.8 that CIFAR-10's
# search selected it is 77, 62 and 72 %.
_OWN_IMAGES_CLIP = 1.0
_OWN_IMAGES_LARGEST_LR = 0.4


def find_task(name: str | None, kind: DataKind | None = None) -> tuple[DataKind, str]:
    """Resolve the name of a task: a shipped task, set of images or text, or the path of a user's graph or images.

    Only ``kind`` tells that a path holds a text, because an edge list is a text too. A shipped task takes precedence
    over a path of the same name. Whether a path holds a graph or images is decided by its names alone, see
    :func:`lresnet.data.formats.graph_paths.looks_like_graph`.

    Args:
        name: None: ``"disease_tree/lp"``, ``"cifar10"`` for images, or ``"gcide"`` for texts.
        kind: None: decided by the name.

    Raises:
        ValueError: there is no task and no path of that name; the message suggests the nearest name.

    Example:
        >>> find_task("cifar100"), find_task(None)
        (('images', 'cifar100'), ('graphs', 'disease_tree/lp'))
    """
    if name is None:
        return kind or "graphs", DATA_KINDS[kind or "graphs"].default_task
    if kind is not None:
        return kind, name
    if name in TASKS:
        return "graphs", name
    if name in IMAGE_SETS:
        return "images", name
    if name in TEXTS:
        return "texts", name
    if name and looks_like_graph(name):
        return "graphs", name
    if (name and Path(name).exists()) or name.endswith(".npz"):
        return "images", name
    if Path(name).suffix:
        raise ValueError(f"{name!r} does not exist{'' if Path(name).is_absolute() else f' in {Path.cwd()}'}")
    question = did_you_mean(name, [*TASKS, *IMAGE_SETS, *TEXTS])
    raise ValueError(
        f"{name!r} does not exist, and no shipped task has that name; {question}{'G' if question else 'g'}raphs: "
        f"{', '.join(TASKS)}; images: {', '.join(IMAGE_SETS)}; texts: {', '.join(TEXTS)}; or the path of your own "
        "graph, taxonomy, text or images (`lresnet train --help`)"
    )


def is_own_graph(name: str | None) -> bool:
    """Whether ``name`` is the path of a user's graph rather than a shipped task."""
    return name is not None and find_task(name)[0] == "graphs" and name not in TASKS


def run_config(
    task: str,
    method: str = "lorentz",
    *,
    seed: int = 0,
    kind: DataKind | None = None,
    split: str | int | None = None,
    split_index: int | None = None,
    recipe: str | None = None,
    settings: Mapping[str, Any] | None = None,
    graph_task: GraphTaskKind | None = None,
) -> RunConfig:
    """Configure a run on a shipped task, or on a user's graph, images or text. Other settings come from the preset.

    Args:
        task: a name of :data:`lresnet.data.TASKS`, ``"cifar10"``, ``"cifar100"``, ``"gcide"``, or the path of a user's
            graph, of a folder or ``.npz`` of images, or of a text.
        method: the residual connection.
        seed: seed of parameters, negatives, shuffling and augmentation.
        kind: whether ``task`` is on graphs, images or texts; None: decided by its name, see :func:`find_task`.
        split: split of a graph: its name, or the number of an official one; None: that of the preset, otherwise the
            task's first.
        split_index: number of the split, where there are several of its name; None: the seed draws it, and of the
            official splits the first one is taken.
        recipe: preset of images: fast, fast-learned, long, long-cutmix or paper; None: fast. The vision transformers
            have fast only. Preset of texts: small or base; None: small.
        settings: values by name, see :func:`lresnet.runs.config.configure`. If they change ``epochs`` but not
            ``warmup``, the warm-up keeps its fraction of the epochs.
        graph_task: what to learn on a user's graph; None: ``"node"`` if labels are given, otherwise ``"link"``.

    Raises:
        ValueError: the task, method, split, recipe or a setting is unknown, or a value is out of its range.

    Example:
        >>> run_config("disease/lp", "space", settings={"lr": 0.1}).train.epochs
        1500
        >>> run_config("cifar10", settings={"epochs": 50}).train.warmup
        2.5
        >>> run_config("cifar10", settings={"model": "lorentz_vit_tiny"}).train.optimizer
        'adam'
    """
    require_known("method", method, RESIDUALS)
    given = dict(settings or {})
    found = find_task(task, kind)[0]
    if found == "graphs":
        if recipe is not None:
            raise ValueError(f"--recipe is for images and texts, but {task} is a task on graphs; leave it out")
        if task not in TASKS and Path(task).exists():
            return _own_graph_config(task, method, seed, _own_split(split, split_index), graph_task, given)
        if task not in TASKS and graph_task is not None:
            problem = "is a set of images" if task in IMAGE_SETS else "does not exist"
            own = "taxonomy" if graph_task == "hierarchy" else "graph"
            raise ValueError(f"{task} {problem}; --task {graph_task} needs the path of your own {own}")
        require_known("task", task, TASKS)
        if graph_task is not None:
            raise ValueError(f"--task {graph_task} is for your own graph, but {task} is a shipped task; leave it out")
        return _graph_config(task, method, seed, split, split_index, given)
    if graph_task is not None:
        raise ValueError(f"--task {graph_task} is for graphs, but {task} is a task on {found}; leave it out")
    if found == "texts":
        return _text_config(task, method, seed, split if split_index is None else split_index, recipe, given)
    return _image_config(task, method, seed, split if split_index is None else split_index, recipe, given)


def has_searched_preset(config: RunConfig, recipe: str | None = None) -> bool:
    """Return whether the preset of a run on images was searched for its method, not only shared with others.

    The settings of the vision transformers were not searched for any method.

    Example:
        >>> [has_searched_preset(run_config("cifar10", "tangent", recipe=name), name) for name in ("fast", "paper")]
        [True, False]
    """
    return config.model.residual in _image_preset(config.task.name, recipe, config.model.name)


def image_recipes() -> list[str]:
    """Return the names of the recipes for images, the default first.

    Example:
        >>> image_recipes()[0]
        'fast'
    """
    return list(_presets(DATA_KINDS["images"].default_task))


def _own_graph_config(
    task: str, method: str, seed: int, split: str | int | None, kind: GraphTaskKind | None, given: dict[str, Any]
) -> RunConfig:
    """Configure a run on a user's graph; its settings are the first ones of the search."""
    wanted = None if split is None else str(split)
    index = int(wanted) if wanted is not None and wanted.isdigit() else None
    name = None if wanted is None or index is not None else wanted
    if kind != "hierarchy" and name not in (None, "random"):
        name = _file("split", str(name), "random, the number of one of the graph's masks, or a file")
    if "labels" in given:
        given["labels"] = _file("labels", given["labels"], "a file with rows node,label")
    sources = [*FEATURE_SOURCES[1:], *(["names"] if kind == "hierarchy" else [])]
    if given.get("node_features") not in (None, *sources):
        given["node_features"] = _file("node-features", given["node_features"], f"{', '.join(sources)}, or a file")
    if kind is None:
        kind = "node" if "labels" in given or _has_labels(Path(task)) else "link"
    config = GraphTaskConfig(_absolute(task), name, index, task=kind)
    model = given.get("model") if given.get("model") in GRAPH_MODELS else None  # configure refuses others
    return configure(config, method, seed, first_settings(kind, model) | given)


def _file(option: str, path: str, allowed: str) -> str:
    if not has_file(Path(path)):
        raise ValueError(f"--{option} {path}: there is no such file; give {allowed}")
    return _absolute(path)


def _has_labels(path: Path) -> bool:
    return path.is_dir() and any(child.name.startswith("labels.") for child in path.iterdir())


def _own_split(split: str | int | None, index: int | None) -> str | int | None:
    if index is not None:
        raise ValueError(
            f"--split-index {index} is for shipped tasks on graphs; for a mask of your own graph use --split {index}"
        )
    return split


def _graph_config(
    task: str, method: str, seed: int, split: str | int | None, index: int | None, given: dict[str, Any]
) -> RunConfig:
    splits = TASKS[task].splits
    wanted = None if split is None else str(split)
    if wanted is not None and wanted.isdigit():
        if index is not None:
            raise ValueError(f"--split {wanted} is a number, so --split-index {index} is too much; leave it out")
        wanted, index = "official_splits", int(wanted)
    model = given.get("model", "lorentz_gcn")
    by_split = _presets(task).get("lorentz_gcn", {})
    default = next(iter(by_split), splits[0])
    full = wanted or default
    name = canonical_split(split_name(full), splits)
    if name not in splits:
        raise ValueError(f"{task} has no split {split!r}; choose {' or '.join(map(_split_words, splits))}")
    if model == "lorentz_gcn":
        own = (full, *(older + full.removeprefix(name) for older, now in ALIASES.items() if now == name))
        preset = next((by_split[key] for key in own if key in by_split), by_split.get(default, {}))
    else:
        preset = next(iter(_presets(task).get(model, {}).values()), {})
    if wanted is None and index is None and name == "official_splits":
        index = 0
    return configure(GraphTaskConfig(task, name, index), method, seed, _settings(preset, method) | given)


def _split_words(split: str) -> str:
    return "the number of an official split, e.g. 0," if split == "official_splits" else split


def _image_config(
    task: str, method: str, seed: int, split: str | int | None, recipe: str | None, given: dict[str, Any]
) -> RunConfig:
    if split is not None:
        raise ValueError(f"--split is for graphs, but {task} is a task on images; leave it out")
    preset = _settings(_image_preset(task, recipe, given.get("model")), method)
    if task not in IMAGE_SETS:
        preset = {"clip": _OWN_IMAGES_CLIP} | preset
        preset["lr"] = min(preset["lr"], _OWN_IMAGES_LARGEST_LR)
    if "warmup" in preset and "epochs" in given:
        preset["warmup"] *= given["epochs"] / preset["epochs"]
    name = task if task in IMAGE_SETS else _absolute(task)
    return configure(ImageTaskConfig(name), method, seed, preset | given)


def _text_config(
    task: str, method: str, seed: int, split: str | int | None, recipe: str | None, given: dict[str, Any]
) -> RunConfig:
    if split is not None:
        raise ValueError(f"--split is for graphs, but {task} is a task on texts; leave it out")
    presets: dict[str, dict[str, Any]] = _presets(_TEXT)
    recipe = next(iter(presets)) if recipe is None else recipe
    require_known("recipe", recipe, presets)
    preset = _settings(presets[recipe], method)
    if "epochs" in given:
        preset["warmup"] *= given["epochs"] / preset["epochs"]
    if task not in TEXTS and not Path(task).exists():
        raise ValueError(f"the text {task} does not exist; give a text file, or a folder of .txt files")
    return configure(TextTaskConfig(task if task in TEXTS else _absolute(task)), method, seed, preset | given)


def _image_preset(task: str, recipe: str | None, model: str | None) -> dict[str, Any]:
    name = task if task in IMAGE_SETS else DATA_KINDS["images"].default_task
    of_vit = IMAGE_MODELS.get(str(model)) is ViTConfig
    presets: dict[str, dict[str, Any]] = _presets(f"{name}_vit" if of_vit else name)
    if recipe is None:
        return next(iter(presets.values()))
    require_known(f"recipe of {model}" if of_vit else "recipe", recipe, presets)
    return presets[recipe]


def _settings(preset: Mapping[str, Mapping[str, Any]], method: str) -> dict[str, Any]:
    """Return the settings that a preset has for a method."""
    return {**preset.get("all", {}), **preset.get(method, preset.get("other", {}))}


@functools.cache
def _presets(task: str) -> dict[str, Any]:
    """Return the presets of a task; empty where it has none."""
    file = resources.files("lresnet.runs").joinpath("presets", f"{task.replace('/', '_')}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _absolute(path: str) -> str:
    """Return the absolute path. Links are kept, so that images may move; they are resolved where ``..`` follows one."""
    plain, real = Path(os.path.abspath(path)), Path(path).resolve()  # noqa: PTH100 - absolute() keeps ".."
    return str(plain if plain.resolve() == real else real)
