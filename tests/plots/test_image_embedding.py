"""Pictures of test images: disk or plane, legends of few and many classes, thumbnails, and wrong options."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import lresnet
from lresnet import cli
from lresnet.plots.image_embedding import ImagePoints, draw_image_points, image_figure, image_points, shade
from lresnet.plots.poincare_disk import class_marker
from lresnet.runs import run_config
from tests.coloured import write_coloured
from tests.runs.folders import opened, trained


@pytest.fixture(scope="module", params=["lorentz", "euclidean"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("images")
    settings = {"model": "lorentz_resnet20", "epochs": 1, "batch_size": 20}
    config = run_config(str(write_coloured(place / "mine.npz")), request.param, settings=settings)
    trained(place / request.param, config)
    return place / request.param


def points(classes: int, count: int = 300) -> ImagePoints:
    draw = np.random.default_rng(0)
    angle, radius = draw.uniform(0, 6.28, count), draw.uniform(0, 0.9, count)
    plane = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    names = tuple(f"class_{k}" for k in range(classes))
    return ImagePoints("a run", plane, np.arange(count) % classes, names, is_disk=True, note="A note.")


def test_the_picture_of_a_run_on_images(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "p.svg"
    call = ["plot", "embedding", str(folder), "--out", str(out), "--images", "20", "--device", "cpu"]
    assert cli.main([*call, "--thumbnails", "3"]) == 0
    how = "PCA: they keep" if folder.name == "euclidean" else "hyperbolic PCA: they keep"
    said = capsys.readouterr().out
    assert "20 of 30 test images, chosen at random; each point is the input of the network's head." in said
    assert how in said
    assert out.read_text().count("<image") == 3
    found = image_points(opened(folder))
    assert found.is_disk == (folder.name == "lorentz")
    assert found.title == f"mine.npz, {folder.name}, seed 0"
    assert len(found.points) == 30


def test_options_of_graphs_are_refused_for_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plot", "embedding", str(folder), "--names", "3"]) == 2
    assert "--names is for graphs" in capsys.readouterr().err
    assert cli.main(["plot", "embedding", str(folder), "--thumbnails", "-1"]) == 2
    assert "--thumbnails must be at least 0, got -1" in capsys.readouterr().err


@pytest.mark.parametrize(("classes", "listed"), [(10, 10), (100, 100), (150, 102)])
def test_the_legend_lists_the_classes_without_overlap(classes: int, listed: int) -> None:
    figure = image_figure(points(classes))
    figure.draw_without_rendering()
    legend = figure.axes[1]
    names = [text for text in legend.texts if text.get_text().startswith("class_")]
    assert len(names) == listed
    assert any(text.get_text() == "and 48 more" for text in legend.texts) == (classes == 150)
    boxes = [text.get_window_extent() for text in legend.texts]
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            width = min(a.x1, b.x1) - max(a.x0, b.x0)
            height = min(a.y1, b.y1) - max(a.y0, b.y0)
            assert width <= 0 or height <= 0.35 * min(a.height, b.height)
    named = [text for text in figure.axes[0].texts if text.get_text().startswith("class_")]
    assert bool(named) == (classes > 14)


def test_a_hundred_classes_have_signs_of_their_own() -> None:
    assert len({(shade(k), class_marker(k)) for k in range(105)}) == 105


def test_a_data_set_of_your_own_is_drawn_without_thumbnails(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(40, 1, 4, 4), torch.arange(40) % 3)
    net = torch.nn.Sequential(torch.nn.Flatten(), lresnet.nn.ClassifierHead(16, 3))
    run = lresnet.fit(lresnet.data.dataset_task(data, test=data), net, lresnet.TrainConfig(1), device="cpu")
    found = image_points(run, 30)
    assert found.is_disk
    assert len(found.labels) == 30
    assert draw_image_points(tmp_path / "p.png", found).stat().st_size > 5000
    with pytest.raises(ValueError, match="there are no thumbnails of a data set of your own"):
        image_figure(found, 3)
    with pytest.raises(ValueError, match="images must be at least 2, got 1"):
        image_points(run, 1)
