"""The page docs/performance/benchmarks.md, from results/benchmarks.jsonl and results/runtime.jsonl, and its targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lresnet.train.results import read_results
from lresnet_paper.bench.training import PART
from lresnet_paper.pages.benchmark_tables import benchmark_tables, markdown_table, with_bounds
from lresnet_paper.render import render

__all__ = [
    "CPU_TARGETS",
    "TARGETS",
    "Target",
    "TargetRow",
    "benchmark_page",
    "read_benchmarks",
    "stack_bounds",
    "target_rows",
]

Record = dict[str, Any]
Figure = Callable[[Record], float | None]


def read_benchmarks(folder: Path) -> list[Record]:
    """Return the newest line of each measurement on each device, in the order of the files.

    Raises:
        FileNotFoundError: there is no folder, or it has no benchmarks.
    """
    newest: dict[tuple[Any, ...], Record] = {}
    for name in ("benchmarks", "runtime"):
        for record in read_results(folder / f"{name}.jsonl"):
            if record.get("table") == name:
                newest[_key(record)] = record
    if not newest:
        raise FileNotFoundError(f"no benchmarks in {folder}; run `lresnet bench residual` to write some")
    return list(newest.values())


def _key(record: Record) -> tuple[Any, ...]:
    own = tuple(record.get(key) for key in ("table", "study", "cell", "method", "protocol", "part", "hardware"))
    return (*own, record.get("config", {}).get("model"))  # whole trainings of two models share the rest


def benchmark_page(records: Sequence[Record]) -> str:
    """Return the page: for each device, GPUs first, its targets and tables; then the paper's table of runtimes."""
    names = sorted(dict.fromkeys(record["hardware"] for record in records), key=lambda name: name.startswith("CPU"))
    return render("benchmarks.md.j2", devices=[_device_values(name, records) for name in names])


def _device_values(name: str, records: Sequence[Record]) -> dict[str, Any]:
    own = [record for record in records if record["hardware"] == name]
    targets = target_rows(own)
    tables = [
        {"title": table.title, "markdown": markdown_table(table), "notes": table.notes}
        for table in benchmark_tables(own)
    ]
    return {
        "name": name,
        "commands": list(dict.fromkeys(record["command"] for record in own)),
        "torch_versions": list(dict.fromkeys(record["versions"]["torch"] for record in own)),
        "targets": targets,
        "targets_met": sum(target.met for target in targets),
        "bounds": stack_bounds(own),
        "tables": tables,
    }


# --- targets ----------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """A limit for a measurement of the Lorentz residual."""

    name: str
    study: str
    form: str
    part: str
    figure: Figure
    at_least: float | None = None
    at_most: float | None = None
    cell_prefix: str = ""
    """The cells it applies to start with this."""


class TargetRow(NamedTuple):
    """A target and what was measured."""

    name: str
    value: str
    limit: str
    met: bool


@dataclass(frozen=True)
class StackBound:
    """Why a stack of residuals cannot reach its target against the compiled reference; numbers as text."""

    cell: str
    milliseconds: str
    compiled: str
    kernels: str
    compiled_share: str
    kernels_share: str
    most: str
    target: str


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
_RESNET, _SMALL = "lorentz_resnet18", "lorentz_resnet20"  # the paper's classification and detection networks
_FAST = "training", "fast, batch 512", PART
_PAPER = "training", "paper, batch 128", PART

_SHARE = "share of the copy rate"
_STEP_TIME = "time relative to the Euclidean baseline"
_STEP_MEMORY = "peak memory relative to the Euclidean baseline"
_STEP_EPOCH = "an epoch relative to the sum of its steps"

_STACK_TARGET = Target("times as fast as the compiled reference", *_STACK, _faster("reference compiled"), at_least=1.3)

TARGETS = (
    Target(_SHARE, *_KERNELS, "forward", _metric("share_of_copy_rate"), at_least=0.85),
    Target(_SHARE, *_KERNELS, "backward", _metric("share_of_copy_rate"), at_least=0.80),
    Target(
        "times as fast as the textbook's parallel transport", *_KERNELS, "forward", _faster(_TEXTBOOK), at_least=10.0
    ),
    Target(
        "times as fast as the textbook's parallel transport, compiled",
        *_KERNELS,
        "forward",
        _faster(f"{_TEXTBOOK} compiled"),
        at_least=3.0,
    ),
    Target("times as fast as the reference", *_STACK, _faster("reference"), at_least=3.0),
    _STACK_TARGET,
    Target(_STEP_TIME, *_STEP, _slower("euclidean"), at_most=1.05, cell_prefix=f"{_RESNET}/"),
    Target(_STEP_MEMORY, *_STEP, _metric("peak_over_twin"), at_most=1.10, cell_prefix=f"{_RESNET}/"),
    Target(_STEP_EPOCH, *_STEP, _metric("epoch_over_its_steps"), at_most=1.15, cell_prefix=f"{_RESNET}/"),
    Target(_STEP_TIME, *_STEP, _slower("euclidean"), at_most=1.10, cell_prefix=f"{_SMALL}/"),
    Target("seconds, batch 512", *_FAST, _seconds_of(_RESNET), at_most=180.0, cell_prefix="cifar10, 200 epochs"),
    Target("seconds, batch 128", *_PAPER, _seconds_of(_RESNET), at_most=300.0, cell_prefix="cifar10, 200 epochs"),
    Target(f"seconds, {_SMALL}", *_FAST, _seconds_of(_SMALL), at_most=60.0, cell_prefix="cifar10, 100 epochs"),
    Target("10 seeds relative to 1", "gcn", "10 seeds", "training epoch", _slower("1 seed"), at_most=1.5),
    Target("1 seed, ms", "gcn", "1 seed", "training epoch", _milliseconds, at_most=1.0),
)

CPU_TARGETS = (Target(_STEP_TIME, *_STEP, _slower("euclidean"), at_most=1.2, cell_prefix=f"{_RESNET}/"),)


def target_rows(records: Sequence[Record]) -> list[TargetRow]:
    """Return every target that these lines of one device measure."""
    on_cpu = any(record["hardware"].startswith("CPU") for record in records)
    targets = CPU_TARGETS if on_cpu else TARGETS
    return [row for target in targets for record in records if (row := _row(target, record))]


def _row(target: Target, record: Record) -> TargetRow | None:
    own = record.get("study"), record["protocol"], record.get("part")
    if record["method"] != "lorentz" or own != target[1:4] or not record["cell"].startswith(target.cell_prefix):
        return None
    value = target.figure(record)
    if value is None:
        return None
    least, most = target.at_least, target.at_most
    met = (least is None or value >= least) and (most is None or value <= most)
    limit = f"≥ {least:.2f}" if least is not None else f"≤ {most:.2f}"
    return TargetRow(f"{record['cell']}, {target.part}: {target.name}", f"{value:.2f}", limit, met)


def stack_bounds(records: Sequence[Record]) -> list[StackBound]:
    """Return the stacks whose target against the compiled reference is out of reach of the memory bandwidth."""
    return [bound for record in with_bounds(records) if (bound := _stack_bound(record))]


def _stack_bound(record: Record) -> StackBound | None:
    least, seconds = _STACK_TARGET.at_least, record["metrics"].get("bound_seconds")
    ratio = None if seconds is None or record["protocol"] != "kernels" else _STACK_TARGET.figure(record)
    if ratio is None or least is None:
        return None
    own, compiled = record["value"], ratio * record["value"]
    if compiled >= least * seconds:
        return None
    return StackBound(
        cell=record["cell"],
        milliseconds=f"{1e3 * seconds:.2f}",
        compiled=f"{1e3 * compiled:.2f}",
        kernels=f"{1e3 * own:.2f}",
        compiled_share=f"{seconds / compiled:.0%}",
        kernels_share=f"{seconds / own:.0%}",
        most=f"{compiled / seconds:.2f}",
        target=f"{least:g}",
    )
