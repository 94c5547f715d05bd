"""One image file: limits that are compared with its header before its pixels are decoded."""

import io
import resource
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lresnet._limits import IMAGE_PIXELS, WEBP_PIXELS
from lresnet.data.formats.image_file import image_size, open_image, read_pixels
from lresnet.data.formats.unlabelled_images import read_unlabelled


def png(path: Path, width: int, height: int) -> Path:
    """Write a black PNG row by row: a small file of any size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(bytes(1 + (width + 7) // 8)) for _ in range(height)) + packer.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", data) + chunk(b"IEND", b""))
    return path


def test_a_small_file_of_many_pixels_is_not_decoded(tmp_path: Path) -> None:
    path = png(tmp_path / "large.png", 13_400, 13_350)  # below the limit of Pillow
    assert path.stat().st_size < 30_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"it has 13,400 x 13,350 pixels; the limit is 67,108,864"):
        open_image(path)
    assert image_size(path) is None
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / "small.png")
    found = read_unlabelled(tmp_path, (4, 4))
    assert [file.name for file, reason in found.skipped if "the limit is 67,108,864" in reason] == ["large.png"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def test_an_image_at_the_limit_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert IMAGE_PIXELS == 8192 * 8192
    monkeypatch.setattr("lresnet.data.formats.image_file.IMAGE_PIXELS", 64)
    assert read_pixels(png(tmp_path / "a.png", 8, 8), None).shape == (8, 8, 3)
    with pytest.raises(ValueError, match="it has 8 x 9 pixels; the limit is 64"):
        open_image(png(tmp_path / "b.png", 8, 9))
    monkeypatch.setattr("lresnet.data.formats.image_file.IMAGE_BYTES", 10)
    with pytest.raises(ValueError, match=r"it has \d+ bytes; the limit for an image file is 10"):
        open_image(tmp_path / "a.png")


def test_a_webp_image_may_have_half_as_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2 * WEBP_PIXELS == IMAGE_PIXELS
    monkeypatch.setattr("lresnet.data.formats.image_file.WEBP_PIXELS", 64)
    Image.new("RGB", (8, 8)).save(tmp_path / "a.webp", lossless=True)
    assert read_pixels(tmp_path / "a.webp", None).shape == (8, 8, 3)
    Image.new("RGB", (8, 9)).save(tmp_path / "b.webp", lossless=True)
    assert image_size(tmp_path / "b.webp") is None
    with pytest.raises(ValueError, match="it has 8 x 9 pixels; the limit is 64"):
        open_image(tmp_path / "b.webp")


def test_a_jpeg_file_of_many_scans_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / "a.jpg", progressive=True)
    content = (tmp_path / "a.jpg").read_bytes()
    scans = content.count(b"\xff\xda")
    assert scans > 1
    monkeypatch.setattr("lresnet.data.formats.image_file.SCAN_PIXELS", scans * 1600)
    for file in (tmp_path / "a.jpg", io.BytesIO(content)):
        assert read_pixels(file, None).shape == (40, 40, 3)
    monkeypatch.setattr("lresnet.data.formats.image_file.SCAN_PIXELS", scans * 1600 - 1)
    for file in (tmp_path / "a.jpg", io.BytesIO(content)):
        with pytest.raises(ValueError, match=rf"it has {scans} scans of 1,600 pixels; the limit is "):
            open_image(file)


def test_only_image_formats_of_our_suffixes_are_opened(tmp_path: Path) -> None:
    """Others, such as EPS, may start other programs."""
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n")
    with pytest.raises(OSError, match="cannot identify image file"):
        open_image(path)


@pytest.mark.parametrize(("orientation", "shape"), [(None, (2, 3, 3)), (6, (3, 2, 3))])
def test_images_are_turned_upright(tmp_path: Path, orientation: int | None, shape: tuple[int, ...]) -> None:
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    Image.fromarray(np.zeros((2, 3, 3), np.uint8)).save(tmp_path / "a.jpg", exif=exif)
    assert read_pixels(tmp_path / "a.jpg", None).shape == shape
