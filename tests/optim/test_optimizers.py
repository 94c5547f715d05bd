"""Tests of parameter groups, and of optimisers that step together."""

from __future__ import annotations

import copy
import warnings

import geoopt
import pytest
import torch

from lresnet import Lorentz, LorentzResidual
from lresnet.models import LorentzGCN, LorentzMLP
from lresnet.nn import LorentzMLR, Prototypes
from lresnet.optim import make_adam, make_sgd, parameter_groups, reshape_loaded_state
from lresnet.optim.riemannian import RiemannianAdam
from tests.version_0_2 import as_0_2, optimizer_as_0_2


def model(**options: object) -> LorentzGCN:
    torch.manual_seed(0)
    full = {"learn_curvature": True, "residual_options": {"weight": "learned", "scale": "learned"}}
    return LorentzGCN(**{"in_features": 4, "hidden": 3, "num_layers": 2, "num_classes": 2} | full | options)


def step(network: torch.nn.Module, optimizers: object, seed: int) -> None:
    """Take a step with random gradients."""
    g = torch.Generator().manual_seed(seed)
    optimizers.zero_grad()
    for parameter in network.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=g)
    optimizers.step()


# --- groups -----------------------------------------------------------------------------------------------------------


def test_groups_of_a_lorentz_gcn():
    groups = parameter_groups(model())
    assert set(groups.decayed) == {"layers.0.linear.weight", "layers.1.linear.weight"}
    assert set(groups.manifold) == {"head.points"}
    assert set(groups.geometric) == {
        "manifold.log_kappa",
        "residuals.0.raw_weight",
        "residuals.0.log_scale",
        "layers.0.linear.log_scale",
        "layers.1.linear.log_scale",
    }
    assert set(groups.plain) == {
        "head.bias",
        *(f"layers.{i}.linear.{name}" for i in range(2) for name in ("time_weight", "bias")),
    }


def test_a_weight_per_point_has_no_weight_decay():
    residual = LorentzResidual(Lorentz(), weight=torch.nn.Parameter(torch.ones(5, 1)))
    assert set(parameter_groups(residual).geometric) == {"raw_weight"}


def test_a_residual_weight_with_a_second_name_has_no_weight_decay():
    class Gated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates = torch.nn.Parameter(torch.ones(4, 5))
            self.residual = LorentzResidual(Lorentz(), weight=self.gates)

    groups = parameter_groups(Gated())
    assert set(groups.geometric) == {"gates"}
    assert not groups.decayed


def test_groups_of_a_head_contain_all_parameters():
    head = LorentzMLR(4, 3, manifold=Lorentz())
    groups = parameter_groups(head)
    assert not any("scale" in name for name in groups.decayed)
    assert {name for group in groups for name in group} == {n for n, _ in head.named_parameters()}


def test_groups_omit_frozen_parameters_and_contain_shared_ones_once():
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    network[1].weight = network[0].weight
    network[0].bias.requires_grad_(False)
    groups = parameter_groups(network)
    assert set(groups.decayed) == {"0.weight"}
    assert set(groups.plain) == {"1.bias"}


def test_summary_lists_parameters_and_tensors():
    assert parameter_groups(model()).summary().splitlines() == [
        "decayed          28 parameters in 2 tensors",
        "plain            18 parameters in 5 tensors",
        "geometric         5 parameters in 5 tensors",
        "manifold          6 parameters in 1 tensors",
    ]


# --- updates ----------------------------------------------------------------------------------------------------------


def test_weight_decay_applies_to_matrices_only_by_default():
    network = model()
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimizers = make_adam(network, lr=0.1, weight_decay=0.5)
    optimizers.zero_grad()
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step()
    decayed = parameter_groups(network).decayed
    for name, parameter in network.named_parameters():
        expected = before[name] * (1 - 0.1 * 0.5) if name in decayed else before[name]
        torch.testing.assert_close(parameter.detach(), expected, msg=name)


@pytest.mark.parametrize("make", [make_adam, make_sgd])
def test_weight_decay_of_all_parameters_excludes_geometric_ones(make):
    network = model()
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    with torch.no_grad():
        before["head.bias"] += 1
        network.head.bias += 1
    optimizers = make(network, lr=0.1, weight_decay=0.5, decay="all")
    optimizers.zero_grad()
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step()
    groups = parameter_groups(network)
    # Nesterov's first step with momentum 0.9 is (1 + 0.9) times the gradient.
    shrink = 1 - 0.1 * 0.5 if make is make_adam else 1 - 0.1 * 0.5 * 1.9
    for name, parameter in network.named_parameters():
        expected = before[name] * shrink if name in groups.decayed | groups.plain else before[name]
        torch.testing.assert_close(parameter.detach(), expected, msg=name)


def test_sgd_equals_torch_s_with_nesterov_momentum():
    ours = model(residual="euclidean", residual_options=None)
    theirs = copy.deepcopy(ours)
    reference = torch.optim.SGD(theirs.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    optimizers = make_sgd(ours, lr=0.03)
    assert optimizers.capturable
    for seed in range(5):
        step(ours, optimizers, seed)
        step(theirs, reference, seed)
        for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7, msg=name)


def test_points_get_riemannian_sgd_which_is_not_capturable():
    network = model(curvature=-2.0, learn_curvature=False)
    before = network.head.points.detach().clone()
    optimizers = make_sgd(network, lr=0.05)
    assert [type(o) for o in optimizers.optimizers] == [torch.optim.SGD, geoopt.optim.RiemannianSGD]
    assert not optimizers.capturable
    step(network, optimizers, 0)
    assert (network.manifold.dist(before, network.head.points.detach()) > 0).all()


def test_the_steps_of_a_euclidean_model_equal_adamw_s():
    ours = model(residual="euclidean", residual_options=None)
    theirs = copy.deepcopy(ours)
    matrices = [p for p in theirs.parameters() if p.dim() >= 2]
    others = [p for p in theirs.parameters() if p.dim() < 2]
    reference = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=0.03
    )
    optimizers = make_adam(ours, lr=0.03, weight_decay=0.1)
    assert len(optimizers.optimizers) == 1
    for seed in range(20):
        step(ours, optimizers, seed)
        step(theirs, reference, seed)
        for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7, msg=name)


def test_the_first_step_of_prototypes_has_length_lr():
    """Measured in the metric at the point, for any gradient."""
    network = model(curvature=-2.0, learn_curvature=False)
    before = network.head.points.detach().clone()
    optimizers = make_adam(network, lr=0.05)
    assert [type(o) for o in optimizers.optimizers] == [torch.optim.AdamW, RiemannianAdam]
    step(network, optimizers, 0)
    moved = network.manifold.dist(before, network.head.points.detach())
    torch.testing.assert_close(moved, torch.full_like(moved, 0.05), rtol=1e-4, atol=0.0)


def test_a_model_of_manifold_parameters_only_has_one_optimiser():
    point = torch.nn.Module()
    point.p = geoopt.ManifoldParameter(torch.ones(2, 3), manifold=Lorentz())
    optimizers = make_adam(point, lr=0.1, expect_manifold=True)
    assert [type(o) for o in optimizers.optimizers] == [RiemannianAdam]


def test_points_of_other_manifolds_get_geoopt_s_optimiser_which_resumes_after_loading():
    def start():
        module = torch.nn.Module()
        module.p = geoopt.ManifoldParameter(torch.tensor([[0.6, 0.8]]), manifold=geoopt.Sphere())
        return module, make_adam(module, lr=0.1)

    def move(module, optimizers):
        module.p.grad = torch.tensor([[1.0, -2.0]])
        optimizers.step()

    through, there = start()
    assert [type(o) for o in there.optimizers] == [geoopt.optim.RiemannianAdam]
    assert not there.capturable
    move(through, there)
    loaded, later = start()
    loaded.load_state_dict(through.state_dict())
    later.load_state_dict(copy.deepcopy(there.state_dict()))  # as if read from a file
    for _ in range(3):
        move(through, there)
        move(loaded, later)
    assert torch.equal(loaded.p, through.p)


def test_a_riemannian_optimiser_without_manifold_parameters_warns():
    with pytest.warns(UserWarning, match=r"no geoopt\.ManifoldParameter: all of its parameters get ordinary Adam"):
        make_adam(model(num_classes=None), lr=0.1, expect_manifold=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_adam(model(num_classes=None), lr=0.1)
        make_adam(model(), lr=0.1, expect_manifold=True)


# --- several optimisers as one ----------------------------------------------------------------------------------------


def test_zero_grad_reaches_every_parameter():
    network = model()
    optimizers = make_adam(network, lr=0.1)
    step(network, optimizers, 0)
    optimizers.zero_grad()
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_saved_state_resumes_bit_identically(tmp_path):
    """Ten steps equal five steps, a file without pickled objects, and five steps."""
    whole, first = model(), model()
    one, two = make_adam(whole, lr=0.1, weight_decay=0.1), make_adam(first, lr=0.1, weight_decay=0.1)
    for seed in range(10):
        one.scale_lr(1 / (1 + seed))
        step(whole, one, seed)
    for seed in range(5):
        two.scale_lr(1 / (1 + seed))
        step(first, two, seed)
    torch.save({"model": first.state_dict(), "optimizers": two.state_dict()}, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    second = model()
    second.load_state_dict(state["model"])
    three = make_adam(second, lr=0.1, weight_decay=0.1)
    three.load_state_dict(state["optimizers"])
    for seed in range(5, 10):
        three.scale_lr(1 / (1 + seed))
        step(second, three, seed)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(second.state_dict()[name], tensor), name


def test_scale_lr_is_relative_to_the_initial_rate_of_every_group():
    network = model()
    optimizers = make_adam(network, lr=0.2)
    rates = []
    for factor in (0.5, 0.5, 1.0, 0.0):
        optimizers.scale_lr(factor)
        rates.append({group["lr"] for o in optimizers.optimizers for group in o.param_groups})
    assert rates == [{0.1}, {0.1}, {0.2}, {0.0}]
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    step(network, optimizers, 0)
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.detach(), before[name], msg=name)


def test_a_step_changes_every_parameter_of_every_model():
    baseline = model(residual="euclidean", residual_options=None)
    for network in (model(), LorentzMLP(4, 3, 2, 2, learn_curvature=True), baseline):
        before = {name: p.detach().clone() for name, p in network.named_parameters()}
        step(network, make_adam(network, lr=0.1), 0)
        assert all(not torch.equal(p, before[name]) for name, p in network.named_parameters())


@pytest.mark.parametrize("learn_curvature", [False, True])
def test_a_network_and_its_optimisers_can_be_copied_together(learn_curvature):
    network = model(learn_curvature=learn_curvature)
    optimizers = make_adam(network, lr=0.1)
    step(network, optimizers, 0)
    copied = copy.deepcopy((network, optimizers))
    for seed in range(1, 4):
        step(network, optimizers, seed)
        step(*copied, seed)
    for (name, a), b in zip(network.named_parameters(), copied[0].parameters(), strict=True):
        assert torch.equal(a, b), name
        assert a.data_ptr() != b.data_ptr(), name


@pytest.mark.parametrize("make", [make_adam, make_sgd])
def test_schedulers_and_gradient_scalers_of_torch_accept_it(make) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), Prototypes(4, 3, manifold=Lorentz(-1.0)))
    optimizer = make(net, lr=0.1)
    assert torch.optim.lr_scheduler.OneCycleLR(copy.deepcopy(optimizer), 1.0, total_steps=10).get_last_lr()
    schedule, scaler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10), torch.amp.GradScaler("cpu")
    before = [parameter.detach().clone() for parameter in net.parameters()]
    for _ in range(10):
        optimizer.zero_grad()
        scaler.scale(net(torch.randn(8, 4)).square().mean()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    assert all(float(group["lr"]) < 1e-6 for group in optimizer.param_groups)
    changed = [not torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True)]
    assert all(changed)
    assert set(optimizer.state) <= set(net.parameters())


def test_a_closure_computes_the_loss() -> None:
    layer = torch.nn.Linear(3, 2)
    optimizer = make_sgd(layer, lr=0.1)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = layer(torch.ones(3)).sum()
        value.backward()
        return value

    old = layer.weight.detach().clone()
    assert optimizer.step(loss) is not None
    assert not torch.equal(layer.weight, old)


# --- states of lresnet 0.2, whose learned numbers had no axis ---------------------------------------------------------


@pytest.mark.parametrize("make", [make_adam, make_sgd])
def test_the_state_of_an_earlier_version_resumes_bit_identically(make):
    options = {"residual_options": {"weight": "learned"}, "num_classes": None}
    whole, first, second = (model(**options) for _ in range(3))
    one, two, three = (make(each, lr=0.1, weight_decay=0.1) for each in (whole, first, second))
    for seed in range(6):
        step(whole, one, seed)
        if seed < 3:
            step(first, two, seed)
    second.load_state_dict(as_0_2(first.state_dict()))
    three.load_state_dict({key: optimizer_as_0_2(each) for key, each in two.state_dict().items()})
    for seed in range(3, 6):
        step(second, three, seed)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(second.state_dict()[name], tensor), name


def test_the_state_of_an_optimiser_of_ones_own_can_be_reshaped():
    residual = LorentzResidual(Lorentz(-1.0), scale="learned")
    optimizer = torch.optim.AdamW(residual.parameters(), lr=0.1)
    step(residual, optimizer, 0)
    again = torch.optim.AdamW(residual.parameters(), lr=0.1)
    again.load_state_dict(optimizer_as_0_2(optimizer.state_dict()))
    reshape_loaded_state(again)
    assert {state["exp_avg"].shape for state in again.state.values()} == {(1,)}
    assert {state["step"].shape for state in again.state.values()} == {()}
    step(residual, again, 1)


def test_the_decay_of_layers_needs_layers():
    with pytest.raises(ValueError, match="layer_decay has no effect"):
        make_adam(torch.nn.Linear(3, 2), 0.01, 1e-3, layer_decay=0.1)


@pytest.mark.parametrize("prefix", ["_orig_mod", "module"])
def test_the_decay_of_layers_applies_to_wrapped_models(prefix):
    net = torch.nn.ModuleDict({"layers": torch.nn.Linear(3, 2), "head": torch.nn.Linear(2, 2)})
    wrapped = torch.nn.ModuleDict({prefix: net})
    optimizer = make_adam(wrapped, 0.01, 1e-3, layer_decay=0.1)
    rates = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert (rates[id(net["layers"].weight)], rates[id(net["head"].weight)]) == (0.1, 1e-3)
