"""The demo's runs and its embedding."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lresnet import Lorentz
from lresnet.data import disease_tree, load_task
from lresnet.metrics import roc_auc
from lresnet.residual.registry import compared_methods
from lresnet.runs.demo import DEMO_SEEDS, DEMO_TASKS, TreeEmbedding, demo_runs, learn_embedding, run_demo


def test_all_methods_both_tasks_five_seeds() -> None:
    runs = demo_runs()
    assert len(DEMO_SEEDS) == 5
    assert [(run.task.name, run.train.seed, run.model.residual) for run in runs] == [
        (task, seed, method) for task in DEMO_TASKS for seed in DEMO_SEEDS for method in compared_methods()
    ]
    assert len(set(runs)) == len(runs) == 60


@pytest.mark.parametrize("task", DEMO_TASKS)
def test_all_methods_have_the_same_budget(task: str) -> None:
    """Only the searched settings and the activation of the Euclidean baseline differ."""
    runs = [run for run in demo_runs() if run.task.name == task]
    assert len({(run.model.hidden, run.model.num_layers, run.train.epochs, run.task.features) for run in runs}) == 1


@pytest.fixture(scope="module")
def embedding() -> TreeEmbedding:
    return learn_embedding(epochs=20)


def test_the_embedding_is_the_tree_in_the_disk(embedding: TreeEmbedding) -> None:
    tree = disease_tree()
    assert embedding.points.shape == (1000, 2)
    assert (np.linalg.norm(embedding.points, axis=1) < 1).all()
    assert {tuple(edge) for edge in embedding.edges.T} == {tuple(edge) for edge in tree.edges.T.tolist()}
    assert embedding.seen == load_task("disease_tree/lp", seed=0).train_edges.shape[1]
    np.testing.assert_array_equal(embedding.depth[embedding.edges[1]], embedding.depth[embedding.edges[0]] + 1)
    assert embedding.depth[0] == 0
    np.testing.assert_array_equal(embedding.labels, tree.labels)


def test_distances_in_the_picture_are_those_that_were_validated(embedding: TreeEmbedding) -> None:
    task = load_task("disease_tree/lp", seed=0, features="standardised")
    M = Lorentz(-1.0)
    x = M.from_poincare(torch.from_numpy(embedding.points))
    pairs = torch.cat([task.val_edges, task.val_negatives], dim=1)
    labels = torch.arange(pairs.shape[1]) < task.val_edges.shape[1]
    auc = 100 * float(roc_auc(-M.dist(x[pairs[0]], x[pairs[1]]), labels))
    # validation is the mean of ROC AUC and average precision; both are at most 100.
    assert embedding.validation - 1e-3 <= (auc + 100) / 2
    assert auc > 50


@pytest.mark.slow
def test_workers_give_the_results_in_order_and_the_embedding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run for run in demo_runs(["euclidean"], seeds=[0, 1]) if run.task.name == "disease_tree/nc"]
    seen = []
    records, embedding = run_demo(runs, workers=2, report=seen.append)
    assert [(r.method, r.seed) for r in records] == [("euclidean", 0), ("euclidean", 1)]
    assert sorted(r.seed for r in seen) == [0, 1]
    assert all(50 < r.value <= 100 and r.metrics["f1_binary"] == r.value for r in records)
    assert embedding.validation > 90  # of a trained network: two dimensions are enough for a tree
