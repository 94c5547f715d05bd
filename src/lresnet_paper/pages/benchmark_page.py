"""docs/benchmarks.md, rendered from the lines of ``results/benchmarks.jsonl`` and ``results/runtime.jsonl``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lresnet.train.results import read_results
from lresnet_paper.pages.benchmark_bars import bars_sheet
from lresnet_paper.pages.benchmark_table import markdown_sheet, sheets

__all__ = [
    "PAPER_CLOCK",
    "benchmark_page",
    "read_benchmarks",
]


Record = dict[str, Any]

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
