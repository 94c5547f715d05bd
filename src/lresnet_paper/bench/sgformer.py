"""A training epoch of ``lorentz_sgformer`` against its Euclidean baseline, and its growth with the size of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from lresnet.data import NodeTask
from lresnet.models import LorentzSGFormer
from lresnet.train import NodeClassification, TrainConfig, TrainingState, seed_everything
from lresnet_paper.bench.graphs import epoch_candidate
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.memory import peak_resident, print_json, process_result, start_process
from lresnet_paper.bench.timing import (
    Candidate,
    Clock,
    Task,
    device_clock,
    interleave,
    ratios,
    single_thread,
    spread,
    try_prepare,
)
from lresnet_paper.run import Run, build, require_data

__all__ = [
    "FEATURES",
    "GRAPHS",
    "NEIGHBOURS",
    "RANDOM",
    "SIZES",
    "TABLE",
    "available_graphs",
    "measure_growth",
    "measure_sgformer",
    "print_growth",
    "random_training",
]

TABLE = ("chameleon", "squirrel", "actor")
GRAPHS = (*TABLE, "wordnet")
"""The graphs of the paper's table, and WordNet with 117,791 nodes."""
RANDOM = "random/10000"
"""A generated random graph with this number of nodes."""
SIZES = (10_000, 100_000, 1_000_000)
"""Numbers of nodes for the measurement of growth."""
NEIGHBOURS, FEATURES, CLASSES, WIDTH, LAYERS = 8, 64, 5, 64, 3

# Depth, width and dropout of the released scripts. They have none for WordNet.
_SHAPES: dict[str, dict[str, Any]] = {
    "chameleon": {"num_layers": 5, "hidden": 64},
    "squirrel": {"num_layers": 3, "hidden": 64, "dropout": 0.3},
    "actor": {"num_layers": 9, "hidden": 64, "dropout": 0.2},
    "wordnet": {"num_layers": 3, "hidden": 64},
}
_BASELINE = "euclidean"

_EPOCHS = {"cuda": 20, "cpu": 3}  # measured
# Epochs before the peak is measured on CUDA. The engine captures its step as a CUDA graph in the fourth epoch, after
# which torch does not count its allocations.
_STEADY = 2
# By default the C library returns arrays above 32 MB to the system at once, which clears their pages for the next user.
_KEEP_MEMORY = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=34359738368"


def available_graphs() -> list[str]:
    """Return those of :data:`GRAPHS` whose data are present or can be downloaded, and the random graph."""
    found = []
    for cell in GRAPHS:
        try:
            require_data(_run(cell, _BASELINE))
        except OSError:
            continue
        found.append(cell)
    return [*found, RANDOM]


def measure_sgformer(
    cell: str, methods: Sequence[str], device: torch.device, clock: Clock, *, rounds: int
) -> list[Measurement]:
    """Time an epoch: forward, cross entropy, backward, optimiser step; without a validation pass.

    Args:
        cell: a name of :data:`GRAPHS`, or ``"random/NODES"``.
        methods: residuals. The Euclidean baseline is always included.
        device: where they run.
        clock: times the epochs.
        rounds: the number of measured rounds.
    """
    found: dict[str, Candidate | str] = {}
    for method in dict.fromkeys([*methods, _BASELINE]):
        found[method] = try_prepare(epoch_candidate, partial(_epoch, cell, method, device), device)
    candidates = {method: candidate for method, candidate in found.items() if isinstance(candidate, Candidate)}
    seconds = interleave({method: candidate.batches for method, candidate in candidates.items()}, clock, rounds)
    facts = {"clock": clock.name, "threads": torch.get_num_threads(), **_shape(cell)}
    measured = []
    for method, candidate in found.items():
        case = "sgformer", cell, method, "engine", "training epoch"
        if isinstance(candidate, str):
            measured.append(Measurement(*case, missing=candidate))
            continue
        both = _BASELINE in seconds and method != _BASELINE
        faster = {_BASELINE: ratios(seconds[_BASELINE], seconds[method]).median} if both else {}
        measured.append(Measurement(*case, spread(seconds[method]), faster_than=faster, facts=facts))
    return measured


def random_training(nodes: int, method: str, device: torch.device) -> TrainingState[Any]:
    """Return the training on a random graph, which is the worst case for caches. Half of the nodes are trained on."""
    task = _random_task(nodes).to(device)
    seed_everything(0)
    model = LorentzSGFormer(FEATURES, WIDTH, LAYERS, CLASSES, residual=method).to(device)
    return TrainingState(model, NodeClassification(task, device=device), TrainConfig(), "compiled")


def _epoch(cell: str, method: str, device: torch.device) -> Task:
    if cell.startswith("random/"):
        return random_training(int(cell.removeprefix("random/")), method, device).train_epoch
    return TrainingState(*build(_run(cell, method), device), "compiled").train_epoch


def _run(cell: str, method: str) -> Run:
    config = {"model": LorentzSGFormer.model_name, "lr": 0.001, **_SHAPES[cell]}
    if cell in TABLE:
        return Run("benchmarks", cell, method, "official_splits", 0, config, split=0)
    return Run("benchmarks", cell, method, "disjoint", 0, config)


def _shape(cell: str) -> dict[str, Any]:
    shape = _SHAPES.get(cell, {"num_layers": LAYERS, "hidden": WIDTH})
    return {"layers": shape["num_layers"], "width": shape["hidden"], "dropout": shape.get("dropout", 0.0)}


def _random_task(nodes: int) -> NodeTask:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(nodes, (2, nodes * NEIGHBOURS // 2), generator=generator)
    order = torch.randperm(nodes, generator=generator)
    return NodeTask(
        name=f"random/{nodes}",
        x=torch.randn(nodes, FEATURES, generator=generator),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=torch.randint(CLASSES, (nodes,), generator=generator),
        train_index=order[: nodes // 2],
        val_index=order[nodes // 2 : 3 * nodes // 4],
        test_index=order[3 * nodes // 4 :],
        num_classes=CLASSES,
        metric="accuracy",
    )


# --- growth with the size of the graph --------------------------------------------------------------------------------


def measure_growth(sizes: Sequence[int], methods: Sequence[str], device: torch.device) -> list[Measurement]:
    """Measure the seconds of an epoch and the peak memory for each number of nodes, each in a fresh process.

    On a CPU the memory is the growth of the process's peak since the imports: the graph and the training. There,
    everything is measured a second time with a C library that keeps freed memory, because the cost of returning pages
    to the system grows faster than the arithmetic. On CUDA, where torch keeps freed memory anyway, the memory is the
    largest allocation during one epoch.
    """
    tunables = [""] if device.type == "cuda" else ["", _KEEP_MEMORY]
    return [one for method in methods for setting in tunables for one in _grow(sizes, method, setting, device)]


def _grow(sizes: Sequence[int], method: str, tunables: str, device: torch.device) -> list[Measurement]:
    """Measure one method, from the smallest graph to the largest, with these ``GLIBC_TUNABLES``."""
    measured, before = list[Measurement](), dict[str, Any]()
    cell, unit = f"{NEIGHBOURS} neighbours, {FEATURES} features", " nodes, kept" if tunables else " nodes"
    for nodes in sorted(sizes):
        case = "scale", cell, method, f"{nodes:,}{unit}", "training epoch"
        found = _in_fresh_process(nodes, method, device, tunables)
        if "missing" in found:
            measured.append(Measurement(*case, missing=found["missing"]))
            continue
        spent = spread(found["seconds"])
        now = {"nodes": nodes, "seconds": spent.median, "peak": found["peak"]}
        figures = {"nodes": nodes, "peak_gibibytes": found["peak"] / 2**30, **_growth(before, now)}
        facts = {"clock": found["clock"], "threads": 1, "GLIBC_TUNABLES": tunables}
        measured.append(Measurement(*case, spent, figures, facts=facts))
        before = now
    return measured


def _in_fresh_process(nodes: int, method: str, device: torch.device, tunables: str) -> dict[str, Any]:
    environment = {"GLIBC_TUNABLES": tunables} if tunables else {}
    return process_result(
        start_process(__name__, print_growth.__name__, nodes, method, device, environment=environment)
    )


def print_growth(nodes: str, method: str, device: str) -> None:
    """Print the time and the peak memory of an epoch in this process as JSON."""
    print_json(lambda: _measure(int(nodes), method, torch.device(device)))


def _measure(nodes: int, method: str, device: torch.device) -> dict[str, Any]:
    before, clock = peak_resident(), device_clock(device)
    with single_thread(device):
        run = random_training(nodes, method, device)
        run.train_epoch()
        peak = _steady_peak(run) if device.type == "cuda" else 0
        seconds = [clock.seconds(run.train_epoch) for _ in range(_EPOCHS[device.type])]
    return {"seconds": seconds, "peak": peak or peak_resident() - before, "clock": clock.name}


def _steady_peak(run: TrainingState[Any]) -> int:
    """Return the bytes allocated on the GPU during one epoch; then train the epoch in which the step is captured."""
    for _ in range(_STEADY - 1):
        run.train_epoch()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run.train_epoch()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    run.train_epoch()
    return peak


def _growth(before: dict[str, Any], now: dict[str, Any]) -> dict[str, float]:
    """Return the growth of time and memory for ten times the nodes: 10 is linear."""
    if not before:
        return {}
    power = 1 / math.log10(now["nodes"] / before["nodes"])
    names = {"time_growth": "seconds", "memory_growth": "peak"}
    return {name: (now[key] / before[key]) ** power for name, key in names.items()}
