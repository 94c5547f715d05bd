"""Kernels of the graph layers against torch operations in float64; interpreted on machines without a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lresnet.kernels import disabled, enabled, is_available, supports_rows
from lresnet.kernels.tiles import stack_rows
from lresnet.models import LorentzGCN
from lresnet.nn.aggregation import rescaled_aggregate, with_unitless_time
from lresnet.nn.graph_conv import centroid_of_sums
from lresnet.nn.linear import ambient_product, on_sphere
from lresnet.nn.pair_distance import lorentz_distance2
from lresnet.nn.sparse import adjacency, symmetric_normalisation

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KAPPAS = (0.1, 1.0, 10.0)
# A stack is stored member by member if a product with its matrices produced it, otherwise node by node.
LAYOUTS = ("rows", "nodes first", "members first")
N, S, n = 70, 3, 5


def normals(*shape: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64).float().to(DEVICE)


def points(width: int, layout: str = "rows", seed: int = 0) -> Tensor:
    if layout == "members first":
        return normals(S, N, width, seed=seed).transpose(0, 1)
    return normals(N, width, seed=seed) if layout == "rows" else normals(N, S, width, seed=seed)


def compare(function: Callable[..., Tensor], *inputs: Tensor, rtol: float = 1e-6) -> None:
    """Compare value and gradients, with errors relative to the largest number of each tensor."""
    results = []
    for context, dtype in ((enabled, torch.float32), (disabled, torch.float64)):
        leaves = [x.to(dtype).detach().requires_grad_() for x in inputs]
        with context():
            assert supports_rows(leaves[0], 1.0) == (context is enabled)
            y = function(*leaves)
            found = torch.autograd.grad(y, leaves, normals(*y.shape, seed=8).to(dtype))
        results.append((y.detach(), *found))
    for got, exact in zip(*results, strict=True):
        assert got.shape == exact.shape
        assert (got.double() - exact).abs().max() <= rtol * exact.abs().max()


@pytest.fixture(autouse=True)
def available():
    with enabled():
        assert is_available(DEVICE), is_available(DEVICE).reason


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_on_sphere(layout, kappa):
    z = points(n + 1, layout)
    with torch.no_grad():
        z[4, ..., 1:] = 0  # no direction
        z[5] = 0
    scale = torch.tensor(0.7, device=DEVICE)
    if layout != "rows":
        scale = normals(S, 4)[:, 1:2]  # a column of a stack's parameters, which is not contiguous
    compare(lambda z, scale: on_sphere(z, scale, kappa, 0.5), z, scale, rtol=2e-6)


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_centroid(layout, kappa):
    sums = points(n + 1, layout) / kappa**0.5  # far from the origin the norm of a sum cancels
    with torch.no_grad():
        sums[..., -1] = (
            kappa * sums[..., :-1].square().sum(-1) + 1 + normals(*sums.shape[:-1], seed=3).square()
        ).sqrt()
    shared = normals(N, *[1] * (sums.dim() - 1), seed=4).abs()
    shared[:3] = 0  # rows without neighbours
    compare(lambda s: centroid_of_sums(s, shared.to(s.dtype), kappa, some_empty=True), sums, rtol=1e-5)
    own = normals(*sums.shape[:-1], 1, seed=4).abs()
    compare(lambda s: centroid_of_sums(s, own.to(s.dtype), kappa, some_empty=False), sums, rtol=1e-5)


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_points_with_their_time(layout, kappa):
    compare(lambda x: with_unitless_time(x, kappa), points(n, layout))


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("layout", ["rows", "nodes first"])
def test_rescaled_aggregation(layout, kappa):
    g = torch.Generator().manual_seed(1)
    A = symmetric_normalisation(adjacency(torch.randint(N - 1, (2, 200), generator=g), N, self_loops=False)).to(DEVICE)
    compare(lambda x: rescaled_aggregate(x, A, kappa), points(n, layout), rtol=1e-5)


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("members", [None, 1, S])
def test_ambient_product(members, kappa):
    x = points(n) if members is None else points(n, "nodes first")[:, :members]
    stack = [] if members is None else [S]
    parameters = [normals(*stack, *shape, seed=i) for i, shape in enumerate([(4, n), (4,), (4,)])]
    compare(lambda x, *p: ambient_product(x, *p, kappa), x, *parameters)


@pytest.mark.parametrize("kappa", [*KAPPAS, None])
def test_pair_distance(kappa):
    g = torch.Generator().manual_seed(1)
    pairs = torch.randint(N, (2, 500), generator=g).to(DEVICE)
    with enabled():
        assert lorentz_distance2(points(n), pairs, kappa).dtype == torch.float32
    compare(lambda z: lorentz_distance2(z, pairs, kappa), points(n))


def test_second_derivatives_use_the_formula():
    scale = torch.tensor(0.3, device=DEVICE)
    with enabled():
        z = points(4)[:6].requires_grad_()
        first = torch.autograd.grad(on_sphere(z, scale, 2.0, 0.5).square().sum(), z, create_graph=True)[0]
        assert first.grad_fn is not None
        (second,) = torch.autograd.grad(first.square().sum(), z)
    with disabled():
        first = torch.autograd.grad(on_sphere(z, scale, 2.0, 0.5).square().sum(), z, create_graph=True)[0]
        (expected,) = torch.autograd.grad(first.square().sum(), z)
    torch.testing.assert_close(second, expected, rtol=1e-4, atol=1e-5)


def test_a_nan_stays_in_its_row_and_is_visible():
    with enabled():
        for column in (0, 2, n):
            z = points(n + 1)
            z[7, column] = float("nan")
            for y in (
                on_sphere(z, torch.tensor(0.3, device=DEVICE), 1.0, 0.5),
                centroid_of_sums(z, torch.ones(N, 1, device=DEVICE), 1.0, some_empty=False),
            ):
                assert y[7].isnan().any()
                assert torch.cat([y[:7], y[8:]]).isfinite().all()


def test_a_network_gives_the_same_with_and_without_kernels():
    torch.manual_seed(0)
    model = LorentzGCN(4, 6, num_classes=3, curvature=-2.0, activation="relu").to(DEVICE)
    x, edges = normals(N, 4), torch.randint(N, (2, 200), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    results = []
    for context in (enabled, disabled):
        with context():
            y = model(x, edges)
            results.append((y.detach(), *torch.autograd.grad(y.square().mean(), list(model.parameters()))))
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_supported_rows():
    x = points(n)
    with disabled():
        assert not supports_rows(x, 1.0)
    with enabled():
        assert supports_rows(x, 1.0)
        assert supports_rows(x, None)
        assert not supports_rows(x, torch.tensor(1.0))  # a learned curvature
        assert not supports_rows(x.double(), 1.0)
        assert not supports_rows(x.half(), 1.0)
        assert not supports_rows(x[:0], 1.0)
        assert not torch.vmap(lambda row: torch.tensor(supports_rows(row, 1.0)))(x).any()


def test_rows_are_copied_only_if_coordinates_are_not_adjacent():
    for layout in LAYOUTS[1:]:
        x = points(n, layout)
        rows = stack_rows(x)
        assert rows.tensor.data_ptr() == x.data_ptr()
        assert (rows.total, rows.members) == (N * S, S)
        at = rows.tensor.as_strided((1,), (1,), 8 * rows.node_step + 2 * rows.member_step)
        assert at == x[8, 2, 0]
    assert stack_rows(points(n).T).tensor.is_contiguous()
    assert stack_rows(normals(2, 3, 4, n)).total == 24
