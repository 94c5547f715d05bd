"""Predictions for a user's images: what is read, how it is fitted, what a wrong folder is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lresnet.models import LorentzResNet
from lresnet.runs.prediction import image_files, image_network, predict_images
from lresnet.runs.presets import run_config
from tests.coloured import CLASSES, coloured_data, write_coloured
from tests.runs.folders import forget_checksums, opened, trained, unverified

CONFIG = {"model": "lorentz_resnet20", "epochs": 10, "batch_size": 9, "lr": 0.05, "cutout": 0, "pad": 1}
TEST = coloured_data().test


def trained_on_colours(folder: Path, **config: object) -> Path:
    path = write_coloured(folder / "coloured.npz")
    trained(folder / "run", run_config(str(path), settings=CONFIG | config))
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_on_colours(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """The first nine test images as files."""
    for i, image in enumerate(TEST.images[:9].numpy()):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    return [tmp_path / f"{i}.png" for i in range(9)]


def test_predictions_are_those_of_the_network(run: Path, photos: list[Path]) -> None:
    assert next(iter(opened(run).evaluate().values())) == 100
    found = predict_images(opened(run), photos, top=3)
    assert [image.file for image in found.images] == photos
    assert [image.classes[0] for image in found.images] == [CLASSES[label] for label in TEST.labels[:9]]
    expected = image_network(opened(run)).probabilities(TEST.images[:9]).sort(descending=True).values
    torch.testing.assert_close(torch.tensor([image.probabilities for image in found.images]), expected)
    assert all(set(image.classes) == set(CLASSES) for image in found.images)
    assert (found.size, found.resized, found.skipped) == ((8, 8), 0, [])


def test_batches_do_not_matter(run: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    together = predict_images(opened(run), photos)
    (photos[3]).write_bytes(b"damaged")
    monkeypatch.setattr("lresnet.runs.prediction._BATCH", 1)
    alone = predict_images(opened(run), photos)
    assert [image.classes for image in alone.images] == [i.classes for i in together.images if i.file != photos[3]]
    assert [file for file, _ in alone.skipped] == [photos[3]]
    assert alone.skipped[0][1]


def test_as_many_classes_as_asked_for(run: Path, photos: list[Path]) -> None:
    for top, shown in ((1, 1), (2, 2), (9, 3)):
        assert {len(image.classes) for image in predict_images(opened(run), photos, top=top).images} == {shown}
    with pytest.raises(ValueError, match="top must be at least 1, got 0"):
        predict_images(opened(run), photos, top=0)


@pytest.mark.parametrize("mode", ["RGBA", "P", "L", "CMYK"])
def test_other_modes_are_converted(run: Path, tmp_path: Path, mode: str) -> None:
    file = tmp_path / ("image.tif" if mode == "CMYK" else "image.png")
    Image.fromarray(TEST.images[0].numpy()).convert(mode).save(file)
    (image,) = predict_images(opened(run), [file]).images
    assert mode == "L" or image.classes == ("red",)  # without colours there is nothing to tell


def test_another_size_is_fitted_and_said(run: Path, tmp_path: Path) -> None:
    large = Image.fromarray(TEST.images[1].numpy()).resize((30, 20), Image.Resampling.NEAREST)
    large.save(tmp_path / "large.png")
    found = predict_images(opened(run), [tmp_path / "large.png"])
    assert found.images[0].classes == ("green",)
    assert (found.images[0].size, found.resized) == ((30, 20), 1)


def test_sixteen_bits_are_not_cut_off_in_silence(run: Path, tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 40000, np.uint16)).save(tmp_path / "deep.png")
    found = predict_images(opened(run), [tmp_path / "deep.png"])
    assert found.images == []
    assert found.skipped == [(tmp_path / "deep.png", "grey with more than 8 bits per channel; save it with 8 bits")]


def test_grey_runs_take_colour_images(tmp_path: Path, photos: list[Path]) -> None:
    grey = {
        f"{part}_images": getattr(coloured_data(), part).images.float().mean(-1).byte().numpy()
        for part in ("train", "test")
    }
    path = write_coloured(tmp_path / "grey.npz", **grey)
    trained(tmp_path / "run", run_config(str(path), settings=CONFIG | {"epochs": 1}))
    assert len(predict_images(opened(tmp_path / "run"), photos).images) == 9


def test_the_run_s_flip_test_decides(tmp_path: Path, photos: list[Path]) -> None:
    folder = trained_on_colours(tmp_path, epochs=1, flip_test=True)
    network = image_network(opened(folder))
    assert network.flip_test
    images = TEST.images[:9]
    torch.testing.assert_close(network.probabilities(images), network.probabilities(images.flip(2)))


def test_a_folder_gives_its_images_sorted_and_those_of_its_folders(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "c/d.bmp", ".hidden.png", ".cache/e.png", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [str(file.relative_to(tmp_path)) for file in image_files([tmp_path])] == ["a.JPG", "b.png", "c/d.bmp"]
    assert image_files([tmp_path / "notes.txt"]) == [tmp_path / "notes.txt"]  # a file that is named is tried
    twice = image_files([tmp_path / "c", tmp_path, tmp_path / "c" / ".." / "b.png"])
    assert [file.name for file in twice] == ["d.bmp", "a.JPG", "b.png"]


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no images given; name image files"):
        image_files([])
    with pytest.raises(FileNotFoundError, match="no file nowhere"):
        image_files([Path("nowhere")])
    with pytest.raises(ValueError, match="holds no images"):
        image_files([tmp_path])


def test_a_run_on_a_graph_is_told_apart(tmp_path: Path, photos: list[Path]) -> None:
    trained(tmp_path / "run", run_config("disease_tree/lp", settings={"epochs": 1}))
    with pytest.raises(ValueError, match="holds a run on the graph disease_tree/lp; this needs one on images"):
        predict_images(opened(tmp_path / "run"), photos)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (LorentzResNet(20, num_classes=3, in_channels=1), "takes images of 1 channels, the run's have 3"),
        (LorentzResNet(20, num_classes=5), "has 5 classes, the run has 3"),
    ],
)
def test_a_model_of_another_run_is_refused(tmp_path: Path, model: LorentzResNet, words: str) -> None:
    folder = trained_on_colours(tmp_path, epochs=1)
    model.save_pretrained(folder / "model")
    forget_checksums(folder)
    with pytest.raises(ValueError, match=f"does not fit the model beside it: the model {words}"):
        image_network(opened(folder))


def test_a_damaged_run_json_is_named(tmp_path: Path) -> None:
    folder = trained_on_colours(tmp_path, epochs=1)
    record = json.loads((folder / "run.json").read_text())
    record["images"].pop("mean")
    (folder / "run.json").write_text(unverified(record))
    with pytest.raises(ValueError, match=r"run\.json does not describe its images: no 'mean'"):
        image_network(opened(folder))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("height", "8", "height is '8', not a number of pixels"),
        ("width", 0, "width is 0, not a number of pixels"),
        ("mean", [0.5], r"mean is \[0\.5\], not a number for each of 3 channels"),
        ("std", [0.2, 0.0, 0.2], r"std is \[0\.2, 0\.0, 0\.2\], not a number for each of 3 channels"),
    ],
)
def test_facts_that_cannot_be_are_named(tmp_path: Path, run: Path, name: str, value: object, words: str) -> None:
    shutil.copytree(run, tmp_path / "run")
    record = json.loads((run / "run.json").read_text())
    record["images"][name] = value
    (tmp_path / "run" / "run.json").write_text(unverified(record))
    with pytest.raises(ValueError, match=rf"run\.json does not fit the model beside it: {words}"):
        image_network(opened(tmp_path / "run"))


def test_a_network_without_figures_predicts_nothing(tmp_path: Path, run: Path, photos: list[Path]) -> None:
    shutil.copytree(run, tmp_path / "run")
    model = image_network(opened(run)).model
    torch.nn.init.constant_(model.head.bias, float("nan"))
    model.save_pretrained(tmp_path / "run" / "model")
    forget_checksums(tmp_path / "run")
    with pytest.raises(ValueError, match=r"the predictions of .*run are not finite"):
        predict_images(opened(tmp_path / "run"), photos)
