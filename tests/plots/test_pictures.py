"""The pictures of `lresnet plot`: embeddings, training curves, comparison of methods."""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from lresnet import cli
from lresnet.plots.curves import CURVE_FILE, draw_curves, read_curve
from lresnet.plots.disk_embedding import DiskEmbedding
from lresnet.plots.embedding import centred_at, draw_disk_embedding
from lresnet.plots.palette import CLASS_COLOURS, method_look
from lresnet.plots.poincare_disk import move_to_centre
from lresnet.runs.folder import train_in_folder
from lresnet.runs.single import single_run
from lresnet.train.results import append_result
from lresnet_paper.pages.comparison_picture import comparison_picture
from lresnet_paper.results import aggregate, read_runs
from tests.coloured import write_coloured

RESULTS = Path(__file__).parents[2] / "results"
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
    run = single_run("disease_tree/lp", "lorentz", 0, None, {"epochs": 20, "eval_every": 5, "hidden": 3})

    def record(epoch: int, best: float | None) -> None:
        append_result(folder / CURVE_FILE, {"epoch": epoch, "validation": best})

    train_in_folder(run, folder, command="test", on_epoch=record)
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
        assert text.count(colour.lower()) > 300  # a class each, of 1,000 nodes
    assert cli.main(["plot", "embedding", str(tree), "--centre", "1000", "--out", str(out)]) == 2
    assert "there is no node 1000" in capsys.readouterr().err


def test_a_euclidean_twin_and_images_have_no_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "twin")
    options = ["--method", "euclidean", "--epochs", "2", "--device", "cpu", "--out", folder]
    assert cli.main(["train", "disease_tree/lp", *options]) == 0
    capsys.readouterr()
    assert cli.main(["plot", "embedding", folder, "--out", str(tmp_path / "p.png")]) == 2
    assert "holds a Euclidean twin, whose space is flat" in capsys.readouterr().err
    record = json.loads((tmp_path / "twin" / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(record | {"cell": "cifar10"}))
    assert cli.main(["plot", "embedding", str(tmp_path), "--out", str(tmp_path / "p.png")]) == 2
    assert "holds a run on cifar10, which is no graph" in capsys.readouterr().err


def test_a_curve_has_every_look_and_the_later_of_two_counts(tree: Path, tmp_path: Path) -> None:
    curve = read_curve(tree)
    assert curve.epochs == (5, 10, 15, 20)
    assert curve.name == "disease_tree/lp, lorentz, seed 0"
    assert max(curve.validation) == pytest.approx(json.loads((tree / "run.json").read_text())["validation"], abs=1e-4)
    assert list(curve.validation) == sorted(curve.validation)  # the best so far
    (tmp_path / "run.json").write_text((tree / "run.json").read_text())
    for epoch, value in ((5, 50.0), (10, 60.0), (10, 61.0), (15, None)):
        append_result(tmp_path / CURVE_FILE, {"epoch": epoch, "validation": value})
    assert read_curve(tmp_path).validation == (50.0, 61.0)
    for odd in ({"epoch": 20}, {"epoch": [25], "validation": 1.0}, {"epoch": 30, "validation": "high"}, {"loss": 1.0}):
        append_result(tmp_path / CURVE_FILE, odd)
    assert read_curve(tmp_path).validation == (50.0, 61.0)


@pytest.mark.parametrize("change", [{"cell": None}, {"method": ["lorentz"]}, {"protocol": 3}, {"seed": "x"}])
def test_a_record_of_another_kind_is_said_in_one_line(
    change: dict[str, object], tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tree, tmp_path / "odd")
    record = json.loads((tree / "run.json").read_text()) | change
    (tmp_path / "odd" / "run.json").write_text(json.dumps(record))
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
    assert text.count(method_look("lorentz")[0].lower()) >= 4  # two lines and two dots
    assert "stroke-dasharray" in text  # the second of one method is told apart without colour
    assert method_look("none")[0].lower() in text
    assert cli.main(["plot", "curves", str(tree), "--out", str(tmp_path / "c.png")]) == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "run.json").write_text((tree / "run.json").read_text())
    capsys.readouterr()
    assert cli.main(["plot", "curves", str(tmp_path)]) == 2
    assert "has no curve: curve.jsonl is missing or empty" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no curve to draw"):
        draw_curves(tmp_path / "none.png", [])


def record(method: str, seed: int, value: float, cell: str = "disease/lp") -> dict[str, object]:
    base = {"table": "gnn", "cell": cell, "method": method, "protocol": "legacy", "seed": seed}
    return base | {"stage": "final", "value": value, "validation": value}


def test_a_comparison_has_a_panel_a_cell_with_our_bars_and_the_papers() -> None:
    runs = [record("lorentz", 0, 97.0), record("lorentz", 1, 99.0), record("euclidean", 0, 70.0)]
    runs += [record("space", 0, 90.0, cell) for cell in ("disease/nc", "cora/nc", "mars/nc")]
    picture = comparison_picture(aggregate(runs))
    axes = [ax for ax in picture.axes if ax.axison]
    assert [ax.get_title(loc="left") for ax in axes] == [
        "disease/lp, legacy",
        "disease/nc, legacy",
        "cora/nc, legacy",
        "mars/nc, legacy",
    ]
    first = axes[0]
    assert [label.get_text() for label in first.get_yticklabels()] == ["lorentz", "euclidean"]
    ours, papers, twin = (container.lines for container in first.containers)
    assert ours[0].get_xdata()[0] == 98.0
    low, high = ours[2][0].get_segments()[0][:, 0]
    assert (low, high) == pytest.approx((98.0 - 2**0.5, 98.0 + 2**0.5))
    assert papers[0].get_xdata()[0] == 97.3
    assert papers[0].get_markerfacecolor() == "none"
    assert to_hex(ours[0].get_color()).upper() == method_look("lorentz")[0]
    assert twin[0].get_marker() != ours[0].get_marker()  # told apart in black and white
    with pytest.raises(ValueError, match="no final runs to compare"):
        comparison_picture([])


def test_the_comparison_explains_the_marks_that_it_has() -> None:
    own = [record(method, 0, 97.0) | {"table": "train", "cell": "mine"} for method in ("lorentz", "none")]
    alone = comparison_picture(aggregate(own))
    assert alone.get_supxlabel() == "test, percent"
    assert [one.lines[0].get_ydata()[0] for one in alone.axes[0].containers] == [0, 1]  # level with their names
    again = [one | {"seed": 1} for one in own]
    assert comparison_picture(aggregate(own + again)).get_supxlabel() == "test, percent; bars: one deviation"
    words = "test, percent: filled ours, hollow the paper's"
    assert comparison_picture(aggregate([record("lorentz", 0, 97.0)])).get_supxlabel().startswith(words)


def test_the_panels_of_runtimes_can_be_read() -> None:
    """Numbers of an axis do not overlap, and no title is wider than its panel."""
    times = [figure for figure in aggregate(read_runs(RESULTS)) if figure.table == "runtime"]
    picture = comparison_picture(times)
    picture.draw_without_rendering()
    for axes in picture.axes:
        ends = [
            (box.x0, box.x1)
            for label in axes.get_xticklabels(which="both")
            if label.get_text() and (box := label.get_window_extent()).width
        ]
        ends = sorted(end for end in ends if axes.bbox.x0 - 1 <= sum(end) / 2 <= axes.bbox.x1 + 1)
        assert all(left[1] <= right[0] for left, right in itertools.pairwise(ends)), axes.get_title(loc="left")
        assert not axes.axison or len(ends) >= 2
        assert axes._left_title.get_window_extent().x1 <= picture.bbox.x1


def test_a_method_that_diverged_keeps_its_row_in_the_comparison() -> None:
    lost = record("tangent", 0, 0.0) | {"value": None, "validation": None}
    (axes,) = comparison_picture(aggregate([record("lorentz", 0, 97.0), lost])).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["tangent", "lorentz"]
    assert [text.get_text() for text in axes.texts] == ["diverged"]


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
    for sets, words in (("mars", "mars"), (",", "name a set at least")):
        assert cli.main([*call, sets]) == 2
        assert words in capsys.readouterr().err


def test_the_comparison_of_committed_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c.svg"
    assert cli.main(["plot", "comparison", str(RESULTS), "--out", str(out)]) == 0
    assert out.read_text().startswith("<?xml")
    assert cli.main(["plot", "comparison", str(RESULTS), "--table", "gn", "--out", str(out)]) == 2
    assert "did you mean 'gnn'" in capsys.readouterr().err
    assert cli.main(["plot", "comparison", str(tmp_path), "--out", str(out)]) == 2
    assert "holds no final runs to compare" in capsys.readouterr().err


def test_the_only_table_is_compared_without_being_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, out = tmp_path / "own", tmp_path / "c.svg"
    own.mkdir()
    (own / "curvature.jsonl").write_text(json.dumps(record("lorentz", 0, 97.0) | {"table": "curvature"}) + "\n")
    assert cli.main(["plot", "comparison", str(own), "--out", str(out)]) == 0
    assert "The picture: " in capsys.readouterr().out
