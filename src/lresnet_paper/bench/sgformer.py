"""A training epoch of ``lorentz_sgformer`` beside its Euclidean twin's: the table's graphs, WordNet, a random one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from lresnet.data import NodeTask
from lresnet.models import LorentzSGFormer
from lresnet.train import NodeClassification, TrainConfig, seed_everything
from lresnet_paper.bench.clock import Clock
from lresnet_paper.bench.entry import Entry, admit
from lresnet_paper.bench.graphs import epoch_entry
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.rounds import interleave, ratios, spread
from lresnet_paper.bench.runs import engine_run
from lresnet_paper.run import Run, build, graph_task

__all__ = ["FEATURES", "GRAPHS", "NEIGHBOURS", "RANDOM", "TABLE", "found_graphs", "measure_sgformer", "random_training"]

TABLE = ("chameleon", "squirrel", "actor")
GRAPHS = (*TABLE, "wordnet")
"""The table's, and one of 117,791 nodes."""
RANDOM = "random/10000"
"""A random graph of so many nodes, made on the spot."""
NEIGHBOURS, FEATURES, CLASSES, WIDTH, LAYERS = 8, 64, 5, 64, 3

# Depth, width and dropout of the released scripts, which have no WordNet.
_SHAPES: dict[str, dict[str, Any]] = {
    "chameleon": {"num_layers": 5, "hidden": 64},
    "squirrel": {"num_layers": 3, "hidden": 64, "dropout": 0.3},
    "actor": {"num_layers": 9, "hidden": 64, "dropout": 0.2},
    "wordnet": {"num_layers": 3, "hidden": 64},
}
_TWIN = "euclidean"


def found_graphs() -> list[str]:
    """Those of :data:`GRAPHS` whose data are here or can be fetched, and the random one."""
    found = []
    for cell in GRAPHS:
        try:
            graph_task(_run(cell, _TWIN))
        except OSError:
            continue
        found.append(cell)
    return [*found, RANDOM]


def measure_sgformer(
    cell: str, methods: Sequence[str], device: torch.device, clock: Clock, *, rounds: int
) -> list[Measurement]:
    """An epoch: forward, cross entropy, backward, optimiser; no look at the validation set.

    Args:
        cell: a name of :data:`GRAPHS`, or ``"random/NODES"``.
        methods: residuals; the Euclidean twin is always among them.
    """
    found: dict[str, Entry | str] = {}
    for method in dict.fromkeys([*methods, _TWIN]):
        found[method] = admit(epoch_entry, partial(_training, cell, method, device), device)
    entries = {method: entry for method, entry in found.items() if isinstance(entry, Entry)}
    seconds = interleave({method: entry.batches for method, entry in entries.items()}, clock, rounds)
    facts = {"clock": clock.name, "threads": torch.get_num_threads(), **_shape(cell)}
    measured = []
    for method, entry in found.items():
        case = "sgformer", cell, method, "engine", "training epoch"
        if isinstance(entry, str):
            measured.append(Measurement(*case, missing=entry))
            continue
        both = _TWIN in seconds and method != _TWIN
        faster = {_TWIN: ratios(seconds[_TWIN], seconds[method]).median} if both else {}
        measured.append(Measurement(*case, spread(seconds[method]), faster_than=faster, facts=facts))
    return measured


def random_training(nodes: int, method: str, device: torch.device) -> Any:
    """The engine's run on a random graph: the worst case for caches. Half of the nodes are trained on."""
    task = _random_task(nodes).to(device)
    seed_everything(0)
    model = LorentzSGFormer(FEATURES, WIDTH, LAYERS, CLASSES, residual=method).to(device)
    return engine_run(model, NodeClassification(task, device=device), TrainConfig())


def _training(cell: str, method: str, device: torch.device) -> Any:
    if cell.startswith("random/"):
        return random_training(int(cell.removeprefix("random/")), method, device).train_epoch
    return engine_run(*build(_run(cell, method), device)).train_epoch


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
