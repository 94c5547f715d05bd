"""What a converted network saves comes back; files of strangers import nothing."""

from __future__ import annotations

import copy
import json
import pickle
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import lresnet
from tests.convert.own_networks import NETWORKS, build, inputs, residuals


def changed(network: nn.Module) -> nn.Module:
    """Give every parameter other values, as training does."""
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=g))
    return network


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["lorentz", "parallel_transport"])
def test_a_converted_network_comes_back_bit_for_bit(name, kind, tmp_path):
    if kind == "lorentz" and name in ("post-norm", "encoder"):
        pytest.skip("a norm removes the factor, so nothing is converted")
    saved = changed(lresnet.lorentzify(build(name), -0.3, kind, example=inputs(name)))
    assert saved.save_pretrained(tmp_path / "model") == tmp_path / "model"
    found = lresnet.from_pretrained(tmp_path / "model", net=NETWORKS[name]())
    assert list(found.state_dict()) == list(saved.state_dict())
    assert torch.equal(found.eval()(*inputs(name)), saved.eval()(*inputs(name)))
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]


def test_a_copy_and_a_pickle_can_be_saved(tmp_path):
    saved = lresnet.lorentzify(build("deep"), example=inputs("deep"))
    for number, one in enumerate((copy.deepcopy(saved), pickle.loads(pickle.dumps(saved)))):
        found = lresnet.from_pretrained(one.save_pretrained(tmp_path / str(number)), net=build("deep"))
        assert residuals(found).keys() == residuals(saved).keys()


def test_a_learned_curvature_and_options_come_back(tmp_path):
    manifold = lresnet.Lorentz(-0.5, learnable=True)
    saved = changed(
        lresnet.lorentzify(build("pre-norm"), manifold, weight=0.25, scale=None, example=inputs("pre-norm"))
    )
    found = lresnet.from_pretrained(saved.save_pretrained(tmp_path), net=build("pre-norm"))
    assert torch.equal(found.layers[0].manifold.K, saved.layers[0].manifold.K)
    assert found.layers[0].manifold.learnable
    assert found.layers[1].residual_2.scale is None
    assert float(found.layers[1].residual_2.weight) == 0.25


def test_helper_functions_and_excluded_sums_come_back(tmp_path):
    def add(x, y):
        return x + y

    class Helped(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.g = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x):
            x = add(x, self.f(x))
            return x + self.g(x)

    x, net = torch.randn(2, 6), Helped()
    plan = lresnet.find_sums(net, x)
    plan.exclude(plan.sums[1].name)
    saved = changed(lresnet.lorentzify(net, -0.4, plan=plan))
    found = lresnet.from_pretrained(saved.save_pretrained(tmp_path), net=Helped())
    assert residuals(found).keys() == {"residual"}
    assert torch.equal(found(x), saved(x))


def test_shared_tensors_are_saved_once(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.g = nn.Linear(6, 6), nn.Linear(6, 6)
            self.g.weight = self.f.weight

        def forward(self, x):
            return x + self.g(self.f(x).relu())

    saved = changed(lresnet.lorentzify(Tied(), -0.4, example=torch.randn(2, 6)))
    folder = saved.save_pretrained(tmp_path)
    assert "g.weight" not in load_file(folder / "model.safetensors")
    found = lresnet.from_pretrained(folder, net=Tied())
    assert found.g.weight is found.f.weight
    x = torch.randn(2, 6)
    assert torch.equal(found(x), saved(x))


def test_a_new_head_for_other_classes(tmp_path):
    def network(classes):
        torch.manual_seed(0)
        return nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, norm_first=True), nn.Linear(8, classes))

    saved = changed(lresnet.lorentzify(network(3), example=torch.randn(4, 2, 8)))
    folder = saved.save_pretrained(tmp_path)
    found = lresnet.from_pretrained(folder, net=network(5), num_classes=5)
    assert torch.equal(found[1].weight, network(5)[1].weight)
    assert torch.equal(found[0].residual.raw_weight, saved[0].residual.raw_weight)
    with pytest.raises(ValueError, match=r"size mismatch for 1.weight: it is \[3, 8\]"):
        lresnet.from_pretrained(folder, net=network(5))


@pytest.mark.parametrize("number", [0, -1, "7", 2.5, True])
def test_a_number_of_classes_that_is_none_is_refused(number, tmp_path):
    with pytest.raises(ValueError, match="num_classes must be a whole number from 1"):
        lresnet.from_pretrained(tmp_path, num_classes=number)


def test_a_network_without_a_head_of_that_size_is_refused(tmp_path):
    folder = lresnet.lorentzify(build("recurrent"), example=inputs("recurrent")).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="the network has no head of 7 classes"):
        lresnet.from_pretrained(folder, net=build("recurrent"), num_classes=7)


def test_a_new_head_of_our_own_models(tmp_path):
    model = lresnet.create_model("lorentz_resnet20", num_classes=3, widths=[4, 4, 8])
    folder = changed(model).save_pretrained(tmp_path)
    found = lresnet.from_pretrained(folder, num_classes=7)
    assert found.eval()(torch.randn(2, 3, 8, 8)).shape == (2, 7)
    old = model.state_dict()
    same = [name for name, value in found.state_dict().items() if torch.equal(value, old[name])]
    assert len(same) > len(old) - 6
    graph = lresnet.create_model("lorentz_gcn", in_features=4).save_pretrained(tmp_path / "links")
    with pytest.raises(ValueError, match="num_classes needs a saved classifier, and this lorentz_gcn was saved"):
        lresnet.from_pretrained(graph, num_classes=2)


def test_another_network_is_refused(tmp_path):
    folder = lresnet.lorentzify(build("resnet"), example=inputs("resnet")).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="the plan is for another network"):
        lresnet.from_pretrained(folder, net=build("deep"))
    own = lresnet.create_model("lorentz_mlp", in_features=4).save_pretrained(tmp_path / "own")
    with pytest.raises(ValueError, match="does not hold a converted network; leave net out"):
        lresnet.from_pretrained(own, net=build("deep"))


def test_a_part_cannot_be_saved_alone(tmp_path):
    network = lresnet.lorentzify(build("resnet"), example=inputs("resnet"))
    with pytest.raises(ValueError, match="is a part of a converted network; save the whole network"):
        network[1].save_pretrained(tmp_path)


def edited(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config["lresnet"] |= changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def folder(tmp_path):
    return lresnet.lorentzify(build("recurrent"), example=inputs("recurrent")).save_pretrained(tmp_path)


@pytest.mark.parametrize(
    "network",
    [
        {"library": "os", "name": "system"},
        {"library": None, "name": "builtins.exec"},
        {"library": "timm", "name": "hf-hub:owner/name"},
        {"library": "transformers", "name": "__import__"},
        {"library": ["timm"], "name": "resnet18"},
        "timm",
    ],
    ids=str,
)
def test_no_name_in_a_file_is_imported(folder, network, monkeypatch):
    imported = []
    monkeypatch.setattr("lresnet.convert.saved.import_module", lambda name: imported.append(name))
    with pytest.raises(ValueError, match="cannot be read as a converted network"):
        lresnet.from_pretrained(edited(folder, network=network))
    assert imported == []


def test_a_timm_name_needs_timm(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match="needs the package timm; install it, or pass net="):
        lresnet.from_pretrained(edited(folder, network={"library": "timm", "name": "resnet18"}))


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"sums": [{}]},
        {"sums": 3},
        {"sums": []},
        {"curvature": 1.0},
        {"curvature": "nan"},
        {"residual": "lorenz"},
        {"options": {"wieght": 1}},
        {"shared": {"a": "b"}},
    ],
    ids=str,
)
def test_damaged_files_are_refused_in_one_line(folder, changes):
    with pytest.raises(ValueError, match="cannot be read as a converted network") as error:
        lresnet.from_pretrained(edited(folder, **changes), net=build("recurrent"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["method", "text", "module", "class"])
def test_a_sum_that_the_network_does_not_have_is_refused(folder, key):
    sums = json.loads((folder / "config.json").read_text())["lresnet"]["sums"]
    sums[0][key] = "train"
    with pytest.raises(ValueError, match="cannot be read as a converted network"):
        lresnet.from_pretrained(edited(folder, sums=sums), net=build("recurrent"))


def test_a_network_of_timm_comes_back_by_name(tmp_path):
    timm = pytest.importorskip("timm")
    net, x = timm.create_model("resnet10t", num_classes=5), torch.randn(2, 3, 64, 64)
    saved = changed(lresnet.lorentzify(net, example=x))
    found = lresnet.from_pretrained(saved.save_pretrained(tmp_path))
    assert torch.equal(found.eval()(x), saved.eval()(x))
    assert lresnet.from_pretrained(tmp_path, num_classes=9)(x).shape == (2, 9)


def test_a_network_of_timm_with_other_arguments_is_not_built_by_its_name(tmp_path):
    timm = pytest.importorskip("timm")
    net = timm.create_model("resnet10t", num_classes=5, act_layer="gelu")
    folder = lresnet.lorentzify(net, example=torch.randn(2, 3, 64, 64)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="built with other arguments; build it and pass net="):
        lresnet.from_pretrained(folder)


def test_a_network_of_transformers_comes_back_by_name(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=50,
        tie_word_embeddings=True,
    )  # fmt: skip
    ids = torch.randint(3, 50, (2, 7))
    flat = transformers.LlamaForCausalLM(config)
    saved = changed(lresnet.lorentzify(flat, example={"input_ids": ids})).eval()
    saved.save_pretrained(tmp_path)
    found = lresnet.from_pretrained(tmp_path).eval()
    assert torch.equal(found(ids).logits, saved(ids).logits)
    assert found.lm_head.weight is found.model.embed_tokens.weight
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()  # the flat network, as documented
    assert not residuals(again)
    assert torch.equal(again.model.layers[0].mlp.up_proj.weight, saved.model.layers[0].mlp.up_proj.weight)
