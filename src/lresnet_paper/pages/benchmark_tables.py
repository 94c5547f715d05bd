"""Tables of benchmark results, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from lresnet_paper.bench.residuals import PASSES, parse_size
from lresnet_paper.render import render
from lresnet_paper.tables import paper_figure

__all__ = [
    "BenchmarkTable",
    "benchmark_tables",
    "bound_seconds",
    "markdown_table",
    "terminal_table",
    "with_bounds",
]

Record = dict[str, Any]

_SGFORMER_TARGET = 1.3


@dataclass(frozen=True)
class BenchmarkTable:
    """A table of strings. A row with one string is the heading of the rows below it."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: Sequence[str]


def benchmark_tables(records: Sequence[Record]) -> list[BenchmarkTable]:
    """Return the tables of lines of ``results/benchmarks.jsonl`` and ``results/runtime.jsonl``, in a fixed order."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in with_bounds(records):
        key = str(record.get("study", record["table"])), str(record["cell"]), str(record.get("part", ""))
        groups.setdefault(key, []).append(record)
    order = sorted(groups, key=lambda key: list(_TABLES).index(key[0]))
    return [_TABLES[key[0]](key[1], key[2], groups[key]) for key in order]


def terminal_table(own: BenchmarkTable) -> Table:
    """Return a table for a terminal of 80 columns, with the notes below it."""
    table = Table(title=own.title, caption="\n".join(map(escape, own.notes)) or None, box=box.SIMPLE_HEAD)
    table.title_justify, table.caption_justify = "left", "left"
    table.padding = (0, 0)
    for i, column in enumerate(own.columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=not i)
    for row in own.rows:
        table.add_row(*(f"[bold]{escape(row[0])}[/]",) if len(row) == 1 else map(escape, row))
    return table


def markdown_table(table: BenchmarkTable) -> str:
    """Return columns and rows as Markdown, without title and notes."""
    lines = ["| " + " | ".join(table.columns) + " |", "|---|" + "---:|" * (len(table.columns) - 1)]
    for row in table.rows:
        first = f"**{row[0]}**" if len(row) == 1 else row[0].strip()
        cells = [first, *row[1:], *[""] * (len(table.columns) - len(row))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


# --- the lower bound of a stack ---------------------------------------------------------------------------------------


def bound_seconds(cell: str, passes: int, copy_rate: float) -> float:
    """Return the seconds for ``passes`` passes over memory at each level of a stack.

    Args:
        cell: the stack, ``"DIMENSION/POINTS x DEPTH"``.
        passes: passes over memory at each level.
        copy_rate: bytes per second.

    Example:
        >>> round(1e3 * bound_seconds("2048/10000 x 64", 8, 4.232e12), 2)
        9.91
    """
    size, depth = cell.split(" x ")
    return int(depth) * passes * parse_size(size).bytes / copy_rate


def with_bounds(records: Sequence[Record]) -> list[Record]:
    """Add ``metrics["bound_seconds"]`` to the lines of stacks on a GPU whose copy rate is known.

    x + y has 3 passes per level, because both of its gradients are the incoming one. The Lorentz residual has 8. On a
    CPU a level fits into the cache, and the bound does not apply.
    """
    rates = {r["hardware"]: 1e9 * r["metrics"]["gigabytes_per_second"] for r in records if r.get("study") == "copy"}
    rates = {hardware: rate for hardware, rate in rates.items() if not hardware.startswith("CPU")}
    return [_with_bound(record, rates.get(record["hardware"])) for record in records]


def _with_bound(record: Record, copy_rate: float | None) -> Record:
    if record.get("study") != "stack" or copy_rate is None:
        return record
    passes = PASSES["forward" if record["protocol"] == "x + y" else "forward + backward"]
    bound = bound_seconds(record["cell"], passes, copy_rate)
    return record | {"metrics": record["metrics"] | {"bound_seconds": bound}}


# --- one table per benchmark ------------------------------------------------------------------------------------------


def _table(
    study: str,
    columns: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    records: Sequence[Record] = (),
    **values: Any,
) -> BenchmarkTable:
    """Return a table whose title and notes come from the template, which gets ``values``."""
    text = render("benchmark_table.txt.j2", study=study, missing=_missing(records), **values)
    title, *notes = (" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
    return BenchmarkTable(title, columns, rows, notes)


def _copy(cell: str, part: str, records: Sequence[Record]) -> BenchmarkTable:
    figures = dict(records[-1]["metrics"])
    best = figures.pop("gigabytes_per_second")
    rows = [(name, f"{_digits(rate)} GB/s") for name, rate in figures.items()]
    return _table("copy", ("operation, bytes", "rate"), rows, rate=_digits(best))


def _residual(cell: str, part: str, records: Sequence[Record]) -> BenchmarkTable:
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

    return _table("residual", columns, _grouped(records, cells), records, part=part, **_size(cell))


def _stack(cell: str, part: str, records: Sequence[Record]) -> BenchmarkTable:
    has_bound = any("bound_seconds" in record["metrics"] for record in records)

    def cells(record: Record) -> tuple[str, ...]:
        share = (f"{record['metrics']['bound_seconds'] / record['value']:.0%}",) if has_bound else ()
        others = (_times(record, other) for other in ("reference", "reference compiled"))
        return _digits(1e3 * record["value"]), _deviation(record), *share, _inverse(record, "x + y"), *others

    size, depth = cell.split(" x ")
    columns = ("", "ms", "±", *(("bound",) if has_bound else ()), "/ x + y", "reference", "compiled")
    return _table(
        "stack",
        columns,
        _grouped(records, cells),
        records,
        part=part,
        depth=depth,
        has_bound=has_bound,
        passes=PASSES["forward + backward"],
        sum_passes=PASSES["forward"],
        **_size(size),
    )


def _clock(cell: str, part: str, records: Sequence[Record]) -> BenchmarkTable:
    def cells(record: Record) -> tuple[str, ...]:
        metrics = record["metrics"]
        rates = metrics["implied_gigabytes_per_second"], metrics["true_gigabytes_per_second"]
        return _digits(record["value"]), _digits(metrics["true_seconds"]), *(_digits(rate) for rate in rates)

    columns = ("", "returned, s", "finished, s", "returned, GB/s", "finished, GB/s")
    return _table("clock", columns, _grouped(records, cells), **_size(cell))


def _resnet(cell: str, part: str, records: Sequence[Record]) -> BenchmarkTable:
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
    columns = ("", "ms", "±", "/ baseline", "peak GiB", "peak / baseline", "epoch, s", "epoch / steps")
    rows = [(record["method"], *cells(record)) for record in records]
    missing_memory = [
        {"method": r["method"], "reason": r["config"]["memory"]} for r in records if "memory" in r["config"]
    ]
    return _table("resnet", columns, rows, model=model, batch=batch, missing_memory=missing_memory)


def _training(cell: str, part: str, records: Sequence[Record]) -> BenchmarkTable:
    def cells(record: Record) -> tuple[str, ...]:
        metrics = record["metrics"]
        return _digits(record["value"]), _digits(metrics["training_seconds"]), f"{metrics['accuracy']:.2f}"

    columns = ("", "whole process, s", "epochs, s", "accuracy, %")
    networks = ", ".join(dict.fromkeys(record["config"]["model"] for record in records))
    return _table("training", columns, _grouped(records, cells), networks=networks, cell=cell)


def _gcn(cell: str, part: str, records: Sequence[Record]) -> BenchmarkTable:
    def cells(record: Record) -> tuple[str, ...]:
        ratios = (_inverse(record, other) for other in ("1 seed", "euclidean", "PyG's GCN"))
        return _digits(1e3 * record["value"]), _deviation(record), *ratios

    columns = ("", "ms", "±", "/ 1 seed", "/ baseline", "/ PyG's GCN")
    return _table("gcn", columns, _grouped(records, cells), records, cell=cell)


def _sgformer(cell: str, part: str, records: Sequence[Record]) -> BenchmarkTable:
    def cells(record: Record) -> tuple[str, ...]:
        return _digits(1e3 * record["value"]), _deviation(record), _inverse(record, "euclidean")

    rows = [(r["method"], *(("-",) if r["value"] is None else cells(r))) for r in records]
    ratios = [1 / r["faster_than"]["euclidean"] for r in records if r["method"] == "lorentz" and r["faster_than"]]
    met = ratios[-1] <= _SGFORMER_TARGET if ratios else None
    columns = ("", "ms", "±", "/ baseline")
    return _table("sgformer", columns, rows, records, cell=cell, target=_SGFORMER_TARGET, target_met=met)


def _scale(cell: str, part: str, records: Sequence[Record]) -> BenchmarkTable:
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
    tunables = next((r["config"]["GLIBC_TUNABLES"] for r in records if r["config"].get("GLIBC_TUNABLES")), "")
    growth = [_digits(r["metrics"]["time_growth"]) for r in records if _is_last_kept(r, records)]
    values = {"cell": cell, "part": part, "tunables": tunables, "last_growth": growth}
    return _table("scale", columns, _grouped(records, cells), records, **values)


def _is_last_kept(record: Record, records: Sequence[Record]) -> bool:
    """Whether it is a method's largest graph among the rows "kept", and has a growth."""
    own = [r for r in records if r["method"] == record["method"] and r["config"].get("GLIBC_TUNABLES")]
    return bool(own) and record is max(own, key=_nodes) and "time_growth" in record["metrics"]


def _nodes(record: Record) -> float:
    return float(record["metrics"].get("nodes", 0))


def _runtime(cell: str, part: str, records: Sequence[Record]) -> BenchmarkTable:
    def cells(record: Record) -> tuple[str, ...]:
        printed = paper_figure("runtime", cell, record["method"])[0]
        low, high = (_digits(record["metrics"].get(name)) for name in ("low", "high"))
        quartiles = f"{low} - {high}" if low else ""
        return _digits(record["value"]), quartiles, "" if printed is None else f"{printed:g}"

    columns = ("", "seconds", "quartiles", "paper (RTX 3070)")
    return _table("runtime", columns, _grouped(records, cells), records, **_size(cell))


_TABLES: dict[str, Callable[[str, str, Sequence[Record]], BenchmarkTable]] = {
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


# --- rows and numbers as text -----------------------------------------------------------------------------------------


def _grouped(records: Sequence[Record], cells: Callable[[Record], tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return a heading for each method and a row for each of its forms; a dash stands for a missing measurement."""
    rows: list[tuple[str, ...]] = []
    for method in dict.fromkeys(record["method"] for record in records):
        rows.append((method,))
        for record in records:
            if record["method"] == method:
                values = ("-",) if record["value"] is None else cells(record)
                rows.append((f"  {record['protocol']}", *values))
    return rows


def _missing(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return each reason of missing rows with the names of these rows; a form that no method has is named alone."""
    reasons: dict[str, dict[str, None]] = {}
    for record in records:
        if record["missing"]:
            alike = all(r["missing"] == record["missing"] for r in records if r["protocol"] == record["protocol"])
            name = record["protocol"] if alike else f"{record['protocol']} of {record['method']}"
            reasons.setdefault(record["missing"], {})[name] = None
    return [{"reason": reason, "names": list(names)} for reason, names in reasons.items()]


def _deviation(record: Record) -> str:
    """Return half the distance of the quartiles, relative to the median."""
    low, high = record["quartiles"]
    return f"{(high - low) / 2 / record['value']:.0%}" if record["value"] > 0 else ""


def _times(record: Record, other: str) -> str:
    ratio = record["faster_than"].get(other)
    return "" if ratio is None else f"{_digits(ratio)}x"


def _inverse(record: Record, other: str) -> str:
    ratio = record["faster_than"].get(other)
    return "" if ratio is None else _digits(1 / ratio)


def _digits(value: float | None) -> str:
    """Return a number with three significant digits.

    Example:
        >>> _digits(0.0012345), _digits(4361.7)
        ('0.00123', '4362')
    """
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _size(cell: str) -> dict[str, Any]:
    size = parse_size(cell)
    return {"points": f"{size.points:,}", "dimension": f"{size.dimension:,}"}
