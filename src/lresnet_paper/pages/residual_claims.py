"""What the paper says of the residual itself: its speed, its symmetry, its stability."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from lresnet_paper.pages.claim import HOLDS, IN_PART, NO_DIFFERENCE, NOTHING, REFUTED, Answer, Measured
from lresnet_paper.tables import paper_columns

__all__ = ["RESIDUAL_JUDGES"]


def _faster(measured: Measured) -> Answer:
    """By clocks that wait for the device, the slowest form of each other method over our fastest: the smaller ratio."""
    ratios = {
        cell: min(max(own["parallel_transport"]), max(own["tangent"])) / min(own["lorentz"])
        for cell, own in _seconds(measured).items()
        if own.keys() >= {"parallel_transport", "tangent", "lorentz"}
    }
    if not ratios:
        return NOTHING
    cell = max(ratios, key=lambda name: ratios[name])
    verdict = HOLDS if ratios[cell] > 2000 else REFUTED
    return (
        verdict,
        f"at most {ratios[cell]:.1f} times as fast as both, our fastest form against the slowest of each, at {cell}",
    )


def _seconds(measured: Measured) -> dict[str, dict[str, list[float]]]:
    """By cell and method, the times of all forms: of the table runtime, else of benchmarks at its sizes."""
    times: dict[str, dict[str, list[float]]] = {}
    for f in measured.figures:
        if f.table == "runtime" and f.n and "not synchronised" not in f.protocol:
            times.setdefault(f.cell, {}).setdefault(f.method, []).append(f.mean)
    if times:
        return times
    for line in measured.benchmarks:
        kind = line.get("study"), line.get("part")
        if kind == ("residual", "forward") and line.get("cell") in paper_columns("runtime") and line.get("value"):
            place = f"{line['cell']} on {line.get('hardware', 'hardware not recorded')}"
            times.setdefault(place, {}).setdefault(line["method"], []).append(line["value"])
    return times


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
        return NOTHING
    return HOLDS if any(gaps.values()) else NO_DIFFERENCE, f"parallel transport, {_forward_minus_backward(gaps)}"


def _unpredictable_direction(measured: Measured) -> Answer:
    """It is where the directions differ, and it is not where one is better everywhere."""
    gaps = _directions(measured)
    if len(gaps) < 2:
        return NOTHING
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
        return NOTHING
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
        return NOTHING
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


RESIDUAL_JUDGES: dict[str, Callable[[Measured], Answer]] = {
    "over 2000 times faster": _faster,
    "commutative, unlike parallel transport": _order_matters,
    "which direction of parallel transport is better is unpredictable": _unpredictable_direction,
    "numerically stable by the lemma": _stable,
    "mapping errors of tangent methods far from the origin": _tangent_errors,
}
