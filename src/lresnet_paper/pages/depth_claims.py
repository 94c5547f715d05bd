"""What the paper says of depth, answered from the runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scipy import stats

from lresnet_paper.pages.claim import HOLDS, IN_PART, NO_DIFFERENCE, NOT_MEASURED, REFUTED, Claim
from lresnet_paper.pages.depth_runs import DEPTH_TABLE, TEXTBOOK, Depths, all_runs_by_depth, gaps_to, shown_name
from lresnet_paper.tables import paper_tables

__all__ = ["depth_answers"]


def depth_answers(runs: Iterable[Mapping[str, Any]]) -> list[Claim]:
    """What the paper says of depth, with the verdict that the runs allow and what it rests on.

    Example:
        >>> depth_answers([])[0].verdict
        'not measured yet'
    """
    groups = all_runs_by_depth(runs)
    paper = paper_tables()[DEPTH_TABLE]
    return [Claim(DEPTH_TABLE, sentence, *_JUDGES[sentence](groups)) for sentence in paper["claims"]]


def _gap_widens(groups: Mapping[str, Depths]) -> tuple[str, str]:
    """By the slope over doublings of the depth, seed by seed: widens where its 95 % interval is above 0."""
    verdicts, evidence = list[bool | None](), []
    for cell, own in groups.items():
        # A depth at which every run of one of the two diverged has no gap, and takes none from the others.
        gaps = {depth: by_seed for depth, by_seed in gaps_to("none", own, "lorentz").items() if by_seed}
        seeds = set.intersection(*map(set, gaps.values())) if len(gaps) > 1 else set()
        if len(seeds) > 1:
            doublings = [math.log2(depth) for depth in gaps]
            slopes = [statistics.linear_regression(doublings, [g[seed] for g in gaps.values()])[0] for seed in seeds]
            mean, low, high = _interval(slopes)
            verdicts.append(None if low <= 0 <= high else low > 0)
            means = ", ".join(f"{statistics.fmean(own.values()):+.1f} at {depth}" for depth, own in gaps.items())
            evidence.append(f"{cell} {means}: {mean:+.2f} a doubling ({low:+.2f} to {high:+.2f})")
    return _verdict(verdicts), "; ".join(evidence)


def _tangent_shrinks(groups: Mapping[str, Depths]) -> tuple[str, str]:
    """Where the paper says so, against half the depth, paired over seeds."""
    verdicts, evidence = list[bool | None](), []
    for cell, depth in (("disease/lp", 32), ("airport/lp", 16)):
        gaps = gaps_to("none", groups.get(cell, {}), "tangent")
        here, before = gaps.get(depth, {}), gaps.get(depth // 2, {})
        changes = [here[seed] - before[seed] for seed in here.keys() & before.keys()]
        if len(changes) > 1:
            mean, low, high = _interval(changes)
            verdicts.append(None if low <= 0 <= high else high < 0)
            evidence.append(f"{cell}, {depth} layers against {depth // 2}: {mean:+.2f} ({low:+.2f} to {high:+.2f})")
    return _verdict(verdicts), "; ".join(evidence)


def _transport_breaks(groups: Mapping[str, Depths]) -> tuple[str, str]:
    """Of the published form; the boost stands beside it."""
    words = []
    for method in (TEXTBOOK, "parallel_transport"):
        counts = [f"{sum(lost)} of {len(lost)} at {depth}" for depth, lost in _not_finite(groups, method)]
        if counts:
            words.append(f"{shown_name(method)}, not finite: {', '.join(counts)}")
    deep = [lost for depth, own in _not_finite(groups, TEXTBOOK) if depth >= 16 for lost in own]
    return _verdict(deep), "; ".join(words)


def _not_finite(groups: Mapping[str, Depths], method: str) -> list[tuple[int, list[bool]]]:
    """By depth, of each run on all data sets and with all settings whether it diverged."""
    found: dict[int, list[bool]] = {}
    for own in groups.values():
        for depth, runs in own.get(method, {}).items():
            found.setdefault(depth, []).extend(run.get("value") is None for run in runs)
    return sorted(found.items())


def _verdict(found: Sequence[bool | None]) -> str:
    """Of a claim about several data sets. Of each: it is so, the contrary is, or, None, the interval holds 0."""
    if not found:
        return NOT_MEASURED
    if any(found):
        return HOLDS if all(found) else IN_PART
    return REFUTED if False in found else NO_DIFFERENCE


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and the 95 % interval of the mean by Student's t."""
    mean = statistics.fmean(values)
    error = float(stats.sem(values)) * float(stats.t.ppf(0.975, len(values) - 1))
    return mean, mean - error, mean + error


_JUDGES: dict[str, Callable[[Mapping[str, Depths]], tuple[str, str]]] = {
    "the gap of lorentz over none widens with depth": _gap_widens,
    "tangent shrinks at 32 layers on disease and at 16 on airport": _tangent_shrinks,
    "parallel_transport yields NaN from 16 layers on": _transport_breaks,
}
