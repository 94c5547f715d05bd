"""Figures, paired differences and claims as tables of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from lresnet.plots.html.page import VERDICT_SIGNS, Heading, Row, Table, html_table, html_verdict, inline_svg
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
    "better": VERDICT_SIGNS["better"],
    "within one s.e.": ("●", "within"),
    "worse": VERDICT_SIGNS["worse"],
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


_verdict = partial(html_verdict, signs=VERDICT_LOOKS)


def table_section(
    table: str,
    figures: Sequence[Figure],
    differences: Sequence[PairedDifference],
    notes: Notes,
    runs: Sequence[Mapping[str, Any]] = (),
) -> Markup:
    """One of the paper's tables: a line a cell, the picture, the figures beside the paper's, what Lorentz differs by.

    Args:
        runs: of ood and oversmoothing, which have pictures and tables of their own, and of tables that are not whole.
    """
    if table == DEPTH_TABLE:
        parts = _depth_parts(runs)
    elif table == "ood":
        parts = [_detection_answers(runs), _comparison(table, figures), _detection_tables(runs, differences)]
    else:
        lines = overview(figures, differences)
        missing = missing_sentences(table, runs) if table in PLANNED_TABLES else []
        words = " ".join(filter(None, (*missing, summary_sentence(lines), later_work(figures))))
        summary = _paragraph(words) if words else Markup()
        parts = [summary, _overview_table(lines), _comparison(table, figures), _figures_table(figures, differences)]
    own = dict.fromkeys((f.table, f.cell, f.protocol) for f in figures)
    parts += [Markup("<p><b>{}, {}</b>: {}</p>").format(key[1], key[2], notes[key]) for key in own if key in notes]
    return Markup("\n").join(filter(None, parts))


def _paragraph(text: str) -> Markup:
    return Markup("<p>{}</p>").format(text)


def _comparison(table: str, figures: Sequence[Figure]) -> Markup:
    picture = inline_svg(comparison_picture(figures), f"{table}: means of all methods with error bars")
    return Markup("<figure>{}</figure>").format(picture)


def _depth_parts(runs: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """The picture, then its numbers; what explains them is folded away."""
    words = "AUC by the number of layers, runs that were not finite, and norms, distances and gradients by layer"
    causes = Markup("").join(map(_sheet_table, depth_causes(runs)))
    pictures = [inline_svg(depth_picture(runs, None, one), words) for one in depth_protocols(runs)]
    return [
        *(Markup("<figure>{}</figure>").format(picture) for picture in pictures),
        _paragraph(DEPTH_READING.replace("*", "")),
        *map(_sheet_table, depth_sheets(runs)),
        Markup("<details><summary>Distances and gradients, before and after training</summary>{}</details>").format(
            causes
        ),
    ]


def _detection_answers(runs: Sequence[Mapping[str, Any]]) -> Markup:
    """What was found, above all else."""
    answers = [Markup("<p><b>{}</b> {}</p>").format(said.headline, said.detail) for said in ood_answers(runs)]
    picture = "The picture shows the AUROC. The paper's marks are of its own images, not of stand-ins."
    return Markup("\n").join([*answers, _paragraph(picture)])


def _detection_tables(runs: Sequence[Mapping[str, Any]], differences: Sequence[PairedDifference]) -> Markup:
    words = filter(None, (READING.replace("*", ""), other_definitions(runs).replace("`", "")))
    reading = Markup("\n").join(map(_paragraph, words))
    return Markup("\n").join([reading, *map(_sheet_table, ood_sheets(runs)), _paired_table(differences)])


def _sheet_table(sheet: Sheet) -> Markup:
    """With a column for the sources where there are several."""
    sources = {row.source for row in sheet.rows} != {"ours"}
    rows = []
    for row in sheet.rows:
        ours = row.source == "ours" and row.name.startswith("lorentz")
        rows.append(Row(row.name, row.cells, (row.source,) if sources else (), ours))
    table = Table(("method", *sheet.columns, *["source"] * sources), rows, sheet.note)
    return Markup("<h3>{}</h3>{}").format(sheet.title, html_table(table))


def _overview_table(lines: Sequence[CellLine]) -> Markup:
    """A row a cell, as seen from the Lorentz residual; none where there is nothing beside it."""
    known, rows = beside_paper([line.lorentz for line in lines]), []
    if not known and all(line.best is None for line in lines):
        return Markup()
    for line in lines:
        ours, paper = ours_and_paper(line.lorentz)
        released = "" if line.released is None else str(line.released)
        best = "" if line.best is None else f"{line.best.name} {line.best.mean:.2f}"
        d = line.difference
        against_best = Markup() if d is None else _verdict(d.verdict, f"{d.mean:+.2f}")
        numbers = (ours, *[paper, released] * known, best)
        rows.append(Row(line.cell, numbers, (*[_against(line.lorentz)] * known, against_best)))
    notes = released_notes(lines)
    caption = "The Lorentz residual, cell by cell."
    if known:
        caption += f" Released code: our runs of it, their number in brackets{f'; * {notes}' if notes else ''}."
    columns = ("cell", "lorentz", *["paper", "released code"] * known, "best other")
    columns += (*["against the paper"] * known, "against the best other")
    return html_table(Table(columns, rows, caption, "overview")) if rows else Markup()


def _figures_table(figures: Sequence[Figure], differences: Sequence[PairedDifference]) -> Markup:
    paired = {(d.cell, d.protocol, d.method): d for d in differences}
    paper = beside_paper(figures)
    columns = ("method", "ours", "n", "valid.", *["paper", "against the paper"] * paper, "lorentz is")
    rows: list[Row | Heading] = []
    for heading, own in panels(in_order(figures)).items():
        rows.append(Heading(heading))
        rows += [_figure_row(f, paired.get((f.cell, f.protocol, f.name)), columns) for f in own]
    unit = unit_of(figures[0].table)
    caption = (
        f"{unit[0].upper()}{unit[1:]}, mean ± deviation over n runs. {_AGAINST_PAPER * paper}Lorentz is: against this "
        "method, paired over seeds, points with half the 95 % interval of the mean (Student's t)."
    )
    return html_table(Table(columns, rows, caption))


def _figure_row(figure: Figure, difference: PairedDifference | None, columns: Sequence[str]) -> Row:
    ours, paper = ours_and_paper(figure)
    validation = "" if math.isnan(figure.validation) else f"{figure.validation:.2f}"
    d = difference
    lorentz_is = Markup() if d is None else _verdict(d.verdict, f"{d.mean:+.2f} ± {d.half_width:.2f}")
    numbers, words = [ours, figure.runs, validation], [lorentz_is]
    if "paper" in columns:
        numbers, words = [*numbers, paper], [_against(figure), *words]
    return Row(figure.name, numbers, words, figure.method == "lorentz")


def _against(figure: Figure) -> Markup:
    known = figure.paper_mean is not None and figure.n
    return _verdict(figure.verdict, f"{figure.mean - (figure.paper_mean or 0.0):+.2f}" if known else "")


def _paired_table(differences: Sequence[PairedDifference]) -> Markup:
    """Lorentz minus each other method, a group for each cell and protocol."""
    rows: list[Row | Heading] = []
    heading = ""
    for d in sorted(differences, key=lambda d: (d.cell, d.protocol, d.method)):
        if heading != (heading := f"{d.cell}, {d.protocol}"):
            rows.append(Heading(heading))
        rows.append(Row(d.method, (f"{d.mean:+.2f} ± {d.half_width:.2f}", str(d.n)), (_verdict(d.verdict),)))
    caption = (
        "Lorentz minus the other, paired over seeds: points, with half the 95 % interval of the mean (Student's t)."
    )
    return html_table(Table(("against", "difference", "n", "lorentz is"), rows, caption)) if rows else Markup()


def claims_table(claims: Sequence[Claim]) -> Markup:
    """The paper's sentences, a group for each topic, with our answers."""
    rows: list[Row | Heading] = []
    topic = ""
    for claim in claims:
        if topic != (topic := claim.topic):
            rows.append(Heading(topic.replace("_", " ")))
        rows.append(Row(claim.sentence, (), (_verdict(claim.verdict), claim.evidence)))
    return html_table(Table(("the paper says", "we find", "by what"), rows, "", "claims"))
