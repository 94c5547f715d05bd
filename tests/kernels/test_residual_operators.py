"""The residual as a torch operator: compile, export, second derivatives, checkpointing."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from lresnet import Lorentz, LorentzResidual
from lresnet.functional import lorentz_residual
from lresnet.kernels import disabled, enabled
from lresnet.nn.batch_norm import residual_tail
from tests.kernels.cases import DEVICE, KINDS, on_device, record_launches, residual
from tests.residual.common import normals

pytest.importorskip("triton")


def points(*shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return on_device(normals(*shape, dtype=dtype), normals(*shape, seed=1, dtype=dtype))


@pytest.fixture
def launches(monkeypatch):
    """Record the launches of the residual kernels, with the kernels enabled."""
    from lresnet.kernels import residual

    with enabled():
        yield record_launches(monkeypatch, residual)


# --- operators --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, "space"])
def test_operators_pass_opcheck(kind):
    from lresnet.kernels import residual as ops

    x, y = points(3, 5)
    weight, scale, kappa = on_device(*map(torch.tensor, (0.37, 1.3, 0.7)))
    a, b = on_device(normals(5), normals(5, seed=1))
    leaves = [t.clone().requires_grad_() for t in (x, y, weight, kappa, a, b)]
    torch.library.opcheck(ops.residual, (*leaves[:3], None, leaves[3], None, None, *leaves[4:], kind, True))
    plain = (x, y, weight, scale.expand(3).clone(), kappa, a, b, a, b, kind, True)
    torch.library.opcheck(ops.residual, plain, test_utils=("test_schema", "test_faketensor"))
    for needs_sums in (True, False):
        arguments = (x, *plain, needs_sums)
        torch.library.opcheck(ops.residual_backward, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("kind", KINDS)
def test_compiles_into_one_graph(kind, launches):
    def function(x, y, weight, K):
        return residual(kind, x, y, weight, None, K).square()

    arguments = [*points(4, 6), *on_device(torch.tensor(0.37), torch.tensor(-0.7))]
    found = []
    for f in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
        leaves = [t.clone().requires_grad_() for t in arguments]
        z = f(*leaves)
        found.append([z.detach(), *torch.autograd.grad(z.sum(), leaves, allow_unused=True, materialize_grads=True)])
    torch.testing.assert_close(*found)
    assert launches == ["forward", "backward"] * 2


def test_modules_and_images_compile(launches):
    M = Lorentz(-2.0, learnable=True)
    module = LorentzResidual(M, scale="learned", dim=1).to(DEVICE)
    M.to(DEVICE)
    x, y = (t.to(memory_format=torch.channels_last) for t in points(2, 6, 3, 4))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    z = compiled(x, y)
    assert z.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(z, module(x, y))
    assert launches == ["forward"] * 2
    tail = torch.compile(
        lambda x, y, a, b: residual_tail(x, y, 0.5, 2.0, 0.1, (a, b)), fullgraph=True, backend="aot_eager"
    )
    a, b = on_device(normals(6), normals(6, seed=1))
    torch.testing.assert_close(tail(x, y, a, b), residual_tail(x, y, 0.5, 2.0, 0.1, (a, b)))


def test_exports_as_an_operator():
    module = LorentzResidual(Lorentz(-2.0), weight=0.5).to(DEVICE)
    batch = torch.export.Dim("batch", min=2)
    with enabled():
        program = torch.export.export(module, tuple(points(4, 6)), dynamic_shapes=({0: batch}, {0: batch}))
    assert any(node.target is torch.ops.lresnet.residual.default for node in program.graph.nodes)
    x, y = points(9, 6)
    torch.testing.assert_close(program.module()(x, y), module(x, y))


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_use_the_formulas(kind, launches):
    weight, K = on_device(torch.tensor(0.37), torch.tensor(-0.7))

    def second():
        leaves = [t.clone().requires_grad_() for t in (*points(3, 5), weight, K)]
        z = residual(kind, leaves[0], leaves[1], leaves[2], None, leaves[3])
        first = torch.autograd.grad(z.square().sum(), leaves, create_graph=True, allow_unused=True)
        assert "backward" not in launches
        total = sum(g.square().sum() for g in first if g is not None)
        return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)

    got = second()
    assert launches == ["forward", "backward"]  # the loss is a square, so its derivative depends on the result
    launches.clear()
    with disabled():
        torch.testing.assert_close(got, second(), rtol=1e-4, atol=1e-5)


def test_second_derivatives_on_images_with_weights_per_pixel(launches):
    x, y = points(2, 5, 2, 3)
    weight = normals(2, 2, 3, seed=3).to(DEVICE)

    def second():
        leaves = [t.clone().requires_grad_() for t in (x, y, weight)]
        z = lorentz_residual(*leaves, dim=1)
        first = torch.autograd.grad(z.square().sum(), leaves, create_graph=True)
        assert "backward" not in launches
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    got = second()
    assert launches == ["forward", "backward"]  # the loss is a square, so its derivative depends on the result
    launches.clear()
    with disabled():
        torch.testing.assert_close(got, second(), rtol=1e-4, atol=1e-5)


def test_the_backward_operator_has_no_derivative():
    from lresnet.kernels import residual as ops

    x, y = points(3, 5)
    g = torch.ones(3, 5, device=DEVICE, requires_grad=True)
    kappa = torch.ones((), device=DEVICE)
    gx = ops.residual_backward(g, x, y, None, None, kappa, None, None, None, None, "lorentz", False, False)[0]
    with pytest.raises(RuntimeError, match=r"autograd"):
        gx.sum().backward()


def test_a_result_may_be_changed_in_place(launches):
    for shape, dim in (((4, 6), -1), ((2, 3, 6), -1), ((2, 6, 3, 3), 1)):
        x, y = (t.requires_grad_() for t in points(*shape))
        residual("lorentz", x, y, dim=dim).relu_().sum().backward()
        assert x.grad.isfinite().all()
    assert launches == ["forward", "backward"] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_activation_checkpointing(kind, launches):
    found = []
    for again in (False, True):
        x, y = (t.requires_grad_() for t in points(4, 6))
        z = checkpoint(residual, kind, x, y, use_reentrant=False) if again else residual(kind, x, y)
        found.append(torch.autograd.grad(z.square().sum(), (x, y)))
    assert torch.equal(*map(torch.cat, found))
    assert launches == ["forward", "backward", "forward", "forward", "backward"]
