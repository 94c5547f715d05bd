"""The pictures of `lresnet plot`: embeddings, training curves and histograms of scores."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from lresnet import cli
from lresnet.plots.curves import CURVE_FILE, draw_curves, read_curve
from lresnet.plots.embedding import centred_at, draw_disk_embedding
from lresnet.plots.picture import method_style
from lresnet.plots.poincare_disk import CLASS_COLOURS, DiskEmbedding, move_to_centre
from lresnet.runs import run_config
from lresnet.train.results import append_result
from tests.coloured import write_coloured
from tests.runs.folders import forget_checksums, trained, unverified

TRIPLE = DiskEmbedding(
    "three",
    np.array([[0.1, 0.0], [0.5, 0.2], [-0.3, 0.6]]),
    np.array([[0, 0], [1, 2]]),
    np.array([0, 1, 1]),
    ("a", "b"),
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its curve."""
    folder = tmp_path_factory.mktemp("runs") / "tree"
    config = run_config("disease_tree/lp", settings={"epochs": 20, "eval_every": 5, "hidden": 3})

    def record(epoch: int, best: float | None) -> None:
        append_result(folder / CURVE_FILE, {"epoch": epoch, "validation": best})

    trained(folder, config, on_epoch=record)
    return folder


def test_a_node_can_be_centred_and_distances_stay() -> None:
    moved = centred_at(TRIPLE, 1)
    np.testing.assert_allclose(moved.points, move_to_centre(TRIPLE.points, TRIPLE.points[1]))
    np.testing.assert_allclose(moved.points[1], 0, atol=1e-16)
    with pytest.raises(ValueError, match="there is no node 3; the nodes are 0 to 2"):
        centred_at(TRIPLE, 3)


@pytest.mark.parametrize("labels", [None, np.array([1, 1, 1])])
def test_an_embedding_without_classes_or_with_one_is_drawn(tmp_path: Path, labels: np.ndarray | None) -> None:
    picture = DiskEmbedding("t", TRIPLE.points, TRIPLE.edges, labels, () if labels is None else ("a", "b"))
    path = draw_disk_embedding(tmp_path / "p.svg", picture, centre=0)
    colour = CLASS_COLOURS[0 if labels is None else 1].lower()
    assert colour in path.read_text()


def test_the_picture_of_a_run(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "e.svg"
    assert cli.main(["plot", "embedding", str(tree), "--centre", "0", "--out", str(out), "--device", "cpu"]) == 0
    assert "hyperbolic PCA" in capsys.readouterr().out
    text = out.read_text()
    for colour in CLASS_COLOURS[:2]:
        assert text.count(colour.lower()) > 300  # two classes of 1,000 nodes
    assert cli.main(["plot", "embedding", str(tree), "--centre", "1000", "--out", str(out)]) == 2
    assert "there is no node 1000" in capsys.readouterr().err


def test_a_euclidean_baseline_on_a_graph_has_no_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "twin")
    options = ["--method", "euclidean", "--epochs", "2", "--device", "cpu", "--out", folder]
    assert cli.main(["train", "disease_tree/lp", *options]) == 0
    capsys.readouterr()
    assert cli.main(["plot", "embedding", folder, "--out", str(tmp_path / "p.png")]) == 2
    assert "holds a Euclidean baseline, which has no hyperbolic embedding" in capsys.readouterr().err


def test_a_curve_has_every_validation_pass_and_the_later_of_two_lines_counts(tree: Path, tmp_path: Path) -> None:
    curve = read_curve(tree)
    assert curve.epochs == (5, 10, 15, 20)
    assert curve.name == "disease_tree/lp, lorentz, seed 0"
    assert max(curve.validation) == pytest.approx(json.loads((tree / "run.json").read_text())["validation"], abs=1e-4)
    (tmp_path / "run.json").write_text((tree / "run.json").read_text())
    forget_checksums(tmp_path)
    for epoch, value in ((5, 50.0), (10, 60.0), (10, 61.0), (15, None)):
        append_result(tmp_path / CURVE_FILE, {"epoch": epoch, "validation": value})
    assert read_curve(tmp_path).validation == (50.0, 61.0)
    for odd in ({"epoch": 20}, {"epoch": [25], "validation": 1.0}, {"epoch": 30, "validation": "high"}, {"loss": 1.0}):
        append_result(tmp_path / CURVE_FILE, odd)
    assert read_curve(tmp_path).validation == (50.0, 61.0)


@pytest.mark.parametrize("change", [{"task": None}, {"model": ["lorentz"]}, {"format": 3}, {"train": {"seed": "x"}}])
def test_a_damaged_record_is_reported_in_one_line(
    change: dict[str, object], tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tree, tmp_path / "odd")
    record = json.loads((tree / "run.json").read_text()) | change
    (tmp_path / "odd" / "run.json").write_text(unverified(record))
    for verb in ("curves", "embedding"):
        assert cli.main(["plot", verb, str(tmp_path / "odd"), "--out", str(tmp_path / "p.png")]) == 2
        err = capsys.readouterr().err
        assert "run.json is not what" in err
        assert err.count("\n") == 1


def test_curves_are_drawn_in_the_colours_of_their_methods(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curve = read_curve(tree)
    path = draw_curves(tmp_path / "c.svg", [curve, curve, curve._replace(method="none", best_epoch=7)])
    text = path.read_text()
    assert text.count(method_style("lorentz")[0].lower()) >= 4  # two lines and two dots
    assert "stroke-dasharray" in text  # the second run of a method has another line style
    assert method_style("none")[0].lower() in text
    assert cli.main(["plot", "curves", str(tree), "--out", str(tmp_path / "c.png")]) == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "run.json").write_text((tree / "run.json").read_text())
    capsys.readouterr()
    assert cli.main(["plot", "curves", str(tmp_path)]) == 2
    assert "has no curve: curve.jsonl is missing or empty" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no curve to draw"):
        draw_curves(tmp_path / "none.png", [])


def test_histograms_of_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, folder, out = write_coloured(tmp_path / "coloured.npz"), tmp_path / "run", tmp_path / "h.svg"
    quick = ["--model", "lorentz_resnet20", "--epochs", "1", "--batch-size", "9", "--pad", "1", "--cutout", "0"]
    assert cli.main(["train", str(images), *quick, "--device", "cpu", "--out", str(folder)]) == 0
    call = ["plot", "ood", str(folder), "--out", str(out), "--device", "cpu", "--ood"]
    assert cli.main([*call, "noise_uniform", "--scores", "energy", "softmax"]) == 0
    assert f"The picture: {out}" in capsys.readouterr().out.replace("\n", "")
    text = out.read_text()
    assert text.count("AUROC") == 2
    assert "largest probability" in text
    for sets, words in (("mars", "mars"), (",", "no OOD set given")):
        assert cli.main([*call, sets]) == 2
        assert words in capsys.readouterr().err
