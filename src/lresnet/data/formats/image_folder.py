"""Users' labelled images in folders, ``train/CLASS/*.png`` and ``test/CLASS/*.png``, and single image files."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from lresnet.data.image_data import ImageData, ImageSet, channel_statistics

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["SUFFIXES", "fill_frame", "images_below", "open_image", "read_image_folder"]

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


class _Part(NamedTuple):
    images: NDArray[np.uint8]  # [N, H, W, 3]
    labels: list[int]
    skipped: list[tuple[Path, str]]  # files that could not be read, with the reason


def read_image_folder(path: str | Path, size: int | None = None) -> ImageData:
    """Read ``path/train/CLASS/*`` and ``path/test/CLASS/*``.

    The folders under ``train`` are the classes, in alphabetical order. Files without an image suffix (see
    :data:`SUFFIXES`) and hidden files are ignored. Images are turned upright according to their EXIF data and converted
    to RGB; an alpha channel is dropped. Images that :func:`open_image` refuses are left out and listed in ``skipped``
    with the reason.

    Args:
        path: The folder.
        size: Side of the squares to which images are resized, see :func:`fill_frame`. None keeps their size, which must
            be the same for all.

    Returns:
        Images ``[N, H, W, 3]``, sorted by class and then by file name, with the mean and std of the training images.

    Raises:
        FileNotFoundError: There is no such folder, or it has no ``train`` or ``test``.
        ValueError: Images have two sizes, a class has no training images, or only ``test`` has a class.
    """
    path = Path(path)
    train_folder, test_folder = path / "train", path / "test"
    if size is not None and size < 1:
        raise ValueError(f"size is {size}; the side of an image must be at least 1 pixel")
    for folder in (train_folder, test_folder):
        if not folder.is_dir():
            raise FileNotFoundError(
                f"there is no folder {folder}; images must be in train/CLASS/ and test/CLASS/, and a graph in edges.csv"
            )
    classes = _class_names(train_folder)
    if unknown := sorted(set(_class_names(test_folder)) - set(classes)):
        raise ValueError(f"{test_folder} has the class {unknown[0]!r}, but {train_folder} does not")
    train, test = (_read_part(folder, classes, size) for folder in (train_folder, test_folder))
    for label in sorted(set(range(len(classes))) - set(train.labels)):
        _refuse_empty(train_folder / classes[label], train)
    if not test.labels:
        _refuse_empty(test_folder, test)
    first, second = (ImageSet(torch.from_numpy(part.images), torch.tensor(part.labels)) for part in (train, test))
    skipped = (*train.skipped, *test.skipped)
    return ImageData(path.resolve().name, first, second, classes, *channel_statistics(first.images), skipped)


def images_below(folder: Path) -> list[Path]:
    """Return the image files in ``folder``, at any depth, sorted by path. Hidden files are ignored.

    Files are recognised by their suffix. Links to folders are followed; a folder that is reached twice is read once. A
    broken link is included, so that it is counted as a file that cannot be read.

    Raises:
        OSError: One of the folders cannot be read.
    """
    found, seen = list[Path](), set[str]()
    for parent, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        real = os.path.realpath(parent)
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        if real not in seen:
            found += [Path(parent, name) for name in names if not name.startswith(".")]
        seen.add(real)
    return sorted(file for file in found if _is_image_file(file))


def open_image(file: Path, mode: Literal["L", "RGB"] = "RGB") -> Image:
    """Open an image, turned upright according to its EXIF data, in grey ("L") or colour; an alpha channel is dropped.

    Colours of 16 bits are reduced to 8 bits. Warnings of Pillow, e.g. about unreadable EXIF data, are suppressed, since
    they do not affect the pixels.

    Raises:
        ValueError: The image is grey with more than 8 bits. A damaged file may raise any other error.
    """
    from PIL import Image, ImageOps

    with warnings.catch_warnings(action="ignore"), Image.open(file) as opened:
        if opened.mode.startswith(("I", "F")):  # Pillow would clip their values at 255
            raise ValueError("more than 8 bits per channel")
        image = ImageOps.exif_transpose(opened)
        if image.mode == "P":  # a palette may have transparent colours
            image = image.convert("RGBA")
        return image.convert(mode)


def fill_frame(image: Image, width: int, height: int) -> Image:
    """Crop the largest centred part with the proportions ``width`` : ``height`` and resize it.

    The crop comes first: a long strip whose short side is enlarged would not fit in memory.

    Example:
        >>> from PIL import Image
        >>> fill_frame(Image.new("RGB", (90, 60)), 32, 32).size
        (32, 32)
    """
    from PIL.Image import Resampling

    own_width, own_height = image.size
    if width * own_height >= height * own_width:
        part: tuple[float, float] = (own_width, own_width * height / width)
    else:
        part = (own_height * width / height, own_height)
    # Integers, so that a crop without resizing keeps all pixels unchanged.
    left, top = (own_width - part[0]) // 2, (own_height - part[1]) // 2
    return image.resize((width, height), Resampling.BILINEAR, box=(left, top, left + part[0], top + part[1]))


def _raise(error: OSError) -> NoReturn:
    raise error


def _class_names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")))


def _image_files(folder: Path) -> list[Path]:
    if not folder.is_dir():  # a class may have no test images
        return []
    return sorted(file for file in folder.iterdir() if _is_image_file(file) and not file.name.startswith("."))


def _is_image_file(file: Path) -> bool:
    """Whether ``file`` has an image suffix. A broken link counts as an unreadable file; a folder does not count."""
    return file.suffix.lower() in SUFFIXES and (file.is_file() or not file.exists())


def _read_part(folder: Path, classes: tuple[str, ...], size: int | None) -> _Part:
    """Read all images of one part into one array."""
    files = [(file, label) for label, name in enumerate(classes) for file in _image_files(folder / name)]
    images: NDArray[np.uint8] = np.empty((0, 0, 0, 3), dtype=np.uint8)
    first = folder
    part = _Part(images, [], [])
    for file, label in files:
        try:
            pixels = _read_pixels(file, size)
        except Exception as error:  # decoders raise many kinds of errors on a damaged file
            part.skipped.append((file, " ".join(str(error).split())))
            continue
        if not part.labels:
            first, images = file, np.empty((len(files), *pixels.shape), dtype=np.uint8)
        if pixels.shape != images.shape[1:]:
            raise ValueError(
                f"{file} has {_size(pixels)} pixels and {first} has {_size(images[0])}; give a size "
                "(--size PIXELS, size=) to resize all images to squares of that side"
            )
        images[len(part.labels)] = pixels
        part.labels.append(label)
    return part._replace(images=images[: len(part.labels)])


def _read_pixels(file: Path, size: int | None) -> NDArray[np.uint8]:
    """Return the pixels ``[H, W, 3]``."""
    image = open_image(file)
    return np.asarray(image if size is None else fill_frame(image, size, size))


def _size(pixels: NDArray[np.uint8]) -> str:
    return f"{pixels.shape[1]} x {pixels.shape[0]}"


def _refuse_empty(folder: Path, part: _Part) -> NoReturn:
    reasons = [reason for file, reason in part.skipped if folder in file.parents]
    why = f" ({len(reasons)} could not be read, e.g. {reasons[0]})" if reasons else ""
    raise ValueError(f"{folder} holds no readable image{why}; add some")
