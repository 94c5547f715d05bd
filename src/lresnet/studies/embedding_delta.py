"""How tree-like a trained network's embeddings of images are: Gromov's delta of their distances."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lresnet.data.augment import normalise
from lresnet.geometry.delta import Delta, delta_hyperbolicity
from lresnet.models import LorentzResNet
from lresnet.studies.prediction import load_network
from lresnet.studies.run_folder import finished_run, usable_device
from lresnet.studies.run_images import images_of_run

__all__ = ["EmbeddingDelta", "distances", "embedding_delta"]

_TOGETHER = 250  # images that go through the network at once


class EmbeddingDelta(NamedTuple):
    """Delta, and what it is of."""

    delta: Delta
    title: str


def embedding_delta(
    folder: Path, *, images: int = 1000, samples: int | None = None, seed: int = 0, device: str = "cpu"
) -> EmbeddingDelta:
    """Delta of the embeddings of test images: one point an image, after pooling, before the head.

    Distances are those of the model's own geometry, see :func:`distances`.

    Args:
        folder: of a finished run on images.
        images: how many test images are drawn; all, if there are fewer.
        samples: see :func:`lresnet.geometry.delta_hyperbolicity`.
        seed: of both drawings.
        device: see :func:`lresnet.studies.run_folder.usable_device`.

    Raises:
        FileNotFoundError: there is no run in the folder, or its images are gone.
        ValueError: the folder holds no finished run of images, its images have changed, or there are too few of them.
    """
    if images < 4:
        raise ValueError(f"images must be at least 4, as delta is of quadruples, got {images}")
    place = usable_device(device)
    network, record = load_network(folder, place), finished_run(folder)
    data = images_of_run(record, folder)
    test = data.test.images
    drawn = torch.from_numpy(np.random.RandomState(seed).permutation(len(test))[:images])
    batches = [part.to(place) for part in test[drawn].split(_TOGETHER)]
    with torch.no_grad():
        points = torch.cat([network.model.embed(normalise(part, network.mean, network.std)) for part in batches])
        space = distances(network.model, points.double())
    delta = delta_hyperbolicity(space.cpu(), samples=samples, seed=seed)
    return EmbeddingDelta(delta, _title(network.model, len(drawn)))


def distances(model: LorentzResNet, points: Tensor) -> Tensor:
    """Between all embeddings, [N, n] -> [N, N]: geodesic on the model's hyperboloid; Euclidean of vectors."""
    if model.euclidean:
        return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.stack([model.manifold.dist(point, points) for point in points])  # [N, N, n] would not fit in memory


def _title(model: LorentzResNet, count: int) -> str:
    network = f"resnet{model.config['depth']} {model.config['residual']}"
    return f"embeddings of {count:,} test images, {network}, {'Euclidean' if model.euclidean else 'geodesic'} distance"
