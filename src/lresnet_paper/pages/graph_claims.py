"""What the paper says of its tables of graphs: who is best, by how much, at which curvature, after how much tuning."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from lresnet.residual.registry import compared_methods
from lresnet_paper.pages.claim import (
    HOLDS,
    IN_PART,
    NO_DIFFERENCE,
    NOT_AT_HAND,
    NOT_MEASURED,
    NOTHING,
    REFUTED,
    STAND_IN,
    Answer,
    Measured,
    nothing_to_come,
)
from lresnet_paper.pages.paired import paired_differences
from lresnet_paper.pages.tuning import tuning_losses
from lresnet_paper.results import Figure
from lresnet_paper.tables import paper_columns, paper_figure

__all__ = ["GRAPH_JUDGES", "largest_gain"]

_PAPERS_METHODS = tuple(name for name in compared_methods() if name != "euclidean")
_RESIDUALS = tuple(name for name in _PAPERS_METHODS if name not in ("none", "lorentz"))
_CURVATURES = ("-0.5", "-1.0", "-1.5", "-2.0", "trainable")


def _settled(yes: int, measured: int, needed: int, total: int) -> str:
    """Whether at least ``needed`` of ``total`` cells are so, where ``yes`` of ``measured`` are."""
    if yes >= needed:
        return HOLDS
    return REFUTED if measured - yes > total - needed else NOT_MEASURED


def _stand_in(cells: Collection[str]) -> str:
    return f"; {STAND_IN} stands in for {NOT_AT_HAND}" if STAND_IN in cells else ""


def _best_in_cells(measured: Measured) -> Answer:
    cells = {cell: own for cell, own in measured.cells("gnn").items() if own.keys() >= set(_PAPERS_METHODS)}
    best = [cell for cell, own in cells.items() if _is_best(own)]
    if not cells:
        return NOTHING
    named = f" ({', '.join(best)})" if best else ""
    evidence = f"highest mean, the twin aside, in {len(best)} of {len(cells)} cells measured{named}{_stand_in(cells)}"
    return _settled(len(best), len(cells), 8, 10), evidence


def _is_best(own: Mapping[str, Figure]) -> bool:
    return own["lorentz"].mean >= max(own[name].mean for name in _PAPERS_METHODS)


def _relative_gain(measured: Measured, cell: str, percent: float) -> Answer:
    own = measured.cells("gnn").get(cell, {})
    if not own.keys() >= {*_RESIDUALS, "lorentz"}:
        return NOTHING
    best = max(own[name].mean for name in _RESIDUALS)
    gain = 100 * (own["lorentz"].mean / best - 1)
    return HOLDS if gain >= percent else REFUTED, f"{gain:+.1f} % of the best other residual's {best:.1f} on {cell}"


def largest_gain(measured: Measured, table: str, points: float) -> Answer:
    """Over the best other residual method, in points, in the cell where that is most."""
    cells = {cell: own for cell, own in measured.cells(table).items() if own.keys() >= {*_RESIDUALS, "lorentz"}}
    best = {
        cell: max((own[name] for name in _RESIDUALS), key=lambda figure: figure.mean) for cell, own in cells.items()
    }
    gains = {cell: round(own["lorentz"].mean - best[cell].mean, 2) for cell, own in cells.items()}  # as it is printed
    if not gains:
        return NOTHING
    cell = max(gains, key=lambda name: gains[name])
    verdict = HOLDS if gains[cell] >= points else REFUTED if nothing_to_come(table, gains) else NOT_MEASURED
    ours, theirs = cells[cell]["lorentz"].n, best[cell].n
    seeds = "" if ours == theirs else f" (means of {ours} and of {theirs} runs)"
    far, most = ("over", "most") if gains[cell] >= 0 else ("behind", "least")
    points_said = f"{gains[cell]:+.2f}" if gains[cell] >= 0 else f"{-gains[cell]:.2f}"
    compared = f"{len(gains)} of {len(paper_columns(table))} cells{_stand_in(gains)}"
    return verdict, f"{points_said} points {far} the best other residual on {cell}{seeds}, the {most} in {compared}"


def _better_than_base(measured: Measured) -> Answer:
    cells = {cell: own for cell, own in measured.cells("gnn").items() if own.keys() >= set(_PAPERS_METHODS)}
    if not cells:
        return NOTHING
    better = [cell for cell, own in cells.items() if own["lorentz"].mean > own["none"].mean]
    nodes = [cell for cell in cells if cell.endswith("/nc")]
    best = [cell for cell in nodes if _is_best(cells[cell])]
    verdicts = {_settled(len(better), len(cells), 9, 10), _settled(len(best), len(nodes), 6, 6)}
    verdict = next(word for word in (REFUTED, NOT_MEASURED, HOLDS) if word in verdicts)
    return verdict, (
        f"better than the base in {len(better)} of {len(cells)} cells measured; "
        f"best in {len(best)} of {len(nodes)} node classifications{_stand_in(cells)}"
    )


def _same_at_every_curvature(measured: Measured) -> Answer:
    """No cell may vary by more than the paper's own cell that varies most."""
    cells: dict[str, list[float]] = {}
    for cell, own in measured.cells("curvature").items():
        means = [figure.mean for figure in own.values() if figure.paper_mean is not None]
        if len(means) == len(_CURVATURES):
            cells[cell] = means
    if not cells:
        return NOTHING
    spread = {cell: _range(means) for cell, means in cells.items()}
    papers = max(_range(_printed(cell, K) for K in _CURVATURES) for cell in paper_columns("curvature"))
    cell = max(spread, key=lambda name: spread[name])
    verdict = REFUTED if spread[cell] > papers else HOLDS if nothing_to_come("curvature", cells) else NOT_MEASURED
    where = f"{cell}, the most in {len(cells)} of {len(paper_columns('curvature'))} cells"
    return verdict, f"means differ by at most {spread[cell]:.2f} points ({where}); in the paper by {papers:.1f}"


def _printed(cell: str, curvature: str) -> float:
    return paper_figure("curvature", cell, "lorentz", curvature)[0] or math.nan


def _range(values: Iterable[float]) -> float:
    low, *_, high = sorted(values)
    return high - low


def _tuning(measured: Measured) -> Answer:
    """Little: a point at most, which is what seeds differ by, in every cell or in some."""
    losses = tuning_losses(measured.runs)
    if not losses:
        return NOTHING
    little, worst = sum(loss <= 1 for loss in losses.values()), max(losses, key=lambda cell: losses[cell])
    verdict = HOLDS if little == len(losses) else IN_PART if little else REFUTED
    return verdict, (
        f"with the settings that validation chose for none, Lorentz loses a median of "
        f"{statistics.median(losses.values()):.2f} points of validation against its own best of the same search, in "
        f"{little} of {len(losses)} cells a point at most; most on {worst}, {losses[worst]:.2f}"
    )


def _hyperbolic_beats_euclidean(measured: Measured) -> Answer:
    """The paper says "nearly always": where more than half of the hyperbolic methods are ahead, by more than chance."""
    methods = (*_RESIDUALS, "lorentz")
    cells = {
        cell: own for cell, own in measured.cells("graph_transformer").items() if own.keys() >= {"euclidean", *methods}
    }
    if not cells:
        return NOTHING
    ahead = {cell: sum(own[m].mean > own["euclidean"].mean for m in methods) for cell, own in cells.items()}
    most, shown = len(methods) // 2 + 1, _shown_ahead_of_the_twin(measured, cells, methods)
    beaten = sum(number >= most for number in ahead.values())
    verdict = _settled(beaten, len(ahead), 2, 3)
    evidence = f"most hyperbolic methods are ahead in {beaten} of {len(ahead)} cells measured; of {len(methods)}: "
    evidence += ", ".join(f"{cell} {number}" for cell, number in ahead.items())
    if not measured.runs:
        return verdict, evidence
    if verdict == HOLDS and sum(number >= most for number in shown.values()) < 2:
        verdict = NO_DIFFERENCE
    return verdict, f"{evidence}; by more than chance: {', '.join(f'{cell} {n}' for cell, n in shown.items())}"


def _shown_ahead_of_the_twin(
    measured: Measured, cells: Mapping[str, Mapping[str, Figure]], methods: Iterable[str]
) -> dict[str, int]:
    """How many methods a paired test shows ahead of the Euclidean twin, in each cell under its protocol."""
    better = [
        (d.cell, d.protocol)
        for method in methods
        for d in paired_differences((r for r in measured.runs if r["table"] == "graph_transformer"), of=method)
        if d.method == "euclidean" and d.verdict == "better"
    ]
    return {cell: better.count((cell, own["euclidean"].protocol)) for cell, own in cells.items()}


GRAPH_JUDGES: dict[str, Callable[[Measured], Answer]] = {
    "lorentz is best in 8 of 10 cells": _best_in_cells,
    "up to 4.2 % better (chameleon)": partial(_relative_gain, cell="chameleon/nc", percent=4.2),
    "up to 10.9 % over other residual methods": partial(largest_gain, table="gnn", points=10.9),
    "better than the base in 9 of 10, best in every node classification": _better_than_base,
    "not sensitive to the curvature": _same_at_every_curvature,
    "a residual adds little tuning overhead": _tuning,
    "up to 2.5 % better": partial(largest_gain, table="graph_transformer", points=2.5),
    "hyperbolic beats the Euclidean SGFormer in 2 of 3": _hyperbolic_beats_euclidean,
}
