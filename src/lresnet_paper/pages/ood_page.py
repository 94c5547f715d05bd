"""The table of out-of-distribution (OOD) detection: paired differences, correlations, and their tables.

Our rows stand next to the paper's own and next to those that the paper quotes from others, which we did not run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from rich.console import Group
from rich.text import Text

from lresnet.residual.registry import METHODS
from lresnet.runs.statistics import Estimate, Verdict, mean_interval, summarise
from lresnet_paper.comparisons import family_verdicts
from lresnet_paper.pages.planned import missing_sentences
from lresnet_paper.pages.text_tables import TextRow, TextTable, difference_text, markdown_tables, terminal_tables
from lresnet_paper.plan import recipe_notes
from lresnet_paper.render import render
from lresnet_paper.results import method_key
from lresnet_paper.tables import paper_detection

__all__ = [
    "Cell",
    "Counts",
    "Runs",
    "detection_counts",
    "detection_differences",
    "first_protocol",
    "mean_detection_differences",
    "mean_score_differences",
    "ood_answers",
    "ood_markdown",
    "ood_reading",
    "ood_runs",
    "ood_tables",
    "ood_terminal",
    "score_differences",
    "scores_of",
    "spearman",
]

K = TypeVar("K")
Run = Mapping[str, Any]
Runs = dict["Cell", dict[str, list[Run]]]
"""The final runs by cell and method."""

_METRICS = ("fpr95", "auroc", "aupr")
_NETWORKS = ("r20", "r32")
_COMPARED = ("euclidean", "space")
_PAPER_ROWS = {"lorentz": "paper", "euclidean": "quoted", "hnnpp_head": "quoted", "poincare": "quoted"}
_ID_PER_OOD = 5  # test images for each OOD image in the paper's draws
_GEOMETRY_SCORES = {
    "lorentz": ("origin_distance", "boundary_distance"),
    "euclidean": ("euclidean_norm", "euclidean_boundary_distance"),
}

# --- runs and differences ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Cell:
    """A cell of the table under one protocol, e.g. CIFAR-10 against SVHN with ResNet-20."""

    protocol: str
    images: str
    ood: str
    network: str

    @property
    def training(self) -> str:
        """The images trained on and the network, which three cells share."""
        return f"{self.images}/{self.network}"

    def __str__(self) -> str:
        return f"{self.images}/{self.ood}/{self.network}"


def ood_runs(runs: Iterable[Run]) -> Runs:
    """Return the final runs of the table, diverged ones included, with the cells in order."""
    found: Runs = {}
    for run in runs:
        if run["table"] == "ood" and run.get("stage", "final") == "final":
            cell = Cell(run["protocol"], *run["cell"].split("/"))
            found.setdefault(cell, {}).setdefault(run["method"], []).append(run)
    return dict(sorted(found.items()))


def first_protocol(runs: Runs) -> Runs:
    """Return, for each cell with several protocols, the first one."""
    first = {(cell.training, cell.ood): cell for cell in reversed(runs)}
    return {cell: methods for cell, methods in runs.items() if first[cell.training, cell.ood] == cell}


def detection_differences(runs: Runs, metric: str = "auroc") -> dict[tuple[Cell, str], Estimate]:
    """Return ``metric`` of the Lorentz residual minus that of every other method by cell, paired over seeds."""
    return _estimates(
        {
            (cell, other): _method_differences(methods, other, metric)
            for cell, methods in runs.items()
            for other in sorted(methods.keys() - {"lorentz"}, key=method_key)
        }
    )


def mean_detection_differences(runs: Runs, metric: str = "auroc") -> dict[tuple[str, str], Estimate]:
    """Return the differences to the Euclidean baseline and to space by training, of the mean over its OOD sets."""
    return _estimates(
        {
            (training, other): own
            for other in _COMPARED
            for training, own in _mean_over_sets(
                {cell: _method_differences(methods, other, metric) for cell, methods in runs.items()}
            ).items()
        }
    )


def scores_of(runs: Runs, method: str) -> list[str]:
    """Return the scores other than the energy that networks of ``method`` have, in order of first appearance."""
    finished = [run for methods in runs.values() for run in _finished(methods.get(method, []))]
    return list(dict.fromkeys(score for run in finished for score in run["metrics"]["scores"]))


def score_differences(runs: Runs, method: str, score: str) -> dict[Cell, Estimate]:
    """Return the AUROC of ``score`` minus that of the energy by cell, on the same networks of ``method``."""
    return _estimates({cell: _score_differences(methods.get(method, []), score) for cell, methods in runs.items()})


def mean_score_differences(runs: Runs, method: str, score: str) -> dict[str, Estimate]:
    """Return the same by training, of the mean over its OOD sets."""
    by_cell = {cell: _score_differences(methods.get(method, []), score) for cell, methods in runs.items()}
    return _estimates(_mean_over_sets(by_cell))


def spearman(runs: Runs, method: str) -> dict[str, Estimate]:
    """Return, by training, the rank correlation of an embedding's distance from the origin with its confidence."""
    values: dict[str, dict[int, float]] = {}
    for cell, methods in first_protocol(runs).items():
        for run in _finished(methods.get(method, [])):  # a network has the same value in all its cells
            values.setdefault(cell.training, {})[run["seed"]] = run["norm_confidence"]["spearman"]
    return _estimates(values)


def _method_differences(methods: Mapping[str, Sequence[Run]], other: str, metric: str) -> dict[int, float]:
    ours, theirs = (
        {run["seed"]: run["metrics"][metric] for run in _finished(methods.get(method, []))}
        for method in ("lorentz", other)
    )
    return {seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())}


def _score_differences(runs: Sequence[Run], score: str) -> dict[int, float]:
    metrics = {run["seed"]: run["metrics"] for run in _finished(runs)}
    return {seed: m["scores"][score]["auroc"] - m["auroc"] for seed, m in metrics.items() if score in m["scores"]}


def _mean_over_sets(found: Mapping[Cell, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    """Return, by training and seed, the mean over the OOD sets, for the seeds that all sets have."""
    trainings: dict[str, list[Mapping[int, float]]] = {}
    for cell, own in found.items():
        trainings.setdefault(cell.training, []).append(own)
    means: dict[str, dict[int, float]] = {}
    for training, sets in trainings.items():
        seeds = sorted(set.intersection(*map(set, sets)))
        means[training] = {seed: statistics.fmean(own[seed] for own in sets) for seed in seeds}
    return means


def _estimates(values: Mapping[K, Mapping[int, float]]) -> dict[K, Estimate]:
    found = {key: mean_interval(list(own.values())) for key, own in values.items()}
    return {key: estimate for key, estimate in found.items() if estimate is not None}


def _finished(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run.get("value") is not None]


# --- answers ----------------------------------------------------------------------------------------------------------


class Counts(NamedTuple):
    """How many comparisons a test decides."""

    better: int
    worse: int
    total: int

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Counts:
        """Count verdicts."""
        own = list(verdicts)
        return cls(own.count("better"), own.count("worse"), len(own))


def detection_counts(runs: Runs, metric: str = "auroc") -> dict[str, Counts]:
    """Count by other method in how many cells the Lorentz residual is better or worse, after Holm's correction."""
    found = detection_differences(runs, metric)
    if metric == "fpr95":  # lower is better
        found = {key: -estimate for key, estimate in found.items()}
    decided = family_verdicts(found)
    others = dict.fromkeys(other for _, other in decided)
    return {name: Counts.of(v for (_, other), v in decided.items() if other == name) for name in others}


def ood_answers(runs: Iterable[Run]) -> list[str]:
    """Return what is missing, then for each protocol whether the Lorentz residual and its geometric scores help.

    Example:
        >>> ood_answers([])
        []
    """
    lines = list(runs)
    found, answers = ood_runs(lines), missing_sentences("ood", lines)
    for protocol in sorted({cell.protocol for cell in found}):
        own = {cell: methods for cell, methods in found.items() if cell.protocol == protocol}
        text = render("ood_answers.md.j2", protocol=protocol, **_answer(own))
        answers += [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n") if paragraph]
    return answers


def _answer(runs: Runs) -> dict[str, Any]:
    means, scores = mean_detection_differences(runs), _geometry_scores(runs)
    decided, score_verdicts = family_verdicts(means), family_verdicts(scores)
    cell_verdicts = family_verdicts(_geometry_scores_by_cell(runs))
    noted = {cell.ood for cell, methods in runs.items() for own in methods.values() for run in own if run.get("note")}
    return {
        "trainings": {
            other: Counts.of(v for (_, name), v in decided.items() if name == other)
            for other in _COMPARED
            if any(name == other for _, name in means)
        },
        "auroc": detection_counts(runs),
        "fpr95": detection_counts(runs, "fpr95"),
        "fewest": min((estimate.n for estimate in means.values()), default=0),
        "stand_ins": sorted(noted),
        "scores": [
            {
                "method": method,
                "score": score,
                "trainings": Counts.of(v for (*key, _), v in score_verdicts.items() if key == [method, score]),
                "cells": Counts.of(v for (*key, _), v in cell_verdicts.items() if key == [method, score]),
            }
            for method, score in dict.fromkeys((method, score) for method, score, _ in scores)
        ],
    }


def _geometry_scores(runs: Runs) -> dict[tuple[str, str, str], Estimate]:
    return {
        (method, score, training): estimate
        for method, names in _GEOMETRY_SCORES.items()
        for score in names
        for training, estimate in mean_score_differences(runs, method, score).items()
    }


def _geometry_scores_by_cell(runs: Runs) -> dict[tuple[str, str, Cell], Estimate]:
    return {
        (method, score, cell): estimate
        for method, names in _GEOMETRY_SCORES.items()
        for score in names
        for cell, estimate in score_differences(runs, method, score).items()
    }


# --- tables -----------------------------------------------------------------------------------------------------------


def ood_tables(runs: Iterable[Run]) -> list[TextTable]:
    """Return all tables: differences first, then for each set of training images the values on each OOD set."""
    found, tables = ood_runs(runs), list[TextTable]()
    for protocol in dict.fromkeys(cell.protocol for cell in found):
        own = {cell: methods for cell, methods in found.items() if cell.protocol == protocol}
        tables += [_mean_difference_table(protocol, own), _mean_score_table(protocol, own), _cell_table(protocol, own)]
    for protocol, images in dict.fromkeys((cell.protocol, cell.images) for cell in found):
        own = {cell: methods for cell, methods in found.items() if (cell.protocol, cell.images) == (protocol, images)}
        tables += [_detection_table(protocol, images, ood, own) for ood in dict.fromkeys(cell.ood for cell in own)]
        tables += [_accuracy_table(protocol, images, own), _score_table(protocol, images, own)]
    return [table for table in tables if table.rows]


def _note(table: str, **values: Any) -> str:
    return " ".join(render("ood_note.md.j2", table=table, **values).split())


def _mean_difference_table(protocol: str, runs: Runs) -> TextTable:
    means = mean_detection_differences(runs)
    decided = family_verdicts(means)
    others = [other for other in _COMPARED if any(name == other for _, name in means)]
    rows = [
        TextRow(training, tuple(_difference_cell(means, decided, (training, other)) for other in others))
        for training in dict.fromkeys(training for training, _ in means)
    ]
    columns = tuple(f"minus {other}" for other in others)
    title = f"AUROC of the Lorentz residual minus that of another method, mean over the OOD sets, {protocol}"
    return TextTable(title, _note("difference"), columns, rows)


def _mean_score_table(protocol: str, runs: Runs) -> TextTable:
    scores = _geometry_scores(runs)
    decided = family_verdicts(scores)
    trainings = tuple(dict.fromkeys(training for *_, training in scores))
    rows = [
        TextRow(
            f"{method}, {score}",
            tuple(_difference_cell(scores, decided, (method, score, training)) for training in trainings),
        )
        for method, score in dict.fromkeys((method, score) for method, score, _ in scores)
    ]
    title = f"AUROC of a geometric score minus that of the energy, mean over the OOD sets, {protocol}"
    return TextTable(title, _note("difference"), trainings, rows)


def _cell_table(protocol: str, runs: Runs) -> TextTable:
    found = detection_differences(runs)
    decided = family_verdicts(found)
    others = tuple(sorted({other for _, other in found}, key=method_key))
    rows = [
        TextRow(str(cell), tuple(_difference_cell(found, decided, (cell, other)) for other in others))
        for cell in dict.fromkeys(cell for cell, _ in found)
    ]
    columns = tuple(f"minus {other}" for other in others)
    title = f"AUROC of the Lorentz residual minus that of another method by cell, {protocol}"
    return TextTable(title, _note("difference"), columns, rows)


def _difference_cell(found: Mapping[K, Estimate], decided: Mapping[K, Verdict], key: K) -> str:
    return difference_text(found[key], decided[key]) if key in found else ""


def _detection_table(protocol: str, images: str, ood: str, runs: Runs) -> TextTable:
    cells = [Cell(protocol, images, ood, network) for network in _NETWORKS]
    columns = tuple(f"{metric.upper()} {cell.network.upper()}" for metric in _METRICS for cell in cells)
    rows = []
    for method in _ordered(runs):
        own = [runs.get(cell, {}).get(method, []) for cell in cells]
        if any(own):
            values = [_value(group, metric) for metric in _METRICS for group in own]
            rows.append(TextRow(f"{method} {_seeds(own)}", tuple(values)))
    for name, source in _PAPER_ROWS.items():
        printed = [paper_detection(f"{images}/{ood}/{network}", name) for network in _NETWORKS]
        if any(printed):
            values = [f"{own[metric]:.1f}" if own else "" for metric in _METRICS for own in printed]
            rows.append(TextRow(name, tuple(values), source))
    notes = dict.fromkeys(run.get("note") or "" for cell in cells for own in runs.get(cell, {}).values() for run in own)
    note = _note("detection", ood=ood, images=[text for text in notes if text], chance=_chance_levels(cells, runs))
    return TextTable(f"{images} against {ood}, {protocol}", note, columns, rows)


def _chance_levels(cells: Sequence[Cell], runs: Runs) -> list[dict[str, float]]:
    """Return the AUPR of a random score, which depends on the numbers of images, for OOD sets too small for draws."""
    metrics = [run.get("metrics", {}) for cell in cells for own in runs.get(cell, {}).values() for run in own]
    sizes = {(own["n_id"], own["n_ood"]) for own in metrics if "n_ood" in own}
    return [
        {"size": n_ood, "here": 100 * n_id / (n_id + n_ood), "paper": 100 * _ID_PER_OOD / (_ID_PER_OOD + 1)}
        for n_id, n_ood in sorted(sizes)
        if _ID_PER_OOD * n_ood < n_id
    ]


def _accuracy_table(protocol: str, images: str, runs: Runs) -> TextTable:
    columns = {cell.network: methods for cell, methods in runs.items()}  # all cells of a training share its networks
    rows = []
    for method in _ordered(runs):
        own = [columns.get(network, {}).get(method, []) for network in _NETWORKS]
        rows.append(TextRow(f"{method} {_seeds(own)}", tuple(_value(group, "accuracy") for group in own)))
    notes = recipe_notes({("ood", cell.training) for cell in runs})
    note = " ".join(text for (_, _, name), text in notes.items() if name == protocol)
    return TextTable(f"{images}, accuracy on its own test images, {protocol}", note, ("R20", "R32"), rows)


def _score_table(protocol: str, images: str, runs: Runs) -> TextTable:
    columns = {f"{cell.ood} {cell.network.upper()}": cell for cell in runs}
    rows = []
    for method in _ordered(runs):
        for score in scores_of(runs, method):
            if found := score_differences(runs, method, score):
                values = tuple(_short(found.get(cell)) for cell in columns.values())
                rows.append(TextRow(f"{method}, {score}", values))
    title = f"{images}, AUROC of other scores minus that of the energy on the same networks, {protocol}"
    return TextTable(title, _note("scores"), tuple(columns), rows)


def _ordered(runs: Runs) -> list[str]:
    """Return the methods that were run: baselines, other methods without curvature, then those with curvature."""
    there = {method for methods in runs.values() for method in methods}
    known = [method for method in METHODS.values() if method.name in there]
    known.sort(key=lambda method: (method.role != "baseline", method.curved, method.table_rank))
    return [method.name for method in known] + sorted(there - METHODS.keys())


def _value(runs: Sequence[Run], metric: str) -> str:
    values = [run["metrics"][metric] for run in _finished(runs)]
    if not values:
        return "diverged" if runs else ""
    return f"{summarise(values):.1f}"


def _seeds(groups: Iterable[Sequence[Run]]) -> str:
    """Return the number of seeds of each network: ``(5)``, ``(5, 3)``, or ``(2 of 3)`` if the third run diverged."""
    counts = []
    for runs in filter(None, groups):
        finished = len(_finished(runs))
        counts.append(str(finished) if finished == len(runs) else f"{finished} of {len(runs)}")
    return f"({', '.join(dict.fromkeys(counts))})"


def _short(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{estimate:+.1f}"


# --- pages ------------------------------------------------------------------------------------------------------------


def ood_reading(runs: Iterable[Run]) -> str:
    """Return how to read the tables."""
    return render("ood_reading.md.j2", other_definitions=_other_definitions(runs)).strip()


def _other_definitions(runs: Iterable[Run]) -> dict[str, float] | None:
    """Return how far FPR95 by its second definition and AUROC on whole sets are from what the tables show."""
    lines = [run for methods in ood_runs(runs).values() for own in methods.values() for run in own]
    metrics = [run["metrics"] for run in lines if "full" in run.get("metrics", {})]
    if not metrics:
        return None
    return {
        "fpr95": max(abs(own["fpr95"] - own["fpr95_first"]) for own in metrics),
        "auroc": max(abs(own["auroc"] - own["full"]["auroc"]) for own in metrics),
    }


def ood_markdown(runs: Iterable[Run]) -> str:
    """Return the answers, how to read the tables, and the tables; empty without runs."""
    lines = list(runs)
    tables = ood_tables(lines)
    if not tables:
        return ""
    values = {"answers": ood_answers(lines), "reading": ood_reading(lines), "tables": markdown_tables(tables)}
    return render("ood.md.j2", **values)


def ood_terminal(runs: Iterable[Run]) -> Group:
    """Return the same for a terminal of 80 columns."""
    lines = list(runs)
    answers = [Text(f"{answer}\n") for answer in ood_answers(lines)]
    reading = Text(ood_reading(lines).replace("*", "").replace("`", ""))
    return Group(*answers, reading, terminal_tables("ood", ood_tables(lines)))
