"""One run as a person asks for it: a cell, a method and some settings; the recipe supplies the rest."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from lresnet.data import CELLS
from lresnet.residual import RESIDUALS
from lresnet.studies.run import Run, complete
from lresnet.studies.search import recipe

__all__ = ["command_of", "require_known", "single_run"]

_OPTIONS = {"num_layers": "layers"}  # where the command line has a shorter name


def single_run(
    cell: str, method: str = "lorentz", seed: int = 0, split: str | None = None, config: dict[str, Any] | None = None
) -> Run:
    """A run of ``cell``. What ``config`` does not say is what the cell's recipe fixes, else the library's default.

    Args:
        split: name of the split, or the number of an official one; None: as the recipe says, else the cell's default.

    Raises:
        ValueError: no such cell or method; the nearest is named.

    Example:
        >>> single_run("disease/lp", "space", config={"lr": 0.1}).config["epochs"]
        1500
    """
    require_known("cell", cell, CELLS)
    require_known("method", method, RESIDUALS)
    plan = _plan(cell)
    default = plan.get("protocol", CELLS[cell].splits[0])
    fixed = complete(plan, method, plan.get("chosen", {}).get(method, {}))
    number = int(split) if split is not None and split.isdigit() else None
    if number is None and default == "official_splits" and split is None:
        number = 0
    protocol = "official_splits" if number is not None else split or default
    return Run("train", cell, method, protocol, seed, fixed | (config or {}), split=number, stage="train")


def command_of(run: Run) -> str:
    """The command that trains ``run`` whatever recipes may say one day: every setting is spelt out."""
    split = run.protocol if run.split is None else str(run.split)
    words = ["lresnet", "train", run.cell, "--method", run.method, "--seed", str(run.seed), "--split", split]
    for name, value in run.config.items():
        option = f"--{_OPTIONS.get(name, name).replace('_', '-')}"
        words += [option] if value is True else [option, str(value)]
    return " ".join(words)


def require_known(what: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that is not ``known``, and say which one is nearest.

    Raises:
        ValueError: the name is not known.
    """
    names = list(known)
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
        raise ValueError(f"unknown {what} {name!r}; did you mean {near!r}? Known: {', '.join(names)}")


def _plan(cell: str) -> dict[str, Any]:
    for table in ("gnn", "demo"):
        try:
            return recipe(table, cell)
        except ValueError:
            continue
    return {"fixed": {}}
