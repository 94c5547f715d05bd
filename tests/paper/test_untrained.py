"""Untrained scores of pairs of nodes: their formulas, the choice on validation pairs, and the lines of results."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lresnet.data import LinkTask
from lresnet.runs.demo import home_scores
from lresnet.train.results import read_results
from lresnet_paper.__main__ import main
from lresnet_paper.results import aggregate, is_run
from lresnet_paper.untrained import SCORE_LABELS, SCORES, PairScores, best_untrained, link_cells, untrained_runs

RESULTS = Path(__file__).parents[2] / "results"


def small_task() -> LinkTask:
    """Return a path 0 - 1 - 2 - 3 of training edges and node 4 without edges; the second column tells edges apart."""
    train = torch.tensor([[0, 1, 2], [1, 2, 3]])
    return LinkTask(
        name="disease_tree/lp",
        x=torch.tensor([[1.0, 0.0], [0.0, 0.1], [1.0, 0.2], [3.0, 0.3], [0.0, 9.0]]),
        edge_index=torch.cat([train, train.flip(0)], dim=1),
        train_edges=train,
        val_edges=torch.tensor([[0], [2]]),
        val_negatives=torch.tensor([[1], [4]]),
        test_edges=torch.tensor([[0, 1], [3, 3]]),
        test_negatives=torch.tensor([[0, 3], [4, 4]]),
        num_nodes=5,
    )


def test_the_scores_are_those_of_dense_formulas() -> None:
    task = small_task()
    pairs = np.array([[0, 0, 1, 3], [2, 3, 3, 4]])
    scores, x = PairScores(task), task.x.double().numpy()
    adjacency = np.zeros((5, 5))
    adjacency[tuple(task.edge_index.numpy())] = 1
    degree = adjacency.sum(1)
    root = np.sqrt(np.maximum(degree, 1))
    S = adjacency / np.outer(root, root)
    i, j = pairs
    assert scores.hops(pairs) == pytest.approx((S @ S + S @ S @ S)[i, j])
    assert scores.degree(pairs).tolist() == np.maximum(degree[i], degree[j]).tolist()
    assert scores.feature_column(pairs, 1) == pytest.approx(-abs(x[i, 1] - x[j, 1]))
    assert scores.feature_distance(pairs) == pytest.approx(-np.linalg.norm(x[i] - x[j], axis=1))
    cosine = (x[i] * x[j]).sum(1) / (np.linalg.norm(x[i], axis=1) * np.linalg.norm(x[j], axis=1))
    assert scores.feature_cosine(pairs) == pytest.approx(cosine)


def test_a_node_without_features_or_neighbours_has_score_zero() -> None:
    task = small_task()
    task.x[4] = 0
    scores, pairs = PairScores(task), np.array([[0], [4]])
    assert (scores.feature_cosine(pairs)[0], scores.hops(pairs)[0]) == (0.0, 0.0)


def test_validation_pairs_choose_the_column_and_the_test_pairs_do_not() -> None:
    task = small_task()
    task.x[0, 0], task.x[3, 0] = 5.0, 5.0  # column 0 ranks one test pair first, and the validation pair last
    lines = {line["method"]: line for line in untrained_runs("disease_tree/lp", 0, command="c", task=task)}
    assert list(lines) == list(SCORES) == list(SCORE_LABELS)
    column = lines["feature_column"]
    assert column["config"] == {"score": "feature_column", "features": "raw", "column": 1, "columns": 2}
    assert (column["validation"], column["value"]) == (100.0, 100.0)
    assert all(is_run(line) for line in lines.values())


def test_the_best_score_is_chosen_by_validation() -> None:
    base = untrained_runs("disease_tree/lp", 0, command="c", task=small_task())
    high = [line | {"value": 99.0, "validation": 50.0} if line["method"] == "degree" else line for line in base]
    ((key, best),) = best_untrained(aggregate(high)).items()
    assert key == ("disease_tree/lp", "disjoint")
    assert best.method == "feature_column"


def test_the_command_writes_each_line_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "untrained.jsonl"
    for _ in range(2):
        assert main(["untrained", "--cells", "disease_tree/lp", "--out", str(out)]) == 0
        assert "feature_column" in capsys.readouterr().out
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert len(lines) == 5 * len(SCORES)
    own = [line for line in read_results(RESULTS / "untrained.jsonl") if line["cell"] == "disease_tree/lp"]
    known = {(line["method"], line["seed"]): line["value"] for line in own}
    assert {(line["method"], line["seed"]): line["value"] for line in lines} == pytest.approx(known, abs=1e-3)
    assert main(["untrained", "--cells", "disease_tree/nc", "--out", str(out)]) == 2


def test_the_demo_prints_the_same_figure_for_the_home_as_the_results() -> None:
    own = [
        line["value"]
        for line in read_results(RESULTS / "untrained.jsonl")
        if (line["cell"], line["method"]) == ("disease_tree/lp", "feature_column")
    ]
    assert home_scores() == pytest.approx(own, abs=1e-3)


def test_every_link_prediction_task_has_all_scores_in_results() -> None:
    lines = list(read_results(RESULTS / "untrained.jsonl"))
    found = {(line["cell"], line["method"]) for line in lines}
    assert found == {(cell, name) for cell in link_cells() for name in SCORES}
