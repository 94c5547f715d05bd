"""Tasks of runs, loaded from a configuration, a name or the record of an earlier run."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

from lresnet.data import ImageData, ImageTask, Task, TextTask, dataset_task, load_images, load_task, text_task
from lresnet.data.split_names import SPLITS
from lresnet.runs.config import DATA_KINDS, task_as_dict, task_from_dict
from lresnet.runs.data_facts import data_facts, require_images_exist, require_same_data
from lresnet.runs.graphs import load_own_task
from lresnet.runs.presets import find_task, is_own_graph, run_config
from lresnet.runs.record import RunRecord
from lresnet.runs.task_config import GraphTaskConfig, ImageTaskConfig, TaskConfig, TextTaskConfig
from lresnet.train.distributed import ONE_PROCESS, Processes

__all__ = ["load", "load_in_order", "load_task_of_run"]


def load(config: TaskConfig, seed: int = 0) -> Task:
    """Load the task of a configuration. The last few tasks stay in memory.

    Args:
        seed: draws a random split that has no number; published splits are the same for every seed.
    """
    if isinstance(config, ImageTaskConfig):
        folder = (config.size, config.test_fraction, config.split_seed, config.memory, config.workers)
        data = _images(config.name, *folder)
        return ImageTask(config.name, data, holdout=config.holdout, stratified=bool(config.stratified))
    if isinstance(config, TextTaskConfig):
        return _text(config)
    if config.is_own:
        return load_own_task(config, seed)
    rule = SPLITS.get(config.split or "")
    drawn = config.split_index is None and rule is not None and rule.follows_seed
    return _graph_task(config, seed if drawn else 0)


@functools.lru_cache(maxsize=12)  # the ten official splits of a data set, and a few more
def _graph_task(config: GraphTaskConfig, seed: int) -> Task:
    dropped = config.drop_columns or ()
    return load_task(
        config.name,
        split=config.split,
        seed=seed,
        features=config.features,
        index=config.split_index,
        drop_columns=dropped,
    )


@functools.lru_cache(maxsize=2)
def _text(config: TextTaskConfig) -> TextTask:
    return text_task(config.name, tokens=config.tokens, vocab_size=config.vocab_size, context=config.context)


@functools.lru_cache(maxsize=2)
def _images(
    name: str,
    size: int | None = None,
    test_fraction: float | None = None,
    split_seed: int | None = None,
    memory: float | None = None,
    workers: int | None = None,
) -> ImageData:
    options = {"test_fraction": test_fraction, "split_seed": split_seed, "memory": memory, "workers": workers}
    return load_images(name, size=size, **{key: value for key, value in options.items() if value is not None})  # type: ignore[arg-type]


def load_in_order(
    task: Task | TaskConfig | Dataset[Any] | DataLoader[Any] | str, seed: int, processes: Processes
) -> tuple[Task, dict[str, Any]]:
    """Load a task with rank 0 first, which may have to download it, and describe it for ``run.json``."""
    if isinstance(task, Dataset | DataLoader):
        task = dataset_task(task)
    if isinstance(task, str):
        kind, name = find_task(task)
        task = run_config(task).task if is_own_graph(task) else DATA_KINDS[kind].task(name)
    if not isinstance(task, TaskConfig):
        if not isinstance(task, Task):
            raise TypeError(
                "fit takes a task of lresnet.data, its configuration or its name, or a torch Dataset or DataLoader, "
                f"got {task!r}"
            )
        return task, {"kind": "python"} | task.describe()
    if processes.size > 1 and processes.is_main:
        load(task, seed)
    processes.broadcast(None)  # the others wait here
    loaded = load(task, seed)
    return loaded, task_as_dict(task)


def load_task_of_run(record: RunRecord, place: str) -> Task:
    """Load the task of a run again.

    Args:
        record: the record of the run.
        place: the folder of the run, for messages.

    Raises:
        FileNotFoundError: the data are gone.
        ValueError: the data have changed, or the task was built in Python.
    """
    if record.task.get("kind") not in {each.task.kind for each in DATA_KINDS.values()}:
        raise ValueError(f"{place} was trained on a task built in Python; pass it: Run.open(folder, task=task)")
    if record.task["kind"] == "images":
        require_images_exist(record.task_name, Path(place))
    task = load(task_from_dict(record.task), record.seed)
    facts = data_facts(task, record.task, ONE_PROCESS)
    require_same_data("images", facts["images"], record.images, record.task_name, Path(place))
    require_same_data("graph", facts["graph"], record.graph, record.task_name, Path(place))
    require_same_data("text", facts["text"], record.text, record.task_name, Path(place))
    return task
