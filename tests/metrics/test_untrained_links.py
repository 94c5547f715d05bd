"""Untrained scores of links: against dense formulas, chosen on validation pairs only, and on graphs with hubs."""

import dataclasses

import numpy as np
import pytest
import torch

from lresnet.data import Graph, LinkTask, link_task
from lresnet.metrics import PairScores, UntrainedScore, best_untrained_score, untrained_link_scores
from lresnet.metrics import untrained_links as module
from lresnet.models import LorentzGCN
from lresnet.train import LinkPrediction


def small_task(**changes: object) -> LinkTask:
    """Return a path 0 - 1 - 2 - 3 of training edges and node 4 without edges; the second column tells edges apart."""
    train = torch.tensor([[0, 1, 2], [1, 2, 3]])
    task = LinkTask(
        name="path/link",
        x=torch.tensor([[1.0, 0.0], [0.0, 0.1], [1.0, 0.2], [3.0, 0.3], [0.0, 9.0]]),
        edge_index=torch.cat([train, train.flip(0)], dim=1),
        train_edges=train,
        val_edges=torch.tensor([[0], [2]]),
        val_negatives=torch.tensor([[1], [4]]),
        test_edges=torch.tensor([[0, 1], [3, 3]]),
        test_negatives=torch.tensor([[0, 3], [4, 4]]),
        num_nodes=5,
    )
    return dataclasses.replace(task, **changes)  # type: ignore[arg-type]


def weighted_task(seed: int = 0, nodes: int = 30) -> LinkTask:
    """Return a random graph with weights, features (a third of them zero) and one node without edges."""
    rng = np.random.default_rng(seed)
    low, high = np.triu_indices(nodes - 1, 1)
    kept = rng.permutation(low.size)[:90]
    edges = torch.from_numpy(np.stack([low[kept], high[kept]]))
    weights = torch.from_numpy(rng.uniform(0.5, 3, 60))
    train, val, test = edges[:, :60], edges[:, 60:75], edges[:, 75:]
    others = torch.from_numpy(rng.integers(0, nodes, (2, 30)))
    x = torch.from_numpy(rng.normal(size=(nodes, 4)) * (rng.random((nodes, 4)) > 0.3)).float()
    return LinkTask(
        name="random/link",
        x=x,
        edge_index=torch.cat([train, train.flip(0)], dim=1),
        train_edges=train,
        val_edges=val,
        val_negatives=others[:, :15],
        test_edges=test,
        test_negatives=others[:, 15:],
        num_nodes=nodes,
        edge_weight=torch.cat([weights, weights]),
    )


@pytest.mark.parametrize("entries", [4_000_000, 7])
def test_the_scores_are_those_of_dense_formulas(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ENTRIES", entries)  # 7: nearly every pair is a chunk of its own
    task = weighted_task()
    n = task.num_nodes
    pairs = np.stack(np.triu_indices(n))[:, ::2]
    i, j = pairs
    W = np.zeros((n, n))
    assert task.edge_weight is not None
    W[tuple(task.edge_index.numpy())] = task.edge_weight.numpy()
    A, strength = (W > 0).astype(float), W.sum(1)
    root = np.sqrt(np.where(strength > 0, strength, 1))
    S = W / np.outer(root, root)
    scores, x = PairScores(task), task.x.double().numpy()
    assert scores.hops(pairs) == pytest.approx((S @ S + S @ S @ S)[i, j], abs=1e-12)
    assert scores.common_neighbours(pairs).tolist() == (A @ A)[i, j].tolist()
    assert scores.degree(pairs).tolist() == np.maximum(A.sum(1)[i], A.sum(1)[j]).tolist()
    assert scores.feature_column(pairs, 1).tolist() == (-abs(x[i, 1] - x[j, 1])).tolist()
    assert scores.feature_column(pairs, 1, sign=1).tolist() == abs(x[i, 1] - x[j, 1]).tolist()
    assert scores.feature_distance(pairs) == pytest.approx(-np.linalg.norm(x[i] - x[j], axis=1))
    lengths = np.linalg.norm(x[i], axis=1) * np.linalg.norm(x[j], axis=1)
    cosine = np.divide((x[i] * x[j]).sum(1), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    assert scores.feature_cosine(pairs) == pytest.approx(cosine)


def test_the_direction_of_messages_and_self_loops_do_not_matter() -> None:
    task = weighted_task()
    assert task.edge_weight is not None
    one_way = dataclasses.replace(
        task,
        edge_index=torch.cat([task.train_edges, torch.tensor([[3], [3]])], dim=1),
        edge_weight=torch.cat([task.edge_weight[:60], torch.ones(1, dtype=torch.float64)]),
    )
    assert untrained_link_scores(one_way) == untrained_link_scores(task)


def test_links_of_a_directed_graph_have_scores() -> None:
    ring = torch.stack([torch.arange(60), (torch.arange(60) + 1) % 60])
    edges = torch.cat([ring, ring[:, :5].flip(0)], dim=1)
    task = link_task(Graph.checked("ring", None, edges, num_nodes=60, directed=True))
    scores = {one.name: one for one in untrained_link_scores(task)}
    assert set(scores) == {"common_neighbours", "hops", "degree"}  # a learned point per node is no raw feature
    assert PairScores(task).degrees.max() == 2  # both directions of an edge are one neighbour


def test_a_node_without_features_or_neighbours_has_score_zero() -> None:
    task = small_task()
    task.x[4] = 0
    scores, pairs = PairScores(task), np.array([[0], [4]])
    assert (scores.feature_cosine(pairs)[0], scores.hops(pairs)[0]) == (0.0, 0.0)


def test_validation_pairs_choose_and_the_test_pairs_do_not() -> None:
    task = small_task()
    task.x[:, 0] = torch.tensor([5.0, 0.0, 0.0, 5.0, 5.0])  # tells test pairs apart, but no validation pairs
    found = untrained_link_scores(task)
    column = next(one for one in found if one.name == "feature_column")
    assert (column.column, column.sign, column.validation, column.value) == (1, -1, 100.0, 100.0)
    without = small_task(x=task.x, test_edges=None, test_negatives=None)
    swapped = small_task(x=task.x, test_edges=task.test_negatives, test_negatives=task.test_edges)
    unread = [dataclasses.replace(one, metrics=None) for one in found]
    assert untrained_link_scores(without, test=False) == unread  # nothing of the test part is needed
    other = untrained_link_scores(swapped)
    assert [dataclasses.replace(one, metrics=None) for one in other] == unread
    assert [one.value for one in other] == pytest.approx([100 - (one.value or 0) for one in found])


def test_a_column_in_which_linked_nodes_differ_has_a_positive_sign() -> None:
    x = torch.tensor([[0.0], [1.0], [7.0], [9.0], [1.0]])  # the validation edge 0 - 2 differs, the pair 1 - 4 does not
    column = next(one for one in untrained_link_scores(small_task(x=x)) if one.name == "feature_column")
    assert (column.sign, column.validation, column.label) == (1, 100.0, "one raw feature (column 0)")


def test_the_informative_column_is_found_among_many() -> None:
    rng = np.random.default_rng(0)
    task = weighted_task()
    x = rng.normal(size=(task.num_nodes, 200))
    pairs = torch.cat([task.val_edges, task.val_negatives], dim=1).numpy()
    own = PairScores(task, x)
    auc = [module._roc_auc(own.feature_column(pairs, k)[:, None], 15)[0] for k in range(200)]
    expected = [float(module._selection("roc_auc", own.feature_column(pairs, k), 15)) / 100 for k in range(200)]
    assert auc == pytest.approx(expected)
    column, sign = own.best_column(pairs, 15, "roc_auc")
    best = max(max(auc), 1 - min(auc))
    assert module._selection("roc_auc", own.feature_column(pairs, column, sign), 15) == pytest.approx(100 * best)


@pytest.mark.parametrize("metric", [None, "roc_auc", "average_precision", "mrr", "hits@3"])
def test_metrics_and_selection_are_those_of_a_trained_network(metric: str | None) -> None:
    task = dataclasses.replace(weighted_task(), metric=metric)
    model, objective = LorentzGCN(4, hidden=3).eval(), LinkPrediction(task)
    for one in untrained_link_scores(task):
        assert one.metrics is not None
        assert list(one.metrics) == list(objective.test(model))

    def negative_distance(pairs: torch.Tensor) -> np.ndarray:
        return objective._scores(model, pairs, pairs)[0][: pairs.shape[1]].detach().double().numpy()

    with torch.no_grad():
        val = np.concatenate([negative_distance(task.val_edges), negative_distance(task.val_negatives)])
        expected = 100 * float(objective.validation(model))
    assert module._selection(metric, val, 15) == pytest.approx(expected)
    tested = np.concatenate([negative_distance(task.test_edges), negative_distance(task.test_negatives)])
    assert module._metrics(metric, tested, 15) == pytest.approx(objective.test(model))


def test_a_star_with_many_leaves_needs_no_square_of_its_matrix() -> None:
    leaves = 20_000  # the square of the adjacency matrix has 4e8 entries, 5 GB
    train = torch.stack([torch.zeros(leaves, dtype=torch.int64), torch.arange(1, leaves + 1)])
    some = torch.arange(1, 41)
    task = LinkTask(
        name="star/link",
        x=torch.ones(leaves + 1, 1),
        edge_index=torch.cat([train, train.flip(0)], dim=1),
        train_edges=train,
        val_edges=torch.stack([some, torch.zeros_like(some)]),
        val_negatives=torch.stack([some, some + 1]),
        test_edges=torch.stack([some, torch.zeros_like(some)]),
        test_negatives=torch.stack([some, some + 1]),
        num_nodes=leaves + 1,
    )
    scores = PairScores(task)
    assert scores.hops(task.val_negatives.numpy()) == pytest.approx(np.full(40, 1 / leaves))
    assert scores.hops(task.val_edges.numpy()) == pytest.approx(np.full(40, leaves**-0.5))


def test_too_many_paths_leave_the_hop_counts_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PATHS", 10)
    assert "hops" not in {one.name for one in untrained_link_scores(weighted_task())}


def test_features_of_another_graph_are_refused() -> None:
    with pytest.raises(ValueError, match="features have 3 rows for 5 nodes"):
        PairScores(small_task(), np.ones((3, 2)))


def test_a_score_survives_its_json_values() -> None:
    score = UntrainedScore("feature_column", 98.41286, {"roc_auc": 97.71449}, 5, -1)
    assert UntrainedScore(**score.as_dict()) == UntrainedScore("feature_column", 98.4129, {"roc_auc": 97.7145}, 5, -1)
    assert best_untrained_score([UntrainedScore("hops", 60.0), score]) is score


@pytest.mark.slow
def test_a_graph_of_100_000_nodes_and_a_million_edges_has_all_scores() -> None:
    rng = np.random.default_rng(0)
    n = 100_000
    nodes = np.arange(n).repeat(10)
    task = link_task((torch.from_numpy(np.stack([nodes, (nodes + rng.integers(1, 60, 10 * n)) % n])), n))
    found = {one.name: one.value or 0.0 for one in untrained_link_scores(task, rng.random((n, 20)))}
    assert len(found) == 6
    assert found["hops"] > 99  # neighbours on a thick ring have many neighbours in common
    assert abs(found["feature_cosine"] - 50) < 1
