"""The kernel of prototype logits against torch operations; interpreted on machines without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lresnet import Lorentz
from lresnet.geometry.distance import separation
from lresnet.kernels import disabled, enabled
from lresnet.nn import Prototypes
from lresnet.nn.prototypes import prototype_logits
from lresnet.testing import assert_finite_gradients
from tests.families import CURVATURES, NORMS, pairs

kernels = pytest.importorskip("lresnet.kernels.prototypes", reason="triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
N, S, C, n = 70, 3, 4, 5


def normals(*shape: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64).float().to(DEVICE)


def inputs(layout: str, width: int = n, classes: int = C) -> list[Tensor]:
    """Return points, prototypes and bias."""
    if layout == "rows":
        return [normals(N, width), normals(classes, width, seed=1), normals(classes, seed=2)]
    x = normals(N, S, width) if layout == "nodes first" else normals(S, N, width).transpose(0, 1)
    # The bias is a part of a stack's parameters: contiguous for a member, but not across members.
    return [x, normals(S, classes, width, seed=1), normals(S, classes + 3, seed=2)[:, 1 : classes + 1]]


def results(tensors: list[Tensor], kappa: float, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return the logits, and the gradients of points, prototypes and bias."""
    leaves = [x.to(dtype).detach().requires_grad_() for x in tensors]
    y = prototype_logits(*leaves, kappa)
    return [y.detach(), *torch.autograd.grad(y, leaves, normals(*y.shape, seed=8).to(dtype))]


def separations(x: Tensor, y: Tensor, kappa: float) -> Tensor:
    """Return ``cosh d - 1`` by the kernel, in float64 on the CPU."""
    x, y = (t.float().to(DEVICE) for t in (x, y))
    with enabled():
        logits = prototype_logits(x, y, torch.zeros(y.shape[0], device=DEVICE), kappa)
    return -0.5 * kappa * logits.cpu().double()


@pytest.fixture(autouse=True)
def only_kernels(monkeypatch):
    """Fail if, within enabled(), anything but the kernel computes, unless a test undoes this."""
    from lresnet.nn import prototypes

    def refused(x: Tensor, y: Tensor, kappa: float) -> Tensor:
        assert not (x.dtype == torch.float32 and prototypes.supports_rows(x, kappa)), "not computed by the kernel"
        return actual(x, y, kappa)

    actual = prototypes.prototype_separation
    monkeypatch.setattr(prototypes, "prototype_separation", refused)


@pytest.mark.parametrize("kappa", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("layout", ["rows", "nodes first", "members first"])
def test_same_numbers_as_torch_operations(layout, kappa):
    tensors = inputs(layout)
    with torch.no_grad():
        tensors[0][0] = 0
        tensors[0][1] = tensors[1][..., 0, :]
    with enabled():
        found = results(tensors, kappa)
    for got, exact in zip(found, results(tensors, kappa, torch.float64), strict=True):
        assert got.shape == exact.shape
        assert (got.double() - exact).abs().max() <= 1e-6 * exact.abs().max()


@pytest.mark.parametrize(("width", "classes"), [(1, 2), (64, 64), (300, 1), (2048, 3)])
def test_dimensions_and_numbers_of_classes(width, classes):
    tensors = inputs("rows", width, classes)
    tensors[0] = tensors[0][:5]
    with enabled():
        found = results(tensors, 1.0)
    for got, exact in zip(found, results(tensors, 1.0, torch.float64), strict=True):
        assert (got.double() - exact).abs().max() <= 1e-6 * exact.abs().max()


@pytest.mark.parametrize("K", CURVATURES)
def test_at_least_as_accurate_as_a_matrix_product(K):
    """The bounds of ``tests/geometry/test_distance.py``."""
    for norm in NORMS:
        x, y = pairs("random", norm, count=24)
        exact = separation(x.unsqueeze(1), y[:8].unsqueeze(0), -K, -1).squeeze(-1)
        got = separations(x, y[:8], -K)
        bound = 2e-6 * exact + 8 * 2.0**-24 * (-K) * x.norm(dim=-1).unsqueeze(-1) * y[:8].norm(dim=-1)
        assert ((got - exact).abs() <= bound).all()
        assert (got >= 0).all()


def test_more_accurate_than_a_matrix_product_near_a_prototype():
    x, y = (t.float().double() for t in pairs("near", 30.0, count=32))
    exact = separation(x.unsqueeze(1), y.unsqueeze(0), 1.0, -1).squeeze(-1)
    got = separations(x, y, 1.0)
    assert ((got - exact).abs() <= 1e-3 * exact).all()
    assert exact.min() < 8 * 6e-8 * 901  # below the possible error of the product


@pytest.mark.parametrize("width", [1, 2, 5, 16, 48, 64, 300])
@pytest.mark.parametrize("gap", [0, 3])
def test_a_point_on_a_prototype_is_at_distance_0(width, gap):
    """For every memory layout: both norms are summed in the same order."""
    count = 32 if width < 100 else 8  # the interpreter is slow
    x = (30 * normals(count, width + gap))[:, :width]
    with enabled():
        logits = prototype_logits(x, x.clone(), torch.zeros(count, device=DEVICE), 1.0)
    assert (logits.diagonal() == 0).all()
    assert (logits <= 0).all()


def test_rows_of_any_shape_and_a_vector():
    x, y, bias = normals(2, 5, 3), normals(4, 3, seed=1), normals(4, seed=2)
    with enabled():
        whole = prototype_logits(x, y, bias, 1.0)
        assert whole.shape == (2, 5, 4)
        torch.testing.assert_close(whole[1, 2], prototype_logits(x[1, 2], y, bias, 1.0))
        torch.testing.assert_close(whole[:, 1:4], prototype_logits(x[:, 1:4], y, bias, 1.0))


def test_finite_for_zeros_and_subnormals():
    special = torch.tensor([0.0, 1e-45, 1e-38, 1e-20, 1.0], device=DEVICE)
    points = torch.cartesian_prod(special, special)
    with enabled():
        assert_finite_gradients(lambda x, y: prototype_logits(x, y, torch.zeros_like(y[:, 0]), 0.7), points, points)


def test_a_nan_stays_in_its_row_and_is_visible():
    x, y, bias = inputs("rows")
    x[7, 2] = float("nan")
    x.requires_grad_()
    with enabled():
        logits = prototype_logits(x, y, bias, 1.0)
        (gx,) = torch.autograd.grad(logits.sum(), x)
    assert logits[7].isnan().all()
    assert gx[7].isnan().any()
    for t in (logits, gx):
        assert torch.cat([t[:7], t[8:]]).isfinite().all()


def test_runs_are_bit_identical():
    with enabled():
        first, second = (results(inputs("nodes first"), 1.0) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_second_derivatives_use_the_formula():
    def second() -> Tensor:
        x, y, bias = (t.requires_grad_() for t in inputs("rows"))
        first = torch.autograd.grad(prototype_logits(x, y, bias, 2.0).square().sum(), (x, y), create_graph=True)
        return torch.autograd.grad(first[0].square().sum() + first[1].square().sum(), y)[0]

    with enabled():
        found = second()
    with disabled():
        torch.testing.assert_close(found, second(), rtol=1e-4, atol=1e-3)


def test_the_module_uses_the_kernel_and_does_not_copy_its_gradients():
    torch.manual_seed(0)
    head, x = Prototypes(n, C, manifold=Lorentz(-2.0)).to(DEVICE), normals(N, n)
    with disabled():
        expected = head(x).detach()
    with enabled():
        y = head(x)
        y.square().sum().backward()
    torch.testing.assert_close(y.detach(), expected, rtol=1e-5, atol=1e-5)
    # Both are parts of one tensor of sums.
    assert head.points.grad.untyped_storage().data_ptr() == head.bias.grad.untyped_storage().data_ptr()


def test_unsupported_arguments_use_torch_operations(monkeypatch):
    """A learned curvature, more than 64 classes, float64, the same points for every member of a stack."""
    monkeypatch.undo()
    monkeypatch.setattr(kernels, "forward", None)
    x, y, bias = inputs("rows")
    many, stack = normals(65, n), inputs("nodes first")
    with disabled():
        expected = prototype_logits(x, y, bias, 2.0)
    with enabled():
        with pytest.raises(TypeError):
            prototype_logits(x, y, bias, 2.0)
        torch.testing.assert_close(prototype_logits(x, y, bias, torch.tensor(2.0, device=DEVICE)), expected)
        torch.testing.assert_close(prototype_logits(x.double(), y.double(), bias.double(), 2.0).float(), expected)
        assert prototype_logits(x, many, many[:, 0], 2.0).shape == (N, 65)
        assert prototype_logits(stack[0][:, :1], *stack[1:], 2.0).shape == (N, S, C)
        assert prototype_logits(x[:0], y, bias, 2.0).shape == (0, C)
