"""torch.fx: layers on a manifold are nodes of a traced graph, which can be trained, cut, saved and loaded."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import Tensor, fx, nn

import lresnet

EVERY = pytest.mark.parametrize("learnable", [False, True])


class Block(nn.Module):
    def __init__(self, manifold: lresnet.Lorentz) -> None:
        super().__init__()
        self.linear, self.residual = nn.Linear(4, 4), lresnet.LorentzResidual(manifold, scale="learned")

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(x, self.linear(x).relu())


class Network(nn.Module):
    def __init__(self, learnable: bool, registered: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        manifold = lresnet.Lorentz(-0.5, learnable=learnable)
        if registered:
            self.manifold = manifold
        self.blocks = nn.Sequential(*(Block(manifold) for _ in range(3)))
        self.head = lresnet.nn.LorentzMLR(4, 3, manifold=manifold)

    def forward(self, x):  # torch.save refuses a graph whose annotations are strings, as they are in this file
        return self.head(self.blocks(x))


class LeafTracer(fx.Tracer):
    """A tracer that treats our layers as it treats those of torch."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, lresnet.geometry.ManifoldModule) or super().is_leaf_module(module, name)


@EVERY
def test_a_traced_network_computes_trains_and_exchanges_state_dicts(learnable):
    net, x = Network(learnable), torch.randn(5, 4)
    traced = fx.symbolic_trace(net)
    traced.graph.lint()
    assert sum(node.op == "call_module" and "residual" in node.target for node in traced.graph.nodes) == 3
    assert torch.equal(traced(x), net(x))
    assert dict(traced.named_parameters()).keys() == dict(net.named_parameters()).keys()
    twin = Network(learnable)
    twin.load_state_dict(traced.state_dict())
    traced.load_state_dict(net.state_dict())
    traced(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in traced.parameters())
    groups = lresnet.optim.parameter_groups(traced)
    assert len(groups.geometric) == 6 + learnable


@EVERY
def test_a_traced_network_can_be_copied_saved_and_loaded(learnable):
    net, x = Network(learnable), torch.randn(5, 4)
    traced = fx.symbolic_trace(net)
    file = io.BytesIO()
    torch.save(traced, file)
    file.seek(0)
    for twin in (copy.deepcopy(traced), torch.load(file, weights_only=False)):
        assert torch.equal(twin(x), net(x))
        assert twin.state_dict().keys() == traced.state_dict().keys()
        twin(x).square().sum().backward()
        if learnable:
            assert twin.manifold.log_kappa.grad.abs() > 0
            assert twin.head.manifold is twin.manifold
    assert net.blocks[0].linear.weight.grad is None


def test_a_traced_network_refuses_another_curvature():
    traced, other = fx.symbolic_trace(Network(False)), Network(False)
    other.manifold = lresnet.Lorentz(-2.0)
    with pytest.raises(RuntimeError, match=r"saved with curvature -2, this network has curvature -0\.5"):
        traced.load_state_dict(other.state_dict())


@EVERY
def test_features_of_an_inner_layer(learnable):
    """The steps of torchvision's ``create_feature_extractor``: trace, return an inner node, remove what is unused."""
    net, x = Network(learnable), torch.randn(5, 4)
    tracer = fx.Tracer()
    graph = tracer.trace(net)
    (inner,) = (node for node in graph.nodes if node.target == "blocks.1.residual")
    (output,) = (node for node in graph.nodes if node.op == "output")
    output.args = ({"inner": inner},)
    whole = fx.GraphModule(tracer.root, graph)
    whole.graph.eliminate_dead_code()
    features = fx.GraphModule(tracer.root, whole.graph)
    assert torch.equal(features(x)["inner"], net.blocks[:2](x))
    names = {name for name, _ in features.named_parameters()}
    assert ("manifold.log_kappa" in names) == learnable
    assert not any(name.startswith(("blocks.2", "head")) for name in names)


@EVERY
@pytest.mark.parametrize("registered", [True, False])
def test_other_tracers_and_unregistered_manifolds(learnable, registered):
    net, x = Network(learnable, registered), torch.randn(5, 4)
    for tracer in (fx.Tracer(), LeafTracer()):
        traced = fx.GraphModule(net, tracer.trace(net))
        assert torch.equal(traced(x), net(x))


def test_a_converted_network_is_traced():
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.layer(x)

    converted, x = lresnet.lorentzify(nn.Sequential(Branch(), Branch()), curvature=-0.5), torch.randn(5, 4)
    assert torch.equal(fx.symbolic_trace(converted)(x), converted(x))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # torch's compiler does it
@EVERY
def test_a_traced_network_compiles_and_exports(learnable):
    net, x = Network(learnable), torch.randn(5, 4)
    traced = fx.symbolic_trace(net)
    torch.testing.assert_close(torch.compile(traced, backend="eager", fullgraph=True)(x), net(x))
    torch.testing.assert_close(torch.export.export(traced, (x,)).module()(x), net(x))
