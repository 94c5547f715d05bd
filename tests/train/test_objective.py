"""The table of objectives: every kind of task has one, with its configuration, sizes and checkpoints."""

from __future__ import annotations

import dataclasses
from pkgutil import resolve_name
from typing import get_args

import pytest

from lresnet.data import Task, load_task, text_task
from lresnet.data.source import DataKind
from lresnet.runs.config import DATA_KINDS
from lresnet.runs.graphs import _BUILDERS
from lresnet.runs.task_config import GraphTaskKind
from lresnet.train import Objective, TrainConfig, make_objective
from lresnet.train.objective import OBJECTIVES


@pytest.mark.parametrize("kind", get_args(Task), ids=lambda kind: kind.__name__)
def test_every_kind_of_task_has_an_objective_and_knows_its_data(kind: type[Task]) -> None:
    objective = resolve_name(OBJECTIVES[kind])
    assert "from_config" in vars(objective)
    assert issubclass(objective, Objective)
    assert kind.data_kind in get_args(DataKind)
    assert callable(kind.model_sizes)
    assert callable(kind.describe)


def test_the_tables_of_runs_are_complete() -> None:
    assert set(DATA_KINDS) == set(get_args(DataKind))
    assert set(_BUILDERS) == set(get_args(GraphTaskKind))
    assert all(entry.task.data_kind == name for name, entry in DATA_KINDS.items())


def test_a_subclass_of_a_task_has_its_objective() -> None:
    task = load_task("disease_tree/lp")
    own = dataclasses.make_dataclass("OwnTask", [], bases=(type(task),), frozen=True, eq=False)(**vars(task))
    assert type(make_objective(own, TrainConfig())) is type(make_objective(task, TrainConfig()))


def test_checkpoints_are_rare_where_an_epoch_is_one_batch() -> None:
    graph, text = load_task("disease_tree/lp"), text_task(b"to be or not to be, " * 50, context=16)
    assert make_objective(graph, TrainConfig()).checkpoint_every == 200
    assert make_objective(graph, TrainConfig(batch_size=64)).checkpoint_every == 10
    assert make_objective(text, TrainConfig()).checkpoint_every == 1
