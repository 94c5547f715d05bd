"""Values and gradients of the residual kernels against float64: families of pairs, dtypes, shapes and layouts."""

from __future__ import annotations

import itertools

import pytest
import torch

from lresnet.functional import lorentz_residual, parallel_transport_residual, tangent_residual
from lresnet.geometry.checks import check_nowhere
from lresnet.kernels import enabled, is_available
from lresnet.kernels.tiles import Tile
from tests import numeric_cases as cases
from tests.kernels.cases import DEVICE, KINDS, gradients, on_device, residual, row_errors
from tests.residual.common import HALF_ULP, MORE_FAMILIES, float32, geodesic, more_pairs, normals, per_point

pytest.importorskip("triton")

# A unit in the last place of half precision. (A GPU rounds to half of it; the interpreter truncates bfloat16.)
ULP = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


@pytest.fixture(autouse=True)
def kernels():
    with enabled():
        assert is_available(DEVICE), is_available(DEVICE).reason
        yield


# --- accuracy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", MORE_FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_float32_values_are_within_four_roundings(kind, family):
    for norm, (K, weight) in itertools.product((1e-3, 1.0, 100.0, 1e4), ((-0.1, 1.0), (-10.0, 0.37))):
        x, y = on_device(*(t.float() for t in more_pairs(family, norm, count=64)))
        got = residual(kind, x, y, weight, K=K)
        exact = residual(kind, x.double(), y.double(), float32(weight), K=K)
        bar = 4 * HALF_ULP[torch.float32] * (-K) ** 0.5 * exact.norm(dim=-1) + 3e-7
        if kind == "tangent":  # a sum of rounded vectors as long as the radii; opposite ones cancel
            radii = ((-K) ** 0.5 * torch.stack([x, y]).double().norm(dim=-1)).asinh().sum(0)
            bar = bar + HALF_ULP[torch.float32] * radii
        assert (geodesic(got, exact, K) <= bar).all(), (norm, K, weight)


@pytest.mark.parametrize("family", MORE_FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
def test_float32_gradients(kind, family):
    # Large radii only for families whose gradient float32 can represent (not points on one ray).
    far = 1e3 if family in ("random", "near", "equal", "zero", "zero skip") else 10.0
    for radius, (K, weight) in itertools.product((1e-3, 1.0, 10.0, 1e3), ((-0.1, -1.0), (-10.0, 0.37))):
        if radius > far:
            continue
        x, y = on_device(*(t.float() for t in more_pairs(family, radius / (-K) ** 0.5, count=32)))
        g = normals(*x.shape, seed=5).to(DEVICE)
        arguments = [x, y, *on_device(torch.full((32,), weight), torch.full((32,), 1.3), torch.tensor(K))]
        _, got = gradients(kind, g, *arguments)
        _, exact = gradients(kind, g.double(), *(t.double() for t in arguments))
        bar = 1e-5 if radius <= 10 else 2e-4
        for name, a, b in zip("xy", got[:2], exact[:2], strict=True):
            assert row_errors(a, b).max() <= bar, (name, radius, K, weight, float(row_errors(a, b).max()))
        size = {"lorentz": 2, "tangent": 1, "parallel_transport": 0}[kind]
        for name, a, b in zip(("weight", "scale"), got[2 : 2 + size], exact[2 : 2 + size], strict=False):
            assert (a - b).abs().max() <= 2e-4 * b.abs().max(), (name, radius, K, weight)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_of_the_curvature(kind):
    # The sum over pairs may cancel, so the error is relative to the sum of absolute values.
    x, y = on_device(*(t.float() for t in more_pairs("random", 3.0, count=40)))
    g = normals(*x.shape, seed=5).to(DEVICE)
    K = torch.tensor(-0.7, device=DEVICE)
    one = torch.ones((), device=DEVICE)
    _, got = gradients(kind, g, x, y, one, one, K)
    per_pair = K.double().expand(40, 1)
    _, exact = gradients(kind, g.double(), x.double(), y.double(), one.double(), one.double(), per_pair)
    assert (got[4] - exact[4].sum()).abs() <= 1e-6 * exact[4].abs().sum()


def test_equal_points_give_that_point_exactly():
    for norm, weight in itertools.product((1.0, 1e4, 1e8, 1e15), (1.0, 0.37, 100.0, 0.0)):
        x = (norm * normals(40, 16)).to(DEVICE)
        assert torch.equal(lorentz_residual(x, x.clone(), weight, K=-0.1), x), (norm, weight)


def test_equal_points_near_the_origin():
    # Exact from norm 1e-12 on; below it the weighted mean is rounded.
    for norm in (0.0, 1e-40, 1e-30, 1e-20, 1e-11, 1e-6, 1e-4):
        x = (norm * normals(40, 16)).to(DEVICE)
        got = lorentz_residual(x, x.clone(), 0.3)
        assert torch.equal(got, x) if norm > 1e-12 else ((got - x).abs() <= 2.0**-22 * x.abs() + 2.0**-148).all()


@pytest.mark.skipif(not cases.EXACT, reason="numpy.longdouble is not wider than float64 here")
@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_the_documented_bound_on_hard_pairs(n):
    pairs = cases.draw(n, 200, (-3.0, 6.0), seed=4)
    x, y, weight = on_device(*map(torch.from_numpy, (pairs.x, pairs.y, pairs.weight)))
    cases.check_residual(lorentz_residual(x, y, weight), pairs, 1.0, "kernel", roundings=4)


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_and_subnormals_are_finite(kind):
    sizes = torch.tensor([0.0, 1e-45, 1e-40, 1e-38, 1e-30, 1e-20, 1e-3, 1.0, 1e4])
    a, b = (t.flatten()[:, None] for t in torch.meshgrid(sizes, sizes, indexing="ij"))
    x, y = on_device(a * normals(81, 5), b * normals(81, 5, seed=1))
    z, found = gradients(kind, torch.ones_like(x), x, y, *on_device(*map(torch.tensor, (0.37, 1.3, -2.0))))
    assert z.isfinite().all()
    for gradient in found:
        assert gradient.isfinite().all()
    near = (a.abs() < 1e-10).flatten() & (b.abs() < 1e-10).flatten()
    flat = {"lorentz": 1.3 * (x + 0.37 * y) / 1.37, "tangent": x + 0.37 * y, "parallel_transport": x + y}[kind][near]
    assert ((z[near] - flat).abs() <= 1e-6 * (x[near].abs() + y[near].abs()) + 2.0**-147).all()


def test_nan_stays_nan():
    x, y = on_device(normals(4, 5), normals(4, 5, seed=1))
    x[1, 2] = torch.nan
    z = lorentz_residual(x, y)
    assert z[1].isnan().all()
    assert z[[0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_the_exact_result_rounded(kind, dtype):
    x, y = on_device(*((t * 5).to(dtype) for t in more_pairs("near", 1.0, count=24, n=20)))
    weight, K = on_device(torch.tensor(0.37), torch.tensor(-2.0))
    g = normals(24, 20, seed=5).to(DEVICE, dtype)
    one = torch.ones((), device=DEVICE)
    z, got = gradients(kind, g, x, y, weight, one, K)
    e, exact = gradients(kind, g.double(), *(t.double() for t in (x, y, weight, one, K)))
    assert z.dtype == got[0].dtype == got[1].dtype == dtype
    assert got[2].dtype == got[4].dtype == torch.float32
    for a, b in ((z, e), (got[0], exact[0]), (got[1], exact[1])):
        slack = 1e-5 * b.norm(dim=-1, keepdim=True)
        assert ((a.double() - b).abs() <= ULP[dtype] * b.abs() + slack).all()


def test_mixed_dtypes_give_the_wider_one():
    x, y = on_device(normals(4, 6).bfloat16(), normals(4, 6, seed=1))
    got = lorentz_residual(x, y, 0.37)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, lorentz_residual(x.float(), y, 0.37))


# --- shapes and layouts ----------------------------------------------------------------------------------------------


def compare(kind, x, y, *, dim=-1, weight=0.37, scale=None, tolerance=2e-6):
    """Compare values and gradients of x and y with the formulas in float64."""
    found = []
    for a, b in ((x, y), (x.double(), y.double())):
        leaves = [t.detach().requires_grad_() for t in (a, b)]
        z = residual(kind, *leaves, weight, scale, -0.7, dim)
        g = normals(*z.shape, seed=9).to(DEVICE, z.dtype)
        found.append([z.detach(), *torch.autograd.grad(z, leaves, g)])
    for a, b in zip(*found, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33, 64, 129])
@pytest.mark.parametrize("kind", KINDS)
def test_dimensions(kind, n):
    compare(kind, *on_device(normals(5, n), normals(5, n, seed=1)))


@pytest.mark.parametrize("rows", [1, 2, 31, 257])
def test_numbers_of_rows(rows):
    compare("lorentz", *on_device(normals(rows, 12), normals(rows, 12, seed=1)))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_too_long_for_registers(kind):
    compare(kind, *on_device(0.02 * normals(2, 8200), 0.02 * normals(2, 8200, seed=1)))


@pytest.mark.parametrize("n", [7, 8200])
def test_no_rows(n):
    x = torch.empty(0, n, device=DEVICE, requires_grad=True)
    weight = torch.ones((), device=DEVICE, requires_grad=True)
    z = lorentz_residual(x, x * 1, weight)
    z.sum().backward()
    assert z.shape == x.grad.shape == (0, n)
    assert weight.grad == 0


@pytest.mark.parametrize("n", [12, 8200])
def test_strided_rows(n):
    x = normals(3, n + 5).to(DEVICE)[:, 2 : n + 2]
    y = normals(6, n, seed=1).to(DEVICE)[::2]
    assert not x.is_contiguous()
    compare("lorentz", 0.02 * x, 0.02 * y)


def test_repeated_rows_and_columns_that_are_not_contiguous():
    x, y = on_device(normals(1, 6).expand(4, 6), normals(6, 4, seed=1).T)
    compare("lorentz", x, y)


@pytest.mark.parametrize("shape", [(6,), (2, 3, 6), (2, 1, 3, 6)])
def test_more_or_fewer_axes(shape):
    compare("lorentz", *on_device(normals(*shape), normals(*shape, seed=1)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
def test_images(memory_format, kind):
    x, y = (t.to(memory_format=memory_format) for t in on_device(normals(2, 6, 3, 5), normals(2, 6, 3, 5, seed=1)))
    compare(kind, x, y, dim=1)
    compare(kind, x, y, dim=-3)
    z = residual(kind, x, y, dim=1)
    assert z.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("n", [12, 8200])
def test_weight_and_scale_per_row(n):
    x, y = on_device(0.3 * normals(4, n), 0.3 * normals(4, n, seed=1))
    weight, scale = on_device(per_point(4), per_point(4, seed=2) + 0.1)
    compare("lorentz", x, y, weight=weight, scale=scale)
    arguments = [x, y, weight, scale, torch.tensor(-0.7, device=DEVICE)]
    g = normals(4, n, seed=5).to(DEVICE)
    _, got = gradients("lorentz", g, *arguments)
    _, exact = gradients("lorentz", g.double(), *(t.double() for t in arguments))
    for a, b in zip(got[2:], exact[2:], strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)


def test_weight_per_pixel_in_any_broadcastable_shape():
    x, y = on_device(normals(2, 6, 3, 4), normals(2, 6, 3, 4, seed=1))
    weight = per_point(12).reshape(3, 4).to(DEVICE)
    expected = lorentz_residual(x.double(), y.double(), weight.double(), dim=1)
    for w in (weight, weight.expand(2, 3, 4), weight[None, None]):
        torch.testing.assert_close(lorentz_residual(x, y, w, dim=1).double(), expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="A weight per coordinate would not give a point"):
        lorentz_residual(x, y, torch.ones(2, 6, 3, 4, device=DEVICE), dim=1)


@pytest.mark.parametrize("weight", [torch.tensor([0.37]), per_point(10)[::2], per_point(1).expand(5)])
def test_weights_that_are_not_contiguous(weight):
    x, y = on_device(normals(5, 6), normals(5, 6, seed=1))
    compare("lorentz", x, y, weight=weight.to(DEVICE), scale=weight.to(DEVICE).abs() + 0.1)


# --- sums over rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("programs", [1, 3, 100])
@pytest.mark.parametrize("stages", [1, 2])
def test_programs_loop_over_many_tiles(programs, stages):
    from lresnet.kernels.residual import Factors, backward

    x, y, g = on_device(*(normals(21, 6, seed=s) for s in range(3)))
    factors = Factors(
        *on_device(*map(torch.tensor, (-0.37, 1.3, 0.7))), *on_device(*(normals(6, seed=s) for s in range(4)))
    )
    few, many = (
        backward(g, x, y, factors, "lorentz", True, True, tile)
        for tile in (Tile(32, 8, 1, 1), Tile(2, 8, 1, programs, stages))
    )
    for a, b in zip(few, many, strict=True):
        torch.testing.assert_close(a, b)


def test_runs_are_bit_identical():
    x, y, g = on_device(*(normals(300, 16, seed=s) for s in range(3)))
    weight, K = on_device(torch.tensor(0.37), torch.tensor(-0.7))
    runs = [gradients("lorentz", g, x, y, weight, torch.ones_like(K), K)[1] for _ in range(3)]
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(run, runs[0], strict=True))


def test_sign_of_the_weight():
    x, y = on_device(normals(5, 6), normals(5, 6, seed=1))
    found = []
    for value in (0.37, -0.37, 0.0):
        weight = torch.tensor(value, device=DEVICE, requires_grad=True)
        z = lorentz_residual(x, y, weight)
        found.append((z.detach(), torch.autograd.grad(z.sum(), weight)[0]))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == -found[1][1] != 0
    assert found[2][1] == 0  # as the derivative of the absolute value at 0


def test_the_papers_examples():
    x, y = on_device(torch.tensor([2.0, -2.0]), torch.tensor([2.0, 2.0]))
    torch.testing.assert_close(lorentz_residual(x, y).cpu(), torch.tensor([0.8**0.5, 0.0]))
    torch.testing.assert_close(parallel_transport_residual(x, y).cpu(), torch.tensor([8.0, -4.0]))
    torch.testing.assert_close(tangent_residual(x, 0 * y).cpu(), x.cpu())


def test_a_nan_weight_is_visible_for_equal_points():
    x = torch.ones(4, 6, device=DEVICE)
    weight = torch.full((), torch.nan, device=DEVICE)
    with check_nowhere():  # where values are read, a NaN weight is an error
        assert lorentz_residual(x, x, weight).isnan().all()
