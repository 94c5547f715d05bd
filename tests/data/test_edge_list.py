"""Edge lists: every form is read as it was written, and bad rows are refused with their line."""

import csv
import gzip
import io
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lresnet.data import read_graph
from lresnet.data.formats import edge_list, text_rows
from lresnet.data.formats.edge_list import EdgeList, read_edge_list

SEPARATORS = {",": "a comma", "\t": "a tab", ";": "a semicolon", "|": "a vertical bar", " ": "white space"}


def written(folder: Path, content: str | bytes, name: str = "graph.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def named_rows(read: EdgeList) -> list[tuple[str, str]]:
    names = read.names or tuple(map(str, range(read.num_nodes)))
    return [(names[a], names[b]) for a, b in read.edges.T.tolist()]


# --- round trips ------------------------------------------------------------------------------------------------------

# Letters, digits, separators, quotes, blanks inside, and other alphabets. A name starts with a letter or a digit.
_INSIDE = st.text(alphabet="ab01,;|\t \"'#%.-éЖ漢", max_size=6)
_NAMES = st.builds(lambda first, rest: (first + rest).strip(), st.sampled_from("abé漢7"), _INSIDE)
_WEIGHTS = st.floats(min_value=1e-6, max_value=1e6)


@st.composite
def dialects(draw: st.DrawFn) -> dict[str, object]:
    return {
        "separator": draw(st.sampled_from(list(SEPARATORS))),
        "end": draw(st.sampled_from(["\n", "\r\n"])),
        "header": draw(st.booleans()),
        "bom": draw(st.booleans()),
        "encoding": draw(st.sampled_from(["utf-8", "utf-16"])),
        "gzip": draw(st.booleans()),
        "comment": draw(st.sampled_from(["", "# made by a test\n", "% 1 2 3\n\n"])),
        "last_end": draw(st.booleans()),
    }


def text_of(rows: list[list[str]], dialect: dict[str, object]) -> bytes:
    out = io.StringIO()
    separator, end = str(dialect["separator"]), str(dialect["end"])
    if dialect["header"]:
        titles = ["source", "target", "weight"][: len(rows[0])]
        out.write(separator.join(titles) + end)
    # Every name is quoted, so that separators and quotes inside it are kept.
    csv.writer(out, delimiter=separator, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(rows)
    text = str(dialect["comment"]).replace("\n", end) + out.getvalue()
    if not dialect["last_end"]:
        text = text.removesuffix(end)
    if dialect["encoding"] == "utf-8":
        data = text.encode("utf-8-sig" if dialect["bom"] else "utf-8")
    else:
        data = text.encode("utf-16")
    return gzip.compress(data) if dialect["gzip"] else data


@settings(max_examples=200, deadline=None)
@given(
    pairs=st.lists(st.tuples(_NAMES, _NAMES), min_size=1, max_size=12),
    weights=st.none() | st.lists(_WEIGHTS, min_size=13, max_size=13),
    dialect=dialects(),
)
def test_named_edges_are_read_as_written(
    pairs: list[tuple[str, str]],
    weights: list[float] | None,
    dialect: dict[str, object],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # Names of the first row occur again: ("left", "right") above integers only would be a header.
    pairs = [*pairs, pairs[0][::-1]]
    if dialect["separator"] == " ":  # a tab separates such a file as well
        pairs = [(a.replace("\t", "_"), b.replace("\t", "_")) for a, b in pairs]
    rows = [[a, b] for a, b in pairs]
    if weights is not None:
        rows = [[*row, repr(weight)] for row, weight in zip(rows, weights, strict=False)]
    path = tmp_path_factory.mktemp("edges") / "graph.csv"
    path.write_bytes(text_of(rows, dialect))
    read = read_edge_list(path)
    assert named_rows(read) == pairs
    if weights is None:
        assert read.weights is None
    else:
        assert read.weights is not None
        assert read.weights.tolist() == weights[: len(pairs)]
    assert f"separated by {SEPARATORS[str(dialect['separator'])]}" in read.notes[0]
    assert ("is a header" in read.notes[0]) == dialect["header"]


@settings(max_examples=100, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=40),
    weights=st.none() | st.lists(_WEIGHTS, min_size=40, max_size=40),
    separator=st.sampled_from(list(SEPARATORS)),
    block=st.sampled_from([16, 64, 2**22]),
    quote=st.booleans(),
)
def test_integers_are_read_alike_by_arrays_and_row_by_row(
    pairs: list[tuple[int, int]],
    weights: list[float] | None,
    separator: str,
    block: int,
    quote: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rows = [f"{a}{separator}{b}" for a, b in pairs]
    if weights is not None:
        rows = [f"{row}{separator}{weight!r}" for row, weight in zip(rows, weights, strict=False)]
    if quote:  # one quoted name: from its block on, the file is read row by row
        a, rest = rows[-1].split(separator, 1)
        rows[-1] = f'"{a}"{separator}{rest}'
    path = written(tmp_path_factory.mktemp("edges"), "\n".join(rows) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "_BLOCK", block if max(map(len, rows)) < block else 64)
        read = read_edge_list(path)
    assert named_rows(read) == [(str(a), str(b)) for a, b in pairs]
    nodes = {node for pair in pairs for node in pair}
    assert read.num_nodes == len(nodes)
    assert (read.names == ()) == (nodes == set(range(len(nodes))))
    if not read.names:
        assert read.edges.T.tolist() == [list(pair) for pair in pairs]
    assert (None if read.weights is None else read.weights.tolist()) == (weights and weights[: len(pairs)])


@settings(max_examples=50, deadline=None)
@given(pairs=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1), directed=st.booleans())
def test_graph_of_an_edge_list_has_each_edge_once(
    pairs: list[tuple[int, int]], directed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    proper = {(a, b) if directed else (min(a, b), max(a, b)) for a, b in pairs if a != b}
    path = written(tmp_path_factory.mktemp("edges"), "\n".join(f"n{a} n{b}" for a, b in pairs))
    if not proper:
        with pytest.raises(ValueError, match=f"all {len(pairs):,} rows are self loops"):
            read_graph(path, directed=directed)
        return
    graph = read_graph(path, directed=directed)
    order = [int(name[1:]) for name in graph.names]
    found = {(order[a], order[b]) for a, b in graph.edges.T.tolist()}
    assert found == proper if directed else {(min(e), max(e)) for e in found} == proper
    assert graph.edges.shape[1] == len(proper)
    assert graph.num_nodes == len({node for pair in pairs for node in pair})


# --- forms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rows", "words"),
    [
        ("Ann,Bob\nBob,Cid\n", [("Ann", "Bob"), ("Bob", "Cid")], "separated by a comma."),
        ("Ann;Bob\nBob;Cid\n", [("Ann", "Bob"), ("Bob", "Cid")], "separated by a semicolon."),
        ("Rome, IT\tOslo\nOslo\tBern, CH\n", [("Rome, IT", "Oslo"), ("Oslo", "Bern, CH")], "separated by a tab."),
        ('"Rome, IT",Oslo\nOslo,"the ""big"" one"\n', [("Rome, IT", "Oslo"), ("Oslo", 'the "big" one')], "comma"),
        ("1 , 2\n2 , 3\n", [("1", "2"), ("2", "3")], "separated by a comma."),
        ("0  1\n 1\t2 \n", [("0", "1"), ("1", "2")], "separated by white space."),
        ("1,2\r2,3\r", [("1", "2"), ("2", "3")], "2 rows"),
        ("007,7\n7,8\n", [("007", "7"), ("7", "8")], "2 rows"),
        ("from,to\nAnn,Bob\n", [("Ann", "Bob")], "line 1 is a header"),
        ("# c\n\nfrom,to\nAnn,Bob\n", [("Ann", "Bob")], "line 3 is a header; 1 comment line is skipped."),
        ("person_a,person_b\nAnn,Bob\n", [("Ann", "Bob")], "line 1 is a header"),
        ("parent,child\nchild,toy\n", [("parent", "child"), ("child", "toy")], "2 rows"),
        ("left,right\n5,6\n6,9\n", [("5", "6"), ("6", "9")], "line 1 is a header"),
        (
            "Id,Source,Target,Type\n1,a,b,x\n2,b,c,x\n",
            [("a", "b"), ("b", "c")],
            r"edges join columns 2 \(Source\) and 3 \(Target\); columns not read: 1 \(Id\), 4 \(Type\).",
        ),
        ("0 1 {}\n1 2 {}\n", [("0", "1"), ("1", "2")], "columns not read: 3"),
        ("0 1 friend\n1 2 foe\n", [("0", "1"), ("1", "2")], "columns not read: 3"),
        ("a,b,time\na,b,1990\nb,c,1991\n", [("a", "b"), ("b", "c")], r"columns not read: 3 \(time\)"),
        ("0,1\n# half\n1,2\n% done\n", [("0", "1"), ("1", "2")], "2 comment lines are skipped"),
    ],
)
def test_form_is_detected_and_reported(text: str, rows: list[tuple[str, str]], words: str, tmp_path: Path) -> None:
    read = read_edge_list(written(tmp_path, text))
    assert named_rows(read) == rows
    assert read.weights is None
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(read.notes[0])


@pytest.mark.parametrize(
    ("text", "doubtful"),
    [("a,b\nx,y\ny,z\n", True), ("a,b\nx,y\ny,a\n", False), ("source,target\nx,y\n", False), ("a,b\n", False)],
)
def test_a_first_row_whose_names_occur_nowhere_else_is_reported(text: str, doubtful: bool, tmp_path: Path) -> None:
    read = read_edge_list(written(tmp_path, text))
    note = (
        "The first row is read as an edge, but no other row has 'a' or 'b'; if it is a header, write # in front of it."
    )
    assert (note in read.notes) == doubtful


@pytest.mark.parametrize(
    ("text", "weights", "words"),
    [
        ("0,1,2.5\n1,2,3\n", [2.5, 3], "weights are in column 3."),
        ("a;b;1e-3\nb;c;3\n", [1e-3, 3], "weights are in column 3."),
        ("a,b,w\nb,c,3\n", [3], r"line 1 is a header; weights are in column 3 \(w\)."),
        ("a,b,year,weight\nb,c,1990,3\nc,d,1991,4\n", [3, 4], r"column 4 \(weight\); columns not read: 3 \(year\)"),
        ("0 1 {'weight': 2.5}\n1 2 {'weight': 1}\n", [2.5, 1], "weights are in column 3."),
        ("0 1 5 77\n1 2 6 88\n", [5, 6], "weights are in column 3; columns not read: 4."),
    ],
)
def test_weight_column_is_detected_and_reported(text: str, weights: list[float], words: str, tmp_path: Path) -> None:
    read = read_edge_list(written(tmp_path, text))
    assert read.weights is not None
    assert read.weights.tolist() == weights
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(read.notes[0])


def test_latin_1_is_read_and_reported_wherever_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_rows, "_BLOCK", 16)
    rows = [f"n{number},n{number + 1}" for number in range(20)]
    path = written(tmp_path, "\n".join([*rows, "Zürich,n0"]).encode("latin-1"))
    read = read_edge_list(path)
    assert named_rows(read)[-1] == ("Zürich", "n0")
    assert len(named_rows(read)) == 21
    assert read.notes[1].startswith("graph.csv is not UTF-8 (line 21); it is read as Latin-1.")


def test_suffix_of_the_file_does_not_determine_the_separator_or_the_compression(tmp_path: Path) -> None:
    for name in ("g.tsv", "g.txt", "g.edges", "g.edgelist", "g.csv.gz", "g.EDGES.gz"):
        path = written(tmp_path, gzip.compress(b"a;b\nb;c\n"), name)
        assert read_graph(path).names == ("a", "b", "c")


def test_duplicates_self_loops_and_directions_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b,1\nb,a,5\na,b,2\nc,c,5\nb,c,7\n")
    graph = read_graph(path)
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.weights is not None
    assert graph.weights.tolist() == [4.0, 7.0]
    assert graph.notes[1:] == (
        "1 self loop is left out.",
        "1 row repeats an edge and is merged; their weights are added.",
        "1 edge is given in both directions and joined; 1 with different weights get their mean.",
    )
    kept = read_graph(path, directed=True)
    assert kept.directed
    assert kept.edges.tolist() == [[0, 1, 1], [1, 0, 2]]
    assert kept.weights is not None
    assert kept.weights.tolist() == [3.0, 5.0, 7.0]


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n,c\n", "line 2: expected two node names, found ',c'; columns are separated by a comma"),
        ("a,b\nb,c\nb,  \n", "line 3: expected two node names"),
        ("0,1\n1,2\n,2\n", "line 3: expected two node names"),
        ("a,b\nb,c\nc,d\nd;e\n", "line 4: expected two node names, found 'd;e'; columns are separated by a comma"),
        ("", "holds no edges: the file is empty"),
        ("\n# only\n%comments\n", "holds no edges: all its lines are blank or comments"),
        ("source,target\n", "holds no edges: it has a header only"),
        ("a,b,1\nb,c,0\n", "line 2: the weight is 0, but weights must be positive and finite; delete the row"),
        ("a,b,1\nb,c,-2\n", "line 2: the weight is -2, but weights must be positive"),
        ("0,1,1\n1,2,1\n\n# x\n2,3,-2\n", "line 5: the weight is -2, but weights must be positive"),
        ("0,1,1\n1,2,nan\n", "line 2: the weight is nan"),
        ("0,1,1\n1,2,inf\n", "line 2: the weight is inf"),
        ("0,1,1\n1,2,1e-60\n", "line 2: the weight is 1e-60"),
        ("0,1,1\n1,2,heavy\n", "line 2: expected a weight in column 3, but 'heavy' is not a number"),
        ("0,1,1\n1,2\n", "line 2: expected a weight in column 3, but there is none"),
        (
            "id,name,parent_id\n1,All,\n2,Saws,1\n3,Files,1\n",
            "line 1: .* for ancestors in a taxonomy use --task hierarchy",
        ),
        ("a;b;0,5\nb;c;0,7\n", "line 1: expected a weight in column 3, but '0,5' is not a number .write a decimal"),
        ('a,b\n"b,c\nc,d\n', "line 2: .*check the quotes"),
        ('a,b\n"b"x,c\n', "line 2: ',' expected after '\"'; check the quotes"),
        ('a b\n"b"x c\n', "line 2: ' ' expected after '\"'; check the quotes"),
        (b"a,b\n\x00\x01,c\n", "is not a text file"),
        (b"\x1f\x8b" + b"no gzip", "cannot be decompressed"),
        (gzip.compress(b"a,b\n" * 1000, mtime=0)[:-20], "cannot be decompressed"),
    ],
)
def test_bad_files_are_refused_in_one_line(content: str | bytes, words: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=words) as caught:
        read_graph(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("length", [10_001, 200_000, 1_000_000, 9_000_000])
@pytest.mark.parametrize("separator", [",", " "])
@pytest.mark.parametrize("line", [1, 3])
def test_long_names_are_refused_with_their_line_and_not_quoted_in_full(
    length: int, separator: str, line: int, tmp_path: Path
) -> None:
    rows = [f"a{separator}b", f"b{separator}c"]
    rows.insert(line - 1, f"{'x' * length}{separator}c")
    path = written(tmp_path, "\n".join(rows))
    with pytest.raises(ValueError, match=f"line {line}: .*(10,000 characters|4,194,304 bytes)") as caught:
        read_graph(path)
    assert len(str(caught.value)) < 400 + len(str(path))
    longest = written(tmp_path, f"a{separator}b\n{'x' * 10_000}{separator}c\n")
    assert max(map(len, read_graph(longest).names)) == 10_000


def test_graph_of_self_loops_only_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"graph.csv: all 2 rows are self loops; an edge must join two"):
        read_graph(written(tmp_path, "a,a\nb,b\n"))


def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader never holds more than two blocks of the file."""
    monkeypatch.setattr(text_rows, "_BLOCK", 1024)
    sizes: list[int] = []
    plain = edge_list._Reader.add

    def add(self: edge_list._Reader, block: text_rows.Block) -> None:
        sizes.append(len(block.text))
        plain(self, block)

    monkeypatch.setattr(edge_list._Reader, "add", add)
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 100, (5000, 2))
    read = read_edge_list(written(tmp_path, "\n".join(f"{a} {b}" for a, b in pairs.tolist())))
    assert len(sizes) > 20
    assert max(sizes) <= 2048
    assert np.array_equal(read.edges.T, pairs)


def test_a_compressed_list_that_expands_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lresnet._limits.EXPANDED_TEXT_BYTES", 10_000)
    path = written(tmp_path, gzip.compress(b"0,1\n" + b"#\n" * 100_000), "g.csv.gz")
    with pytest.raises(ValueError, match=r"g\.csv\.gz expands to more than [\d,]+ bytes, the limit for this file"):
        read_edge_list(path)
    assert read_edge_list(written(tmp_path, b"0,1\n" + b"#\n" * 100_000, "g.csv")).num_nodes == 2


def test_unclosed_dictionaries_take_time_in_proportion_to_their_length(tmp_path: Path) -> None:
    path = written(tmp_path, b"\n".join(b"a b {" + b"'weight':1x" * 3000 for _ in range(20)), "g.edgelist")
    start = time.process_time()
    assert read_edge_list(path).weights is None
    assert (
        time.process_time() - start < 10
    )  # seconds of CPU time; hundredths are needed, a search of all ends took hours
    closed = written(tmp_path, b"a b {'weight': 1, 'x': 2, 'weight': 3.5}\nb c {'weight': 2}\n", "h.edgelist")
    weights = read_edge_list(closed).weights
    assert weights is not None
    assert weights.tolist() == [3.5, 2.0]


def test_a_header_with_fewer_columns_than_the_rows(tmp_path: Path) -> None:
    edge_list = read_edge_list(written(tmp_path, b"source,target\nOslo,Rome,2\nRome,Bern,0.5\n", "g.csv"))
    assert edge_list.weights is not None
    assert edge_list.weights.tolist() == [2.0, 0.5]
    assert "weights are in column 3." in edge_list.notes[0]


def test_a_column_of_parents_is_a_hint_at_a_taxonomy(tmp_path: Path) -> None:
    hint = "A column is called parent_id; for ancestors in a taxonomy use --task hierarchy."
    assert hint in read_edge_list(written(tmp_path, "id,parent_id\n2,1\n3,1\n")).notes
    assert hint not in read_edge_list(written(tmp_path, "source,target\n1,All\n2,Saws\n3,Files\n")).notes
