"""The paper's claims that a measurement can answer: a verdict from our results, and the numbers behind it.

The paper's sentences stand in ``tables.toml``. :data:`JUDGES` maps each sentence to the function that judges it, and
``templates/claims.md.j2`` has two macros that report the function's numbers: one of the same name with the evidence in
full, and one with the suffix ``_short`` with one line for the page of verdicts. A claim about all cells of a table is
answered as soon as the cells measured so far settle it. The features of disease/nc were not available to us: our own
tree stands in for that cell, and no answer waits for it.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lresnet.residual.registry import METHODS
from lresnet.runs.statistics import Estimate, Verdict, mean_interval
from lresnet_paper.comparisons import compare_methods, family_verdicts
from lresnet_paper.pages.depth_page import (
    DEPTH_TABLE,
    TEXTBOOK,
    all_runs_by_depth,
    differences_by_seed,
    shown_name,
)
from lresnet_paper.pages.features_page import without_column_sentences
from lresnet_paper.pages.ood_page import detection_counts, first_protocol, ood_runs, spearman
from lresnet_paper.pages.planned import is_begun
from lresnet_paper.render import macros
from lresnet_paper.results import Result
from lresnet_paper.run import on_paper_split
from lresnet_paper.tables import paper_columns, paper_figure, paper_tables
from lresnet_paper.untrained import best_untrained

__all__ = [
    "CLAIM_TABLES",
    "HOLDS",
    "JUDGES",
    "NOT_MEASURED",
    "PARTLY",
    "REFUTED",
    "UNDECIDED",
    "VERDICTS",
    "Claim",
    "Measured",
    "answer_claims",
    "claim_counts",
    "depth_claims",
    "gap_widens",
    "tuning_losses",
]

HOLDS, PARTLY, REFUTED = "holds", "partly holds", "does not hold"
UNDECIDED = "undecided"
"""The verdict where a test shows no difference, or where the runs so far do not settle the claim."""
NOT_MEASURED = "not measured"
VERDICTS = (HOLDS, PARTLY, UNDECIDED, REFUTED, NOT_MEASURED)
"""All verdicts on a claim."""


class Claim(NamedTuple):
    """A sentence of the paper and what we found."""

    topic: str
    sentence: str
    verdict: str
    evidence: str
    """All numbers, in full sentences."""
    short: str = ""
    """The evidence in one line."""

    @property
    def table(self) -> str:
        """The table of results that answers the claim; empty: it is answered by measurements of rounding errors."""
        return CLAIM_TABLES.get(self.sentence, self.topic)


class Answer(NamedTuple):
    """A verdict and the numbers that its sentence in the template needs."""

    verdict: str
    numbers: Mapping[str, Any]


NO_ANSWER = Answer(NOT_MEASURED, {})


class Measured(NamedTuple):
    """Everything that claims are judged by."""

    results: Sequence[Result]
    numerics: Sequence[Mapping[str, Any]]
    """Lines of ``results/numerics.jsonl``."""
    runs: Sequence[Mapping[str, Any]]
    """The runs behind the results."""
    benchmarks: Sequence[Mapping[str, Any]]
    """Lines of ``results/benchmarks.jsonl``."""

    def cells(self, table: str) -> dict[str, dict[str, Result]]:
        """Return the results of a table by cell and name.

        Of several protocols, one on the paper's split counts, and of these the one with the most methods; of equals,
        legacy, else the first by name. Our tree counts only where the cell that it stands in for is missing.
        """
        own = [result for result in self.results if result.table == table and result.n]
        found: dict[str, dict[str, dict[str, Result]]] = {}
        for result in sorted(own, key=lambda result: (result.protocol != "legacy", result.protocol)):
            found.setdefault(result.cell, {}).setdefault(result.protocol, {})[result.name] = result
        if _UNAVAILABLE in found:
            found.pop(_STAND_IN, None)
        return {cell: _counting(cell, protocols) for cell, protocols in found.items()}

    def given_away(self) -> dict[str, tuple[Result, Result]]:
        """Return, by cell, the best untrained score and the Lorentz residual where the former is at least as high."""
        ours = {(one.cell, one.protocol): one for one in self.results if (one.table, one.method) == ("gnn", "lorentz")}
        best = best_untrained(self.results)
        return {key[0]: (best[key], one) for key, one in ours.items() if key in best and best[key].mean >= one.mean}


def _counting(cell: str, protocols: Mapping[str, dict[str, Result]]) -> dict[str, Result]:
    """Return the results of the protocol that counts for the paper's claims, see :meth:`Measured.cells`."""
    on_paper = [own for name, own in protocols.items() if on_paper_split(cell, name)]
    return max(on_paper or protocols.values(), key=len)


def claim_counts(claims: Iterable[Claim]) -> dict[str, int]:
    """Return how many claims have each of :data:`VERDICTS`.

    Example:
        >>> claim_counts([Claim("gnn", "it is better", HOLDS, "")])["holds"]
        1
    """
    counts = dict.fromkeys(VERDICTS, 0)
    for claim in claims:
        counts[claim.verdict] += 1
    return counts


def answer_claims(
    results: Sequence[Result],
    numerics: Iterable[Mapping[str, Any]] = (),
    runs: Sequence[Mapping[str, Any]] = (),
    benchmarks: Sequence[Mapping[str, Any]] = (),
) -> list[Claim]:
    """Return every claim of the paper, in its order, with the verdict that the results allow and its evidence.

    Example:
        >>> answer_claims([])[0]
        Claim(topic='gnn', sentence='lorentz is best in 8 of 10 cells', verdict='not measured', evidence='', short='')
    """
    measured = Measured(results, [line for line in numerics if line.keys() >= _NUMERICS_FIELDS], runs, benchmarks)
    return [_answered(topic, sentence, measured) for topic, sentence in _sentences()]


def depth_claims(runs: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Return the claims about depth with their answers.

    Example:
        >>> depth_claims([])[0].verdict
        'not measured'
    """
    measured = Measured((), (), runs, ())
    return [_answered(topic, sentence, measured) for topic, sentence in _sentences() if topic == DEPTH_TABLE]


def _sentences() -> list[tuple[str, str]]:
    paper = paper_tables()
    topics = paper["claims"] | {DEPTH_TABLE: paper[DEPTH_TABLE]["claims"]}
    return [(topic, sentence) for topic, own in topics.items() for sentence in own]


def _answered(topic: str, sentence: str, measured: Measured) -> Claim:
    judge = JUDGES.get(sentence)
    answer = NO_ANSWER if judge is None else judge(measured)
    if judge is None or not answer.numbers:
        return Claim(topic, sentence, answer.verdict, "")
    texts = macros("claims.md.j2")
    evidence = _one_line(getattr(texts, judge.__name__)(**answer.numbers))
    short = _one_line(getattr(texts, f"{judge.__name__}_short")(**answer.numbers))
    for cell, (untrained, lorentz) in measured.given_away().items():
        if re.search(rf"\b{re.escape(cell)}\b", evidence):
            without = without_column_sentences(measured.results).get(cell, "")
            evidence = f"{evidence} {_one_line(texts.given_away_sentence(cell, untrained, lorentz))} {without}".strip()
    return Claim(topic, sentence, answer.verdict, evidence, short)


def _one_line(text: str) -> str:
    return " ".join(text.split())


_UNAVAILABLE, _STAND_IN = "disease/nc", "disease_tree/nc"
_PAPER_METHODS = tuple(row for row in paper_tables()["gnn"] if row in METHODS)
_RESIDUALS = tuple(name for name in _PAPER_METHODS if name not in ("none", "lorentz"))
_CURVATURES = ("-0.5", "-1.0", "-1.5", "-2.0", "trainable")
_NUMERICS_FIELDS = {"method", "dtype", "norm", "ours", "floor", "textbook"}
_TRAININGS = 4  # CIFAR-10 and CIFAR-100, ResNet-20 and ResNet-32
_DETECTION_CELLS = 12


def _settled(yes: int, measured: int, needed: int, total: int) -> str:
    """Return whether at least ``needed`` of ``total`` cells satisfy a claim, given that ``yes`` of ``measured`` do."""
    if yes >= needed:
        return HOLDS
    return REFUTED if measured - yes > total - needed else UNDECIDED


def _all_measured(table: str, cells: Collection[str]) -> bool:
    """Whether ``cells`` are all cells of the paper's table whose data are available."""
    return {*cells, _UNAVAILABLE} >= set(paper_columns(table))


def _stand_in(cells: Collection[str]) -> dict[str, str] | None:
    return {"used": _STAND_IN, "missing": _UNAVAILABLE} if _STAND_IN in cells else None


# --- graphs: which method is best, by how much, at which curvature, after how much tuning -----------------------------


def best_in_cells(measured: Measured) -> Answer:
    """Judge in how many cells the Lorentz residual has the highest mean of the paper's methods."""
    cells = {cell: own for cell, own in measured.cells("gnn").items() if own.keys() >= set(_PAPER_METHODS)}
    if not cells:
        return NO_ANSWER
    best = [cell for cell, own in cells.items() if _is_best(own)]
    numbers = {"best": best, "measured": len(cells), "stand_in": _stand_in(cells)}
    return Answer(_settled(len(best), len(cells), 8, 10), numbers)


def _is_best(own: Mapping[str, Result]) -> bool:
    return own["lorentz"].mean >= max(own[name].mean for name in _PAPER_METHODS)


def chameleon_gain(measured: Measured) -> Answer:
    """Judge by how many percent of it the mean on chameleon exceeds that of the best other residual."""
    own = measured.cells("gnn").get("chameleon/nc", {})
    if not own.keys() >= {*_RESIDUALS, "lorentz"}:
        return NO_ANSWER
    best = max(own[name].mean for name in _RESIDUALS)
    gain = 100 * (own["lorentz"].mean / best - 1)
    return Answer(HOLDS if gain >= 4.2 else REFUTED, {"gain": gain, "best": best})


def graph_gain(measured: Measured) -> Answer:
    """Judge the largest gain on graphs."""
    return _largest_gain(measured, "gnn", 10.9)


def transformer_gain(measured: Measured) -> Answer:
    """Judge the largest gain with the graph transformer."""
    return _largest_gain(measured, "graph_transformer", 2.5)


def _largest_gain(measured: Measured, table: str, points: float) -> Answer:
    """Judge the largest gain over the best other residual, in points."""
    cells = {cell: own for cell, own in measured.cells(table).items() if own.keys() >= {*_RESIDUALS, "lorentz"}}
    if not cells:
        return NO_ANSWER
    best = {cell: max((own[name] for name in _RESIDUALS), key=lambda one: one.mean) for cell, own in cells.items()}
    gains = {cell: round(own["lorentz"].mean - best[cell].mean, 2) for cell, own in cells.items()}  # as printed
    cell = max(gains, key=lambda name: gains[name])
    verdict = HOLDS if gains[cell] >= points else REFUTED if _all_measured(table, gains) else UNDECIDED
    numbers = {
        "gain": gains[cell],
        "cell": cell,
        "runs": (cells[cell]["lorentz"].n, best[cell].n),
        "measured": len(gains),
        "cells": len(paper_columns(table)),
        "stand_in": _stand_in(gains),
    }
    return Answer(verdict, numbers)


def better_than_base(measured: Measured) -> Answer:
    """Judge the means against those without a residual, and against all methods in node classification."""
    cells = {cell: own for cell, own in measured.cells("gnn").items() if own.keys() >= set(_PAPER_METHODS)}
    if not cells:
        return NO_ANSWER
    higher = sum(own["lorentz"].mean > own["none"].mean for own in cells.values())
    nodes = [cell for cell in cells if cell.endswith("/nc")]
    best = sum(_is_best(cells[cell]) for cell in nodes)
    verdicts = {_settled(higher, len(cells), 9, 10), _settled(best, len(nodes), 6, 6)}
    verdict = next(word for word in (REFUTED, UNDECIDED, HOLDS) if word in verdicts)
    numbers = {"higher": higher, "measured": len(cells), "best": best, "nodes": len(nodes)}
    return Answer(verdict, numbers | {"stand_in": _stand_in(cells)})


def curvature_sensitivity(measured: Measured) -> Answer:
    """Judge whether means vary over curvatures by no more than in the paper's cell that varies most."""
    spread: dict[str, float] = {}
    for cell, own in measured.cells("curvature").items():
        means = [result.mean for result in own.values() if result.paper_mean is not None]
        if len(means) == len(_CURVATURES):
            spread[cell] = _range(means)
    if not spread:
        return NO_ANSWER
    columns = paper_columns("curvature")
    paper = max(_range(_printed_curvature(cell, K) for K in _CURVATURES) for cell in columns)
    cell = max(spread, key=lambda name: spread[name])
    wider = sum(range_ > paper for range_ in spread.values())
    complete = HOLDS if _all_measured("curvature", spread) else UNDECIDED
    verdict = complete if not wider else REFUTED if wider == len(spread) else PARTLY
    numbers = {"range": spread[cell], "cell": cell, "measured": len(spread), "cells": len(columns), "paper": paper}
    numbers["wider"] = wider
    return Answer(verdict, numbers)


def _printed_curvature(cell: str, curvature: str) -> float:
    return paper_figure("curvature", cell, "lorentz", curvature)[0] or math.nan


def _range(values: Iterable[float]) -> float:
    low, *_, high = sorted(values)
    return high - low


def tuning_overhead(measured: Measured) -> Answer:
    """Judge what the Lorentz residual loses with settings chosen for none: little is at most one point."""
    losses = tuning_losses(measured.runs)
    if not losses:
        return NO_ANSWER
    little, worst = sum(loss <= 1 for loss in losses.values()), max(losses, key=lambda cell: losses[cell])
    verdict = HOLDS if little == len(losses) else PARTLY if little else REFUTED
    numbers = {"median": statistics.median(losses.values()), "little": little, "cells": len(losses)}
    return Answer(verdict, numbers | {"worst": worst, "largest": losses[worst]})


def tuning_losses(runs: Iterable[Mapping[str, Any]], table: str = "gnn") -> dict[str, float]:
    """Return, by cell, what the Lorentz residual loses with the settings that are best for none, in points.

    The loss is against its own best configuration of the same search, by mean validation value over the search's
    seeds. A configuration in which a run diverged does not count. A cell counts only if both methods were searched
    over the same configurations.

    Example:
        >>> tuning_losses([])
        {}
    """
    found: dict[tuple[str, str], dict[str, dict[str, list[float | None]]]] = {}
    for run in runs:
        if run["table"] == table and run.get("stage") == "search" and run["method"] in ("none", "lorentz"):
            methods = found.setdefault((run["cell"], run["protocol"]), {"none": {}, "lorentz": {}})
            config = json.dumps(run.get("config", {}), sort_keys=True)
            methods[run["method"]].setdefault(config, []).append(run.get("validation"))
    losses = {}
    for (cell, protocol), methods in found.items():
        base, ours = (_finite_means(methods[name]) for name in ("none", "lorentz"))
        if base and methods["none"].keys() == methods["lorentz"].keys():
            chosen = max(base, key=lambda config: base[config])
            if chosen in ours:
                losses[f"{cell}, {protocol}"] = max(ours.values()) - ours[chosen]
    return losses


def _finite_means(configs: Mapping[str, list[float | None]]) -> dict[str, float]:
    finite = {config: [v for v in values if v is not None] for config, values in configs.items()}
    return {c: statistics.fmean(values) for c, values in finite.items() if len(values) == len(configs[c])}


def hyperbolic_transformers(measured: Measured) -> Answer:
    """Judge in how many cells more than half of the hyperbolic methods have a higher mean than the Euclidean one."""
    methods = (*_RESIDUALS, "lorentz")
    cells = {
        cell: own for cell, own in measured.cells("graph_transformer").items() if own.keys() >= {"euclidean", *methods}
    }
    if not cells:
        return NO_ANSWER
    higher = {cell: sum(own[m].mean > own["euclidean"].mean for m in methods) for cell, own in cells.items()}
    majority = len(methods) // 2 + 1
    ahead = sum(number >= majority for number in higher.values())
    verdict = _settled(ahead, len(higher), 2, 3)
    shown = _shown_better_than_euclidean(measured, cells, methods) if measured.runs else {}
    if measured.runs and verdict == HOLDS and sum(number >= majority for number in shown.values()) < 2:
        verdict = UNDECIDED
    return Answer(verdict, {"ahead": ahead, "methods": len(methods), "higher": higher, "shown": shown})


def _shown_better_than_euclidean(
    measured: Measured, cells: Mapping[str, Mapping[str, Result]], methods: Iterable[str]
) -> dict[str, int]:
    """Return, by cell, how many methods a paired test shows to be better than the Euclidean baseline."""
    runs = [run for run in measured.runs if run["table"] == "graph_transformer"]
    found = {
        (one.cell, one.protocol, method): one.difference
        for method in methods
        for one in compare_methods(runs, method)
        if one.method == "euclidean"
    }
    better = [key[:2] for key, verdict in family_verdicts(found).items() if verdict == "better"]
    return {cell: better.count((cell, own["euclidean"].protocol)) for cell, own in cells.items()}


# --- images: accuracy, robustness, and the norm of an embedding -------------------------------------------------------


def image_gain_and_robustness(measured: Measured) -> Answer:
    """Judge the gain in accuracy and the robustness, measured by OOD detection."""
    gain, robust = _largest_gain(measured, "image_classification", 0.5), _robustness(measured)
    begun = bool(gain.numbers) and is_begun("image_classification", "fast", measured.runs)
    found = {UNDECIDED if begun else gain.verdict, robust.verdict}
    if found >= {REFUTED, HOLDS} or found >= {REFUTED, PARTLY}:
        verdict = PARTLY
    elif found & {NOT_MEASURED, UNDECIDED}:
        verdict = NOT_MEASURED if found == {NOT_MEASURED} else UNDECIDED
    else:
        verdict = next(word for word in (REFUTED, PARTLY, HOLDS) if word in found)
    if not gain.numbers and not robust.numbers:
        return NO_ANSWER
    return Answer(verdict, {"accuracy": gain.numbers, "begun": begun, "robust": robust.numbers})


def _robustness(measured: Measured) -> Answer:
    """Judge detection: better than the baseline in most of the twelve cells, or in more cells than it is worse in."""
    counts = detection_counts(first_protocol(ood_runs(measured.runs)))
    if not counts:
        return NO_ANSWER
    better, worse, cells = counts.get("euclidean", (0, 0, 0))
    if cells < _DETECTION_CELLS:
        verdict = UNDECIDED
    else:
        verdict = HOLDS if better > cells // 2 else PARTLY if better > worse else REFUTED
    return Answer(verdict, {name: counts[name] for name in ("euclidean", "space") if name in counts})


def norm_and_confidence(measured: Measured) -> Answer:
    """Judge whether the norm of an embedding correlates with the network's confidence."""
    runs = ood_runs(measured.runs)
    ours, baseline = spearman(runs, "lorentz"), spearman(runs, "euclidean")
    if not ours:
        return NO_ANSWER
    positive = _number_positive(ours)
    if len(ours) < _TRAININGS:
        verdict = UNDECIDED
    else:
        verdict = HOLDS if positive == len(ours) else PARTLY if positive else REFUTED
    numbers = {"lorentz": ours, "euclidean": baseline}
    return Answer(verdict, numbers | {"also_euclidean": _number_positive(baseline) == len(baseline) > 0})


def _number_positive(found: Mapping[str, Estimate]) -> int:
    return sum(verdict == "better" for verdict in family_verdicts(found).values())


# --- the residual itself: speed, symmetry, stability ------------------------------------------------------------------


def speed(measured: Measured) -> Answer:
    """Judge the speed: our fastest form against the slowest form of each other method; the smaller ratio counts."""
    ratios = {
        cell: sorted(max(own[other]) / min(own["lorentz"]) for other in ("parallel_transport", "tangent"))
        for cell, own in _seconds(measured).items()
        if own.keys() >= {"parallel_transport", "tangent", "lorentz"}
    }
    if not ratios:
        return NO_ANSWER
    cell = max(ratios, key=lambda name: ratios[name])
    smaller, larger = ratios[cell]
    return Answer(HOLDS if smaller > 2000 else REFUTED, {"smaller": smaller, "larger": larger, "cell": cell})


def _seconds(measured: Measured) -> dict[str, dict[str, list[float]]]:
    """Return the synchronised times of all forms by cell and method, from the table runtime or else from benchmarks."""
    times: dict[str, dict[str, list[float]]] = {}
    for result in measured.results:
        if result.table == "runtime" and result.n and "not synchronised" not in result.protocol:
            times.setdefault(result.cell, {}).setdefault(result.method, []).append(result.mean)
    if times:
        return times
    for line in measured.benchmarks:
        kind = line.get("study"), line.get("part")
        if kind == ("residual", "forward") and line.get("cell") in paper_columns("runtime") and line.get("value"):
            place = f"{line['cell']} on {line.get('hardware', 'hardware not recorded')}"
            times.setdefault(place, {}).setdefault(line["method"], []).append(line["value"])
    return times


class Direction(NamedTuple):
    """Parallel transport forward minus backward in one cell."""

    cell: str
    difference: Estimate
    verdict: Verdict


def _directions(measured: Measured) -> list[Direction]:
    runs = [run for run in measured.runs if run["table"] == "commutativity"]
    found = compare_methods(runs, "parallel_transport")
    backward = [one for one in found if one.method == "parallel_transport_reversed"]
    return [Direction(one.cell, one.difference, one.verdict) for one in backward]


def order_matters(measured: Measured) -> Answer:
    """Judge whether the order of the two points matters for parallel transport."""
    found = _directions(measured)
    if not found:
        return NO_ANSWER
    decided = any(one.verdict != "no difference shown" for one in found)
    return Answer(HOLDS if decided else UNDECIDED, {"directions": found})


def unpredictable_direction(measured: Measured) -> Answer:
    """Judge whether a direction is better in one cell and worse in another; the same one everywhere refutes it."""
    found = _directions(measured)
    if len(found) < 2:
        return NO_ANSWER
    verdicts = {one.verdict for one in found}
    both = verdicts >= {"better", "worse"}
    verdict = HOLDS if both else UNDECIDED if "no difference shown" in verdicts else REFUTED
    return Answer(verdict, {"directions": found})


def numerical_stability(measured: Measured) -> Answer:
    """Judge the stability of our form and of the printed formula."""
    lines = [line for line in measured.numerics if line["method"] == "lorentz" and line["dtype"] == "float32"]
    if not lines:
        return NO_ANSWER
    ratio = max((line["ours"] / line["floor"] for line in lines if line["ours"] > 3e-7), default=1.0)
    textbook = max(_error(line["textbook"]) for line in lines)
    verdict = REFUTED if ratio > 10 else PARTLY if textbook > 1 else HOLDS
    return Answer(verdict, {"ratio": ratio, "textbook": textbook})


def tangent_mapping_errors(measured: Measured) -> Answer:
    """Judge whether the error of the tangent method grows far from the origin."""
    lines = [line for line in measured.numerics if line["method"] == "tangent" and line["dtype"] == "float32"]
    if not lines:
        return NO_ANSWER
    norms = sorted({line["norm"] for line in lines})
    near, far = (_median(line["textbook"] for line in lines if line["norm"] == n) for n in (norms[0], norms[-1]))
    numbers = {"near": near, "near_norm": norms[0], "far": far, "far_norm": norms[-1]}
    return Answer(HOLDS if far > 1000 * near else REFUTED, numbers)


def _median(values: Iterable[float | None]) -> float:
    ordered = sorted(map(_error, values))
    return ordered[len(ordered) // 2]


def _error(value: float | None) -> float:
    """Return an error; infinity for a result that is not a number."""
    return math.inf if value is None or math.isnan(value) else value


# --- depth ------------------------------------------------------------------------------------------------------------


def gap_widens(measured: Measured) -> Answer:
    """Judge the slope of the lead over none per doubling of the depth: it widens where the 95 % interval is above 0."""
    slopes, rows = dict[str, Estimate](), []
    for cell, own in all_runs_by_depth(measured.runs).items():
        # A depth at which every run of one of the two methods diverged has no difference.
        by_depth = {depth: found for depth, found in differences_by_seed("none", own, "lorentz").items() if found}
        seeds = set.intersection(*map(set, by_depth.values())) if len(by_depth) > 1 else set()
        doublings = [math.log2(depth) for depth in by_depth]
        fitted = [statistics.linear_regression(doublings, [g[s] for g in by_depth.values()])[0] for s in seeds]
        if slope := mean_interval(fitted):
            slopes[cell] = slope
            leads = {depth: statistics.fmean(found.values()) for depth, found in by_depth.items()}
            rows.append({"cell": cell, "leads": leads, "slope": slope})
    return Answer(_verdict_of_several(family_verdicts(slopes).values(), wanted="better"), {"rows": rows})


def tangent_shrinks(measured: Measured) -> Answer:
    """Judge the lead of tangent over none against half the depth, paired over seeds, at the paper's two depths."""
    groups, changes = all_runs_by_depth(measured.runs), dict[tuple[str, int], Estimate]()
    for cell, depth in (("disease/lp", 32), ("airport/lp", 16)):
        by_depth = differences_by_seed("none", groups.get(cell, {}), "tangent")
        here, before = by_depth.get(depth, {}), by_depth.get(depth // 2, {})
        if change := mean_interval([here[seed] - before[seed] for seed in here.keys() & before.keys()]):
            changes[cell, depth] = change
    rows = [{"cell": cell, "depth": depth, "change": change} for (cell, depth), change in changes.items()]
    return Answer(_verdict_of_several(family_verdicts(changes).values(), wanted="worse"), {"rows": rows})


def transport_diverges(measured: Measured) -> Answer:
    """Judge how often the published form of parallel transport diverges; the boost is reported next to it."""
    rows = []
    for method in (TEXTBOOK, "parallel_transport"):
        if by_depth := _diverged(measured, method):
            counts = [{"depth": d, "diverged": sum(own), "runs": len(own)} for d, own in by_depth.items()]
            rows.append({"name": shown_name(method), "counts": counts})
    deep = [lost for depth, own in _diverged(measured, TEXTBOOK).items() if depth >= 16 for lost in own]
    verdict = NOT_MEASURED if not deep else HOLDS if all(deep) else PARTLY if any(deep) else REFUTED
    return Answer(verdict, {"rows": rows} if rows else {})


def _diverged(measured: Measured, method: str) -> dict[int, list[bool]]:
    """Return, by depth, whether each run on any data set and with any settings diverged."""
    found: dict[int, list[bool]] = {}
    for own in all_runs_by_depth(measured.runs).values():
        for depth, runs in own.get(method, {}).items():
            found.setdefault(depth, []).extend(run.get("value") is None for run in runs)
    return dict(sorted(found.items()))


def _verdict_of_several(verdicts: Iterable[Verdict], wanted: Verdict) -> str:
    """Return the verdict on a claim about several data sets, each of which must show ``wanted``."""
    found = list(verdicts)
    if not found:
        return NOT_MEASURED
    if wanted in found:
        return HOLDS if set(found) == {wanted} else PARTLY
    return UNDECIDED if set(found) == {"no difference shown"} else REFUTED


JUDGES: dict[str, Callable[[Measured], Answer]] = {
    "lorentz is best in 8 of 10 cells": best_in_cells,
    "up to 4.2 % better (chameleon)": chameleon_gain,
    "up to 10.9 % over other residual methods": graph_gain,
    "better than the base in 9 of 10, best in every node classification": better_than_base,
    "not sensitive to the curvature": curvature_sensitivity,
    "a residual adds little tuning overhead": tuning_overhead,
    "up to 2.5 % better": transformer_gain,
    "hyperbolic beats the Euclidean SGFormer in 2 of 3": hyperbolic_transformers,
    "up to 0.5 % better, and more robust": image_gain_and_robustness,
    "embedding norm correlates with confidence": norm_and_confidence,
    "over 2000 times faster": speed,
    "commutative, unlike parallel transport": order_matters,
    "which direction of parallel transport is better is unpredictable": unpredictable_direction,
    "numerically stable by the lemma": numerical_stability,
    "mapping errors of tangent methods far from the origin": tangent_mapping_errors,
    "the gap of lorentz over none widens with depth": gap_widens,
    "tangent shrinks at 32 layers on disease and at 16 on airport": tangent_shrinks,
    "parallel_transport yields NaN from 16 layers on": transport_diverges,
}
"""The function that judges a claim, by the paper's sentence."""

CLAIM_TABLES = {
    "not sensitive to the curvature": "curvature",
    "up to 0.5 % better, and more robust": "image_classification",
    "embedding norm correlates with confidence": "ood",
    "over 2000 times faster": "runtime",
    "commutative, unlike parallel transport": "commutativity",
    "which direction of parallel transport is better is unpredictable": "commutativity",
    "numerically stable by the lemma": "",
    "mapping errors of tangent methods far from the origin": "",
}
"""The table that answers a claim, by the paper's sentence, where it is not named like the claim's topic."""
