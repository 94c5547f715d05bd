"""The benchmarks of ``lresnet bench`` and ``lresnet reproduce runtime``, with their default sizes."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch

from lresnet.residual import RESIDUALS
from lresnet.runs.names import require_known
from lresnet_paper.bench.graphs import CELLS, available_cells, measure_graphs
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.residuals import (
    METHODS,
    PAPER_SIZES,
    PARTS,
    Compiled,
    Size,
    implementations,
    measure_residuals,
    measure_stack,
    measure_without_sync,
    parse_size,
)
from lresnet_paper.bench.resnets import BASELINE, Network, measure_resnets, peaks_in_fresh_processes
from lresnet_paper.bench.sgformer import GRAPHS, RANDOM, SIZES, available_graphs, measure_growth, measure_sgformer
from lresnet_paper.bench.timing import CopyRate, copy_rate, device_clock, single_thread
from lresnet_paper.bench.training import measure_trainings

__all__ = ["bench_gcn", "bench_residual", "bench_resnet", "bench_runtime", "bench_sgformer", "bench_training"]

_CPU_SIZE, _CPU_STACK, _CPU_BATCH = "256/4000", Size(256, 500), 32
_STACK = Size(2048, 10_000)
_RECIPES = ("fast", "paper")
_IMAGES = 50_000  # an epoch of CIFAR


def bench_residual(
    sizes: Sequence[str], device: torch.device, *, rounds: int = 20, compiled: Compiled = "auto"
) -> list[Measurement]:
    """Measure the copy rate, every residual at every size, a stack of 64, and on CUDA 100 additions without sync."""
    _require_rounds(rounds)
    on_gpu = device.type == "cuda"
    wanted = [parse_size(size) for size in sizes or (PAPER_SIZES if on_gpu else (_CPU_SIZE,))]
    clock = device_clock(device)
    with single_thread(device):
        rate = copy_rate(device, clock)
        measured = [_copy_measurement(rate, device)]
        for size in wanted:
            field = implementations(device, compiled)
            measured += measure_residuals(size, field, device, clock, rounds=rounds, copy_rate=rate.bytes_per_second)
            measured += measure_without_sync(size, field, device, rounds=2)
            _free_memory(device)
        stack = _STACK if on_gpu else _CPU_STACK
        measured += measure_stack(stack, device, clock, rounds=rounds, compiled=compiled)
        _free_memory(device)
    return measured


def bench_runtime(
    cells: Sequence[str], methods: Sequence[str], device: torch.device, *, rounds: int | None = None
) -> list[Measurement]:
    """Measure the paper's table of runtimes: forward passes at its sizes, and on CUDA 100 additions without sync."""
    for cell in cells:
        require_known("cell", cell, PAPER_SIZES)
    for method in methods:
        require_known("method of runtime", method, METHODS)
    rounds = rounds or (20 if device.type == "cuda" else 5)  # at the paper's sizes one addition takes a CPU a second
    clock, measured = device_clock(device), list[Measurement]()
    with single_thread(device):
        rate = copy_rate(device, clock).bytes_per_second
        for size in map(parse_size, cells or PAPER_SIZES):
            field = [one for one in implementations(device) if not methods or one.method in methods]
            measured += measure_residuals(size, field, device, clock, rounds=rounds, copy_rate=rate, parts=PARTS[:1])
            measured += measure_without_sync(size, field, device, rounds=2)
            _free_memory(device)
    return measured


def bench_resnet(
    model: str, methods: Sequence[str], batches: Sequence[int], device: torch.device, *, rounds: int = 11
) -> list[Measurement]:
    """Measure training steps against the Euclidean baseline; each batch size is a comparison of its own."""
    _require_rounds(rounds)
    for method in methods:
        require_known("method", method, RESIDUALS)
    on_gpu = device.type == "cuda"
    wanted = list(batches) or ([512, 128] if on_gpu else [_CPU_BATCH])
    if min(wanted) < 2:  # in the last stage, a batch norm of one image has no variance
        raise ValueError(f"a batch needs at least 2 images, got {min(wanted)}")
    names = dict.fromkeys([*(methods or ("lorentz",)), BASELINE])
    comparisons = [[Network(model, method, batch) for method in names] for batch in wanted]
    peaks = peaks_in_fresh_processes([network for networks in comparisons for network in networks], device)
    measured, clock = list[Measurement](), device_clock(device)
    with single_thread(device):
        for networks in comparisons:
            images = max(_IMAGES, networks[0].batch) if on_gpu else networks[0].batch
            measured += measure_resnets(networks, device, clock, rounds=rounds, images=images, peaks=peaks)
            _free_memory(device)
    return measured


def bench_gcn(
    cells: Sequence[str], methods: Sequence[str], device: torch.device, *, rounds: int = 15
) -> list[Measurement]:
    """Measure training epochs, one seed and ten.

    Cells given by name must be available. By default, those of disease/lp and airport/lp that are available are used.
    """
    _require_rounds(rounds)
    for method in methods:
        require_known("method", method, RESIDUALS)
    measured = list[Measurement]()
    with single_thread(device):
        for cell in cells or available_cells(CELLS):
            measured += measure_graphs(cell, methods or ("lorentz",), device, device_clock(device), rounds=rounds)
            _free_memory(device)
    return measured


def bench_sgformer(
    cells: Sequence[str], methods: Sequence[str], nodes: Sequence[int], device: torch.device, *, rounds: int = 15
) -> list[Measurement]:
    """Measure training epochs against the Euclidean baseline, then time and memory of growing random graphs.

    Graphs given by name must be available. By default, the available ones are used.
    """
    _require_rounds(rounds)
    for method in methods:
        require_known("method", method, RESIDUALS)
    for cell in cells:
        require_known("graph", cell, (*GRAPHS, RANDOM))
    if nodes and min(nodes) < 2:
        raise ValueError(f"a graph needs at least 2 nodes, got {min(nodes)}")
    methods, measured = methods or ("lorentz",), list[Measurement]()
    with single_thread(device):
        for cell in cells or available_graphs():
            measured += measure_sgformer(cell, methods, device, device_clock(device), rounds=rounds)
            _free_memory(device)
    return measured + measure_growth(nodes or SIZES, list(dict.fromkeys([*methods, BASELINE])), device)


def bench_training(
    images: str, recipes: Sequence[str], methods: Sequence[str], epochs: int, model: str, device: torch.device
) -> list[Measurement]:
    """Measure whole trainings from the command to the test accuracy; by default with both recipes."""
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {epochs}")
    for method in methods:
        require_known("method", method, RESIDUALS)
    for recipe in recipes:
        require_known("recipe", recipe, _RECIPES)
    return measure_trainings(images, recipes or _RECIPES, methods or ("lorentz",), epochs, model, device)


def _copy_measurement(rate: CopyRate, device: torch.device) -> Measurement:
    figures = {"gigabytes_per_second": rate.bytes_per_second / 1e9}
    figures |= {name: value / 1e9 for name, value in rate.tried.items()}
    return Measurement("copy", device.type, "copy", "best", figures=figures)


def _require_rounds(rounds: int) -> None:
    if rounds < 2:
        raise ValueError(f"rounds must be at least 2, because quartiles are reported; got {rounds}")


def _free_memory(device: torch.device) -> None:
    """Release compiled functions and memory, so that every size starts like the first."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
