"""Gromov's delta against brute force over all quadruples, known graphs, and the statistics of sampling."""

import tracemalloc
from dataclasses import FrozenInstanceError
from itertools import combinations
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from lresnet.geometry import delta
from lresnet.geometry.delta import Delta, delta_hyperbolicity
from tests.geometry.graphs import (
    brute_force,
    cycle,
    edge_index,
    grid,
    hop_matrix,
    largest_component,
    random_graph,
    shortest_path_closure,
    tree,
)

# ---------------------------------------------------------------- exact values


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 11), data=st.data())
def test_graphs_agree_with_brute_force(n, data):
    node = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=3 * n))
    component = largest_component(hop_matrix(edges, n))
    largest, mean = brute_force(component)
    result = delta_hyperbolicity(edge_index(edges), num_nodes=n)
    assert result.exact
    assert result.mean_interval is None
    assert (result.lower_bound, result.upper_bound) == (largest, largest)
    assert result.mean == pytest.approx(mean, abs=1e-12)
    assert result.diameter == component.max()
    assert result.quadruples == comb(len(component), 4)
    assert (result.nodes, result.dropped_nodes) == (len(component), n - len(component))


@settings(max_examples=40, deadline=None)
@given(n=st.integers(4, 12), seed=st.integers(0, 2**32 - 1), whole=st.booleans())
def test_metric_spaces_agree_with_brute_force(n, seed, whole):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 100, (n, n)) if whole else rng.exponential(size=(n, n))
    d = shortest_path_closure(lengths + lengths.T - 2 * np.diag(np.diag(lengths)))
    largest, mean = brute_force(d)
    result = delta_hyperbolicity(d)
    assert result.exact
    assert result.lower_bound == pytest.approx(largest, abs=0 if whole else 1e-14)
    assert result.mean == pytest.approx(mean, rel=1e-12)
    assert result.diameter == d.max()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_distances_of_any_dtype(dtype):
    d = torch.from_numpy(hop_matrix(grid(4).T.tolist(), 16)).to(dtype)
    assert delta_hyperbolicity(d).lower_bound == 3
    assert delta_hyperbolicity(d.tolist()).lower_bound == 3


def test_distances_with_rounding_and_a_gradient():
    points = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    d = torch.cdist(points, points, compute_mode="use_mm_for_euclid_dist")  # off the diagonal's zeros and symmetry
    exact = torch.cdist(points.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist")
    expected = delta_hyperbolicity(exact).lower_bound
    assert delta_hyperbolicity(d).lower_bound == pytest.approx(expected, rel=1e-3)
    assert delta_hyperbolicity(exact.bfloat16()).lower_bound == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("scale", [1, 31, 32, 63, 64, 127, 128, 2**13, 2**14, 2**15, 10**6, 10**12, 0.1])
def test_delta_scales_with_the_distances(scale):
    square = np.array([[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]])
    for samples in (None, 1):
        result = delta_hyperbolicity(square * scale, samples=samples)
        assert (result.lower_bound, result.diameter, result.relative) == (scale, 2 * scale, 1)


def test_quadruples_have_distinct_points():
    noise = 2.0**-30  # d(0, 1) exceeds d(0, 2) + d(2, 1) by so much: rounding, and not a delta
    d = np.zeros((4, 4))
    d[0, 1:], d[1, 2:], d[2, 3] = [2 + noise, 1, 6], [1, 6], 5 - noise
    assert delta_hyperbolicity(d + d.T).upper_bound == 0


# Cycles of 4k, 4k + 1, 4k + 2 and 4k + 3 nodes: k, k - 1/2, k, k.
@pytest.mark.parametrize("n", range(4, 30))
def test_cycle(n):
    result = delta_hyperbolicity(cycle(n))
    assert result.lower_bound == n // 4 - (0.5 if n % 4 == 1 else 0)
    assert result.diameter == n // 2
    assert result.relative == 2 * result.lower_bound / (n // 2)


@pytest.mark.parametrize("k", [2, 3, 5, 8])
def test_grid(k):
    result = delta_hyperbolicity(grid(k))
    assert (result.lower_bound, result.diameter, result.relative) == (k - 1, 2 * k - 2, 1)


def test_complete_graph():
    assert delta_hyperbolicity(edge_index(combinations(range(9), 2))).upper_bound == 0


@pytest.mark.parametrize("n", [4, 50, 20_000])
def test_a_tree_is_exactly_0_at_any_size(n):
    result = delta_hyperbolicity(tree(n), samples=7)
    assert (result.lower_bound, result.upper_bound, result.mean, result.mean_interval) == (0, 0, 0, None)


def test_tree_diameter():
    path = edge_index([(i, i + 1) for i in range(999)])
    assert delta_hyperbolicity(torch.randperm(1000)[path]).diameter == 999


def test_a_tree_given_by_distances_is_exactly_0():
    assert delta_hyperbolicity(hop_matrix(tree(60).T.tolist(), 60)).upper_bound == 0


def test_delta_of_two_graphs_joined_at_a_node_is_the_larger_one():
    joined = torch.cat([cycle(12), grid(3) + 11], dim=1)  # node 11 belongs to both
    assert delta_hyperbolicity(joined).lower_bound == 3


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_fewer_than_four_points(n):
    triangle = edge_index([(a, b) for a, b in [(0, 1), (1, 2), (0, 2)] if b < n])
    for result in [
        delta_hyperbolicity(triangle, num_nodes=n),
        delta_hyperbolicity(np.ones((n, n)) - np.eye(n)),
        delta_hyperbolicity(np.zeros((n, n))),
    ]:
        assert (result.lower_bound, result.upper_bound, result.mean, result.relative) == (0, 0, 0, 0)
        assert (result.quadruples, result.nodes) == (0, n)


def test_no_edges():
    result = delta_hyperbolicity(torch.zeros(2, 0, dtype=torch.int64), num_nodes=5)
    assert (result.upper_bound, result.nodes, result.dropped_nodes) == (0, 1, 4)


# ---------------------------------------------------------------- different inputs of the same space


def test_directions_self_loops_and_repeated_edges_are_ignored():
    edges = random_graph(30, 20)
    noisy = torch.cat([edges, edges.flip(0), edges, torch.arange(30).expand(2, 30)], dim=1)
    many_times = edges.repeat(1, 256)  # as many as would wrap a byte round to 0
    adjacency = sparse.coo_array((-np.ones(edges.shape[1]), tuple(edges.numpy())), shape=(30, 30))
    adjacency.data[0] = 0.25
    expected = delta_hyperbolicity(edges)
    assert expected.lower_bound > 0
    for same in [edges.numpy(), edges.int(), noisy, many_times, adjacency, adjacency.tocsr()]:
        assert delta_hyperbolicity(same) == expected


def test_an_explicit_zero_of_an_adjacency_matrix_is_no_edge():
    adjacency = sparse.coo_array(([1, 1, 1, 0], ([0, 1, 2, 3], [1, 2, 3, 0])), shape=(4, 4))
    assert delta_hyperbolicity(adjacency).diameter == 3


def test_two_by_two_is_an_edge_index_if_integer_and_distances_if_not():
    graph = delta_hyperbolicity(torch.tensor([[0, 3], [3, 0]]))
    points = delta_hyperbolicity(torch.tensor([[0.0, 3.0], [3.0, 0.0]]))
    assert (graph.nodes, graph.dropped_nodes, graph.diameter) == (2, 2, 1)
    assert (points.nodes, points.dropped_nodes, points.diameter) == (2, 0, 3)


# ---------------------------------------------------------------- sampling


def test_large_graphs_are_sampled():
    result = delta_hyperbolicity(random_graph(400, 300))
    assert (result.quadruples, result.pool_nodes) == (50_000, 400)
    assert not result.exact
    assert 0 < result.lower_bound < result.upper_bound == result.diameter / 2
    assert result.mean_interval[0] < result.mean < result.mean_interval[1]
    assert result.relative_mean == 2 * result.mean / result.diameter


def test_the_seed_determines_the_result_and_global_random_states_stay():
    edges = random_graph(400, 300)
    state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first, again, other = (delta_hyperbolicity(edges, samples=1000, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.mean != other.mean
    assert (np.random.get_state()[1] == state[0]).all()  # noqa: NPY002
    assert (torch.get_rng_state() == state[1]).all()


def test_as_many_samples_as_quadruples_enumerate_all(monkeypatch):
    monkeypatch.setattr("lresnet.geometry.delta._ENUMERATED_NODES", 12)
    d = hop_matrix(random_graph(12, 6).T.tolist(), 12)
    assert delta_hyperbolicity(d, samples=comb(12, 4)) == delta_hyperbolicity(d)
    assert delta_hyperbolicity(d, samples=comb(12, 4) - 1).mean_interval is not None
    beyond = cycle(13)
    assert delta_hyperbolicity(beyond, samples=comb(13, 4)).mean_interval is None
    assert delta_hyperbolicity(beyond).mean_interval is not None


def test_equal_bounds_are_exact_even_when_sampled():
    result = delta_hyperbolicity(cycle(8), samples=60)
    assert result.exact
    assert (result.lower_bound, result.quadruples) == (2, 60)
    assert result.mean_interval is not None


@pytest.mark.parametrize("memory", [2**29, 60**2], ids=["independent", "pooled"])
def test_coverage_of_the_interval_of_the_mean(memory):
    edges = random_graph(250, 60, seed=3)
    truth = delta_hyperbolicity(edges)
    results = [delta_hyperbolicity(edges, samples=400, seed=seed, memory=memory) for seed in range(200)]
    assert {r.pool_nodes for r in results} == {250 if memory > 250**2 else 60}
    assert all(r.lower_bound <= truth.lower_bound for r in results)
    assert {r.diameter for r in results} == {truth.diameter}
    covered = sum(r.mean_interval[0] <= truth.mean <= r.mean_interval[1] for r in results)
    assert 182 <= covered <= 199  # of 200: the central 99.9 % of a binomial with 0.95, and no interval of full width
    spread = np.std([r.mean for r in results]) / np.sqrt(len(results))
    assert np.mean([r.mean for r in results]) == pytest.approx(truth.mean, abs=4 * spread)


def test_equal_draws_do_not_give_an_interval_of_width_zero():
    edges = torch.cat([tree(40), cycle(4) + 39], dim=1)  # one square at the end of a tree
    d = hop_matrix(edges.T.tolist(), 43)
    result = delta_hyperbolicity(d, samples=100)
    assert result.mean == 0
    assert result.mean_interval == (0, pytest.approx(3 * d.max() / 2 / 100))
    assert delta_hyperbolicity(d, samples=1).mean_interval == (0, d.max() / 2)
    pooled = delta_hyperbolicity(edges, samples=100, memory=32**2)
    assert pooled.mean == 0
    assert 3 / 2 < pooled.mean_interval[1] <= 3 * d.max() / 2 / 8  # 8: the disjoint quadruples of a pool of 32


def test_drawn_quadruples_are_distinct_and_uniform():
    drawn = np.sort(delta._draw_distinct(6, 30_000, np.random.default_rng(0)), axis=0).T
    sets, counts = np.unique(drawn, axis=0, return_counts=True)
    assert [tuple(s) for s in sets] == list(combinations(range(6), 4))
    expected = 30_000 / 15
    assert ((counts - expected) ** 2 / expected).sum() < 36.1  # 0.1 % of chi-squared with 14 degrees of freedom


def test_memory_does_not_grow_with_the_samples():
    edges = random_graph(1000, 1000)
    tracemalloc.start()
    delta_hyperbolicity(edges, samples=10**6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 * 2**20  # all million quadruples at once would take 32 MB for their nodes alone


def test_real_distances_can_be_sampled():
    points = torch.randn(350, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    d = torch.cdist(points, points)
    result = delta_hyperbolicity(d, samples=2000)
    brute = [brute_force(d[q][:, q].numpy())[0] for q in delta._draw_distinct(350, 2000, np.random.default_rng(0)).T]
    assert result.lower_bound == pytest.approx(max(brute), rel=1e-12)
    assert result.mean == pytest.approx(np.mean(brute), rel=1e-12)


# ---------------------------------------------------------------- the result, and bad input


def test_the_result_as_text_is_frozen():
    exact = delta_hyperbolicity(torch.cat([grid(3), torch.tensor([[9], [10]])], dim=1))
    assert str(exact) == (
        "delta = 2 exactly (relative 1), diameter 4; mean 0.3968 over all quadruples of 9 nodes; "
        "2 nodes outside the largest component"
    )
    sampled = Delta(1.5, 4.5, 0.25, (0.24, 0.26), 9.0, True, 50_000, 2223, 0, 2223)
    assert str(sampled) == (
        "delta >= 1.5 (relative 0.333) and <= 4.5, half the diameter 9; "
        "mean 0.25 [0.24, 0.26] from 50,000 sampled quadruples of 2,223 nodes"
    )
    with pytest.raises(FrozenInstanceError):
        exact.lower_bound = 0.0


METRIC = hop_matrix(grid(3).T.tolist(), 9)


def changed(i, j, value, both=True):
    d = METRIC.copy()
    d[i, j] = value
    if both:
        d[j, i] = value
    return d


@pytest.mark.parametrize(
    ("space", "options", "words"),
    [
        (METRIC[:5], {}, r"square matrix \[n, n\], got shape \[5, 9\]"),
        (METRIC[0], {}, "square"),
        (changed(1, 2, 1.5, both=False), {}, r"not symmetric: \[1, 2\] is 1.5, \[2, 1\] is 1.0"),
        (changed(0, 1, -1), {}, r"distances\[0, 1\] = -1.0 is negative"),
        (changed(0, 1, np.nan), {}, r"distances\[0, 1\] is nan"),
        (changed(0, 1, np.inf), {}, "one component"),
        (changed(4, 4, 0.5), {}, r"distances\[4, 4\] = 0.5"),
        (changed(0, 1, 9), {}, r"triangle inequality fails: d\(0, 1\) = 9"),
        (METRIC**2, {}, "squared distance"),
        (METRIC == 1, {}, "dtype bool"),
        ((METRIC == 1).astype(int), {}, "scipy.sparse.csr_array"),
        (METRIC.astype(complex), {}, "complex"),
        (METRIC, {"num_nodes": 9}, "no meaning for a distance matrix"),
        (cycle(5).float(), {}, r"edge_index.long\(\)"),
        (cycle(5).T, {}, "transpose"),
        (cycle(5) - 1, {}, "negative node -1"),
        (cycle(5), {"num_nodes": 4}, "contains node 4, but num_nodes is 4"),
        (cycle(5)[:, :0], {"num_nodes": -1}, "num_nodes must not be negative"),
        (torch.eye(3).to_sparse(), {}, "sparse tensor"),
        (sparse.csr_array(METRIC[:5]), {}, "must be square"),
        (sparse.csr_array(METRIC), {"num_nodes": 5}, r"\[5, 5\] \(num_nodes\)"),
        (cycle(5), {"samples": 0}, "samples must be at least 1, got 0"),
        (cycle(5), {"samples": -3}, "samples must be at least 1"),
    ],
)
def test_bad_input(space, options, words):
    with pytest.raises(ValueError, match=words):
        delta_hyperbolicity(space, **options)


def test_triangle_inequality_of_a_large_matrix_is_checked():
    points = np.random.default_rng(0).normal(size=(400, 2))
    d = np.linalg.norm(points[:, None] - points, axis=-1)
    with pytest.raises(ValueError, match="triangle"):
        delta_hyperbolicity(d**2)


def test_the_input_is_not_changed():
    for d in [METRIC, METRIC * np.sqrt(2), METRIC.astype(int)]:
        before = d.copy()
        delta_hyperbolicity(d)
        assert (d == before).all()
