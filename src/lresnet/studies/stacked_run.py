"""Runs that differ in their seed or split alone, as one computation: on a GPU ten cost little more than one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from lresnet.models import LorentzGCN, LorentzSGFormer
from lresnet.models.pretrained import Pretrained
from lresnet.studies.graph_run import graph_cell
from lresnet.studies.run import Run, build, record_of
from lresnet.train import NonFiniteError, Objective, Schedule
from lresnet.train.stack import StackError
from lresnet.train.stacked_fit import fit_many, own_generator

__all__ = ["execute_many", "stacks"]


def stacks(runs: Iterable[Run], largest: int = 10) -> list[list[Run]]:
    """``runs`` in groups for :func:`execute_many`, in the order of their first members.

    Runs go together that differ in seed or split alone. A run on images stands by itself.

    Args:
        largest: at most so many runs a group.

    Example:
        >>> runs = [Run("gnn", "disease/lp", "lorentz", "legacy", seed, {}) for seed in range(5)]
        >>> [len(group) for group in stacks(runs, largest=3)]
        [3, 2]
    """
    groups: dict[tuple[Any, ...], list[list[Run]]] = {}
    order: list[list[Run]] = []
    for run in runs:
        own = groups.setdefault(_kind(run), [])
        if not own or len(own[-1]) == largest or graph_cell(run.cell) is None:
            own.append([])
            order.append(own[-1])
        own[-1].append(run)
    return order


def execute_many(
    runs: Sequence[Run],
    *,
    command: str,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int, list[float | None]], None] | None = None,
) -> list[tuple[dict[str, Any], Pretrained] | NonFiniteError]:
    """What :func:`~lresnet.studies.run.execute` gives for each run, or the error it would raise, trained as one.

    A line says with ``stacked`` how many runs shared the computation; its ``seconds`` are the run's share of the time.

    Raises:
        StackError: the runs differ in more than seed and split, or their tasks in shape: run them one by one.
    """
    if not runs:
        return []
    if len({_kind(run) for run in runs}) > 1:
        raise StackError("runs that are executed as one may differ in seed and split alone; see stacks()")
    if graph_cell(runs[0].cell) is None:
        raise StackError(f"runs on graphs can be executed as one, {runs[0].cell} is none; run them one by one")
    models, objectives, generators = list[Any](), list[Objective[Any]](), list[torch.Generator]()
    schedule = Schedule()
    for run in runs:
        model, objective, schedule = build(run, device)
        if not isinstance(model, LorentzGCN | LorentzSGFormer):
            raise StackError(f"networks of class {type(model).__name__} cannot be stacked; run them one by one")
        models.append(model)
        objectives.append(objective)
        generators.append(own_generator(device))  # where this run's dropout would go on, had it been alone
    outcomes = fit_many(models, objectives, schedule, generators=generators, on_epoch=on_epoch)
    results = list[tuple[dict[str, Any], Pretrained] | NonFiniteError]()
    for run, outcome, model, objective in zip(runs, outcomes, models, objectives, strict=True):
        if isinstance(outcome, NonFiniteError):
            results.append(outcome)
        else:
            record = record_of(run, outcome, model, objective, command, device) | {"stacked": len(runs)}
            results.append((record, model))
    return results


def _kind(run: Run) -> tuple[Any, ...]:
    """All of a run but its seed and its split."""
    return dataclasses.replace(run, seed=0, split=None).key()
