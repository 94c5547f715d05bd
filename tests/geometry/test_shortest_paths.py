"""Hop distances of all pairs and the diameter, compared with a matrix of all paths."""

import numpy as np
import pytest

from lresnet.geometry import shortest_paths
from lresnet.geometry.delta import delta_hyperbolicity
from tests.geometry.graphs import cycle, grid, hop_matrix, random_graph


@pytest.mark.parametrize(
    ("edges", "dtype"),
    [
        (random_graph(300, 200), np.uint8),
        (random_graph(130, 2000), np.uint8),
        (grid(9), np.uint8),
        (cycle(320), np.uint16),
    ],
    ids=["sparse", "dense", "grid", "many levels"],
)
def test_hop_distances(edges, dtype):
    n = int(edges.max()) + 1
    d = shortest_paths.all_pairs(shortest_paths.largest_component(*edges.numpy(), n))
    assert d.dtype == dtype
    assert (d == hop_matrix(edges.T.tolist(), n)).all()


def test_breadth_first_search_of_distances_above_255():
    component = shortest_paths.largest_component(*cycle(700).numpy(), 700)
    assert (
        shortest_paths._breadth_first(component, np.array([5, 699]))[[5, 355, 698]] == [[0, 6], [350, 344], [7, 1]]
    ).all()


@pytest.mark.parametrize("edges", [random_graph(400, 40), random_graph(400, 900), cycle(401), grid(20)])
def test_pooled_diameter_is_exact(edges):
    whole = delta_hyperbolicity(edges)
    pooled = delta_hyperbolicity(edges, samples=500, memory=1000)
    assert pooled.diameter_is_exact
    assert pooled.diameter == whole.diameter
    assert pooled.pool_nodes < 40
    assert f"pool of {pooled.pool_nodes}" in str(pooled)


def test_diameter_from_a_few_searches_is_exact():
    for seed in range(40):
        edges = random_graph(300, 30 * (seed % 8 + 1), seed)
        component = shortest_paths.largest_component(*edges.numpy(), 300)
        bounds = shortest_paths.EccentricityBounds(300)
        d = shortest_paths.all_pairs(component)
        bounds.update(d[:, seed : seed + 2])
        assert (bounds.lower <= d.max(axis=0)).all()
        assert (bounds.upper >= d.max(axis=0)).all()
        assert shortest_paths.diameter(component, bounds) == (d.max(), True)


@pytest.mark.parametrize("n", [7, 8])
def test_bounds_that_differ_by_one_are_not_exact(n):
    component = shortest_paths.largest_component(*cycle(n).numpy(), n)
    bounds = shortest_paths.EccentricityBounds(n)
    bounds.lower[:], bounds.upper[:] = (2, 3) if n == 7 else (4, 5)
    assert shortest_paths.diameter(component, bounds) == (n // 2, True)


def test_diameter_beyond_the_budget_is_an_upper_bound(monkeypatch):
    monkeypatch.setattr(shortest_paths, "_DIAMETER_SOURCES", 0)
    edges = cycle(501)
    result = delta_hyperbolicity(edges, memory=0)
    assert not result.diameter_is_exact
    assert delta_hyperbolicity(edges).diameter < result.diameter <= 500
    assert result.upper_bound == result.diameter / 2
    assert "diameter at most" in str(result)
