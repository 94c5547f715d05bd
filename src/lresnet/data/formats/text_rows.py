"""Text files of users as blocks of lines and rows of columns: compression, encoding, separators, quotes, comments."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lresnet._files import open_file
from lresnet._limits import LINE_BYTES, largest_text
from lresnet.data.formats.compressed import GZIP, GZIP_ERRORS
from lresnet.data.quoting import quoted

__all__ = [
    "LONGEST_NAME",
    "SEPARATORS",
    "Block",
    "RestartError",
    "Rows",
    "Table",
    "TextFile",
    "encoding_note",
    "is_number",
    "split_line",
]

SEPARATORS = {"\t": "a tab", ";": "a semicolon", ",": "a comma", "|": "a vertical bar", " ": "white space"}
"""Separators of columns, in the order in which they are tried, and what messages call them."""

LONGEST_NAME = 10_000
"""Longest name of a node, in characters. A longer one is a sign of a damaged file."""

_BLOCK = LINE_BYTES  # bytes read at a time; a longer line is refused
_TABLE_SAMPLE = 200  # lines that determine the separator of a table
_COMMENTS = ("#", "%")
_BLANK = " \t\r"


@dataclass(frozen=True)
class Block:
    """Complete lines of a file, as UTF-8.

    Args:
        first_line: Number of the first line, counted from 1.
        text: The lines with their line feeds.
    """

    first_line: int
    text: bytes


class TextFile:
    """A text file, plain or gzipped, as blocks of UTF-8.

    The encoding is UTF-8, UTF-16 with a byte order mark, or else Latin-1. Lines end with LF, CRLF or CR.

    Args:
        path: The file.

    Attributes:
        encoding: ``"UTF-8"``, ``"UTF-16"`` or ``"Latin-1"``; known after the first block, and Latin-1 only after
            :meth:`blocks` has met a byte that is not UTF-8.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.encoding = "UTF-8"
        self.latin_line = 0
        self._left: int | None = None  # bytes to which a compressed file may still expand

    def blocks(self) -> Iterator[Block]:
        """Yield the file in blocks of about 4 MB.

        Raises:
            RestartError: A byte is not UTF-8. Discard what was read and call again: the file is then read as Latin-1.
            ValueError: The file is not text, is damaged, or has a line of more than 4 MB.
        """
        try:
            with self._open() as file:
                yield from self._blocks(file)
        except GZIP_ERRORS as error:
            raise ValueError(f"{self.path} cannot be decompressed: {error}") from error

    def _open(self) -> gzip.GzipFile | io.BufferedReader:
        with open_file(self.path) as file:
            compressed = file.read(2) == GZIP
        self._left = largest_text(self.path.stat().st_size) if compressed else None
        return gzip.open(self.path) if compressed else open_file(self.path)

    def _blocks(self, file: gzip.GzipFile | io.BufferedReader) -> Iterator[Block]:
        start = self._next(file)
        decoder: codecs.IncrementalDecoder | None = None
        if self.encoding == "Latin-1":
            decoder = codecs.getincrementaldecoder("latin-1")()
        elif start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self.encoding = "UTF-16"
            decoder = codecs.getincrementaldecoder("utf-16")()
        else:
            start = start.removeprefix(codecs.BOM_UTF8)
        line, rest, old_mac = 1, b"", None
        while True:
            chunk = self._decoded(decoder, start)
            if old_mac is None:
                old_mac = b"\r" in chunk and b"\n" not in chunk
            data = rest + (chunk.replace(b"\r", b"\n") if old_mac else chunk)
            start = self._next(file)
            end = len(data) if not start else data.rfind(b"\n") + 1
            text, rest = data[:end], data[end:]
            if len(rest) > _BLOCK:
                number = line + text.count(b"\n")
                raise ValueError(
                    f"{self.path}, line {number}: the line has more than {_BLOCK:,} bytes; is it a text file?"
                )
            if text:
                self._require_text(line, text)
                yield Block(line, text)
                line += text.count(b"\n")
            if not start:
                return

    def _next(self, file: gzip.GzipFile | io.BufferedReader) -> bytes:
        chunk = file.read(_BLOCK)
        if self._left is not None:
            self._left -= len(chunk)
            if self._left < 0:
                limit = largest_text(self.path.stat().st_size)
                raise ValueError(
                    f"{self.path} expands to more than {limit:,} bytes, the limit for this file; decompress it first"
                )
        return chunk

    def _decoded(self, decoder: codecs.IncrementalDecoder | None, chunk: bytes) -> bytes:
        if decoder is None:
            return chunk
        try:
            return decoder.decode(chunk, final=len(chunk) < _BLOCK).encode()
        except UnicodeError as error:
            raise self._not_text() from error

    def _require_text(self, line: int, text: bytes) -> None:
        if b"\0" in text:
            raise self._not_text()
        if text.isascii():
            return
        try:
            text.decode()
        except UnicodeDecodeError as error:
            self.encoding, self.latin_line = "Latin-1", line + text[: error.start].count(b"\n")
            raise RestartError from None

    def _not_text(self) -> ValueError:
        return ValueError(f"{self.path} is not a text file; each line must be a row of text")


class RestartError(Exception):
    """The encoding turned out to be another one; the file has to be read again from its start."""


class Rows:
    """The rows of a block: one list of fields per line, without blank lines and comment lines.

    Args:
        path: The file, for error messages.
        block: The lines.
        separator: A key of :data:`SEPARATORS`.

    Attributes:
        line: Number of the line of the current row.
        comments: Number of comment lines so far.
    """

    def __init__(self, path: Path, block: Block, separator: str) -> None:
        self.path, self.block, self.separator = path, block, separator
        self.line = block.first_line - 1
        self.comments = 0

    def __iter__(self) -> Iterator[list[str]]:
        return self._words() if self.separator == " " else self._fields()

    def _words(self) -> Iterator[list[str]]:
        for line in self._lines():
            if '"' in line:
                try:
                    yield next(csv.reader([line.replace("\t", " ")], delimiter=" ", skipinitialspace=True, strict=True))
                except csv.Error as error:
                    raise self._refused(self.line, error) from error
            else:
                yield [word for word in line.replace("\t", " ").split(" ") if word]

    def _fields(self) -> Iterator[list[str]]:
        fed = rows = start = 0

        def feed() -> Iterator[str]:
            nonlocal fed, start
            for line in self._lines():
                fed += 1
                if fed == rows + 1:
                    start = self.line
                yield line

        try:
            for row in csv.reader(feed(), delimiter=self.separator, skipinitialspace=True, strict=True):
                rows += 1
                if rows != fed:
                    raise self._refused(start, "a quoted field continues on the next line")
                yield row
        except csv.Error as error:
            raise self._refused(start, error) from error

    def _refused(self, line: int, error: object) -> ValueError:
        limit = f"a name may have up to {LONGEST_NAME:,} characters, and a quoted one must end on its line"
        return ValueError(f"{self.path}, line {line}: {error}; check the quotes ({limit})")

    def _lines(self) -> Iterator[str]:
        text = self.block.text.decode()
        for line in text.split("\n"):
            self.line += 1
            content = line.strip(_BLANK)
            if not content:
                continue
            if content.startswith(_COMMENTS):
                self.comments += 1
                continue
            yield content if self.separator != "\t" else line.strip(" \r")


def split_line(line: str, separator: str) -> list[str]:
    """Return the fields of one line, without white space around them.

    Example:
        >>> split_line('"Rome, Italy", Oslo ,2', ",")
        ['Rome, Italy', 'Oslo', '2']
    """
    try:
        (fields,) = Rows(Path(), Block(1, line.encode()), separator)
    except ValueError:
        return [line]
    return [field.strip(_BLANK) for field in fields]


def is_number(text: str) -> bool:
    """Return whether ``text`` is a number, NaN and infinity included."""
    try:
        float(text)
    except ValueError:
        return False
    return True


class Table:
    """A text file with one row per node and the same number of columns in every row, read in blocks.

    Iteration yields each row with its line number. The separator is the one that gives most of the first rows the same
    number of columns, at least two; a file of one column is read as such.

    Args:
        path: The file.

    Attributes:
        notes: How the file was read, one sentence each.

    Raises:
        ValueError: The file is not text; on iteration: a row has another number of columns, or there are no rows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = TextFile(path)
        try:
            for _ in self._file.blocks():
                pass
        except RestartError:  # from here on the file is read as Latin-1
            pass
        self.notes = [] if self._file.encoding == "UTF-8" else [encoding_note(self._file)]
        self._separator = _table_separator(next(self._file.blocks(), Block(1, b"")))

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        columns = first_line = 0
        for block in self._file.blocks():
            rows = Rows(self.path, block, self._separator)
            for row in rows:
                if not columns:
                    columns, first_line = len(row), rows.line
                if len(row) != columns:
                    raise ValueError(
                        f"{self.path}, line {rows.line}: expected {columns} columns separated by "
                        f"{SEPARATORS[self._separator]}, as in line {first_line}, found {len(row)}: "
                        f"{quoted(self._separator.join(row))}"
                    )
                yield rows.line, [field.strip(_BLANK) for field in row]
        if not columns:
            raise ValueError(f"{self.path} holds no rows")


def _table_separator(block: Block) -> str:
    lines = block.text[:_BLOCK].decode("utf-8", "ignore").split("\n", _TABLE_SAMPLE)[:_TABLE_SAMPLE]
    sample = [line for raw in lines if (line := raw.strip(_BLANK)) and not line.startswith(_COMMENTS)]
    best, most = ",", 0
    for separator in SEPARATORS:
        widths = Counter(width for line in sample if (width := len(split_line(line, separator))) > 1)
        count = widths.most_common(1)[0][1] if widths else 0
        if count > most:
            best, most = separator, count
    return best


def encoding_note(file: TextFile) -> str:
    """Return the sentence that reports an encoding other than UTF-8."""
    if file.encoding == "Latin-1":
        return (
            f"{file.path.name} is not UTF-8 (line {file.latin_line}); it is read as Latin-1. If names look wrong, save "
            "it as UTF-8."
        )
    return f"{file.path.name} is read as {file.encoding}."
