"""Delta of embeddings: whose distances, of how many images, drawn how."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lresnet.data.augmentation import normalise
from lresnet.geometry import delta_hyperbolicity
from lresnet.models import LorentzResNet, from_pretrained
from lresnet.runs.embedding import distances, embedding_delta
from lresnet.runs.presets import run_config
from tests.coloured import coloured_data, write_coloured
from tests.runs.folders import opened, trained

CONFIG = {"model": "lorentz_resnet20", "epochs": 4, "batch_size": 9, "lr": 0.05, "cutout": 0, "curvature": -0.5}


@pytest.fixture(scope="module", params=["lorentz", "euclidean"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    images = str(write_coloured(folder / "coloured.npz"))
    trained(folder / "run", run_config(images, request.param, settings=CONFIG))
    return folder / "run"


def test_it_is_delta_of_the_model_s_own_distances(run: Path) -> None:
    found, title = embedding_delta(opened(run), images=12, seed=5)
    model, data = from_pretrained(run / "model").eval(), coloured_data()
    assert isinstance(model, LorentzResNet)
    drawn = np.random.RandomState(5).permutation(30)[:12]
    with torch.no_grad():
        z = model.embed(normalise(data.test.images[drawn], data.mean, data.std)).double()
    if model.config["residual"] == "euclidean":
        space = torch.cdist(z, z)
        assert title == "embeddings of 12 test images, resnet20 euclidean, Euclidean distance"
    else:  # acosh of the Minkowski product, the textbook way
        p = model.manifold.lift(z)
        product = p[:, :1] @ p[:, :1].T - p[:, 1:] @ p[:, 1:].T
        space = (torch.acosh((0.5 * product).clamp(min=1)) / 0.5**0.5).fill_diagonal_(0)  # where it loses its digits
        assert title == "embeddings of 12 test images, resnet20 lorentz, geodesic distance"
    expected = delta_hyperbolicity(space.numpy())
    assert found.diameter == pytest.approx(expected.diameter, rel=1e-5)
    assert found.relative == pytest.approx(expected.relative, rel=1e-3)
    assert found.nodes == 12
    assert 0 < found.relative < 1


def test_distances_are_a_metric_s(run: Path) -> None:
    model = from_pretrained(run / "model")
    assert isinstance(model, LorentzResNet)
    torch.manual_seed(0)
    d = distances(None if model.euclidean else model.manifold, torch.randn(6, 32, dtype=torch.float64))
    assert torch.equal(d, d.T)
    assert torch.equal(d.diagonal(), torch.zeros(6, dtype=torch.float64))
    assert (d[:, :, None] + d[None] >= d[:, None] - 1e-12).all()


def test_no_more_images_than_there_are_and_no_fewer_than_four(run: Path) -> None:
    found, title = embedding_delta(opened(run))
    assert found.nodes == 30
    assert title.startswith("embeddings of 30 test images")
    with pytest.raises(ValueError, match="images must be at least 4, because delta compares quadruples, got 3"):
        embedding_delta(opened(run), images=3)


def test_a_graph_s_run_has_no_images(tmp_path: Path) -> None:
    trained(tmp_path, run_config("disease_tree/lp", settings={"epochs": 1}))
    with pytest.raises(ValueError, match="holds a run on the graph disease_tree/lp"):
        embedding_delta(opened(tmp_path))


def test_images_that_changed_have_no_delta(run: Path) -> None:
    from lresnet.runs.tasks import _images

    file = run.parent / "coloured.npz"
    before = file.read_bytes()
    with np.load(file) as arrays:
        changed = {name: array[:, ::2] if name.endswith("images") else array for name, array in arrays.items()}
    np.savez(file, **changed)
    _images.cache_clear()
    try:
        with pytest.raises(ValueError, match="has other sizes than when the run in"):
            embedding_delta(opened(run), images=12)
    finally:
        file.write_bytes(before)
        _images.cache_clear()
