"""The command lines `lresnet train`, `evaluate`, `predict` and `delta` on images."""

import json
import shlex
from pathlib import Path

import pytest
import torch
from PIL import Image

from lresnet import cli
from lresnet.models import LorentzResNet, from_pretrained
from lresnet.runs import RunConfig, run_config
from lresnet.runs.record import RunRecord, write_record
from tests.coloured import CLASSES, coloured_data, write_coloured

CPU = ["--device", "cpu"]
QUICK = ["--model", "lorentz_resnet20", "--epochs", "2", "--batch-size", "20", "--lr", "0.05", "--cutout", "0", *CPU]
TEST = coloured_data().test


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_coloured(tmp_path_factory.mktemp("images") / "three colours.npz")


@pytest.fixture(scope="module")
def run(images: Path) -> Path:
    folder = images.parent / "run"
    options = [*QUICK, "--epochs", "10", "--batch-size", "9", "--pad", "1", "--out", str(folder)]
    assert cli.main(["train", str(images), *options]) == 0
    return folder


def test_train_then_evaluate(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    options = ["--method", "tangent", "--seed", "2", "--curvature", "-0.5", "--pooling", "centroid", "--no-flip"]
    options += ["--head", "prototypes", "--weight", "0.5", "--holdout", "0.2", "--keep", "best", "--eval-every", "1"]
    assert cli.main(["train", str(images), *options, *QUICK, "--out", str(folder)]) == 0
    out = capsys.readouterr().out
    record = json.loads((folder / "run.json").read_text())
    assert "48 images to train on, 12 held out, 30 to test: 8 x 8 x 3, 3 classes" in out
    assert f"best validation {record['validation']:.2f}" in out
    assert f"validation {record['validation']:.2f}, epoch {record['best_epoch']}\n" in out
    assert {"curvature": -0.5, "pooling": "centroid", "weight": 0.5}.items() <= record["model"].items()
    assert (record["task"]["holdout"], record["train"]["epochs"]) == (0.2, 2)
    assert record["train"]["augment"]["flip"] is False
    model = from_pretrained(folder / "model")
    assert isinstance(model, LorentzResNet)
    assert model.config["residual_options"] == {"weight": 0.5}

    assert cli.main(["evaluate", str(folder)]) == 0
    figures = json.loads((folder / "evaluation.json").read_text())["metrics"]
    assert capsys.readouterr().out == f"{images}, tangent, seed 2: accuracy {figures['accuracy']:.2f}\n"


def test_the_recorded_command_gives_the_same_run(images: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    own = ["--scale", "learned", "--no-flip", "--flip-test", "--learn-curvature", "--average", "0.9", "--decay", "all"]
    assert cli.main(["train", str(images), *QUICK, *own, "--recipe", "paper", "--out", str(first)]) == 0
    record = json.loads((first / "run.json").read_text())
    assert cli.main([*shlex.split(record["command"])[1:], "--out", str(second)]) == 0
    again = json.loads((second / "run.json").read_text())
    own = {"seconds": 0, "checksum": ""}
    assert {**again, **own} == {**record, **own}


@pytest.mark.parametrize(("method", "noted"), [("tangent", True), ("lorentz", False)])
def test_a_note_reports_settings_that_were_not_searched_for_the_method(
    method: str, noted: bool, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--recipe", "paper", "--method", method, "--warmup", "0", "--out", str(tmp_path)]
    assert cli.main(["train", str(images), *QUICK, *options]) == 0
    words = f"recipe paper was not searched for {method}; it uses its first settings\n"
    assert (words in capsys.readouterr().out) == noted


def test_a_run_without_validation_images_reports_it(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", str(images), *QUICK, "--holdout", "0", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "60 images to train on, 0 held out" in out
    assert "nothing held out, epoch 2\n" in out


def test_the_folder_is_named_after_the_path_and_unreadable_images_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for part, data in (("train", coloured_data().train), ("test", TEST)):
        for i in range(6):
            file = Path("my photos", part, CLASSES[data.labels[i]], f"{i}.png")
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(data.images[i].numpy()).save(file)
    for name in ("torn.png", "a.png", "b.png", "z\n.png"):
        Path("my photos/train/red", name).write_bytes(b"")
    assert cli.main(["train", "my photos/", *QUICK, "--method", "euclidean", "--holdout", "0"]) == 0
    assert Path("runs/my_photos-resnet20-euclidean-0/model/model.safetensors").is_file()
    red = tmp_path / "my photos" / "train" / "red"
    named = ", ".join(str(red / name) for name in ("a.png", "b.png", "torn.png"))
    warning = "warning: 4 of 16 files could not be read as images and are skipped:"
    assert f"\n{warning} {named}, ... (-v lists all, with the reasons)\n" in capsys.readouterr().out
    assert cli.main(["train", "my photos/", *QUICK, "--holdout", "0", "-v"]) == 0
    out = capsys.readouterr().out
    lines = out[out.index(warning) :].splitlines()[1:5]
    for line, name in zip(lines, ("a.png", "b.png", "torn.png", "z\\n.png"), strict=True):
        assert line.startswith(f"  {red / name}: cannot identify image file")
    monkeypatch.chdir("runs")  # the data are found from anywhere
    assert cli.main(["evaluate", "my_photos-resnet20-euclidean-0"]) == 0


def test_images_are_cifar10_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("lresnet.cli.train._train", lambda *args: calls.append(args) or 0)
    assert cli.main(["train", "--task", "images"]) == 0
    assert cli.main(["train"]) == 0
    (images, folder, device, every, *_), (graph, _, _, every_of_graphs, *_) = calls
    assert images == run_config("cifar10")
    assert (device, every) == ("auto", None)
    assert folder == Path("runs/cifar10-lorentz-0")
    assert (graph, every_of_graphs) == (run_config("disease_tree/lp"), None)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the run folders that a stub of `train` has written."""

    def train(config: RunConfig, folder: Path, *_: object) -> int:
        found.append(folder.name)
        folder.mkdir(parents=True, exist_ok=True)
        record = config.as_dict() | {"command": "", "device": "cpu", "versions": {}, "hardware": ""}
        write_record(folder, RunRecord(**record))
        return 0

    found: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lresnet.cli.train._train", train)
    for place in ("photos", "other/photos"):
        Path(place).mkdir(parents=True)
    return found


def test_links_to_the_same_images_lead_to_the_same_run_folder(folders: list[str], tmp_path: Path) -> None:
    assert cli.main(["train", "photos"]) == 0
    Path("photos").rename("moved")
    Path("photos").symlink_to("moved")
    Path("way").symlink_to(tmp_path)
    for place in ("photos", "photos/", "other/../photos", "way/photos", "way/other/photos", "other/photos"):
        assert cli.main(["train", place]) == 0
    assert folders == ["photos-lorentz-0"] * 5 + ["photos_2-lorentz-0"] * 2


def test_run_folders_differ_by_model_recipe_and_images(folders: list[str]) -> None:
    for call in (
        ["photos.npz"],
        ["photos.npz", "--model", "lorentz_resnet18"],
        ["photos.npz", "--model", "lorentz_resnet20"],
        ["photos"],
        ["other/photos"],
        ["photos.npz"],
        ["other/photos"],
        ["cifar10", "--model", "lorentz_resnet32"],
        ["cifar10", "--recipe", "paper"],
        ["cifar10", "--recipe", "long"],
        ["cifar10", "--recipe", "fast"],
        ["cifar10", "--recipe", "fast-learned"],
    ):
        assert cli.main(["train", *call]) == 0
    assert folders == [
        "photos-lorentz-0",
        "photos-lorentz-0",
        "photos-resnet20-lorentz-0",
        "photos_2-lorentz-0",
        "photos_3-lorentz-0",
        "photos-lorentz-0",
        "photos_3-lorentz-0",
        "cifar10-resnet32-lorentz-0",
        "cifar10-paper-lorentz-0",
        "cifar10-long-lorentz-0",
        "cifar10-lorentz-0",
        "cifar10-fast-learned-lorentz-0",
    ]


def test_predict_prints_the_classes(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for i in range(3):
        Image.fromarray(TEST.images[i].numpy()).resize((8 + i, 8)).save(f"photos/{i}.png")
    Path("photos/torn.jpg").write_bytes(b"torn")
    assert cli.main(["predict", str(run), "photos", "--top", "2", "--json", "new/classes.json", "-v", *CPU]) == 0
    captured = capsys.readouterr()
    rows = [line.split() for line in captured.out.splitlines() if ".png" in line]
    assert [row[:2] for row in rows] == [[f"photos/{i}.png", name] for i, name in enumerate(CLASSES)]
    assert captured.out.count(" %") == 6
    notes = captured.err.splitlines()
    assert notes[0] == "2 of 3 images had another size than 8 x 8: cropped, then resized"
    assert notes[1] == "1 of 4 files could not be read as images"
    assert notes[2].startswith("  photos/torn.jpg: cannot identify")
    written = json.loads(Path("new/classes.json").read_text())
    assert [image["predictions"][0]["class"] for image in written["images"]] == list(CLASSES)
    assert written["skipped"][0]["file"] == "photos/torn.jpg"

    assert cli.main(["predict", str(run), "photos/0.png", "--json", "-", *CPU]) == 0
    (image,) = json.loads(capsys.readouterr().out)["images"]
    (best,) = image["predictions"]
    assert (image["file"], image["size"], best["class"]) == ("photos/0.png", [8, 8], "red")
    assert best["probability"] == pytest.approx(written["images"][0]["predictions"][0]["probability"], abs=1e-5)


def test_predict_ends_with_code_1_if_no_file_could_be_read(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torn.jpg").write_bytes(b"torn")
    assert cli.main(["predict", str(run), str(tmp_path / "torn.jpg")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "1 of 1 files could not be read as images\n"


def test_delta_of_a_run_s_embeddings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["delta", str(run), "--images", "20", "--samples", "100", "--seed", "3"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "embeddings of 20 test images, resnet20 lorentz, geodesic distance" in out
    assert "100 drawn at random" in out


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ninety images in a folder of classes."""
    root = tmp_path_factory.mktemp("flat") / "photos"
    for number, (image, label) in enumerate(zip(coloured_data(90).train.images, range(90), strict=True)):
        file = root / CLASSES[label % 3] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.numpy()).save(file)
    return root


def test_three_commands_from_a_folder_of_classes_to_predictions(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", str(photos), "--epochs", "3", *CPU]) == 0
    out = capsys.readouterr().out
    for line in (
        "66 images to train on, 6 held out, 18 to test: 8 x 8 x 3, 3 classes",
        "Training images per class: 22",
        "There is no folder test: 20% of each class are the test set, 18 of 90 images, chosen by file content and the "
        "same in every run (--test-fraction, --split-seed).",
        "Images: 8 x 8 (--size), kept in memory: 0.0 MB decoded, limit --memory",
        "Augmentation: shifts of up to 1 pixels (--pad 1 --cutout 0 --no-flip)",
        "--no-flip: 66 training images are too few to tell whether they may be mirrored",
        "Training: 3 epochs of 4 steps (--model lorentz_resnet20 --epochs 3 --batch-size 16 --lr 0.035)",
    ):
        assert f"\n{line}\n" in out
    folder = "runs/photos-lorentz-0"
    record = json.loads(Path(folder, "run.json").read_text())
    assert record["task"]["stratified"] is True
    assert (record["images"]["test_images"], record["images"]["training_images"]) == (18, 72)
    assert cli.main(["evaluate", folder, *CPU]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert cli.main(["predict", folder, str(photos / "red" / "0.png"), *CPU]) == 0
    predicted = capsys.readouterr().out
    assert any(name.name in predicted for name in photos.iterdir())  # three epochs: any class

    assert cli.main(["train", str(photos), *CPU]) == 0  # the same folder: its settings are kept, and it has finished
    assert json.loads(Path(folder, "run.json").read_text()) == record
    assert cli.main(["train", str(photos), "--epochs", "4", *CPU]) == 2
    assert "holds another run: epochs is 3 there, not 4; use another folder" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_on_streamed_images_reports_it_and_repeats_with_its_command(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    options = ["--epochs", "1", "--memory", "0", "--workers", "0", "--size", "6", *CPU]
    assert cli.main(["train", str(photos), *options, "--out", str(first)]) == 0
    assert "Images: 6 x 6 (--size), kept in their files, decoded by 0 processes (--workers)" in capsys.readouterr().out
    record = json.loads((first / "run.json").read_text())
    words = shlex.split(record["command"])[1:]
    assert cli.main([*words, "--memory", "1", "--out", str(second), *CPU]) == 0
    again = json.loads((second / "run.json").read_text())
    assert again["validation"] == record["validation"]
    assert again["images"].items() >= record["images"].items()
    models = [from_pretrained(folder / "model").state_dict() for folder in (first, second)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert cli.main(["evaluate", str(first), *CPU]) == 0


def test_images_of_several_sizes_become_squares(tmp_path: Path) -> None:
    for number in range(6):
        file = tmp_path / "mixed" / CLASSES[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8 + number, 20), (number, 0, 0)).save(file)
    assert cli.main(["train", str(tmp_path / "mixed"), "--epochs", "1", "--out", str(tmp_path / "run"), *CPU]) == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["task"]["size"] == 11
