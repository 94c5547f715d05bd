"""The picture of a table of the paper: all methods, with the paper's values."""

import itertools
import json
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from lresnet.plots.picture import method_style
from lresnet_paper.__main__ import main
from lresnet_paper.pages.comparison_picture import comparison_picture
from lresnet_paper.results import aggregate, read_runs

RESULTS = Path(__file__).parents[2] / "results"


def record(method: str, seed: int, value: float, cell: str = "disease/lp") -> dict[str, object]:
    base = {"table": "gnn", "cell": cell, "method": method, "protocol": "legacy", "seed": seed}
    return base | {"stage": "final", "value": value, "validation": value}


def test_one_panel_per_cell_with_our_bars_and_the_papers() -> None:
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
    ours, papers, baseline = (container.lines for container in first.containers)
    assert ours[0].get_xdata()[0] == 98.0
    low, high = ours[2][0].get_segments()[0][:, 0]
    assert (low, high) == pytest.approx((98.0 - 2**0.5, 98.0 + 2**0.5))
    assert papers[0].get_xdata()[0] == 97.3
    assert papers[0].get_markerfacecolor() == "none"
    assert to_hex(ours[0].get_color()).upper() == method_style("lorentz")[0]
    assert baseline[0].get_marker() != ours[0].get_marker()  # distinguishable in black and white
    with pytest.raises(ValueError, match="no final runs to compare"):
        comparison_picture([])


def test_the_caption_explains_the_marks_of_the_picture() -> None:
    own = [record(method, 0, 97.0) | {"table": "train", "cell": "mine"} for method in ("lorentz", "none")]
    alone = comparison_picture(aggregate(own))
    assert alone.get_supxlabel() == "test, percent"
    assert [one.lines[0].get_ydata()[0] for one in alone.axes[0].containers] == [0, 1]  # level with their names
    again = [one | {"seed": 1} for one in own]
    assert comparison_picture(aggregate(own + again)).get_supxlabel() == "test, percent; bars: one deviation"
    caption = "test, percent: filled ours, hollow the paper's"
    assert comparison_picture(aggregate([record("lorentz", 0, 97.0)])).get_supxlabel().startswith(caption)


@pytest.mark.slow
def test_the_panels_of_runtimes_are_legible() -> None:
    """Numbers of an axis do not overlap, and no title is wider than its panel."""
    times = [one for one in aggregate(read_runs(RESULTS)) if one.table == "runtime"]
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


def test_a_method_that_diverged_keeps_its_row() -> None:
    diverged = record("tangent", 0, 0.0) | {"value": None, "validation": None}
    (axes,) = comparison_picture(aggregate([record("lorentz", 0, 97.0), diverged])).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["tangent", "lorentz"]
    assert [text.get_text() for text in axes.texts] == ["diverged"]


@pytest.mark.slow
def test_the_comparison_of_committed_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "c.svg"
    assert main(["pages", "comparison", str(RESULTS), "--out", str(out)]) == 0
    assert out.read_text().startswith("<?xml")
    assert main(["pages", "comparison", str(RESULTS), "--table", "gn", "--out", str(out)]) == 2
    assert "did you mean 'gnn'" in capsys.readouterr().err
    assert main(["pages", "comparison", str(tmp_path), "--out", str(out)]) == 2
    assert "has no final runs to compare" in capsys.readouterr().err


def test_the_only_table_is_compared_without_being_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, out = tmp_path / "own", tmp_path / "c.svg"
    own.mkdir()
    (own / "curvature.jsonl").write_text(json.dumps(record("lorentz", 0, 97.0) | {"table": "curvature"}) + "\n")
    assert main(["pages", "comparison", str(own), "--out", str(out)]) == 0
    assert "The picture: " in capsys.readouterr().out
