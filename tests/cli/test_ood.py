"""The command line `lresnet ood`."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lresnet import cli
from lresnet.models import LorentzResNet
from tests.coloured import write_coloured
from tests.runs.folders import forget_checksums

QUICK = ["--model", "lorentz_resnet20", "--epochs", "4", "--batch-size", "9", "--pad", "1", "--cutout", "0"]
CPU = ["--device", "cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of the Lorentz network and of the Euclidean baseline, and some images."""
    folder = tmp_path_factory.mktemp("ood")
    images = str(write_coloured(folder / "coloured.npz"))
    for method in ("lorentz", "euclidean"):
        call = ["train", images, *QUICK, *CPU, "--method", method, "--out", str(folder / method)]
        assert cli.main(call) == 0
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    np.savez(folder / "grains.npz", images=pixels)
    (folder / "photos").mkdir()
    for index in range(3):
        Image.fromarray(pixels[index]).resize((12, 30)).save(folder / "photos" / f"{index}.png")
    (folder / "photos" / "torn.jpg").write_bytes(b"torn")
    (folder / "empty").mkdir()
    return folder


@pytest.fixture(autouse=True)
def _here(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LRESNET_DATA", str(folder))
    monkeypatch.setenv("COLUMNS", "120")
    capsys.readouterr()


def complaint(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert cli.main(["ood", *args, *CPU]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("lresnet: error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    return captured.err


def test_the_table_has_notes_about_small_sets_and_unreadable_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ood", "lorentz", "--ood", "grains.npz,photos", "--scores", "energy", "logit", "-v", *CPU]) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines() if "±" in line]
    assert [row[:2] for row in rows[::2]] == [["grains", "energy"], ["photos", "energy"]]
    assert [row[0] for row in rows[1::2]] == ["logit", "logit"]
    words = " ".join(out.split())
    assert "30 test images (the positives) against 3 to 6 images drawn from a set: mean and deviation" in words
    assert "Sets with fewer than 6 images are used in full, so the draws do not differ (" in words
    assert " has 3)." in words
    notes = err.splitlines()
    assert notes[0] == "photos: 1 of 4 files could not be read as images"
    assert notes[1].startswith("  photos/torn.jpg: cannot identify")
    assert cli.main(["ood", "lorentz", "--ood", "photos", *CPU]) == 0
    assert capsys.readouterr().err == notes[0] + "\n"  # only -v lists the files


def test_json_has_the_values_of_the_table_and_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ood", "euclidean", "--ood", "grains.npz", "photos", "--scores", "all", "--json", *CPU]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = found["rows"]
    assert len(rows) == 2 * 5 * 2
    assert [row["score"] for row in rows[:10:2]] == [
        "energy",
        "softmax",
        "logit",
        "euclidean_norm",
        "euclidean_boundary_distance",
    ]
    assert {"ood", "sampling", "fpr95", "fpr95_first", "auroc", "aupr", "aupr_out", "n_id", "n_ood", "note"} <= set(
        rows[0]
    )
    assert found["skipped"][0]["file"] == "photos/torn.jpg"
    assert cli.main(["ood", "euclidean", "--ood", "grains.npz", "--full", *CPU]) == 0
    out = " ".join(capsys.readouterr().out.split())
    whole = next(row for row in rows if row["sampling"] == "full")
    assert f"grains energy {whole['fpr95']:.1f} {whole['auroc']:.1f} {whole['aupr']:.1f}" in out
    assert "against 20 images of a set." in out


def test_one_draw_has_no_deviation(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["ood", "lorentz", "--ood", "grains.npz,photos", "--draws", "1", *CPU]
    assert cli.main([*call, "--json"]) == 0
    first, *rows = json.loads(capsys.readouterr().out)["rows"]
    assert not [name for row in (first, *rows) for name in row if name.endswith("_std")]
    assert cli.main(call) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert f"grains energy {first['fpr95']:.1f} {first['auroc']:.1f} {first['aupr']:.1f} photos" in words
    assert (
        "against 3 to 6 images drawn once from a set. Sets with fewer than 6 images are used in full (photos has 3)."
        in words
    )


def test_out_draws_histograms(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "scores.png"
    assert cli.main(["ood", "lorentz", "--ood", "grains.npz", "--out", str(picture), "--json", *CPU]) == 0
    captured = capsys.readouterr()
    json.loads(captured.out)  # and nothing else
    assert captured.err == f"The picture: {picture}\n"
    with Image.open(picture) as image:
        assert image.size[0] > 500


def test_wrong_calls_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no image set 'svhm' (did you mean svhn?); choose one of" in complaint(
        capsys, "lorentz", "--ood", "svhm"
    )
    assert "empty holds no readable image; add some" in complaint(capsys, "lorentz", "--ood", "grains.npz,empty")
    assert "no images of places: put them" in complaint(capsys, "lorentz", "--ood", "places")
    assert "no OOD set given; name at least one" in complaint(capsys, "lorentz", "--ood", ",")
    assert "this model has no score 'origin_distance'; it has energy, softmax, logit, euclidean_norm" in complaint(
        capsys, "euclidean", "--ood", "grains.npz", "--scores", "origin_distance"
    )
    assert "draws must be at least 1, got 0" in complaint(capsys, "lorentz", "--ood", "grains.npz", "--draws", "0")
    seed = complaint(capsys, "lorentz", "--ood", "grains.npz", "--seed", "99999999999999999999")
    assert "--seed must be 0 or more and below 2^32, got 99999999999999999999" in seed
    scores = complaint(capsys, "lorentz", "--ood", "grains.npz", "--scores", "all,energi")
    assert "this model has no score 'energi'" in scores
    assert "empty holds no run" in complaint(capsys, "empty", "--ood", "grains.npz")
    assert "file name must end with" in complaint(capsys, "lorentz", "--ood", "grains.npz", "--out", "a.txt")


def test_lists_are_separated_by_commas_or_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    def scores(*args: str) -> list[str]:
        assert cli.main(["ood", "lorentz", *args, "--json", *CPU]) == 0
        return [row["score"] for row in json.loads(capsys.readouterr().out)["rows"][::2]]

    assert scores("--ood", "grains.npz", "--scores", "energy,logit") == ["energy", "logit"]
    assert scores("--ood", "grains.npz, photos", "--scores", "logit, softmax", "energy") == 2 * [
        "logit",
        "softmax",
        "energy",
    ]
    assert len(scores("--ood", "grains.npz", "--scores", "energy", "all")) == 5
    again = ["--ood", "grains.npz", "--scores", "energy", "--ood", "photos", "--scores", "logit"]
    assert scores(*again) == 2 * ["energy", "logit"]
    assert scores("--ood", "photos", "photos") == ["energy"]  # a repeated set counts once


def test_sets_of_the_same_name_are_listed_by_path(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    for parent in ("home", "work"):
        (folder / parent).mkdir(exist_ok=True)
        (folder / parent / "grains.npz").write_bytes((folder / "grains.npz").read_bytes())
    assert cli.main(["ood", "lorentz", "--ood", "home/grains.npz,photos,work/grains.npz", *CPU]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if "±" in line]
    assert [row[0] for row in rows] == ["home/grains.npz", "photos", "work/grains.npz"]


def test_paths_may_contain_commas_and_spaces(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "sea, sky").mkdir(exist_ok=True)
    (folder / "sea, sky" / "0.png").write_bytes((folder / "photos" / "0.png").read_bytes())
    call = ["ood", "lorentz", "--ood", "grains.npz,photos", "sea, sky", "photos/", "./sea, sky", *CPU]
    assert cli.main(call) == 0
    rows = [line.split("energy")[0].strip() for line in capsys.readouterr().out.splitlines() if "±" in line]
    assert rows == ["grains", "photos", "sea, sky"]


def test_names_with_line_breaks_are_printed_in_one_line(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    odd = folder / "two\nlines"
    odd.mkdir(exist_ok=True)
    (odd / "0.png").write_bytes((folder / "photos" / "0.png").read_bytes())
    (odd / "torn\n\x1b[31m.png").write_bytes(b"torn")
    for call in (["ood", "lorentz", "--ood", str(odd), "-v", *CPU], ["predict", "lorentz", str(odd), "-v", *CPU]):
        assert cli.main(call) == 0
        out, err = capsys.readouterr()
        assert "two\\nlines" in "".join(out.split())
        assert len(err.splitlines()) == (2 if call[0] == "ood" else 3)  # predict also reports the resized image
        assert r"torn\n\x1b[31m.png: cannot identify" in err.splitlines()[-1]


def test_wrong_options_are_reported_before_any_image_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("images were read")

    monkeypatch.setattr("lresnet.runs.detection.load_ood_set", read)
    monkeypatch.setattr("lresnet.runs.tasks.load_images", read)
    assert "draws must be at least 1" in complaint(capsys, "lorentz", "--draws", "0")
    assert "this model has no score 'energi'" in complaint(capsys, "lorentz", "--scores", "energi")
    assert "no score given; this model has energy" in complaint(capsys, "lorentz", "--scores", ",")


def test_a_run_on_a_graph_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "disease_tree/lp", "--epochs", "1", "--out", "graph"]) == 0
    capsys.readouterr()
    assert "graph holds a run on the graph disease_tree/lp; this needs one on images" in complaint(
        capsys, "graph", "--ood", "grains.npz"
    )


def test_changed_images_and_models_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    images = write_coloured(tmp_path / "own.npz")
    assert cli.main(["train", str(images), *QUICK, *CPU, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    call = [str(tmp_path / "run"), "--ood", "grains.npz"]
    write_coloured(images, test_labels=np.zeros(30, np.int64))
    from lresnet.runs.tasks import _images

    _images.cache_clear()
    assert "own.npz has other test images or test labels than when the run in" in complaint(capsys, *call)
    write_coloured(images, classes=np.array(["red", "green", "yellow"]))
    _images.cache_clear()
    assert "own.npz has other classes than when the run in" in complaint(capsys, *call)
    LorentzResNet(20, num_classes=4).save_pretrained(tmp_path / "run" / "model")
    forget_checksums(tmp_path / "run")
    assert "the model has 4 classes, the run has 3" in complaint(capsys, *call)
    images.unlink()
    _images.cache_clear()
    LorentzResNet(20, num_classes=3).save_pretrained(tmp_path / "run" / "model")
    assert "own.npz and are no longer there" in complaint(capsys, *call)
