"""Runs of vision transformers: their presets, the command line, evaluation, embedding and detection."""

import json
import shlex
from pathlib import Path

import pytest
import torch

from lresnet import cli
from lresnet.data.registry import IMAGE_SETS
from lresnet.models import LorentzViT, from_pretrained
from lresnet.runs import Run, RunConfig, ViTConfig
from lresnet.runs.detection import available_scores
from lresnet.runs.own_images import suit_to_images
from lresnet.runs.presets import has_searched_preset, run_config
from tests.coloured import CLASSES, write_coloured


@pytest.mark.parametrize("images", IMAGE_SETS)
@pytest.mark.parametrize("model", ["lorentz_vit_tiny", "lorentz_vit_small"])
def test_vision_transformers_have_a_preset_of_their_own(images: str, model: str) -> None:
    config = run_config(images, settings={"model": model, "epochs": 20})
    assert isinstance(config.model, ViTConfig)
    assert (config.train.optimizer, config.train.lr, config.train.warmup) == ("adam", 1e-3, 1.0)
    assert run_config(images, "euclidean", settings={"model": model, "epochs": 20}).train == config.train
    assert not has_searched_preset(config)
    assert RunConfig.from_dict(config.as_dict()) == config
    with pytest.raises(ValueError, match=r"unknown recipe of lorentz_vit.* 'paper'"):
        run_config(images, recipe="paper", settings={"model": model})


def test_the_rate_of_resnets_is_not_used_on_own_images(tmp_path: Path) -> None:
    path = write_coloured(tmp_path / "mine.npz")
    config = run_config(str(path), settings={"model": "lorentz_vit_tiny"})
    chosen = suit_to_images(config, {"model": "lorentz_vit_tiny"}).config
    assert (chosen.model.name, chosen.train.optimizer, chosen.train.lr) == ("lorentz_vit_tiny", "adam", 1e-3)
    assert chosen.train.batch_size == 16


def test_train_and_use_a_vision_transformer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, folder = write_coloured(tmp_path / "mine.npz"), tmp_path / "run"
    options = ["--model", "lorentz_vit_tiny", "--epochs", "4", "--batch-size", "20", "--pad", "1", "--device", "cpu"]
    options += ["--learn-curvature", "--curvature-per-layer", "--scores", "lorentz", "--patch", "2", "--dropout", "0.1"]
    assert cli.main(["train", str(images), *options, "--out", str(folder)]) == 0
    capsys.readouterr()
    record = json.loads((folder / "run.json").read_text())
    assert {"name": "lorentz_vit_tiny", "patch": 2, "curvature_per_layer": True}.items() <= record["model"].items()
    words = shlex.split(record["command"])
    assert {"--curvature-per-layer", "--patch", "--scores"} <= set(words)
    model = from_pretrained(folder / "model")
    assert isinstance(model, LorentzViT)
    assert model.config["num_classes"] == len(CLASSES)
    assert available_scores(model) == ("energy", "softmax", "logit", "origin_distance", "boundary_distance")
    run = Run.open(folder, device="cpu")
    assert run.evaluate()["accuracy"] > 60  # chance is 33
    assert cli.main(["delta", str(folder)]) == 0
    assert "vit12 lorentz" in capsys.readouterr().out
    points = model.embed(torch.randn(2, 3, 8, 8))
    assert points.shape == (2, 192)
