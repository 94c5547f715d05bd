"""A training epoch of ``lorentz_gcn``, one seed and ten, against its Euclidean baseline and PyG's GCN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from lresnet.data import DatasetTask, HierarchyTask, ImageTask, LinkTask, NegativeSampler, TextTask
from lresnet.geometry.checks import check_nowhere
from lresnet.nn.pair_distance import lorentz_distance2, margin_loss
from lresnet.runs.model_config import GCNConfig
from lresnet.runs.tasks import load
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.timing import Batch, Candidate, Clock, Task, interleave, ratios, spread, try_prepare
from lresnet_paper.bench.training import graph_run, graph_training, stacked_trainings

__all__ = ["CELLS", "FALLBACK", "SEEDS", "available_cells", "epoch_candidate", "measure_graphs"]

CELLS = ("disease/lp", "airport/lp")
FALLBACK = "disease_tree/lp"
"""A generated graph, which needs no data."""
SEEDS = 10

_EPOCHS = {"cuda": 50}  # timed as one task; on a CPU one
_FIRST_EPOCHS = 6  # before timing: the engine captures its step in the fourth epoch
_PYG = "PyG's GCN"


def available_cells(cells: Sequence[str]) -> list[str]:
    """Return those of ``cells`` whose data are present or can be downloaded, or ``[FALLBACK]`` if there are none."""
    found = []
    for cell in cells:
        try:
            load(graph_run(cell, "lorentz").task)
        except OSError:
            continue
        found.append(cell)
    return found or [FALLBACK]


def measure_graphs(
    cell: str, methods: Sequence[str], device: torch.device, clock: Clock, *, rounds: int, seeds: int = SEEDS
) -> list[Measurement]:
    """Time an epoch: forward, loss with new negatives, backward, optimiser step; without a validation pass.

    Args:
        cell: a task, e.g. ``"airport/lp"``.
        methods: residuals. The Euclidean baseline and PyG's GCN of the same depth and width are always included.
        device: where they run.
        clock: times the epochs.
        rounds: the number of measured rounds.
        seeds: the number of seeds trained at once in the rows "n seeds".
    """
    makers: dict[tuple[str, str], Callable[[], Task]] = {}
    for method in dict.fromkeys([*methods, "euclidean"]):
        makers[method, "1 seed"] = partial(_single_epoch, cell, method, device)
        makers[method, f"{seeds} seeds"] = partial(_stacked_epoch, cell, method, seeds, device)
    makers["euclidean", _PYG] = partial(_pyg_epoch, cell, device)
    found = {key: try_prepare(epoch_candidate, make, device) for key, make in makers.items()}
    candidates = {key: candidate for key, candidate in found.items() if isinstance(candidate, Candidate)}
    times = interleave({str(key): candidate.batches for key, candidate in candidates.items()}, clock, rounds)
    seconds = {key: times[str(key)] for key in candidates}
    facts = {"clock": clock.name, "threads": torch.get_num_threads(), **_shape(cell)}
    measured = []
    for key, candidate in found.items():
        case = "gcn", cell, *key, "training epoch"
        if isinstance(candidate, str):
            measured.append(Measurement(*case, missing=candidate))
            continue
        bases = {"1 seed": (key[0], "1 seed"), "euclidean": ("euclidean", key[1]), _PYG: ("euclidean", _PYG)}
        faster = {
            label: ratios(seconds[base], seconds[key]).median
            for label, base in bases.items()
            if base in seconds and base != key and key[1] != _PYG
        }
        measured.append(Measurement(*case, spread(seconds[key]), faster_than=faster, facts=facts))
    return measured


def epoch_candidate(make: Callable[[], Task], device: torch.device) -> Candidate:
    """Return a training after its first epochs; ``make`` returns a function that trains one epoch."""
    epoch, count = make(), _EPOCHS.get(device.type, 1)
    for _ in range(_FIRST_EPOCHS if device.type == "cuda" else 1):
        epoch()

    def task() -> None:
        for _ in range(count):
            epoch()

    return Candidate([Batch(task, count)], False)


def _single_epoch(cell: str, method: str, device: torch.device) -> Task:
    return graph_training(cell, method, device).train_epoch


def _stacked_epoch(cell: str, method: str, seeds: int, device: torch.device) -> Task:
    run = stacked_trainings(cell, method, range(seeds), device)

    def epoch() -> None:
        with check_nowhere():  # as in the engine: a NaN of one member must not stop the others
            run.train_epoch()

    return epoch


def _model_config(cell: str) -> GCNConfig:
    model = graph_run(cell, "lorentz").model
    if not isinstance(model, GCNConfig):
        raise ValueError(f"{cell} is not a task of lorentz_gcn; use e.g. disease/lp")
    return model


def _shape(cell: str) -> dict[str, int]:
    """Return depth and width; where the recipe has none, they are the model's defaults."""
    model = _model_config(cell)
    return {"layers": model.num_layers or 3, "width": model.hidden or 16}


def _pyg_epoch(cell: str, device: torch.device) -> Task:
    """Return the same epoch as a user of PyG would write it, with its GCN and torch's Adam."""
    import torch_geometric.nn

    loaded = load(graph_run(cell, "euclidean").task)
    if isinstance(loaded, ImageTask | DatasetTask | HierarchyTask | TextTask):
        raise ValueError(f"{cell} is not a graph task; use e.g. disease/lp")
    task = loaded.to(device)
    shape = _shape(cell)
    out = shape["width"] if isinstance(task, LinkTask) else task.num_classes
    dropout = _model_config(cell).dropout or 0.0
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
