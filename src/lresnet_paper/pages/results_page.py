"""The results page (docs/reproduction/results.md): overview and results by cell of each table; computing time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lresnet.train.results import read_results
from lresnet_paper.comparisons import Comparison, compare_methods
from lresnet_paper.pages.claims import NOT_MEASURED, Claim, answer_claims, claim_counts
from lresnet_paper.pages.depth_page import DEPTH_TABLE, depth_markdown
from lresnet_paper.pages.features_page import FEATURES_TABLE, features_markdown, without_column_sentences
from lresnet_paper.pages.ood_page import ood_markdown
from lresnet_paper.pages.planned import PLANNED_TABLES, missing_sentences
from lresnet_paper.pages.text_tables import (
    against_paper,
    difference_text,
    our_value,
    paper_value,
    validation_text,
    verdict_text,
)
from lresnet_paper.plan import recipe_notes
from lresnet_paper.render import render
from lresnet_paper.results import Result, aggregate, cell_key, grouped, in_order, method_label, read_runs
from lresnet_paper.run import on_paper_split
from lresnet_paper.selected_on_test import SELECTED_TABLE, Selection, selections
from lresnet_paper.tables import Released, paper_figure, paper_tables, released_figure
from lresnet_paper.untrained import SCORE_LABELS, UNTRAINED_TABLE, best_untrained, protocol_of

__all__ = [
    "CellLine",
    "ComputingTime",
    "Notes",
    "claims_of_folder",
    "computing_time",
    "markdown_page",
    "names_note",
    "notes_of",
    "overview",
    "overview_markdown",
    "results_page_of_folder",
    "selected_on_test_markdown",
    "table_summary",
    "untrained_cell_name",
    "untrained_sentences",
]

_LATER_TABLES = ("gnn", "image_classification")

Notes = Mapping[tuple[str, str, str], str]
"""What was tried, by table, cell and protocol."""


# --- the page ---------------------------------------------------------------------------------------------------------


def results_page_of_folder(folder: Path) -> str:
    """Return the whole page for a folder of results."""
    runs = read_runs(folder)
    selected = selections(read_results(folder / f"{SELECTED_TABLE}.jsonl"))
    return markdown_page(runs, claims_of_folder(runs, folder), selected)


def markdown_page(
    runs: Sequence[Mapping[str, Any]], claims: Sequence[Claim] | None = None, selected: Sequence[Selection] = ()
) -> str:
    """Return the whole page: how to read it, and one section per table of the paper.

    Args:
        runs: lines of results, see :func:`lresnet_paper.results.read_runs`.
        claims: the answers to the paper's claims; None: those that ``runs`` allow.
        selected: the measurement of test-selected epochs, shown after the table of graph transformers.
    """
    results, comparisons, notes = in_order(aggregate(runs)), compare_methods(runs), notes_of(runs)
    claims = answer_claims(results, (), runs) if claims is None else claims
    untrained, without, sections = best_untrained(results), without_column_sentences(results), []
    for table, own in grouped(results, lambda one: one.table).items():
        if table == "ood":
            body = ood_markdown(runs)
        elif table == DEPTH_TABLE:
            body = depth_markdown(runs)
        elif table == FEATURES_TABLE:
            body = features_markdown(results)
        elif table == UNTRAINED_TABLE:
            body = render("untrained.md.j2", labels=SCORE_LABELS, cells=_untrained_cells(own, results, runs))
        else:
            paired = [one for one in comparisons if one.table == table]
            missing = missing_sentences(table, runs) if table in PLANNED_TABLES else []
            lines = overview(own, paired, untrained, without) if table == "gnn" else overview(own, paired)
            body = _table_section(own, lines, paired, notes, missing)
        if table == "graph_transformer" and selected:
            body = f"{body.strip()}\n\n{selected_on_test_markdown(selected)}"
        own_claims = [claim for claim in claims if claim.table == table and claim.verdict != NOT_MEASURED]
        sections.append({"table": table, "claims": own_claims, "body": body.strip()})
    counts = claim_counts(claims)
    return render(
        "results.md.j2",
        counts=counts if len(claims) > counts[NOT_MEASURED] else None,
        time=computing_time(runs),
        sections=sections,
    )


def claims_of_folder(runs: Sequence[Mapping[str, Any]], folder: Path) -> list[Claim]:
    """Return the answers to the paper's claims from ``runs`` and from the measurements of numerics and speed."""
    numerics, benchmarks = (list(read_results(folder / f"{name}.jsonl")) for name in ("numerics", "benchmarks"))
    return answer_claims(aggregate(runs), numerics, runs, benchmarks)


def notes_of(runs: Iterable[Mapping[str, Any]]) -> Notes:
    """Return the recipes' notes on what was tried, for the tables and cells of ``runs``."""
    return recipe_notes({(run["table"], run["cell"]) for run in runs})


def names_note() -> str:
    """Return what the names of splits, recipes and of our own data set mean."""
    return render("notes/names.md.j2").strip()


def _untrained_cells(
    untrained: Sequence[Result], results: Sequence[Result], runs: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the untrained scores of each cell, the chosen columns, and our trained methods next to them."""
    columns: dict[tuple[str, str], set[int]] = {}
    for run in runs:
        if run["table"] == UNTRAINED_TABLE and "column" in run["config"]:
            columns.setdefault((run["cell"], run["protocol"]), set()).add(run["config"]["column"])
    cells = []
    ordered = sorted(untrained, key=lambda one: (cell_key("gnn", one.cell), one.protocol))
    for name, own in grouped(ordered, untrained_cell_name).items():
        place = own[0].cell, own[0].protocol
        of_networks = [one for one in results if one.table in ("gnn", FEATURES_TABLE)]
        trained = {one.method: one for one in of_networks if (one.cell, one.protocol) == place}
        row: dict[str, Any] = {"cell": name, "splits": own[0].n, "columns": sorted(columns.get(place, ()))}
        row["scores"] = {one.method: our_value(one) for one in own}
        row["best"] = best_untrained(own)[place].method
        row["trained"] = {
            name: our_value(trained[name]) if name in trained else "" for name in ("lorentz", "euclidean")
        }
        cells.append(row)
    return cells


def selected_on_test_markdown(selected: Sequence[Selection]) -> str:
    """Return the measurement of test-selected epochs: a sentence, what was measured, and a table."""
    gains = [one.by_test.mean - one.by_validation.mean for one in selected]
    rows = [
        {
            "cell": one.cell,
            "method": method_label(one.method),
            "epochs": one.epochs,
            "n": one.by_test.n,
            "by_validation": f"{one.by_validation:.2f}",
            "by_test": f"{one.by_test:.2f}",
            "gain": "" if one.gain is None else f"{one.gain:+.2f}",
            "paper": _paper_text(*paper_figure("graph_transformer", one.cell, one.method, None)),
        }
        for one in selected
    ]
    commands = dict.fromkeys(one.command for one in selected)
    ends = {"lowest": f"{min(gains):.1f}", "highest": f"{max(gains):.1f}"}
    return render("selected_on_test.md.j2", rows=rows, commands=list(commands), **ends)


def _paper_text(mean: float | None, deviation: float | None) -> str:
    return "" if mean is None else f"{mean} ± {deviation}"


def untrained_cell_name(result: Result) -> str:
    """Return the cell of an untrained score, with its protocol unless that is the split of our runs."""
    return result.cell if result.protocol == protocol_of(result.cell) else f"{result.cell}, {result.protocol}"


def _table_section(
    results: Sequence[Result],
    lines: Sequence[CellLine],
    comparisons: Sequence[Comparison],
    notes: Notes,
    missing: Sequence[str],
) -> str:
    paired = {(one.cell, one.protocol, one.method): one for one in comparisons}
    cells = []
    for name, own in grouped(results, _heading).items():
        note = notes.get((own[0].table, own[0].cell, own[0].protocol), "")
        rows = [_result_row(one, paired.get((one.cell, one.protocol, one.name))) for one in own]
        cells.append({"name": name, "rows": rows, "compared": any(row["difference"] for row in rows), "note": note})
    values = {
        "table": results[0].table,
        "missing": missing,
        "summary": table_summary(results, lines),
        "overview": overview_markdown(lines),
        "cells": cells,
    }
    return render("table_section.md.j2", **values)


def _heading(result: Result) -> str:
    """Return the heading of a result; runtimes of one cell stand together, whatever their form."""
    return result.cell if result.table == "runtime" else f"{result.cell}, {result.protocol}"


def _result_row(result: Result, comparison: Comparison | None) -> dict[str, str]:
    return {
        "method": f"{result.name}, {result.protocol}" if result.table == "runtime" else result.label,
        "ours": our_value(result),
        "n": result.runs,
        "validation": validation_text(result),
        "paper": paper_value(result),
        "against_paper": against_paper(result),
        "difference": "" if comparison is None else difference_text(comparison.difference),
        "verdict": "" if comparison is None else verdict_text(comparison),
    }


# --- the overview: one line per cell ----------------------------------------------------------------------------------


class CellLine(NamedTuple):
    """The Lorentz residual in one cell under one protocol."""

    cell: str
    lorentz: Result
    released: Released | None
    best: Result | None
    """The other method with the highest mean; the Euclidean baseline counts."""
    comparison: Comparison | None
    """Lorentz minus the best other method."""
    untrained: Result | None = None
    """The untrained score that ranks the validation pairs of this cell best."""
    without_column: str = ""
    """What the methods reach without the feature column that gives the answer away, in a sentence."""

    @property
    def is_best(self) -> bool:
        """Whether the Lorentz residual has the highest mean."""
        return self.best is not None and self.lorentz.mean >= self.best.mean


def overview(
    results: Sequence[Result],
    comparisons: Sequence[Comparison],
    untrained: Mapping[tuple[str, str], Result] | None = None,
    without_column: Mapping[str, str] | None = None,
) -> list[CellLine]:
    """Return a line for each cell and protocol of one table in which the Lorentz residual has a result.

    Runtimes, where lower values are wanted, and curvatures, which all belong to one method, have none.

    Args:
        results: the results of one table.
        comparisons: the paired differences in that table.
        untrained: the best untrained score by cell and protocol, see :func:`lresnet_paper.untrained.best_untrained`.
        without_column: a sentence by cell, see :func:`lresnet_paper.pages.features_page.without_column_sentences`.
    """
    lines = []
    paired = {(one.cell, one.protocol, one.method): one for one in comparisons}
    cells = grouped(in_order(results), lambda one: f"{one.cell}, {one.protocol}")
    protocols = Counter(own[0].cell for own in cells.values())
    for name, own in cells.items():
        finite = [one for one in own if one.n and one.curvature is None and one.table != "runtime"]
        ours = next((one for one in finite if one.name == "lorentz"), None)
        if ours is None:
            continue
        best = max((one for one in finite if one is not ours), key=lambda one: one.mean, default=None)
        comparison = None if best is None else paired.get((ours.cell, ours.protocol, best.name))
        shown = name if protocols[ours.cell] > 1 else ours.cell
        same_split = on_paper_split(ours.cell, ours.protocol)
        released = released_figure(ours.table, ours.cell, ours.protocol) if same_split else None
        baseline = (untrained or {}).get((ours.cell, ours.protocol))
        sentence = (without_column or {}).get(ours.cell, "")
        lines.append(CellLine(shown, ours, released, best, comparison, baseline, sentence))
    return lines


def overview_markdown(lines: Sequence[CellLine], compact: bool = False) -> str:
    """Return the overview as a table, with footnotes on the released code; empty without lines.

    Args:
        lines: one line per cell.
        compact: write a difference without a verdict where no difference is shown.
    """
    if not lines:
        return ""
    rows = [
        {
            "cell": line.cell,
            "ours": our_value(line.lorentz),
            "paper": paper_value(line.lorentz),
            "against_paper": _shortened(against_paper(line.lorentz), compact),
            "released": "" if line.released is None else str(line.released).replace("*", "\\*"),
            "best": "" if line.best is None else f"{line.best.label} {line.best.mean:.2f}",
            "verdict": _shortened(_verdict_and_mean(line.comparison), compact),
            "untrained": _untrained_text(line),
        }
        for line in lines
    ]
    values = {"released": any(line.released for line in lines), "untrained": any(line.untrained for line in lines)}
    return render("overview.md.j2", rows=rows, compact=compact, notes=released_notes(lines), **values).strip()


def _shortened(text: str, compact: bool) -> str:
    return text.removeprefix("no difference shown, ") if compact else text


def _verdict_and_mean(comparison: Comparison | None) -> str:
    return "" if comparison is None else f"{comparison.verdict}, {comparison.difference.mean:+.2f}"


def _untrained_text(line: CellLine) -> str:
    return "" if line.untrained is None else f"{SCORE_LABELS[line.untrained.method]} {line.untrained.mean:.2f}"


def released_notes(lines: Sequence[CellLine]) -> dict[str, str]:
    """Return, by cell, why the released code's result is not comparable.

    Example:
        >>> released_notes([])
        {}
    """
    return {line.lorentz.cell: line.released.note for line in lines if line.released and line.released.note}


def table_summary(results: Sequence[Result], lines: Sequence[CellLine]) -> str:
    """Return what one table shows, in paragraphs: counts of verdicts, later work, and untrained scores.

    Example:
        >>> table_summary([], [])
        ''
    """
    compared = [line for line in lines if line.best is not None]
    values = {
        "highest": sum(line.is_best for line in compared),
        "compared": len(compared),
        "paired": _counted(line.comparison.verdict for line in lines if line.comparison),
        "lorentz": _counted(line.lorentz.verdict for line in lines),
        "all_methods": _counted(one.verdict for one in results if one.paper_mean is not None),
        "later": _later_work(results),
    }
    paragraphs = render("table_summary.md.j2", **values).split("\n\n")
    texts = [" ".join(text.split()) for text in paragraphs] + untrained_sentences(results, lines)
    return "\n\n".join(filter(None, texts))


def untrained_sentences(results: Sequence[Result], lines: Sequence[CellLine]) -> list[str]:
    """Return what the untrained scores mean for the cells in which one is higher than a trained method.

    Example:
        >>> untrained_sentences([], [])
        []
    """
    found = []
    for line in lines:
        if line.untrained is None:
            continue
        place = line.lorentz.cell, line.lorentz.protocol
        methods = [one for one in results if (one.cell, one.protocol) == place and one.n]
        lower = [one for one in methods if one.mean < line.untrained.mean]
        if lower:
            values = {"untrained": line.untrained, "lorentz": line.lorentz, "lower": lower, "methods": len(methods)}
            own = " ".join(render("untrained_sentence.md.j2", **values).split())
            found.append(f"{own} {line.without_column}".strip())
    return found


def _counted(verdicts: Iterable[str]) -> dict[str, int]:
    found = Counter(verdicts)
    counts = {"better": found["better"], "worse": found["worse"], "undecided": found["no difference shown"]}
    return counts | {"total": sum(counts.values())}


def _later_work(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return what ILNN reports, our best result and our best with the Lorentz residual, for each cell with both.

    Its splits are not known. Ours are those of the paper, so that no row mixes splits.
    """
    own = (one for one in results if one.table in _LATER_TABLES and one.n and on_paper_split(one.cell, one.protocol))
    cells = grouped(own, lambda one: one.cell)
    found = []
    for cell, reported in paper_tables()["later_work"]["ilnn"].items():
        if cell in cells:
            best = max(cells[cell], key=lambda one: one.mean)
            lorentz = [one.mean for one in cells[cell] if one.method == "lorentz"]
            found.append({"cell": cell, "reported": reported, "best": best, "lorentz": max(lorentz, default=None)})
    return found


# --- computing time ---------------------------------------------------------------------------------------------------


class ComputingTime(NamedTuple):
    """The time of all runs on one kind of device."""

    seconds: float
    runs: int
    hardware: tuple[str, ...]


def computing_time(runs: Iterable[Mapping[str, Any]]) -> str:
    """Return what all runs took on GPUs and CPUs, searches included, in two sentences; empty without runs.

    Example:
        >>> computing_time([{"seconds": 7200, "hardware": "NVIDIA H200"}]).partition(";")[0]
        'GPU: 2.0 hours (1 run on NVIDIA H200)'
    """
    lines = list(runs)
    if not lines:
        return ""
    on_cpu = [str(run.get("hardware", "CPU")).startswith("CPU") for run in lines]
    places = {
        name: _time([run for run, cpu in zip(lines, on_cpu, strict=True) if cpu == wanted])
        for name, wanted in (("GPU", False), ("CPU", True))
    }
    untimed = sum(run.get("seconds") is None for run in lines)
    return " ".join(render("computing_time.md.j2", places=places, untimed=untimed).split())


def _time(runs: Sequence[Mapping[str, Any]]) -> ComputingTime:
    names = dict.fromkeys(str(run.get("hardware", "hardware not recorded")) for run in runs)
    shares = sum(1 / run.get("served", 1) for run in runs)  # a training with lines in three cells has a third in each
    return ComputingTime(sum(run.get("seconds") or 0.0 for run in runs), round(shares), tuple(names))
