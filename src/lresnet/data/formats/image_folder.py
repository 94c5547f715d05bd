"""A user's images from folders: ``train/CLASS/*.png`` and ``test/CLASS/*.png``."""

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
    skipped: list[tuple[Path, str]]  # what could not be read, and why


def read_image_folder(path: str | Path, size: int | None = None) -> ImageData:
    """Read ``path/train/CLASS/*`` and ``path/test/CLASS/*``.

    The folders under ``train`` are the classes, in alphabetical order. Files whose names do not end as images do (see
    :data:`SUFFIXES`) and hidden ones are passed over. Images are turned upright as their EXIF data say and become RGB;
    an alpha channel is dropped. Those that :func:`open_image` refuses are left out and listed in ``skipped``, with
    the reason.

    Args:
        path: the folder.
        size: side of the squares that images become, see :func:`fill_frame`. None: they stay as they are, and must
            have one common size.

    Returns:
        Images ``[N, H, W, 3]`` by class and then by file name, with the mean and std of the training images.

    Raises:
        FileNotFoundError: there is no such folder, or it has no ``train`` or ``test``.
        ValueError: images of two sizes, a class without training images, a class that only ``test`` has.
    """
    path = Path(path)
    train_folder, test_folder = path / "train", path / "test"
    if size is not None and size < 1:
        raise ValueError(f"size is {size}; the side of an image is 1 pixel or more")
    for folder in (train_folder, test_folder):
        if not folder.is_dir():
            raise FileNotFoundError(f"no folder {folder}; images are looked for in train/CLASS/ and test/CLASS/")
    classes = _class_names(train_folder)
    if unknown := sorted(set(_class_names(test_folder)) - set(classes)):
        raise ValueError(f"{test_folder} has the class {unknown[0]!r}, but {train_folder} has not")
    train, test = (_read_part(folder, classes, size) for folder in (train_folder, test_folder))
    for label in sorted(set(range(len(classes))) - set(train.labels)):
        _refuse_empty(train_folder / classes[label], train)
    if not test.labels:
        _refuse_empty(test_folder, test)
    first, second = (ImageSet(torch.from_numpy(part.images), torch.tensor(part.labels)) for part in (train, test))
    skipped = (*train.skipped, *test.skipped)
    return ImageData(path.resolve().name, first, second, classes, *channel_statistics(first.images), skipped)


def images_below(folder: Path) -> list[Path]:
    """The image files in ``folder`` and in its folders, told by their endings, by path; hidden ones are passed over.

    Links to folders are followed, and a folder that can be reached in two ways is there once. A link to a file that is
    not there is among them, so that it is counted with those that cannot be read.

    Raises:
        OSError: one of the folders cannot be read.
    """
    found, seen = list[Path](), set[str]()
    for place, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        real = os.path.realpath(place)
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        if real not in seen:
            found += [Path(place, name) for name in names if not name.startswith(".")]
        seen.add(real)
    return sorted(file for file in found if _is_image_file(file))


def open_image(file: Path, mode: Literal["L", "RGB"] = "RGB") -> Image:
    """The image of ``file``, upright as its EXIF data say, in grey ("L") or colours; an alpha channel is dropped.

    Colours of 16 bits are brought down to 8. What Pillow warns of, as of EXIF data that it cannot read, is not passed
    on: the pixels are there.

    Raises:
        ValueError: it is grey with more than 8 bits; a damaged file raises nearly anything.
    """
    from PIL import Image, ImageOps

    with warnings.catch_warnings(action="ignore"), Image.open(file) as opened:
        if opened.mode.startswith(("I", "F")):  # Pillow would cut their values off at 255
            raise ValueError("more than 8 bits a channel")
        image = ImageOps.exif_transpose(opened)
        if image.mode == "P":  # a palette may say which of its colours are transparent
            image = image.convert("RGBA")
        return image.convert(mode)


def fill_frame(image: Image, width: int, height: int) -> Image:
    """The largest part in the centre that has the frame's proportions, resized to the frame.

    Cut first: a long strip whose short side is resized to the frame's would not fit in memory.

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
    left, top = (own_width - part[0]) // 2, (own_height - part[1]) // 2  # whole pixels: a mere cut changes none
    return image.resize((width, height), Resampling.BILINEAR, box=(left, top, left + part[0], top + part[1]))


def _raise(error: OSError) -> NoReturn:
    raise error


def _class_names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")))


def _image_files(folder: Path) -> list[Path]:
    if not folder.is_dir():  # a class need not have test images
        return []
    return sorted(file for file in folder.iterdir() if _is_image_file(file) and not file.name.startswith("."))


def _is_image_file(file: Path) -> bool:
    """Told by its ending; a link to nothing is one that cannot be read, a folder is none."""
    return file.suffix.lower() in SUFFIXES and (file.is_file() or not file.exists())


def _read_part(folder: Path, classes: tuple[str, ...], size: int | None) -> _Part:
    """All images of one part, written into one array as they are read."""
    files = [(file, label) for label, name in enumerate(classes) for file in _image_files(folder / name)]
    images: NDArray[np.uint8] = np.empty((0, 0, 0, 3), dtype=np.uint8)
    first = folder
    part = _Part(images, [], [])
    for file, label in files:
        try:
            pixels = _read_pixels(file, size)
        except Exception as error:  # decoders raise nearly anything at a damaged file
            part.skipped.append((file, " ".join(str(error).split())))
            continue
        if not part.labels:
            first, images = file, np.empty((len(files), *pixels.shape), dtype=np.uint8)
        if pixels.shape != images.shape[1:]:
            raise ValueError(
                f"{file} has {_size(pixels)} pixels and {first} {_size(images[0])}; give a size "
                "(--size PIXELS, size=) to make all images squares of that side"
            )
        images[len(part.labels)] = pixels
        part.labels.append(label)
    return part._replace(images=images[: len(part.labels)])


def _read_pixels(file: Path, size: int | None) -> NDArray[np.uint8]:
    """``[H, W, 3]``."""
    image = open_image(file)
    return np.asarray(image if size is None else fill_frame(image, size, size))


def _size(pixels: NDArray[np.uint8]) -> str:
    return f"{pixels.shape[1]} x {pixels.shape[0]}"


def _refuse_empty(folder: Path, part: _Part) -> NoReturn:
    reasons = [reason for file, reason in part.skipped if folder in file.parents]
    why = f" ({len(reasons)} could not be read, e.g. {reasons[0]})" if reasons else ""
    raise ValueError(f"{folder} holds no readable image{why}; add some")
