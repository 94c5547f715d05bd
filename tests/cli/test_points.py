"""The command lines `lresnet embed` and `lresnet neighbours`: output, files and error messages."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lresnet import cli
from lresnet.runs.embedding import Embedding, embed_run
from lresnet.runs.neighbours import nearest
from lresnet.runs.presets import run_config
from tests.coloured import CLASSES, coloured_data, write_coloured
from tests.runs.folders import opened, trained, unverified

GRAPH = {"epochs": 2, "hidden": 4, "eval_every": 1, "lr": 0.05, "curvature": -0.5}
IMAGES = {"model": "lorentz_resnet20", "epochs": 1, "batch_size": 20, "cutout": 0}
ODD_NAME = 'a, "b"\n<b>🐟.png'


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs ``tree``, ``baseline`` and ``images``, and with ``photos``: odd name, damaged file."""
    folder = tmp_path_factory.mktemp("trained")
    trained(folder / "tree", run_config("disease_tree/nc", settings=GRAPH))
    trained(folder / "baseline", run_config("disease_tree/nc", "euclidean", settings=GRAPH))
    arrays = write_coloured(folder / "coloured.npz")
    trained(folder / "images", run_config(str(arrays), settings=IMAGES))
    (folder / "photos").mkdir()
    for index, name in enumerate(["red.png", "green.png", ODD_NAME]):
        Image.fromarray(coloured_data().test.images[index].numpy()).save(folder / "photos" / name, format="png")
    (folder / "photos" / "torn.jpg").write_bytes(b"torn")
    (folder / "empty").mkdir()
    shutil.copytree(folder / "tree", folder / "unfinished")
    record = json.loads((folder / "tree" / "run.json").read_text())
    (folder / "unfinished" / "run.json").write_text(unverified(record | {"best_epoch": None}))
    return folder


@pytest.fixture
def here(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(runs)
    monkeypatch.setenv("COLUMNS", "120")
    return runs


def printed(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert cli.main([*args, "--device", "cpu"]) == code
    return capsys.readouterr().out


def test_embed_writes_into_the_run_s_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "embed", "tree").splitlines()
    found = embed_run(opened(Path("tree")))
    radii = found.radii()
    assert lines == [
        "1,000 nodes of disease_tree/nc: 4 dimensions, curvature -0.5; "
        f"distance to the origin: median {radii.quantile(0.5):.4g}, maximum {radii.max():.4g}",
        "space coordinates, float32 [1000, 4], are written to tree/points.npz",
    ]
    with np.load("tree/points.npz", allow_pickle=False) as file:
        assert np.array_equal(file["points"], found.points.numpy())
        assert (file["labels"][0], file["names"][17], file["classes"].tolist()) == (1, "17", ["0", "1"])


def test_embed_in_other_coordinates(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "tree.csv"
    out = printed(capsys, "embed", "tree", "--coordinates", "lorentz", "--out", str(target))
    assert f"lorentz coordinates, float32 [1000, 5], are written to {target}\n" in out
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0].keys() == {"name", "label", "t", "x1", "x2", "x3", "x4"}
    time, *space = (float(rows[3][axis]) for axis in ("t", "x1", "x2", "x3", "x4"))
    assert time**2 - sum(x**2 for x in space) == pytest.approx(2, rel=1e-3)  # -1/K


def test_embed_the_euclidean_baseline(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "embed", "baseline", "--out", str(tmp_path / "baseline.npy"))
    assert out.startswith("1,000 nodes of disease_tree/nc: 4 dimensions, flat space; distance to the origin: ")
    assert np.load(tmp_path / "baseline.npy", allow_pickle=False).shape == (1000, 4)


def test_all_commands_agree_on_the_space_of_a_baseline_with_prototypes(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its logits are hyperbolic distances, so its points are hyperbolic, although its residual is Euclidean."""
    run, config = str(tmp_path / "run"), IMAGES | {"head": "prototypes", "curvature": -0.1}
    trained(Path(run), run_config(str(here / "coloured.npz"), "euclidean", settings=config))
    ball = tmp_path / "ball.npz"
    assert "curvature -0.1" in printed(capsys, "embed", run, "--coordinates", "poincare", "--out", str(ball))
    with np.load(ball) as file:
        assert float(file["curvature"]) == pytest.approx(-0.1)
    assert "curvature -0.1" in printed(capsys, "neighbours", run, "0")
    assert "geodesic distance" in " ".join(printed(capsys, "delta", run).split())
    scores = printed(capsys, "ood", run, "--ood", "photos", "--scores", "all")
    assert "origin_distance" in scores
    assert "prototype_distance" in scores


def test_embed_counts_the_points_that_float32_rounds_to_the_boundary(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = embed_run(opened(Path("tree")))
    far = Embedding("far", "node", 1e9 * torch.eye(2, 4), tree.manifold, ("a", "b"))
    monkeypatch.setattr("lresnet.runs.embedding.embed_run", lambda *args, **kwargs: far)
    assert cli.main(["embed", "tree", "--coordinates", "klein", "--out", str(tmp_path / "far.npz")]) == 0
    assert "2 of 2 points are so far out that float32 rounds them to the boundary" in capsys.readouterr().err


def test_embed_images(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "embed", "images").startswith(f"30 test images of {here / 'coloured.npz'}: 32 dimensions")
    target = tmp_path / "photos.csv"
    assert cli.main(["embed", "images", "--images", "photos", "--out", str(target), "-v", "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("3 images: 32 dimensions, curvature -0.05; ")
    notes = captured.err.splitlines()
    assert notes[0] == "1 of 4 files could not be read as images"
    assert notes[1].startswith("  photos/torn.jpg: cannot identify")
    assert len(notes) == 2
    with target.open(newline="", encoding="utf-8") as file:
        assert [row["name"] for row in csv.DictReader(file)] == [
            f"photos/{name}" for name in sorted([ODD_NAME, "green.png", "red.png"])
        ]


def test_without_a_readable_image_the_exit_code_is_1_and_no_file_is_written(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = ["--images", "photos/torn.jpg"]
    assert printed(capsys, "embed", "images", "--out", str(tmp_path / "x.npz"), *torn, code=1) == ""
    assert list(tmp_path.iterdir()) == []
    assert "among 0 images" in printed(capsys, "neighbours", "images", "0", *torn, code=1)


def test_neighbours_of_a_node(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "near.json"
    out = printed(capsys, "neighbours", "tree", "17", "--count", "5", "--json", str(target)).splitlines()
    expected = nearest(embed_run(opened(Path("tree"))), 17, 5)
    assert out[0].startswith("node 17 (class ")
    assert out[0].endswith(") among 1,000 nodes of disease_tree/nc, curvature -0.5")
    rows = [line.split() for line in out if line.strip() and line.split()[0].isdecimal()]
    assert [row[:2] for row in rows] == [[str(rank), one.name] for rank, one in enumerate(expected, 1)]
    assert all("edge" in row or "hops" in row for row in rows)
    written = json.loads(target.read_text())
    assert written["item"]["name"] == "17"
    assert written["curvature"] == -0.5
    assert [one["distance"] for one in written["neighbours"]] == [one.distance for one in expected]
    assert [(one["edge"], one["hops"]) for one in written["neighbours"]] == [(o.hops == 1, o.hops) for o in expected]
    assert json.loads(printed(capsys, "neighbours", "tree", "17", "--count", "5", "--json", "-")) == written


def test_neighbours_in_the_euclidean_baseline(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "neighbours", "baseline", "3", "--json", "-"))
    points = embed_run(opened(Path("baseline"))).points.double()
    distances = torch.cdist(points[3:4], points)[0]
    assert [one["number"] for one in found["neighbours"]] == distances.argsort()[1:11].tolist()
    assert found["curvature"] == 0


def test_neighbours_among_test_images(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "neighbours", "images", "4", "--count", "50")
    assert f"test image 4 (class {CLASSES[1]}) among 30 test images of {here / 'coloured.npz'}" in out
    rows = [line.split() for line in out.splitlines() if line.split()[1:] and line.split()[0].isdecimal()]
    assert sorted(int(row[1]) for row in rows) == [i for i in range(30) if i != 4]
    assert all(row[2] == CLASSES[int(row[1]) % 3] for row in rows)
    assert "in the graph" not in out
    first = json.loads(printed(capsys, "neighbours", "images", "photos/red.png", "--json", "-"))["neighbours"][0]
    assert (first["name"], first["class"]) == ("0", "red")  # the same pixels
    assert first["distance"] < 1e-5


def test_neighbours_among_files_with_odd_names(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["neighbours", "images", "photos/red.png", "--images", "photos", "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "image photos/red.png among 3 images, curvature -0.05"
    named = [line.split(maxsplit=1)[1] for line in lines if "photos/" in line and "among" not in line]
    assert len(named) == 2  # not itself
    assert any(name.startswith('photos/a, "b"\\n<b>🐟.png ') for name in named)
    assert captured.err == "1 of 4 files could not be read as images\n"
    found = json.loads(printed(capsys, "neighbours", "images", "2", "--images", "photos", "--json", "-"))
    assert found["item"] == {"kind": "test image", "name": "2", "class": "blue"}
    assert found["neighbours"][0]["name"] == f"photos/{ODD_NAME}"  # the same pixels
    assert found["skipped"][0]["file"] == "photos/torn.jpg"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["embed", "empty"], "empty holds no run"),
        (["embed", "gone"], "gone does not exist"),
        (["embed", "unfinished"], "the run in unfinished has not finished"),
        (["embed", "tree", "--out", "points.pkl"], "must end with one of .npz, .csv, .npy, got 'points.pkl'"),
        (["embed", "tree", "--out", "gone/points.npz"], "the folder gone does not exist; create it"),
        (["embed", "baseline", "--coordinates", "poincare"], "vectors; they have space coordinates, not poincare"),
        (["embed", "tree", "--images", "photos"], "tree holds a run on the graph disease_tree/nc; images are for"),
        (["embed", "images", "--images", "empty"], "empty holds no images; image files end with"),
        (["embed", "images", "--images", "gone.png"], "no file gone.png"),
        (["embed", "images", "--images"], "--images names no image and no folder"),
        (["neighbours", "empty", "0"], "empty holds no run"),
        (["neighbours", "unfinished", "0"], "the run in unfinished has not finished"),
        (["neighbours", "tree", "1000"], "there is no node 1000; disease_tree/nc has nodes 0 to 999"),
        (["neighbours", "tree", "-1"], "there is no node -1"),
        (["neighbours", "tree", "17a"], "disease_tree/nc has no node '17a'; did you mean '17'?"),
        (["neighbours", "tree", "<b>\n"], "disease_tree/nc has no node '<b>\\n'; its nodes are numbered 0 to 999"),
        (["neighbours", "tree", "0", "--count", "0"], "count must be at least 1, got 0"),
        (["neighbours", "tree", "0", "--images", "photos"], "images are for runs on images"),
        (["neighbours", "images", "0", "--images"], "--images names no image and no folder"),
        (["neighbours", "images", "30"], "there is no test image 30"),
        (["neighbours", "images", "gone.png"], "no file gone.png; name one image file, or a test image by its number"),
        (["neighbours", "images", "photos"], "photos is a folder; name one image file"),
        (["neighbours", "images", "photos/torn.jpg"], "photos/torn.jpg cannot be read as an image: cannot identify"),
        (["neighbours", "images", "0", "--images", "empty"], "empty holds no images"),
        (["neighbours", "images", "photos/red.png", "--images", "photos/red.png"], "is the only image to search among"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_calls_are_one_line(args: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path for path in here.rglob("*") if path.name != "points.npz")
    assert cli.main(args) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("lresnet: error: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err
    assert captured.out == ""
    assert sorted(path for path in here.rglob("*") if path.name != "points.npz") == before
