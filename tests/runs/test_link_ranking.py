"""Ranked links of a run against brute force, and new graphs."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lresnet import Run, TrainConfig, create_model, fit
from lresnet.data import Graph, link_task, node_task
from lresnet.geometry import Lorentz
from lresnet.runs.link_ranking import links_as_csv, links_as_json, rank_links, read_pairs, score_pairs
from lresnet.runs.model_config import GCNConfig
from lresnet.runs.node_inputs import inputs_of_graph, inputs_of_run
from lresnet.runs.prediction import predict_nodes

NODES = 25
NAMES = tuple(f'no, "{number}" é' for number in range(NODES))


def _edges(seed: int = 0, nodes: int = NODES) -> np.ndarray:
    return np.random.default_rng(seed).integers(nodes, size=(2, 60))


def _graph(features: object = None, names: tuple[str, ...] = NAMES) -> Graph:
    return Graph.checked("friends", features, _edges(), names=names)


def _run(task: object, residual: str = "lorentz") -> Run:
    model = GCNConfig("lorentz_gcn", residual, hidden=6, num_layers=1, curvature=-0.5)
    return fit(task, model, TrainConfig(epochs=3, lr=0.02), device="cpu")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run() -> Run:
    return _run(link_task(_graph()))


def _distances(run: Run) -> torch.Tensor:
    points = inputs_of_run(run).points(run).double()
    kappa = run.model.manifold.kappa if hasattr(run.model, "manifold") else None  # type: ignore[union-attr]
    if kappa is None or getattr(run.model, "euclidean", False):
        return torch.cdist(points, points)
    space = Lorentz(-float(kappa))
    return space.dist(points[:, None], points[None])


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
@pytest.mark.parametrize("node", [None, 4])
def test_the_ranking_is_that_of_all_pairs_without_an_edge(run: Run, residual: str, node: int | None) -> None:
    run = run if residual == "lorentz" else _run(link_task(_graph()), residual)
    distance = _distances(run)
    known = {frozenset(pair) for pair in _edges().T.tolist()}
    pairs = [(i, j) for i in range(NODES) for j in range(i + 1, NODES) if frozenset((i, j)) not in known]
    pairs = pairs if node is None else [pair for pair in pairs if node in pair]
    expected = sorted(pairs, key=lambda pair: float(distance[pair]))
    ranking = rank_links(run, top=10, node=None if node is None else NAMES[node])
    assert ranking.candidates == len(pairs)
    found = [frozenset((link.first, link.second)) for link in ranking.links]
    assert found == [frozenset((NAMES[i], NAMES[j])) for i, j in expected[:10]]
    for link, pair in zip(ranking.links, expected, strict=False):
        assert link.distance == pytest.approx(float(distance[pair]), rel=1e-6)
        assert not link.known


def test_more_links_than_pairs_are_all_pairs(run: Run) -> None:
    ranking = rank_links(run, top=10_000)
    assert len(ranking.links) == ranking.candidates


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
def test_scores_are_those_of_predict(run: Run, residual: str) -> None:
    run = run if residual == "lorentz" else _run(link_task(_graph()), residual)
    pairs = torch.combinations(torch.arange(NODES)).T
    scores = run.predict(pairs)
    assert isinstance(scores, torch.Tensor)
    expected = {(NAMES[i], NAMES[j]): s for (i, j), s in zip(pairs.T.tolist(), scores.tolist(), strict=True)}
    ranking = score_pairs(run, pairs)
    assert len(ranking.links) == len(expected)
    for link in ranking.links:
        assert link.score == pytest.approx(expected[link.first, link.second], rel=1e-4, abs=1e-6)
    assert [link.score for link in ranking.links] == sorted((link.score for link in ranking.links), reverse=True)
    known = {frozenset((NAMES[i], NAMES[j])) for i, j in _edges().T.tolist() if i != j}
    assert {frozenset((link.first, link.second)) for link in ranking.links if link.known} == known
    assert score_pairs(run, pairs, top=3).links == ranking.links[:3]


def test_csv_and_json_keep_names_with_commas_and_quotes(run: Run) -> None:
    ranking = rank_links(run, top=5)
    rows = list(csv.DictReader(io.StringIO(links_as_csv(ranking))))
    content = json.loads(links_as_json(ranking))
    for link, row, entry in zip(ranking.links, rows, content["links"], strict=True):
        assert (row["first"], row["second"]) == (link.first, link.second) == (entry["first"], entry["second"])
        assert entry["distance"] == link.distance
        assert row["known"] == "false"
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5"]


def test_pairs_are_read_by_name_or_number_after_a_header(run: Run, tmp_path: Path) -> None:
    file, inputs = tmp_path / "pairs.csv", inputs_of_run(run)
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["from", "to"], [NAMES[3], NAMES[9]], ["4", NAMES[1]]])
    assert read_pairs(file, inputs).tolist() == [[3, 4], [9, 1]]
    for content, words in (
        (f'"{NAMES[3].replace(chr(34), chr(34) * 2)}",Bob\n', "line 1: friends/link has no node 'Bob'"),
        ("from,to\n1,99\n", "line 2: friends/link has no node '99'"),
        ("1\n2\n", "line 1: expected two nodes, found '1'"),
        ("from,to\n", "has no pairs of known nodes"),
    ):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
            read_pairs(file, inputs)
        assert words in str(caught.value)
    with pytest.raises(FileNotFoundError, match="--pairs names a file with two nodes per row"):
        read_pairs(tmp_path / "gone.csv", inputs)


def test_names_that_are_numbers_are_names_only() -> None:
    run = _run(link_task(_graph(names=tuple(str(100 + number) for number in range(NODES)))))
    assert inputs_of_run(run).number("103") == 3
    with pytest.raises(ValueError, match=r"has no node '3'; .*its names are numbers$"):
        inputs_of_run(run).number("3")
    with pytest.raises(ValueError, match=r"has no node '3'; .*its names are numbers$"):
        run.neighbours("3")


def test_a_number_of_thousands_of_digits_is_no_node() -> None:
    inputs = inputs_of_run(_run(link_task(_graph(names=NAMES))))
    assert inputs.number("0003") == 3
    with pytest.raises(ValueError, match="has no node '9999"):
        inputs.number("9" * 5000)


def test_a_name_of_two_nodes_is_refused_with_their_numbers() -> None:
    run = _run(link_task(_graph(names=("Ada", "Ada", *NAMES[2:]))))
    with pytest.raises(ValueError, match="2 nodes are called 'Ada': 0, 1; use the number of one"):
        rank_links(run, node="Ada")
    assert rank_links(run, node="1", top=1).links[0].first == "Ada"


def test_a_new_graph_with_features_is_prepared_as_in_training() -> None:
    rng = np.random.default_rng(0)
    trained = _graph(rng.normal(3, 2, (NODES, 4)))
    run = _run(link_task(trained))
    own = inputs_of_graph(run, trained)
    new = Graph.checked("new", rng.normal(0, 9, (30, 4)), _edges(1, 30), num_nodes=30)
    inputs = inputs_of_graph(run, new)
    assert trained.features is not None
    assert new.features is not None
    expected = (new.features - trained.features.mean(0)) / trained.features.std(0)
    np.testing.assert_allclose(inputs.x.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(own.x, run.task.x)  # type: ignore[union-attr]
    assert rank_links(run, top=4, inputs=inputs).source == "new"
    with pytest.raises(ValueError, match=r"new has no features, but the network of .* needs 4"):
        inputs_of_graph(run, Graph.checked("new", None, _edges(1, 30), num_nodes=30))
    with pytest.raises(ValueError, match="new has 3 features per node, but 4 are needed"):
        inputs_of_graph(run, Graph.checked("new", np.ones((30, 3)), _edges(1, 30)))


def test_learned_points_know_no_other_nodes(run: Run) -> None:
    with pytest.raises(ValueError, match=r"has one learned point for each node of .* and knows no other nodes; train"):
        inputs_of_graph(run, _graph())


def test_links_need_a_run_that_predicts_them_and_at_least_one(run: Run) -> None:
    labelled = Graph.checked("l", np.eye(NODES), _edges(), np.arange(NODES) % 2)
    with pytest.raises(ValueError, match="this needs one that predicts links"):
        rank_links(_run(node_task(labelled)))
    with pytest.raises(ValueError, match="top must be at least 1, got 0"):
        rank_links(run, top=0)
    with pytest.raises(ValueError, match="there is no node 99; friends/link has nodes 0 to 24"):
        score_pairs(run, torch.tensor([[0], [99]]))


def test_nodes_are_predicted_by_name() -> None:
    labelled = Graph.checked("l", np.eye(NODES), _edges(), ["even", "odd"] * 12 + ["even"], names=NAMES)
    run = _run(node_task(labelled))
    by_name, by_number = run.predict([NAMES[3], NAMES[7]]), predict_nodes(run, [3, 7])
    assert by_name == by_number
    assert by_number[0].name == NAMES[3]
    assert set(by_number[0].class_names) <= {"even", "odd"}


def test_a_nearby_pair_has_an_exact_score() -> None:
    """cosh(d) - 1 would lose a small distance to rounding."""
    features = 1e-7 * np.random.default_rng(0).normal(size=(NODES, 3))
    run = _run(link_task(_graph(features), features="raw"))
    links = rank_links(run, top=3).links
    assert 0 < links[-1].distance < 1e-5
    for link in links:
        assert link.score == pytest.approx(-(link.distance**2), rel=1e-6, abs=0)


def test_pyg_data_in_ten_lines() -> None:
    from torch_geometric.data import Data

    ring = torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40])
    data = Data(x=torch.randn(40, 5), edge_index=torch.cat([ring, ring.flip(0)], 1), y=torch.arange(40) % 2)
    task = node_task(data)
    model = create_model("lorentz_gcn", in_features=task.x.shape[1], num_classes=task.num_classes, hidden=4)
    run = fit(task, model, TrainConfig(epochs=2), device="cpu")
    assert list(run.evaluate()) == ["accuracy"]
    assert [one.name for one in run.predict([3, 4])] == ["3", "4"]  # type: ignore[union-attr]


def test_python_ranks_links_as_the_command_does() -> None:
    run = _run(link_task(_graph()))
    assert run.links(3) == rank_links(run, top=3).links
    assert run.links(2, node=4) == rank_links(run, top=2, node="4").links
