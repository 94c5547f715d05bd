"""The page "Does the paper reproduce?" (docs/reproduction/index.md): claims first, then one small table per table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lresnet_paper.comparisons import Comparison, compare_methods, family_verdicts
from lresnet_paper.pages.claims import VERDICTS, Claim, Measured, claim_counts, gap_widens
from lresnet_paper.pages.features_page import without_column_sentences
from lresnet_paper.pages.ood_page import (
    Counts,
    detection_counts,
    first_protocol,
    mean_detection_differences,
    ood_runs,
)
from lresnet_paper.pages.results_page import (
    CellLine,
    claims_of_folder,
    overview,
    overview_markdown,
    untrained_sentences,
)
from lresnet_paper.pages.text_tables import difference_text, our_value, paper_value
from lresnet_paper.render import render
from lresnet_paper.results import Result, aggregate, in_order, read_runs
from lresnet_paper.tables import paper_columns
from lresnet_paper.untrained import best_untrained

__all__ = ["claim_counts_of_folder", "verdict_page", "verdict_page_of_folder"]

_ACCURACY_TABLES = ("gnn", "graph_transformer", "image_classification")
_COMPARED_RECIPES = ("paper", "fast", "long", "long-cutmix")  # the recipes on images with a Euclidean baseline
_CURVATURES = ("-0.5", "-1.0", "-1.5", "-2.0", "trainable")
_RUNTIME_METHODS = ("parallel_transport", "tangent", "lorentz")

Run = Mapping[str, Any]


def claim_counts_of_folder(folder: Path) -> dict[str, int]:
    """Return how many of the paper's claims hold, partly hold, are undecided, do not hold, and are not measured.

    Args:
        folder: the folder of results.

    Returns:
        The counts by verdict, in the order of :data:`lresnet_paper.pages.claims.VERDICTS`.
    """
    return claim_counts(claims_of_folder(read_runs(folder), folder))


def verdict_page_of_folder(folder: Path) -> str:
    """Return the page from the results in ``folder``."""
    runs = read_runs(folder)
    return verdict_page(runs, claims_of_folder(runs, folder))


def verdict_page(runs: Sequence[Run], claims: Sequence[Claim]) -> str:
    """Return the page.

    Args:
        runs: lines of results, see :func:`lresnet_paper.results.read_runs`.
        claims: the answers to the paper's claims, see :func:`lresnet_paper.pages.claims.answer_claims`.
    """
    results, comparisons = in_order(aggregate(runs)), compare_methods(runs)
    measured = Measured(results, (), runs, ())
    lines = {table: _lines(table, results, comparisons) for table in _ACCURACY_TABLES}
    counts = claim_counts(claims)
    values = {
        "claims": claims,
        "by_sentence": {claim.sentence: claim for claim in claims},
        "counts": counts,
        "measured": sum(counts.values()) - counts[VERDICTS[-1]],
        "all_rows": _row_counts([line for own in lines.values() for line in own]),
        "rows": {table: _row_counts(own) for table, own in lines.items()},
        "against_paper": _against_paper_rows(lines),
        "overviews": {table: overview_markdown(own, compact=True) for table, own in lines.items()},
        "given_away": measured.given_away(),
        "without_column": without_column_sentences(results),
        "untrained": untrained_sentences([one for one in results if one.table == "gnn"], lines["gnn"]),
        "images": _image_rows(results, comparisons),
        "pairs": _pairs_behind(runs),
        "detection": _detection_rows(runs),
        "runtimes": _runtime_rows(results),
        "directions": _direction_rows(results, runs),
        "curvatures": {"names": _CURVATURES, "rows": _curvature_rows(results)},
        "depths": _depth_rows(measured),
    }
    return render("verdict.md.j2", **values)


# --- accuracy ---------------------------------------------------------------------------------------------------------


def _lines(table: str, results: Sequence[Result], comparisons: Iterable[Comparison]) -> list[CellLine]:
    own = [one for one in results if one.table == table]
    paired = [one for one in comparisons if one.table == table]
    if table != "gnn":
        return overview(own, paired)
    return overview(own, paired, best_untrained(results), without_column_sentences(results))


def _row_counts(lines: Sequence[CellLine]) -> dict[str, Any]:
    """Return the number of verdicts against the best other method and against the paper, and the rows of two kinds."""
    best = [line for line in lines if line.comparison is not None]
    paper = Counter(line.lorentz.verdict for line in lines if line.lorentz.verdict)
    return {
        "best": Counter(line.comparison.verdict for line in best if line.comparison),
        "best_total": len(best),
        "better_cells": [line.cell for line in best if line.comparison and line.comparison.verdict == "better"],
        "worse_cells": [line.cell for line in best if line.comparison and line.comparison.verdict == "worse"],
        "highest": sum(line.is_best for line in lines if line.best is not None),
        "paper": paper,
        "paper_total": sum(paper.values()),
    }


def _against_paper_rows(lines: Mapping[str, Sequence[CellLine]]) -> list[dict[str, Any]]:
    """Return, by table, the verdicts of our Lorentz values against the paper's; images with the paper's recipe only."""
    names = {
        "gnn": "graph networks",
        "graph_transformer": "graph transformer",
        "image_classification": "images with the paper's recipe",
    }
    rows = []
    for table, name in names.items():
        images = table == "image_classification"
        counts = _row_counts([line for line in lines[table] if not images or line.lorentz.protocol == "paper"])
        if counts["paper_total"]:
            rows.append({"name": name, "total": counts["paper_total"], "counts": counts["paper"]})
    return rows


# --- images -----------------------------------------------------------------------------------------------------------


def _image_rows(results: Iterable[Result], comparisons: Iterable[Comparison]) -> list[dict[str, Any]]:
    """Return, by recipe, the Lorentz residual, the Euclidean baseline and their difference on both image sets."""
    table = "image_classification"
    found = {(one.protocol, one.cell, one.method): one for one in results if one.table == table and one.n}
    paired = {(one.protocol, one.cell): one for one in comparisons if (one.table, one.method) == (table, "euclidean")}
    rows = []
    for protocol in _COMPARED_RECIPES:
        cells = [cell for cell in paper_columns(table) if (protocol, cell) in paired]
        if cells:
            figures = [
                {
                    "cell": cell,
                    "lorentz": our_value(found[protocol, cell, "lorentz"]),
                    "euclidean": our_value(found[protocol, cell, "euclidean"]),
                    "difference": difference_text(paired[protocol, cell].difference, paired[protocol, cell].verdict),
                }
                for cell in cells
            ]
            rows.append({"protocol": protocol, "figures": figures})
    return rows


def _pairs_behind(runs: Iterable[Run]) -> dict[str, int]:
    """Return in how many pairs of one seed the Lorentz residual has a lower accuracy than the Euclidean baseline."""
    values: dict[tuple[str, str, int], dict[str, float]] = {}
    for run in runs:
        is_final = run.get("stage", "final") == "final" and run.get("value") is not None
        if run["table"] == "image_classification" and is_final and run["protocol"] in _COMPARED_RECIPES:
            values.setdefault((run["cell"], run["protocol"], run["seed"]), {})[run["method"]] = run["value"]
    pairs = [own for own in values.values() if own.keys() >= {"lorentz", "euclidean"}]
    return {"behind": sum(own["lorentz"] < own["euclidean"] for own in pairs), "total": len(pairs)}


def _detection_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Return, by other method, the verdicts on AUROC and FPR95 in single cells and on the mean AUROC of a training."""
    own = first_protocol(ood_runs(runs))
    if not own:
        return []
    auroc, fpr95 = detection_counts(own), detection_counts(own, "fpr95")
    means = family_verdicts(mean_detection_differences(own))
    trainings = {
        other: Counts.of(verdict for (_, name), verdict in means.items() if name == other)
        for other in dict.fromkeys(name for _, name in means)
    }
    return [
        {"other": other, "auroc": auroc[other], "fpr95": fpr95[other], "trainings": trainings[other]}
        for other in trainings
    ]


# --- the residual itself ----------------------------------------------------------------------------------------------


def _runtime_rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return, by size and method, the paper's seconds and those of our fastest and slowest synchronised form."""
    rows = []
    own = [one for one in results if one.table == "runtime" and one.n and "not synchronised" not in one.protocol]
    for cell in paper_columns("runtime"):
        for method in _RUNTIME_METHODS:
            forms = sorted((one for one in own if (one.cell, one.method) == (cell, method)), key=lambda one: one.mean)
            if forms:
                fast, slow = ({"seconds": our_value(one), "form": one.protocol} for one in (forms[0], forms[-1]))
                rows.append(
                    {"cell": cell, "method": method, "paper": paper_value(forms[0]), "fast": fast, "slow": slow}
                )
    return rows


def _direction_rows(results: Iterable[Result], runs: Iterable[Run]) -> list[dict[str, Any]]:
    table, backward = "commutativity", "parallel_transport_reversed"
    found = {(one.cell, one.method): one for one in results if one.table == table}
    own = compare_methods([run for run in runs if run["table"] == table], "parallel_transport")
    return [
        {
            "cell": one.cell,
            "forward": our_value(found[one.cell, "parallel_transport"]),
            "backward": our_value(found[one.cell, backward]),
            "paper_forward": paper_value(found[one.cell, "parallel_transport"]),
            "paper_backward": paper_value(found[one.cell, backward]),
            "difference": difference_text(one.difference),
            "verdict": one.verdict,
        }
        for one in own
        if one.method == backward
    ]


def _curvature_rows(results: Iterable[Result]) -> list[dict[str, Any]]:
    found = {(one.cell, one.curvature): one for one in results if one.table == "curvature" and one.n}
    rows = []
    for cell in dict.fromkeys(cell for cell, _ in found):
        own = {name: found[cell, name] for name in _CURVATURES if (cell, name) in found}
        means = [one.mean for one in own.values()]
        paper = [one.paper_mean for one in own.values() if one.paper_mean is not None]
        ours, theirs = max(means) - min(means), max(paper) - min(paper) if paper else None
        rows.append(
            {
                "cell": cell,
                "values": [f"{own[name].mean:.2f}" if name in own else "" for name in _CURVATURES],
                "range": f"{ours:.2f}",
                "paper_range": "" if theirs is None else f"{theirs:.1f}",
                "wider": theirs is not None and ours > theirs,
            }
        )
    return rows


def _depth_rows(measured: Measured) -> dict[str, Any]:
    """Return the lead of the Lorentz residual over none by cell and depth, and its slope with a verdict."""
    rows = gap_widens(measured).numbers.get("rows", [])
    decided = family_verdicts({row["cell"]: row["slope"] for row in rows})
    depths = sorted({depth for row in rows for depth in row["leads"]})
    cells = {word: [cell for cell, verdict in decided.items() if verdict == word] for word in ("better", "worse")}
    return {"depths": depths, "rows": rows, "widens": cells["better"], "shrinks": cells["worse"]}
