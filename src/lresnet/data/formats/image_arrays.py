"""Users' labelled images in one ``.npz`` file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data.formats.arrays import read_some_arrays
from lresnet.data.image_data import ImageData, ImageSet, channel_statistics

__all__ = ["read_image_arrays"]

_NEEDED = ("train_images", "train_labels", "test_images", "test_labels")
_CHANNELS = (1, 3)


def read_image_arrays(path: str | Path) -> ImageData:
    """Read the arrays ``train_images``, ``train_labels``, ``test_images`` and ``test_labels`` of ``path``.

    Images are uint8: ``[N, H, W]`` (grey), ``[N, H, W, C]`` or ``[N, C, H, W]`` with 1 or 3 channels. Labels are
    integers 0, 1, ..., ``[N]`` or ``[N, 1]``. An array ``classes`` of names is optional. Without it, the classes are
    named by their numbers, and each must have training images. Pickled objects are refused.

    Returns:
        The images as ``[N, H, W, C]``, with the mean and std of the training images.

    Raises:
        OSError: The file cannot be read.
        ValueError: An array is missing, damaged or of another form.
    """
    path = Path(path)
    arrays = read_some_arrays(path, (*_NEEDED, "classes"), required=_NEEDED, texts=("classes",))
    try:
        return _image_data(path.stem, arrays)
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).removeprefix(f'{path.stem}: ')}") from error


def _image_data(name: str, arrays: dict[str, NDArray[Any]]) -> ImageData:
    train, test = (
        ImageSet(
            _images(f"{part}_images", arrays[f"{part}_images"]), _labels(f"{part}_labels", arrays[f"{part}_labels"])
        )
        for part in ("train", "test")
    )
    if train.images.numel() == 0:
        raise ValueError(f"train_images is empty (shape {list(train.images.shape)}); training needs images")
    classes = _names(arrays["classes"]) if "classes" in arrays else _numbers(train.labels)
    return ImageData(name, train, test, classes, *channel_statistics(train.images))


def _images(name: str, images: NDArray[Any]) -> Tensor:
    """Return the images as ``[N, H, W, C]``."""
    if images.dtype != np.uint8:
        raise ValueError(f"{name} is {images.dtype}; save pixels 0 to 255 as uint8")
    if images.ndim == 3:
        return torch.from_numpy(images[..., None])
    if images.ndim == 4:
        first, last = images.shape[1] in _CHANNELS, images.shape[3] in _CHANNELS
        if first != last:
            return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if first else images)
    raise ValueError(
        f"{name} has shape {list(images.shape)}, which does not show where its 1 or 3 channels are; "
        "save [N, H, W, C] or [N, C, H, W]"
    )


def _labels(name: str, labels: NDArray[Any]) -> Tensor:
    """Return the labels as ``[N]``."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise ValueError(f"{name} is {labels.dtype} {list(labels.shape)}; labels must be integers [N]")
    low, high = int(labels.min(initial=0)), int(labels.max(initial=0))
    if low < 0 or high >= 2**63:  # negative numbers in int64
        raise ValueError(f"{name} holds the label {low or high}; number the classes 0, 1, ...")
    return torch.from_numpy(labels.astype(np.int64))


def _names(classes: NDArray[Any]) -> tuple[str, ...]:
    if classes.dtype.kind not in "iuU" or classes.ndim != 1:
        raise ValueError(f"classes is {classes.dtype} {list(classes.shape)}; save the names as text, [classes]")
    return tuple(str(name) for name in classes.tolist())


def _numbers(labels: Tensor) -> tuple[str, ...]:
    """Return the class numbers as names. Gaps are refused: one label of a billion would mean a billion classes."""
    found = labels.unique().tolist()
    if found[-1] >= len(found):
        gap = next(number for number, label in enumerate(found) if number != label)
        raise ValueError(
            f"train_labels go up to {found[-1]}, but no image has label {gap}; number the classes 0, 1, ... without "
            "a gap, or save their names as classes"
        )
    return tuple(str(number) for number in range(len(found)))
