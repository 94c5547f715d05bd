"""Closed-form derivatives of vectors and centroids, against autograd, finite differences and torch.func."""

import pytest
import torch
from torch import Tensor

from lresnet.nn import RotaryPositions, apply_rotary
from lresnet.nn import inner_product_vectors as file

ROLES = ("query", "key", "value")


def number(value: float, *shape: int) -> Tensor:
    return torch.full(shape, value, dtype=torch.float64, requires_grad=True)


def points(*shape: int, norm: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64) * norm
    return x.requires_grad_()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("norm", [1e-3, 1.0, 100.0])
def test_vectors_have_the_derivatives_of_their_formula(role, flat, norm):
    x, factor = points(2, 3, 4, 5, norm=norm), number(0.4, 3, 1, 1)
    radius = None if flat else number(0.7, 3, 1, 1)
    inputs = [t for t in (x, factor, radius) if t is not None]
    g = torch.randn(2, 3, 4, 8, dtype=torch.float64)
    found, expected = (
        torch.autograd.grad((f(x, factor, radius, role, torch.float64, 8) * g).sum(), inputs)
        for f in (file._vectors, file._plain_vectors)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("role", ROLES)
def test_vectors_in_half_precision_have_the_gradients_of_the_split_formula(role):
    x = points(2, 3, 4, 61, norm=3.0).detach().float().requires_grad_()
    factor, radius = (torch.full((3, 1, 1), v, requires_grad=True) for v in (0.4, 2.0))
    g = torch.randn(2, 3, 4, 64).bfloat16()
    found, expected = (
        torch.autograd.grad(f(x, factor, radius, role, torch.bfloat16, 64), [x, factor, radius], g)
        for f in (file._vectors, file._plain_vectors)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2 * float(other.abs().max()))
    torch.testing.assert_close(
        file._vectors(x, factor, radius, role, torch.bfloat16, 64),
        file._plain_vectors(x, factor, radius, role, torch.bfloat16, 64),
    )


@pytest.mark.parametrize("with_excess", [False, True])
def test_centroids_have_the_derivatives_of_their_formula(with_excess):
    kappa = number(0.3)
    values, weights = points(6, 4, 5), torch.rand(2, 3, 6, dtype=torch.float64).softmax(-1)

    def f(values, kappa, function=file.centroids):
        mean = torch.einsum("abi,icd->abcd", weights, file.value_vectors(values, kappa, torch.float64, 8))
        return function(mean, 5, kappa, with_excess)

    result = f(values, kappa)
    assert result.shape == (2, 3, 4, 6 if with_excess else 5)
    torch.testing.assert_close(result, f(values, kappa, file._plain_centroids))
    assert torch.autograd.gradcheck(f, (values, kappa))
    assert torch.autograd.gradgradcheck(f, (values[:, :1, :2].detach().requires_grad_(), kappa))


def test_the_centroid_of_equal_values_is_the_value_with_its_derivative():
    value, kappa = points(1, 5, norm=3.0), number(0.3)
    mean = file.value_vectors(value, kappa, torch.float64, 8)
    y = file.centroids(mean, 5, kappa, with_excess=False)
    torch.testing.assert_close(y, value)
    (g,) = torch.autograd.grad(y.sum(), value, retain_graph=True)
    torch.testing.assert_close(g, torch.ones_like(g))
    (gk,) = torch.autograd.grad(y.sum(), kappa)
    assert gk.abs() < 1e-12


def test_vectors_and_centroids_under_transforms():
    x = points(3, 4, 5).detach()

    def f(x, kappa):
        v = file.value_vectors(x, kappa, torch.float64, 8)
        return file.centroids(v.mean(-2), 5, kappa, with_excess=True)

    kappa = torch.tensor(0.3, dtype=torch.float64)
    torch.testing.assert_close(torch.vmap(f, (0, None))(x, kappa), f(x, kappa))
    reverse, forward = (jac(f, (0, 1))(x[0], kappa) for jac in (torch.func.jacrev, torch.func.jacfwd))
    for one, other in zip(reverse, forward, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("role", ROLES)
def test_vectors_of_turned_points_have_the_derivatives_of_their_formula(role):
    x, factor, radius = points(2, 4, 3, 5), number(0.4, 3, 1), number(0.7, 3, 1)
    cos, sin = (t.unsqueeze(-2) for t in RotaryPositions(5)(torch.arange(4, dtype=torch.float64)))
    g = torch.randn(2, 4, 3, 8, dtype=torch.float64)
    arguments = (x, factor, radius, role, torch.float64, 8)
    found = file._vectors(*arguments, (cos, sin))
    expected = file._plain_vectors(apply_rotary(x, cos, sin), factor, radius, role, torch.float64, 8)
    torch.testing.assert_close(found, expected)
    inputs = (x, factor, radius)
    for one, other in zip(torch.autograd.grad(found, inputs, g), torch.autograd.grad(expected, inputs, g), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    turning = cos.clone().requires_grad_()  # learned angles
    total = (file._vectors(*arguments, (turning, sin)) * g).sum()
    assert torch.autograd.grad(total, turning)[0].abs().max() > 0


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's tracer
@pytest.mark.parametrize("curvature", ["number", "tensor"])
def test_compiled_derivatives_are_those_of_eager_code(curvature):
    """For gradients with any strides; torch 2.11 compiled derivatives of 0 where a last ``to`` did nothing."""
    kappa = 0.3 if curvature == "number" else torch.tensor(0.3)
    x = torch.randn(2, 4, 3, 7)
    rotary = tuple(t.unsqueeze(-2) for t in RotaryPositions(7)(torch.arange(4)))
    functions = (
        lambda x: file.query_vectors(x, kappa, torch.full((3, 1), 2.0), torch.float32, 8, rotary),
        lambda x: file.key_vectors(x, kappa, torch.float32, 8, rotary),
        lambda x: file.value_vectors(x, kappa, torch.float32, 8),
        lambda x: file.centroids(x, 6, kappa, True),
        lambda x: file.centroids(x, 5, kappa, False),
    )
    for function in functions:
        found = []
        for run in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
            own = x.clone().requires_grad_()
            result = run(own).transpose(1, 2)
            g = torch.randn(result.shape, generator=torch.Generator().manual_seed(0))
            found += [result, *torch.autograd.grad(result, own, g)]
        for one, other in zip(found[:2], found[2:], strict=True):
            torch.testing.assert_close(one, other)
        torch.compiler.reset()


def test_numbers_in_one_pass_are_numbers_appended():
    x, numbers = torch.randn(3, 4, 5), [torch.randn(3, 4, 1) for _ in range(2)]
    padded = torch.nn.functional.pad(x, (0, 3))
    assert torch.equal(file._with_numbers(padded, numbers, 5), file._appended(x, numbers, 8))
