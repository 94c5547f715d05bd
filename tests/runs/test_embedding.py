"""The points of a run: those that its head sees, of all data, at distances that keep their digits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mpmath
import pytest
import torch
from PIL import Image

from lresnet.data.augmentation import normalise
from lresnet.geometry import Lorentz
from lresnet.models import from_pretrained
from lresnet.runs.embedding import Embedding, embed_files, embed_nodes, embed_run, embed_test_images
from lresnet.runs.presets import run_config
from tests.coloured import CLASSES, coloured_data, write_coloured
from tests.geometry import oracle
from tests.runs.folders import opened, trained, unverified

QUICK = {"epochs": 2, "hidden": 4, "eval_every": 1, "lr": 0.05, "curvature": -0.5}
IMAGES = {"model": "lorentz_resnet20", "epochs": 1, "batch_size": 20, "cutout": 0, "curvature": -0.1}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    path = write_coloured(folder / "coloured.npz")
    trained(folder / "run", run_config(str(path), settings=IMAGES))
    return folder / "run"


@pytest.mark.parametrize(
    ("model", "method", "own"),
    [
        ("lorentz_gcn", "lorentz", {"learn_curvature": True}),
        ("lorentz_gcn", "euclidean", {}),
        ("lorentz_sgformer", "tangent", {}),
    ],
    ids=["gcn", "euclidean", "sgformer"],
)
def test_nodes_are_where_the_head_sees_them(model: str, method: str, own: dict[str, Any], tmp_path: Path) -> None:
    task = trained(tmp_path, run_config("disease_tree/nc", method, settings={"model": model} | QUICK | own)).task
    found = embed_run(opened(tmp_path))
    network: Any = from_pretrained(tmp_path / "model").eval()
    with torch.no_grad():
        torch.testing.assert_close(network.head(found.points), network(task.x, task.edge_index))
    assert (found.source, found.kind, len(found), found.points.shape) == ("disease_tree/nc", "node", 1000, (1000, 4))
    assert found.names[:3] == ("0", "1", "2")
    assert found.label(0) == "1"  # the epidemic starts there
    assert found.edges is not None
    assert found.edges.shape == (2, 999)
    assert found.curvature == (0.0 if method == "euclidean" else float(network.manifold.K.detach()))


def test_nodes_of_a_link_prediction_are_those_of_its_training_graph(tmp_path: Path) -> None:
    task = trained(tmp_path, run_config("disease_tree/lp", settings=QUICK)).task
    with torch.no_grad():
        expected = from_pretrained(tmp_path / "model").eval()(task.x, task.edge_index)
    torch.testing.assert_close(embed_nodes(opened(tmp_path)).points, expected)


def test_names_and_classes_of_a_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lresnet.runs.tasks import _graph_task
    from tests.data import official

    official.write_wordnet(tmp_path)
    official.use(monkeypatch, tmp_path, "wordnet")
    _graph_task.cache_clear()
    trained(tmp_path / "run", run_config("wordnet/nc", settings=QUICK | {"epochs": 1}))
    found = embed_run(opened(tmp_path / "run"))
    assert found.names[:3] == ("word 0", "word 0", "word 1")
    assert found.label(6) == "adj"
    _graph_task.cache_clear()


def test_test_images_are_where_the_head_sees_them(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = from_pretrained(images / "model").eval()
    data = coloured_data()
    found = embed_run(opened(images))
    with torch.no_grad():
        expected = model(normalise(data.test.images, data.mean, data.std))
        torch.testing.assert_close(model.head(found.points), expected)
    assert (found.kind, len(found), found.names[-1]) == ("test image", 30, "29")
    assert [found.label(i) for i in range(3)] == list(CLASSES)
    assert found.curvature == -0.1
    monkeypatch.setattr("lresnet.runs.embedding._PIXELS", 1)  # an image at a time
    some = embed_test_images(opened(images), [7, 3])
    torch.testing.assert_close(some.points, found.points[[7, 3]])
    assert (some.names, some.label(1)) == (("7", "3"), "red")
    with pytest.raises(ValueError, match=r"there is no test image 30; .* has test images 0 to 29"):
        embed_test_images(opened(images), [0, 30])


def test_test_images_that_have_gone_are_missed(images: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(images, tmp_path / "run")
    record = json.loads((folder / "run.json").read_text())
    record["images"]["test_images"] = 31
    (folder / "run.json").write_text(unverified(record))
    with pytest.raises(ValueError, match=r"has other test images than when the run in .* was started"):
        embed_run(opened(folder))
    record["images"] |= {"test_images": 30, "test_digest": 64 * "0"}
    (folder / "run.json").write_text(unverified(record))
    with pytest.raises(ValueError, match=r"has other test images or test labels than when the run in .* was started"):
        embed_run(opened(folder))
    del record["images"]["test_digest"]
    del record["images"]["test_images"]  # a run by an older version, which did not count them
    (folder / "run.json").write_text(unverified(record))
    assert len(embed_run(opened(folder))) == 30


def test_files_are_read_as_for_predictions(images: Path, tmp_path: Path) -> None:
    pixels = coloured_data().test.images
    Image.fromarray(pixels[4].numpy()).save(tmp_path / "a.png")
    Image.fromarray(pixels[5].numpy()).resize((20, 10)).save(tmp_path / "b.png")
    (tmp_path / "c.png").write_bytes(b"torn")
    found = embed_run(opened(images), [tmp_path])
    torch.testing.assert_close(found.points[:1], embed_test_images(opened(images), [4]).points)
    assert found.names == (str(tmp_path / "a.png"), str(tmp_path / "b.png"))
    assert (found.kind, found.labels, found.label(0), found.size, found.resized) == ("image", None, None, (8, 8), 1)
    assert [file for file, _ in found.skipped] == [tmp_path / "c.png"]
    assert len(embed_files(opened(images), [tmp_path / "c.png"])) == 0


@pytest.mark.parametrize("curvature", [-0.1, -1.0, -10.0])
def test_distances_keep_their_digits(curvature: float) -> None:
    """Near points far out: there acosh of a product of float32 numbers is nothing but rounding."""
    torch.manual_seed(0)
    point = torch.randn(8) * 300
    points = torch.stack([point, point * (1 + 1e-6), point + 1e-2 * torch.randn(8), -point, torch.randn(8)])
    found = Embedding("points", "node", points, Lorentz(curvature), tuple("abcde"))
    rows = [[mpmath.mpf(float(value)) for value in row] for row in points]
    with mpmath.workdps(oracle.DIGITS):
        expected = [float(oracle.dist(mpmath.mpf(-curvature), rows[0], row)[0]) for row in rows]
        origin = [float(oracle.dist(mpmath.mpf(-curvature), [mpmath.mpf(0)] * 8, row)[0]) for row in rows]
    torch.testing.assert_close(
        found.distances(point), torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-20
    )
    torch.testing.assert_close(found.radii(), torch.tensor(origin, dtype=torch.float64), rtol=1e-12, atol=0)
    assert found.distances(point)[0] == 0


def test_vectors_have_euclidean_distances() -> None:
    points = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]])
    found = Embedding("vectors", "node", points, None, ("a", "b", "c"))
    assert found.distances(points[0]).tolist() == [0, 0, 5]
    assert found.radii().tolist() == [5, 5, 0]
    assert found.curvature == 0


def test_points_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of 2 points of this network are not finite"):
        Embedding("broken", "node", torch.tensor([[1.0, 2.0], [float("nan"), 0.0]]), None, ("a", "b"))


def test_images_are_for_runs_on_images_and_nodes_for_graphs(images: Path, tmp_path: Path) -> None:
    trained(tmp_path, run_config("disease_tree/nc", settings=QUICK | {"epochs": 1}))
    with pytest.raises(ValueError, match="holds a run on the graph disease_tree/nc; images are for runs on images"):
        embed_run(opened(tmp_path), [tmp_path])
    with pytest.raises(ValueError, match="this needs one on a graph"):
        embed_nodes(opened(images))
