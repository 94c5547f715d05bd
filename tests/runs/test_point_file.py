"""Points in files: every coordinate leads back, every name survives, nothing is a pickle."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
import torch

from lresnet.geometry import Lorentz
from lresnet.runs.embedding import Embedding
from lresnet.runs.point_file import Coordinates, coordinates_of, on_the_boundary, require_target, write_points

HOSTILE = (
    "<script>alert(1)</script>",
    "two\nlines",
    'a "quoted", name',
    "carriage\rreturn",
    "fish 🐟, π",
    "=1+1;\t'x'",
    " ",
)
K = -0.5


def hostile(manifold: Lorentz | None = None) -> Embedding:
    torch.manual_seed(0)
    labels = torch.arange(len(HOSTILE)) % 2
    return Embedding("hostile", "node", torch.randn(len(HOSTILE), 3), manifold, HOSTILE, labels, ('no, "no"', "yes\n"))


@pytest.mark.parametrize("coordinates", ["space", "lorentz", "poincare", "klein"])
def test_every_coordinate_leads_back(coordinates: Coordinates, tmp_path: Path) -> None:
    M = Lorentz(K)
    found = hostile(M)
    written = write_points(tmp_path / "points.npz", found, coordinates)
    with np.load(tmp_path / "points.npz", allow_pickle=False) as file:
        points, curvature = torch.from_numpy(file["points"]), float(file["curvature"])
        assert str(file["coordinates"]) == coordinates
    assert points.dtype == torch.float32
    assert np.array_equal(points, written)
    assert curvature == K
    back = {"space": lambda p: p, "lorentz": M.drop, "poincare": M.from_poincare, "klein": M.from_klein}
    torch.testing.assert_close(back[coordinates](points), found.points, rtol=1e-5, atol=1e-6)


def test_balls_have_the_radius_that_is_said() -> None:
    found = Embedding("far", "node", torch.tensor([[100.0, 0.0]]), Lorentz(-4.0), ("a",))
    assert coordinates_of(found, "poincare")[0, 0] == pytest.approx(0.5, abs=0.01)
    assert coordinates_of(found, "klein")[0, 0] == pytest.approx(1.0, abs=0.01)


def test_npz_holds_everything_and_no_pickle(tmp_path: Path) -> None:
    write_points(tmp_path / "points.NPZ", hostile(Lorentz(K)))
    with np.load(tmp_path / "points.NPZ", allow_pickle=False) as file:
        assert set(file.files) == {"points", "names", "labels", "classes", "curvature", "coordinates"}
        assert tuple(file["names"].tolist()) == HOSTILE
        assert file["labels"].tolist() == [0, 1, 0, 1, 0, 1, 0]
        assert file["classes"].tolist() == ['no, "no"', "yes\n"]
    assert [path.name for path in tmp_path.iterdir()] == ["points.NPZ"]


def test_vectors_without_labels(tmp_path: Path) -> None:
    found = Embedding("vectors", "image", torch.eye(2), None, ("a", "b"))
    write_points(tmp_path / "points.npz", found)
    with np.load(tmp_path / "points.npz", allow_pickle=False) as file:
        assert set(file.files) == {"points", "names", "curvature", "coordinates"}
        assert float(file["curvature"]) == 0
    write_points(tmp_path / "points.csv", found)
    assert (tmp_path / "points.csv").read_text().splitlines()[1] == "a,,1.0,0.0"
    with pytest.raises(
        ValueError, match="the points of a Euclidean network are vectors; they have space coordinates, not klein"
    ):
        write_points(tmp_path / "klein.npz", found, "klein")
    assert not (tmp_path / "klein.npz").exists()


@pytest.mark.parametrize(
    ("coordinates", "header"), [("space", ["x1", "x2", "x3"]), ("lorentz", ["t", "x1", "x2", "x3"])]
)
def test_csv_is_read_back_by_the_csv_module(coordinates: Coordinates, header: list[str], tmp_path: Path) -> None:
    found = hostile(Lorentz(K))
    points = write_points(tmp_path / "points.csv", found, coordinates)
    with (tmp_path / "points.csv").open(newline="", encoding="utf-8") as file:
        first, *rows = csv.reader(file)
    assert first == ["name", "label", *header]
    assert tuple(row[0] for row in rows) == HOSTILE
    assert [row[1] for row in rows] == [found.label(i) for i in range(len(HOSTILE))]
    assert np.array_equal(np.array([row[2:] for row in rows], dtype=np.float32), points)  # to the last bit


def test_names_of_files_that_are_no_text(tmp_path: Path) -> None:
    found = Embedding("odd", "image", torch.eye(1), None, ("caf\udce9.png",))  # as Python gives a Latin-1 name
    write_points(tmp_path / "points.csv", found)
    rows = list(csv.reader(io.StringIO((tmp_path / "points.csv").read_text(encoding="utf-8"))))
    assert rows[1][0] == "caf\\udce9.png"


def test_npy_holds_the_points(tmp_path: Path) -> None:
    found = hostile()
    write_points(tmp_path / "points.npy", found)
    assert np.array_equal(np.load(tmp_path / "points.npy", allow_pickle=False), found.points.numpy())


def test_points_that_float32_puts_on_the_boundary_are_counted() -> None:
    M = Lorentz(-1.0)
    radii = torch.tensor([1.0, 8.0, 12.0, 20.0], dtype=torch.float64)
    found = Embedding("far", "node", torch.sinh(radii)[:, None].float(), M, tuple("abcd"))
    assert [on_the_boundary(coordinates_of(found, c), M, c) for c in ("klein", "poincare", "lorentz")] == [2, 1, 0]


def test_wrong_targets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end with one of \.npz, \.csv, \.npy, got '.*points\.pkl'"):
        require_target(tmp_path / "points.pkl")
    with pytest.raises(FileNotFoundError, match=r"the folder .*gone does not exist; create it"):
        require_target(tmp_path / "gone" / "points.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(ValueError, match=r"folder\.npz is a folder; name a file"):
        require_target(tmp_path / "folder.npz")
    with pytest.raises(ValueError, match="coordinates must be space, lorentz, poincare, klein, got 'polar'"):
        coordinates_of(hostile(Lorentz(K)), "polar")  # type: ignore[arg-type]
