"""Tests of the stem that a run chooses by the size of its images."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from lresnet import TrainConfig, fit
from lresnet.data import ImageData, ImageSet, ImageTask
from lresnet.data.torch_dataset import dataset_task
from lresnet.runs import ResNetConfig, Run
from lresnet.runs.config import RunConfig
from lresnet.runs.networks import build_model, with_stem
from lresnet.runs.presets import run_config


def task(side: int, width: int | None = None) -> ImageTask:
    images = torch.zeros(4, side, width or side, 3, dtype=torch.uint8)
    part = ImageSet(images, torch.tensor([0, 1, 0, 1]))
    return ImageTask("made", ImageData("made", part, part, ("a", "b"), (0.5,) * 3, (0.25,) * 3))


@pytest.mark.parametrize(
    ("model", "side", "stem"),
    [
        ("lorentz_resnet18", 32, None),
        ("lorentz_resnet18", 95, None),
        ("lorentz_resnet18", 96, "imagenet"),
        ("lorentz_resnet50", 224, None),
        ("lorentz_resnet50", 64, "cifar"),
    ],
)
def test_the_stem_follows_the_shorter_side_and_the_usual_one_is_not_recorded(model, side, stem):
    chosen = with_stem(ResNetConfig(model), task(side, 2 * side))
    assert chosen == ResNetConfig(model, stem=stem)


def test_a_data_set_of_torch_decides_too():
    items = [(torch.zeros(3, 96, 128), i % 2) for i in range(20)]
    own = dataset_task(items)
    assert with_stem(ResNetConfig("lorentz_resnet18"), own).stem == "imagenet"


def test_a_stem_that_is_given_stays():
    config = ResNetConfig("lorentz_resnet20", stem="cifar")
    assert with_stem(config, task(128)) is config
    assert build_model(config, task(128)).config["stem"] == "cifar"


def test_the_network_of_a_run_has_the_stem_of_its_images():
    assert build_model(ResNetConfig("lorentz_resnet20"), task(32)).config["stem"] == "cifar"
    model = build_model(ResNetConfig("lorentz_resnet20"), task(96))
    assert model.config["stem"] == "imagenet"
    assert model.stem[0].weight.shape[2:] == (7, 7)


def test_the_record_has_the_chosen_stem(tmp_path):
    run = fit(task(96), ResNetConfig("lorentz_resnet20"), TrainConfig(epochs=1, batch_size=4), out=tmp_path / "run")
    assert run.record.model["stem"] == "imagenet"
    assert json.loads((tmp_path / "run/model/config.json").read_text())["stem"] == "imagenet"
    assert Run.open(tmp_path / "run", task=run.task).model.stem_name == "imagenet"


def test_a_run_of_an_earlier_version_had_the_usual_stem():
    old = run_config("cifar10")
    assert "stem" not in old.as_dict()["model"]
    given = run_config("cifar10", settings={"stem": "cifar"})
    assert old.same_run(given) is None
    large = run_config("cifar10", settings={"stem": "imagenet"})
    assert large.same_run(old) == "stem is cifar there, not imagenet"
    assert "--stem imagenet" in large.command()
    assert RunConfig.from_dict(large.as_dict()) == large


def test_the_command_line_reports_the_stem(tmp_path, capsys, monkeypatch):
    from lresnet import cli

    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    parts = {f"{p}_images": draw.integers(0, 255, (8, 96, 96, 3), dtype=np.uint8) for p in ("train", "test")}
    labels = {f"{p}_labels": np.arange(8) % 2 for p in ("train", "test")}
    np.savez("set.npz", **parts, **labels)
    words = ["train", "set.npz", "--model", "lorentz_resnet20", "--epochs", "1", "--device", "cpu", "--holdout", "0"]
    assert cli.main(words) == 0
    assert "stem imagenet, chosen by the size of the images" in capsys.readouterr().out
