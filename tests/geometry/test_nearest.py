"""Nearest neighbours: the same as sorting all distances, in hard families too; ties, blocks, FAISS."""

import sys

import mpmath
import pytest
import torch
from torch import Tensor

from lresnet import Lorentz
from lresnet.geometry import NearestNeighbours, inner_product_points, inner_product_queries, nearest
from tests.families import pairs
from tests.geometry import oracle


@pytest.fixture(autouse=True)
def same_points_in_every_run() -> None:
    torch.manual_seed(0)


def brute_force(x: Tensor, points: Tensor, K: float | None, k: int) -> tuple[Tensor, Tensor]:
    """Distances and indices of sorting all float64 distances; equal distances in the order of the indices."""
    a, b = x.double().unsqueeze(1), points.double()
    d = (b - a).norm(dim=-1) if K is None else Lorentz(K).dist(a, b)
    d, order = d.sort(dim=-1, stable=True)
    return d[:, :k], order[:, :k]


def assert_exact(x: Tensor, points: Tensor, K: float | None, k: int) -> None:
    found = NearestNeighbours(points, K=K).query(x, k)
    distances, indices = brute_force(x, points, K, k)
    assert torch.equal(found.indices, indices)
    torch.testing.assert_close(found.distances, distances, rtol=1e-13, atol=0)


def candidate_counts(monkeypatch) -> list[int]:
    """Record the numbers of candidates whose distances are computed, per call."""
    counts: list[int] = []
    computed = NearestNeighbours._sorted

    def counted(self, x, candidates, k):
        if len(x):
            counts.append(candidates.shape[1])
        return computed(self, x, candidates, k)

    monkeypatch.setattr(NearestNeighbours, "_sorted", counted)
    return counts


@pytest.mark.parametrize("K", [-0.1, -1.0, -10.0, None])
@pytest.mark.parametrize("norm", [1e-6, 1e-3, 1.0, 1e4, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_result_is_that_of_sorting_all_distances(K, norm, dtype):
    g = torch.Generator().manual_seed(0)
    spread = 10.0 ** torch.linspace(-2, 0, 400).unsqueeze(1)
    points = (norm * spread * torch.randn(400, 5, generator=g, dtype=torch.float64)).to(dtype)
    x = torch.cat([points[::50], (norm * torch.randn(4, 5, generator=g, dtype=torch.float64)).to(dtype)])
    for k in (1, 7, 400):
        assert_exact(x, points, K, k)


@pytest.mark.parametrize("K", [-1.0, None])
@pytest.mark.parametrize("norm", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("family", ["near", "equal", "radial"])
def test_hard_families_are_searched_exactly(K, norm, family):
    x, y = (t.float() for t in pairs(family, norm, count=40, n=4))
    points = torch.cat([x, y, x[:5], torch.zeros(3, 4)])  # equal points in several places
    assert_exact(torch.cat([x[:8], torch.zeros(1, 4)]), points, K, 6)


def test_near_duplicates_keep_the_order_of_their_exact_distances():
    """Steps of single units in the last place, which float32 products do not tell apart."""
    point = torch.tensor([30.0, 40.0])
    steps = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    points = point + steps.unsqueeze(1) * torch.tensor([3.8147e-06, 0.0])
    found = NearestNeighbours(points).query(point.unsqueeze(0), 50).indices[0].tolist()
    with mpmath.workdps(50):
        a = [mpmath.mpf(c) for c in point.tolist()]
        exact = [oracle.dist(mpmath.mpf(1), a, [mpmath.mpf(c) for c in p])[0] if p != point.tolist() else mpmath.mpf(0)
                 for p in points.tolist()]  # fmt: skip
    assert found == sorted(range(200), key=lambda i: (exact[i], i))[:50]
    products = inner_product_queries(point) @ inner_product_points(points).mT
    assert products.topk(50).indices.tolist() != found


def test_more_equal_points_than_candidates_are_found_in_their_order(monkeypatch):
    counts = candidate_counts(monkeypatch)
    points = torch.cat([torch.randn(50, 3), torch.ones(300, 3), torch.randn(50, 3)])
    found = NearestNeighbours(points).query(torch.ones(2, 3), 5)
    assert found.indices.tolist() == [[50, 51, 52, 53, 54]] * 2
    assert (found.distances == 0).all()
    assert max(counts) > 300


def test_generic_points_need_few_candidates(monkeypatch):
    counts = candidate_counts(monkeypatch)
    points = torch.randn(2000, 8) * torch.tensor([0.1, 1.0, 30.0, 1e3]).repeat(500).unsqueeze(1)
    assert_exact(points[:40], points, -1.0, 10)
    assert counts == [26]


@pytest.mark.parametrize("block", [1, 100, 2**22])
def test_blocks_do_not_change_the_result(monkeypatch, block):
    monkeypatch.setitem(nearest._BLOCK, "cpu", block)
    assert_exact(torch.randn(9, 3), torch.randn(30, 3), -1.0, 4)


def test_neighbours_of_the_points_leave_out_the_point_itself():
    points = torch.cat([torch.randn(30, 3), torch.zeros(8, 3)])
    found = NearestNeighbours(points, K=-0.5).query(k=5)
    own = torch.arange(38).unsqueeze(1)
    _d, order = brute_force(points, points, -0.5, 38)
    assert torch.equal(found.indices, order[order != own].view(38, 37)[:, :5])
    assert (NearestNeighbours(torch.zeros(9, 2)).query(k=8).indices != torch.arange(9).unsqueeze(1)).all()


def test_learned_curvature_shapes_and_dtypes():
    M = Lorentz(-0.7, learnable=True)
    points = torch.randn(20, 3, requires_grad=True)
    index = NearestNeighbours(points, K=M.curvature)
    found = index.query(torch.randn(2, 4, 3).bfloat16(), 6)
    assert found.distances.shape == found.indices.shape == (2, 4, 6)
    assert found.distances.dtype == torch.float64
    assert not found.distances.requires_grad
    assert index.query(points[3], 2).indices[0] == 3
    assert index.query(torch.zeros(0, 3), 2).indices.shape == (0, 2)
    assert len(index) == 20


def test_without_float64_the_order_is_that_of_float32(monkeypatch):
    monkeypatch.setattr(nearest, "working_dtype", lambda x: torch.float32)
    points = torch.randn(300, 4)
    found = NearestNeighbours(points).query(points[:20], 5)
    assert found.distances.dtype == torch.float32
    torch.testing.assert_close(
        found.distances.double(), brute_force(points[:20], points, -1.0, 5)[0], rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("K", [-0.3, None])
def test_faiss_proposes_candidates_and_distances_are_exact(K):
    faiss = pytest.importorskip("faiss", reason="faiss is not installed")
    points = torch.randn(500, 6)
    x = torch.randn(20, 6)
    distances, indices = brute_force(x, points, K, 5)
    found = NearestNeighbours(points, K=K, index="faiss").query(x, 5)
    assert torch.equal(found.indices, indices)
    torch.testing.assert_close(found.distances, distances, rtol=1e-13, atol=0)
    graph = faiss.IndexHNSWFlat(7, 32, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efSearch = 256
    approximate = NearestNeighbours(points, K=K, index=graph, candidates=8).query(x, 5)
    shared = (approximate.indices.unsqueeze(-1) == indices.unsqueeze(-2)).any(-1).double().mean()
    assert shared > 0.8
    with pytest.raises(ValueError, match="must be empty and have n"):
        NearestNeighbours(points, index=faiss.IndexFlatIP(6))
    assert NearestNeighbours(points, K=K, index="faiss").query(k=3).indices.shape == (500, 3)


def test_without_faiss_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r'pip install "lresnet\[faiss\]"'):
        NearestNeighbours(torch.randn(5, 2), index="faiss")


def test_wrong_arguments_are_reported():
    points = torch.randn(5, 2)
    bad = points.clone()
    bad[1, 0] = torch.nan
    for wrong, message in (
        (lambda: NearestNeighbours(points[0]), r"points must be \[N, n\]"),
        (lambda: NearestNeighbours(bad), "1 of 5 points are not finite"),
        (lambda: NearestNeighbours(points, K=-torch.ones(2)), "one curvature"),
        (lambda: NearestNeighbours(points, index="hnsw"), "index must be"),
        (lambda: NearestNeighbours(points, candidates=0), "candidates must be"),
        (lambda: NearestNeighbours(points).query(points, 6), "k must be 1 to 5"),
        (lambda: NearestNeighbours(points).query(k=5), "k must be 1 to 4"),
        (lambda: NearestNeighbours(points).query(torch.randn(3), 1), "x must have 2 coordinates"),
        (lambda: NearestNeighbours(points).query(bad, 1), "1 of 5 x are not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()
