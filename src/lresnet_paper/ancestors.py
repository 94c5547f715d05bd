"""Study of k-hop ancestor retrieval: accuracy by residual, curvature, width and number of hops, with an equal search.

The plan, with the registered contrasts, is ``ancestors.toml``; it was written before the runs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any, NamedTuple

from lresnet._json import read_toml
from lresnet.data import AncestorTask, RootedTree, ancestor_task, load_tree, random_tree
from lresnet.models import LorentzGCN, create_model
from lresnet.residual.registry import residual_options
from lresnet.runs.workers import worker_pool
from lresnet.train import NonFiniteError, Outcome, TrainConfig, make_objective, seed_everything, train_many
from lresnet.train.results import ResultsFile, environment
from lresnet_paper.results import study_file, study_lines

__all__ = [
    "FORMS",
    "TABLE",
    "Arm",
    "arm_of",
    "arms",
    "chosen_trial",
    "missing_arms",
    "own_lines",
    "read_plan",
    "results_file",
    "run_arm",
    "run_study",
    "task_of",
    "total_steps",
    "trials",
]

TABLE = "ancestors"
"""The name of the file of results, and of the field ``table`` of its lines."""

FORMS = ("full", "cpu", "small", "deeper")

_COMMAND = "python -m lresnet_paper ancestors"

Plan = Mapping[str, Any]
Trial = Mapping[str, Any]


def read_plan(path: Path | None = None) -> Plan:
    """Return the plan of the study, or one of the same form.

    Example:
        >>> read_plan()["search"]["lr"]
        [0.003, 0.01]
    """
    return read_toml(path or Path(__file__).with_suffix(".toml"))


class Arm(NamedTuple):
    """One network and task of the study: what a search chooses settings for."""

    form: str
    tree: str
    hops: int
    width: int
    method: str
    kappa: float
    """-K; 0 for the Euclidean baseline."""
    max_nodes: int | None = None
    extra_layers: int = 0
    """Layers beyond one per hop."""

    @property
    def layers(self) -> int:
        """Number of layers of the network."""
        return self.hops + self.extra_layers


def arms(plan: Plan, form: str) -> list[Arm]:
    """Return the arms of a form of the study, in the order of its blocks; what two blocks share occurs once.

    Example:
        >>> first = arms(read_plan(), "small")[0]
        >>> first.tree, first.hops, first.layers, first.method, first.kappa
        ('synthetic', 2, 2, 'lorentz', 1e-06)
    """
    found: dict[Arm, None] = {}
    for block in plan["forms"][form]["blocks"]:
        extra = block.get("extra_layers", [0])
        for hops, width, more, method in itertools.product(block["hops"], block["widths"], extra, block["methods"]):
            for kappa in [0.0] if method == "euclidean" else block["kappas"]:
                found[Arm(form, block["tree"], hops, width, method, kappa, block.get("max_nodes"), more)] = None
    return list(found)


def trials(plan: Plan, method: str) -> list[dict[str, Any]]:
    """Return the settings that the search of a method tries: equally many for every method.

    Example:
        >>> trials(read_plan(), "none")[0], len(trials(read_plan(), "lorentz"))
        ({'lr': 0.003}, 4)
    """
    search = plan["search"]
    if "scale" in residual_options(method):
        return [{"lr": lr, "scale": scale} for lr in search["lr"] for scale in search["scale"]]
    return [{"lr": lr} for lr in search["lr_without_scale"]]


def total_steps(plan: Plan, form: str) -> dict[str, int]:
    """Return the steps of a form: of single trainings, of stacks of seeds, and of stacks times layers."""
    own = plan["forms"][form]
    found = {"trainings": 0, "stacks": 0, "layers": 0}
    for arm in arms(plan, form):
        search, final = len(trials(plan, arm.method)) * own["search_steps"], own["steps"]
        found["trainings"] += search * len(own["search_seeds"]) + final * len(own["seeds"])
        found["stacks"] += search + final
        found["layers"] += (search + final) * arm.layers
    return found


# --- one arm ----------------------------------------------------------------------------------------------------------


def task_of(plan: Plan, arm: Arm) -> AncestorTask:
    """Return the task of an arm; all methods, curvatures, widths and seeds share it."""
    count = plan["forms"][arm.form]["max_anchors"]
    if arm.tree == "wordnet":
        tree = _wordnet()
    else:
        tree = random_tree(depth=arm.hops + 1, parts=count, seed=plan["split_seed"], **plan["trees"][arm.tree])
    return ancestor_task(
        tree,
        arm.hops,
        codes=plan["codes"],
        rounds=plan["rounds"],
        queries_per_anchor=plan["queries_per_anchor"],
        max_anchors=count,
        max_nodes=arm.max_nodes,
        seed=plan["split_seed"],
    )


@functools.cache
def _wordnet() -> RootedTree:
    return load_tree("wordnet")


def run_arm(plan: Plan, arm: Arm, out: Path, device: str = "cpu") -> None:
    """Run the search of an arm and its final trainings, and append a line for each training that ``out`` lacks."""
    file = results_file(out)
    own, task = plan["forms"][arm.form], task_of(plan, arm)
    for trial in trials(plan, arm.method):
        _train(plan, arm, task, trial, "search", own["search_seeds"], file, device)
    searched = [line for line in own_lines(out) if arm_of(line) == arm and line["stage"] == "search"]
    _train(plan, arm, task, chosen_trial(searched), "final", own["seeds"], file, device)


def chosen_trial(lines: Iterable[Mapping[str, Any]]) -> Trial:
    """Return the settings with the highest mean validation accuracy among the search lines of an arm."""
    scores: dict[tuple[Any, ...], list[float]] = {}
    for line in lines:
        settings = tuple(line["config"]["settings"].items())
        scores.setdefault(settings, []).append(line["validation"] or 0.0)
    best, _ = max(scores.items(), key=lambda item: statistics.fmean(item[1]))
    return dict(best)


def _train(
    plan: Plan,
    arm: Arm,
    task: AncestorTask,
    trial: Trial,
    stage: str,
    seeds: Sequence[int],
    file: ResultsFile,
    device: str,
) -> None:
    """Train the seeds of one setting that have no line, as one stack."""
    known = file.keys()
    missing = [seed for seed in seeds if (*arm, stage, tuple(trial.items()), seed) not in known]
    if not missing:
        return
    steps = plan["forms"][arm.form]["steps" if stage == "final" else "search_steps"]
    started = time.perf_counter()
    config = TrainConfig(epochs=steps, lr=trial["lr"], **plan["train"])
    models, objectives = [], []
    for seed in missing:
        seed_everything(seed)
        models.append(_model(plan, arm, trial, task).to(device))
        objectives.append(make_objective(task, TrainConfig(epochs=steps, seed=seed), device))
    outcomes = train_many(models, objectives, config)
    seconds = (time.perf_counter() - started) / len(missing)
    for seed, model, objective, outcome in zip(missing, models, objectives, outcomes, strict=True):
        found = _found(outcome)
        if stage == "final":
            accuracy = task.chance if "error" in found else objective.test(model)["accuracy"]
            found["value"] = round(accuracy, 4)
        file.append(
            {
                "table": TABLE,
                "cell": f"{arm.tree}/k{arm.hops}",
                "method": arm.method,
                "protocol": arm.form,
                "seed": seed,
                "split": None,
                "stage": stage,
                "config": arm._asdict() | {"steps": steps, "settings": dict(trial)},
                **found,
                "chance": task.chance,
                "size": {"nodes": task.num_nodes, "anchors": task.anchors.numel()},
                "seconds": round(seconds, 2),
                "command": _COMMAND + ("" if arm.form == "full" else f" --{arm.form}"),
                **environment(device),
            }
        )


def _model(plan: Plan, arm: Arm, trial: Trial, task: AncestorTask) -> LorentzGCN:
    scale = trial.get("scale")
    options = {} if scale is None else {"weight": 1.0, "scale": None if scale == "none" else scale}
    model = create_model(
        "lorentz_gcn",
        in_features=task.num_codes,
        num_classes=task.num_codes,
        hidden=arm.width,
        num_layers=arm.layers,
        residual=arm.method,
        residual_options=options or None,
        curvature=-arm.kappa or -1.0,
        **plan["model"],
    )
    assert isinstance(model, LorentzGCN)
    return model


def _found(outcome: Outcome | NonFiniteError) -> dict[str, Any]:
    if isinstance(outcome, NonFiniteError):
        return {"validation": None, "error": str(outcome)}
    assert outcome.validation is not None
    return {"validation": round(outcome.validation, 4), "best_epoch": outcome.best_epoch}


# --- the study --------------------------------------------------------------------------------------------------------


def run_study(
    plan: Plan, form: str, out: Path, *, device: str = "cpu", workers: int = 1, minutes: float | None = None
) -> int:
    """Run the arms of a form that are not complete in ``out``, and return how many are still missing.

    Args:
        plan: see :func:`read_plan`.
        form: one of :data:`FORMS`.
        out: the file of JSON lines; each line is written as soon as it is known.
        device: where to train.
        workers: processes that share the device; each runs one arm after the other.
        minutes: start no arm after this many minutes. None: run all.
    """
    deadline = math.inf if minutes is None else time.time() + 60 * minutes
    todo = missing_arms(plan, form, own_lines(out))
    with worker_pool(workers) if workers > 1 else contextlib.nullcontext() as pool:
        if pool is None:
            done = [_run_arm_before(deadline, plan, arm, out, device) for arm in todo]
        else:
            runs = [pool.submit(_run_arm_before, deadline, plan, arm, out, device) for arm in todo]
            done = [run.result() for run in as_completed(runs)]
    return done.count(False)


def _run_arm_before(deadline: float, plan: Plan, arm: Arm, out: Path, device: str) -> bool:
    """Run an arm unless the deadline has passed; return whether it was run."""
    if time.time() > deadline:
        return False
    run_arm(plan, arm, out, device)
    return True


def missing_arms(plan: Plan, form: str, lines: Iterable[Mapping[str, Any]]) -> list[Arm]:
    """Return the arms of a form without a line for each final seed."""
    finished = {(arm_of(line), line["seed"]) for line in lines if line["stage"] == "final"}
    return [
        arm for arm in arms(plan, form) if any((arm, seed) not in finished for seed in plan["forms"][form]["seeds"])
    ]


def own_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the study, one for each training."""
    return study_lines(path, TABLE, _key)


def results_file(path: Path) -> ResultsFile:
    """Return the file to which the lines of the study are appended, each once."""
    return study_file(path, TABLE, _key)


def arm_of(line: Mapping[str, Any]) -> Arm:
    """Return the arm of a line of results."""
    config = {"extra_layers": 0} | line["config"]  # older lines have as many layers as hops
    return Arm(**{name: config[name] for name in Arm._fields})


def _key(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return (*arm_of(line), line["stage"], tuple(line["config"]["settings"].items()), line["seed"])
