"""The demo's table and picture."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from rich.console import Console

from lresnet.cli.demo import demo_table
from lresnet.plots.demo import _arranged, draw_embedding
from lresnet.plots.picture import require_writable_picture
from lresnet.runs.demo import TreeEmbedding
from lresnet.runs.record import RunRecord


def record(task: str, method: str, seed: int, value: float) -> RunRecord:
    parts = {"task": {"name": task}, "model": {"residual": method}, "train": {"seed": seed}}
    return RunRecord(**parts, command="", versions={}, hardware="", metrics={"roc_auc": value})


def test_the_table_has_mean_and_sample_deviation_and_marks_the_best() -> None:
    records = [record("disease_tree/lp", "none", seed, 90.0 + seed) for seed in range(3)]
    records += [record("disease_tree/lp", "lorentz", seed, 95.0) for seed in range(3)]
    records += [
        record("disease_tree/nc", m, seed, 80.0 - (m == "lorentz")) for m in ("none", "lorentz") for seed in range(3)
    ]
    console = Console(width=80, force_terminal=True, color_system="standard")
    with console.capture() as capture:
        console.print(demo_table(records))
    rows = [line for line in capture.get().splitlines() if "±" in line]
    none, lorentz = (next(row for row in rows if name in row) for name in ("none", "lorentz"))
    assert "91.0 ± 1.0" in none
    assert "95.0 ± 0.0" in lorentz
    bold = "\x1b[1m"
    assert bold not in none.split("│")[2]
    assert bold in lorentz.split("│")[2]
    assert bold in none.split("│")[3]
    assert "over 3 seeds" in " ".join(capture.get().split())


def tree() -> TreeEmbedding:
    """Seven nodes in one quarter of the disk, the root at its side; the last edge is held out."""
    angles = np.linspace(0.1, 1.4, 7)
    points = np.linspace(0.3, 0.95, 7)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    edges = np.array([[0, 0, 1, 1, 2, 2], [1, 2, 3, 4, 5, 6]])
    return TreeEmbedding(points, edges, 5, np.array([0, 1, 1, 2, 2, 2, 2]), np.array([1, 1, 0, 1, 0, 0, 0]), 97.5)


def test_the_root_is_at_the_centre_and_the_widest_gap_at_the_bottom() -> None:
    points = _arranged(tree())
    np.testing.assert_allclose(points[0], 0, atol=1e-12)
    angles = np.arctan2(points[1:, 1], points[1:, 0])
    below = np.angle(np.exp(1j * (angles + np.pi / 2)))
    assert below[below > 0].min() == pytest.approx(-below[below < 0].max())


def test_the_picture_shows_nodes_and_both_kinds_of_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: object, **options: object) -> None:
        drawn.append(figure)
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    assert draw_embedding(tmp_path / "a.png", tree()) == tmp_path / "a.png"
    disk, legend = drawn[0].axes
    seen, hidden = (c for c in disk.collections if isinstance(c, LineCollection))
    assert (len(seen.get_segments()), len(hidden.get_segments())) == (5, 1)
    assert hidden.get_linestyles() != seen.get_linestyles()  # they differ without colour too
    points = np.concatenate([c.get_offsets() for c in disk.collections if isinstance(c, PathCollection)])
    assert {tuple(p) for p in np.round(points, 9)} == {tuple(p) for p in np.round(_arranged(tree()), 9)}
    words = " ".join(text.get_text() for text in legend.texts)
    assert "97.5 %" in words
    assert "training edges: 5" in words
    assert "held-out edges: 1" in words
    renderer = FigureCanvasAgg(drawn[0]).get_renderer()
    assert max(text.get_window_extent(renderer).x1 for text in legend.texts) <= drawn[0].bbox.x1  # nothing is cut off
    assert draw_embedding(tmp_path / "b.png", tree()).read_bytes() == (tmp_path / "a.png").read_bytes()


def test_an_unwritable_picture_is_an_error_before_the_work(tmp_path: Path) -> None:
    require_writable_picture(tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a.svg").write_text("old")
    require_writable_picture(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == "old"
    with pytest.raises(ValueError, match="must end with"):
        require_writable_picture(tmp_path / "a.gif")
    with pytest.raises(FileNotFoundError):
        require_writable_picture(tmp_path / "no" / "a.png")
