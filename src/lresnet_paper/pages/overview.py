"""A line a cell: the Lorentz residual beside the paper, beside the released code, and beside the best of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lresnet_paper.pages.paired import PairedDifference
from lresnet_paper.pages.terminal import against_paper, ours_and_paper
from lresnet_paper.results import Figure, grouped, in_order
from lresnet_paper.tables import Released, released_figure

__all__ = [
    "CellLine",
    "overview",
    "overview_markdown",
    "released_notes",
    "rewrite_between_marks",
    "summary_sentence",
]

_BEGIN, _END = "<!-- lresnet report --overview: begin -->", "<!-- lresnet report --overview: end -->"


class CellLine(NamedTuple):
    """One cell under one protocol, as seen from the Lorentz residual."""

    cell: str
    lorentz: Figure
    released: Released | None
    best: Figure | None
    """The other method with the highest mean, the Euclidean twin among them."""
    difference: PairedDifference | None
    """Lorentz minus the best of the others."""

    @property
    def is_best(self) -> bool:
        """Its mean is the highest."""
        return self.best is not None and self.lorentz.mean >= self.best.mean


def overview(figures: Sequence[Figure], differences: Sequence[PairedDifference]) -> list[CellLine]:
    """A line for each cell and protocol of one table in which the Lorentz residual has a figure.

    Runtimes, of which less is better, and curvatures, which are all of one method, have none.
    """
    lines = []
    paired = {(d.cell, d.protocol, d.method): d for d in differences}
    cells = grouped(in_order(figures), lambda f: f"{f.cell}, {f.protocol}")
    several = Counter(own[0].cell for own in cells.values())
    for name, own in cells.items():
        finite = [figure for figure in own if figure.n and figure.curvature is None and figure.table != "runtime"]
        ours = next((figure for figure in finite if figure.name == "lorentz"), None)
        if ours is None:
            continue
        best = max((f for f in finite if f is not ours), key=lambda f: f.mean, default=None)
        difference = None if best is None else paired.get((ours.cell, ours.protocol, best.name))
        shown = name if several[ours.cell] > 1 else ours.cell
        lines.append(CellLine(shown, ours, released_figure(ours.table, ours.cell, ours.protocol), best, difference))
    return lines


def summary_sentence(lines: Sequence[CellLine]) -> str:
    """What the lines say, counted; nothing where there is neither another method nor the paper to compare with.

    Example:
        >>> summary_sentence([])
        ''
    """
    if not lines:
        return ""
    verdicts = Counter(line.lorentz.verdict for line in lines if line.lorentz.verdict)
    shown = Counter(line.difference.verdict for line in lines if line.difference)
    against = ", ".join(f"{verdicts[word]} {word}" for word in ("better", "within one s.e.", "worse") if verdicts[word])
    paired = ", ".join(f"{shown[word]} {word}" for word in ("better", "no difference shown", "worse") if shown[word])
    beside = [line for line in lines if line.best is not None]
    best = f"The Lorentz residual has the highest mean in {sum(line.is_best for line in beside)} of {len(beside)} lines"
    parts = [best] if beside else []
    whose = "its figures are" if beside else "The Lorentz residual's figures are"
    parts += [f"{whose}, against the paper's: {against}"] if against else []
    parts += [f"against the best of the other methods, paired over seeds: {paired}"] if paired else []
    return "; ".join(parts).removesuffix(".") + "." if parts else ""  # "one s.e." ends with a dot of its own


def overview_markdown(lines: Sequence[CellLine]) -> str:
    """The lines as a table, with a footnote for what the released code was not run to the end of."""
    if not lines:
        return ""
    released = any(line.released for line in lines)
    columns = ["cell", "lorentz", "paper", "against it", *["released code"] * released, "best other", "lorentz is"]
    rows = [
        f"| {' | '.join(columns)} |",
        "|" + "---|" * len(columns),
        *(_row(line, released=released) for line in lines),
    ]
    notes = released_notes(lines)
    footnote = f"\n\n\\* {notes}." if notes else ""
    brackets = (
        "\n\nReleased code: our runs of it, their number in brackets (`src/lresnet_paper/released.toml`)."
        if released
        else ""
    )
    return "\n".join(rows) + brackets + footnote


def released_notes(lines: Sequence[CellLine]) -> str:
    """What keeps figures of the released code from being compared, once a cell whatever its protocols.

    Example:
        >>> released_notes([])
        ''
    """
    notes = [f"{line.lorentz.cell}: {line.released.note}" for line in lines if line.released and line.released.note]
    return "; ".join(dict.fromkeys(notes))


def _row(line: CellLine, *, released: bool) -> str:
    ours, paper = ours_and_paper(line.lorentz)
    given = ["" if line.released is None else str(line.released).replace("*", "\\*")] if released else []
    best = "" if line.best is None else f"{line.best.name} {line.best.mean:.2f}"
    verdict = "" if line.difference is None else f"{line.difference.verdict}, {line.difference.mean:+.2f}"
    return f"| {' | '.join([line.cell, ours, paper, against_paper(line.lorentz), *given, best, verdict])} |"


def rewrite_between_marks(file: Path, text: str) -> str:
    """The content of ``file`` with ``text`` between its two marks, in place of what stands there.

    Raises:
        ValueError: the file has not the two marks, in order and once each.
    """
    content = file.read_text(encoding="utf-8")
    before, begin, rest = content.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end or content.count(_BEGIN) + content.count(_END) != 2:
        raise ValueError(f"{file} has no place for the table; write a line {_BEGIN} and, below it, a line {_END}")
    return f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}"
