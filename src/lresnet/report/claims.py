"""The paper's sentences that a measurement can answer, with our answers.

The sentences stand under ``[claims]`` in ``recipes/paper.toml``; :data:`JUDGES` has a rule for each that results of
ours can answer, and the others are not measured yet. A claim about all cells of a table is answered as soon as the
cells measured so far settle it. The features of disease/nc were not published: a tree made here stands in for it among
the graphs, which is said, and no answer waits for it.
"""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

from lresnet.report.aggregate import Figure, paper_figure
from lresnet.report.ood_figures import Gap, first_protocol, ood_runs, residual_gaps, spearman
from lresnet.report.order import paper_columns
from lresnet.report.tuning import tuning_losses

__all__ = [
    "HOLDS",
    "IN_PART",
    "JUDGES",
    "NOT_MEASURED",
    "NO_DIFFERENCE",
    "REFUTED",
    "Claim",
    "answer_claims",
    "claims_markdown",
]

HOLDS, IN_PART, REFUTED, NOT_MEASURED = "holds", "holds in part", "does not hold", "not measured yet"
NO_DIFFERENCE = "no difference shown"

_UNPUBLISHED, _STAND_IN = "disease/nc", "disease_tree/nc"
_NUMERICS = {"method", "dtype", "norm", "ours", "floor", "textbook"}

_RESIDUALS = ("parallel_transport", "tangent", "space")
_PAPERS_METHODS = ("none", *_RESIDUALS, "lorentz")
_CURVATURES = ("-0.5", "-1.0", "-1.5", "-2.0", "trainable")


class Claim(NamedTuple):
    """A sentence of the paper and what we found."""

    topic: str
    sentence: str
    verdict: str
    evidence: str


class Measured(NamedTuple):
    """All that a claim may be judged by."""

    figures: Sequence[Figure]
    numerics: Sequence[Mapping[str, Any]]
    """Lines of ``results/numerics.jsonl``."""
    runs: Sequence[Mapping[str, Any]] = ()
    """The runs behind the figures."""

    def cells(self, table: str) -> dict[str, dict[str, Figure]]:
        """The figures of a table by cell and name, the stand-in under its own name where there is no other.

        Of several protocols that with the most methods; of equals the paper's, legacy, else the first by name.
        """
        own = [figure for figure in self.figures if figure.table == table and figure.n]
        found: dict[str, dict[str, dict[str, Figure]]] = {}
        for figure in sorted(own, key=lambda figure: (figure.protocol != "legacy", figure.protocol)):
            found.setdefault(figure.cell, {}).setdefault(figure.protocol, {})[figure.name] = figure
        if _UNPUBLISHED in found:
            found.pop(_STAND_IN, None)
        return {cell: max(protocols.values(), key=len) for cell, protocols in found.items()}


Answer = tuple[str, str]
_NOTHING: Answer = NOT_MEASURED, ""


def answer_claims(
    figures: Sequence[Figure], numerics: Iterable[Mapping[str, Any]] = (), runs: Sequence[Mapping[str, Any]] = ()
) -> list[Claim]:
    """Every claim of the paper, in its order, with the verdict that the results allow and what it rests on.

    Example:
        >>> answer_claims([])[0]
        Claim(topic='gnn', sentence='lorentz is best in 8 of 10 cells', verdict='not measured yet', evidence='')
    """
    measured = Measured(figures, [line for line in numerics if line.keys() >= _NUMERICS], runs)
    sentences = tomllib.loads(resources.files("lresnet.recipes").joinpath("paper.toml").read_text())["claims"]
    return [Claim(topic, text, *_judge(text, measured)) for topic, own in sentences.items() for text in own]


def _judge(sentence: str, measured: Measured) -> Answer:
    return JUDGES[sentence](measured) if sentence in JUDGES else _NOTHING


def claims_markdown(claims: Sequence[Claim]) -> str:
    """A section for docs/: a row a claim."""
    lines = ["## The paper's claims", "", "| about | claim | answer | by what |", "|---|---|---|---|"]
    lines += [f"| {c.topic} | {c.sentence} | {c.verdict} | {c.evidence} |" for c in claims]
    return "\n".join(lines) + "\n"


def _settled(yes: int, measured: int, needed: int, total: int) -> str:
    """Whether at least ``needed`` of ``total`` cells are so, where ``yes`` of ``measured`` are."""
    if yes >= needed:
        return HOLDS
    return REFUTED if measured - yes > total - needed else NOT_MEASURED


def _nothing_to_come(table: str, cells: Collection[str]) -> bool:
    """Whether ``cells`` are all that the paper's table has, as far as their data were published."""
    return {*cells, _UNPUBLISHED} >= set(paper_columns(table))


def _stand_in(cells: Collection[str]) -> str:
    return f"; {_STAND_IN} stands in for {_UNPUBLISHED}" if _STAND_IN in cells else ""


def _best_in_cells(measured: Measured) -> Answer:
    cells = {cell: own for cell, own in measured.cells("gnn").items() if own.keys() >= set(_PAPERS_METHODS)}
    best = [cell for cell, own in cells.items() if _is_best(own)]
    if not cells:
        return _NOTHING
    named = f" ({', '.join(best)})" if best else ""
    evidence = f"highest mean in {len(best)} of {len(cells)} cells measured{named}{_stand_in(cells)}"
    return _settled(len(best), len(cells), 8, 10), evidence


def _is_best(own: Mapping[str, Figure]) -> bool:
    return own["lorentz"].mean >= max(own[name].mean for name in _PAPERS_METHODS)


def _relative_gain(measured: Measured, cell: str, percent: float) -> Answer:
    own = measured.cells("gnn").get(cell, {})
    if not own.keys() >= {*_RESIDUALS, "lorentz"}:
        return _NOTHING
    best = max(own[name].mean for name in _RESIDUALS)
    gain = 100 * (own["lorentz"].mean / best - 1)
    return HOLDS if gain >= percent else REFUTED, f"{gain:+.1f} % of the best other residual's {best:.1f} on {cell}"


def _largest_gain(measured: Measured, table: str, points: float) -> Answer:
    """Over the best other residual method, in points, in the cell where that is most."""
    gains = {
        cell: round(own["lorentz"].mean - max(own[name].mean for name in _RESIDUALS), 2)  # as it is printed
        for cell, own in measured.cells(table).items()
        if own.keys() >= {*_RESIDUALS, "lorentz"}
    }
    if not gains:
        return _NOTHING
    cell = max(gains, key=lambda name: gains[name])
    verdict = HOLDS if gains[cell] >= points else REFUTED if _nothing_to_come(table, gains) else NOT_MEASURED
    where = f"{cell}, the most in {len(gains)} of {len(paper_columns(table))} cells{_stand_in(gains)}"
    return verdict, f"{gains[cell]:+.2f} points over the best other residual on {where}"


def _better_than_base(measured: Measured) -> Answer:
    cells = {cell: own for cell, own in measured.cells("gnn").items() if own.keys() >= set(_PAPERS_METHODS)}
    if not cells:
        return _NOTHING
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
        return _NOTHING
    spread = {cell: _range(means) for cell, means in cells.items()}
    papers = max(_range(_printed(cell, K) for K in _CURVATURES) for cell in paper_columns("curvature"))
    cell = max(spread, key=lambda name: spread[name])
    verdict = REFUTED if spread[cell] > papers else HOLDS if _nothing_to_come("curvature", cells) else NOT_MEASURED
    where = f"{cell}, the most in {len(cells)} of {len(paper_columns('curvature'))} cells"
    return verdict, f"means differ by at most {spread[cell]:.2f} points ({where}); in the paper by {papers:.1f}"


def _printed(cell: str, curvature: str) -> float:
    return paper_figure("curvature", cell, "lorentz", curvature)[0] or math.nan


def _tuning(measured: Measured) -> Answer:
    """Little: a point at most, which is what seeds differ by, in every cell or in some."""
    losses = tuning_losses(measured.runs)
    if not losses:
        return _NOTHING
    little, worst = sum(loss <= 1 for loss in losses.values()), max(losses, key=lambda cell: losses[cell])
    verdict = HOLDS if little == len(losses) else IN_PART if little else REFUTED
    return verdict, (
        f"with the settings that validation chose for none, Lorentz loses a median of "
        f"{statistics.median(losses.values()):.2f} points of validation against its own best of the same search, in "
        f"{little} of {len(losses)} cells a point at most; most on {worst}, {losses[worst]:.2f}"
    )


def _range(values: Iterable[float]) -> float:
    low, *_, high = sorted(values)
    return high - low


def _hyperbolic_beats_euclidean(measured: Measured) -> Answer:
    """The paper says "nearly always": where more than half of the hyperbolic methods are ahead."""
    methods = (*_RESIDUALS, "lorentz")
    ahead = {
        cell: sum(own[method].mean > own["euclidean"].mean for method in methods)
        for cell, own in measured.cells("graph_transformer").items()
        if own.keys() >= {"euclidean", *methods}
    }
    if not ahead:
        return _NOTHING
    beaten = sum(2 * number > len(methods) for number in ahead.values())
    named = ", ".join(f"{cell} {number}" for cell, number in ahead.items())
    return _settled(beaten, len(ahead), 2, 3), (
        f"most hyperbolic methods are ahead in {beaten} of {len(ahead)} cells measured; of {len(methods)}: {named}"
    )


def _images(measured: Measured) -> Answer:
    better, evidence = _largest_gain(measured, "image_classification", 0.5)
    robust, words = _robust(measured)
    found = {better, robust}
    if REFUTED in found:
        verdict = IN_PART if found & {HOLDS, IN_PART} else REFUTED
    else:
        verdict = next(word for word in (NOT_MEASURED, IN_PART, HOLDS) if word in found)
    return verdict, "; ".join(filter(None, (evidence, words or (evidence and "robustness not measured yet"))))


def _robust(measured: Measured) -> Answer:
    """At detecting images from elsewhere than the Euclidean twin, in most of the twelve cells or in some."""
    runs = first_protocol(ood_runs(measured.runs))
    gaps = {other: [gap.sign for gap in residual_gaps(runs, other).values()] for other in ("euclidean", "space")}
    evidence = [
        f"than {other} in {own.count(1)} of {len(own)} cells, worse in {own.count(-1)}"
        for other, own in gaps.items()
        if own
    ]
    if not evidence:
        return _NOTHING
    better, cells = gaps["euclidean"].count(1), len(gaps["euclidean"])
    verdict = NOT_MEASURED if cells < 12 else HOLDS if better > 6 else IN_PART if better else REFUTED
    return verdict, f"AUROC of detection, paired over seeds: better {'; '.join(evidence)}"


def _norm_and_confidence(measured: Measured) -> Answer:
    runs = ood_runs(measured.runs)
    ours, twin = spearman(runs, "lorentz"), spearman(runs, "euclidean")
    if not ours:
        return _NOTHING
    positive = sum(gap.sign == 1 for gap in ours.values())
    verdict = HOLDS if positive == len(ours) else IN_PART if positive else REFUTED
    beside = f"; of the Euclidean twin {_correlations(twin)}" if twin else ""
    return verdict, f"Spearman's correlation over the test images, by networks: {_correlations(ours)}{beside}"


def _correlations(found: Mapping[str, Gap]) -> str:
    return ", ".join(f"{name} {gap.mean:+.2f} ({gap.low:+.2f} to {gap.high:+.2f})" for name, gap in found.items())


def _faster(measured: Measured) -> Answer:
    """By clocks that wait for the device, the slowest form of the other methods over our fastest."""
    times: dict[str, dict[str, list[float]]] = {}
    for f in measured.figures:
        if f.table == "runtime" and f.n and "not synchronised" not in f.protocol:
            times.setdefault(f.cell, {}).setdefault(f.method, []).append(f.mean)
    ratios = {
        cell: min(max(own["parallel_transport"]), max(own["tangent"])) / min(own["lorentz"])
        for cell, own in times.items()
        if own.keys() >= {"parallel_transport", "tangent", "lorentz"}
    }
    if not ratios:
        return _NOTHING
    cell = max(ratios, key=lambda name: ratios[name])
    verdict = HOLDS if ratios[cell] > 2000 else REFUTED
    return verdict, f"at most {ratios[cell]:.1f} times, our fastest form against their slowest, at {cell}"


def _directions(measured: Measured) -> dict[str, float]:
    """Forward minus backward parallel transport, by cell, where the difference exceeds its two standard errors."""
    found = {}
    for cell, own in measured.cells("commutativity").items():
        if own.keys() >= {"parallel_transport", "parallel_transport_reversed"}:
            forward, backward = own["parallel_transport"], own["parallel_transport_reversed"]
            gap, error = forward.mean - backward.mean, math.hypot(forward.standard_error, backward.standard_error)
            found[cell] = gap if abs(gap) > 2 * error else 0.0
    return found


def _order_matters(measured: Measured) -> Answer:
    gaps = _directions(measured)
    if not gaps:
        return _NOTHING
    return HOLDS if any(gaps.values()) else NO_DIFFERENCE, f"parallel transport, {_forward_minus_backward(gaps)}"


def _unpredictable_direction(measured: Measured) -> Answer:
    """It is where the directions differ, and it is not where one is better everywhere."""
    gaps = _directions(measured)
    if len(gaps) < 2:
        return _NOTHING
    signs = {(gap > 0) - (gap < 0) for gap in gaps.values()}
    verdict = HOLDS if signs >= {-1, 1} else NO_DIFFERENCE if 0 in signs else REFUTED
    return verdict, _forward_minus_backward(gaps)


def _forward_minus_backward(gaps: Mapping[str, float]) -> str:
    words = (f"{cell} {gap:+.2f}" if gap else f"{cell} {NO_DIFFERENCE}" for cell, gap in gaps.items())
    return f"forward minus backward: {', '.join(words)}"


def _stable(measured: Measured) -> Answer:
    """In the form without cancellation, and in the form that is printed."""
    lines = [line for line in measured.numerics if line["method"] == "lorentz" and line["dtype"] == "float32"]
    if not lines:
        return _NOTHING
    floors = max((line["ours"] / line["floor"] for line in lines if line["ours"] > 3e-7), default=1.0)
    textbook = max(_error(line["textbook"]) for line in lines)
    verdict = REFUTED if floors > 10 else IN_PART if textbook > 1 else HOLDS
    return verdict, (
        f"float32, norms to 10,000: without cancellation at most {floors:.1f} times the error of rounding alone; "
        f"by the printed formula up to {textbook:.0f} radii of curvature"
    )


def _tangent_errors(measured: Measured) -> Answer:
    lines = [line for line in measured.numerics if line["method"] == "tangent" and line["dtype"] == "float32"]
    if not lines:
        return _NOTHING
    norms = sorted({line["norm"] for line in lines})
    near, far = (_median(line["textbook"] for line in lines if line["norm"] == n) for n in (norms[0], norms[-1]))
    verdict = HOLDS if far > 1000 * near else REFUTED
    return verdict, (
        f"median error of the form with exp and log in float32: {near:.1g} radii of curvature at norm {norms[0]:g}, "
        f"{far:.1g} at norm {norms[-1]:g}"
    )


def _median(values: Iterable[float | None]) -> float:
    ordered = sorted(map(_error, values))
    return ordered[len(ordered) // 2]


def _error(value: float | None) -> float:
    """Of a result that is no number the error is as large as can be."""
    return math.inf if value is None or math.isnan(value) else value


JUDGES: dict[str, Callable[[Measured], Answer]] = {
    "lorentz is best in 8 of 10 cells": _best_in_cells,
    "up to 4.2 % better (chameleon)": partial(_relative_gain, cell="chameleon/nc", percent=4.2),
    "up to 10.9 % over other residual methods": partial(_largest_gain, table="gnn", points=10.9),
    "better than the base in 9 of 10, best in every node classification": _better_than_base,
    "not sensitive to the curvature": _same_at_every_curvature,
    "a residual adds little tuning overhead": _tuning,
    "up to 2.5 % better": partial(_largest_gain, table="graph_transformer", points=2.5),
    "hyperbolic beats the Euclidean SGFormer in 2 of 3": _hyperbolic_beats_euclidean,
    "up to 0.5 % better, and more robust": _images,
    "embedding norm correlates with confidence": _norm_and_confidence,
    "over 2000 times faster": _faster,
    "commutative, unlike parallel transport": _order_matters,
    "which direction of parallel transport is better is unpredictable": _unpredictable_direction,
    "numerically stable by the lemma": _stable,
    "mapping errors of tangent methods far from the origin": _tangent_errors,
}
