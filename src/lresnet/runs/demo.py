"""The demo: every residual connection on an epidemic on a tree, which needs no file, and one embedding to draw."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed

import numpy as np
import torch
from numpy.typing import NDArray

from lresnet.data import LinkTask, disease_tree
from lresnet.models import LorentzGCN
from lresnet.residual.registry import compared_methods
from lresnet.runs.config import RunConfig
from lresnet.runs.presets import run_config
from lresnet.runs.record import RunRecord
from lresnet.runs.training import fit
from lresnet.runs.workers import worker_pool

__all__ = ["DEMO_SEEDS", "DEMO_TASKS", "TreeEmbedding", "demo_runs", "learn_embedding", "run_demo"]

DEMO_TASKS = ("disease_tree/lp", "disease_tree/nc")
DEMO_SEEDS = (0, 1, 2, 3, 4)


@dataclasses.dataclass(frozen=True)
class TreeEmbedding:
    """The tree as a network with a two-dimensional hyperbolic space embeds it after link prediction."""

    points: NDArray[np.float64]
    """[N, 2], in the unit Poincaré disk."""
    edges: NDArray[np.int64]
    """[2, E], parent and child; first the edges of the training graph, then those held out."""
    seen: int
    """Number of edges in the training graph."""
    depth: NDArray[np.int64]
    """[N], number of edges to the root, which is node 0."""
    labels: NDArray[np.int64]
    """[N], 1 for a node that was ever infected."""
    validation: float
    """Mean of ROC AUC and average precision, percent."""


def demo_runs(methods: Sequence[str] = compared_methods(), seeds: Sequence[int] = DEMO_SEEDS) -> list[RunConfig]:
    """Return both tasks with every method and seed, each method with its preset."""
    return [run_config(task, method, seed=seed) for task in DEMO_TASKS for seed in seeds for method in methods]


def run_demo(
    runs: Sequence[RunConfig], *, workers: int = 2, report: Callable[[RunRecord], None] | None = None
) -> tuple[list[RunRecord], TreeEmbedding]:
    """Return the records of ``runs`` in their order, and the embedding; ``report`` is called as each run finishes."""
    with worker_pool(workers) as pool:
        embedding = pool.submit(learn_embedding)
        futures = [pool.submit(_record, run) for run in runs]
        for future in as_completed(futures):
            if report is not None:
                report(future.result())
        return [future.result() for future in futures], embedding.result()


def learn_embedding(seed: int = 0, epochs: int | None = None) -> TreeEmbedding:
    """Train link prediction with the Lorentz residual in two dimensions, so that the picture needs no projection."""
    settings = {"hidden": 2} if epochs is None else {"hidden": 2, "epochs": epochs}
    config = run_config("disease_tree/lp", "lorentz", seed=seed, settings=settings)
    run = fit(config.task, config.model, config.train, device="cpu")
    model, task = run.model, run.task
    assert isinstance(model, LorentzGCN)
    assert isinstance(task, LinkTask)
    assert run.record.validation is not None
    with torch.no_grad():
        z = model(task.x, task.edge_index).double()
        points = model.manifold.to_poincare(z) * model.manifold.kappa.double().sqrt()
    edges = torch.cat([task.train_edges, task.val_edges, task.test_edges], dim=1).numpy()
    tree = disease_tree()
    assert tree.labels is not None
    return TreeEmbedding(
        points.numpy(),
        edges,
        task.train_edges.shape[1],
        _depth(tree.edges.numpy()),
        tree.labels.numpy(),
        run.record.validation,
    )


def _record(config: RunConfig) -> RunRecord:
    run = fit(config.task, config.model, config.train, device="cpu")
    run.evaluate()
    return run.record


def _depth(edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the depth of each node; edges are sorted, parent first, and a parent precedes its children."""
    depth = np.zeros(edges.max() + 1, dtype=np.int64)
    for parent, child in edges.T:
        depth[child] = depth[parent] + 1
    return depth
