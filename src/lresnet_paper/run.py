"""One run of the paper's tables: a cell, a method, a configuration and a seed, to one line of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lresnet.data import IMAGE_SETS, TASKS, TEXTS
from lresnet.data.split_names import canonical_split, split_name
from lresnet.models.pretrained import Pretrained
from lresnet.runs.config import RunConfig, configure
from lresnet.runs.networks import build as build_run
from lresnet.runs.search import smoothed_best
from lresnet.runs.task_config import GraphTaskConfig, ImageTaskConfig, TextTaskConfig
from lresnet.runs.tasks import load
from lresnet.train import Objective, Outcome, TrainConfig, train_model
from lresnet.train.results import environment

__all__ = [
    "Run",
    "build",
    "complete",
    "depth_cell",
    "execute",
    "graph_cell",
    "images_of",
    "on_paper_split",
    "record_of",
    "require_data",
    "run_config",
    "split_depth",
    "split_name",
    "text_cell",
]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run of a table. ``config`` holds flat settings, see :func:`lresnet.runs.config.configure`."""

    table: str
    cell: str
    method: str
    protocol: str
    seed: int
    config: dict[str, Any]
    split: int | None = None
    """Number of the split, where there are several of its name: an official, class-random or fresh split."""
    stage: str = "final"
    """``"search"``, ``"train"``: the test set is not read. ``"final"``: it is read once. A line of results may also be
    a ``"trial"``, which no table shows."""

    def key(self) -> tuple[Any, ...]:
        """Return what makes two runs the same run."""
        config = tuple(sorted((name, str(value)) for name, value in self.config.items()))
        return (self.table, self.cell, self.method, self.protocol, self.seed, self.split, self.stage, config)


def complete(plan: dict[str, Any], method: str, configuration: dict[str, Any], stage: str = "final") -> dict[str, Any]:
    """Complete a configuration with what a recipe fixes for all methods, for this method, and for this stage.

    ``[only.METHOD]`` adds settings that only this method has. ``[own.METHOD]`` replaces values of the configuration: a
    list has the method's own value for each value in ``space``, in the same order.

    Example:
        >>> plan = {"fixed": {"hidden": 64}, "space": {"lr": [0.01, 0.1]}, "own": {"lorentz": {"lr": [0.001, 0.01]}}}
        >>> complete(plan, "lorentz", {"lr": 0.1}), complete(plan, "euclidean", {"lr": 0.1})
        ({'hidden': 64, 'lr': 0.01}, {'hidden': 64, 'lr': 0.1})
    """
    only, replaced = plan.get("only", {}).get(method, {}), plan.get("own", {}).get(method, {})
    own = {
        name: values[plan["space"][name].index(configuration[name])] if isinstance(values, list) else values
        for name, values in replaced.items()
    }
    return plan["fixed"] | only | configuration | own | plan.get(stage, {})  # type: ignore[no-any-return]


def depth_cell(cell: str, layers: int) -> str:
    """Return the cell of one depth.

    Example:
        >>> depth_cell("disease/lp", 64)
        'disease/lp/64'
    """
    return f"{cell}/{layers}"


def split_depth(cell: str) -> tuple[str, int | None]:
    """Return a cell without its depth, and the depth; None: it has none.

    Example:
        >>> split_depth("disease/lp/64"), split_depth("disease/lp")
        (('disease/lp', 64), ('disease/lp', None))
    """
    base, _, last = cell.rpartition("/")
    known = base in TASKS or base in IMAGE_SETS or base in TEXTS
    return (base, int(last)) if known and last.isdecimal() else (cell, None)


def graph_cell(cell: str) -> str | None:
    """Return the graph task of a cell, a name of :data:`lresnet.data.TASKS`; None: the cell is not about a graph.

    The table of graph transformers names its columns by the data set only; the table of depths adds the number of
    layers.

    Example:
        >>> graph_cell("chameleon"), graph_cell("disease/lp/64"), graph_cell("cifar10")
        ('chameleon/nc', 'disease/lp', None)
    """
    base, _ = split_depth(cell)
    return next((task for task in (base, f"{base}/nc") if task in TASKS), None)


def text_cell(cell: str) -> str | None:
    """Return the name in :data:`lresnet.data.TEXTS` of a cell on a text, where lower is better; None for other cells.

    Example:
        >>> text_cell("gcide/12"), text_cell("cifar10/12")
        ('gcide', None)
    """
    base, _ = split_depth(cell)
    return base if base in TEXTS else None


def on_paper_split(cell: str, protocol: str) -> bool:
    """Whether a protocol has the split of the paper's figures, so that a result may be compared with them.

    It is the split of the released code: ``legacy`` for the nodes of Cora and PubMed, ``hgcn`` (in older lines
    ``legacy``) for edges and for the nodes of airport and disease, ``official_splits`` for the other graphs. Images
    have one split.

    Example:
        >>> on_paper_split("cora/nc", "legacy-plain"), on_paper_split("cora/nc", "public")
        (True, False)
    """
    task = graph_cell(cell)
    if task is None:
        return True
    splits = TASKS[task].splits
    paper = next((name for name in ("legacy", "hgcn", "official_splits") if name in splits), None)
    return canonical_split(split_name(protocol), splits) == paper


def images_of(run: Run) -> str:
    """Return the images that ``run`` trains on: cifar10 for ``cifar10/svhn/r20`` in the table ``ood``."""
    return run.cell.split("/")[0] if run.table == "ood" else split_depth(run.cell)[0]


def run_config(run: Run) -> RunConfig:
    """Return the configuration of a run as the library takes it.

    The method is the residual, unless the settings have a ``residual``: "lorentz_limit" is the residual "lorentz" with
    a curvature near 0.

    Raises:
        ValueError: a setting is unknown or out of its range.

    Example:
        >>> run = Run("gnn", "chameleon", "space", "official_splits", 3, {"lr": 0.1}, split=3)
        >>> task = run_config(run).task
        >>> task.name, task.split, task.split_index
        ('chameleon/nc', 'official_splits', 3)
    """
    cell = graph_cell(run.cell)
    settings = {name: value for name, value in run.config.items() if name != "residual"}
    residual = run.config.get("residual", run.method)
    if (text := text_cell(run.cell)) is not None:
        return configure(TextTaskConfig(text), residual, run.seed, settings)
    if cell is None:
        return configure(ImageTaskConfig(images_of(run)), residual, run.seed, settings)
    task = GraphTaskConfig(cell, split_name(run.protocol), run.split)
    return configure(task, residual, run.seed, settings)


def build(run: Run, device: torch.device | str = "cpu") -> tuple[Pretrained, Objective[Any], TrainConfig]:
    """Return the model, the objective and the training configuration of a run; the seed decides the parameters.

    Raises:
        ValueError: a value of the configuration is wrong; the message names it and says what is allowed.
    """
    config = run_config(run)
    model, objective = build_run(config, device)
    return model, objective, config.train


def require_data(run: Run) -> None:
    """Load the data of a run, or report what is missing; the next runs find them in memory."""
    load(run_config(run).task, run.seed)


def execute(
    run: Run,
    *,
    command: str,
    device: torch.device | str = "cpu",
    checkpoint: Path | None = None,
    on_epoch: Callable[[int, float | None], None] | None = None,
) -> tuple[dict[str, Any], Pretrained]:
    """Train a run, and read the test set if it is a final one. Returns the line of results and the model.

    Args:
        checkpoint: file to resume from, written after every fifth of the epochs: writing the state of a ResNet-18 takes
            as long as an epoch on a fast GPU, and an interruption costs at most a fifth of the training.
    """
    model, objective, config = build(run, device)
    outcome = train_model(
        model,
        objective,
        config,
        checkpoint=checkpoint,
        checkpoint_every=max(1, config.epochs // 5),
        execution="compiled",  # the runs of a table share what one of them compiles
        on_epoch=on_epoch,
    )
    return record_of(run, outcome, model, objective, command, device), model


def record_of(
    run: Run,
    outcome: Outcome,
    model: Pretrained,
    objective: Objective[Any],
    command: str,
    device: torch.device | str,
) -> dict[str, Any]:
    """Return the line of results of a finished run; for a final run with the test metrics, read here once."""
    record = dataclasses.asdict(run)
    if run.stage == "final":
        record["metrics"] = {name: round(value, 4) for name, value in objective.test(model).items()}
        record["value"] = next(iter(record["metrics"].values()))
    if alphas := getattr(model, "alphas", None):  # a large alpha is a shallow network in disguise
        record["alpha"] = round(sum(alphas) / len(alphas), 4)
    if outcome.norm_statistics is not None:
        record["norm_statistics"] = outcome.norm_statistics
    return record | {
        "validation": _rounded(outcome.validation),
        "validation_smoothed": _rounded(smoothed_best(outcome.curve, lowest=objective.lower_is_better)),
        "best_epoch": outcome.best_epoch,
        "epochs": outcome.epochs,
        "seconds": round(outcome.seconds, 2),
        "command": command,
        **environment(str(device)),
    }


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, 4)
