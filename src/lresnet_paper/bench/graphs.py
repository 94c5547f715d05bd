"""A training epoch of ``lorentz_gcn``, one seed and ten, beside its Euclidean twin's and a GCN of PyG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from lresnet.data import LinkTask, NegativeSampler
from lresnet.geometry.checks import check_nowhere
from lresnet.nn.pair_distance import lorentz_distance2, margin_loss
from lresnet_paper.bench.clock import Clock, Task
from lresnet_paper.bench.entry import Entry, admit
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.rounds import Batch, interleave, ratios, spread
from lresnet_paper.bench.runs import graph_run, graph_training, stacked_trainings
from lresnet_paper.run import graph_task

__all__ = ["CELLS", "FALLBACK", "SEEDS", "epoch_entry", "found_cells", "measure_graphs"]

CELLS = ("disease/lp", "airport/lp")
FALLBACK = "disease_tree/lp"  # made on the spot
SEEDS = 10

_EPOCHS = {"cuda": 50}  # timed at once; on a CPU one
_FIRST = 6  # epochs before timing: the engine records its step in the fourth
_PYG = "PyG's GCN"


def found_cells(cells: Sequence[str]) -> list[str]:
    """Those of ``cells`` whose data are here or can be fetched; without any, the tree that needs none."""
    found = []
    for cell in cells:
        try:
            graph_task(graph_run(cell, "lorentz"))
        except OSError:
            continue
        found.append(cell)
    return found or [FALLBACK]


def measure_graphs(
    cell: str, methods: Sequence[str], device: torch.device, clock: Clock, *, rounds: int, seeds: int = SEEDS
) -> list[Measurement]:
    """An epoch: forward, loss with negatives drawn afresh, backward, optimiser; no look at the validation set.

    Args:
        methods: residuals; the Euclidean twin is always among them, and PyG's GCN of the same depth and width.
        seeds: trained at once in the rows "n seeds".
    """
    makers: dict[tuple[str, str], Callable[[], Task]] = {}
    for method in dict.fromkeys([*methods, "euclidean"]):
        makers[method, "1 seed"] = partial(_single, cell, method, device)
        makers[method, f"{seeds} seeds"] = partial(_stacked, cell, method, seeds, device)
    makers["euclidean", _PYG] = partial(_pyg, cell, device)
    found = {key: admit(epoch_entry, make, device) for key, make in makers.items()}
    entries = {key: entry for key, entry in found.items() if isinstance(entry, Entry)}
    times = interleave({str(key): entry.batches for key, entry in entries.items()}, clock, rounds)
    seconds = {key: times[str(key)] for key in entries}
    facts = {"clock": clock.name, "threads": torch.get_num_threads(), **_shape(cell)}
    measured = []
    for key, entry in found.items():
        case = "gcn", cell, *key, "training epoch"
        if isinstance(entry, str):
            measured.append(Measurement(*case, missing=entry))
            continue
        bases = {"1 seed": (key[0], "1 seed"), "euclidean": ("euclidean", key[1]), _PYG: ("euclidean", _PYG)}
        faster = {
            label: ratios(seconds[base], seconds[key]).median
            for label, base in bases.items()
            if base in seconds and base != key and key[1] != _PYG
        }
        measured.append(Measurement(*case, spread(seconds[key]), faster_than=faster, facts=facts))
    return measured


def epoch_entry(make: Callable[[], Task], device: torch.device) -> Entry:
    """A training that is past its first epochs: ``make`` gives what trains one."""
    epoch, count = make(), _EPOCHS.get(device.type, 1)
    for _ in range(_FIRST if device.type == "cuda" else 1):
        epoch()

    def task() -> None:
        for _ in range(count):
            epoch()

    return Entry([Batch(task, count)], False)


def _single(cell: str, method: str, device: torch.device) -> Task:
    return graph_training(cell, method, device).train_epoch


def _stacked(cell: str, method: str, seeds: int, device: torch.device) -> Task:
    run = stacked_trainings(cell, method, range(seeds), device)

    def epoch() -> None:
        with check_nowhere():  # as in the engine: one member's NaN must not stop the others
            run.train_epoch()

    return epoch


def _shape(cell: str) -> dict[str, int]:
    """Depth and width, the model's own where the recipe does not say."""
    config = graph_run(cell, "lorentz").config
    return {"layers": config.get("num_layers", 3), "width": config.get("hidden", 16)}


def _pyg(cell: str, device: torch.device) -> Task:
    """The same epoch as a user of PyG would write it, with its GCN and torch's Adam."""
    import torch_geometric.nn

    run = graph_run(cell, "euclidean")
    task = graph_task(run).to(device)
    shape = _shape(cell)
    out = shape["width"] if isinstance(task, LinkTask) else task.num_classes
    dropout = run.config.get("dropout", 0.0)
    model = torch_geometric.nn.GCN(task.x.shape[1], shape["width"], shape["layers"], out, dropout=dropout).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = NegativeSampler(task, seed=0) if isinstance(task, LinkTask) else None

    def epoch() -> None:
        optimizer.zero_grad()
        _loss(task, model(task.x, task.edge_index), sampler).backward()
        optimizer.step()

    return epoch


def _loss(task: Any, z: torch.Tensor, sampler: NegativeSampler | None) -> torch.Tensor:
    if sampler is None:
        return torch.nn.functional.cross_entropy(z[task.train_index], task.y[task.train_index])
    positive = task.train_edges
    d2 = lorentz_distance2(z, torch.cat([positive, sampler()], dim=1), None)
    return margin_loss(d2[: positive.shape[1]], d2[positive.shape[1] :], 2.0)
