"""The benchmarks as they are called: what they measure where nothing is said, on a GPU and on a CPU."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch

from lresnet.residual import RESIDUALS
from lresnet.runs.single import require_known
from lresnet_paper.bench.clock import device_clock, one_thread
from lresnet_paper.bench.contenders import METHODS, Compiled, contenders
from lresnet_paper.bench.copy_rate import CopyRate, copy_rate
from lresnet_paper.bench.graphs import CELLS, found_cells, measure_graphs
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.memory import Network, peaks_in_fresh_processes
from lresnet_paper.bench.residuals import PARTS, measure_residuals
from lresnet_paper.bench.resnets import TWIN, measure_resnets
from lresnet_paper.bench.sgformer import GRAPHS, RANDOM, found_graphs, measure_sgformer
from lresnet_paper.bench.sgformer_scale import SIZES, measure_scale
from lresnet_paper.bench.sizes import PAPER_SIZES, Size, parse_size
from lresnet_paper.bench.stacks import measure_stack
from lresnet_paper.bench.unsynchronised import measure_clocks
from lresnet_paper.bench.whole_training import measure_trainings

__all__ = ["bench_gcn", "bench_residual", "bench_resnet", "bench_runtime", "bench_sgformer", "bench_training"]

_CPU_SIZE, _CPU_STACK, _CPU_BATCH = "256/4000", Size(256, 500), 32
_STACK = Size(2048, 10_000)
_RECIPES = ("fast", "paper")
_IMAGES = 50_000  # as many as CIFAR has: an epoch


def bench_residual(
    sizes: Sequence[str], device: torch.device, *, rounds: int = 20, compiled: Compiled = "auto"
) -> list[Measurement]:
    """The copy rate, every residual at every size, a stack of 64, and on CUDA the clock that does not wait."""
    _require_rounds(rounds)
    on_gpu = device.type == "cuda"
    wanted = [parse_size(size) for size in sizes or (PAPER_SIZES if on_gpu else (_CPU_SIZE,))]
    clock = device_clock(device)
    with one_thread(device):
        rate = copy_rate(device, clock)
        measured = [_copy(rate, device)]
        for size in wanted:
            field = contenders(device, compiled)
            measured += measure_residuals(size, field, device, clock, rounds=rounds, copy_rate=rate.bytes_per_second)
            measured += measure_clocks(size, field, device, rounds=2)
            _forget(device)
        stack = _STACK if on_gpu else _CPU_STACK
        measured += measure_stack(stack, device, clock, rounds=rounds, compiled=compiled)
        _forget(device)
    return measured


def bench_runtime(
    cells: Sequence[str], methods: Sequence[str], device: torch.device, *, rounds: int | None = None
) -> list[Measurement]:
    """What the paper's table of runtimes needs: forward passes at its sizes, and the clock that does not wait."""
    for cell in cells:
        require_known("cell", cell, PAPER_SIZES)
    for method in methods:
        require_known("method of runtime", method, METHODS)
    rounds = rounds or (20 if device.type == "cuda" else 5)  # the paper's sizes take a CPU a second an addition
    clock, measured = device_clock(device), list[Measurement]()
    with one_thread(device):
        rate = copy_rate(device, clock).bytes_per_second
        for size in map(parse_size, cells or PAPER_SIZES):
            field = [c for c in contenders(device) if not methods or c.method in methods]
            measured += measure_residuals(size, field, device, clock, rounds=rounds, copy_rate=rate, parts=PARTS[:1])
            measured += measure_clocks(size, field, device, rounds=2)
            _forget(device)
    return measured


def bench_resnet(
    model: str, methods: Sequence[str], batches: Sequence[int], device: torch.device, *, rounds: int = 11
) -> list[Measurement]:
    """Training steps beside the twin's; each batch size a comparison of its own."""
    _require_rounds(rounds)
    for method in methods:
        require_known("method", method, RESIDUALS)
    on_gpu = device.type == "cuda"
    wanted = list(batches) or ([512, 128] if on_gpu else [_CPU_BATCH])
    if min(wanted) < 2:  # a batch norm of one image has no variance in its last stage
        raise ValueError(f"a batch needs at least 2 images, got {min(wanted)}")
    names = dict.fromkeys([*(methods or ("lorentz",)), TWIN])
    comparisons = [[Network(model, method, batch) for method in names] for batch in wanted]
    peaks = peaks_in_fresh_processes([network for networks in comparisons for network in networks], device)
    measured, clock = list[Measurement](), device_clock(device)
    with one_thread(device):
        for networks in comparisons:
            images = max(_IMAGES, networks[0].batch) if on_gpu else networks[0].batch
            measured += measure_resnets(networks, device, clock, rounds=rounds, images=images, peaks=peaks)
            _forget(device)
    return measured


def bench_gcn(
    cells: Sequence[str], methods: Sequence[str], device: torch.device, *, rounds: int = 15
) -> list[Measurement]:
    """Training epochs, one seed and ten; cells that are named must be there, of the usual ones those that are."""
    _require_rounds(rounds)
    for method in methods:
        require_known("method", method, RESIDUALS)
    measured = list[Measurement]()
    with one_thread(device):
        for cell in cells or found_cells(CELLS):
            measured += measure_graphs(cell, methods or ("lorentz",), device, device_clock(device), rounds=rounds)
            _forget(device)
    return measured


def bench_sgformer(
    cells: Sequence[str], methods: Sequence[str], nodes: Sequence[int], device: torch.device, *, rounds: int = 15
) -> list[Measurement]:
    """Training epochs beside the twin's; graphs that are named must be there, of the table's those that are.

    Then time and memory of growing random graphs, of the methods and the twin.
    """
    _require_rounds(rounds)
    for method in methods:
        require_known("method", method, RESIDUALS)
    for cell in cells:
        require_known("graph", cell, (*GRAPHS, RANDOM))
    if nodes and min(nodes) < 2:
        raise ValueError(f"a graph needs at least 2 nodes, got {min(nodes)}")
    methods, measured = methods or ("lorentz",), list[Measurement]()
    with one_thread(device):
        for cell in cells or found_graphs():
            measured += measure_sgformer(cell, methods, device, device_clock(device), rounds=rounds)
            _forget(device)
    return measured + measure_scale(nodes or SIZES, list(dict.fromkeys([*methods, TWIN])), device)


def bench_training(
    images: str, recipes: Sequence[str], methods: Sequence[str], epochs: int, model: str, device: torch.device
) -> list[Measurement]:
    """Whole trainings from the command to the test figure; both recipes where none is named."""
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {epochs}")
    for method in methods:
        require_known("method", method, RESIDUALS)
    for recipe in recipes:
        require_known("recipe", recipe, _RECIPES)
    return measure_trainings(images, recipes or _RECIPES, methods or ("lorentz",), epochs, model, device)


def _copy(rate: CopyRate, device: torch.device) -> Measurement:
    figures = {"gigabytes_per_second": rate.bytes_per_second / 1e9}
    figures |= {name: value / 1e9 for name, value in rate.tried.items()}
    return Measurement("copy", device.type, "copy", "best", figures=figures)


def _require_rounds(rounds: int) -> None:
    if rounds < 2:
        raise ValueError(f"rounds must be at least 2, for a spread; got {rounds}")


def _forget(device: torch.device) -> None:
    """Give compiled functions and memory back: the next size starts as the first did."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
