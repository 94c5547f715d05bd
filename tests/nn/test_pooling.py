"""Tests of global pooling against the definition in 50 digits, for points up to the boundary of the ball."""

import copy
import itertools

import mpmath
import pytest
import torch
from torch import Tensor

from lresnet import Lorentz
from lresnet.nn import CentroidPool, PoincareMean, SpaceMean
from lresnet.nn.pooling import centroid_pool, poincare_mean, space_mean
from lresnet.testing import assert_compiles, assert_finite_gradients, assert_isometry_equivariant, assert_on_manifold
from tests.families import CURVATURES, exact_centroid, exact_distance, pairs

POOLINGS = {"poincare": PoincareMean, "centroid": CentroidPool, "mean": SpaceMean}
every_pooling = pytest.mark.parametrize("kind", POOLINGS)


def images(batch: int = 2, channels: int = 4, height: int = 3, width: int = 5, dtype: torch.dtype = torch.float64):
    g = torch.Generator().manual_seed(0)
    return torch.randn(batch, channels, height, width, generator=g, dtype=torch.float64).to(dtype)


def image(points: Tensor) -> Tensor:
    """Return points [N, n] as one image of N pixels."""
    return points.mT.reshape(1, points.shape[1], 1, -1)


def exact_poincare_mean(points: Tensor, kappa: float) -> list[mpmath.mpf]:
    with mpmath.workdps(50):
        k, rows = mpmath.mpf(kappa), [[mpmath.mpf(c) for c in row] for row in points.tolist()]
        ball = [[c / (1 + mpmath.sqrt(1 + k * sum(v * v for v in row))) for c in row] for row in rows]
        mean = [sum(column) / len(rows) for column in zip(*ball, strict=True)]
        return [2 * c / (1 - k * sum(v * v for v in mean)) for c in mean]


def cloud(family: str, norm: float, dtype: torch.dtype) -> Tensor:
    """Return six points, from three pairs of a family; those of "near" and "equal" are around one point."""
    x, y = pairs(family, norm, count=3, n=5)
    if family in ("near", "equal"):
        x, y = x[:1] + (y - x), y[:1].expand(3, -1)
    return torch.cat([x, y]).to(dtype)


@pytest.mark.parametrize("K", CURVATURES)
@pytest.mark.parametrize("family", ["random", "near", "equal", "radial", "zero"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_are_accurate_up_to_the_boundary(family, dtype, K):
    for norm in (1e-3, 1.0, 10.0, 1e3, 1e4):
        points = cloud(family, norm * (-K) ** -0.5, dtype)
        rows = points.double().tolist()
        for pool, exact in (
            (poincare_mean, exact_poincare_mean(points.double(), -K)),
            (centroid_pool, exact_centroid(rows, [1.0] * len(rows), -K)),
        ):
            result = pool(image(points), K=K)[0]
            error = (-K) ** 0.5 * exact_distance(result.double().tolist(), exact, -K)
            # Rounding a coordinate moves a point at radius T = cosh(a) by up to eps T, and so the mean of the pixels.
            radius = float((1 - K * result.double().square().sum()).sqrt())
            assert error <= 8 * torch.finfo(dtype).eps * radius, (pool.__name__, norm, error)


@pytest.mark.parametrize("family", ["near", "equal"])
def test_the_textbook_form_is_inaccurate_at_the_boundary(family):
    """There 1 - |p|^2 in float32 is dominated by rounding errors; the formula of the docstring is not."""
    points = cloud(family, 1e4, torch.float32)
    p = Lorentz(-1.0).to_poincare(points).mean(0)
    textbook = 2 * p / (1 - p.square().sum())
    exact = torch.tensor([float(c) for c in exact_poincare_mean(points.double(), 1.0)]).norm()
    ours = poincare_mean(image(points))[0]
    assert (ours.norm() / exact - 1).abs() < 2e-6
    assert (textbook.norm() / exact - 1).abs() > 2e-5


@pytest.mark.parametrize("K", [-0.02, -1.0])
@every_pooling
def test_one_pixel_is_the_identity(kind, K):
    x = images(4, 8, 1, 1, torch.float32) * torch.tensor([1e-3, 1.0, 1e2, 1e4]).reshape(4, 1, 1, 1)
    pooled = POOLINGS[kind](Lorentz(K))(x)
    torch.testing.assert_close(pooled, x[:, :, 0, 0], rtol=4 * torch.finfo(torch.float32).eps, atol=0)


@every_pooling
def test_shapes_and_memory_formats(kind):
    pool = POOLINGS[kind](Lorentz(-0.5))
    for shape in ((3, 4, 3, 5), (1, 2, 1, 7), (2, 3, 4, 4, 2), (2, 3, 6), (0, 4, 2, 2)):
        x = torch.randn(shape)
        assert pool(x).shape == shape[:2]
        torch.testing.assert_close(pool(x), pool(x.flatten(2)))
    x = images(2, 4, 3, 5, torch.float32)
    torch.testing.assert_close(pool(x.contiguous(memory_format=torch.channels_last)), pool(x))
    torch.testing.assert_close(pool(x.mT), pool(x))  # the order of the pixels does not matter
    assert_on_manifold(pool(x), pool.manifold)
    assert repr(pool) == f"{type(pool).__name__}(curvature=-0.5)"


def test_the_three_poolings_differ():
    x, M = 3 * images(), Lorentz(-1.0)
    results = [pool(M)(x) for pool in POOLINGS.values()]
    assert torch.equal(results[2], x.mean((2, 3)))
    assert torch.equal(space_mean(x), results[2])
    norms = [r.norm(dim=1) for r in results]
    for a, b in itertools.combinations(norms, 2):
        assert ((a / b).log().abs() > 0.1).all()


def test_the_flat_limit_is_the_mean():
    x = images()
    for pool in (poincare_mean, centroid_pool):
        torch.testing.assert_close(pool(x, K=-1e-10), x.mean((2, 3)), rtol=1e-8, atol=0)


def test_the_centroid_commutes_with_isometries():
    M = Lorentz(-0.7)
    points = M.random(6, 4, dtype=torch.float64)

    def pool(p: Tensor) -> Tensor:
        return centroid_pool(image(p), K=-0.7)

    assert_isometry_equivariant(pool, M, points, tolerance=1e-12)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_isometry_equivariant(lambda p: poincare_mean(image(p), K=-0.7), M, points, tolerance=1e-2)


# --- derivatives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [poincare_mean, centroid_pool])
def test_first_and_second_derivatives(pool):
    x = images(2, 3, 2, 2)
    x[0] = 0
    x[1, :, 0, 0] = x[1, :, 0, 1]
    args = (x.requires_grad_(), torch.tensor(-0.7, dtype=torch.float64, requires_grad=True))
    assert torch.autograd.gradcheck(lambda x, K: pool(x, K=K), args)
    assert torch.autograd.gradgradcheck(lambda x, K: pool(x, K=K), args)


@pytest.mark.parametrize("norm", [1e-2, 1.0, 1e2, 1e4])
@pytest.mark.parametrize("family", ["random", "near", "equal"])
def test_gradients_are_accurate_in_float32(family, norm):
    points = cloud(family, norm, torch.float32)
    g = torch.randn(1, 5, generator=torch.Generator().manual_seed(1))
    grads = []
    for dtype in (torch.float32, torch.float64):
        x = image(points.to(dtype)).requires_grad_()
        (poincare_mean(x) * g.to(dtype)).sum().backward()
        grads.append(x.grad.double())
    # Near points at norm 1e4 differ by a thousandth: float32 has three or four correct digits of the difference.
    assert (grads[0] - grads[1]).norm() <= (1e-4 if family == "near" else 1e-5) * grads[1].norm()


@every_pooling
def test_gradients_are_finite_at_zeros_and_subnormals(kind):
    special = torch.tensor([0.0, 1e-45, 1e-38, 1e-20, 1.0, 1e9])
    x = torch.cartesian_prod(special, special, special)
    pool = POOLINGS[kind](Lorentz(-0.02))
    assert_finite_gradients(pool, image(x))
    assert_finite_gradients(pool, x.reshape(-1, 3, 1, 1))
    assert_finite_gradients(pool, torch.zeros(2, 3, 4, 4))


# --- the modules ------------------------------------------------------------------------------------------------------


@every_pooling
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_images_give_float32_points(kind, dtype):
    pool = POOLINGS[kind](Lorentz(-0.02))
    x = (100 * images(2, 64, 4, 4)).to(dtype)  # the squares overflow float16
    assert pool(x).dtype == torch.float32
    assert torch.equal(pool(x), pool(x.float()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(pool(x), pool(x.float()))
    assert pool(x.double()).dtype == torch.float64


@pytest.mark.parametrize("kind", ["poincare", "centroid"])
def test_a_learnable_curvature_has_a_gradient(kind):
    pool = POOLINGS[kind](Lorentz(-0.7, learnable=True))
    pool(images(dtype=torch.float32)).square().sum().backward()
    assert pool.manifold.log_kappa.grad.abs() > 0
    assert copy.deepcopy(pool).manifold is not pool.manifold
    assert not list(pool.state_dict())  # the model owns the curvature


# torch's tracer instantiates every autograd.Function and warns about it.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")
@every_pooling
def test_compiles(kind):
    assert_compiles(POOLINGS[kind](Lorentz(-0.7, learnable=True)), images(dtype=torch.float32))


@every_pooling
def test_wrong_images_are_rejected(kind):
    pool = POOLINGS[kind](Lorentz(-1.0))
    for shape in ((3, 4), (2, 3, 0, 4), (2, 3, 4, 0)):
        with pytest.raises(ValueError, match=r"pooling needs images .* at least one pixel, got shape"):
            pool(torch.zeros(shape))
    with pytest.raises(TypeError, match="must be a floating point tensor"):
        pool(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))
    with pytest.raises(TypeError, match=r"manifold must be an lresnet\.Lorentz"):
        POOLINGS[kind](-1.0)
