"""Figures, paired differences and claims as tables of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from lresnet.report.aggregate import Figure
from lresnet.report.claims import HOLDS, IN_PART, NOT_MEASURED, REFUTED, Claim
from lresnet.report.comparison_picture import comparison_picture, panels, unit_of
from lresnet.report.html.inline_svg import inline_svg
from lresnet.report.ood_table import READING, Sheet, ood_sentences, ood_sheets
from lresnet.report.paired import PairedDifference
from lresnet.report.tables import ours_and_paper

__all__ = ["VERDICT_LOOKS", "claims_table", "paired_table", "table_section"]

VERDICT_LOOKS = {
    "better": ("▲", "better"),
    "within one s.e.": ("●", "within"),
    "worse": ("▼", "worse"),
    "no difference shown": ("●", "within"),
    HOLDS: ("✓", "better"),
    IN_PART: ("◐", "within"),
    REFUTED: ("✗", "worse"),
    NOT_MEASURED: ("", "soft"),
}
"""What a verdict looks like: a sign for readers without colour, and a class for the others."""


def table_section(
    table: str,
    figures: Sequence[Figure],
    differences: Sequence[PairedDifference],
    notes: Mapping[str, str],
    runs: Sequence[Mapping[str, Any]] = (),
) -> str:
    """One of the paper's tables: the picture, the figures beside the paper's, and what Lorentz differs by.

    Args:
        runs: of the table ood, whose figures are several to a cell.
    """
    name = escape(table)
    picture = inline_svg(comparison_picture(figures), f"{name}: means of all methods with error bars")
    parts = [
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{name}</h2>',
        _detection_answers(runs) if table == "ood" else "",
        f"<figure>{picture}</figure>",
        _detection_tables(runs) if table == "ood" else _figures_table(figures),
        *(f"<p><b>{escape(f.cell)}</b>: {escape(notes[f.cell])}</p>" for f in _first_of_cells(figures, notes)),
    ]
    if differences:
        parts += ["<h3>Is the Lorentz residual better than the others?</h3>", paired_table(differences)]
    return "\n".join([*filter(None, parts), "</section>"])


def _detection_answers(runs: Sequence[Mapping[str, Any]]) -> str:
    """What was found, above all else."""
    answers = [f"<p><b>{escape(sentence)}</b></p>" for sentence in ood_sentences(runs)]
    return "\n".join([*answers, "<p>The picture shows the AUROC.</p>"])


def _detection_tables(runs: Sequence[Mapping[str, Any]]) -> str:
    reading = f"<p>{escape(READING.replace('*', ''))}</p>"
    return "\n".join([reading, *map(_sheet_table, ood_sheets(runs))])


def _sheet_table(sheet: Sheet) -> str:
    ours = [row.source == "ours" and row.name.startswith("lorentz") for row in sheet.rows]
    rows = [_row(row.name, row.cells, row.source, ours=mark) for row, mark in zip(sheet.rows, ours, strict=True)]
    columns = ("method", *map(escape, sheet.columns), "source")
    return f"<h3>{escape(sheet.title)}</h3>{_table(sheet.note, columns, rows, last_words=True)}"


def _first_of_cells(figures: Sequence[Figure], notes: Mapping[str, str]) -> list[Figure]:
    cells = {figure.cell: figure for figure in reversed(figures) if figure.cell in notes}
    return [cells[cell] for cell in sorted(cells)]


def _figures_table(figures: Sequence[Figure]) -> str:
    rows = []
    for heading, own in panels(figures).items():
        rows.append(f'<tr><th class="group" colspan="7" scope="colgroup">{escape(heading)}</th></tr>')
        rows += [_figure_row(figure) for figure in own]
    unit = unit_of(figures[0].table)
    caption = (
        f"{unit[0].upper()}{unit[1:]}, mean ± deviation over n runs. "
        "Against the paper: our mean minus the printed one; "
        "within one s.e. where that is no more than one of our standard errors."
    )
    return _table(
        caption, ("method", "ours", "n", "s.e.", "valid.", "paper", "against the paper"), rows, last_words=True
    )


def _figure_row(figure: Figure) -> str:
    ours, paper = ours_and_paper(figure)
    gap = "" if figure.paper_mean is None else f"{figure.mean - figure.paper_mean:+.2f}"
    cells = (
        ours,
        # "9 of 10": the tenth run diverged and has no figure.
        f"{figure.n} of {figure.n + figure.diverged}" if figure.diverged else str(figure.n),
        f"{figure.standard_error:.2f}" if figure.n > 1 else "",
        "" if math.isnan(figure.validation) else f"{figure.validation:.2f}",
        paper,
    )
    return _row(figure.name, cells, _verdict(figure.verdict, gap), ours=figure.method == "lorentz")


def paired_table(differences: Sequence[PairedDifference]) -> str:
    """Lorentz minus each other method, a group for each cell and protocol."""
    rows, heading = [], ""
    for d in sorted(differences, key=lambda d: (d.cell, d.protocol)):
        if heading != (heading := f"{d.cell}, {d.protocol}"):
            rows.append(f'<tr><th class="group" colspan="5" scope="colgroup">{escape(heading)}</th></tr>')
        interval = f"{d.interval[0]:+.2f} to {d.interval[1]:+.2f}"
        rows.append(_row(d.method, (f"{d.mean:+.2f}", interval, str(d.n)), _verdict(d.verdict)))
    caption = "Lorentz minus the other, paired over seeds: points, and the 95 % interval of the mean (Student's t)."
    return _table(caption, ("against", "difference", "interval", "n", "lorentz is"), rows, last_words=True)


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
    return _table("", ("the paper says", "we find", "by what"), rows)


def _verdict(words: str, gap: str = "") -> str:
    sign, look = VERDICT_LOOKS.get(words, ("", "soft"))
    return (
        f'<span class="{look}">{f"{sign} {escape(words)}".strip()}</span> {gap.replace("-", "−")}'.strip()
        if words
        else ""
    )


def _row(name: str, numbers: Sequence[str], verdict: str, *, ours: bool = False) -> str:
    shown = "".join(f'<td class="number">{number.replace("-", "−")}</td>' for number in numbers)
    start = '<tr class="ours">' if ours else "<tr>"
    return f'{start}<th scope="row">{escape(name)}</th>{shown}<td>{verdict}</td></tr>'


def _table(caption: str, columns: Sequence[str], rows: Sequence[str], *, last_words: bool = False) -> str:
    """Columns between the first and, with ``last_words``, the last hold numbers."""
    numbers = range(1, len(columns) - 1) if last_words else range(0)
    heads = [
        f'<th scope="col"{" class=number" if k in numbers else ""}>{column}</th>' for k, column in enumerate(columns)
    ]
    words = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = f"<thead><tr>{''.join(heads)}</tr></thead>"
    return f'<div class="scroll"><table>{words}{head}<tbody>{"".join(rows)}</tbody></table></div>'
