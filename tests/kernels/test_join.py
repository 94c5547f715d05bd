"""The kernel of the Lorentz join against torch operations; interpreted on machines without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lresnet.kernels import disabled, enabled
from lresnet.nn import weighted_join
from lresnet.nn.weighted_join import lorentz_join
from lresnet.testing import assert_finite_gradients

join = pytest.importorskip("lresnet.kernels.join", reason="triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# A stack is stored member by member if a product with its matrices produced it, otherwise node by node.
LAYOUTS = ("rows", "nodes first", "members first")
N, S, n = 70, 3, 5


def normals(*shape: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64).float().to(DEVICE)


def vectors(layout: str, seed: int) -> Tensor:
    if layout == "members first":
        return normals(S, N, n, seed=seed).transpose(0, 1)
    return normals(N, n, seed=seed) if layout == "rows" else normals(N, S, n, seed=seed)


def weights(layout: str) -> Tensor:
    # A column of a stack's parameters, which is not contiguous.
    return torch.tensor(-4.0, device=DEVICE) if layout == "rows" else normals(S, 4, seed=3)[:, 1]


def results(inputs: list[Tensor], kappa: float, radius: float, dtype: torch.dtype) -> list[Tensor]:
    """Return the points, and the gradients of both vectors and the weight."""
    leaves = [x.to(dtype).detach().requires_grad_() for x in inputs]
    y = lorentz_join(*leaves, kappa, radius)
    return [y.detach(), *torch.autograd.grad(y, leaves, normals(*y.shape, seed=8).to(dtype))]


def errors(found: list[Tensor], exact: list[Tensor]) -> list[float]:
    """Return the largest errors, relative to the largest number of each tensor."""
    return [float((a.double() - b).abs().max() / b.abs().max()) for a, b in zip(found, exact, strict=True)]


def row_errors(found: list[Tensor], exact: list[Tensor]) -> list[float]:
    """Return the mean over rows of the largest error of a row, relative to its largest number."""
    pairs = zip(found[:3], exact[:3], strict=True)
    return [float(((a.double() - b).abs().amax(-1) / b.abs().amax(-1).clamp(min=1e-30)).mean()) for a, b in pairs]


@pytest.fixture(autouse=True)
def only_kernels(monkeypatch):
    """Fail if, within enabled(), anything but the kernel computes."""

    class Refused:
        @staticmethod
        def apply(z: Tensor, *others: object) -> Tensor:
            if z.dtype == torch.float32 and weighted_join.supports_rows(z, 1.0):
                raise AssertionError("not computed by the kernel")
            return actual.apply(z, *others)

    actual = weighted_join._LorentzJoin
    monkeypatch.setattr(weighted_join, "_LorentzJoin", Refused)


@pytest.mark.parametrize("kappa", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("length", [1e-3, 0.5, 3.0])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_same_numbers_as_torch_operations(layout, length, kappa):
    z, g = (vectors(layout, seed) * length / kappa**0.5 for seed in (0, 1))
    with torch.no_grad():
        z[0], g[1], z[2], g[2], z[3], z[5] = 0, 0, 0, 0, g[3], -g[5]
        z[4] = g[4] * (1 + 1e-4)
    inputs = [z, g, weights(layout)]
    with enabled():
        found = results(inputs, kappa, 10.0, torch.float32)
    with disabled():
        others = results(inputs, kappa, 10.0, torch.float32)
    exact = results(inputs, kappa, 10.0, torch.float64)
    if length < 3:  # farther out, float32 cannot represent the gradients of near vectors
        value, *gradients = errors(found, exact)
        assert value <= 1e-6
        assert max(gradients) <= 1e-5
    for error, other in zip(row_errors(found, exact), row_errors(others, exact), strict=True):
        assert error <= 4 * other + 1e-6
    assert all(a.shape == b.shape for a, b in zip(found, exact, strict=True))


@pytest.mark.parametrize("width", [2, 64, 300, 2048])
@pytest.mark.parametrize("radius", [0.9, 10.0, 40.0])
def test_vectors_below_and_beyond_max_radius(radius, width):
    z, g = (normals(9, width, seed=seed) * 30 / width**0.5 for seed in (0, 1))
    inputs = [z, g, torch.tensor(2.0, device=DEVICE)]
    with enabled():
        found = results(inputs, 1.0, radius, torch.float32)
    with disabled():
        others = results(inputs, 1.0, radius, torch.float32)
    exact = results(inputs, 1.0, radius, torch.float64)
    for error, other in zip(errors(found, exact), errors(others, exact), strict=True):
        assert error <= 4 * other + 1e-6


def test_equal_vectors_give_their_point_and_no_gradient_of_the_weight():
    z = normals(40, 7).requires_grad_()
    w = torch.tensor(3.7, device=DEVICE, requires_grad=True)
    with enabled():
        y = lorentz_join(z, z.detach().clone(), w, 1.3, 10.0)
        (gw,) = torch.autograd.grad(y.sum(), w)
        zero = lorentz_join(z, z.detach().clone(), torch.zeros_like(w), 1.3, 10.0)
    assert torch.equal(y, zero)
    assert gw == 0


def test_finite_for_zeros_subnormals_and_long_vectors():
    special = torch.tensor([0.0, 1e-45, 1e-38, 1e-20, 1.0, 1e12], device=DEVICE)
    v = torch.cartesian_prod(special, special)
    w = torch.tensor(4.0, device=DEVICE)
    with enabled():
        for g in (v, v.flip(0), torch.zeros_like(v)):
            assert_finite_gradients(lambda z, g: lorentz_join(z, g, w, 0.7, 10.0), v, g)


@pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")  # of the interpreter
def test_a_nan_stays_in_its_row_and_is_visible():
    for value in (float("nan"), float("inf"), 1e30):
        z, g = normals(N, n), normals(N, n, seed=1)
        z[7, 2] = value
        z, g = z.requires_grad_(), g.requires_grad_()
        with enabled():
            y = lorentz_join(z, g, torch.tensor(1.0, device=DEVICE), 1.0, 10.0)
            gradients = torch.autograd.grad(y.sum(), (z, g))
        assert y[7].isnan().all()
        for t in (y, *gradients):
            assert torch.cat([t[:7], t[8:]]).isfinite().all()


def test_runs_are_bit_identical():
    inputs = [vectors("nodes first", 0), vectors("nodes first", 1), weights("nodes first")]
    with enabled():
        first, second = (results(inputs, 1.0, 10.0, torch.float32) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_second_derivatives_use_the_formula():
    def second() -> Tensor:
        z, g = normals(6, 4).requires_grad_(), normals(6, 4, seed=1)
        w = torch.tensor(2.0, device=DEVICE)
        (first,) = torch.autograd.grad(lorentz_join(z, g, w, 2.0, 10.0).square().sum(), z, create_graph=True)
        return torch.autograd.grad(first.square().sum(), z)[0]

    with enabled():
        found = second()
    with disabled():
        torch.testing.assert_close(found, second(), rtol=1e-4, atol=1e-4)


def test_unsupported_arguments_use_torch_operations(monkeypatch):
    """A learned curvature, a weight per point, float64, branches that broadcast."""
    monkeypatch.setattr(join, "forward", None)
    z, g, w = normals(6, 4), normals(6, 4, seed=1), torch.tensor(2.0, device=DEVICE)
    own = torch.full((6,), 2.0, device=DEVICE)
    with disabled():
        expected = lorentz_join(z, g, w, 2.0, 10.0)
    with enabled():
        with pytest.raises(TypeError):
            lorentz_join(z, g, w, 2.0, 10.0)
        for arguments in (
            (z, g, w, torch.tensor(2.0, device=DEVICE)),
            (z, g, own, 2.0),
            (z.double(), g.double(), w.double(), 2.0),
        ):
            torch.testing.assert_close(lorentz_join(*arguments, 10.0).float(), expected)
        assert lorentz_join(z, g[:1], w, 2.0, 10.0).shape == z.shape
        assert lorentz_join(z[:0], g[:0], w, 2.0, 10.0).shape == (0, 4)
