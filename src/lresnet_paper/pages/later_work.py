"""Where the bar is now: what was published after the paper, beside the best that we have."""

from __future__ import annotations

from collections.abc import Iterable

from lresnet_paper.results import Figure
from lresnet_paper.tables import paper_tables

__all__ = ["later_work"]

_SOURCE = "ILNN, ICLR 2026, by another's digest of it"
_NETWORK = "ilnn"
_TABLES = ("gnn", "image_classification")


def later_work(figures: Iterable[Figure]) -> str:
    """A sentence for the figures of one table; empty where nothing later is known of it.

    Example:
        >>> later_work([])
        ''
    """
    claimed = paper_tables()["later_work"]
    own: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.table in _TABLES and figure.n:
            own.setdefault(figure.cell, []).append(figure)
    parts = [
        f"{cell} {value:.1f} (ours: {_best(own[cell])})" for cell, value in claimed[_NETWORK].items() if cell in own
    ]
    return f"Later work ({_SOURCE}) claims {'; '.join(parts)}." if parts else ""


def _best(figures: list[Figure]) -> str:
    """The best of all methods and protocols, and the Lorentz residual's own where that is another."""
    best = max(figures, key=lambda figure: figure.mean)
    named = [f"{best.mean:.1f}, {best.name}"]
    lorentz = [figure for figure in figures if figure.method == "lorentz"]
    if best.method != "lorentz" and lorentz:
        named.append(f"{max(figure.mean for figure in lorentz):.1f}, lorentz")
    return "; ".join(named)
