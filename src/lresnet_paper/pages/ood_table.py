"""The table ood in words and tables: how well networks tell images of their training's kind from others.

Our rows stand beside the paper's own and beside those it quotes from others, which were not run again by anyone here.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from lresnet.residual.registry import METHODS
from lresnet_paper.pages.ood_answers import ood_answers, other_definitions
from lresnet_paper.pages.ood_figures import Cell, Gap, Runs, ood_runs, score_gaps, scores_of
from lresnet_paper.pages.sheets import Row, Sheet, sheet_markdown, sheet_terminal
from lresnet_paper.search import recipe_notes
from lresnet_paper.tables import paper_detection

__all__ = ["READING", "ood_markdown", "ood_sheets", "ood_terminal"]

_METRICS = ("fpr95", "auroc", "aupr")
_NETWORKS = ("r20", "r32")
_PAPERS = {"lorentz": "paper", "euclidean": "quoted", "hnnpp_head": "quoted", "poincare": "quoted"}
_DRAWN = 5  # test images for one from elsewhere, in the paper's draws

READING = """\
Percent, mean ± deviation over seeds, whose number stands in brackets. The score is the energy at T = 1;
in-distribution, the positive class, are all test images, and the images from elsewhere are a fifth as many, drawn ten
times, or all of a smaller set. FPR95: lower is better. **Where the note above a table says that its images are
stand-ins**, this holds for every figure, difference and sentence that rests on them, and they are not to be measured by
the paper's. Each method has eight configurations at ResNet-20 (two pairs differ in the curvature alone and are repeats
to *euclidean*), compared on one seed and 5,000 images, which tells a point apart from another at best, and takes the
one it chose to ResNet-32. *euclidean* is the same network in flat space. *space*, addition of space coordinates, is to
the last digit the Euclidean body under the hyperbolic pooling and head, and so comes nearest to the quoted
*hnnpp_head*; *parallel_transport* is a residual of the hyperboloid and not the quoted Poincaré ResNet. Quoted rows are
the paper's baselines, which it took from others; *hnnpp_head* with ResNet-20 on CIFAR-10 has the same three figures for
Places and Textures there, of which one set must be a slip. Cells of one training share its networks, so their intervals
are not independent."""
"""What the columns and rows of :func:`ood_sheets` are."""


def ood_sheets(runs: Iterable[Mapping[str, Any]]) -> list[Sheet]:
    """For each protocol and set of training images: a sheet for each set from elsewhere, accuracies, other scores."""
    found, sheets = ood_runs(runs), []
    for protocol, images in dict.fromkeys((cell.protocol, cell.images) for cell in found):
        own = {cell: methods for cell, methods in found.items() if (cell.protocol, cell.images) == (protocol, images)}
        sheets += [_detection_sheet(protocol, images, ood, own) for ood in dict.fromkeys(cell.ood for cell in own)]
        sheets += [_accuracy_sheet(protocol, images, own), _score_sheet(protocol, images, own)]
    return [sheet for sheet in sheets if sheet.rows]


def _detection_sheet(protocol: str, images: str, ood: str, runs: Runs) -> Sheet:
    cells = [Cell(protocol, images, ood, network) for network in _NETWORKS]
    columns = tuple(f"{metric.upper()} {cell.network.upper()}" for metric in _METRICS for cell in cells)
    rows = []
    for method in _ordered(runs):
        own = [runs.get(cell, {}).get(method, []) for cell in cells]
        figures = [_figure(group, metric) for metric in _METRICS for group in own]
        if any(own):
            rows.append(Row(f"{method} {_counts(own)}", tuple(figures)))
    for name, source in _PAPERS.items():
        printed = [paper_detection(f"{images}/{ood}/{network}", name) for network in _NETWORKS]
        if any(printed):
            shown = [f"{own[metric]:.1f}" if own else "" for metric in _METRICS for own in printed]
            rows.append(Row(name, tuple(shown), source))
    notes = dict.fromkeys(run.get("note") or "" for cell in cells for own in runs.get(cell, {}).values() for run in own)
    note = "; ".join(filter(None, (*notes, *_without_draws(cells, runs))))
    return Sheet(f"{images} against {ood}, {protocol}", note and f"{ood}: {note}", columns, rows)


def _without_draws(cells: Sequence[Cell], runs: Runs) -> list[str]:
    """What to know of a set that is smaller than the paper's draws: AUPR depends on the numbers of images."""
    metrics = [run.get("metrics", {}) for cell in cells for own in runs.get(cell, {}).values() for run in own]
    sizes = {(m["n_id"], m["n_ood"]) for m in metrics if "n_ood" in m}
    chance = 100 * _DRAWN / (_DRAWN + 1)
    return [
        f"all {outside:,}, no draws, so AUPR by chance is {100 * inside / (inside + outside):.1f} here and "
        f"{chance:.1f} in the paper: the two are not to be compared"
        for inside, outside in sorted(sizes)
        if _DRAWN * outside < inside
    ]


def _accuracy_sheet(protocol: str, images: str, runs: Runs) -> Sheet:
    """Of any one cell of each training: its other cells have the same networks."""
    columns = {cell.network: methods for cell, methods in runs.items()}
    rows = []
    for method in _ordered(runs):
        own = [columns.get(network, {}).get(method, []) for network in _NETWORKS]
        rows.append(Row(f"{method} {_counts(own)}", tuple(_figure(group, "accuracy") for group in own)))
    notes = recipe_notes({("ood", cell.training) for cell in runs})
    note = " ".join(text for (_, _, name), text in notes.items() if name == protocol)
    return Sheet(f"{images}, accuracy on its own test images, {protocol}", note, ("R20", "R32"), rows)


def _score_sheet(protocol: str, images: str, runs: Runs) -> Sheet:
    columns = {f"{cell.ood} {cell.network.upper()}": cell for cell in runs}
    rows = []
    for method in _ordered(runs):
        for score in scores_of(runs, method):
            gaps = score_gaps(runs, method, score)
            if gaps:
                rows.append(Row(f"{method}, {score}", tuple(_gap(gaps.get(cell)) for cell in columns.values())))
    title = f"{images}, AUROC of other scores minus that of the energy on the same networks, {protocol}"
    return Sheet(title, "Points, with half the 95 % interval of the mean (Student's t).", tuple(columns), rows)


def _ordered(runs: Runs) -> list[str]:
    """Return the methods that were run: baselines, other methods without curvature, then those with curvature."""
    there = {method for methods in runs.values() for method in methods}
    known = [method for method in METHODS.values() if method.name in there]
    known.sort(key=lambda method: (method.role != "baseline", method.curved, method.table_rank))
    return [method.name for method in known] + sorted(there - METHODS.keys())


def _figure(runs: Sequence[Mapping[str, Any]], metric: str) -> str:
    values = [run["metrics"][metric] for run in runs if run.get("value") is not None]
    if not values:
        return "diverged" if runs else ""
    return f"{statistics.fmean(values):.1f}" + (f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else "")


def _counts(groups: Iterable[Sequence[Mapping[str, Any]]]) -> str:
    """How many seeds, of each network: ``(5)``, or ``(5, 3)``; ``(2 of 3)``: the third diverged."""
    words = []
    for runs in filter(None, groups):
        ended = sum(run.get("value") is not None for run in runs)
        words.append(str(ended) if ended == len(runs) else f"{ended} of {len(runs)}")
    return f"({', '.join(dict.fromkeys(words))})"


def _gap(gap: Gap | None) -> str:
    return "" if gap is None else f"{gap.mean:+.1f} ± {gap.high - gap.mean:.1f}"


# --- as Markdown and for the terminal ---------------------------------------------------------------------------------


def ood_markdown(runs: Iterable[Mapping[str, Any]]) -> str:
    """Sentences, how to read the tables, and the tables; empty where there are no runs."""
    lines = list(runs)
    sheets = ood_sheets(lines)
    if not sheets:
        return ""
    parts = [" ".join(filter(None, (f"**{said.headline}**", said.detail))) for said in ood_answers(lines)]
    return "\n\n".join(filter(None, [*parts, READING, other_definitions(lines), *map(sheet_markdown, sheets)]))


def ood_terminal(runs: Iterable[Mapping[str, Any]]) -> Group:
    """The same for a terminal of 80 columns."""
    lines = list(runs)
    words = [Text.assemble((said.headline, "bold"), f" {said.detail}".rstrip(), "\n") for said in ood_answers(lines)]
    reading = Text(READING.replace("*", "").replace("\n", " "))
    return Group(*words, reading, *(sheet_terminal("ood", sheet) for sheet in ood_sheets(lines)))
