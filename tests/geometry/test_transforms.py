"""Every method of the manifold under compile, export, vmap, grad, autocast and on the meta device."""

import pytest
import torch

from lresnet import Lorentz
from lresnet.testing import assert_compiles

# torch.compile instantiates the autograd.Function while tracing, which torch itself deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated")

M = Lorentz(-0.7)
METHODS = {
    "time": (M.time, 1),
    "lift": (M.lift, 1),
    "drop": (lambda x: M.drop(M.lift(x)), 1),
    "dist": (M.dist, 2),
    "dist2": (M.dist2, 2),
    "dist0": (M.dist0, 1),
    "inner": (M.inner, 3),
    "expmap": (M.expmap, 2),
    "logmap": (M.logmap, 2),
    "expmap0": (M.expmap0, 1),
    "logmap0": (M.logmap0, 1),
    "transp": (M.transp, 3),
    "boost": (M.boost, 2),
    "egrad2rgrad": (M.egrad2rgrad, 2),
    "retr": (M.retr, 2),
    "centroid": (lambda x, y, z: M.centroid(torch.stack([x, y, z], -2)), 3),
    "to_poincare": (M.to_poincare, 1),
    "from_poincare": (lambda x: M.from_poincare(0.1 * x), 1),
    "to_klein": (M.to_klein, 1),
    "from_klein": (lambda x: M.from_klein(0.1 * x), 1),
}
over_methods = pytest.mark.parametrize(("f", "arity"), METHODS.values(), ids=METHODS)


def points(arity: int) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(4, 3, generator=g) for _ in range(arity)]


@pytest.mark.slow
def test_all_maps_compile_into_one_graph():
    # One graph for all of them, since each graph takes a second; a graph break in any of them fails the test.
    def everything(x, y, z):
        results = [f(*(x, y, z)[:arity]) for f, arity in METHODS.values()]
        return torch.cat([r.reshape(-1) for r in results])

    assert_compiles(everything, *points(3), tolerance=1e-4)


@pytest.mark.slow
def test_learnable_curvature_compiles_into_one_graph():
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.manifold = Lorentz(-0.7, learnable=True)

        def forward(self, x, y):
            moved = self.manifold.boost(x, y)
            return self.manifold.dist2(moved, self.manifold.centroid(torch.stack([x, y], -2)))

    assert_compiles(Module(), *points(2))


def test_exports():
    class Module(torch.nn.Module):
        def forward(self, x, y):
            return M.dist(M.expmap(x, M.logmap(x, y)), M.boost(x, y))

    x, y = points(2)
    program = torch.export.export(Module(), (x, y))
    torch.testing.assert_close(program.module()(x, y), Module()(x, y))


@over_methods
def test_vmap_agrees_with_a_loop(f, arity):
    args = points(arity)
    torch.testing.assert_close(torch.func.vmap(f)(*args), torch.stack([f(*row) for row in zip(*args, strict=True)]))


@over_methods
def test_vmap_of_grad_agrees_with_autograd(f, arity):
    args = points(arity)
    per_row = torch.func.vmap(torch.func.grad(lambda *a: f(*a).square().sum(), argnums=tuple(range(arity))))(*args)
    leaves = [a.clone().requires_grad_() for a in args]
    f(*leaves).square().sum().backward()
    for got, leaf in zip(per_row, leaves, strict=True):
        torch.testing.assert_close(got, leaf.grad)


@over_methods
def test_forward_and_reverse_mode_jacobians_of_maps(f, arity):
    args, argnums = [a.double() for a in points(arity)], tuple(range(arity))
    torch.testing.assert_close(torch.func.jacfwd(f, argnums)(*args), torch.func.jacrev(f, argnums)(*args))


@over_methods
def test_autocast_changes_nothing(f, arity):
    args = points(arity)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = f(*args)
    assert out.dtype == torch.float32
    assert torch.equal(out, f(*args))


@over_methods
def test_meta_tensors(f, arity):
    args = points(arity)
    out = f(*(a.to("meta") for a in args))
    assert out.device.type == "meta"
    assert out.shape == f(*args).shape


@over_methods
def test_inputs_are_not_changed(f, arity):
    args = points(arity)
    copies = [a.clone() for a in args]
    f(*args)
    assert all(torch.equal(a, b) for a, b in zip(args, copies, strict=True))


@over_methods
def test_non_contiguous_inputs(f, arity):
    args = points(arity)
    strided = [a.t().contiguous().t() for a in args]
    torch.testing.assert_close(f(*strided), f(*args))
