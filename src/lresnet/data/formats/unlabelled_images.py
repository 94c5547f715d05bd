"""Unlabelled images from a folder or from an array, resized to one size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lresnet.data.formats.arrays import read_some_arrays
from lresnet.data.formats.image_file import why_unreadable
from lresnet.data.formats.image_folder import fill_frame, images_below, open_image

__all__ = ["UnlabelledImages", "fill_frames", "read_unlabelled", "require_images"]

_NAMES = ("images", "x", "test_images")
_CHANNELS = (1, 3)


class UnlabelledImages(NamedTuple):
    """Images without labels.

    Args:
        images: uint8 ``[N, H, W, 3]``.
        skipped: Files that could not be read, with the reason.
        note: What a reader of figures on these images should know; may be empty.
    """

    images: NDArray[np.uint8]
    skipped: tuple[tuple[Path, str], ...] = ()
    note: str = ""


def read_unlabelled(path: Path, size: tuple[int, int]) -> UnlabelledImages:
    """Read the images in a folder, at any depth, or the array of a ``.npz`` file.

    Images of a folder (see :func:`~lresnet.data.formats.image_folder.images_below`) are turned upright, converted to
    RGB and resized to ``size`` (see :func:`~lresnet.data.formats.image_folder.fill_frame`). The array ``images``, ``x``
    or ``test_images`` of a ``.npz`` file, whichever is found first, keeps its size. It is uint8: ``[N, H, W]`` (grey),
    ``[N, H, W, C]`` or ``[N, C, H, W]`` with 1 or 3 channels. Pickled objects are refused.

    Args:
        path: A folder or a ``.npz`` file.
        size: Height and width.

    Raises:
        OSError: The folder or file cannot be read.
        ValueError: There are no readable images, or the array is missing, damaged or of another form.
    """
    found = _read_folder(path, *size) if path.is_dir() else UnlabelledImages(_read_array(path))
    require_images(str(path), len(found.images), found.skipped)
    return found


def require_images(where: str, count: int, skipped: Sequence[tuple[Path, str]]) -> None:
    """Check that ``where`` holds at least one image.

    Raises:
        ValueError: There is none; the message names the first file that could not be read, if any.
    """
    if count == 0:
        why = f" ({len(skipped)} could not be read, e.g. {skipped[0][1]})" if skipped else ""
        raise ValueError(f"{where} holds no readable image{why}; add some")


def fill_frames(images: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resize images ``[N, H, W, 3]`` to ``[N, height, width, 3]``, as images of a folder are resized."""
    from PIL import Image

    height, width = size
    if images.shape[1:3] == size:
        return images
    filled = np.empty((len(images), height, width, 3), dtype=np.uint8)
    for target, image in zip(filled, images, strict=True):
        target[:] = np.asarray(fill_frame(Image.fromarray(image), width, height))
    return filled


def _read_folder(folder: Path, height: int, width: int) -> UnlabelledImages:
    files = images_below(folder)
    images = np.empty((len(files), height, width, 3), dtype=np.uint8)
    read, skipped = 0, []
    for file in files:
        try:
            images[read] = np.asarray(fill_frame(open_image(file), width, height))
            read += 1
        except Exception as error:  # decoders raise many kinds of errors on a damaged file
            skipped.append((file, why_unreadable(error)))
    return UnlabelledImages(images[:read], tuple(skipped))


def _read_array(path: Path) -> NDArray[np.uint8]:
    arrays = read_some_arrays(path, _NAMES)
    name = next((name for name in _NAMES if name in arrays), None)
    if name is None:
        raise ValueError(f"{path} cannot be read as images: it has no array {', '.join(_NAMES[:-1])} or {_NAMES[-1]}")
    try:
        return _in_colour(name, arrays[name])
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as images: {error}") from error


def _in_colour(name: str, images: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the images as ``[N, H, W, 3]``."""
    if images.dtype != np.uint8:
        raise ValueError(f"{name} is {images.dtype}; save pixels 0 to 255 as uint8")
    if 0 in images.shape[1:]:
        raise ValueError(f"{name} has shape {list(images.shape)}: images without any pixel")
    if images.ndim == 3 and images.shape[2] in _CHANNELS:  # not H grey strips
        raise ValueError(f"{name} has shape {list(images.shape)}, which is one image; save it as [1, H, W, C]")
    if images.ndim == 3:
        images = images[..., None]
    elif images.ndim != 4 or (images.shape[1] in _CHANNELS) == (images.shape[3] in _CHANNELS):
        raise ValueError(
            f"{name} has shape {list(images.shape)}, which does not show where its 1 or 3 channels are; "
            "save [N, H, W, C] or [N, C, H, W]"
        )
    elif images.shape[1] in _CHANNELS:
        images = images.transpose(0, 2, 3, 1)
    return np.repeat(images, 3 // images.shape[3], axis=3)
