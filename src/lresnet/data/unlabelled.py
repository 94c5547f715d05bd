"""Images without labels, from a folder or an array, all made to fill one frame."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lresnet.data.image_arrays import NPZ_ERRORS
from lresnet.data.image_folder import fill_frame, images_below, open_image

__all__ = ["Unlabelled", "fill_frames", "read_unlabelled_arrays", "read_unlabelled_folder"]

_NAMES = ("images", "x", "test_images")
_CHANNELS = (1, 3)


class Unlabelled(NamedTuple):
    """Images uint8 ``[N, H, W, 3]``, and the files that could not be read, with the reason."""

    images: NDArray[np.uint8]
    skipped: tuple[tuple[Path, str], ...] = ()


def read_unlabelled_folder(folder: Path, height: int, width: int) -> Unlabelled:
    """All images in ``folder`` and in its folders, see :func:`~lresnet.data.image_folder.images_below`.

    Each is turned upright, becomes RGB and fills the frame: the short side is resized, the centre kept, see
    :func:`~lresnet.data.image_folder.fill_frame`.
    """
    files = images_below(folder)
    images = np.empty((len(files), height, width, 3), dtype=np.uint8)
    read, skipped = 0, []
    for file in files:
        try:
            images[read] = np.asarray(fill_frame(open_image(file), width, height))
            read += 1
        except Exception as error:  # decoders raise nearly anything at a damaged file
            skipped.append((file, " ".join(str(error).split())))
    return Unlabelled(images[:read], tuple(skipped))


def read_unlabelled_arrays(path: Path) -> NDArray[np.uint8]:
    """The array ``images``, ``x`` or ``test_images``, the first that is there, of a ``.npz``, as ``[N, H, W, 3]``.

    It is uint8: ``[N, H, W]`` (grey), ``[N, H, W, C]`` or ``[N, C, H, W]`` with 1 or 3 channels. No pickled object is
    read.

    Raises:
        OSError: the file cannot be read.
        ValueError: there is no such array, or it is damaged or of another form.
    """
    try:
        with path.open("rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is no .npz archive")
        with np.load(path, allow_pickle=False) as archive:
            name = next((name for name in _NAMES if name in archive.files), None)
            if name is None:
                raise ValueError(f"it has no array {', '.join(_NAMES[:-1])} or {_NAMES[-1]}")
            return _in_colours(name, archive[name])
    except NPZ_ERRORS as error:
        raise ValueError(f"{path} cannot be read as images: {error}") from error


def fill_frames(images: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """``[N, H, W, 3]`` to ``[N, height, width, 3]``, each as a file of a folder would be."""
    from PIL import Image

    if images.shape[1:3] == (height, width):
        return images
    filled = np.empty((len(images), height, width, 3), dtype=np.uint8)
    for place, image in zip(filled, images, strict=True):
        place[:] = np.asarray(fill_frame(Image.fromarray(image), width, height))
    return filled


def _in_colours(name: str, images: NDArray[Any]) -> NDArray[np.uint8]:
    """``[N, H, W, 3]``."""
    if images.dtype != np.uint8:
        raise ValueError(f"{name} is {images.dtype}; save pixels 0 to 255 as uint8")
    if 0 in images.shape[1:]:
        raise ValueError(f"{name} has shape {list(images.shape)}: images without a pixel")
    if images.ndim == 3 and images.shape[2] in _CHANNELS:  # not H grey strips
        raise ValueError(f"{name} has shape {list(images.shape)}, that of one image; save it as [1, H, W, C]")
    if images.ndim == 3:
        images = images[..., None]
    elif images.ndim != 4 or (images.shape[1] in _CHANNELS) == (images.shape[3] in _CHANNELS):
        raise ValueError(
            f"{name} has shape {list(images.shape)}, where 1 or 3 channels must be told from height and width; "
            "save [N, H, W, C] or [N, C, H, W]"
        )
    elif images.shape[1] in _CHANNELS:
        images = images.transpose(0, 2, 3, 1)
    return np.repeat(images, 3 // images.shape[3], axis=3)
