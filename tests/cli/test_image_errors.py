"""Errors of commands on images: one line, exit code 2, and no files left behind."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lresnet import cli
from lresnet.models import LorentzResNet
from lresnet.runs.tasks import _images
from tests.coloured import write_coloured
from tests.runs.folders import forget_checksums

QUICK = ["--model", "lorentz_resnet20", "--epochs", "1", "--batch-size", "20", "--cutout", "0", "--device", "cpu"]


def complaint(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    assert cli.main([str(arg) for arg in args]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("lresnet: error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    return captured.err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LRESNET_DATA", str(tmp_path))
    write_coloured(tmp_path / "coloured.npz")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["cifar1"],
            "'cifar1' does not exist, and no shipped task has that name; did you mean 'cifar10'? Graphs: actor/nc",
        ),
        (["gone.npz"], "gone.npz does not exist; give cifar10 or cifar100"),
        (["file"], "is neither a folder nor a .npz"),
        (["empty"], "empty holds no folders of images; put the images of each class into a folder of its own"),
        (
            ["coloured.npz", "--recipe", "slow"],
            "unknown recipe 'slow'; choose one of fast, fast-learned, long, long-cutmix, paper",
        ),
        (["coloured.npz", "--split", "legacy"], "--split is for graphs, but coloured.npz is a task on images"),
        (["coloured.npz", "--layers", "3"], "--layers is not a setting of lorentz_resnet20, but of lorentz_vit"),
        (
            ["disease_tree/lp", "--recipe", "fast"],
            "--recipe is for images and texts, but disease_tree/lp is a task on graphs",
        ),
        (["disease_tree/lp", "--cutout", "3"], "--cutout is for images"),
        (["coloured.npz", "--neighbours", "10,10"], "--neighbours is for graphs, but "),
        (["coloured.npz", "--task", "graphs"], "lorentz_resnet20 is not a network for graphs"),
        (["disease_tree/lp", "--task", "images"], "disease_tree/lp does not exist"),
        (["coloured.npz", "--method", "lorenz"], "did you mean 'lorentz'"),
        (["coloured.npz", "--holdout", "1"], "--holdout must be at least 0 and below 1, got 1.0"),
        (["coloured.npz", "--cutmix", "2"], "cutmix must be 0 to 1, got 2.0"),
        (["coloured.npz", "--cutmix", "-1"], "cutmix must be 0 to 1, got -1.0"),
        (["coloured.npz", "--epochs", "3", "--warmup", "3"], "warmup must be shorter than the 3 epochs, got 3.0"),
        (["coloured.npz", "--scale", "-1"], "scale"),
        (["coloured.npz", "--scale", "2+w"], "--scale must be learned or 1+w or none or a number, got '2+w'"),
        (["coloured.npz", "--checkpoint-every", "0"], "checkpoint_every must be at least 1, got 0"),
        (["coloured.npz", "--out", "file/run"], "file is a file, and a run needs a folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_trainings_are_refused(
    args: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in complaint(capsys, "train", *(QUICK if args[0] == "coloured.npz" else []), *args)
    assert sorted(path.name for path in here.iterdir()) == ["coloured.npz", "empty", "file"]


def test_a_corrupt_archive_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "cifar-10-binary.tar.gz").write_bytes(b"\x1f\x8b" + bytes(1000))
    assert "cifar-10-binary.tar.gz is not the official" in complaint(capsys, "train", "cifar10")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"test_labels": np.full(30, 3)}, "a test label is 3, but the classes are 0 to 2"),
        ({"train_labels": np.arange(60) - 1}, "train_labels holds the label -1; number the classes 0, 1, ..."),
        ({"test_images": np.zeros((30, 9, 8, 3), np.uint8)}, "training images are [8, 8, 3], test images [9, 8, 3]"),
        ({"train_images": np.zeros((60, 8, 8, 3), np.float32)}, "train_images is float32; save pixels 0 to 255"),
    ],
)
def test_arrays_that_are_not_images_with_labels_are_refused(
    arrays: dict[str, np.ndarray], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_coloured(here / "wrong.npz", **arrays)
    assert words in complaint(capsys, "train", "wrong.npz", *QUICK)
    assert not (here / "runs").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("verb", [["train", "coloured.npz", *QUICK], ["reproduce", "image_classification"]])
def test_cuda_without_a_gpu_is_refused(verb: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "device 'cuda' cannot be used here: " in complaint(capsys, *verb, "--device", "cuda")
    assert not (here / "runs").exists()


@pytest.fixture
def run(here: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["train", "coloured.npz", *QUICK, "--out", "run"]) == 0
    Image.new("RGB", (8, 8)).save(here / "image.png")
    capsys.readouterr()
    return "run"


def test_wrong_predictions_are_refused(run: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "empty holds no images; image files end with" in complaint(capsys, "predict", run, "empty")
    assert "no file gone.png" in complaint(capsys, "predict", run, "image.png", "gone.png")
    assert "no images given; name image files, or folders of them" in complaint(capsys, "predict", run)
    assert "top must be at least 1" in complaint(capsys, "predict", run, "image.png", "--top", "0")
    assert "empty holds no run" in complaint(capsys, "predict", "empty", "image.png")
    assert "File exists" in complaint(capsys, "predict", run, "image.png", "--json", "file/classes.json")
    assert "empty holds no run" in complaint(capsys, "delta", "empty")
    assert "images must be at least 4" in complaint(capsys, "delta", run, "--images", "2")
    assert "cifar10 is not a graph; train a network on it" in complaint(capsys, "delta", "cifar10")


def test_moved_images_are_reported_with_their_old_path(
    run: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = here / "coloured.npz", here / "moved.npz"
    before.rename(after)
    words = f"the images of the run in run were at {before} and are no longer there; move them back, or make"
    for verb in (["evaluate", run], ["delta", run], ["ood", run, "--ood", "noise"]):
        assert words in complaint(capsys, *verb)
    before.mkdir()  # like the mount point of a disk that is not mounted
    assert words in complaint(capsys, "evaluate", run)
    before.rmdir()
    before.symlink_to(after)
    assert cli.main(["evaluate", run]) == 0


def test_changed_training_labels_are_refused(run: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = np.arange(60) % 3
    write_coloured(here / "coloured.npz", train_labels=labels[[1, 0, *range(2, 60)]])
    _images.cache_clear()
    words = f"{here / 'coloured.npz'} has other training images or training labels than when the run in run was started"
    verbs = (["evaluate", run], ["delta", run], ["embed", run], ["ood", run, "--ood", "noise"])
    for verb in (*verbs, ["train", "coloured.npz", *QUICK, "--out", run]):
        assert words in complaint(capsys, *verb)


def test_a_model_that_does_not_fit_the_run_is_refused(run: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    LorentzResNet(20, num_classes=4).save_pretrained(here / run / "model")
    forget_checksums(here / run)
    assert "the model has 4 classes, but coloured has 3" in complaint(capsys, "evaluate", run)
    assert "the model has 4 classes, the run has 3" in complaint(capsys, "predict", run, "image.png")
    LorentzResNet(20, num_classes=3, in_channels=1).save_pretrained(here / run / "model")
    assert "images must have shape [B, 1, H, W]" in complaint(capsys, "evaluate", run)
    assert "takes images of 1 channels, the run's have 3" in complaint(capsys, "predict", run, "image.png")


def test_a_run_on_a_graph_refuses_images(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "disease_tree/lp", "--epochs", "1", "--out", "graph"]) == 0
    Image.new("RGB", (8, 8)).save("image.png")
    capsys.readouterr()
    for item in ("image.png", "3"):
        words = "graph holds a run on disease_tree/lp; this needs one that classifies nodes, or --links to rank links"
        assert words in complaint(capsys, "predict", "graph", item)
    assert "graph holds a run on the graph disease_tree/lp; this needs one on images" in complaint(
        capsys, "delta", "graph"
    )


def test_a_gpu_out_of_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 20 GiB.")

    monkeypatch.setattr("lresnet.doctor.examine", full)
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err == (
        "lresnet: error: the GPU is out of memory; use a smaller --batch-size, or --device cpu\n"
    )
