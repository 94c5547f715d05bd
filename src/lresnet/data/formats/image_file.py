"""One image file: its pixels, upright and in a given size, and its size without decoding it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from lresnet._files import read_file, require_regular
from lresnet._limits import IMAGE_BYTES, IMAGE_PIXELS, SCAN_PIXELS, WEBP_PIXELS
from lresnet.data.quoting import reason

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["SUFFIXES", "fill_frame", "image_size", "open_image", "read_pixels", "require_small_file", "why_unreadable"]

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # Pillow's names; others may start programs
_SCAN = b"\xff\xda"  # the marker of a JPEG file before a scan; a progressive file has about ten
_ORIENTATION = 0x0112  # EXIF tag; the values 5 to 8 exchange width and height


def open_image(file: Path | IO[bytes], mode: Literal["L", "RGB"] = "RGB") -> Image:
    """Open an image, turned upright according to its EXIF data, in grey ("L") or colour; an alpha channel is dropped.

    Colours of 16 bits are reduced to 8 bits. Warnings of Pillow, e.g. about unreadable EXIF data, are suppressed, since
    they do not affect the pixels.

    Raises:
        ValueError: The file or the image is larger than :data:`lresnet._limits.IMAGE_BYTES` or ``IMAGE_PIXELS``; its
            pixels are not decoded. Or the image is grey with more than 8 bits. A damaged file may raise any error.
    """
    from PIL import Image, ImageOps

    if isinstance(file, Path):
        require_small_file(file)
    with warnings.catch_warnings(action="ignore"), Image.open(file, formats=_FORMATS) as opened:
        width, height = opened.size
        if width * height > (limit := _largest(opened)):
            raise ValueError(f"it has {width:,} x {height:,} pixels; the limit is {limit:,}")
        if opened.format in ("JPEG", "MPO"):
            _require_few_scans(file, width * height)
        if opened.mode.startswith(("I", "F")):  # Pillow would clip their values at 255
            raise ValueError("grey with more than 8 bits per channel; save it with 8 bits")
        ImageOps.exif_transpose(opened, in_place=True)  # a copy would need as much memory again
        # A palette may have transparent colours.
        return (opened.convert("RGBA") if opened.mode == "P" else opened).convert(mode)


def _largest(opened: Image) -> int:
    """Return the number of pixels that an image of this format may have."""
    return WEBP_PIXELS if opened.format == "WEBP" else IMAGE_PIXELS


def _require_few_scans(file: Path | IO[bytes], pixels: int) -> None:
    """Raise ValueError for a JPEG file with too many scans: each decodes all pixels, so decoding would take hours."""
    if isinstance(file, Path):
        content = read_file(file)
    else:
        place = file.tell()
        file.seek(0)
        content = file.read()
        file.seek(place)
    if pixels * (scans := content.count(_SCAN)) > SCAN_PIXELS:
        raise ValueError(
            f"it has {scans:,} scans of {pixels:,} pixels; the limit is {SCAN_PIXELS:,} pixels in all scans"
        )


def require_small_file(file: Path) -> None:
    """Raise ValueError for an image file that is too large to be read, and OSError for a named pipe or a device."""
    require_regular(file)
    if (size := file.stat().st_size) > IMAGE_BYTES:
        raise ValueError(f"it has {size:,} bytes; the limit for an image file is {IMAGE_BYTES:,}")


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


def read_pixels(file: Path | IO[bytes], size: int | None) -> NDArray[np.uint8]:
    """Return the pixels ``[H, W, 3]``, as a square of side ``size`` if that is given."""
    image = open_image(file)
    return np.asarray(image if size is None else fill_frame(image, size, size))


def image_size(file: Path) -> tuple[int, int] | None:
    """Return width and height of the upright image from the file's header; None: the file cannot be read."""
    from PIL import Image

    try:
        require_regular(file)
        with warnings.catch_warnings(action="ignore"), Image.open(file, formats=_FORMATS) as opened:
            width, height = opened.size
            if width * height > _largest(opened):
                return None
            turned = opened.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)
    except Exception:  # decoders raise many kinds of errors on a damaged file
        return None
    return (height, width) if turned else (width, height)


def why_unreadable(error: Exception) -> str:
    """Return the reason why a file could not be read as an image, in one line."""
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):  # Pillow's message has the address of a buffer
        return "cannot identify image file"
    return reason(error)
