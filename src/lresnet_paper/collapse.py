"""Study of deep chains of residuals: loss, distances and gradients by layer while the networks train.

The plan, with its hypotheses, is ``collapse.toml``. :func:`run_study` measures every network at the epochs of the plan.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lresnet._json import read_toml
from lresnet.train.engine import TrainingState
from lresnet.train.non_finite import NonFiniteError
from lresnet.train.results import append_result, environment, read_results
from lresnet_paper.depth import training_state
from lresnet_paper.run import Run, build, depth_cell

__all__ = ["TABLE", "Training", "missing_trainings", "read_plan", "run_of", "run_study", "run_training", "trainings"]

TABLE = "collapse"
"""The name of the file of results, and of the field ``table`` of its lines."""

_COMMAND = "python -m lresnet_paper collapse"

Plan = Mapping[str, Any]


def read_plan(path: Path | None = None) -> Plan:
    """Return the plan of the study, or one of the same form.

    Example:
        >>> read_plan()["layers"]
        [16, 32]
    """
    return read_toml(path or Path(__file__).with_suffix(".toml"))


class Training(NamedTuple):
    """One training of the study. ``setting`` is a name of the plan's ``settings``."""

    setting: str
    layers: int
    seed: int


def trainings(plan: Plan) -> list[Training]:
    """Return the trainings of the study, one seed after the other.

    Example:
        >>> trainings(read_plan())[0]
        Training(setting='average', layers=16, seed=0)
    """
    return [
        Training(setting, layers, seed)
        for seed in plan["seeds"]
        for layers in plan["layers"]
        for setting in plan["settings"]
    ]


def missing_trainings(plan: Plan, lines: Iterable[Mapping[str, Any]]) -> list[Training]:
    """Return the trainings that have no line."""
    known = {(line["setting"], line["config"]["num_layers"], line["seed"]) for line in lines}
    return [one for one in trainings(plan) if tuple(one) not in known]


def run_of(plan: Plan, one: Training) -> Run:
    """Return a training as a run of a table.

    Example:
        >>> run = run_of(read_plan(), Training("weight 1/L", 16, 0))
        >>> run.method, run.cell, run.config["weight"]
        ('lorentz', 'disease/lp/16', 0.0625)
    """
    config = plan["fixed"] | plan["settings"][one.setting]
    config |= {"num_layers": one.layers, "epochs": plan["epochs"][-1], "eval_every": plan["epochs"][-1]}
    if "weight_times_layers" in config:
        config["weight"] = config.pop("weight_times_layers") / one.layers
    if config["clip"] == 0:
        del config["clip"]
    method = config.pop("method")
    return Run(TABLE, depth_cell(plan["cell"], one.layers), method, plan["protocol"], one.seed, config, stage="train")


def run_training(plan: Plan, one: Training, device: str = "cpu") -> dict[str, Any]:
    """Train one network and return its line: ``states`` holds the measurements, in the order of ``state_epochs``.

    The states of a run whose numbers stop being finite end there, with the reason in ``error``.
    """
    run, started = run_of(plan, one), time.perf_counter()
    model, objective, config = build(run, device)
    state = TrainingState(model, objective, config, "eager")
    states: dict[int, dict[str, Any]] = {}
    record: dict[str, Any] = dataclasses.asdict(run) | {"setting": one.setting}
    try:
        for epoch in plan["epochs"]:
            while state.epoch < epoch:
                state.train_epoch()
            states[epoch] = training_state(model, objective)  # type: ignore[arg-type]
    except NonFiniteError as error:
        record["error"] = str(error)
    found = [own["validation"] for own in states.values()]
    return record | {
        "validation": None if "error" in record else found[-1],
        "state_epochs": list(states),
        "states": list(states.values()),
        "seconds": round(time.perf_counter() - started, 2),
        "command": _COMMAND,
        **environment(device),
    }


def run_study(
    plan: Plan, out: Path, *, device: str = "cpu", minutes: float | None = None, report: Callable[[str], None] = print
) -> int:
    """Run the trainings that have no line in ``out``, and return how many are still missing.

    Args:
        plan: the result of :func:`read_plan`.
        out: the file of JSON lines; each line is written as soon as it is known.
        device: where networks are trained.
        minutes: start no training after this many minutes. None: run all.
        report: called with a line of text after every training.
    """
    started = time.monotonic()
    todo = missing_trainings(plan, read_results(out))
    for number, one in enumerate(todo):
        if minutes is not None and time.monotonic() - started > 60 * minutes:
            return len(todo) - number
        line = run_training(plan, one, device)
        append_result(out, line)
        last = line["states"][-1]
        report(
            f"{one.setting}, {one.layers} layers, seed {one.seed}: loss {last['loss']}, "
            f"validation {last['validation']}, distance {last['distance'][-1]}"
        )
    return 0
