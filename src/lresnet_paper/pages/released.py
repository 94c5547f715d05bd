"""What the code released with the paper gave when we ran it: a column beside the paper's figures."""

from __future__ import annotations

from typing import NamedTuple

from lresnet_paper import recipes

__all__ = ["Released", "released_figure"]


class Released(NamedTuple):
    """A figure of the released code, percent."""

    mean: float
    n: int
    over: str
    """``"seeds"`` or ``"splits"``: what the n runs differ in."""
    std: float | None = None
    note: str = ""
    """Where the run was cut short, and what else keeps it from being compared."""

    def __str__(self) -> str:
        deviation = "" if self.std is None else f" ± {self.std:g}"
        return f"{self.mean:.1f}{deviation} ({self.n})" + (" *" if self.note else "")


def released_figure(table: str, cell: str, protocol: str = "") -> Released | None:
    """What the released code gives for the Lorentz residual in ``cell``; None: it was not run, or not like this.

    Example:
        >>> str(released_figure("gnn", "disease/lp"))
        '95.6 ± 1.2 (4)'
    """
    line = dict(recipes.released().get(table, {}).get(cell, {}))
    if not line or line.pop("protocol", protocol) != protocol:
        return None
    return Released(**line)
