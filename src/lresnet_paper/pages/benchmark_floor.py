"""The memory's floor of a stack of residuals: the least that its passes over memory take, in whatever way it is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lresnet_paper.bench.residuals import PASSES
from lresnet_paper.bench.sizes import parse_size

__all__ = ["floor_seconds", "with_floors"]

Record = dict[str, Any]


def floor_seconds(cell: str, passes: int, copy_rate: float) -> float:
    """Seconds for ``passes`` over memory at each level of the stack called ``cell``, at ``copy_rate`` bytes a second.

    Example:
        >>> round(1e3 * floor_seconds("2048/10000 x 64", 8, 4.232e12), 2)
        9.91
    """
    size, depth = cell.split(" x ")
    return int(depth) * passes * parse_size(size).bytes / copy_rate


def with_floors(records: Sequence[Record]) -> list[Record]:
    """The lines; those of stacks on a GPU say their floor, ``metrics["floor_seconds"]``, where its copy rate is known.

    x + y has 3 passes at each level: its gradient goes on to both sides as it is. The Lorentz residual has 8. On a CPU
    a level is so small that it stays in the cache, which has no such floor.
    """
    rates = {r["hardware"]: 1e9 * r["metrics"]["gigabytes_per_second"] for r in records if r.get("study") == "copy"}
    rates = {hardware: rate for hardware, rate in rates.items() if not hardware.startswith("CPU")}
    return [_with_floor(record, rates.get(record["hardware"])) for record in records]


def _with_floor(record: Record, copy_rate: float | None) -> Record:
    if record.get("study") != "stack" or copy_rate is None:
        return record
    passes = PASSES["forward" if record["protocol"] == "x + y" else "forward + backward"]
    floor = floor_seconds(record["cell"], passes, copy_rate)
    return record | {"metrics": record["metrics"] | {"floor_seconds": floor}}
