"""The stem of a ResNet, chosen by the size of the images."""

from __future__ import annotations

import dataclasses

from lresnet.data import ImageTask, Task
from lresnet.data.torch_dataset import DatasetTask
from lresnet.runs.config import ModelConfig, ResNetConfig

__all__ = ["LARGE_IMAGES", "stem_of_size", "with_stem"]

LARGE_IMAGES = 96
"""Shorter side in pixels from which images get the ImageNet stem.

The last stage sees an image of side s with s/32 pixels per side behind the ImageNet stem, and with s/8 behind the CIFAR
stem, whose blocks cost 16 times as much. ResNets were designed for 7 pixels there (224 / 32), and the CIFAR variant for
4 (32 / 8). On a logarithmic scale, s/32 is as near to a target t as s/8 at s = 16 t: 64 pixels for t = 4, 112 for
t = 7. At 96, in between, the ImageNet stem leaves 3 pixels, so that a 3 x 3 convolution still has a pixel without
padding, and the CIFAR stem makes a ResNet-18 cost 5.0 GMAC, where the usual one at 224 pixels costs 1.8.
"""


def stem_of_size(height: int, width: int) -> str:
    """Return the stem for images of this size.

    Example:
        >>> stem_of_size(224, 224), stem_of_size(32, 32), stem_of_size(64, 512)
        ('imagenet', 'cifar', 'cifar')
    """
    return "imagenet" if min(height, width) >= LARGE_IMAGES else "cifar"


def with_stem(config: ModelConfig, task: Task) -> ModelConfig:
    """Return the configuration of a ResNet with the stem for the task's images; a stem that is given stays.

    The usual stem of a network stays None, so that runs of earlier versions are found again.
    """
    if not isinstance(config, ResNetConfig) or config.stem is not None:
        return config
    if isinstance(task, DatasetTask) and len(task.form.shape) == 3:
        height, width = task.form.shape[1:]
    elif isinstance(task, ImageTask):
        images = task.data.train
        height, width, *_ = images.shape if hasattr(images, "shape") else images.images.shape[1:]
    else:
        return config
    stem = stem_of_size(height, width)
    return config if stem == config.usual_stem else dataclasses.replace(config, stem=stem)  # type: ignore[arg-type]
