"""Tests of layers and heads under torch.compile and torch.func, and on the meta device."""

import copy

import pytest
import torch
from torch.func import functional_call, grad, vmap

import lresnet
from lresnet.nn import LorentzLinear, LorentzMLR, Prototypes
from lresnet.testing import assert_compiles

LAYERS = {
    "linear": lambda M: LorentzLinear(4, 3, manifold=M),
    "mlr": lambda M: LorentzMLR(4, 3, manifold=M),
    "prototypes": lambda M: Prototypes(4, 3, manifold=M),
    "mlp": lambda M: lresnet.create_model(
        "lorentz_mlp", in_features=4, num_classes=3, learn_curvature=M.learnable, curvature=-0.7
    ),
}


@pytest.fixture(params=[False, True], ids=["fixed", "learned"])
def manifold(request):
    return lresnet.Lorentz(-0.7, learnable=request.param)


@pytest.fixture(params=LAYERS)
def layer(request, manifold):
    torch.manual_seed(0)
    return LAYERS[request.param](manifold)


# torch's tracer instantiates every autograd.Function and warns about it.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


def test_layers_compile_without_a_graph_break(layer):
    assert_compiles(layer, X)


def test_vmap_equals_the_batch(layer):
    torch.testing.assert_close(vmap(layer)(X), layer(X))


def test_gradients_per_sample_sum_to_the_gradient(layer):
    layer.double()
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    x, direction = X.double(), torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)

    def loss(values, x):
        return (functional_call(layer, values, (x,)) * direction).sum()

    per_sample = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    (layer(x) * direction).sum().backward()
    for name, p in layer.named_parameters():
        torch.testing.assert_close(per_sample[name].sum(0), p.grad)


def test_layers_work_on_the_meta_device(layer):
    moved = copy.deepcopy(layer).to("meta")
    assert moved(X.to("meta")).shape == layer(X).shape


def test_prototypes_can_be_built_on_the_meta_device():
    with torch.device("meta"):
        head = Prototypes(4, 3, manifold=lresnet.Lorentz(-0.7))
    assert head.points.is_meta
