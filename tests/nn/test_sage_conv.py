"""Tests of LorentzSAGEConv: the formula of its docstring, PyG's SAGEConv in the limit of curvature 0, derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch_geometric.nn import SAGEConv

from lresnet import Lorentz
from lresnet.nn import EuclideanSAGEConv, LorentzSAGEConv, adjacency
from lresnet.nn.sage_conv import sum_options
from lresnet.residual import METHODS
from lresnet.testing import assert_compiles, assert_finite_gradients, assert_on_manifold

NODES = 10


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def graph(edges: int = 30) -> Tensor:
    """Return edges without duplicates, since PyG's mean counts them twice; the last node has no neighbours."""
    g = torch.Generator().manual_seed(1)
    pairs = torch.randperm(NODES * (NODES - 1), generator=g)[:edges]
    return torch.stack([pairs // (NODES - 1), pairs % (NODES - 1)])


def make(K: float, **options: object) -> LorentzSAGEConv:
    torch.manual_seed(0)
    conv = LorentzSAGEConv(4, 3, manifold=Lorentz(K), **options).double()
    with torch.no_grad():
        conv.lin_l.bias.normal_()
    return conv


def flat_twin(conv: LorentzSAGEConv) -> SAGEConv:
    """Return PyG's layer with the same matrices. Both linear layers of ours have a bias; PyG's has one."""
    twin = SAGEConv(4, 3, aggr="mean").double()
    with torch.no_grad():
        twin.lin_l.weight.copy_(conv.lin_l.weight)
        twin.lin_r.weight.copy_(conv.lin_r.weight)
        twin.lin_l.bias.copy_(conv.lin_l.bias + conv.lin_r.bias)
    return twin


def test_the_limit_for_curvature_zero_is_pyg_s_sage_conv():
    """The difference is proportional to the curvature, also for the node without neighbours."""
    errors = []
    for kappa in (1e-4, 1e-6, 1e-8):
        conv = make(-kappa)
        errors.append((conv(normals(NODES, 4), graph()) - flat_twin(conv)(normals(NODES, 4), graph())).abs().max())
    assert errors[1] < 1e-4
    assert 80 < errors[0] / errors[1] < 125
    assert 80 < errors[1] / errors[2] < 125


def test_the_limit_of_another_weight():
    """With weight w and its scale 1 + w the limit is root + w neighbours."""
    conv = make(-1e-9, residual_options={"weight": 0.25})
    twin = flat_twin(conv)
    with torch.no_grad():
        twin.lin_l.weight.mul_(0.25)
        twin.lin_l.bias.copy_(0.25 * conv.lin_l.bias + conv.lin_r.bias)
    x = normals(NODES, 4)
    torch.testing.assert_close(conv(x, graph()), twin(x, graph()), rtol=1e-6, atol=1e-6)


def test_the_euclidean_baseline_is_pyg_s_sage_conv():
    torch.manual_seed(0)
    conv = EuclideanSAGEConv(4, 3).double()
    twin = SAGEConv(4, 3, aggr="mean").double()
    twin.load_state_dict(conv.state_dict())
    x, weight = normals(NODES, 4), torch.ones(30, dtype=torch.float64)
    torch.testing.assert_close(conv(x, graph(), weight), twin(x, graph()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("K", [-0.1, -1.0, -2.0])
@pytest.mark.parametrize("layer", ["hybonet", "space", "hyperplane"])
@pytest.mark.parametrize("residual", ["lorentz", "parallel_transport", "tangent", "space", "none"])
def test_the_layer_is_the_formula_of_its_docstring(K, layer, residual):
    conv, x = make(K, layer=layer, residual=residual), normals(NODES, 4)
    A = adjacency(graph(), NODES, self_loops=False)
    weight = x.new_zeros(A.shape).index_put((A.row, A.col), A.values.double())
    neighbours = conv.lin_l(conv.manifold.centroid(x.expand(NODES, NODES, 4), weight))
    expected = neighbours if residual == "none" else conv.residual(conv.lin_r(x), neighbours)
    torch.testing.assert_close(conv(x, graph()), expected, rtol=1e-10, atol=1e-10)
    assert_on_manifold(conv(x, graph()), conv.manifold)


def test_the_root_has_its_own_weight():
    conv, x = make(-1.0), normals(NODES, 4)
    moved = x.clone()
    moved[-1] += 1.0  # node 9 is the target of no edge
    assert not torch.equal(conv(moved, graph())[-1], conv(x, graph())[-1])
    assert make(-1.0, residual="none").lin_r is None


def test_derivatives():
    conv, edges = make(-2.0), graph(12)
    weight = 0.5 + torch.rand(12, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    inputs = normals(NODES, 4).requires_grad_(), weight.requires_grad_()
    assert gradcheck(lambda x, w: conv(x, edges, w), inputs)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # from torch's tracer
def test_finite_gradients_at_the_origin_and_compilation():
    conv = LorentzSAGEConv(4, 3, manifold=Lorentz(-1.0))
    A = adjacency(graph(), NODES, self_loops=False)
    assert_finite_gradients(lambda x: conv(x, A), torch.zeros(NODES, 4))
    assert_compiles(lambda x: conv(x, A), torch.randn(NODES, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    conv = LorentzSAGEConv(4, 3, manifold=Lorentz(-1.0))
    x = normals(NODES, 4).to(dtype)
    y = conv(x, graph())
    assert y.dtype == dtype
    assert torch.equal(y, conv(x.float(), graph()).to(dtype))


def test_options_of_the_sum():
    assert sum_options("lorentz", {"weight": "learned"}) == {"weight": "learned", "scale": 2.0}
    assert sum_options("lorentz", {"weight": "learned", "initial_weight": 0.5})["scale"] == 1.5
    learned = {"weight": 0.5, "scale": "learned"}
    assert sum_options("lorentz", learned) == learned | {"initial_scale": 1.5}
    follows = {"weight": "learned", "scale": "1+w"}
    assert sum_options("lorentz", follows) == follows
    assert sum_options("lorentz", {"scale": None}) == {"weight": 1.0, "scale": None}
    assert sum_options("tangent", {"weight": 0.5}) == {"weight": 0.5}
    assert all(make(-1.0, residual=name) for name, method in METHODS.items() if method.role != "textbook")
