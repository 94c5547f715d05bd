"""The public assertions: each passes for correct functions and fails for broken ones."""

import pytest
import torch

import lresnet
from lresnet import Lorentz
from lresnet.geometry.checks import check_nowhere
from lresnet.testing import (
    assert_commutative,
    assert_compiles,
    assert_finite_gradients,
    assert_isometry_equivariant,
    assert_on_manifold,
)

M = Lorentz(-1.0)


def points(count: int, n: int = 3, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(5, n, generator=g, dtype=dtype) for _ in range(count)]


# --- on the manifold -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_on_manifold_passes(dtype):
    for norm in (1e-3, 1.0, 1e4):
        assert_on_manifold((norm * points(1)[0]).to(dtype), M)
    assert_on_manifold(torch.zeros(0, 3), M)
    assert_on_manifold(points(1)[0].requires_grad_(), Lorentz(-0.5, learnable=True))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_on_manifold_fails_for_infinite_and_nan_points(bad):
    x = points(1)[0]
    x[2, 1] = bad
    with pytest.raises(AssertionError, match=r"points not finite: 1 of 15 entries, the first at \(2, 1\)"):
        assert_on_manifold(x, M)


def test_on_manifold_fails_if_the_time_overflows():
    with pytest.raises(AssertionError, match="off the hyperboloid: relative constraint error nan"):
        assert_on_manifold(torch.full((2,), 6e4, dtype=torch.float16), M)  # the time is 84853, beyond float16
    assert_on_manifold(torch.full((2,), 1e20), M)  # the square of the norm is beyond float32, the time is not
    with check_nowhere(), pytest.raises(AssertionError, match="off the hyperboloid"):
        assert_on_manifold(torch.full((2,), 1e20), M)


def test_on_manifold_fails_for_a_wrong_time():
    class Broken(Lorentz):
        def time(self, x):
            return super().time(x) * (1 + 1e-5)

    assert_on_manifold(points(1, dtype=torch.float32)[0], Broken(-1.0), rounding=1000)
    with pytest.raises(AssertionError, match=r"off the hyperboloid: relative constraint error 2e-05 > 9.54e-07"):
        assert_on_manifold(torch.zeros(1, 3), Broken(-1.0))


def test_on_manifold_rejects_other_types():
    with pytest.raises(TypeError, match="floating point"):
        assert_on_manifold(torch.ones(2, dtype=torch.int64), M)


# --- commutative -----------------------------------------------------------------------------------------------------


def test_commutative_passes():
    x, y = points(2)
    assert_commutative(M.dist, x, y)
    assert_commutative(lresnet.make_residual("space", M), x, y)
    assert_commutative(lambda a, b: a + b * (1 + 1e-9), x, y, tolerance=1e-6)


def test_commutative_fails():
    x, y = points(2)
    with pytest.raises(AssertionError, match=r"not commutative: .* and .* at \(\d, \d\)"):
        assert_commutative(M.boost, x, y)
    with pytest.raises(AssertionError, match="not commutative"):
        assert_commutative(lambda a, b: a + b * (1 + 1e-9), x, y)  # to the bit, unless a tolerance is given
    with pytest.raises(AssertionError, match="not commutative: nan"):
        assert_commutative(lambda a, b: (a + b) * float("nan"), x, y)


def test_commutative_reports_the_worst_entry():
    x, y = torch.zeros(3), torch.tensor([0.0, 1.0, 3.0])
    with pytest.raises(AssertionError, match=r"-3 and 3 at \(2,\)"):
        assert_commutative(lambda a, b: a - b, x, y)


# --- equivariant -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [-0.1, -1.0, -10.0])
def test_equivariant_passes(K):
    N = Lorentz(K)
    x, y = points(2)
    residual = lresnet.make_residual("lorentz", N, weight=0.5)
    assert_isometry_equivariant(residual, N, x, y)
    assert_isometry_equivariant(lambda x: x, N, x)
    assert_isometry_equivariant(residual, Lorentz(K, learnable=True).double(), x, y, tolerance=1e-5)
    assert_isometry_equivariant(residual, N, x[:0], y[:0])


def test_equivariant_fails():
    x, y = points(2)
    with pytest.raises(AssertionError, match=r"not equivariant under isometries: off by .* > 1e-06"):
        assert_isometry_equivariant(lambda x, y: x + y, M, x, y)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_isometry_equivariant(lambda x: 1.001 * x, M, x)
    with pytest.raises(AssertionError, match="not equivariant"):  # rotations are tried, not only boosts
        assert_isometry_equivariant(lambda x: M.boost(torch.tensor([0.1, 0.0, 0.0]).double().expand_as(x), x), M, x)
    with pytest.raises(AssertionError, match="off by nan"):
        assert_isometry_equivariant(lambda x: x * float("nan"), M, x)
    assert_isometry_equivariant(lambda x: (1 + 1e-9) * x, M, x)
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_isometry_equivariant(lambda x: (1 + 1e-9) * x, M, x, tolerance=1e-12)


# --- finite gradients ------------------------------------------------------------------------------------------------


def test_finite_gradients_passes():
    assert_finite_gradients(M.dist, torch.zeros(3, 2), torch.zeros(3, 2))
    assert_finite_gradients(lambda x: x.mT * 2, torch.ones(2, 3))  # any strides
    assert_finite_gradients(lambda x: x.sum().expand(3), torch.ones(2, 3))
    assert_finite_gradients(lambda x, y: 2 * x, torch.ones(2), torch.ones(2))  # y does not matter: no gradient


def test_finite_gradients_fails():
    with pytest.raises(AssertionError, match=r"gradient of argument 0 not finite: 1 of 2 entries, the first at \(1,\)"):
        assert_finite_gradients(torch.sqrt, torch.tensor([1.0, 0.0]))
    with pytest.raises(AssertionError, match="gradient of argument 1 not finite"):
        assert_finite_gradients(
            lambda x, y: x + y.norm(dim=-1, keepdim=True) ** 0.5, torch.ones(1, 2), torch.zeros(1, 2)
        )
    with pytest.raises(AssertionError, match="output not finite"):
        assert_finite_gradients(torch.log, torch.zeros(2))


def test_finite_gradients_finds_infinities_that_cancel_in_the_sum():
    # The plain sum is 1/x0 - 1/x0: the infinite gradients appear only if the parts have different weights.
    def f(x):
        a = x[0].sqrt()
        return torch.stack([a, -a])

    with pytest.raises(AssertionError, match="not finite"):
        assert_finite_gradients(f, torch.zeros(1))


def test_finite_gradients_does_not_change_its_arguments():
    x = torch.ones(2, requires_grad=True)
    assert_finite_gradients(lambda x: 2 * x, x)
    assert x.grad is None


# --- compiles --------------------------------------------------------------------------------------------------------


def test_compiles_passes():
    x, y = points(2)
    assert_compiles(lambda x, y: x * y.cosh(), x, y)
    assert_compiles(torch.nn.Linear(3, 2).double(), x)
    assert_compiles(lambda x: x.detach() * 2, x)  # nothing to differentiate


def test_compiles_fails_for_a_graph_break():
    def f(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(AssertionError, match="does not compile into one graph"):
        assert_compiles(f, points(1)[0])


def test_compiles_fails_if_the_compiled_result_differs():
    def f(x):
        return x * (2.0 if torch.compiler.is_compiling() else 1.0)

    with pytest.raises(AssertionError, match="not close"):
        assert_compiles(f, points(1)[0])


def test_compiles_fails_if_only_the_gradient_differs():
    def f(x):
        return x.detach() + 0 * x if torch.compiler.is_compiling() else x + 0

    with pytest.raises(AssertionError, match="not close"):
        assert_compiles(f, points(1)[0])
