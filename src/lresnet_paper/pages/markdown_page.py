"""The whole report as a page of Markdown: for each of the paper's tables a sentence, a line a cell, and the cells."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from lresnet_paper.pages.later_work import later_work
from lresnet_paper.pages.overview import overview, overview_markdown, summary_sentence
from lresnet_paper.pages.paired import PairedDifference, paired_sentence
from lresnet_paper.pages.terminal import against_paper, ours_and_paper
from lresnet_paper.results import Figure, grouped, in_order

__all__ = ["READING", "Notes", "markdown_page"]

_PAGE = """\
# Results

Rendered from `results/*.jsonl` by `lresnet report --markdown`; every run is one line there, with its command, seed,
versions and hardware. Percent, mean and deviation over the runs; runtimes are seconds. Hyperparameters: at most 24
configurations per method and cell (eight for images, four with recipes paper, long and long-cutmix), taken from the
space in `src/lresnet_paper/recipes/` before a test figure of that recipe was read (two of long's four: after), chosen
by validation on seeds that are not reported. The test set is read once per run.
*Against the paper* compares our mean with the printed one: within one of our standard errors, better, or worse, and by
how much. *Lorentz is* compares it with another method over the same seeds or splits, by the 95 % interval of the mean
difference. *euclidean* is the same network in flat space, same budget. Runs on graphs are float32; on images,
convolutions are bfloat16 and the geometry float32. Which torch and which device a run had, its line says."""

READING = """\
*legacy* is the published split; *disjoint* one of ours in which no test node is a training node, with the paper's
figure for the published one beside it; *official_splits* are the ten published ones, a run each. A word behind a dash
names a second recipe on the same split, for every method alike, whose space was written when the figures of the first
had been seen: *legacy-plain* has plain linear layers, *legacy-hyperplane* those of HNN++,
*official_splits-released* what the released transformer has, and *legacy-deep* searches at each depth. Of images,
*fast* has a fixed scale of the Lorentz residual and two of the four configurations of *long* were added, both by
validation, when the figures of *fast-learned* and some of *long* had been seen; *long-cutmix* was written when those
of all others had been (docs/images.md). *disease_tree* is a tree made here: it stands in for disease/nc, whose
features (HGCN has them) were not at hand where these results were made."""
"""What the names of protocols and of one data set mean."""

_RUNTIME = """\
Seconds for 100 additions of float32, the median of rounds in which all took turns, by a clock that waits. The paper's
column is of an RTX 3070; at 2048/10000, and for lorentz at both sizes, it would be more bytes a second than that card's
memory moves ([benchmarks](benchmarks.md)). *Not synchronised*: what a clock says here that does not wait."""

Notes = Mapping[tuple[str, str, str], str]
"""What was tried, by table, cell and protocol."""

_COLUMNS = ("method", "ours", "n", "valid.", "paper", "against the paper")


def markdown_page(
    figures: Sequence[Figure],
    differences: Sequence[PairedDifference] = (),
    notes: Notes | None = None,
    bodies: Mapping[str, str] | None = None,
    time: str = "",
    openings: Mapping[str, str] | None = None,
) -> str:
    """All tables of the paper that have figures.

    Args:
        notes: by table, cell and protocol, what was tried.
        bodies: by table, what to print in place of its overview and its cells; the differences follow, a line a cell.
        openings: by table, what to say first, e.g. that it is not complete.
        time: what all runs took; see :func:`lresnet_paper.pages.computing_time.computing_time`.
    """
    parts = [_PAGE, READING, f"**Time of all runs.** {time}" if time else ""]
    for table, own in grouped(in_order(figures), lambda figure: figure.table).items():
        paired = [d for d in differences if d.table == table]
        body = (bodies or {}).get(table)
        opening = (openings or {}).get(table, "")
        parts += [f"## {table}", opening, *([body, *_lines(paired)] if body else _table(own, paired, notes or {}))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _lines(differences: Sequence[PairedDifference]) -> list[str]:
    """The differences alone, a line a cell."""
    cells: dict[str, list[PairedDifference]] = {}
    for d in differences:
        cells.setdefault(f"{d.cell}, {d.protocol}", []).append(d)
    return [f"*{cell}*: {paired_sentence(own)}" for cell, own in sorted(cells.items())]


def _table(figures: Sequence[Figure], differences: Sequence[PairedDifference], notes: Notes) -> list[str]:
    lines = overview(figures, differences)
    sentences = summary_sentence(lines), _all_verdicts(figures), later_work(figures)
    parts = [" ".join(filter(None, sentences)), overview_markdown(lines)]
    if figures[0].table == "runtime":
        parts.append(_RUNTIME)
    for name, own in grouped(figures, _heading).items():
        cell, protocol = own[0].cell, own[0].protocol
        paired = [d for d in differences if (d.cell, d.protocol) == (cell, protocol)]
        parts += [f"### {name}", _figures(own), paired_sentence(paired)]
        parts.append(notes.get((own[0].table, cell, protocol), ""))
    return parts


def _heading(figure: Figure) -> str:
    """Runtimes of one cell stand together, whatever form they are of."""
    return figure.cell if figure.table == "runtime" else f"{figure.cell}, {figure.protocol}"


def _all_verdicts(figures: Sequence[Figure]) -> str:
    counts = Counter(figure.verdict for figure in figures if figure.paper_mean is not None and figure.verdict)
    shown = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    whole = f"Of all {counts.total()} figures that have one of the paper's beside them: {shown}"
    return f"{whole.removesuffix('.')}." if shown else ""  # "one s.e." ends with a dot of its own


def _figures(figures: Sequence[Figure]) -> str:
    rows = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    for figure in figures:
        ours, paper = ours_and_paper(figure)
        validation = "" if math.isnan(figure.validation) else f"{figure.validation:.2f}"
        name = f"{figure.name}, {figure.protocol}" if figure.table == "runtime" else figure.name
        cells = (name, ours, figure.runs, validation, paper, against_paper(figure))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)
