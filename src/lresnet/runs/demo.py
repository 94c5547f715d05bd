"""The demo: every residual connection on an epidemic on a tree, which needs no file, and one embedding to look at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lresnet.data import LinkTask, disease_tree
from lresnet.models import LorentzGCN
from lresnet.residual.registry import compared_methods
from lresnet.runs.workers import worker_pool
from lresnet_paper.run import Run, complete, execute, graph_task
from lresnet_paper.search import recipe

__all__ = ["DEMO_CELLS", "DEMO_SEEDS", "Embedding", "demo_runs", "learn_embedding", "run_demo"]

DEMO_CELLS = ("disease_tree/lp", "disease_tree/nc")
DEMO_SEEDS = (0, 1, 2, 3, 4)


@dataclasses.dataclass(frozen=True)
class Embedding:
    """The tree as a network with a hyperbolic plane as its space has learned it from link prediction."""

    points: NDArray[np.float64]
    """[N, 2], in the unit Poincaré disk."""
    edges: NDArray[np.int64]
    """[2, E], parent and child; the edges of the training graph, then those held out."""
    seen: int
    """How many of the edges were in the training graph."""
    depth: NDArray[np.int64]
    """[N], number of edges to the root, which is node 0."""
    labels: NDArray[np.int64]
    """[N], 1: ever infected."""
    validation: float
    """Mean of ROC AUC and average precision, percent."""


def demo_runs(methods: Sequence[str] = compared_methods(), seeds: Sequence[int] = DEMO_SEEDS) -> list[Run]:
    """Both tasks, all methods, all seeds, each method with the settings that the recipe names as chosen for it."""
    runs = []
    for cell in DEMO_CELLS:
        plan = recipe("demo", cell)
        configs = {method: complete(plan, method, plan["chosen"][method]) for method in methods}
        runs += [
            Run("demo", cell, method, plan["protocol"], seed, configs[method]) for seed in seeds for method in methods
        ]
    return runs


def run_demo(
    runs: Sequence[Run], *, workers: int = 2, report: Callable[[dict[str, Any]], None] | None = None
) -> tuple[list[dict[str, Any]], Embedding]:
    """The results of ``runs`` in their order, and the embedding; ``report`` is called with each result as it comes."""
    with worker_pool(workers) as pool:
        embedding = pool.submit(learn_embedding)
        futures = [pool.submit(_record, run) for run in runs]
        for future in as_completed(futures):
            if report is not None:
                report(future.result())
        return [future.result() for future in futures], embedding.result()


def learn_embedding(seed: int = 0, epochs: int | None = None) -> Embedding:
    """Link prediction with the Lorentz residual in two dimensions: nothing is projected or reduced for the picture."""
    plan = recipe("demo", "disease_tree/lp")
    config = complete(plan, "lorentz", plan["chosen"]["lorentz"]) | {"hidden": 2}
    if epochs is not None:
        config["epochs"] = epochs
    run = Run("demo", "disease_tree/lp", "lorentz", plan["protocol"], seed, config, stage="search")
    record, model = execute(run, command="lresnet demo")
    assert isinstance(model, LorentzGCN)
    task = graph_task(run)
    assert isinstance(task, LinkTask)
    with torch.no_grad():
        z = model(task.x, task.edge_index).double()
        points = model.manifold.to_poincare(z) * model.manifold.kappa.double().sqrt()
    edges = torch.cat([task.train_edges, task.val_edges, task.test_edges], dim=1).numpy()
    tree = disease_tree()
    assert tree.labels is not None
    return Embedding(
        points.numpy(),
        edges,
        task.train_edges.shape[1],
        _depth(tree.edges.numpy()),
        tree.labels.numpy(),
        record["validation"],
    )


def _record(run: Run) -> dict[str, Any]:
    return execute(run, command="lresnet demo")[0]


def _depth(edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Edges come parent first and sorted, and a parent has a lower number than its children."""
    depth = np.zeros(edges.max() + 1, dtype=np.int64)
    for parent, child in edges.T:
        depth[child] = depth[parent] + 1
    return depth
