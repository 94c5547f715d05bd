"""Tests of models by name and of saved models: files, round trips, errors."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from lresnet.models import MODELS, LorentzGCN, LorentzMLP, create_model, from_pretrained
from lresnet.models.weights import weights_file
from tests.models.common import CLASSES, FEATURES, RESIDUALS, features, graph
from tests.version_0_2 import as_0_2


def trained(residual: str = "lorentz", **options: object) -> LorentzGCN:
    """Return a model whose parameters differ from their initial values."""
    torch.manual_seed(0)
    model = LorentzGCN(FEATURES, 5, num_classes=CLASSES, residual=residual, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model.eval()


@pytest.mark.parametrize("name", [name for name in MODELS if name != "lorentz_gpt"])  # it predicts tokens
@pytest.mark.parametrize("classes", [0, -1, 2.5])
def test_a_number_of_classes_below_one_is_refused_by_name(name, classes):
    features_of = {} if "resnet" in name or "vit" in name else {"in_features": 4}
    with pytest.raises(ValueError, match=f"num_classes must be at least 1, got {classes}"):
        create_model(name, num_classes=classes, **features_of)


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
def test_a_round_trip_is_bit_identical(residual, learned, tmp_path):
    model = trained(residual, learn_curvature=learned, curvature=-2.0)
    assert model.save_pretrained(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    back = from_pretrained(tmp_path / "a" / "b").eval()
    assert type(back) is LorentzGCN
    assert back.config == model.config
    assert list(back.state_dict()) == list(model.state_dict())
    for name, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    assert torch.equal(back(features(), *graph()), model(features(), *graph()))
    if learned and residual != "euclidean":
        assert float(back.manifold.K.detach()) == float(model.manifold.K.detach()) != -2.0


def test_a_round_trip_of_the_mlp_in_float64(tmp_path):
    torch.manual_seed(1)
    model = LorentzMLP(FEATURES, num_classes=CLASSES, learn_curvature=True).double()
    with torch.no_grad():
        model.head.bias.fill_(1 / 3)
    back = from_pretrained(model.save_pretrained(str(tmp_path)))
    x = features(torch.float64)
    assert back.head.bias.dtype == torch.float64
    assert torch.equal(back(x), model(x))


@pytest.mark.parametrize("name", ["lorentz_gcn", "lorentz_mlp", "lorentz_sage"])
def test_a_round_trip_of_a_model_that_found_its_number_of_features(name, tmp_path):
    model = create_model(name, in_features=-1, num_classes=CLASSES).eval()
    inputs = (features(),) if name == "lorentz_mlp" else (features(), *graph())
    logits = model(*inputs)
    assert torch.equal(from_pretrained(model.save_pretrained(tmp_path)).eval()(*inputs), logits)


@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
@pytest.mark.parametrize("name", ["lorentz_gcn", "lorentz_resnet20", "lorentz_sgformer"])
def test_a_file_of_an_earlier_version_loads(name, learned, tmp_path):
    """lresnet 0.2 had learned numbers without an axis, and no fixed curvature."""
    size = {} if name == "lorentz_resnet20" else {"in_features": FEATURES}
    model = create_model(name, num_classes=CLASSES, curvature=-0.3, learn_curvature=learned, **size)
    weights = model.save_pretrained(tmp_path) / "model.safetensors"
    save_file(as_0_2(load_file(weights)), weights)
    back = from_pretrained(tmp_path)
    for key, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[key], tensor), key


def test_a_config_with_another_curvature_than_the_weights_is_refused(tmp_path):
    trained(curvature=-5.0).save_pretrained(tmp_path)
    _config(tmp_path, curvature=-0.01)
    with pytest.raises(ValueError, match=r"saved with curvature -5, this network has curvature -0\.01"):
        from_pretrained(tmp_path)


def test_each_tensor_keeps_its_dtype(tmp_path):
    model = create_model("lorentz_resnet20", num_classes=3).bfloat16()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.float()
    back = from_pretrained(model.save_pretrained(tmp_path))
    assert {n: t.dtype for n, t in back.state_dict().items()} == {n: t.dtype for n, t in model.state_dict().items()}
    assert back.stem[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_a_loaded_model_has_manifold_parameters(tmp_path):
    import geoopt

    back = from_pretrained(trained(learn_curvature=True).save_pretrained(tmp_path))
    assert isinstance(back.head.points, geoopt.ManifoldParameter)
    assert back.head.points.manifold is back.manifold
    assert all(parameter.requires_grad for parameter in back.parameters())


def test_files_and_config_of_a_saved_model(tmp_path):
    trained(learn_curvature=True, dropout=0.2, residual_options={"weight": "learned"}).save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "model": "lorentz_gcn",
        "in_features": FEATURES,
        "hidden": 5,
        "layer": "hybonet",
        "num_layers": 3,
        "num_classes": CLASSES,
        "residual": "lorentz",
        "residual_options": {"weight": "learned"},
        "curvature": -1.0,
        "learn_curvature": True,
        "dropout": 0.2,
        "activation": "none",
        "self_loops": True,
        "max_radius": 10.0,
        "prototype_distance": None,
    }
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        keys = list(file.keys())
        assert sum("kappa" in key for key in keys) == 1
        assert sum(file.get_tensor(key).numel() for key in keys) == sum(
            tensor.numel() for tensor in trained(learn_curvature=True).state_dict().values()
        )


def test_saving_again_replaces_the_model(tmp_path):
    trained().save_pretrained(tmp_path)
    other = trained("space", curvature=-2.0)
    other.save_pretrained(tmp_path)
    assert torch.equal(from_pretrained(tmp_path).eval()(features(), *graph()), other(features(), *graph()))


def test_arguments_that_are_not_json_are_rejected_before_any_file_is_written(tmp_path):
    model = trained(residual_options={"weight": torch.tensor(0.5)})
    with pytest.raises(TypeError, match="not JSON serializable"):
        model.save_pretrained(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_model_can_be_pickled():
    """multiprocessing pickles models, although we do not save them this way."""
    model = trained(learn_curvature=True)
    back = pickle.loads(pickle.dumps(model))
    assert back.config == model.config
    assert torch.equal(back(features(), *graph()), model(features(), *graph()))


# --- wrong folders ----------------------------------------------------------------------------------------------------


def test_a_folder_without_a_model_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere is not a saved model: config\.json is missing"):
        from_pretrained(tmp_path / "nowhere")
    trained().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors is missing"):
        from_pretrained(tmp_path)


def _truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _other_weights(folder: Path) -> None:
    LorentzGCN(FEATURES + 1).save_pretrained(folder / "other")
    (folder / "model.safetensors").write_bytes((folder / "other" / "model.safetensors").read_bytes())


def _config(folder: Path, **change: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").write_text("{"), "Expecting property name"),
        (lambda f: (f / "config.json").write_text("[]"), 'config.json has no entry "model"'),
        (lambda f: (f / "config.json").write_text("{}"), 'config.json has no entry "model"'),
        (lambda f: _config(f, model="lorentz_gnc"), "unknown model 'lorentz_gnc'; did you mean 'lorentz_gcn'"),
        (lambda f: _config(f, depth=3), "model 'lorentz_gcn' has no argument 'depth'"),
        (lambda f: _config(f, curvature=1.0), "curvature must be negative"),
        (_truncate, "deserializing"),
        (_other_weights, "size mismatch"),
    ],
    ids=["bad json", "not a table", "no model", "unknown model", "unknown argument", "bad value", "truncated", "other"],
)
def test_a_damaged_folder_is_named_in_the_error(damage, message, tmp_path):
    trained().save_pretrained(tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError) as error:
        from_pretrained(tmp_path)
    assert str(error.value).startswith(f"{tmp_path} cannot be read as a model that save_pretrained has written: ")
    assert message in str(error.value)


def _text(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)


def _integers(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    save_file({name: tensor.long() for name, tensor in state.items()}, folder / "model.safetensors")


def _extra_tensor(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    save_file(state | {"../../etc/passwd": torch.zeros(1)}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: _config(f, model="../../etc/passwd"), "unknown model '../../etc/passwd'"),
        (lambda f: _config(f, model="os:system"), "unknown model 'os:system'"),
        (lambda f: _config(f, model=["lorentz_gcn"]), 'the entry "model" of config.json is '),
        (lambda f: _config(f, model=None), 'the entry "model" of config.json is None'),
        (lambda f: _config(f, in_features=10**15), "has in_features=1000000000000000, but model.safetensors has only"),
        (
            lambda f: _config(f, num_layers=10**9),
            "has num_layers=1000000000, but model.safetensors has only 17 tensors",
        ),
        (lambda f: _config(f, model="lorentz_resnet", depth=6 * 10**8 + 2), "has depth=600000002"),
        (lambda f: _config(f, hidden=990), "size mismatch for layers.0.linear.weight"),
        (lambda f: _config(f, hidden=-5), "negative"),
        (lambda f: _config(f, hidden="16"), ""),
        (lambda f: _config(f, hidden=[[3]]), ""),
        (lambda f: _config(f, hidden=None), ""),
        (lambda f: _config(f, dropout="a"), ""),
        (lambda f: _config(f, residual=["lorentz"]), ""),
        (lambda f: _config(f, residual="__import__"), "unknown residual '__import__'"),
        (lambda f: _config(f, residual_options={"device": "nowhere"}), "nowhere"),
        (lambda f: _config(f, residual_options="weight"), ""),
        (lambda f: _config(f, curvature=float("nan")), "curvature must be"),
        (lambda f: _config(f, self=1), "no argument 'self'"),
        (lambda f: _config(f, registry={}, name="x"), "no argument 'name', 'registry'"),
        (lambda f: _text(f, "[" * 100_000), "nested too deeply"),
        (lambda f: _text(f, " " * (2**22 + 1)), "config.json: it has more than 4,194,304 bytes"),
        (lambda f: (f / "config.json").write_bytes(b"\x80\x04K\x01."), "config.json: line 1 is not UTF-8"),
        (lambda f: _text(f, '{"model_type": "bert"}'), "a model of another library, 'bert'"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\x80\x04K\x01."), "deserializing"),
        (_integers, "has the type I64 in model.safetensors, but torch.float32 is needed"),
        (_extra_tensor, "model.safetensors has a tensor '../../etc/passwd', which lorentz_gcn does not have"),
    ],
)
def test_a_hostile_folder_gives_one_line(harm, message, tmp_path):
    trained().save_pretrained(tmp_path)
    harm(tmp_path)
    with pytest.raises(ValueError) as error:
        from_pretrained(tmp_path)
    assert str(error.value).startswith(f"{tmp_path} cannot be read as a model that save_pretrained has written: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_no_other_file_of_a_folder_is_read(tmp_path):
    trained().save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(_Exit()))
    (tmp_path / "modeling.py").write_text("raise SystemExit")
    assert type(from_pretrained(tmp_path)) is LorentzGCN


class _Exit:
    def __reduce__(self) -> tuple[object, ...]:
        return sys.exit, ("a pickle was loaded",)


@pytest.mark.parametrize("name", ["lorentz_gcn", "lorentz_mlp", "lorentz_resnet20", "lorentz_sage", "lorentz_sgformer"])
def test_a_network_built_without_memory_has_the_same_tensors(name):
    sizes = {} if "resnet" in name else {"in_features": 4}
    real = create_model(name, num_classes=2, learn_curvature=True, **sizes)
    state = torch.get_rng_state()
    with torch.device("meta"):
        empty = create_model(name, num_classes=2, learn_curvature=True, **sizes)
    assert torch.equal(torch.get_rng_state(), state)
    assert {key: tensor.shape for key, tensor in empty.state_dict().items()} == {
        key: tensor.shape for key, tensor in real.state_dict().items()
    }
    assert all(tensor.is_meta for tensor in empty.state_dict().values())


# --- models by name ---------------------------------------------------------------------------------------------------


def test_models_are_created_by_name():
    assert (MODELS["lorentz_gcn"], MODELS["lorentz_mlp"]) == (LorentzGCN, LorentzMLP)
    model = create_model("lorentz_mlp", "space", -2.0, in_features=3, num_classes=2)
    assert model.config["residual"] == "space"
    assert model.config["curvature"] == -2.0
    assert model(torch.zeros(4, 3)).shape == (4, 2)


def test_messages_name_the_nearest_model_and_the_arguments():
    with pytest.raises(ValueError, match=r"unknown model 'lorenz_gcn'; did you mean 'lorentz_gcn'.*lorentz_mlp"):
        create_model("lorenz_gcn")
    with pytest.raises(TypeError, match="model 'lorentz_mlp' has no argument 'depth', 'width'; it takes in_features, "):
        create_model("lorentz_mlp", in_features=3, width=5, depth=2)
    with pytest.raises(TypeError, match="in_features"):
        create_model("lorentz_gcn")


def test_positional_arguments_are_stored_by_name():
    assert LorentzGCN(7, 9, 2).config == LorentzGCN(in_features=7, hidden=9, num_layers=2).config


def test_the_registry_loads_without_torch():
    program = """
import sys
from lresnet.models import MODELS
assert list(MODELS)[0] == "lorentz_gcn" and "lorentz_resnet20" in MODELS and len(MODELS) == 16
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "change",
    [
        {"num_layers": 1000},
        {"model": "lorentz_sgformer", "attention_layers": 1000},
        {"model": "lorentz_resnet", "depth": 998},
        {"model": "lorentz_resnet", "widths": [1] * 2000},
        {"residual_options": {"weight": [1.0] * 2000}},
        {"residual_options": {"features": [[10**9]]}},
    ],
)
def test_a_network_that_the_tensors_exclude_is_not_built(change, tmp_path, monkeypatch):
    trained().save_pretrained(tmp_path)
    _config(tmp_path, **change)
    monkeypatch.setattr("lresnet.models.pretrained.build", None)  # a call would be a TypeError with other words
    with pytest.raises(ValueError, match=r"config\.json has .*, but model\.safetensors has only|has a list .* items"):
        from_pretrained(tmp_path)


# Checksums -----------------------------------------------------------------------------------------------------------


def _weights_of(folder):
    model = from_pretrained(folder)
    return {name: tensor.tolist() for name, tensor in model.state_dict().items() if isinstance(tensor, torch.Tensor)}


def test_no_flipped_bit_of_a_saved_model_is_silent(tmp_path):
    create_model("lorentz_mlp", in_features=2, hidden=2, num_classes=2, dropout=0.25).save_pretrained(tmp_path)
    known, outcomes, messages, dice = _weights_of(tmp_path), Counter(), set(), random.Random(0)
    for name, flips in (("model.safetensors", 300), ("config.json", 100)):
        path = tmp_path / name
        whole = path.read_bytes()
        for bit in (dice.randrange(8 * len(whole)) for _ in range(flips)):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            try:
                same = _weights_of(tmp_path) == known
                outcomes["same"] += same
                assert same, bit
                assert name == "model.safetensors" or json.loads(flipped) == json.loads(whole), bit
            except (UserWarning, ValueError) as reported:
                outcomes["reported"] += 1
                messages.add(str(reported))
        path.write_bytes(whole)
    assert outcomes["reported"] > 300
    assert all(str(tmp_path) in message and "\n" not in message for message in messages)


def test_a_flipped_bit_of_the_weights_is_one_line(tmp_path):
    create_model("lorentz_mlp", in_features=4).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors does not match its checksum, so it is damaged; if you"):
        from_pretrained(tmp_path)


def test_weights_that_were_replaced_on_purpose_are_loaded(tmp_path):
    one, other = (create_model("lorentz_mlp", in_features=4) for _ in range(2))
    one.save_pretrained(tmp_path / "one")
    other.save_pretrained(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "model.safetensors", tmp_path / "one")  # its checksum is its own
    assert torch.equal(*(next(model.parameters()) for model in (from_pretrained(tmp_path / "one"), other)))
    state = {name: tensor * (1 if name.endswith("_extra_state") else 2) for name, tensor in one.state_dict().items()}
    save_file(state, tmp_path / "one" / "model.safetensors")
    found = from_pretrained(tmp_path / "one").state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())


def test_an_edited_configuration_is_loaded_with_a_warning(tmp_path):
    create_model("lorentz_mlp", in_features=4, dropout=0.1).save_pretrained(tmp_path)
    _config(tmp_path, dropout=0.5)
    with pytest.warns(UserWarning, match=r"config\.json is not the one that was saved with model\.safetensors: it was"):
        model = from_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    assert from_pretrained(tmp_path).config["dropout"] == 0.5


def test_the_same_model_is_saved_as_the_same_bytes(tmp_path):
    model = create_model("lorentz_mlp", in_features=4)
    contents = {
        model.save_pretrained(tmp_path / str(number)).joinpath("model.safetensors").read_bytes() for number in range(5)
    }
    assert len(contents) == 1
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    assert len({b"".join(weights_file(state, {}, {"format": "pt"})) for _ in range(5)}) == 1
