"""State dicts: a fixed curvature comes back or is refused, learned numbers have one element, old files load."""

from __future__ import annotations

import copy
import io

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import lresnet
from lresnet.geometry.state import is_learned_number, number
from lresnet.models import LorentzGCN
from tests.version_0_2 import as_0_2


class Block(nn.Module):
    def __init__(self, manifold: lresnet.Lorentz) -> None:
        super().__init__()
        self.linear, self.residual = nn.Linear(4, 4), lresnet.LorentzResidual(manifold, scale="learned")

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(x, self.linear(x))


def network(K: float = -5.0, learnable: bool = False, registered: bool = True) -> nn.Module:
    torch.manual_seed(0)
    manifold = lresnet.Lorentz(K, learnable=learnable)
    net = nn.Sequential(Block(manifold), Block(manifold), lresnet.nn.LorentzMLR(4, 3, manifold=manifold))
    if registered:
        net[0].manifold = manifold
    return net


# --- a fixed curvature ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize("strict", [True, False])
def test_loading_another_fixed_curvature_is_an_error_with_both_values(registered, strict):
    state = network(-5.0, registered=registered).state_dict()
    with pytest.raises(RuntimeError, match=r"saved with curvature -5, this network has curvature -0\.01; build"):
        network(-0.01, registered=registered).load_state_dict(state, strict=strict)
    network(-5.0, registered=registered).load_state_dict(state)
    parameters = {name: tensor for name, tensor in state.items() if not name.endswith("_extra_state")}
    network(-0.01, registered=registered).load_state_dict(parameters)  # on purpose


@pytest.mark.parametrize("layer", [lresnet.nn.LorentzLinear, lresnet.nn.SpaceLinear, lresnet.nn.HyperplaneLinear])
def test_a_single_layer_refuses_another_curvature_too(layer):
    state = layer(4, 3, manifold=lresnet.Lorentz(-5.0)).state_dict()
    with pytest.raises(RuntimeError, match="saved with curvature -5"):
        layer(4, 3, manifold=lresnet.Lorentz(-1.0)).load_state_dict(state)


def test_a_model_and_a_converted_network_refuse_another_curvature():
    for build in (
        lambda K: LorentzGCN(4, num_layers=2, curvature=K),
        lambda K: lresnet.lorentzify(nn.Sequential(nn.TransformerEncoderLayer(4, 1, 4, norm_first=True)), curvature=K),
    ):
        with pytest.raises(RuntimeError, match=r"saved with curvature -5, this network has curvature -0\.01"):
            build(-0.01).load_state_dict(build(-5.0).state_dict())


@pytest.mark.parametrize("registered", [True, False])
def test_the_curvature_of_a_shared_manifold_is_one_tensor_of_the_state_dict(registered, tmp_path):
    net = network(-0.3, registered=registered)
    state = net.state_dict()
    (key,) = (name for name in state if name.endswith("_extra_state"))
    assert torch.equal(state[key], torch.tensor([-0.3], dtype=torch.float64))
    assert list(net.state_dict()) == list(state)  # every time
    assert "residual._extra_state" in net[1].state_dict()  # a part holds it too
    assert "m.residual._extra_state" in net[1].state_dict(prefix="m.", destination={})
    safetensors.torch.save_file(state, tmp_path / "net.safetensors")
    safetensors.torch.save_model(net, str(tmp_path / "model.safetensors"))
    network(-0.3, registered=registered).load_state_dict(safetensors.torch.load_file(tmp_path / "net.safetensors"))
    safetensors.torch.load_model(network(-0.3, registered=registered), str(tmp_path / "model.safetensors"))
    with pytest.raises(RuntimeError, match=r"saved with curvature -0\.3"):
        safetensors.torch.load_model(network(-1.0, registered=registered), str(tmp_path / "model.safetensors"))
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    network(-0.3, registered=registered).load_state_dict(torch.load(file, weights_only=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_casts_of_network_or_state_dict_do_not_change_the_curvature(dtype):
    state = network(-0.3).to(dtype).state_dict()
    assert state["0.residual._extra_state"].item() == -0.3
    network(-0.3).load_state_dict({name: tensor.to(dtype) for name, tensor in state.items()})


def test_networks_on_the_meta_device_save_and_load_a_curvature():
    with torch.device("meta"):
        net = network(-0.3)
    net.load_state_dict(network(-0.3).state_dict(), assign=True)
    assert net.state_dict()["0.residual._extra_state"].item() == -0.3
    network(-0.3).load_state_dict({"0.residual._extra_state": torch.empty(1, device="meta")}, strict=False)


def test_a_residual_that_does_not_depend_on_the_curvature_saves_none():
    for kind in ("space", "euclidean", "none"):
        assert not lresnet.make_residual(kind, lresnet.Lorentz(-5.0)).state_dict()


def test_a_learned_curvature_starts_from_the_fixed_one_of_a_file():
    net = network(-1.0, learnable=True)
    state = network(-5.0).state_dict()
    state["0.manifold._extra_state"] = state.pop("0.residual._extra_state")  # as if it were registered first
    assert net.load_state_dict(state).missing_keys == []
    assert net[0].manifold.K.item() == pytest.approx(-5.0)


def test_a_learned_curvature_of_a_file_must_be_the_fixed_one():
    state = network(-5.0, learnable=True).state_dict()
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=r"saved with curvature -5, this network has curvature -0\.01"):
            network(-0.01).load_state_dict(state, strict=strict)
    assert network(-5.0).load_state_dict(state, strict=False).unexpected_keys == ["0.manifold.log_kappa"]


def test_a_damaged_curvature_is_reported():
    state = network(-5.0).state_dict()
    for damaged, message in (
        (torch.zeros(2), r"a tensor of shape \(2,\)"),
        ("x", "must be a tensor of one number"),
    ):
        with pytest.raises(RuntimeError, match=message):
            network(-5.0).load_state_dict(state | {"0.residual._extra_state": damaged})


def test_functional_transforms_and_copies_need_no_extra_state():
    nets, x = [network(-0.3) for _ in range(3)], torch.randn(5, 4)
    parameters, buffers = torch.func.stack_module_state(nets)
    base = copy.deepcopy(nets[0])
    got = torch.vmap(lambda p, b: torch.func.functional_call(base, (p, b), (x,)))(parameters, buffers)
    torch.testing.assert_close(got, torch.stack([net(x) for net in nets]))


# --- learned numbers --------------------------------------------------------------------------------------------------


def test_every_learned_number_has_one_element_and_is_read_without_an_axis():
    models = [
        network(learnable=True),
        lresnet.nn.WeightedJoin("space", lresnet.Lorentz(-1.0), learn_weight=True),
        lresnet.nn.LorentzLinear(4, 3, manifold=lresnet.Lorentz(-1.0)),
        *(lresnet.create_model(name, in_features=4, learn_curvature=True) for name in ("lorentz_gcn", "lorentz_mlp")),
        lresnet.create_model("lorentz_resnet20", num_classes=3, learn_curvature=True),
    ]
    assert all(parameter.dim() > 0 for model in models for parameter in model.parameters())
    assert is_learned_number(models[0], "0.manifold.log_kappa")
    assert not is_learned_number(models[0], "2.bias")
    M, residual = models[0][0].manifold, models[0][0].residual
    assert M.K.shape == M.kappa.shape == residual.weight.shape == residual.scale.shape == models[1].weight.shape == ()
    assert number(torch.zeros(1)).shape == ()
    assert number(torch.zeros(2)).shape == (2,)


def test_a_learned_weight_does_not_promote_bfloat16():
    residual = lresnet.LorentzResidual(lresnet.Lorentz(-1.0, learnable=True), scale="learned")  # in float32
    x = torch.randn(3, 4, dtype=torch.bfloat16)
    assert residual(x, x).dtype == (residual.weight * x).dtype == (x * residual.scale).dtype == torch.bfloat16


@pytest.mark.parametrize("learnable", [True, False])
def test_state_dicts_of_lresnet_0_2_load(learnable):
    net, x = network(-0.3, learnable), torch.randn(5, 4)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1)
    old, twin = as_0_2(net.state_dict()), network(-0.3, learnable)
    assert old["0.residual.raw_weight"].shape == ()
    twin.load_state_dict(old)
    assert torch.equal(twin(x), net(x))
    assert twin[0].residual.raw_weight.shape == (1,)
    assert old["0.residual.raw_weight"].shape == ()  # the caller's dict stays as it is
    joins = [lresnet.nn.WeightedJoin("space", lresnet.Lorentz(-1.0), w, learn_weight=True) for w in (0.2, 0.7)]
    joins[1].load_state_dict(as_0_2(joins[0].state_dict()))
    assert joins[1].weight.item() == pytest.approx(0.2)


def test_fixed_and_learned_numbers_load_into_each_other():
    fixed = lresnet.LorentzResidual(lresnet.Lorentz(-1.0), weight=0.5, scale=2.0)
    learned = lresnet.LorentzResidual(lresnet.Lorentz(-1.0), scale="learned")
    learned.load_state_dict(fixed.state_dict())
    assert (learned.weight.item(), learned.scale.item()) == (0.5, pytest.approx(2.0))
    with torch.no_grad():
        learned.raw_weight.fill_(0.25)
    fixed.load_state_dict(learned.state_dict())
    assert fixed.weight.item() == 0.25


def test_a_module_unpickled_from_lresnet_0_2_still_computes():
    net, x = network(learnable=True), torch.randn(5, 4)
    expected = net(x)
    for block in net[:2]:  # what its pickle holds
        block.residual.raw_weight = nn.Parameter(block.residual.raw_weight.detach().reshape(()))
        block.residual.log_scale = nn.Parameter(block.residual.log_scale.detach().reshape(()))
    net[0].manifold.log_kappa = nn.Parameter(net[0].manifold.log_kappa.detach().reshape(()))
    assert torch.equal(net(x), expected)
