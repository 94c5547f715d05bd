"""Tests of LorentzGATConv against its formula, written out node by node in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from lresnet import Lorentz
from lresnet.nn import LorentzGATConv
from lresnet.testing import assert_finite_gradients, assert_on_manifold

NODES, HEADS, WIDTH = 8, 3, 2


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def graph() -> tuple[Tensor, Tensor]:
    """Return a weighted graph without self loops; the last node has no neighbours."""
    g = torch.Generator().manual_seed(1)
    pairs = torch.randperm(NODES * (NODES - 1), generator=g)[:20]
    source, target = pairs // (NODES - 1), pairs % (NODES - 1)
    keep = source != target
    edges = torch.stack([source, target])[:, keep]
    return edges, 0.1 + torch.rand(edges.shape[1], generator=g, dtype=torch.float64)


def make(K: float = -2.0, **options: object) -> LorentzGATConv:
    torch.manual_seed(0)
    conv = LorentzGATConv(4, WIDTH, HEADS, manifold=Lorentz(K), **options).double()
    with torch.no_grad():
        conv.log_scale.normal_(std=0.3)
    return conv


def expected_points(conv: LorentzGATConv, x: Tensor, edge_index: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return [N, H, n] and alpha [N, N, H] by lifted points, inner products and the centroid of the manifold."""
    M = conv.manifold
    keys, queries = (lin(x).unflatten(-1, (HEADS, WIDTH)) for lin in (conv.lin_src, conv.lin_dst))
    sign = torch.ones(WIDTH + 1, dtype=torch.float64)
    sign[0] = -1
    y, alphas = torch.zeros(NODES, HEADS, WIDTH, dtype=torch.float64), torch.zeros(NODES, NODES, HEADS).double()
    for i in range(NODES):
        neighbours = [(int(s), w) for s, t, w in zip(*edge_index, weight, strict=True) if t == i]
        for head in range(HEADS if neighbours else 0):
            points = torch.stack([keys[j, head] for j, _ in neighbours])
            inner = (M.lift(queries[i, head]) * sign * M.lift(points)).sum(-1)
            alpha = torch.softmax(conv.log_scale[head].exp() * (2 / M.kappa + 2 * inner), 0)
            y[i, head] = M.centroid(points, alpha * torch.stack([w for _, w in neighbours]))
            alphas[i, [j for j, _ in neighbours], head] = alpha
    return y, alphas


@pytest.mark.parametrize("K", [-0.1, -1.0, -2.0])
@pytest.mark.parametrize("layer", ["hybonet", "space"])
def test_the_layer_is_the_formula_of_its_docstring(K, layer):
    conv, x, (edge_index, weight) = make(K, layer=layer, self_loops=False), normals(NODES, 4), graph()
    y, (edges, alpha) = conv(x, edge_index, weight, return_attention_weights=True)
    expected, alphas = expected_points(conv, x, edge_index, weight)
    torch.testing.assert_close(y, expected.flatten(1), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(alpha, alphas[edges[1], edges[0]], rtol=1e-9, atol=1e-9)
    assert not y[-1].any()  # no neighbours: the origin
    assert_on_manifold(y, conv.manifold)
    joined = make(K, layer=layer, self_loops=False, concat=False)(x, edge_index, weight)
    torch.testing.assert_close(joined, conv.manifold.centroid(expected), rtol=1e-9, atol=1e-9)


def test_self_loops_are_neighbours_of_weight_1():
    conv, x, (edge_index, weight) = make(), normals(NODES, 4), graph()
    loops = torch.arange(NODES).expand(2, -1)
    edges, weights = torch.cat([edge_index, loops], 1), torch.cat([weight, torch.ones(NODES, dtype=torch.float64)])
    expected = make(self_loops=False)(x, edges, weights)
    y, (returned, alpha) = conv(x, edge_index, weight, return_attention_weights=True)
    torch.testing.assert_close(y, expected)
    assert torch.equal(returned, edges)
    sums = torch.zeros(NODES, HEADS, dtype=torch.float64).index_add(0, returned[1], alpha)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_an_edge_of_weight_zero_has_no_effect():
    conv, x, (edge_index, weight) = make(self_loops=False), normals(NODES, 4), graph()
    weight[edge_index[1] == 0] = 0.0  # all edges of node 0
    y = conv(x, edge_index, weight)
    assert not y[0].any()
    assert y.isfinite().all()


def test_derivatives():
    conv, (edge_index, weight) = make(), graph()

    def f(x: Tensor, weight: Tensor, log_scale: Tensor) -> Tensor:
        return torch.func.functional_call(conv, {"log_scale": log_scale}, (x, edge_index, weight))

    inputs = normals(NODES, 4), weight, conv.log_scale.detach().clone()
    assert gradcheck(f, tuple(t.requires_grad_() for t in inputs))


def test_finite_gradients_at_the_origin():
    conv, (edge_index, _) = LorentzGATConv(4, 2, 2, manifold=Lorentz(-1.0)), graph()
    assert_finite_gradients(lambda x: conv(x, edge_index), torch.zeros(NODES, 4))


def test_dropout_of_coefficients_in_training_only():
    conv, x, (edge_index, weight) = make(dropout=0.5), normals(NODES, 4), graph()
    assert not torch.equal(conv(x, edge_index, weight), conv(x, edge_index, weight))
    conv.eval()
    assert torch.equal(conv(x, edge_index, weight), make()(x, edge_index, weight))


def test_half_precision_is_computed_in_float32():
    conv, (edge_index, _) = LorentzGATConv(4, 2, 2, manifold=Lorentz(-1.0)), graph()
    x = normals(NODES, 4).to(torch.bfloat16)
    y = conv(x, edge_index)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, conv(x.float(), edge_index).to(torch.bfloat16))


def test_wrong_arguments_are_rejected():
    with pytest.raises(ValueError, match="need heads >= 1 and 0 <= dropout < 1, got 0 and"):
        LorentzGATConv(4, 2, 0, manifold=Lorentz(-1.0))
    with pytest.raises(ValueError, match="needs the points of the targets"):
        make()((normals(NODES, 4), None), graph()[0])
    with pytest.raises(ValueError, match="layer must be one of hybonet, space, hyperplane, got 'linear'"):
        make(layer="linear")
