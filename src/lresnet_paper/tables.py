"""The paper's tables as data: printed figures, cells in the paper's order, and our runs of the released code."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any, NamedTuple

__all__ = ["Released", "paper_columns", "paper_detection", "paper_figure", "paper_tables", "released_figure"]

# Rows that the paper names differently from the method.
_ROW_NAMES = {
    ("commutativity", "parallel_transport"): "forward",
    ("commutativity", "parallel_transport_reversed"): "backward",
}


@functools.cache
def paper_tables() -> dict[str, Any]:
    """Return ``tables.toml``: the paper's tables by name, its ``claims``, and figures of ``later_work``.

    Example:
        >>> paper_tables()["curvature"]["columns"][0]
        'disease/lp'
    """
    return _read("tables.toml")


def paper_columns(table: str) -> tuple[str, ...]:
    """Return the cells of a table in the paper's order; empty for an unknown table.

    Example:
        >>> paper_columns("commutativity")
        ('disease/lp', 'airport/lp')
    """
    return tuple(paper_tables().get(table, {}).get("columns", ()))


def paper_figure(table: str, cell: str, method: str, curvature: str | None = None) -> tuple[float | None, float | None]:
    """Return the mean and the deviation that the paper prints; None where it prints none.

    Args:
        curvature: the row in the table of curvatures, e.g. ``"-0.5"`` or ``"trainable"``.

    Example:
        >>> paper_figure("gnn", "disease/lp", "lorentz")
        (97.3, 0.4)
    """
    if table == "ood":
        return paper_detection(cell, method).get("auroc"), None
    columns = paper_tables().get(table, {})
    row = curvature or _ROW_NAMES.get((table, method), method)
    if cell not in columns.get("columns", []) or row not in columns:
        return None, None
    printed = columns[row][columns["columns"].index(cell)]
    mean, std = printed if isinstance(printed, list) else (printed, None)  # runtimes have no deviation
    return mean, std


def paper_detection(cell: str, row: str) -> dict[str, float]:
    """Return the paper's figures for out-of-distribution detection by metric; empty where it prints none.

    Example:
        >>> paper_detection("cifar10/svhn/r20", "lorentz")
        {'fpr95': 39.0, 'auroc': 90.8, 'aupr': 98.0}
    """
    table, (images, ood, network) = paper_tables()["ood"], cell.split("/")
    printed = table.get(images, {}).get(ood, {}).get(row, [])
    column = {"r20": 0, "r32": 1}.get(network)
    return {} if column is None else {name: own[column] for name, own in zip(table["metrics"], printed, strict=False)}


class Released(NamedTuple):
    """Our result with the code that the authors released, in percent."""

    mean: float
    n: int
    over: str
    """``"seeds"`` or ``"splits"``: what the n runs differ in."""
    std: float | None = None
    note: str = ""
    """Why the figure is not comparable, e.g. because the run was stopped early."""

    def __str__(self) -> str:
        deviation = "" if self.std is None else f" ± {self.std:g}"
        return f"{self.mean:.1f}{deviation} ({self.n})" + (" *" if self.note else "")


def released_figure(table: str, cell: str, protocol: str = "") -> Released | None:
    """Return what the released code gives for the Lorentz residual in ``cell``; None if it was not run that way.

    Example:
        >>> str(released_figure("gnn", "disease/lp"))
        '95.6 ± 1.2 (4)'
    """
    line = dict(_released_code().get(table, {}).get(cell, {}))
    if not line or line.pop("protocol", protocol) != protocol:
        return None
    return Released(**line)


@functools.cache
def _released_code() -> dict[str, Any]:
    return _read("released.toml")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("lresnet_paper").joinpath(name).read_text(encoding="utf-8"))
