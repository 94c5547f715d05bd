"""Every residual module under compile, export, vmap, grad and autocast."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, jacrev, vmap

from lresnet import Lorentz, make_residual
from lresnet.functional import klein_residual, lorentz_residual, lorentz_residual_many, poincare_residual
from lresnet.residual import METHODS, RESIDUALS
from lresnet.testing import assert_compiles
from tests.residual.common import CONFIGURATIONS, build, name_of, normals, per_point

every_configuration = pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=name_of)
every_kind = pytest.mark.parametrize("kind", RESIDUALS)
every_curvature = pytest.mark.parametrize("learnable", [False, True], ids=["fixed", "learnable"])

# torch.compile instantiates the autograd.Function while tracing, which torch itself deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated")


def points(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return normals(*shape, dtype=dtype), normals(*shape, seed=1, dtype=dtype)


# --- compile --------------------------------------------------------------------------------------------------------


@every_configuration
def test_compiles_into_one_graph(configuration):
    assert_compiles(build(configuration, Lorentz(-2.0, learnable=True)), *points(4, 3))


@every_kind
def test_compiles_with_a_fixed_curvature_on_images(kind):
    assert_compiles(make_residual(kind, Lorentz(-2.0), dim=1), *points(2, 3, 2, 2))


def test_compiled_gradients_of_parameters():
    M = Lorentz(-2.0, learnable=True)
    residual = make_residual("lorentz", M, scale="learned")
    parameters = [*residual.parameters(), M.log_kappa]
    x, y = points(4, 3)
    expected = torch.autograd.grad(residual(x, y).square().sum(), parameters)
    compiled = torch.compile(residual, fullgraph=True, backend="aot_eager")
    got = torch.autograd.grad(compiled(x, y).square().sum(), parameters)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("function", [poincare_residual, klein_residual], ids=["poincare", "klein"])
def test_residuals_in_charts_compile(function):
    x, y = points(4, 3)
    assert_compiles(lambda p, q: function(p, q, 0.37), 0.2 * x, 0.2 * y)


def test_lorentz_residual_many_compiles():
    weight = per_point(4)
    assert_compiles(
        lambda x, y, z: lorentz_residual_many([x, y, z], [1.0, 0.37, weight], 2.0, K=-2.0),
        *points(4, 3),
        normals(4, 3, seed=2),
    )


def test_compiles_at_zeros():
    x, y = points(4, 3)
    x[0], y[1], x[2], y[2] = 0.0, 0.0, 0.0, 0.0
    y[3] = x[3]
    assert_compiles(make_residual("lorentz", Lorentz(), weight=0.37), x, y)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [None, "learned"])
def test_generated_code_of_the_lorentz_residual(scale):
    residual = make_residual("lorentz", Lorentz(-2.0, learnable=True), scale=scale, initial_weight=0.37)
    assert_compiles(residual, *points(33, 17), backend="inductor")


# --- export --------------------------------------------------------------------------------------------------------


@every_configuration
def test_exports(configuration):
    residual = build(configuration, Lorentz(-2.0, learnable=True))
    x, y = points(4, 3)
    exported = torch.export.export(residual, (x, y)).module()
    torch.testing.assert_close(exported(x, y), residual(x, y))
    torch.testing.assert_close(exported(y, x), residual(y, x))


@every_kind
def test_exports_with_a_fixed_curvature_and_a_free_batch_size(kind):
    residual = make_residual(kind, Lorentz(-2.0))
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(residual, points(4, 3), dynamic_shapes=({0: batch}, {0: batch})).module()
    for count in (2, 9):
        x, y = points(count, 3)
        torch.testing.assert_close(exported(x, y), residual(x, y))


# --- vmap and grad -------------------------------------------------------------------------------------------------


@every_curvature
@every_configuration
def test_vmap(configuration, learnable):
    residual = build(configuration, Lorentz(-2.0, learnable=learnable))
    x, y = points(5, 4, 3)
    torch.testing.assert_close(vmap(residual)(x, y), torch.stack([residual(a, b) for a, b in zip(x, y, strict=True)]))
    torch.testing.assert_close(vmap(residual, in_dims=(0, None))(x, y[0]), torch.stack([residual(a, y[0]) for a in x]))


@every_curvature
@every_configuration
def test_grad_and_vmap_of_grad(configuration, learnable):
    residual = build(configuration, Lorentz(-2.0, learnable=learnable))
    x, y = points(5, 4, 3)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return residual(x, y).square().sum()

    leaves = x.clone().requires_grad_(), y.clone().requires_grad_()
    total = sum(loss(a, b) for a, b in zip(*leaves, strict=True))
    expected = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    got = vmap(grad(loss, argnums=(0, 1)))(x, y)
    # The gradients of the textbook forms cancel, so they depend on the order of the operations, and so on the CPU.
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if METHODS[configuration[0]].role == "textbook" else {}
    torch.testing.assert_close(got, expected, **tolerance)
    single = grad(loss, argnums=(0, 1))(x[0], y[0])
    torch.testing.assert_close(single, (expected[0][0], expected[1][0]), **tolerance)


def test_per_sample_gradients_of_parameters():
    residual = make_residual("lorentz", Lorentz(-2.0), scale="learned")
    parameters = dict(residual.named_parameters())
    x, y = points(5, 3)

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional_call(residual, parameters, (x, y)).square().sum()

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    together = grad(loss)(parameters, x, y)
    for name in parameters:
        assert per_sample[name].shape == (5, 1)
        torch.testing.assert_close(per_sample[name].sum(0), together[name])


def test_vmap_over_weight_and_curvature():
    x, y = points(4, 3)
    weights, curvatures = torch.tensor([0.1, 1.0, 3.0]), torch.tensor([-0.1, -1.0, -10.0])
    got = vmap(lambda w, K: lorentz_residual(x, y, w, K=K))(weights, curvatures)
    rows = [lorentz_residual(x, y, float(w), K=float(K)) for w, K in zip(weights, curvatures, strict=True)]
    torch.testing.assert_close(got, torch.stack(rows))


def test_vmap_of_lorentz_residual_many():
    x, y = points(5, 4, 3)
    got = vmap(lambda a, b: lorentz_residual_many([a, b, a], [1.0, 0.37, 2.0]))(x, y)
    torch.testing.assert_close(got, lorentz_residual_many([x, y, x], [1.0, 0.37, 2.0]))


@every_kind
def test_jacobian(kind):
    residual = make_residual(kind, Lorentz(-2.0))
    x, y = points(3)
    got = jacrev(residual, argnums=(0, 1))(x, y)
    expected = torch.autograd.functional.jacobian(residual, (x, y))
    torch.testing.assert_close(got, expected)


# --- low precision --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_curvature
@every_configuration
def test_half_precision_is_computed_in_float32(configuration, learnable, dtype):
    residual = build(configuration, Lorentz(-2.0, learnable=learnable))
    x, y = points(4, 3, dtype=dtype)
    got = residual(x, y)
    assert got.dtype == dtype
    assert torch.equal(got, residual(x.float(), y.float()).to(dtype))


@every_kind
def test_autocast_changes_nothing(kind):
    residual = make_residual(kind, Lorentz(-2.0))
    for dtype in (torch.float32, torch.bfloat16):
        x, y = points(64, 3, dtype=dtype)
        plain = residual(x, y)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = residual(x, y)
        assert cast.dtype == dtype
        assert torch.equal(cast, plain)


@pytest.mark.parametrize("kind", [k for k in RESIDUALS if "textbook" not in k])
def test_bfloat16_error_is_that_of_rounding_the_result(kind):
    # Near points of norm 85, for which arithmetic in bfloat16 would have no correct digit.
    residual = make_residual(kind, Lorentz(-2.0))
    x = (30 * normals(256, 8)).bfloat16()
    y = (x.float() * (1 + 0.01 * normals(256, 8, seed=1))).bfloat16()
    exact = residual(x.double(), y.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = residual(x, y)
    half_ulp = 2.0**-8 * exact.abs()
    assert ((got - exact).abs() <= half_ulp + 1e-5 * exact.norm(dim=-1, keepdim=True)).all()


@every_kind
def test_gradients_have_the_dtype_of_their_inputs(kind):
    residual = make_residual(kind, Lorentz(-2.0, learnable=True))
    x, y = (t.requires_grad_() for t in points(4, 3, dtype=torch.bfloat16))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        residual(x, y).sum().backward()
    for leaf in (x, y):
        assert leaf.grad is None or (leaf.grad.dtype == torch.bfloat16 and leaf.grad.isfinite().all())
    for parameter in residual.parameters():
        assert parameter.grad.dtype == torch.float32


@pytest.mark.parametrize("kind", [k for k in RESIDUALS if k != "none"])
@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float32, torch.bfloat16, torch.float32),
        (torch.float16, torch.bfloat16, torch.float32),
        (torch.float32, torch.float64, torch.float64),
    ],
)
def test_mixed_dtypes_are_promoted(kind, a, b, result):
    residual = make_residual(kind, Lorentz(-2.0))
    x, y = points(4, 3)
    x, y = x.to(a), y.to(b)
    got = residual(x, y)
    assert got.dtype == result
    torch.testing.assert_close(got, residual(x.to(result), y.to(result)))


def test_residual_of_a_layer_under_autocast():
    linear = torch.nn.Linear(3, 3)
    residual = make_residual("lorentz", Lorentz(-2.0, learnable=True), scale="learned")
    x = normals(8, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = linear(x)
        z = residual(x, out)
    assert out.dtype == torch.bfloat16
    assert z.dtype == torch.float32
    torch.testing.assert_close(z, residual(x, out.float()))
    z.sum().backward()
    assert linear.weight.grad.isfinite().all()
