"""Nearest points: the right ones, in the right order, at the right distances, without a table of all pairs."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
import torch

from lresnet.geometry import Lorentz, distance
from lresnet.runs.embedding import Embedding
from lresnet.runs.neighbours import find_node, hops_from, nearest


def embedding(points: torch.Tensor, manifold: Lorentz | None = None, **facts: object) -> Embedding:
    names = tuple(f"n{i}" for i in range(len(points)))
    return Embedding("points", "node", points, manifold, **{"names": names} | facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("curvature", [None, -0.5, -2.0])
def test_the_order_is_that_of_brute_force(curvature: float | None) -> None:
    torch.manual_seed(0)
    points = torch.randn(300, 5) * torch.tensor([0.1, 1.0, 30.0]).repeat(100)[:, None]
    wide = points.double()
    if curvature is None:
        distances = torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist")
    else:  # acosh of the Minkowski product, the textbook way, which float64 affords at these distances
        time = (wide.square().sum(-1) - 1 / curvature).sqrt()
        product = time[:, None] * time - wide @ wide.T
        distances = torch.acosh((-curvature * product).clamp(min=1)) / (-curvature) ** 0.5
    found = embedding(points, None if curvature is None else Lorentz(curvature))
    for item in (0, 1, 2, 299):
        expected = [i for i in distances[item].argsort().tolist() if i != item]
        near = nearest(found, item, 20)
        assert [one.number for one in near] == expected[:20]
        assert [one.distance for one in near] == pytest.approx(distances[item][expected[:20]].tolist(), rel=1e-6)
        assert near[0].name == f"n{expected[0]}"
        assert [one.number for one in nearest(found, points[item], 21)] == [item, *expected[:20]]


def test_equal_points_come_in_their_order_and_none_is_its_own_neighbour() -> None:
    found = embedding(torch.ones(5, 2), Lorentz())
    assert [(one.number, one.distance) for one in nearest(found, 3, 2)] == [(0, 0.0), (1, 0.0)]
    assert [one.number for one in nearest(found, 0, 99)] == [1, 2, 3, 4]


@pytest.mark.parametrize("manifold", [None, Lorentz(-0.5), Lorentz(-2.0, learnable=True)])
def test_the_search_returns_what_sorting_all_distances_returns(manifold: Lorentz | None) -> None:
    torch.manual_seed(0)
    points = torch.randn(400, 4) * 10.0 ** torch.linspace(-3, 2, 400)[:, None]
    found = embedding(torch.cat([points, points[::7]]), manifold)
    for item in (0, 14, 399, 401):
        distances = found.distances(found.points[item]).detach()
        order = [index for index in distances.argsort(stable=True).tolist() if index != item][:30]
        near = nearest(found, item, 30)
        assert [one.number for one in near] == order
        assert [one.distance for one in near] == distances[order].tolist()


def test_twenty_thousand_points_need_no_table_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    dist = distance.dist

    def counted(x: torch.Tensor, y: torch.Tensor, kappa: float, dim: int) -> torch.Tensor:
        shapes.append(y.shape)
        return dist(x, y, kappa, dim)

    monkeypatch.setattr(distance, "dist", counted)
    torch.manual_seed(0)
    near = nearest(embedding(torch.randn(20_000, 16), Lorentz()), 17, 3)
    assert len(near) == 3
    assert 3 < sum(math.prod(shape[:-1]) for shape in shapes) < 100


def test_a_number_may_be_numpy_s() -> None:
    points = embedding(torch.tensor([[0.0], [2.0], [1.0]]))
    assert [one.number for one in nearest(points, np.int64(0))] == [2, 1]


def test_hops_are_those_of_the_graph() -> None:
    graph = nx.gnm_random_graph(60, 55, seed=1)
    edges = np.array(list(graph.edges)).T
    assert nx.number_connected_components(graph) > 1
    paths = nx.single_source_shortest_path_length(graph, 3)
    assert hops_from(edges, 60, 3).tolist() == [paths.get(node, np.inf) for node in range(60)]
    found = embedding(torch.randn(60, 2), Lorentz(), edges=torch.from_numpy(edges))
    assert [one.hops for one in nearest(found, 3, 60)] == [paths.get(one.number) for one in nearest(found, 3, 60)]


def test_nodes_by_number_and_by_name() -> None:
    labels, classes = torch.arange(9) % 2, ("noun", "verb")
    words = ("dog", "cat", "run", "run", *["cut"] * 5)
    found = embedding(torch.zeros(9, 1), names=words, labels=labels, classes=classes)
    assert find_node(found, "1") == find_node(found, "cat") == 1
    with pytest.raises(
        ValueError, match=r"points has no node 'catt'; did you mean 'cat'\? Its nodes are numbered 0 to 8"
    ):
        find_node(found, "catt")
    with pytest.raises(ValueError, match="points has no node 'elephant'; its"):
        find_node(found, "elephant")
    with pytest.raises(ValueError, match=r"2 nodes are called 'run': 2 \(noun\), 3 \(verb\); use the number of one"):
        find_node(found, "run")
    assert find_node(found, "0") == 0
    for wrong in ("9", "-1"):
        with pytest.raises(ValueError, match=f"there is no node {wrong}; points has nodes 0 to 8"):
            find_node(found, wrong)


def test_many_nodes_of_one_name_are_not_all_listed() -> None:
    with pytest.raises(ValueError, match=r"7 nodes are called 'a': 0, 1, 2, 3, 4 and 2 more; use the number of one"):
        find_node(embedding(torch.zeros(7, 1), names=("a",) * 7), "a")


def test_fewer_than_one_neighbour_is_no_question() -> None:
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        nearest(embedding(torch.zeros(3, 1)), 0, 0)
    with pytest.raises(ValueError, match="there is no node 3"):
        nearest(embedding(torch.zeros(3, 1)), 3)
