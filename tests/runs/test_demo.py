"""The demo's runs and its embedding."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lresnet import Lorentz
from lresnet.data import disease_tree, load_task
from lresnet.metrics import roc_auc
from lresnet.residual.registry import compared_methods
from lresnet.runs.demo import DEMO_CELLS, DEMO_SEEDS, Embedding, demo_runs, learn_embedding, run_demo
from lresnet_paper.planned_runs import SEARCH_SEEDS
from lresnet_paper.search import draw, recipe


def test_all_methods_both_tasks_five_seeds() -> None:
    runs = demo_runs()
    assert len(DEMO_SEEDS) == 5
    assert {(run.cell, run.method, run.seed) for run in runs} == {
        (cell, method, seed) for cell in DEMO_CELLS for method in compared_methods() for seed in DEMO_SEEDS
    }
    assert len({run.key() for run in runs}) == len(runs) == 60
    assert all(run.stage == "final" for run in runs)


@pytest.mark.parametrize("cell", DEMO_CELLS)
def test_settings_were_drawn_and_chosen_on_other_seeds(cell: str) -> None:
    plan = recipe("demo", cell)
    assert plan["configurations"] == draw(plan["space"], plan["count"], plan["seed"])
    assert plan["chosen"].keys() == set(compared_methods())
    assert all(chosen in plan["configurations"] for chosen in plan["chosen"].values())
    assert not set(DEMO_SEEDS) & set(SEARCH_SEEDS)
    # The same budget for all: only what the search chose and the twin's nonlinearity differ.
    configs = [run.config for run in demo_runs() if run.cell == cell]
    for name in ("hidden", "num_layers", "epochs", "features"):
        assert len({config[name] for config in configs}) == 1


@pytest.fixture(scope="module")
def embedding() -> Embedding:
    return learn_embedding(epochs=20)


def test_the_embedding_is_the_tree_in_the_disk(embedding: Embedding) -> None:
    tree = disease_tree()
    assert embedding.points.shape == (1000, 2)
    assert (np.linalg.norm(embedding.points, axis=1) < 1).all()
    assert {tuple(edge) for edge in embedding.edges.T} == {tuple(edge) for edge in tree.edges.T.tolist()}
    assert embedding.seen == load_task("disease_tree/lp", seed=0).train_edges.shape[1]
    np.testing.assert_array_equal(embedding.depth[embedding.edges[1]], embedding.depth[embedding.edges[0]] + 1)
    assert embedding.depth[0] == 0
    np.testing.assert_array_equal(embedding.labels, tree.labels)


def test_distances_in_the_picture_are_those_that_were_validated(embedding: Embedding) -> None:
    task = load_task("disease_tree/lp", seed=0, features="standardised")
    M = Lorentz(-1.0)
    x = M.from_poincare(torch.from_numpy(embedding.points))
    pairs = torch.cat([task.val_edges, task.val_negatives], dim=1)
    labels = torch.arange(pairs.shape[1]) < task.val_edges.shape[1]
    auc = 100 * float(roc_auc(-M.dist(x[pairs[0]], x[pairs[1]]), labels))
    # validation is the mean of ROC AUC and average precision; both are at most 100.
    assert embedding.validation - 1e-3 <= (auc + 100) / 2
    assert auc > 50


def test_workers_give_the_results_in_order_and_the_embedding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run for run in demo_runs(["euclidean"], seeds=[0, 1]) if run.cell == "disease_tree/nc"]
    seen = []
    records, embedding = run_demo(runs, workers=2, report=seen.append)
    assert [(r["method"], r["seed"]) for r in records] == [("euclidean", 0), ("euclidean", 1)]
    assert sorted(r["seed"] for r in seen) == [0, 1]
    assert all(50 < r["value"] <= 100 and r["metrics"]["f1_binary"] == r["value"] for r in records)
    assert embedding.validation > 90  # of a trained network: two dimensions are enough for a tree
