"""The bars we hold the Lorentz residual to, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lresnet_paper.bench.whole_training import PART
from lresnet_paper.pages.benchmark_floor import with_floors
from lresnet_paper.pages.benchmark_table import Sheet

__all__ = ["BARS", "CPU_BARS", "Bar", "bars_sheet"]

Record = dict[str, Any]
Figure = Callable[[Record], float | None]


class Bar(NamedTuple):
    """What a figure of the Lorentz residual has to reach."""

    name: str
    study: str
    form: str
    part: str
    figure: Figure
    least: float | None = None
    most: float | None = None
    cells: str = ""
    """What the cells begin with that it is for."""


def _metric(name: str) -> Figure:
    return lambda record: record["metrics"].get(name)


def _faster(other: str) -> Figure:
    return lambda record: record["faster_than"].get(other)


def _slower(other: str) -> Figure:
    def figure(record: Record) -> float | None:
        ratio = record["faster_than"].get(other)
        return None if ratio is None else 1 / ratio

    return figure


def _seconds_of(model: str) -> Figure:
    return lambda record: record["value"] if record["config"]["model"] == model else None


def _milliseconds(record: Record) -> float | None:
    return None if record["value"] is None else 1e3 * float(record["value"])


_KERNELS = "residual", "kernels"
_STACK = "stack", "kernels", "forward + backward"
_STEP = "resnet", "engine", "training step"
_TEXTBOOK = "parallel_transport, textbook"
_RESNET, _SMALL = "lorentz_resnet18", "lorentz_resnet20"  # of the paper's classification; of its detection
_FAST = "training", "fast, batch 512", PART
_PAPER = "training", "paper, batch 128", PART

BARS = (
    Bar("share of the copy rate", *_KERNELS, "forward", _metric("share_of_copy_rate"), least=0.85),
    Bar("share of the copy rate", *_KERNELS, "backward", _metric("share_of_copy_rate"), least=0.80),
    Bar("times as fast as the textbook's parallel transport", *_KERNELS, "forward", _faster(_TEXTBOOK), least=10.0),
    Bar(
        "times as fast as the textbook's parallel transport, compiled",
        *_KERNELS,
        "forward",
        _faster(f"{_TEXTBOOK} compiled"),
        least=3.0,
    ),
    Bar("times as fast as the reference", *_STACK, _faster("reference"), least=3.0),
    Bar("times as fast as the reference, compiled", *_STACK, _faster("reference compiled"), least=1.3),
    Bar("in times of the twin's", *_STEP, _slower("euclidean"), most=1.05, cells=f"{_RESNET}/"),
    Bar("peak memory, in times of the twin's", *_STEP, _metric("peak_over_twin"), most=1.10, cells=f"{_RESNET}/"),
    Bar("an epoch, in times of its steps", *_STEP, _metric("epoch_over_its_steps"), most=1.15, cells=f"{_RESNET}/"),
    Bar("in times of the twin's", *_STEP, _slower("euclidean"), most=1.10, cells=f"{_SMALL}/"),
    Bar("seconds, batch 512", *_FAST, _seconds_of(_RESNET), most=180.0, cells="cifar10, 200 epochs"),
    Bar("seconds, batch 128", *_PAPER, _seconds_of(_RESNET), most=300.0, cells="cifar10, 200 epochs"),
    Bar(f"seconds, {_SMALL}", *_FAST, _seconds_of(_SMALL), most=60.0, cells="cifar10, 100 epochs"),
    Bar("10 seeds, in times of 1", "gcn", "10 seeds", "training epoch", _slower("1 seed"), most=1.5),
    Bar("1 seed, ms", "gcn", "1 seed", "training epoch", _milliseconds, most=1.0),
)

CPU_BARS = (Bar("in times of the twin's", *_STEP, _slower("euclidean"), most=1.2, cells=f"{_RESNET}/"),)


def bars_sheet(records: Sequence[Record]) -> Sheet:
    """Every bar that these lines of one device measure: what it is, what was measured, whether it is met."""
    lines = with_floors(records)
    on_cpu = any(record["hardware"].startswith("CPU") for record in lines)
    rows = [row for bar in (CPU_BARS if on_cpu else BARS) for record in lines if (row := _row(bar, record))]
    columns = ("the Lorentz residual", "measured", "bar", "")
    return Sheet("The bars", columns, rows, [note for record in lines if (note := _floor_note(record))])


def _row(bar: Bar, record: Record) -> tuple[str, ...] | None:
    own = record.get("study"), record["protocol"], record.get("part")
    if record["method"] != "lorentz" or own != bar[1:4] or not record["cell"].startswith(bar.cells):
        return None
    value = bar.figure(record)
    if value is None:
        return None
    met = (bar.least is None or value >= bar.least) and (bar.most is None or value <= bar.most)
    limit = f"≥ {bar.least:.2f}" if bar.least is not None else f"≤ {bar.most:.2f}"
    return f"{record['cell']}, {bar.part}: {bar.name}", f"{value:.2f}", limit, "met" if met else "missed"


def _floor_note(record: Record) -> str:
    """What a stack could gain at most on the compiled reference, where that is less than the bar asks for."""
    floor = record["metrics"].get("floor_seconds")
    ratio = None if floor is None or record["protocol"] != "kernels" else _faster("reference compiled")(record)
    if ratio is None:
        return ""
    own, compiled = record["value"], ratio * record["value"]
    least = next(bar.least for bar in BARS if bar.name == "times as fast as the reference, compiled")
    if least is None or compiled >= least * floor:
        return ""
    return (
        f"{record['cell']}: at the copy rate the passes over memory that must be take {1e3 * floor:.2f} ms. The "
        f"reference compiled takes {1e3 * compiled:.2f} ms, the kernels {1e3 * own:.2f} ms: {floor / compiled:.0%} and "
        f"{floor / own:.0%} of what the memory can do. Nothing could be more than {compiled / floor:.2f} times as fast "
        f"as the reference compiled; {least:g} times cannot be reached."
    )
