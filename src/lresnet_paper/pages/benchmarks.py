"""The bars we hold the Lorentz residual to, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lresnet.train.results import read_results
from lresnet_paper.bench.training import PART
from lresnet_paper.pages.benchmark_tables import Sheet, markdown_sheet, sheets, with_floors

__all__ = [
    "BARS",
    "CPU_BARS",
    "PAPER_CLOCK",
    "Bar",
    "bars_sheet",
    "benchmark_page",
    "read_benchmarks",
]


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


_INTRODUCTION = """\
# Benchmarks: what a hyperbolic residual costs

Rendered from `results/benchmarks.jsonl` and `results/runtime.jsonl` by `lresnet bench page`; every line there has its
command, versions and hardware. Measure again with

    lresnet bench residual     # one residual in every form, and a stack of 64
    lresnet bench resnet       # a training step beside the Euclidean twin's, and its memory
    lresnet bench training     # 200 epochs of CIFAR-10, from the command to the test figure
    lresnet bench gcn          # a training epoch of lorentz_gcn, one seed and ten
    lresnet bench sgformer     # a training epoch of lorentz_sgformer, and growing graphs
    lresnet reproduce runtime  # the paper's table of runtimes

How: all contenders take turns in every round, every second round in reverse; the median over rounds, and after ± half
the distance of the quartiles; a ratio is the median of the rounds' ratios. On a GPU time is that of CUDA events; what
is timed at once moves 8 GB, on sets of points that together exceed four times the cache, and is handed in while the
GPU is still busy; up to 256 MB a tensor everything that can be recorded is replayed as a CUDA graph, so that the GPU
is timed and not Python. On a CPU it is process time of one thread, and the backward pass finds x and y in the cache.
(Lines of an H200 from `bench residual` and `bench gcn` are older than the head start: an idle GPU's wait for the first
launch is in them, and at 4096/100000, which is not replayed, it shows. Steps of lorentz_resnet20
are of networks that learn the scale of the Lorentz residual; its default is now a fixed 2, with one gradient less.)
*GB/s* counts the bytes that must move: forward 3 passes (read x and y, write z), backward 5 (read x, y and the
gradient, write two); *copy* is their share of the copy rate, the best of torch's copy and of an elementwise kernel.
The backward pass is forward + backward minus forward; x + y has none, its gradient goes on as it is. *kernels* are
ours, *reference* the formulas they follow in torch, *textbook* the published exp and log, *geoopt* the composition a
user of that library would write, lifting to time-first vectors included. Where a row has no figure, the reason is
below."""


def read_benchmarks(folder: Path) -> list[Record]:
    """The newest line of each measurement on each device, in the order of the files.

    Raises:
        FileNotFoundError: there is no folder, or nothing was measured.
    """
    newest: dict[tuple[Any, ...], Record] = {}
    for name in ("benchmarks", "runtime"):
        for record in read_results(folder / f"{name}.jsonl"):
            if record.get("table") == name:
                newest[_key(record)] = record
    if not newest:
        raise FileNotFoundError(f"no benchmarks in {folder}; `lresnet bench residual` writes them")
    return list(newest.values())


def _key(record: Record) -> tuple[Any, ...]:
    own = tuple(record.get(key) for key in ("table", "study", "cell", "method", "protocol", "part", "hardware"))
    return (*own, record.get("config", {}).get("model"))  # of whole trainings


def benchmark_page(records: Sequence[Record]) -> str:
    """The page: for each device, GPUs first, its bars and its tables; then what we think of the paper's clock."""
    devices = sorted(dict.fromkeys(record["hardware"] for record in records), key=lambda name: name.startswith("CPU"))
    parts = [_INTRODUCTION]
    for device in devices:
        own = [record for record in records if record["hardware"] == device]
        parts.append(f"## {device}\n\n{_provenance(own)}")
        bars = bars_sheet(own)
        parts += [markdown_sheet(sheet) for sheet in [*([bars] if bars.rows else []), *sheets(own)]]
    parts.append(f"## The paper's clock\n\n{PAPER_CLOCK}")
    return "\n\n".join(parts) + "\n"


def _provenance(records: Sequence[Record]) -> str:
    commands = dict.fromkeys(f"`{record['command']}`" for record in records)
    torches = dict.fromkeys(record["versions"]["torch"] for record in records)
    return f"Made by {', '.join(commands)}; torch {', '.join(torches)}."


PAPER_CLOCK = """\
The paper reports that the Lorentz residual is over 2,000 times faster than parallel transport: 0.0006 s against 1.448
s for 100 additions of 100,000 points of dimension 4,096. An addition has to read x and y and write z, in float32 4.9
GB; 100 of them in 0.0006 s would be 820 TB/s, some 1,800 times what the memory of the card used (448 GB/s) can
deliver. No formula can change that, since every method reads the same x and y: on that card 100 additions cannot take
less than 1.1 s.

A likely explanation is that the GPU was not waited for. A call in Python hands work to the GPU and returns; a clock
read then has timed the handing in. Six microseconds an addition is what launching a kernel takes, and the time hardly
depends on the size, as it does not in the paper: 20 times the bytes took 2.4 times as long. The methods with more
kernels fill the queue, which holds about a thousand; from then on every launch waits for a kernel to end, and the
same clock begins to show the truth. That would make the slower methods look right and the fastest one look free. The
table of the two clocks shows this for the loop of 100 additions here. We cannot know what was run; anyone can fall
into this, and one `torch.cuda.synchronize()` before each reading of the clock prevents it.

What is true: the Lorentz residual needs no exponential, no logarithm and no second trip over memory. Fused into one
kernel it costs forward about what x + y costs; the textbook's parallel transport, a chain of kernels, costs many times
that. Parallel transport in closed form, fused likewise, also costs about what x + y costs: the advantage is one of
writing, not of the formula. Nor need the kernel be ours: where torch.compile fuses the formulas as well as we do, it
comes as near to the memory's rate. Backward, x + y is free and every other residual is not: its gradient reads three
tensors and writes two."""
