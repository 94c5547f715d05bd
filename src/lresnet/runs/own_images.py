"""Settings for a user's own images, scaled to the size of the images and of the set.

benchmarks/small_images.py measures them; docs/howto/images.md states the rules.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data import ImageSet, ImageTask
from lresnet.data.formats.image_folder import find_layout, image_sizes
from lresnet.data.image_files import ImageFiles
from lresnet.runs.config import RunConfig, configure
from lresnet.runs.model_config import ViTConfig
from lresnet.runs.task_config import ImageTaskConfig

__all__ = [
    "MirrorTest",
    "OwnImages",
    "common_size",
    "image_settings",
    "mirror_test",
    "suit_to_images",
]

# Largest side of the squares to which images are resized by default, on a CPU and on a GPU. The time of a step grows
# with the square of the side; a CPU core takes 2 ms for a training image of 32 pixels (ResNet-20).
_LARGEST_SIDE = {False: 64, True: 224}
# Images that a run trains on, counted in every epoch again, and the limits of its epochs. A CPU core needs two minutes
# for 45,000 images of 32 pixels. Twice as many gave the same validation accuracy on the digits of 16 pixels.
_IMAGE_PASSES = {False: 45_000, True: 5_000_000}
_EPOCHS = {False: (30, 200), True: (100, 200)}
_STEPS_PER_EPOCH = 32
_BATCH_SIZES = (16, 512)
# The learning rate grows with the square root of the batch size: 0.05 for 32 images, 0.2 for 512.
_LR, _LR_BATCH = 0.05, 32
# The mirror test: images that are compared, the side to which they are reduced, and the smallest set that it judges.
_MIRROR_IMAGES, _MIRROR_SIDE, _MIRROR_LEAST = 2000, 8, 200
_DEVIATIONS = 2.0


class MirrorTest(NamedTuple):
    """Whether mirrored training images still look like their class, by their nearest neighbours.

    Args:
        images: number of images that were compared.
        original: share of them whose nearest other image has their class.
        mirrored: the same share for mirrored images, among the same images.
        lost: images whose neighbour has their class only as they are.
        gained: images whose neighbour has their class only when mirrored.
        chance: share that random classes would reach.
    """

    images: int
    original: float
    mirrored: float
    lost: int
    gained: int
    chance: float

    @property
    def flip(self) -> bool:
        """Whether training images may be mirrored.

        There must be enough images, the neighbours must tell something about the class, and mirroring must not lose
        more than it gains, by two standard deviations.
        """
        loses = self.lost - self.gained > _DEVIATIONS * math.sqrt(self.lost + self.gained)
        return self.images >= _MIRROR_LEAST and self._telling and not loses

    @property
    def _telling(self) -> bool:
        noise = math.sqrt(self.chance * (1 - self.chance) / max(1, self.images))
        return self.original - self.chance > _DEVIATIONS * noise

    @property
    def reason(self) -> str:
        """The decision and its reason in one line."""
        option = f"--{'' if self.flip else 'no-'}flip"
        if self.images < _MIRROR_LEAST:
            return f"{option}: {self.images} training images are too few to tell whether they may be mirrored"
        if not self._telling:
            return f"{option}: nearest neighbours do not tell whether images may be mirrored"
        found = f"nearest neighbours have the same class for {self.original:.0%} of the images as they are"
        return f"{option}: {found} and for {self.mirrored:.0%} mirrored"


class OwnImages(NamedTuple):
    """A run on a user's own images with its settings, and the test that decided whether they are mirrored.

    Args:
        config: the run.
        mirror: None: the user has decided it.
    """

    config: RunConfig
    mirror: MirrorTest | None


def suit_to_images(config: RunConfig, given: Mapping[str, Any], *, gpu: bool = False) -> OwnImages:
    """Return a run on a user's own images with every setting that is not given chosen for these images.

    The choice uses the training images only. It is a function of the images and of ``gpu``.

    Args:
        config: the run, with the residual connection, the seed, and the settings that follow neither the number of
            images nor their size.
        given: the settings that the user has given.
        gpu: whether the run is on a GPU, where larger networks and images are affordable.

    Raises:
        FileNotFoundError, ValueError: the images cannot be read.
    """
    from lresnet.runs.tasks import load

    task = config.task
    assert isinstance(task, ImageTaskConfig)
    path = Path(task.name)
    if path.is_dir():
        layout = find_layout(path)
        if task.size is None:
            task = dataclasses.replace(task, size=common_size(image_sizes(layout), _LARGEST_SIDE[gpu]))
        if "val" in layout.parts and "holdout" not in given:
            task = dataclasses.replace(task, holdout=0.0)
    if task.holdout and task.stratified is None:
        task = dataclasses.replace(task, stratified=True)
    loaded = load(task, config.train.seed)
    assert isinstance(loaded, ImageTask)
    train, _ = loaded.split()
    height, width, _ = train.shape
    settings = image_settings(len(train), max(height, width), gpu=gpu, epochs=given.get("epochs"))
    if isinstance(config.model, ViTConfig):  # the rates of image_settings are for SGD and ResNets
        del settings["lr"], settings["model"]
    mirror = None
    if "flip" not in given:
        mirror = mirror_test(train)
        settings["flip"] = mirror.flip
    kept = {name: value for name, value in config.settings().items() if name not in settings}
    own = {name: getattr(task, name) for name in ("size", "holdout", "stratified")}
    chosen = kept | settings | own | dict(given)
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return OwnImages(configure(task, config.model.residual, config.train.seed, chosen), mirror)


def common_size(sizes: Counter[tuple[int, int]], largest: int) -> int | None:
    """Return the side of the squares to which the images of a folder are resized; None: they keep their size.

    Images of one size that is not too large keep it. Otherwise the side is the median of the images' shorter sides, at
    most ``largest``.

    Args:
        sizes: number of images by width and height.
        largest: largest side.

    Example:
        >>> common_size(Counter({(28, 28): 900}), 64), common_size(Counter({(640, 480): 5, (300, 500): 4}), 64)
        (None, 64)
    """
    if not sizes:  # no file can be read, which is reported when they are read
        return None
    if len(sizes) == 1 and max(next(iter(sizes))) <= largest:
        return None
    sides = sorted(min(size) for size in sizes.elements())
    return max(1, min(largest, sides[len(sides) // 2]))


def image_settings(images: int, side: int, *, gpu: bool = False, epochs: int | None = None) -> dict[str, Any]:
    """Return the settings for a number of training images of a given side.

    Args:
        images: number of training images.
        side: longer side of an image, in pixels.
        gpu: whether the run is on a GPU.
        epochs: number of epochs if it is given; the warm-up follows it.

    Example:
        >>> settings = image_settings(1440, 32)
        >>> settings["batch_size"], settings["epochs"], settings["pad"], settings["cutout"]
        (32, 32, 4, 0)
    """
    low, high = _BATCH_SIZES
    batch = min(high, max(low, 2 ** int(math.log2(max(1.0, images / _STEPS_PER_EPOCH)))))
    least, most = _EPOCHS[gpu]
    epochs = epochs or min(most, max(least, math.ceil(_IMAGE_PASSES[gpu] / images)))
    return {
        "model": "lorentz_resnet18" if gpu else "lorentz_resnet20",  # 2 ms per image of 32 pixels on a CPU core
        "epochs": epochs,
        "batch_size": batch,
        "lr": round(_LR * math.sqrt(batch / _LR_BATCH), 3),
        "warmup": round(epochs / 20, 2),
        "eval_every": max(1, epochs // 10),
        "clip": 1.0,
        "pad": round(side / 8),
        "cutout": round(side / 4) if gpu else 0,  # validation: CIFAR-10 -5.5 points, SVHN +2.2, digits equal
    }


def mirror_test(train: ImageSet | ImageFiles) -> MirrorTest:
    """Compare mirrored training images with the others: does the nearest one still have the same class?

    Images are reduced to 8 x 8 pixels, and each image is centred and scaled. At most 2,000 images are compared, every
    k-th of the training images, so that nothing is drawn at random.
    """
    index = torch.arange(0, len(train), max(1, math.ceil(len(train) / _MIRROR_IMAGES)))
    labels = train.labels[index.to(train.labels.device)].cpu().numpy()
    points = _reduced(train.read(index).cpu())
    original = labels[_nearest(points, points)] == labels
    mirrored = labels[_nearest(points.flip(2), points)] == labels
    shares = np.bincount(labels) / len(labels)
    return MirrorTest(
        len(labels),
        float(original.mean()),
        float(mirrored.mean()),
        int((original & ~mirrored).sum()),
        int((~original & mirrored).sum()),
        float((shares**2).sum()),
    )


def _reduced(images: Tensor) -> Tensor:
    """Return float32 ``[N, 8, 8, C]`` with mean 0 and standard deviation 1 in each image."""
    pixels = torch.nn.functional.adaptive_avg_pool2d(images.permute(0, 3, 1, 2).float(), _MIRROR_SIDE)
    centred = (pixels - pixels.mean((1, 2, 3), keepdim=True)).permute(0, 2, 3, 1)
    return centred / centred.flatten(1).std(1, unbiased=False).clamp(min=1e-6)[:, None, None, None]


def _nearest(queries: Tensor, points: Tensor) -> NDArray[np.int64]:
    """Return the number of the nearest of ``points`` for each query, never its own."""
    far = torch.cdist(queries.flatten(1), points.flatten(1))
    found: NDArray[np.int64] = far.fill_diagonal_(math.inf).argmin(1).numpy()
    return found
