"""Tests of sparse products, graph layers and graph networks under torch.func: grad, vmap, jacrev, jacfwd, jvp."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

import lresnet
from lresnet.nn import EuclideanGraphConv, LorentzGraphConv, SparseMatrix, adjacency

NODES, FEATURES, CLASSES = 6, 4, 3
EDGES = torch.tensor([[0, 1, 2, 3, 3, 0], [1, 2, 0, 0, 4, 4]])  # directed; node 5 is isolated
WEIGHTS = torch.tensor([1.0, 0.5, 2.0, 0.25, 1.0, 0.7], dtype=torch.float64)


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def model(name: str, **options: object) -> torch.nn.Module:
    return lresnet.create_model(name, in_features=FEATURES, hidden=5, num_classes=CLASSES, dropout=0.0, **options)


def manifold() -> lresnet.Lorentz:
    return lresnet.Lorentz(-0.7, learnable=True)


NETWORKS: dict[str, Callable[[], torch.nn.Module]] = {
    "lorentz conv": lambda: LorentzGraphConv(FEATURES, CLASSES, manifold=manifold()),
    "space conv": lambda: LorentzGraphConv(FEATURES, CLASSES, manifold=manifold(), layer="space"),
    "euclidean conv": lambda: EuclideanGraphConv(FEATURES, CLASSES),
    "gcn": lambda: model("lorentz_gcn"),
    "gcn learned curvature": lambda: model("lorentz_gcn", learn_curvature=True),
    "euclidean gcn": lambda: model("lorentz_gcn", residual="euclidean"),
    "sgformer": lambda: model("lorentz_sgformer"),
    "sgformer lorentz": lambda: model("lorentz_sgformer", branches="lorentz"),
}


@pytest.fixture(params=NETWORKS)
def network(request) -> Callable[[Tensor], Tensor]:
    """Return a network as a function of the features, for a fixed graph."""
    torch.manual_seed(0)
    module = NETWORKS[request.param]().double().eval()
    graph = getattr(module, "graph", adjacency)(EDGES, NODES, WEIGHTS)
    return lambda x: module(x, graph)


def loss_of(network: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: network(x).sin().sum()


def gradient(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(f(leaf), leaf)[0]


def test_grad_equals_autograd(network):
    x = normals(NODES, FEATURES)
    torch.testing.assert_close(grad(loss_of(network))(x), gradient(loss_of(network), x))


def test_vmap_equals_a_loop(network):
    x = normals(3, NODES, FEATURES)
    torch.testing.assert_close(vmap(network)(x), torch.stack([network(member) for member in x]))
    torch.testing.assert_close(vmap(network, in_dims=2)(x.permute(1, 2, 0)), vmap(network)(x))


def test_vmap_and_grad_in_either_order_equal_a_loop(network):
    x = normals(3, NODES, FEATURES)
    loop = torch.stack([gradient(loss_of(network), member) for member in x])
    torch.testing.assert_close(vmap(grad(loss_of(network)))(x), loop)
    torch.testing.assert_close(grad(lambda x: vmap(loss_of(network))(x).sum())(x), loop)


def test_jacobians_equal_autograd_s(network):
    x = normals(NODES, FEATURES)
    expected = torch.autograd.functional.jacobian(network, x)
    torch.testing.assert_close(jacrev(network)(x), expected)
    torch.testing.assert_close(jacfwd(network)(x), expected)


def test_hessians_equal_autograd_s(network):
    x = normals(NODES, FEATURES)
    expected = torch.autograd.functional.hessian(loss_of(network), x)
    torch.testing.assert_close(hessian(loss_of(network))(x), expected)
    torch.testing.assert_close(jacrev(jacrev(loss_of(network)))(x), expected)


def test_forward_mode_passes_gradcheck(network):
    assert gradcheck(network, normals(NODES, FEATURES).requires_grad_(), check_forward_ad=True)


def test_gradients_of_parameters_per_graph_signal():
    gcn = model("lorentz_gcn").double()
    graph = gcn.graph(EDGES, NODES, WEIGHTS)
    parameters = {name: p.detach() for name, p in gcn.named_parameters()}
    x = normals(3, NODES, FEATURES)

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(gcn, parameters, (x, graph)).sin().sum()

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i, member in enumerate(x):
        gcn.zero_grad()
        gcn(member, graph).sin().sum().backward()
        for name, p in gcn.named_parameters():
            torch.testing.assert_close(found[name][i], p.grad)


# --- the sparse product -----------------------------------------------------------------------------------------------


def matrix() -> SparseMatrix:
    """Return a 4 x 3 matrix with an empty row and an empty column."""
    return SparseMatrix.from_dense(torch.tensor([[0, 2, 0], [0, 0, 0], [3, 0.5, 0], [1, 0, 0]], dtype=torch.float64))


@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 2)], ids=str)
def test_products_with_different_values(shape):
    A = matrix()
    x, values = normals(5, *shape), normals(5, A.values.numel(), seed=1)
    loop = [A.matmul(*member) for member in zip(x, values, strict=True)]
    torch.testing.assert_close(vmap(A.matmul)(x, values), torch.stack(loop))
    torch.testing.assert_close(vmap(A.matmul, (None, 0))(x[0], values)[0], loop[0])
    argnums = (0, 1)
    expected = torch.autograd.functional.jacobian(A.matmul, (x[0], values[0]))
    torch.testing.assert_close(jacrev(A.matmul, argnums)(x[0], values[0]), expected)
    torch.testing.assert_close(jacfwd(A.matmul, argnums)(x[0], values[0]), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_half_precision_is_summed_in_float32(dtype):
    A, x = matrix(), normals(2, 3, 2).to(dtype)
    found = vmap(A.product)(x)
    assert found.dtype == dtype
    torch.testing.assert_close(found, torch.stack([A @ member for member in x]))


def test_derivatives_of_edge_weights_with_an_edge_index():
    conv = EuclideanGraphConv(FEATURES, CLASSES).double()
    x = normals(NODES, FEATURES)

    def loss(weights: Tensor) -> Tensor:
        return conv(x, EDGES, weights).sin().sum()

    torch.testing.assert_close(grad(loss)(WEIGHTS), gradient(loss, WEIGHTS))
    torch.testing.assert_close(jvp(loss, (WEIGHTS,), (WEIGHTS,))[1], gradient(loss, WEIGHTS) @ WEIGHTS)


def test_tensors_of_a_transform_are_not_kept():
    A = matrix().to(dtype=torch.float32)
    grad(lambda x: (A.row_sums() * (A @ x)).sum())(torch.ones(3, 1))
    assert not torch._C._functorch.is_functorch_wrapped_tensor(A.row_sums())
    torch.testing.assert_close(A @ torch.ones(3, 1), A.row_sums())
