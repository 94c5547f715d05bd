"""Files that may be gzipped, read into memory up to a limit."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from lresnet._files import open_file
from lresnet._limits import largest_expansion, largest_text

__all__ = ["GZIP", "GZIP_ERRORS", "read_expanded"]

GZIP = b"\x1f\x8b"
"""The first bytes of a gzipped file."""

GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)
"""Errors that a damaged gzipped file may raise."""


def read_expanded(path: Path, *, is_text: bool = False) -> bytes:
    """Return the content of a file, decompressed if it is gzipped.

    Args:
        path: The file.
        is_text: Whether the limit of texts holds, :func:`lresnet._limits.largest_text`, and not that of arrays.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is damaged, or expands beyond the limit.
    """
    with open_file(path) as file:
        compressed = file.read(len(GZIP)) == GZIP
        file.seek(0)
        if not compressed:
            return file.read()
        limit = (largest_text if is_text else largest_expansion)(path.stat().st_size)
        try:
            content = gzip.GzipFile(fileobj=file).read(limit + 1)
        except GZIP_ERRORS as error:
            raise ValueError(f"{path} is damaged, it cannot be decompressed: {error}") from error
    if len(content) > limit:
        raise ValueError(f"{path} expands to more than {limit:,} bytes, the limit for this file; decompress it first")
    return content
