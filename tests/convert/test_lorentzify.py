"""A user's network with other residual connections: with plain sums or in flat space it is the original network."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

import lresnet
from lresnet.optim import parameter_groups
from tests.convert.own_networks import (
    NETWORKS,
    POST_NORM,
    SUMS,
    Basic,
    Recurrent,
    build,
    inputs,
    residuals,
)

EVERY = pytest.mark.parametrize("name", NETWORKS)
SOME = pytest.mark.parametrize("name", ["resnet", "pre-norm", "deep", "decoder"])


def convert(name: str, module: nn.Module | None = None, **options) -> nn.Module:
    """Convert all residual connections, also those before a norm."""
    network = build(name) if module is None else module
    plan = lresnet.find_sums(network, *inputs(name, next(network.parameters()).dtype))
    if name in POST_NORM:
        for one in plan:
            if one.is_post_norm:
                plan.include(one.name)
    return lresnet.lorentzify(network, plan=plan, **options)


@EVERY
def test_all_residual_connections_are_found(name):
    plan = lresnet.find_sums(build(name), *inputs(name))
    assert len([one for one in plan if one.converted or one.is_post_norm]) == SUMS[name]
    assert all(one.is_post_norm for one in plan) == (name in POST_NORM)


@EVERY
def test_the_example_is_guessed_where_the_first_layer_shows_it(name):
    found = lresnet.lorentzify(build(name), residual="space")
    torch.manual_seed(0)
    assert found.eval()(*inputs(name)).isfinite().all()


@EVERY
@pytest.mark.parametrize("kind", ["space", "euclidean"])
def test_space_addition_is_the_network_itself(name, kind):
    """In training mode, with dropout: its numbers are drawn in the same order."""
    network = build(name).train()
    converted = convert(name, network, residual=kind)
    torch.manual_seed(2)
    expected = network(*inputs(name))
    torch.manual_seed(2)
    torch.testing.assert_close(converted(*inputs(name)), expected, rtol=0, atol=0)


@EVERY
def test_in_flat_space_it_is_the_network_before_training(name):
    network = build(name).eval()
    found = convert(name, network, curvature=-1e-9)(*inputs(name))
    torch.testing.assert_close(found, network(*inputs(name)), rtol=1e-4, atol=1e-5)


@EVERY
def test_in_curved_space_it_is_another_network(name):
    network = build(name).eval()
    for kind in ("lorentz", "parallel_transport"):
        found = convert(name, network, curvature=-1.0, residual=kind)(*inputs(name))
        assert found.isfinite().all()
        divided_out = kind == "lorentz" and name in POST_NORM  # see below
        assert ((found - network(*inputs(name))).abs().max() > 1e-2) != divided_out


def test_a_layer_norm_after_the_sum_removes_the_factor_of_the_lorentz_residual():
    """The residual is a multiple of x + w y, another one for each point; only the weight has an effect."""
    network, x = build("post-norm").eval(), inputs("post-norm")
    found = convert("post-norm", network, curvature=-1.0)
    torch.testing.assert_close(found(*x), network(*x), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        found.layers[1].residual.raw_weight.fill_(2.0)
    assert (found(*x) - network(*x)).abs().max() > 1e-2


@EVERY
def test_without_a_skip_connection_the_input_is_not_added(name):
    network = build(name).eval()
    found = convert(name, network, residual="none")(*inputs(name))
    assert (found - network(*inputs(name))).abs().max() > 1e-3


@EVERY
def test_every_parameter_is_trained(name):
    network = build(name)
    converted = convert(name, network)
    converted(*inputs(name)).square().mean().backward()
    before = {key for key, _ in network.named_parameters()}
    added = {key: value.grad for key, value in converted.named_parameters() if key not in before}
    assert added
    unused = {"residual.1.raw_weight", "residual.1.log_scale"} if name == "deep" else set()  # a round without a sum
    assert {key for key, grad in added.items() if grad is None} == unused


@EVERY
def test_parameters_keep_their_names_and_values(name):
    network = build(name)
    converted = convert(name, network)
    state = converted.state_dict()
    for key, value in network.state_dict().items():
        assert torch.equal(state.pop(key), value)
    assert {key.rsplit(".", 1)[-1] for key in state} <= {"raw_weight", "log_scale", "_extra_state"}
    assert len(parameter_groups(converted).geometric) == 2 * len(residuals(converted))


@EVERY
def test_the_network_that_is_given_stays_as_it_is(name):
    network = build(name)
    before, parts = copy.deepcopy(network.state_dict()), [type(module) for module in network.modules()]
    converted = convert(name, network)
    with torch.no_grad():
        for parameter in converted.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)
    assert [type(module) for module in network.modules()] == parts
    for cls, new in zip(parts, _old(converted), strict=True):
        assert isinstance(new, cls)
        assert type(new).__name__ == cls.__name__


def _old(network: nn.Module) -> list[nn.Module]:
    return [module for name, module in network.named_modules() if "residual" not in name and "manifold" not in name]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # of torch's compiler
@pytest.mark.parametrize(
    "name", ["deep", *(pytest.param(name, marks=pytest.mark.slow) for name in ("resnet", "pre-norm", "decoder"))]
)
def test_it_compiles_without_a_break(name):
    converted = convert(name).eval()
    torch._dynamo.reset()
    compiled = torch.compile(converted, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs(name)), converted(*inputs(name)), rtol=1e-4, atol=1e-5)


@EVERY
def test_copies_and_pickles(name):
    converted = convert(name).eval()
    expected = converted(*inputs(name))
    file = io.BytesIO()
    torch.save(converted, file)
    file.seek(0)
    for twin in (copy.deepcopy(converted), torch.load(file, weights_only=False)):
        assert torch.equal(twin(*inputs(name)), expected)
        assert [type(module) for module in twin.modules()] == [type(module) for module in converted.modules()]
        assert all(old is not new for old, new in zip(converted.parameters(), twin.parameters(), strict=True))
        owners = [module for module in twin.modules() if isinstance(module, lresnet.Lorentz)]
        assert all(module.manifold is owners[0] for module in residuals(twin).values())


@SOME
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes_are_those_of_the_network(name, dtype):
    network = build(name).to(dtype)
    converted = convert(name, network)
    assert {parameter.dtype for parameter in converted.parameters()} == {dtype}
    assert converted(*inputs(name, dtype)).dtype == network(*inputs(name, dtype)).dtype == dtype


def test_a_manifold_of_the_user_is_not_rounded():
    """Other networks may share its curvature; in bfloat16 it would be -0.1006."""
    manifold = lresnet.Lorentz(-0.1, learnable=True)
    K, network = manifold.K.clone(), lresnet.lorentzify(Recurrent().bfloat16(), curvature=manifold)
    out = network(torch.randn(3, 8, dtype=torch.bfloat16))
    out.float().square().sum().backward()
    assert torch.equal(manifold.K, K)
    assert out.dtype == torch.bfloat16
    (log_kappa,) = manifold.parameters()
    assert log_kappa.grad.isfinite()


@SOME
def test_autocast_gives_what_it_gave(name):
    network = build(name)
    converted = convert(name, network)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert converted(*inputs(name)).dtype == network(*inputs(name)).dtype


def test_vmap_and_functional_call_take_it():
    network = lresnet.lorentzify(Recurrent())
    x = torch.randn(4, 8)
    torch.testing.assert_close(torch.vmap(network)(x), network(x))
    zeros = {name: torch.zeros_like(value) for name, value in network.named_parameters()}
    assert torch.func.functional_call(network, zeros, (x,)).shape == x.shape


def test_torch_export_takes_it():
    converted = lresnet.lorentzify(Basic(4, 4).eval())
    x = torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(torch.export.export(converted, (x,)).module()(x), converted(x))


ORDERS = (1e-4, 1e-6, 1e-8)


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("name", ["resnet", "pre-norm", "mixer", "parallel, skip last"])
def test_the_error_is_proportional_to_the_curvature(name, learned):
    network = build(name).double().eval()
    x, options = inputs(name, torch.float64), {} if learned else {"weight": 1.0, "scale": 2.0}
    with torch.no_grad():
        errors = [
            float((convert(name, network, curvature=-order, **options)(*x) - network(*x)).abs().max() / order)
            for order in ORDERS
        ]
    assert errors[0] == pytest.approx(errors[1], rel=0.05)
    assert errors[2] == pytest.approx(errors[1], rel=0.05)
