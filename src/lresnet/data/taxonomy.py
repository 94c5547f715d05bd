"""Taxonomies of users: rows ``child,parent`` or an indented outline, checked, with the line of every problem."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lresnet._limits import CLOSURE_PAIRS
from lresnet.data.formats.graph_paths import EDGE_LISTS, graph_suffix
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

__all__ = ["Taxonomy", "ancestor_pairs", "depths", "read_taxonomy", "read_texts"]

_SAMPLE_LINES = 200
_LISTED = 5  # roots or names that a note lists
_COMMENTS = ("#", "%")

# Titles of columns, in lower case and without other characters than letters and digits.
_CHILD = ("child", "node", "name", "term", "id", "childid", "hyponym", "narrower", "subclass", "category", "descendant")
_PARENT = re.compile("parent|broader|hypernym|superclass|supercategory|ancestor|^(isa|subclassof|belongsto)$")
_OPPOSITES = {("child", "parent"), ("hyponym", "hypernym"), ("narrower", "broader"), ("subclass", "superclass")}
"""Titles that are no edge, even if the taxonomy has such names: no child is a kind of parent."""
_NUMBERED = re.compile("(id|key|code|number)$")
_NAMES = ("name", "label", "title", "term", "preflabel", "preferredlabel")
_TEXTS = ("text", "description", "definition", "gloss", "label", "features")
_RANKS = re.compile(
    "(sub|super|infra)*(domain|kingdom|phylum|division|class|order|family|tribe|genus|species|categor(y|ies)|group|"
    r"section|department|sector|industry|topic)|(level|lvl|l|rank|tier|cat)_?\d+"
)
_FEWEST_ROWS = 3  # below a header with unknown titles
_FEWEST_RANKED = 4  # rows with three values, from which columns are recognised as ranks
_WHOLE, _DECIMAL = re.compile(r"\d+"), re.compile(r"\d+\.0")
_INDENTATION = " \t\u00a0\u3000│├└─╰"
_DRAWN = str.maketrans(dict.fromkeys("\u00a0\u3000│├└─╰", " "))
"""Indentation of web pages and of programs such as ``tree``, read as spaces."""
_EMPTY_WORDS = ("null", "nan", "none", "na", "n/a", "nil", "\\n")  # what programs write for an empty field


@dataclass(frozen=True)
class Taxonomy:
    """Names and their parents: a forest, or a directed acyclic graph if a name has several parents.

    Args:
        name: Name of the taxonomy, for messages.
        names: Names of the n nodes, each once, in the order of the file.
        edges: ``[2, e]``, int64: child and parent, each pair once.
        texts: A text of each node, ``""`` where there is none; None: the file has no texts.
        notes: How the file was read, one sentence each.
    """

    name: str
    names: tuple[str, ...]
    edges: NDArray[np.int64]
    texts: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def roots(self) -> NDArray[np.int64]:
        """Numbers of the nodes without a parent."""
        return np.setdiff1d(np.arange(len(self.names)), self.edges[0])


def read_taxonomy(path: str | Path) -> Taxonomy:
    """Read a taxonomy from a text file, plain or gzipped.

    - Rows ``child,parent`` or ``child,parent,text``: ``.csv``, ``.tsv``, ``.txt``, ``.edges``, ``.edgelist``. The
      separator (tab, semicolon, comma, vertical bar; white space only if no other one splits the rows) is detected. A
      name with the separator in it is quoted. A child may have several rows, one for each parent. An empty parent
      declares a root; if the file does so, every parent needs a row of its own.
    - Rows below a header, which is detected: by a title such as ``parent``, ``parent_id``, ``broader`` or ``hypernym``,
      with the columns in any order; or because its two names occur in no other row, and then the columns are child and
      parent. With ``id,name,parent_id`` the nodes have their names, and repeated names are followed by the id.
    - An outline: ``.txt`` with at least one indented line. A line is a child of the nearest line above with a smaller
      indentation, in tabs or in spaces; the branches that ``tree`` draws count as spaces. A name may occur once.

    Lines that start with ``#`` or ``%`` are comments. There may be several roots. Repeated rows are merged.

    Raises:
        OSError: The file cannot be read.
        ValueError: A name is empty or its own parent, a parent is unknown, an outline repeats a name or its indentation
            matches no line above, the parents form a cycle (the message shows it), or there are too many ancestors. The
            message has the line.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "animals.txt")
        ...     _ = file.write_text("animal\\n  dog\\n    poodle\\n  cat\\n")
        ...     taxonomy = read_taxonomy(file)
        >>> taxonomy.names, taxonomy.edges.tolist()
        (('animal', 'dog', 'poodle', 'cat'), [[1, 2, 3], [0, 1, 0]])
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give the path of a taxonomy")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a taxonomy is one file with rows child,parent, or an indented .txt")
    if graph_suffix(path) not in EDGE_LISTS:
        raise ValueError(
            f"{path}: the suffix {path.suffix or '(none)'} is not one of a taxonomy; use rows child,parent in "
            f"{', '.join(EDGE_LISTS)}, or an indented .txt"
        )
    file, blocks = _blocks(path)
    lines = [pair for block in blocks for pair in _lines(block)]
    if not lines:
        raise ValueError(f"{path} holds no rows: it is empty, or all its lines are blank or comments (# or %)")
    is_outline = graph_suffix(path) == ".txt" and any(line[0] in _INDENTATION for _, line in lines)
    found = _outline(path, lines) if is_outline else _rows(path, blocks, lines)
    if not found.edges:
        raise ValueError(f"{path} has no row with a parent; a taxonomy needs at least one")
    names = found.names()
    pairs = list(found.edges)
    _require_no_cycle(path, names, found.edges)
    edges = np.array(pairs, dtype=np.int64).T.copy()
    notes = [found.form + "."] + ([] if file.encoding == "UTF-8" else [encoding_note(file)])
    texts = None
    if found.texts:
        texts = tuple(" ".join(dict.fromkeys(found.texts.get(number, ()))) for number in range(len(names)))
    taxonomy = Taxonomy(path.name, names, edges, texts, ())
    notes += _structure_notes(taxonomy, found, sum(map(_comments, blocks)))
    return Taxonomy(path.name, names, edges, texts, tuple(notes))


def read_texts(path: str | Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the text of every name from a file with rows ``name,text``; ``""`` for a name without a row.

    Raises:
        ValueError: A row has no two columns or an unknown name (the message has the line), or no name has a text.
    """
    path, number = Path(path), {name: place for place, name in enumerate(names)}
    _, blocks = _blocks(path)
    lines = [pair for block in blocks for pair in _lines(block)]
    separator = _separator([line for _, line in lines[:_SAMPLE_LINES]], number)
    texts, is_first, numbers = [""] * len(names), True, True
    for line, row in _all_rows(path, blocks, separator):
        if len(row) < 2:
            raise ValueError(
                f"{path}, line {line}: expected a name and a text separated by {SEPARATORS[separator]}, found "
                f"{quoted(separator.join(row))}"
            )
        if row[0] in number:
            place = number[row[0]]
            texts[place] = f"{texts[place]} {separator.join(row[1:])}".strip()
            numbers = numbers and all(map(is_number, filter(None, row[1:])))
        elif not is_first:  # the first row may be a header
            raise ValueError(f"{path}, line {line}: the taxonomy has no name {quoted(row[0])}{_near(row[0], names)}")
        is_first = False
    if not any(texts):
        raise ValueError(f"{path} has no text for a name of the taxonomy; its rows must be name,text")
    if numbers:
        raise ValueError(
            f"{path} has numbers only; the features of a taxonomy are texts, so its rows must be name,text"
        )
    return tuple(texts)


def ancestor_pairs(taxonomy: Taxonomy) -> NDArray[np.int64]:
    """Return all pairs (node, ancestor), ``[2, p]``, sorted: the transitive closure of the edges.

    Raises:
        ValueError: There are more than :data:`lresnet._limits.CLOSURE_PAIRS` of them.

    Example:
        >>> chain = Taxonomy("chain", ("a", "b", "c"), np.array([[1, 2], [0, 1]]))
        >>> ancestor_pairs(chain).tolist()
        [[1, 2, 2], [0, 0, 1]]
    """
    parents = _lists(taxonomy.edges, len(taxonomy.names))
    above: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)] * len(parents)
    order = topological(taxonomy.edges, len(parents))
    place, seen = np.argsort(order), np.zeros(len(parents), dtype=np.bool_)
    total = 0
    for node in order:
        found = list[NDArray[np.int64]]()
        for parent in sorted(parents[node], key=lambda each: -place[each]):
            if not seen[parent]:  # otherwise it is above a later parent, and so are its ancestors
                own = np.append(above[parent], parent)
                found.append(own[~seen[own]])
                seen[own] = True
        if found:
            above[node] = np.sort(np.concatenate(found))
            seen[above[node]] = False
            total += above[node].size
            if total > CLOSURE_PAIRS:
                raise ValueError(
                    f"{taxonomy.name} has more than {CLOSURE_PAIRS:,} pairs of a node and an ancestor, the limit; it "
                    "is too deep"
                )
    nodes = np.repeat(np.arange(len(above)), [each.size for each in above])
    return np.stack([nodes, np.concatenate(above)])


def depths(taxonomy: Taxonomy) -> NDArray[np.int64]:
    """Return the depth of every node, ``[n]``: the edges on the shortest path to a root.

    Example:
        >>> depths(Taxonomy("chain", ("a", "b", "c"), np.array([[1, 2], [0, 1]])))
        array([0, 1, 2])
    """
    children = _lists(taxonomy.edges[::-1], len(taxonomy.names))
    found = np.full(len(children), -1)
    found[taxonomy.roots] = 0
    queue = deque(taxonomy.roots.tolist())
    while queue:
        node = queue.popleft()
        for child in children[node]:
            if found[child] < 0:
                found[child] = found[node] + 1
                queue.append(child)
    return found


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass
class _Found:
    """What was read so far: numbers of names, lines of edges, texts, and counts for notes."""

    form: str = ""
    number: dict[str, int] = field(default_factory=dict)
    edges: dict[tuple[int, int], int] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)
    repeated: int = 0
    has_titled_parents: bool = False
    """Whether a header says which column holds the parents, or the file is an outline."""
    declared: set[int] = field(default_factory=set)
    """Roots that have a row with an empty parent."""
    labels: dict[int, str] = field(default_factory=dict)
    """Names of nodes whose rows refer to each other by numbers."""

    def add(self, name: str) -> int:
        return self.number.setdefault(name, len(self.number))

    def names(self) -> tuple[str, ...]:
        """Return the names of all nodes; a repeated name is followed by what its rows refer to it by."""
        own = [self.labels.get(number, name) for name, number in self.number.items()]
        count = Counter(own)
        named = (name if count[name] == 1 else f"{name} ({key})" for name, key in zip(own, self.number, strict=True))
        return tuple(named) if self.labels else tuple(self.number)


def _blocks(path: Path) -> tuple[TextFile, list[Block]]:
    file = TextFile(path)
    try:
        return file, list(file.blocks())
    except RestartError:
        return file, list(file.blocks())


def _lines(block: Block) -> Iterator[tuple[int, str]]:
    """Yield the number and the content of every line but blank ones and comments; indentation is kept."""
    for number, raw in enumerate(block.text.decode().split("\n"), start=block.first_line):
        line = raw.rstrip(" \t\r")
        if line and not line.lstrip(" \t").startswith(_COMMENTS):
            yield number, line


def _comments(block: Block) -> int:
    lines = (line.lstrip(" \t") for line in block.text.decode().split("\n"))
    return sum(line.startswith(_COMMENTS) for line in lines)


def _outline(path: Path, lines: Sequence[tuple[int, str]]) -> _Found:
    found = _Found("An outline: indented lines are children", has_titled_parents=True)
    above, first = list[tuple[str, int]](), dict[str, int]()
    for line, text in lines:
        name = text.lstrip(_INDENTATION)
        if not name:  # a line that only continues the branches above it
            continue
        indent = text[: len(text) - len(name)].translate(_DRAWN)
        name = re.sub(r"^[-*+•] +", "", name)  # bullets of Markdown
        _require_name(path, line, name)
        if name in first:
            raise ValueError(
                f"{path}, line {line}: the name {quoted(name)} occurs in line {first[name]} already, and a name stands "
                "for one node; rename one, or use rows child,parent to give a node several parents"
            )
        first[name] = line
        matches = True
        while above:
            last = above[-1][0]
            if not (last.startswith(indent) or indent.startswith(last)):
                raise ValueError(
                    f"{path}, line {line}: the indentation of {quoted(name)} mixes tabs and spaces with the lines "
                    "above; use one of them everywhere"
                )
            if len(last) < len(indent):
                break
            matches = last == indent
            above.pop()
        if not matches:
            raise ValueError(
                f"{path}, line {line}: the indentation of {quoted(name)} matches no line above; indent children of one "
                "parent alike"
            )
        node = found.add(name)
        if above:
            found.edges[node, above[-1][1]] = line
        above.append((indent, node))
    return found


def _rows(path: Path, blocks: Sequence[Block], lines: Sequence[tuple[int, str]]) -> _Found:
    separator = _separator([line for _, line in lines[:_SAMPLE_LINES]])
    rows = list(_all_rows(path, blocks, separator))
    columns = _columns([row for _, row in rows])
    child, parent, label, text = columns.child, columns.parent, columns.label, columns.text
    between = SEPARATORS[separator]
    header = columns.why is not None
    if header and not columns.has_titles and len(rows[0][1]) > 3:
        raise ValueError(
            f"{path}, line {rows[0][0]}: a header of {len(rows[0][1])} columns, and none has a title of parents; write "
            "one row for each name and its parent, and call these columns child and parent"
        )
    if columns.text == 2 and not columns.has_titles:
        _require_no_ranks(path, rows, header)
    count = len(rows) - header
    form = f"{path.name} has {count:,} row{'' if count == 1 else 's'}; columns are separated by {between}"
    form += f"; line {rows[0][0]} is a header {columns.why}" if header else ""
    decimals = _has_decimal_parents([row for _, row in rows[header:]], columns)
    form += "; parents such as 1.0 are read as 1" if decimals else ""
    form += "; column 3 is read as a text" if columns.text == 2 and not columns.has_titles else ""
    form += f"; column {columns.numbers + 1} holds numbers, which are not used" if columns.numbers is not None else ""
    found = _Found(form, has_titled_parents=columns.has_titles)
    for line, row in rows[header:]:
        if len(row) <= max(child, parent) or (separator == " " and len(row) != 2):
            raise _no_pair(path, line, row, separator, any(text[:1] in " \t" for _, text in lines))
        if len(row) > (max(len(rows[0][1]), 3) if header else 3):
            raise ValueError(
                f"{path}, line {line}: {len(row)} columns, but a row is child, parent and an optional text; quote a "
                f"name that contains {between}, or write a header that names the columns; if the columns are ranks, "
                "write one row for each name and its parent"
            )
        name, above = row[child], row[parent].removesuffix(".0") if decimals else row[parent]
        _require_name(path, line, name)
        node = found.add(name)
        if text is not None and len(row) > text and row[text]:
            found.texts.setdefault(node, []).append(row[text])
        if label is not None and len(row) > label and row[label]:
            _require_name(path, line, row[label])
            found.labels.setdefault(node, row[label])
        if not above:
            found.declared.add(node)
            continue
        _require_name(path, line, above)
        if above == name:
            raise ValueError(f"{path}, line {line}: {quoted(name)} is its own parent; leave the parent of a root empty")
        edge = node, found.add(above)
        if edge in found.edges:
            found.repeated += 1
        found.edges.setdefault(edge, line)
    if found.declared:
        _require_known_parents(path, found)
    return found


def _require_no_ranks(path: Path, rows: Sequence[tuple[int, Sequence[str]]], header: bool) -> None:
    """Check that three columns without titles are child, parent and text, and not a rank each.

    Columns are ranks if all their titles are, e.g. kingdom, phylum, class; if every name of a rank belongs to one name
    of the next rank and ranks share no name; or if half of the third column's values are names in the other columns.
    """
    full = [row for _, row in rows[header:] if len(row) > 2 and all(row[:3])]
    titles = [re.sub(r"[^a-z0-9]", "", title.casefold()) for title in rows[0][1][:3]]
    why = "" if not all(map(_RANKS.fullmatch, titles)) else "its titles are ranks"
    columns = [{row[column] for row in full} for column in range(3)]
    if not why and len(full) >= _FEWEST_RANKED:
        if not (columns[0] & columns[1] or columns[2] & (columns[0] | columns[1])):
            nested = _is_nested(full, (0, 1, 2)) or _is_nested(full, (2, 1, 0))
            why = "every name belongs to one name of the next column" if nested else ""
        elif len(columns[2]) > 1 and 2 * len(columns[2] & (columns[0] | columns[1])) >= len(columns[2]):
            why = "its values are names that occur in the other columns"
    if why:
        shown = ", ".join(map(quoted, rows[0][1][:3]))
        raise ValueError(
            f"{path}, line {rows[0][0]}: the three columns {shown} look like ranks and not like child, parent and text "
            f"({why}); write one row for each name and its parent, or the header child,parent,text if they are that"
        )


def _is_nested(rows: Sequence[Sequence[str]], columns: tuple[int, int, int]) -> bool:
    """Whether each name of a column belongs to one name of the column before it, and both columns branch."""
    for upper, lower in itertools.pairwise(columns):
        pairs = {(row[upper], row[lower]) for row in rows}
        names = {name for _, name in pairs}
        if len(pairs) > len(names) or len({name for name, _ in pairs}) == len(names):
            return False
    return len({row[columns[0]] for row in rows}) > 1 or columns == (0, 1, 2)


def _no_pair(path: Path, line: int, row: Sequence[str], separator: str, indented: bool) -> ValueError:
    """Return the error of a row without a child and a parent."""
    between = SEPARATORS[separator]
    if separator == " ":
        others = ", ".join(words for key, words in SEPARATORS.items() if key not in " |")
        between = f"{others}, a vertical bar, or white space if no name contains any"
    hint = "the parent of a root is empty, and a name that contains a separator is quoted"
    if separator == " " and indented:
        hint = "an indented outline needs the suffix .txt"
    elif separator == " " and graph_suffix(path) == ".txt":
        hint = "in an outline, children are indented"
    elif len(row) == 1:
        hint = "the line has one column; write the parent behind each name, e.g. dog,mammal (a root: animal,)"
    return ValueError(
        f"{path}, line {line}: expected a child and its parent separated by {between}, found "
        f"{quoted(separator.join(row))}; {hint}"
    )


def _require_name(path: Path, line: int, name: str) -> None:
    if not name:
        raise ValueError(f"{path}, line {line}: the name is empty; every row needs one")
    if len(name) > LONGEST_NAME:
        raise ValueError(
            f"{path}, line {line}: the name {quoted(name)} is too long; names may have up to {LONGEST_NAME:,} "
            "characters"
        )


def _require_known_parents(path: Path, found: _Found) -> None:
    """Check that every parent has a row of its own, since roots are declared by rows with an empty parent."""
    names = list(found.number)
    children = {child for child, _ in found.edges} | found.declared
    for (_, parent), line in found.edges.items():
        if parent not in children:
            known = [names[number] for number in children]
            raise ValueError(
                f"{path}, line {line}: the parent {quoted(names[parent])} has no row of its own"
                f"{_near(names[parent], known)}; as other roots have a row with an empty parent, give it one or "
                "correct the name"
            )
    wrong = sorted(found.declared & {child for child, _ in found.edges})
    if wrong:
        line = next(line for (child, _), line in found.edges.items() if child == wrong[0])
        raise ValueError(
            f"{path}, line {line}: {quoted(names[wrong[0]])} has a parent here and an empty parent in another row; "
            "leave one of them out"
        )


def _near(name: str, names: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {quoted(near[0])}?)" if near else ""


def _all_rows(path: Path, blocks: Sequence[Block], separator: str) -> Iterator[tuple[int, list[str]]]:
    for block in blocks:
        rows = Rows(path, block, separator)
        for row in rows:
            yield rows.line, [field.strip(" \t\r") for field in row]


def _separator(sample: Sequence[str], known: Container[str] = ()) -> str:
    """Return the separator that splits most lines into columns; white space is the last resort.

    A text may contain another separator in every line. Of several separators that split as many lines, the one counts
    that gives more ``known`` names in the first column, more names of it in another column, as children are parents of
    others, or more fields that occur again, as parents do.
    """
    best, most = " ", (0, 0, 0, 0)
    for separator in [each for each in SEPARATORS if each != " "]:
        rows = [row for line in sample if len(row := split_line(line, separator)) > 1]
        fields = Counter(field for row in rows for field in row if field)
        first, shared = {row[0] for row in rows} - {""}, Counter[int]()
        for column, name in {(column, name) for row in rows for column, name in enumerate(row[1:])}:
            shared[column] += name in first
        linked = max(shared.values(), default=0)
        found = len(rows), sum(row[0] in known for row in rows), linked, fields.total() - len(fields)
        if found > most:
            best, most = separator, found
    return best


@dataclass(frozen=True)
class _Columns:
    """Numbers of the columns; None: there is no such column."""

    child: int = 0
    parent: int = 1
    label: int | None = None
    """Names, if child and parent are numbers."""
    text: int | None = None
    why: str | None = None
    """What a note says about the header; None: there is none."""
    has_titles: bool = False
    """Whether a title names the parents."""
    numbers: int | None = None
    """A column in the place of the texts that holds numbers only, such as weights."""


def _columns(rows: Sequence[Sequence[str]]) -> _Columns:
    first, rest = rows[0], rows[1:]
    titles = [re.sub(r"[^a-z0-9]", "", title.casefold()) for title in first]
    parents = [column for column, title in enumerate(titles) if _PARENT.search(title)]
    if parents and len(titles) > 1:
        child, parent = _child_and_parent(titles, parents, rest)
        others = {column: title for column, title in enumerate(titles) if column not in (child, *parents)}
        own = first[child], first[parent]
        used = own if not rest else {row[end] for row in rest for end in (child, parent) if end < len(row)}
        if (titles[child], titles[parent]) in _OPPOSITES or not rest or all(name not in used for name in own):
            label = _titled(others, _NAMES) if _NUMBERED.search(titles[child]) else None
            text = _titled({column: title for column, title in others.items() if column != label}, _TEXTS)
            used_as = {"child": child, "parent": parent, "name": label, "text": text}
            why = ", ".join(f"{what} = {first[column]}" for what, column in used_as.items() if column is not None)
            return _Columns(child, parent, label, text, f"({why})", has_titles=True)
    header = len(rest) >= _FEWEST_ROWS and _alone(rows) == {0}
    third = [row[2] for row in (rest if header else rows) if len(row) > 2 and row[2]]
    numbers = 2 if third and all(map(is_number, third)) else None
    text = 2 if third and numbers is None else None
    return _Columns(text=text, numbers=numbers, why="(its names occur in no other row)" if header else None)


def _child_and_parent(titles: Sequence[str], parents: Sequence[int], rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return the columns of child and parent, those that share most values: ``parent_id`` belongs to ``id``."""
    children = [column for column in range(len(titles)) if column not in parents] or [0]
    values = [
        {row[column].removesuffix(".0") for row in rows if column < len(row)} - {""} for column in range(len(titles))
    ]
    first = {title: place for place, title in enumerate(_CHILD)}

    def preference(ends: tuple[int, int]) -> tuple[int, int]:
        child, parent = ends
        return len(values[child] & values[parent]), -first.get(titles[child], len(first))

    return max(((child, parent) for parent in parents for child in children if child != parent), key=preference)


def _titled(titles: Mapping[int, str], wanted: Sequence[str]) -> int | None:
    """Return the column with the first of the wanted titles."""
    found = [column for title in wanted for column in titles if titles[column] == title]
    return found[0] if found else None


def _has_decimal_parents(rows: Sequence[Sequence[str]], columns: _Columns) -> bool:
    """Whether children are 1, 2, ... and parents 1.0, 2.0, ..., as programs write numbers with empty fields."""
    rows = [row for row in rows if len(row) > max(columns.child, columns.parent)]
    parents = {row[columns.parent] for row in rows} - {""}
    return (
        bool(parents)
        and all(map(_DECIMAL.fullmatch, parents))
        and all(_WHOLE.fullmatch(row[columns.child]) for row in rows)
    )


def _alone(rows: Sequence[Sequence[str]]) -> set[int]:
    """Return the rows whose child and parent occur in no other row."""
    pairs = [tuple(row[:2]) for row in rows]
    count = Counter(name for pair in set(pairs) for name in pair)
    return {number for number, pair in enumerate(pairs) if all(pair) and max(count[name] for name in pair) == 1}


def _structure_notes(taxonomy: Taxonomy, found: _Found, comments: int) -> list[str]:
    notes, roots = [], taxonomy.roots
    if comments:
        notes.append(f"Comments: {comments:,} line{'' if comments == 1 else 's'} starting with # or %, skipped.")
    if found.repeated:
        notes.append(f"Repeated rows: {found.repeated:,}; each is used once.")
    several = np.flatnonzero(np.bincount(taxonomy.edges[0]) > 1)
    listed = ", ".join(taxonomy.names[root] for root in roots[:_LISTED]) + (", ..." if len(roots) > _LISTED else "")
    edges = taxonomy.edges.shape[1]
    count = f"{len(taxonomy.names):,} names, {edges:,} edge{'' if edges == 1 else 's'}, depth {depths(taxonomy).max()}"
    end = "" if listed.endswith("...") else "."
    notes.append(f"{count}; {'1 root' if len(roots) == 1 else f'{len(roots):,} roots'}: {listed}{end}")
    if len(roots) > 1:
        notes.append("Several roots: nothing is added above them.")
    notes += _doubts(taxonomy, found)
    if several.size:
        first, above = several[0], taxonomy.edges[1, taxonomy.edges[0] == several[0]][:_LISTED]
        example = f"{quoted(taxonomy.names[first])} below {' and '.join(quoted(taxonomy.names[one]) for one in above)}"
        notes.append(
            f"Names with several parents: {several.size:,}, e.g. {example}; the ancestors are those of all parents. "
            "Two things of one name need two names."
        )
    if taxonomy.texts is not None:
        notes.append(f"Texts: {sum(map(bool, taxonomy.texts)):,} of {len(taxonomy.names):,} names have one.")
    return notes


def _doubts(taxonomy: Taxonomy, found: _Found) -> list[str]:
    """Return notes on names that may be no names, or the same name in two spellings."""
    notes, names, roots = [], taxonomy.names, taxonomy.roots.tolist()
    empty = [names[root] for root in roots if names[root].casefold() in _EMPTY_WORDS]
    if empty:
        notes.append(f"The root {quoted(empty[0])} looks like an empty field; leave the parent of a root empty.")
    if found.labels:
        unnamed = [names[root] for root in roots if root not in found.labels and names[root] not in empty]
        if unnamed:
            notes.append(
                f"Parents without a row of their own, and so without a name: {len(unnamed):,}, e.g. "
                f"{quoted(unnamed[0])}; they are roots."
            )
    lists = [name for name in (names[root] for root in roots) if _lists_names(name, found.number)]
    if lists:
        notes.append(
            f"The parent {quoted(lists[0])} looks like a list of names; give a node with several parents several rows."
        )
    parents, children = (np.bincount(ends, minlength=len(names)) for ends in taxonomy.edges)
    branching = [int(np.count_nonzero(count > 1)) for count in (parents, children)]
    if not found.has_titled_parents and branching[0] > branching[1]:
        notes.append(
            f"More names have several parents ({branching[0]:,}) than several children ({branching[1]:,}); if the "
            "parent stands first in a row, write a header parent,child."
        )
    spellings: dict[str, str] = {}
    for name in names:
        other = spellings.setdefault(_spelling(name), name)
        if other is not name:
            notes.append(
                f"The names {quoted(other)} and {quoted(name)} differ in their spelling only; they are two nodes."
            )
            break
    return notes


def _spelling(name: str) -> str:
    """Return a name without differences in case, in forms of its letters and in invisible characters."""
    if name.isascii():
        return " ".join(name.casefold().split())
    letters = unicodedata.normalize("NFKC", name).casefold()
    return " ".join("".join(each for each in letters if unicodedata.category(each) != "Cf").split())


def _lists_names(name: str, known: Container[str]) -> bool:
    parts = [part.strip() for part in re.split("[;|,]", name)]
    return len(parts) > 1 and all(part in known for part in parts)


# --- structure --------------------------------------------------------------------------------------------------------


def _lists(edges: NDArray[np.int64], nodes: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(nodes)]
    for node, other in edges.T.tolist():
        found[node].append(other)
    return found


def topological(edges: NDArray[np.int64], nodes: int) -> list[int]:
    """Return the nodes so that parents come before children; without the nodes on and below cycles."""
    children, waits = _lists(edges[::-1], nodes), np.bincount(edges[0], minlength=nodes)
    order = np.flatnonzero(waits == 0).tolist()
    for node in order:
        for child in children[node]:
            waits[child] -= 1
            if not waits[child]:
                order.append(child)
    return order


def find_cycle(edges: NDArray[np.int64], nodes: int) -> list[int]:
    """Return the nodes of a cycle, each the parent of the one before, the first again at the end; ``[]``: no cycle."""
    rest = set(range(nodes)) - set(topological(edges, nodes))
    if not rest:
        return []
    parents = _lists(edges, nodes)
    walk, node = dict[int, int](), min(rest)
    while node not in walk:  # every node of the rest has a parent in the rest
        walk[node] = len(walk)
        node = next(parent for parent in parents[node] if parent in rest)
    return [*list(walk)[walk[node] :], node]


def cycle_in_words(cycle: Sequence[int], names: Sequence[str]) -> str:
    """Return the names of a cycle, a long one shortened."""
    shown = [quoted(names[each]) for each in cycle]
    if len(shown) > 2 * _LISTED + 1:
        shown = [*shown[:_LISTED], "...", *shown[-_LISTED:]]
    return " -> ".join(shown)


def _require_no_cycle(path: Path, names: Sequence[str], lines: dict[tuple[int, int], int]) -> None:
    cycle = find_cycle(np.array(list(lines), dtype=np.int64).T, len(names))
    if cycle:
        at = max(lines[cycle[i], cycle[i + 1]] for i in range(len(cycle) - 1))
        words = cycle_in_words(cycle, names)
        raise ValueError(f"{path}, line {at}: the parents form a cycle: {words}; remove one of these rows")
