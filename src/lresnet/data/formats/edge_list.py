"""Edge lists as text: one edge per row, read in blocks, with the form of the file detected and reported.

A row has two node names and, if there is one, a weight. A block of plain numbers is parsed with array operations;
any other block row by row. Both give the same result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lresnet.data.formats.text_rows import (
    LONGEST_NAME,
    SEPARATORS,
    Block,
    RestartError,
    Rows,
    TextFile,
    encoding_note,
    is_number,
    split_line,
)
from lresnet.data.quoting import quoted

__all__ = ["EdgeList", "number_names", "read_edge_list"]

_SAMPLE_LINES = 1000
_SAMPLE_BYTES = 2**20
_LONGEST_INTEGER = 18  # digits that always fit in int64
_LONGEST_NUMBER = 32  # characters of a weight in a block of plain numbers

_PARENT_TITLE = re.compile("parent|broader|hypernym|superclass")  # of a column in a taxonomy

# Pairs of column names that stand for the two ends of an edge.
_ENDS = (
    ("source", "target"),
    ("src", "dst"),
    ("src", "dest"),
    ("source", "destination"),
    ("from", "to"),
    ("fromnodeid", "tonodeid"),
    ("fromnode", "tonode"),
    ("fromid", "toid"),
    ("sourceid", "targetid"),
    ("sourcenode", "targetnode"),
    ("start", "end"),
    ("head", "tail"),
    ("node1", "node2"),
    ("node", "neighbor"),
    ("node", "neighbour"),
    ("nodea", "nodeb"),
    ("id1", "id2"),
    ("name1", "name2"),
    ("parent", "child"),
    ("child", "parent"),
    ("citing", "cited"),
    ("follower", "followee"),
)
_WEIGHT_NAMES = ("weight", "weights", "w", "edgeweight", "value", "count", "strength")
# Third columns of numbers that are not weights.
_OTHER_NAMES = ("time", "timestamp", "date", "year", "since", "day", "id", "edgeid", "type", "label", "key")

_INTEGER = re.compile(r"0|[1-9][0-9]{0,17}")
_PYTHON_WEIGHT = re.compile(r"""['"]weight['"]: *([^,} ]+)""")


@dataclass(frozen=True)
class EdgeList:
    """The rows of an edge list.

    Args:
        edges: ``[2, m]``, int64: one column per row of the file, with repetitions and self loops.
        num_nodes: Number of nodes n.
        names: Names of the nodes; empty if the names are the numbers 0 to n - 1, which are then the node numbers.
            Otherwise nodes are numbered in the order of their first appearance.
        weights: ``[m]``, float64, or None.
        notes: How the file was read, one sentence each.
    """

    edges: NDArray[np.int64]
    num_nodes: int
    names: tuple[str, ...]
    weights: NDArray[np.float64] | None
    notes: tuple[str, ...]


def read_edge_list(path: str | Path) -> EdgeList:
    """Read a text file with one edge per row, plain or gzipped.

    Detected: the separator (tab, semicolon, comma, vertical bar or white space), a header, quoted names, a weight
    column, the columns of the two ends if the header names them (``source``, ``target``, ...), the encoding (UTF-8,
    UTF-16 with a byte order mark, else Latin-1). Lines that start with ``#`` or ``%`` are comments. White space around
    a name is not part of it. What was detected is in ``notes``. The file is read in blocks: the memory is that of the
    result.

    Raises:
        OSError: The file cannot be read.
        ValueError: A row has no two names or no positive weight, or a name has more than 10,000 characters (the message
            has the line), or there are no rows.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "flights.csv")
        ...     _ = file.write_text("source,target,weight\\nOslo,Rome,2\\nRome,Bern,0.5\\n")
        ...     edge_list = read_edge_list(file)
        >>> edge_list.edges.tolist(), edge_list.names, edge_list.weights.tolist()
        ([[0, 1], [1, 2]], ('Oslo', 'Rome', 'Bern'), [2.0, 0.5])
        >>> print(*edge_list.notes, sep="\\n")
        flights.csv has 2 rows; columns are separated by a comma; line 1 is a header; weights are in column 3 (weight).
    """
    path = Path(path)
    file = TextFile(path)
    try:
        return _read(file)
    except RestartError:
        return _read(file)


def _read(file: TextFile) -> EdgeList:
    form: _Form | None = None
    reader: _Reader | None = None
    for block in file.blocks():
        if form is None:
            form = _detect(block)
            if form is None:  # comments only, so far
                continue
            reader = _Reader(file.path, form)
            if form.header_line:
                block = _after(block, form.header_line)
        assert reader is not None
        reader.add(block)
    if reader is None or not reader.rows:
        problem = "the file is empty"
        if file.path.stat().st_size:
            problem = "all its lines are blank or comments (# or %)" if form is None else "it has a header only"
        raise ValueError(f"{file.path} holds no edges: {problem}")
    return reader.finish(file)


# --- the form of the file ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """Separator, header and columns of an edge list."""

    separator: str
    header_line: int  # 0 without a header
    header: tuple[str, ...]
    ends: tuple[int, int]
    weight: int | None
    width: int  # number of columns of most rows
    comments: int  # comment lines above the header
    python_weights: bool = False  # the weight is in a dictionary, as networkx writes it


def _detect(block: Block) -> _Form | None:
    """Return the form of the file by its first rows; None if there is no row."""
    numbered = _sample(block)
    if not numbered:
        return None
    lines = [line for _, line in numbered]
    separator = _separator(lines)
    rows = [split_line(line, separator) for line in lines]
    header = _is_header(rows)
    body = rows[1:] if header else rows
    titles = tuple(rows[0]) if header else ()
    ends = _ends(titles)
    width = Counter(len(row) for row in body).most_common(1)[0][0] if body else len(rows[0])
    weight, python_weights = _weight_column(titles, body, ends, separator)
    return _Form(
        separator=separator,
        header_line=numbered[0][0] if header else 0,
        header=titles,
        ends=ends,
        weight=weight,
        width=width,
        comments=_comments_above(block, numbered[0][0]) if header else 0,
        python_weights=python_weights,
    )


def _sample(block: Block) -> list[tuple[int, str]]:
    text = block.text[:_SAMPLE_BYTES].decode("utf-8", "ignore")
    lines = text.split("\n")
    if len(block.text) > _SAMPLE_BYTES:
        lines = lines[:-1] or lines  # the last one is cut
    found = []
    for number, line in enumerate(lines, start=block.first_line):
        content = line.strip(" \t\r")[: 4 * LONGEST_NAME]  # more of a line is refused later
        if content and not content.startswith(("#", "%")):
            found.append((number, content))
            if len(found) == _SAMPLE_LINES:
                break
    return found


def _separator(lines: Sequence[str]) -> str:
    """Return the separator that gives most rows two names.

    A separator that leaves two columns, or three with a number in the third, is preferred, since names may contain the
    others.
    """
    best, best_score = " ", (False, False, 0.0, 0.0)
    for separator in SEPARATORS:
        rows = [split_line(line, separator) for line in lines]
        split = [row for row in rows if len(row) >= 2]
        if not split:
            continue
        width = Counter(len(row) for row in split).most_common(1)[0][0]
        good = [row for row in split if row[0] and row[1] and (separator == " " or len(row) == width)]
        share = len(good) / len(rows)
        body = good[1:] or good  # the first row may be a header
        plain = sum(len(row) == 2 or (len(row) == 3 and _like_number(row[2])) for row in body) > 0.9 * len(body)
        score = (share > 0.5, plain and share > 0.5, round(share, 2), len(split) / len(rows))
        if score > best_score:
            best, best_score = separator, score
    return best


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row names the columns."""
    first, body = rows[0], rows[1:]
    titles = [_title(field) for field in first]
    if len(first) < 2 or first[0] == first[1]:
        return False
    for start, end in _ENDS:
        if start in titles and end in titles:
            # "parent, child" may be an edge between two words, but then one of them usually occurs again.
            return not any(name in first[:2] for row in body for name in row[:2])
    if not body:
        return False
    if not any(is_number(field) for field in first[:2]) and all(
        len(row) >= 2 and _INTEGER.fullmatch(row[0]) and _INTEGER.fullmatch(row[1]) for row in body
    ):
        return True
    if len(first) > 2 and all(len(row) > 2 and is_number(row[2]) for row in body):
        return not is_number(first[2]) and not first[2].startswith("{")
    return _is_title_pair(first, body)


def _is_title_pair(first: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row is e.g. ``person_a, person_b`` above rows of other names."""
    a, b = (field.lower() for field in first[:2])
    prefix = a[:-1]
    if a == b or len(prefix) < 3 or prefix != b[:-1] or not a[-1].isalnum():
        return False
    return not any(name.lower().startswith(prefix) for row in body for name in row[:2])


def _like_number(text: str) -> bool:
    """Return whether ``text`` is a number, possibly with a decimal comma (which is refused when it is read)."""
    return is_number(text.replace(",", ".", 1))


def _title(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _ends(titles: Sequence[str]) -> tuple[int, int]:
    plain = [_title(title) for title in titles]
    for start, end in _ENDS:
        if start in plain and end in plain:
            return plain.index(start), plain.index(end)
    return 0, 1


def _weight_column(
    titles: Sequence[str], body: Sequence[Sequence[str]], ends: tuple[int, int], separator: str
) -> tuple[int | None, bool]:
    """Return the column of the weights, if there is one, and whether it holds dictionaries."""
    plain = [_title(title) for title in titles]
    for name in _WEIGHT_NAMES:
        if name in plain and plain.index(name) not in ends:
            return plain.index(name), False
    if ends != (0, 1) or (len(plain) > 2 and plain[2] in _OTHER_NAMES):
        return None, False
    numbers = sum(len(row) > 2 and _like_number(row[2]) for row in body)
    if numbers and numbers >= 0.5 * len(body):
        return 2, False
    if separator == " ":
        dictionaries = sum(_python_weight(" ".join(row[2:])) != "" for row in body)
        if dictionaries > 0.5 * len(body):
            return 2, True
    return None, False


def _python_weight(text: str) -> str:
    """Return the last weight of a dictionary as networkx writes it; empty if there is none. One pass over ``text``."""
    found = _PYTHON_WEIGHT.findall(text) if text.startswith("{") and text.endswith("}") else []
    return found[-1] if found else ""


def _comments_above(block: Block, line: int) -> int:
    above = block.text.split(b"\n", line - block.first_line)[: line - block.first_line]
    return sum(text.lstrip().startswith((b"#", b"%")) for text in above)


def _after(block: Block, line: int) -> Block:
    """Return the block without its lines up to ``line``."""
    parts = block.text.split(b"\n", line - block.first_line + 1)
    return Block(line + 1, parts[-1] if len(parts) > line - block.first_line + 1 else b"")


# --- the rows ---------------------------------------------------------------------------------------------------------


@dataclass
class _Reader:
    """Collects the rows of a file block by block."""

    path: Path
    form: _Form
    rows: int = 0
    comments: int = 0
    integers: list[NDArray[np.int64] | NDArray[np.int32]] = field(default_factory=list)  # [m, 2], before the first text
    ends: list[NDArray[np.int64]] = field(default_factory=list)  # [m, 2], node numbers, after it
    weights: list[NDArray[np.float64]] = field(default_factory=list)
    number: dict[str, int] | None = None  # name to node number, from the first name that is not an integer
    extra: bool = False  # a row has columns that are not read

    def __post_init__(self) -> None:
        self.comments = self.form.comments

    def add(self, block: Block) -> None:
        """Add the rows of a block."""
        if self.number is None and self._add_numbers(block):
            return
        if self.number is None:
            self._switch_to_names()
        self._add_rows(block)

    def _add_numbers(self, block: Block) -> bool:
        """Add a block of integers (and weights); return False if anything in it is not plain."""
        text, comments = _without_comments(block.text)
        found = _numbers(text, self.form)
        if found is None:
            return False
        pairs, weights = found
        if weights is not None:
            if not _usable(weights).all():
                return False  # the rows are read one by one to report the line
            self.weights.append(weights)
        self.integers.append(pairs.astype(np.int32) if pairs.max(initial=0) < 2**31 else pairs)
        self.rows += len(pairs)
        self.comments += comments
        self.extra |= self.form.width > (2 if weights is None else 3)
        return True

    def _switch_to_names(self) -> None:
        """Continue with names in place of integers."""
        self.number = {}
        if self.integers:
            pairs, _, names = _number_integers(np.concatenate(self.integers).astype(np.int64), keep_dense=False)
            self.number = {name: position for position, name in enumerate(names)}
            self.ends, self.integers = [pairs], []

    def _add_rows(self, block: Block) -> None:
        assert self.number is not None
        number, form = self.number, self.form
        first, second = form.ends
        needed = max(first, second)
        used = len({first, second, form.weight} - {None})
        rows = Rows(self.path, block, form.separator)
        found: list[int] = []
        weights: list[float] = []
        for row in rows:
            if len(row) <= needed:
                raise self._no_names(rows.line, row)
            a, b = row[first].strip(" \t"), row[second].strip(" \t")
            if not a or not b:
                raise self._no_names(rows.line, row)
            if len(a) > LONGEST_NAME or len(b) > LONGEST_NAME:
                name = max(a, b, key=len)
                raise ValueError(
                    f"{self.path}, line {rows.line}: the node name {quoted(name)} is too long; names may have up to "
                    f"{LONGEST_NAME:,} characters"
                )
            found.append(number.setdefault(a, len(number)))
            found.append(number.setdefault(b, len(number)))
            if form.weight is not None:
                weights.append(self._weight(rows.line, row, form.weight))
            if len(row) > used and row[used] and not (form.python_weights or row[used].startswith("#")):
                self.extra = True
        self.ends.append(np.array(found, dtype=np.int64).reshape(-1, 2))
        if form.weight is not None:
            self.weights.append(np.array(weights, dtype=np.float64))
        self.rows += len(found) // 2
        self.comments += rows.comments

    def _weight(self, line: int, row: list[str], column: int) -> float:
        text = row[column].strip(" \t") if len(row) > column else ""
        if self.form.python_weights:
            text = _python_weight(" ".join(row[column:]))
        try:
            weight = float(text)
        except ValueError:
            problem = f"{quoted(text)} is not a number (write a decimal point)" if text else "there is none"
            if _PARENT_TITLE.search(text.casefold()):
                problem += "; for ancestors in a taxonomy use --task hierarchy"
            raise ValueError(
                f"{self.path}, line {line}: expected a weight in column {column + 1}, but {problem}"
            ) from None
        if not _usable(np.array([weight]))[0]:
            advice = "delete the row, since 0 means no edge" if weight == 0 else "change it or delete the column"
            raise ValueError(
                f"{self.path}, line {line}: the weight is {text}, but weights must be positive and finite; {advice}"
            )
        return weight

    def _no_names(self, line: int, row: list[str]) -> ValueError:
        separator = self.form.separator
        return ValueError(
            f"{self.path}, line {line}: expected two node names, found {quoted(separator.join(row))}; "
            f"columns are separated by {SEPARATORS[separator]}"
        )

    def finish(self, file: TextFile) -> EdgeList:
        """Return all rows with the nodes numbered."""
        weights = np.concatenate(self.weights) if self.weights else None
        if self.number is None:
            joined: NDArray[Any] = np.concatenate(self.integers)
            self.integers.clear()
            pairs, count, names = _number_integers(joined, keep_dense=True)
        else:
            order, names = number_names(list(self.number))
            count = len(order)
            pairs = np.concatenate(self.ends)
            if not names:
                pairs = order[pairs]
        notes = [*self._notes(file), *self._doubtful_header(pairs, names)]
        return EdgeList(np.ascontiguousarray(pairs.T, dtype=np.int64), count, names, weights, tuple(notes))

    def _doubtful_header(self, pairs: NDArray[Any], names: Sequence[str]) -> list[str]:
        """Return a note if the first row was read as an edge, but may be a header: no other row has its names."""
        if self.form.header_line or not names or len(pairs) == 1 or bool(np.isin(pairs[1:], pairs[0]).any()):
            return []
        first, second = (quoted(names[node]) for node in pairs[0])
        return [
            f"The first row is read as an edge, but no other row has {first} or {second}; if it is a header, "
            "write # in front of it."
        ]

    def _notes(self, file: TextFile) -> list[str]:
        form = self.form
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        parts = [f"{self.path.name} has {rows}", f"columns are separated by {SEPARATORS[form.separator]}"]
        if form.header_line:
            parts.append(f"line {form.header_line} is a header")
            if form.ends != (0, 1):
                first, second = (f"{column + 1} ({form.header[column]})" for column in form.ends)
                parts.append(f"edges join columns {first} and {second}")
        if form.weight is not None:
            title = f" ({quoted(form.header[form.weight])[1:-1]})" if form.weight < len(form.header) else ""
            parts.append(f"weights are in column {form.weight + 1}{title}")
        if self.extra:
            used = {*form.ends, form.weight}
            unread = [str(column + 1) for column in range(form.width) if column not in used]
            if form.header:
                unread = [
                    f"{column} ({form.header[int(column) - 1]})" for column in unread if int(column) <= len(form.header)
                ]
            listed = ", ".join(unread[:4]) + (", ..." if len(unread) > 4 else "")
            parts.append(f"columns not read: {listed}" if unread else "columns after these are not read")
        if self.comments:
            parts.append(f"{self.comments:,} comment {'line is' if self.comments == 1 else 'lines are'} skipped")
        notes = ["; ".join(parts) + "."]
        if form.header_line and {form.header[column].strip().casefold() for column in form.ends} == {"child", "parent"}:
            notes.append("The columns are called child and parent; for ancestors in a taxonomy use --task hierarchy.")
        elif titles := [title for title in form.header if _PARENT_TITLE.search(title.casefold())]:
            notes.append(f"A column is called {titles[0]}; for ancestors in a taxonomy use --task hierarchy.")
        if file.encoding != "UTF-8":
            notes.append(encoding_note(file))
        return notes


def _usable(weights: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which weights are positive and finite in float32."""
    with np.errstate(over="ignore", under="ignore"):
        single = weights.astype(np.float32)
    return (single > 0) & np.isfinite(single)


# --- blocks of plain numbers ------------------------------------------------------------------------------------------


def _without_comments(text: bytes) -> tuple[bytes, int]:
    if b"#" not in text and b"%" not in text:
        return text, 0
    return re.subn(rb"(?m)^[ \t]*[#%][^\n]*(?:\n|\Z)", b"", text)


def _numbers(text: bytes, form: _Form) -> tuple[NDArray[np.int64], NDArray[np.float64] | None] | None:
    """Return the pairs ``[m, 2]`` and the weights of a block; None if it is not plain.

    Plain means: no quotes, the same number of columns in every row, and node names that are integers from 0 without
    leading zeros.
    """
    separator = form.separator.encode()
    if b'"' in text or form.python_weights:
        return None
    if separator != b" " and b" " in text:
        text = text.replace(separator + b" ", separator)
        if b" " in text:
            return None
    if not text.endswith(b"\n"):
        text += b"\n"
    if text.count(b"\r") != text.count(b"\r\n"):
        return None
    characters = np.frombuffer(text, dtype=np.uint8)
    newline = characters == ord("\n")
    gap = newline | (characters == ord("\r")) | (characters == separator[0])
    if separator == b" ":
        gap |= characters == ord("\t")
    before = np.concatenate([[True], gap[:-1]])
    starts = np.flatnonzero(~gap & before)
    ends = np.flatnonzero(gap & ~before)
    per_line = np.diff(np.searchsorted(starts, np.flatnonzero(newline)), prepend=0)
    width, rows = form.width, np.count_nonzero(per_line)
    if rows * width != starts.size or not np.isin(per_line, (0, width)).all():
        return None
    if width <= max(form.ends):
        return None  # a single column; the other reader names the line
    if separator != b" " and text.count(separator) != rows * (width - 1):
        return None  # an empty field
    columns = []
    for column in form.ends:
        integers = _integers(characters, starts[column::width], ends[column::width])
        if integers is None:
            return None
        columns.append(integers)
    if form.weight is None:
        return np.stack(columns, axis=1), None
    if form.weight >= width:
        return None
    weights = _floats(characters, starts[form.weight :: width], ends[form.weight :: width])
    return None if weights is None else (np.stack(columns, axis=1), weights)


def _integers(
    characters: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Return the integers that stand at these places; None if one is not a plain integer."""
    length = ends - starts
    longest = int(length.max(initial=0))
    if longest > _LONGEST_INTEGER or ((characters[starts] == ord("0")) & (length > 1)).any():
        return None
    value = np.zeros(starts.size, dtype=np.int64)
    for place in range(longest):
        inside = place < length
        digit = characters[np.minimum(starts + place, characters.size - 1)] - np.uint8(ord("0"))  # wraps below "0"
        if (digit[inside] > 9).any():
            return None
        value = np.where(inside, 10 * value + digit, value)
    return value


def _floats(
    characters: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    length = ends - starts
    longest = int(length.max(initial=1))
    if longest > _LONGEST_NUMBER:
        return None
    places = np.arange(longest)
    matrix = characters[np.minimum(starts[:, None] + places, characters.size - 1)]
    matrix[places >= length[:, None]] = 0
    try:
        return np.ascontiguousarray(matrix).view(f"S{longest}")[:, 0].astype(np.float64)
    except ValueError:
        return None


# --- from names to node numbers ---------------------------------------------------------------------------------------


def _number_integers(pairs: NDArray[Any], *, keep_dense: bool) -> tuple[NDArray[np.int64], int, tuple[str, ...]]:
    """Return node numbers ``[m, 2]``, the number of nodes, and the names.

    Integers that are 0 to n - 1 without a gap are node numbers if ``keep_dense``. Otherwise the nodes are numbered in
    the order of first appearance.
    """
    flat = pairs.reshape(-1)
    highest = int(flat.max(initial=-1))
    if highest < 4 * flat.size:
        first = np.full(highest + 1, -1, dtype=np.int64)
        first[flat[::-1]] = np.arange(flat.size - 1, -1, -1)  # the last assignment wins
        values = np.flatnonzero(first >= 0)
        if keep_dense and values.size == highest + 1:
            return pairs.astype(np.int64, copy=False), values.size, ()
        order = values[np.argsort(first[values])]
        table = first
        table[order] = np.arange(order.size)
        numbers = table[flat]
    else:
        values, first, position = np.unique(flat, return_index=True, return_inverse=True)
        rank = np.argsort(first)
        order = values[rank]
        table = np.empty_like(rank)
        table[rank] = np.arange(rank.size)
        numbers = table[position.reshape(-1)]
    return numbers.reshape(-1, 2), order.size, tuple(map(str, order.tolist()))


def number_names(names: Sequence[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the node number of each of n different names, and the names by node number.

    If the names are the integers 0 to n - 1, they are the node numbers, and no names are returned. Otherwise the nodes
    keep their order.

    Example:
        >>> number_names(["2", "0", "1"])
        (array([2, 0, 1]), ())
        >>> number_names(["b", "a"])
        (array([0, 1]), ('b', 'a'))
    """
    if all(_INTEGER.fullmatch(name) for name in names):
        numbers = np.array([int(name) for name in names], dtype=np.int64)
        if numbers.size and int(numbers.max()) == numbers.size - 1:
            return numbers, ()
    return np.arange(len(names)), tuple(names)
