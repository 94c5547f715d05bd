"""Time lorentz_resnet50 at 224 x 224 against timm's resnet50, which must be importable (pip install timm).

    python benchmarks/resnet224.py --device cuda --results results      # about 5 minutes on an H200
    python benchmarks/resnet224.py --device cpu --results results       # about 15 minutes on one core

Both networks are in channels_last memory, have 1,000 classes and the same optimiser, and run in every round, in reverse
order in every second one; the ratio is the median over the rounds. A forward pass is in evaluation without gradients. A
training step is forward, cross-entropy, backward and SGD with momentum. "bfloat16" is autocast. On CUDA the clock is
CUDA events; on a CPU it is process time of one thread, which other programs on the machine affect least.

What the residual must cost at least: both networks compute 4.09 GMAC per image, and three times as many in a step. The
sum of timm reads skip and branch and writes the result, 5.5 million numbers each per image; so does the Lorentz
residual, whose inner products need no other data. The floor of the ratio is therefore 1.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.machinery
import shlex
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from lresnet.models import create_model
from lresnet.train.results import append_result
from lresnet_paper.bench.measurement import Measurement, line
from lresnet_paper.bench.timing import Batch, Task, device_clock, first_line, interleave, ratios, spread

GIGAMACS = 4.09  # of one image; tests/models/test_resnet_large.py counts them
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class _Names(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Missing(types.ModuleType):
    """Stand-in for torchvision, whose names timm imports for other networks than its ResNets."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Names(name, (), {})


class _Finder:
    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        ours = name.partition(".")[0] == "torchvision"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Missing(spec.name)

    def exec_module(self, _: types.ModuleType) -> None:
        pass


def timm_resnet50() -> torch.nn.Module:
    sys.meta_path.append(_Finder())  # type: ignore[arg-type]  # asked last: an installed torchvision is used
    from timm.models.resnet import resnet50

    return resnet50()


NETWORKS: dict[str, Callable[[], torch.nn.Module]] = {
    "lorentz": lambda: create_model("lorentz_resnet50", num_classes=1000),
    "euclidean": lambda: create_model("lorentz_resnet50", "euclidean", num_classes=1000),
    "timm": timm_resnet50,
}


def make_task(name: str, form: str, part: str, dtype: str, batch: int, device: torch.device) -> Task:
    """Return one forward pass or training step of a network, ready to be timed."""
    torch.manual_seed(0)
    network = NETWORKS[name]().to(device=device, memory_format=torch.channels_last).train(part != "forward")
    images = torch.randn(batch, 3, 224, 224, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=device) % 1000
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    modes = {"compiled": "default", "compiled, CUDA graphs": "reduce-overhead"}
    run = torch.compile(network, mode=modes[form]) if form in modes else network
    half = DTYPES[dtype] != torch.float32
    cast = (lambda: torch.autocast(device.type, DTYPES[dtype])) if half else contextlib.nullcontext

    @torch.no_grad()
    def forward() -> None:
        with cast():
            run(images)

    def step() -> None:
        optimizer.zero_grad()
        with cast():
            loss = cross_entropy(run(images), labels)
        loss.backward()
        optimizer.step()

    return forward if part == "forward" else step


def measure(form: str, part: str, dtype: str, names: list[str], options: argparse.Namespace) -> list[Measurement]:
    """Time all networks in turn; a network that fails has its reason in ``missing``."""
    device, clock = torch.device(options.device), device_clock(torch.device(options.device))
    cell, passes = f"resnet50/{options.batch}, {dtype}", 1 if part == "forward" else 3
    tasks, missing = {}, {}
    for name in names:
        try:
            tasks[name] = make_task(name, form, part, dtype, options.batch, device)
            tasks[name]()
        except Exception as error:
            missing[name] = first_line(error)
            tasks.pop(name, None)
    times = interleave({name: [Batch(task)] for name, task in tasks.items()}, clock, options.rounds)
    found = [Measurement("resnet224", cell, name, form, part, missing=reason) for name, reason in missing.items()]
    for name, seconds in times.items():
        taken = spread(seconds)
        rate = {"teraflops_per_second": passes * 2e-3 * GIGAMACS * options.batch / taken.median}
        faster = {"timm": ratios(times["timm"], seconds).median} if "timm" in times and name != "timm" else {}
        facts = {"clock": clock.name, "threads": torch.get_num_threads(), "memory_format": "channels_last"}
        found.append(Measurement("resnet224", cell, name, form, part, taken, rate, faster, facts))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, help="images per batch; default: 128, on a CPU 8")
    parser.add_argument("--rounds", type=int, default=11, help="default: 11")
    parser.add_argument("--forms", help="default: eager;compiled, on a GPU also compiled, CUDA graphs")
    parser.add_argument("--parts", default="forward,training step")
    parser.add_argument("--dtypes", help="default: bfloat16,float32, on a CPU float32")
    parser.add_argument("--networks", default="lorentz,timm", help="of lorentz, timm, euclidean (our baseline)")
    parser.add_argument("--results", type=Path, help="append a line per result to resnet224.jsonl in this folder")
    options = parser.parse_args()
    on_gpu = torch.device(options.device).type == "cuda"
    if not on_gpu:
        torch.set_num_threads(1)
    options.batch = options.batch or (128 if on_gpu else 8)
    dtypes = (options.dtypes or ("bfloat16,float32" if on_gpu else "float32")).split(",")
    forms = options.forms or ("eager;compiled;compiled, CUDA graphs" if on_gpu else "eager;compiled")
    for form in forms.split(";"):
        for dtype in dtypes:
            for part in options.parts.split(","):
                started = time.perf_counter()
                for one in measure(form, part, dtype, options.networks.split(","), options):
                    seconds = one.missing or f"{1e3 * one.seconds.median:.2f} ms"  # type: ignore[union-attr]
                    ratio = "".join(f", {1 / value:.3f} times {name}" for name, value in one.faster_than.items())
                    print(f"{one.cell}, {form}, {part}: {one.method} {seconds}{ratio}", flush=True)
                    if options.results is not None:
                        record = line(one, shlex.join(["python", *sys.argv]), torch.device(options.device))
                        append_result(options.results / "resnet224.jsonl", record)
                print(f"    ({time.perf_counter() - started:.0f} s)", flush=True)
                torch.compiler.reset()


if __name__ == "__main__":
    main()
