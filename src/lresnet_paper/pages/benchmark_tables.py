"""The memory's floor of a stack of residuals: the least that its passes over memory take, in whatever way it is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from lresnet_paper.bench.residuals import PASSES, parse_size
from lresnet_paper.tables import paper_figure

__all__ = [
    "Sheet",
    "floor_seconds",
    "markdown_sheet",
    "sheets",
    "terminal_sheet",
    "with_floors",
]


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


@dataclass(frozen=True)
class Sheet:
    """A table of strings; a row whose first cell alone is filled is a heading."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: Sequence[str]


def sheets(records: Sequence[Record]) -> list[Sheet]:
    """All sheets that lines of ``results/benchmarks.jsonl`` or ``results/runtime.jsonl`` fill, in a fixed order."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in with_floors(records):
        key = str(record.get("study", record["table"])), str(record["cell"]), str(record.get("part", ""))
        groups.setdefault(key, []).append(record)
    order = sorted(groups, key=lambda key: list(_STUDIES).index(key[0]))
    return [_STUDIES[key[0]](key[1], key[2], groups[key]) for key in order]


def terminal_sheet(sheet: Sheet) -> Table:
    """For a terminal of 80 columns; the notes are below it."""
    table = Table(title=sheet.title, caption="\n".join(map(escape, sheet.notes)) or None, box=box.SIMPLE_HEAD)
    table.title_justify, table.caption_justify = "left", "left"
    table.padding = (0, 0)
    for i, column in enumerate(sheet.columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=not i)
    for row in sheet.rows:
        table.add_row(*(f"[bold]{escape(row[0])}[/]",) if len(row) == 1 else map(escape, row))
    return table


def markdown_sheet(sheet: Sheet) -> str:
    """A heading, the table, the notes."""
    lines = ["| " + " | ".join(sheet.columns) + " |", "|---|" + "---:|" * (len(sheet.columns) - 1)]
    for row in sheet.rows:
        first = f"**{row[0]}**" if len(row) == 1 else row[0].strip()
        cells = [first, *row[1:], *[""] * (len(sheet.columns) - len(row))]
        lines.append("| " + " | ".join(cells) + " |")
    notes = "".join(f"\n\n{note}" for note in sheet.notes)
    return f"### {sheet.title}\n\n" + "\n".join(lines) + notes


def _copy(cell: str, part: str, records: Sequence[Record]) -> Sheet:
    figures = dict(records[-1]["metrics"])
    best = figures.pop("gigabytes_per_second")
    rows = [(name, f"{_digits(rate)} GB/s") for name, rate in figures.items()]
    return Sheet(f"Copy rate: {_digits(best)} GB/s", ("way, bytes", "rate"), rows, [])


def _residual(cell: str, part: str, records: Sequence[Record]) -> Sheet:
    columns = ("", "ms", "±", "GB/s", "copy", "/ x + y", "compiled", "textbook", "geoopt")

    def cells(record: Record) -> tuple[str, ...]:
        metrics = record["metrics"]
        share = metrics.get("share_of_copy_rate")
        return (
            _digits(1e3 * record["value"]),
            _deviation(record),
            _digits(metrics.get("gigabytes_per_second")),
            "" if share is None else f"{share:.0%}",
            _inverse(record, "x + y"),
            *(_times(record, other) for other in ("reference compiled", "textbook", "geoopt")),
        )

    title = f"One residual, {part}: {_size(cell)}, float32"
    return Sheet(title, columns, _grouped(records, cells), [f"{_COPY} {_FASTER}", *_missing(records)])


def _stack(cell: str, part: str, records: Sequence[Record]) -> Sheet:
    floors = any("floor_seconds" in record["metrics"] for record in records)

    def cells(record: Record) -> tuple[str, ...]:
        share = (f"{record['metrics']['floor_seconds'] / record['value']:.0%}",) if floors else ()
        others = (_times(record, other) for other in ("reference", "reference compiled"))
        return _digits(1e3 * record["value"]), _deviation(record), *share, _inverse(record, "x + y"), *others

    size, depth = cell.split(" x ")
    columns = ("", "ms", "±", *(("floor",) if floors else ()), "/ x + y", "reference", "compiled")
    title = f"A stack of {depth} residuals, {part}: {_size(size)}, float32"
    notes = [f"{_FLOOR} {_FASTER}" if floors else _FASTER, *_missing(records)]
    return Sheet(title, columns, _grouped(records, cells), notes)


def _resnet(cell: str, part: str, records: Sequence[Record]) -> Sheet:
    def cells(record: Record) -> tuple[str, ...]:
        metrics = record["metrics"]
        return (
            _digits(1e3 * record["value"]),
            _deviation(record),
            _inverse(record, "euclidean"),
            _digits(metrics.get("peak_gibibytes")),
            _digits(metrics.get("peak_over_twin")),
            _digits(metrics.get("epoch_seconds")),
            _digits(metrics.get("epoch_over_its_steps")),
        )

    model, batch = cell.split("/")
    columns = ("", "ms", "±", "to the twin", "peak GiB", "to the twin's", "epoch, s", "epoch / its steps")
    rows = [(record["method"], *cells(record)) for record in records]
    notes = [f"{r['method']}: memory {r['config']['memory']}" for r in records if "memory" in r["config"]]
    return Sheet(f"A training step of {model}, batch {batch}", columns, rows, notes)


def _gcn(cell: str, part: str, records: Sequence[Record]) -> Sheet:
    def cells(record: Record) -> tuple[str, ...]:
        ratios = (_inverse(record, other) for other in ("1 seed", "euclidean", "PyG's GCN"))
        return _digits(1e3 * record["value"]), _deviation(record), *ratios

    columns = ("", "ms", "±", "to 1 seed", "to the twin", "to PyG's GCN")
    return Sheet(f"A training epoch of lorentz_gcn: {cell}", columns, _grouped(records, cells), _missing(records))


def _sgformer(cell: str, part: str, records: Sequence[Record]) -> Sheet:
    def cells(record: Record) -> tuple[str, ...]:
        return _digits(1e3 * record["value"]), _deviation(record), _inverse(record, "euclidean")

    rows = [(r["method"], *(("-",) if r["value"] is None else cells(r))) for r in records]
    own = [1 / r["faster_than"]["euclidean"] for r in records if r["method"] == "lorentz" and r["faster_than"]]
    notes = [f"lorentz: at most {_SGFORMER_BAR} times the twin is {_verdict(ratio)}." for ratio in own]
    title = f"A training epoch of lorentz_sgformer: {cell}"
    return Sheet(title, ("", "ms", "±", "to the twin"), rows, [*notes, *_missing(records)])


def _verdict(ratio: float) -> str:
    return "met" if ratio <= _SGFORMER_BAR else "missed"


def _scale(cell: str, part: str, records: Sequence[Record]) -> Sheet:
    def cells(record: Record) -> tuple[str, ...]:
        metrics = record["metrics"]
        return (
            _digits(record["value"]),
            _deviation(record),
            _digits(metrics.get("peak_gibibytes")),
            _digits(metrics.get("time_growth")),
            _digits(metrics.get("memory_growth")),
        )

    columns = ("", "s", "±", "peak GiB", "time, 10 x nodes", "memory, 10 x nodes")
    title = f"lorentz_sgformer on random graphs, {part}: {cell}"
    notes = ["10 x nodes: in times of what the size before took, for ten times the nodes; 10 is linear."]
    tunables = next((r["config"]["GLIBC_TUNABLES"] for r in records if r["config"].get("GLIBC_TUNABLES")), "")
    if tunables:
        notes.append(f"kept: memory is not given back to the system after every operation, GLIBC_TUNABLES={tunables}")
    if grown := [_digits(r["metrics"]["time_growth"]) for r in records if _is_last_kept(r, records)]:
        notes.append(
            "The work is linear in the nodes; the time is not, on a CPU, up to 100,000 nodes, where a graph leaves the "
            "cache, nor where arrays of more than 32 MB go back to the system and come again as cleared pages. Without "
            f"either, the last ten times the nodes take {' and '.join(grown)} times the time."
        )
    return Sheet(title, columns, _grouped(records, cells), [*notes, *_missing(records)])


def _is_last_kept(record: Record, records: Sequence[Record]) -> bool:
    """Whether it is the largest graph that a method kept its memory for, and grew from a smaller one."""
    own = [r for r in records if r["method"] == record["method"] and r["config"].get("GLIBC_TUNABLES")]
    return bool(own) and record is max(own, key=_nodes) and "time_growth" in record["metrics"]


def _nodes(record: Record) -> float:
    return float(record["metrics"].get("nodes", 0))


def _training(cell: str, part: str, records: Sequence[Record]) -> Sheet:
    def cells(record: Record) -> tuple[str, ...]:
        metrics = record["metrics"]
        return _digits(record["value"]), _digits(metrics["training_seconds"]), f"{metrics['accuracy']:.2f}"

    columns = ("", "start to test, s", "of it in epochs, s", "accuracy, %")
    networks = ", ".join(dict.fromkeys(record["config"]["model"] for record in records))
    notes = ["One process, nothing compiled before; all training images, the test images read once."]
    return Sheet(f"A whole training of {networks}: {cell}", columns, _grouped(records, cells), notes)


def _clock(cell: str, part: str, records: Sequence[Record]) -> Sheet:
    def cells(record: Record) -> tuple[str, ...]:
        metrics = record["metrics"]
        rates = metrics["implied_gigabytes_per_second"], metrics["true_gigabytes_per_second"]
        return _digits(record["value"]), _digits(metrics["true_seconds"]), *(_digits(rate) for rate in rates)

    columns = ("", "seems, s", "takes, s", "seems, GB/s", "moves, GB/s")
    title = f"100 additions without waiting, and in truth: {_size(cell)}"
    return Sheet(title, columns, _grouped(records, cells), [_HOST])


def _runtime(cell: str, part: str, records: Sequence[Record]) -> Sheet:
    def cells(record: Record) -> tuple[str, ...]:
        printed = paper_figure("runtime", cell, record["method"])[0]
        low, high = (_digits(record["metrics"].get(name)) for name in ("low", "high"))
        quartiles = f"{low} - {high}" if low else ""
        return _digits(record["value"]), quartiles, "" if printed is None else f"{printed:g}"

    columns = ("", "seconds", "quartiles", "paper (RTX 3070)")
    return Sheet(f"100 additions: {_size(cell)}", columns, _grouped(records, cells), _missing(records))


_STUDIES: dict[str, Callable[[str, str, Sequence[Record]], Sheet]] = {
    "copy": _copy,
    "residual": _residual,
    "stack": _stack,
    "clock": _clock,
    "resnet": _resnet,
    "training": _training,
    "gcn": _gcn,
    "sgformer": _sgformer,
    "scale": _scale,
    "runtime": _runtime,
}

_SGFORMER_BAR = 1.3
_FASTER = "/ x + y: in times of x + y; last columns: that form of the same method takes so many times as long."
_COPY = "copy: share of the copy rate."
_FLOOR = "floor: what 8 passes over memory a level (x + y: 3) take at the copy rate, as a share of the time."
_HOST = (
    "Called one by one from Python, not replayed. Where the work of a call takes less time than the call, as with few "
    "points, both clocks show Python."
)


def _grouped(records: Sequence[Record], cells: Callable[[Record], tuple[str, ...]]) -> list[tuple[str, ...]]:
    """A heading for each method, and a row for each of its forms; a line stands for one that is missing."""
    rows: list[tuple[str, ...]] = []
    for method in dict.fromkeys(record["method"] for record in records):
        rows.append((method,))
        for record in records:
            if record["method"] == method:
                values = ("-",) if record["value"] is None else cells(record)
                rows.append((f"  {record['protocol']}", *values))
    return rows


def _missing(records: Sequence[Record]) -> list[str]:
    """Why forms are not here, each reason once."""
    reasons: dict[str, dict[str, None]] = {}
    for record in records:
        if record["missing"]:
            alike = all(r["missing"] == record["missing"] for r in records if r["protocol"] == record["protocol"])
            name = record["protocol"] if alike else f"{record['protocol']} of {record['method']}"
            reasons.setdefault(record["missing"], {})[name] = None
    return [f"-: {', '.join(names)} ({reason})" for reason, names in reasons.items()]


def _deviation(record: Record) -> str:
    """Half the distance of the quartiles, relative to the median."""
    low, high = record["quartiles"]
    return f"{(high - low) / 2 / record['value']:.0%}" if record["value"] > 0 else ""


def _times(record: Record, other: str) -> str:
    ratio = record["faster_than"].get(other)
    return "" if ratio is None else f"{_digits(ratio)}x"


def _inverse(record: Record, other: str) -> str:
    ratio = record["faster_than"].get(other)
    return "" if ratio is None else _digits(1 / ratio)


def _digits(value: float | None) -> str:
    """Three digits that count.

    Example:
        >>> _digits(0.0012345), _digits(4361.7)
        ('0.00123', '4362')
    """
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _size(cell: str) -> str:
    dimension, points = cell.split("/")
    return f"{int(points):,} points of dimension {int(dimension):,}"
