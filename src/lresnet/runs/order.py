"""The order in which a reader looks for figures: the paper's cells and methods, depths by their number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lresnet.runs.aggregate import Figure
from lresnet_paper import recipes
from lresnet_paper.run import split_name

__all__ = ["METHODS", "cell_key", "in_order", "method_key", "paper_columns"]

METHODS = (
    "none",
    "parallel_transport",
    "parallel_transport_reversed",
    "parallel_transport_textbook",
    "tangent",
    "tangent_textbook",
    "space",
    "lorentz",
    "euclidean",
)


def in_order(figures: Sequence[Figure]) -> list[Figure]:
    """Tables, cells and methods as in the paper, protocols as they first appear, a second recipe behind the first.

    Example:
        >>> in_order([])
        []
    """
    splits = list(dict.fromkeys(split_name(figure.protocol) for figure in figures))
    return sorted(
        figures,
        key=lambda f: (
            _table_key(f.table),
            cell_key(f.table, f.cell),
            splits.index(split_name(f.protocol)),
            f.protocol,
            method_key(f.method),
            f.curvature or "",
            f.settings or "",
        ),
    )


def method_key(method: str) -> tuple[int, str]:
    """To sort methods by: the known ones first."""
    return METHODS.index(method) if method in METHODS else len(METHODS), method


def cell_key(table: str, cell: str) -> tuple[Any, ...]:
    """To sort cells by: the paper's columns first, then by name, numbers within names by size.

    Example:
        >>> sorted(["disease/lp/16", "disease/lp/4"], key=lambda cell: cell_key("oversmoothing", cell))
        ['disease/lp/4', 'disease/lp/16']
    """
    columns = paper_columns(table)
    parts = [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", cell)]
    return columns.index(cell) if cell in columns else len(columns), parts


def _table_key(table: str) -> tuple[int, str]:
    tables = list(recipes.paper())
    return tables.index(table) if table in tables else len(tables), table


def paper_columns(table: str) -> tuple[str, ...]:
    """The cells that the paper has in ``table``.

    Example:
        >>> paper_columns("commutativity")
        ('disease/lp', 'airport/lp')
    """
    return tuple(recipes.paper().get(table, {}).get("columns", ()))
