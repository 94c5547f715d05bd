"""Texts in files: one file, also gzipped, or a folder of ``.txt`` files."""

from __future__ import annotations

import codecs
from pathlib import Path

from lresnet._limits import TEXT_BYTES
from lresnet.data.formats.compressed import read_expanded

__all__ = ["read_documents"]

_SUFFIXES = (".txt", ".txt.gz")


def read_documents(path: Path) -> list[bytes]:
    """Return the bytes of a text file, or of all ``.txt`` and ``.txt.gz`` files below a folder, sorted by their paths.

    Files without content are left out, and so is the byte-order mark at the beginning of a file.

    Raises:
        FileNotFoundError: there is no such path, or no text in the folder.
        ValueError: a file is not a text, is damaged, or the texts are too large or empty.
    """
    if path.is_dir():
        found = (child for child in path.rglob("*") if child.name.lower().endswith(_SUFFIXES) and child.is_file())
        files = sorted(found, key=lambda child: child.relative_to(path).as_posix())
        if not files:
            raise FileNotFoundError(f"{path} has no .txt or .txt.gz files; give a text file, or a folder of them")
    elif path.exists():
        files = [path]
    else:
        raise FileNotFoundError(f"the text {path} does not exist; give a text file, or a folder of .txt files")
    documents, size = [], 0
    for file in files:
        size += file.stat().st_size
        if size <= TEXT_BYTES:
            content = read_expanded(file, is_text=True)
            size += len(content) - file.stat().st_size
        if size > TEXT_BYTES:
            raise ValueError(f"{path} has more than {TEXT_BYTES:,} bytes of text, the limit; train on a part of it")
        _require_text(file, content)
        content = content.removeprefix(codecs.BOM_UTF8)
        if content:
            documents.append(content)
    if not documents:
        raise ValueError(f"{path} is empty; give a text, if possible of 100 kilobytes or more")
    return documents


def _require_text(file: Path, content: bytes) -> None:
    """Raise an error for a file that is not a text in bytes: those of UTF-16, images and archives have zero bytes."""
    # The mark of UTF-32 in little-endian order begins with that of UTF-16.
    for marks, name in (((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "32"), ((b"\xff\xfe", b"\xfe\xff"), "16")):
        if content.startswith(marks):
            raise ValueError(
                f"{file} is UTF-{name}; convert it first: iconv -f utf-{name} -t utf-8 {file.name} > text.txt"
            )
    place = content.find(b"\0")
    if place >= 0:
        raise ValueError(
            f"{file} is not a text: byte {place:,} is zero, as in binary files and in UTF-16; give a UTF-8 text file"
        )
