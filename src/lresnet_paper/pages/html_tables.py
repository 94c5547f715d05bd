"""Figures, paired differences and claims as tables of the page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lresnet.plots.html.inline_svg import inline_svg
from lresnet_paper.pages.claim import HOLDS, IN_PART, NO_DIFFERENCE, NOT_MEASURED, REFUTED, Claim
from lresnet_paper.pages.comparison_picture import comparison_picture, panels, unit_of
from lresnet_paper.pages.depth_picture import depth_picture
from lresnet_paper.pages.depth_runs import DEPTH_TABLE, depth_protocols
from lresnet_paper.pages.depth_table import DEPTH_READING, depth_causes, depth_sheets
from lresnet_paper.pages.later_work import later_work
from lresnet_paper.pages.markdown_page import Notes
from lresnet_paper.pages.ood_answers import ood_answers, other_definitions
from lresnet_paper.pages.ood_table import READING, ood_sheets
from lresnet_paper.pages.overview import CellLine, overview, released_notes, summary_sentence
from lresnet_paper.pages.paired import PairedDifference
from lresnet_paper.pages.planned import PLANNED_TABLES, missing_sentences
from lresnet_paper.pages.sheets import Sheet
from lresnet_paper.pages.terminal import beside_paper, ours_and_paper
from lresnet_paper.results import DIVERGED, Figure, in_order

__all__ = ["VERDICT_LOOKS", "claims_table", "table_section"]

VERDICT_LOOKS = {
    "better": ("▲", "better"),
    "within one s.e.": ("●", "within"),
    "worse": ("▼", "worse"),
    DIVERGED: ("✗", "worse"),
    HOLDS: ("✓", "better"),
    IN_PART: ("◐", "within"),
    NO_DIFFERENCE: ("●", "within"),
    REFUTED: ("✗", "worse"),
    NOT_MEASURED: ("", "soft"),
}
"""What a verdict looks like: a sign for readers without colour, and a class for the others."""

_AGAINST_PAPER = (
    "Against the paper: our mean minus the printed one; within one s.e. where that is no more than one of our standard "
    "errors. "
)


def table_section(
    table: str,
    figures: Sequence[Figure],
    differences: Sequence[PairedDifference],
    notes: Notes,
    runs: Sequence[Mapping[str, Any]] = (),
) -> str:
    """One of the paper's tables: a line a cell, the picture, the figures beside the paper's, what Lorentz differs by.

    Args:
        runs: of ood and oversmoothing, which have pictures and tables of their own, and of tables that are not whole.
    """
    name = escape(table)
    if table == DEPTH_TABLE:
        parts = _depth_parts(runs)
    elif table == "ood":
        parts = [_detection_answers(runs), _comparison(table, figures), _detection_tables(runs, differences)]
    else:
        lines = overview(figures, differences)
        missing = missing_sentences(table, runs) if table in PLANNED_TABLES else []
        words = " ".join(filter(None, (*missing, summary_sentence(lines), later_work(figures))))
        summary = f"<p>{escape(words)}</p>" if words else ""
        parts = [summary, _overview_table(lines), _comparison(table, figures), _figures_table(figures, differences)]
    own = dict.fromkeys((f.table, f.cell, f.protocol) for f in figures)
    parts += [f"<p><b>{escape(f'{key[1]}, {key[2]}')}</b>: {escape(notes[key])}</p>" for key in own if key in notes]
    head = f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{name.replace("_", " ")}</h2>'
    return "\n".join([head, *filter(None, parts), "</section>"])


def _comparison(table: str, figures: Sequence[Figure]) -> str:
    picture = inline_svg(comparison_picture(figures), f"{escape(table)}: means of all methods with error bars")
    return f"<figure>{picture}</figure>"


def _depth_parts(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The picture, then its numbers; what explains them is folded away."""
    words = "AUC by the number of layers, runs that were not finite, and norms, distances and gradients by layer"
    causes = "".join(map(_sheet_table, depth_causes(runs)))
    return [
        *(f"<figure>{inline_svg(depth_picture(runs, None, one), words)}</figure>" for one in depth_protocols(runs)),
        f"<p>{escape(DEPTH_READING.replace('*', ''))}</p>",
        *map(_sheet_table, depth_sheets(runs)),
        f"<details><summary>Distances and gradients, before and after training</summary>{causes}</details>",
    ]


def _detection_answers(runs: Sequence[Mapping[str, Any]]) -> str:
    """What was found, above all else."""
    answers = [f"<p><b>{escape(said.headline)}</b> {escape(said.detail)}</p>" for said in ood_answers(runs)]
    picture = "The picture shows the AUROC. The paper's marks are of its own images, not of stand-ins."
    return "\n".join([*answers, f"<p>{picture}</p>"])


def _detection_tables(runs: Sequence[Mapping[str, Any]], differences: Sequence[PairedDifference]) -> str:
    words = filter(None, (READING.replace("*", ""), other_definitions(runs).replace("`", "")))
    reading = "\n".join(f"<p>{escape(text)}</p>" for text in words)
    return "\n".join([reading, *map(_sheet_table, ood_sheets(runs)), _paired_table(differences)])


def _sheet_table(sheet: Sheet) -> str:
    """With a column for the sources where there are several."""
    sources = {row.source for row in sheet.rows} != {"ours"}
    rows = []
    for row in sheet.rows:
        ours = row.source == "ours" and row.name.startswith("lorentz")
        cells = map(escape, row.cells)
        rows.append(_row(row.name, tuple(cells), row.source if sources else None, ours=ours))
    columns = ("method", *map(escape, sheet.columns), *["source"] * sources)
    return f"<h3>{escape(sheet.title)}</h3>{_table(sheet.note, columns, rows, words=int(sources))}"


def _overview_table(lines: Sequence[CellLine]) -> str:
    """A row a cell, as seen from the Lorentz residual; none where there is nothing beside it."""
    known, rows = beside_paper([line.lorentz for line in lines]), []
    if not known and all(line.best is None for line in lines):
        return ""
    for line in lines:
        ours, paper = ours_and_paper(line.lorentz)
        released = "" if line.released is None else escape(str(line.released))
        best = "" if line.best is None else escape(f"{line.best.name} {line.best.mean:.2f}")
        d = line.difference
        against_best = "" if d is None else _verdict(d.verdict, f"{d.mean:+.2f}")
        numbers = (ours, *[paper, released] * known, best)
        rows.append(_row(line.cell, numbers, _against(line.lorentz) if known else None, against_best))
    notes = released_notes(lines)
    caption = "The Lorentz residual, cell by cell."
    if known:
        caption += f" Released code: our runs of it, their number in brackets{f'; * {notes}' if notes else ''}."
    columns = ("cell", "lorentz", *["paper", "released code"] * known, "best other")
    columns += (*["against the paper"] * known, "against the best other")
    return _table(caption, columns, rows, words=1 + known, look="lines") if rows else ""


def _figures_table(figures: Sequence[Figure], differences: Sequence[PairedDifference]) -> str:
    paired = {(d.cell, d.protocol, d.method): d for d in differences}
    paper = beside_paper(figures)
    columns = ("method", "ours", "n", "valid.", *["paper", "against the paper"] * paper, "lorentz is")
    rows = []
    for heading, own in panels(in_order(figures)).items():
        rows.append(f'<tr><th class="group" colspan="{len(columns)}" scope="colgroup">{escape(heading)}</th></tr>')
        rows += [_figure_row(f, paired.get((f.cell, f.protocol, f.name)), columns) for f in own]
    unit = unit_of(figures[0].table)
    caption = (
        f"{unit[0].upper()}{unit[1:]}, mean ± deviation over n runs. {_AGAINST_PAPER * paper}Lorentz is: against this "
        "method, paired over seeds, points with half the 95 % interval of the mean (Student's t)."
    )
    return _table(caption, columns, rows, words=1 + paper)


def _figure_row(figure: Figure, difference: PairedDifference | None, columns: Sequence[str]) -> str:
    ours, paper = ours_and_paper(figure)
    validation = "" if math.isnan(figure.validation) else f"{figure.validation:.2f}"
    d = difference
    lorentz_is = "" if d is None else _verdict(d.verdict, f"{d.mean:+.2f} ± {d.half_width:.2f}")
    numbers, words = [ours, figure.runs, validation], [lorentz_is]
    if "paper" in columns:
        numbers, words = [*numbers, paper], [_against(figure), *words]
    return _row(figure.name, numbers, *words, ours=figure.method == "lorentz")


def _against(figure: Figure) -> str:
    known = figure.paper_mean is not None and figure.n
    return _verdict(figure.verdict, f"{figure.mean - (figure.paper_mean or 0.0):+.2f}" if known else "")


def _paired_table(differences: Sequence[PairedDifference]) -> str:
    """Lorentz minus each other method, a group for each cell and protocol."""
    rows, heading = [], ""
    for d in sorted(differences, key=lambda d: (d.cell, d.protocol, d.method)):
        if heading != (heading := f"{d.cell}, {d.protocol}"):
            rows.append(f'<tr><th class="group" colspan="4" scope="colgroup">{escape(heading)}</th></tr>')
        name = f"{d.method} ({d.settings})" if d.settings else d.method
        rows.append(_row(name, (f"{d.mean:+.2f} ± {d.half_width:.2f}", str(d.n)), _verdict(d.verdict)))
    caption = (
        "Lorentz minus the other, paired over seeds: points, with half the 95 % interval of the mean (Student's t)."
    )
    return _table(caption, ("against", "difference", "n", "lorentz is"), rows, words=1) if rows else ""


def claims_table(claims: Sequence[Claim]) -> str:
    """The paper's sentences, a group for each topic, with our answers."""
    rows, topic = [], ""
    for claim in claims:
        if topic != (topic := claim.topic):
            heading = escape(topic.replace("_", " "))
            rows.append(f'<tr><th class="group" colspan="3" scope="colgroup">{heading}</th></tr>')
        words = f'<td class="words">{escape(claim.evidence)}</td>'
        sentence = f'<th scope="row" style="white-space:normal">{escape(claim.sentence)}</th>'
        rows.append(f"<tr>{sentence}<td>{_verdict(claim.verdict)}</td>{words}</tr>")
    return _table("", ("the paper says", "we find", "by what"), rows, look="claims")


def _verdict(words: str, gap: str = "") -> str:
    sign, look = VERDICT_LOOKS.get(words, ("", "soft"))
    return f'<span class="{look}">{f"{sign} {escape(words)}".strip()}</span> {_minus(gap)}'.strip() if words else ""


def _row(name: str, numbers: Sequence[str], *words: str | None, ours: bool = False) -> str:
    """A row: its name, numbers, and words that are markup already; None: no such cell."""
    shown = "".join(f'<td class="number">{_minus(number)}</td>' for number in numbers)
    said = "".join(f"<td>{word}</td>" for word in words if word is not None)
    start = '<tr class="ours">' if ours else "<tr>"
    return f'{start}<th scope="row">{escape(name)}</th>{shown}{said}</tr>'


def _minus(number: str) -> str:
    """With the sign for it in place of hyphens, but in exponents."""
    return re.sub(r"(?<!e)-", "−", number)


def _table(
    caption: str, columns: Sequence[str], rows: Sequence[str], *, words: int | None = None, look: str = ""
) -> str:
    """Columns between the first and the last ``words`` hold numbers; None: no column does."""
    numbers = range(0) if words is None else range(1, len(columns) - words)
    heads = [
        f'<th scope="col"{" class=number" if k in numbers else ""}>{column}</th>' for k, column in enumerate(columns)
    ]
    said = f"<caption><span>{escape(caption)}</span></caption>" if caption else ""
    head = f"<thead><tr>{''.join(heads)}</tr></thead>"
    start = f'<table class="{look}">' if look else "<table>"
    return f'<div class="scroll">{start}{said}{head}<tbody>{"".join(rows)}</tbody></table></div>'
