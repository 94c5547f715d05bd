"""The bars we hold the kernels to on a GPU, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lresnet.report.benchmark_table import Sheet

__all__ = ["BARS", "bars_sheet"]

Record = dict[str, Any]


class Bar(NamedTuple):
    """The least that a figure of the Lorentz residual by kernels may be."""

    name: str
    study: str
    part: str
    field: str
    """``"metrics"`` or ``"faster_than"``."""
    key: str
    least: float


_TEXTBOOK = "parallel_transport, textbook"

BARS = (
    Bar("share of the copy rate", "residual", "forward", "metrics", "share_of_copy_rate", 0.85),
    Bar("share of the copy rate", "residual", "backward", "metrics", "share_of_copy_rate", 0.80),
    Bar("times as fast as the textbook's parallel transport", "residual", "forward", "faster_than", _TEXTBOOK, 10.0),
    Bar(
        "times as fast as the textbook's parallel transport, compiled",
        "residual",
        "forward",
        "faster_than",
        f"{_TEXTBOOK} compiled",
        3.0,
    ),
    Bar("times as fast as the reference", "stack", "forward + backward", "faster_than", "reference", 3.0),
    Bar(
        "times as fast as the reference, compiled",
        "stack",
        "forward + backward",
        "faster_than",
        "reference compiled",
        1.3,
    ),
)


def bars_sheet(records: Sequence[Record]) -> Sheet:
    """Every bar that these lines measure: what it is, what was measured, whether it is met."""
    rows: list[tuple[str, ...]] = []
    for bar in BARS:
        for record in records:
            found = (record.get("study"), record["method"], record["protocol"], record.get("part"))
            value = (
                record.get(bar.field, {}).get(bar.key) if found == (bar.study, "lorentz", "kernels", bar.part) else None
            )
            if value is not None:
                verdict = "met" if value >= bar.least else "missed"
                what = f"{record['cell']}, {bar.part}: {bar.name}"
                rows.append((what, f"{value:.2f}", f"{bar.least:.2f}", verdict))
    return Sheet("The bars", ("the Lorentz residual by kernels", "measured", "at least", ""), rows, [])
