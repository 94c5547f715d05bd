"""Out-of-distribution detection for the terminal and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from lresnet.metrics.ood import draw_size
from lresnet.runs.one_line import one_line

if TYPE_CHECKING:
    from lresnet.data import OodSet

__all__ = ["detection_json", "detection_notes", "detection_table"]

_COLUMNS = {"fpr95": "FPR95 ↓", "auroc": "AUROC ↑", "aupr": "AUPR ↑"}


def detection_table(rows: Sequence[dict[str, Any]]) -> Table:
    """A row a set and score, of the rows of one sampling; figures in percent, the set is named once."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=_caption(rows), caption_justify="left")
    table.add_column("set", overflow="fold")
    table.add_column("score")
    for heading in _COLUMNS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    before = None
    for row in rows:
        name = "" if row["ood"] == before else escape(one_line(row["ood"]))
        table.add_row(name, row["score"], *(_figure(row, metric) for metric in _COLUMNS))
        before = row["ood"]
    return table


def detection_notes(sets: Sequence[OodSet]) -> Iterator[str]:
    """What one must know of the sets to read the table, a line each."""
    for ood in sets:
        if ood.note:
            yield f"{one_line(ood.name)}: {ood.note}"
        if ood.skipped:
            files = len(ood.skipped) + len(ood.images)
            yield f"{one_line(ood.name)}: {len(ood.skipped)} of {files} files could not be read as images"


def detection_json(rows: Sequence[dict[str, Any]], sets: Sequence[OodSet]) -> str:
    """One object: the ``rows``, and the files that were ``skipped``."""
    skipped = [{"ood": ood.name, "file": str(file), "reason": why} for ood in sets for file, why in ood.skipped]
    rounded = [
        {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()} for row in rows
    ]
    return json.dumps({"rows": rounded, "skipped": skipped}, indent=2)


def _figure(row: dict[str, Any], metric: str) -> str:
    deviation = f" ± {row[f'{metric}_std']:.1f}" if f"{metric}_std" in row else ""
    return f"{row[metric]:.1f}{deviation}"


def _caption(rows: Sequence[dict[str, Any]]) -> str:
    counts = sorted({row["n_ood"] for row in rows})
    others = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    inside, kind = rows[0]["n_id"], "of a set, all"
    if rows[0]["sampling"] == "draws":
        once, size = "auroc_std" not in rows[0], draw_size(inside, inside)
        kind = "drawn from a set, once" if once else "drawn from a set, mean and deviation of the draws"
        small = dict.fromkeys(f"{one_line(row['ood'])} has {row['n_ood']:,}" for row in rows if row["n_ood"] < size)
        if small:
            alike = "" if once else ", and draws do not differ"
            kind += f"; of a set with fewer than {size:,} all are taken{alike} ({', '.join(small)})"
    return escape(f"Percent; {inside:,} test images are the positives, against {others} {kind}.")
