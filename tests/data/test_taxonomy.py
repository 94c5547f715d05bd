"""Taxonomies from rows and outlines: what is read, and what is refused with its line."""

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lresnet.data import taxonomy as module
from lresnet.data.taxonomy import Taxonomy, ancestor_pairs, depths, read_taxonomy, read_texts
from lresnet_paper.completion.splits import transitive_closure

ROWS = "child,parent\ndog,mammal\ncat,mammal\nmammal,animal\n"


def written(folder: Path, text: str, name: str = "t.csv") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def edges_of(path: Path) -> set[tuple[str, str]]:
    found = read_taxonomy(path)
    return {(found.names[child], found.names[parent]) for child, parent in found.edges.T}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", ROWS),
        ("t.csv", "dog,mammal\ncat,mammal\nmammal,animal\n"),
        ("t.csv", "parent,child\nmammal,dog\nmammal,cat\nanimal,mammal\n"),
        ("t.csv", "dog;mammal\r\ncat;mammal\r\n# a comment\r\nmammal;animal\r\n"),
        ("t.tsv", "dog\tmammal\ncat\tmammal\nmammal\tanimal\nanimal\t\n"),
        ("t.txt", "dog mammal\ncat mammal\nmammal animal\n"),
        ("t.txt", "animal\n\tmammal\n\t\tdog\n\t\tcat\n"),
        ("t.txt", "animal\n  - mammal\n      - dog\n      - cat\n"),
        ("t.txt", "animal\n\u00a0\u00a0mammal\n\u00a0\u00a0\u00a0\u00a0dog\n\u00a0\u00a0\u00a0\u00a0cat\n"),
        ("t.txt", "animal\n│\n└── mammal\n    ├── dog\n    └── cat\n"),
        (
            "t.txt",
            "animal\n└──\u00a0mammal\n\u00a0\u00a0\u00a0\u00a0├──\u00a0dog\n\u00a0\u00a0\u00a0\u00a0└──\u00a0cat\n",
        ),
        ("t.csv", "dog,mammal\ncat,mammal\nmammal,animal\ndog,mammal\n"),
    ],
)
def test_rows_and_outlines_give_the_same_edges(tmp_path: Path, name: str, text: str) -> None:
    expected = {("dog", "mammal"), ("cat", "mammal"), ("mammal", "animal")}
    assert edges_of(written(tmp_path, text, name)) == expected
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert edges_of(packed) == expected


ANIMALS = {("dog", "mammal"), ("cat", "mammal"), ("mammal", "animal")}


@pytest.mark.parametrize(
    ("header", "row", "root"),
    [
        ("child,parent", "{0},{1}", ""),
        ("Parent Term,Child Term", "{1},{0}", ""),
        ("parent_category,category", "{1},{0}", ""),
        ("taxon,belongs to", "{0},{1}", ""),
        ("source,target", "{0},{1}", ""),
        ("子,親", "{0},{1}", ""),
        ("rank,name,broader", "species,{0},{1}", ""),
        ("id,name,parent_id", "n_{0},{0},n_{1}", "n_animal,animal,"),
        ("parent_id,id,label,rank", "n_{1},n_{0},{0},species", ",n_animal,animal,kingdom"),
        ("name,parent_name,id,parent_id", "{0},{1},n_{0},n_{1}", "animal,,n_animal,"),
    ],
)
def test_a_header_names_the_columns_in_any_order(tmp_path: Path, header: str, row: str, root: str) -> None:
    rows = [row.format(*edge) for edge in sorted(ANIMALS)]
    found = read_taxonomy(written(tmp_path, "\n".join([header, *rows, root]) + "\n"))
    assert {(found.names[child], found.names[parent]) for child, parent in found.edges.T} == ANIMALS
    assert re.search(r"line 1 is a header \((child = .*, parent = |its names occur in no other row)", found.notes[0])


def test_a_first_row_is_an_edge_if_its_names_occur_again_or_other_rows_stand_alone_too(tmp_path: Path) -> None:
    assert len(edges_of(written(tmp_path, "a,b\nb,c\nd,c\ne,c\n"))) == 4
    assert len(edges_of(written(tmp_path, "a,b\nc,d\ne,f\ng,f\n"))) == 4
    assert len(edges_of(written(tmp_path, "single parent,family\nstepfamily,family\nb,a\nc,a\n"))) == 4


def test_a_taxonomy_with_the_names_child_and_parent_keeps_its_header_out(tmp_path: Path) -> None:
    rows = written(tmp_path, "child,parent\nchild,person\nparent,person\n")
    assert edges_of(rows) == {("child", "person"), ("parent", "person")}


def test_repeated_names_of_numbered_nodes_are_followed_by_the_number(tmp_path: Path) -> None:
    rows = "id,name,parent_id,description\n1,food,,all\n2,milk,1,white\n3,milk,1,of a plant\n"
    found = read_taxonomy(written(tmp_path, rows))
    assert found.names == ("food", "milk (2)", "milk (3)")
    assert found.texts == ("all", "white", "of a plant")
    with pytest.raises(ValueError, match="line 3: the parent '7' has no row of its own"):
        read_taxonomy(written(tmp_path, "id,name,parent_id\n1,food,\n2,milk,7\n"))


@pytest.mark.parametrize("text", ["a pet; it barks", "a pet| it barks"])
def test_a_separator_inside_of_every_text_is_not_taken_for_that_of_the_columns(tmp_path: Path, text: str) -> None:
    rows = "".join(f"{name},mammal,{text} {name}\n" for name in ("dog", "cat", "fox"))
    found = read_taxonomy(written(tmp_path, rows))
    assert found.names == ("dog", "mammal", "cat", "fox")
    texts = read_texts(written(tmp_path, f"dog,{text}\ncat,{text}\n", "texts.csv"), found.names)
    assert texts == (text, "", text, "")


@pytest.mark.parametrize("separator", [",", "\t", "|"])
def test_a_separator_inside_of_every_name_is_not_taken_for_that_of_the_columns(tmp_path: Path, separator: str) -> None:
    names = [f"{i} &amp; more" for i in range(40)]
    rows = "".join(f"{names[i]}{separator}{names[(i - 1) // 3]}\n" for i in range(1, 40))
    found = read_taxonomy(written(tmp_path, rows))
    assert set(found.names) == set(names)
    assert found.texts is None


def test_comments_are_counted(tmp_path: Path) -> None:
    found = read_taxonomy(written(tmp_path, "b,a\n#1 song,a\n % x\n"))
    assert any("Comments: 2 lines" in note for note in found.notes)


def test_numbers_are_refused_as_texts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has numbers only; the features of a taxonomy are texts"):
        read_texts(written(tmp_path, "a,0.5,1\nb,2,3\n"), ("a", "b"))


def test_names_with_spaces_quotes_separators_and_other_letters_are_kept(tmp_path: Path) -> None:
    text = 'polar bear,"bear, any"\n"bear, any","the ""Ursidae"" family"\nŁoś 麋鹿,polar bear\n'
    assert edges_of(written(tmp_path, text)) == {
        ("polar bear", "bear, any"),
        ("bear, any", 'the "Ursidae" family'),
        ("Łoś 麋鹿", "polar bear"),
    }
    outline = written(tmp_path, "large animals\n  polar bear, white\n", "t.txt")
    assert edges_of(outline) == {("polar bear, white", "large animals")}


def test_several_parents_give_all_ancestors_and_the_shortest_depth(tmp_path: Path) -> None:
    found = read_taxonomy(written(tmp_path, "c,a\nc,b\nd,c\nb,a\n"))
    named = {(found.names[node], found.names[above]) for node, above in ancestor_pairs(found).T}
    assert named == {("c", "a"), ("c", "b"), ("d", "c"), ("d", "a"), ("d", "b"), ("b", "a")}
    assert dict(zip(found.names, depths(found).tolist(), strict=True)) == {"a": 0, "b": 1, "c": 1, "d": 2}
    assert any("several parents: 1" in note for note in found.notes)


def test_several_roots_are_reported(tmp_path: Path) -> None:
    found = read_taxonomy(written(tmp_path, "a,x\nb,y\n"))
    assert [found.names[root] for root in found.roots] == ["x", "y"]
    assert any("2 roots: x, y" in note for note in found.notes)


def test_texts_are_a_third_column_or_a_file(tmp_path: Path) -> None:
    found = read_taxonomy(written(tmp_path, "child,parent,text\ndog,animal,it barks\nanimal,,lives\ncat,animal,\n"))
    assert found.texts == ("it barks", "lives", "")
    texts = written(tmp_path, "name,text\ncat,it meows\n", "texts.csv")
    assert read_texts(texts, found.names) == ("", "", "it meows")
    with pytest.raises(ValueError, match=r"line 3: the taxonomy has no name 'catt' \(did you mean 'cat'\?\)"):
        read_texts(written(tmp_path, "name,text\ncat,it meows\ncatt,x\n", "texts.csv"), found.names)


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("b,a\nc,b\na,c\n", "t.csv", r"line 3: the parents form a cycle: 'b' -> 'a' -> 'c' -> 'b'"),
        ("x,root\nb,a\na,b\n", "t.csv", r"line 3: the parents form a cycle: 'b' -> 'a' -> 'b'"),
        ("b,a\na,a\n", "t.csv", "line 2: 'a' is its own parent"),
        ("b,a\n,a\n", "t.csv", "line 2: the name is empty"),
        ("mammal,\ndog,mamal\n", "t.csv", r"line 2: the parent 'mamal' has no row of its own \(did you mean 'mammal'"),
        ("mammal,\nanimal,\nmammal,animal\n", "t.csv", "line 3: 'mammal' has a parent here and an empty parent"),
        ("b,a\nc\n", "t.csv", "line 2: expected a child and its parent separated by a comma"),
        ("b,a,x,y\nc,a\n", "t.csv", "line 1: 4 columns"),
        ("b,a,x,y\nc,a,x,y\n", "t.csv", "line 1: 4 columns, .* a header that names the columns"),
        ("polar bear bear\ndog bear\n", "t.txt", "line 1: expected a child .* white space if no name contains any"),
        ("dog\ncat\n", "t.txt", "line 1: .*; in an outline, children are indented"),
        ("dog\ncat\n", "t.csv", "line 1: expected a child and its parent separated by a tab, a semicolon, a comma"),
        ("dog\ncat\n", "t.csv", "line 1: .*; the line has one column; write the parent behind each name"),
        ("a\n  b\n  c\n", "t.csv", "line 1: .*an indented outline needs the suffix .txt"),
        ("a\n    b\n\tc\n", "t.txt", "line 3: the indentation of 'c' mixes tabs and spaces"),
        ("  a\nb\n", "t.txt", "line 2: the indentation of 'b' matches no line above"),
        ("a\n  b\n  c\n    b\n", "t.txt", "line 4: the name 'b' occurs in line 2 already"),
        ("a\n    b\n  c\n", "t.txt", "line 3: the indentation of 'c' matches no line above"),
        ("", "t.csv", "holds no rows"),
        ("a,\nb,\n", "t.csv", "no row with a parent"),
        ("a,b\n", "t.json", "the suffix .json"),
        ('"a,b\n', "t.csv", "line 1"),
    ],
)
def test_wrong_files_are_refused_with_the_line(tmp_path: Path, text: str, name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_taxonomy(written(tmp_path, text, name))


def test_a_folder_and_a_missing_file_are_called_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder"):
        read_taxonomy(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nothing\.owl does not exist"):
        read_taxonomy(tmp_path / "nothing.owl")


def test_parents_that_were_written_as_decimals_are_whole_numbers(tmp_path: Path) -> None:
    found = read_taxonomy(written(tmp_path, "id,name,parent_id\n1,Root,\n2,Tools,1.0\n3,Saws,2.0\n"))
    assert found.names == ("Root", "Tools", "Saws")
    assert found.edges.tolist() == [[1, 2], [0, 1]]
    assert "parents such as 1.0 are read as 1" in found.notes[0]
    found = read_taxonomy(written(tmp_path, "version,parent\n2,1.0\n3.1,2.0\n"))
    assert set(found.names) == {"2", "1.0", "3.1", "2.0"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,name,parent_id\n1,Root,NULL\n2,Saws,1\n", "The root 'NULL' looks like an empty field"),
        ("id,name,parent_id\n1,Root,0\n2,Saws,1\n", "without a name: 1, e.g. '0'; they are roots"),
        ("child,parent\ndog,mammal;pet\nmammal,animal\npet,animal\n", "'mammal;pet' looks like a list of names"),
        ("child,parent\nDog,animal\ndog,animal\n", "'Dog' and 'dog' differ in their spelling only"),
        ("child,parent\ncafe\u0301,place\ncaf\u00e9,place\n", "differ in their spelling only"),
        ("child,parent\ncafé\u200b,place\ncafé,place\n", "differ in their spelling only"),
    ],
)
def test_names_that_may_be_none_are_reported(tmp_path: Path, text: str, words: str) -> None:
    assert any(words in note for note in read_taxonomy(written(tmp_path, text)).notes)
    assert not any(words in note for note in read_taxonomy(written(tmp_path, ROWS)).notes)


SWAPPED = "animal,mammal\nmammal,dog\nmammal,cat\nanimal,bird\n"


def test_rows_with_the_parent_first_are_reported_unless_a_header_says_so(tmp_path: Path) -> None:
    words = "More names have several parents (2) than several children (0); if the parent stands first"
    assert any(words in note for note in read_taxonomy(written(tmp_path, SWAPPED)).notes)
    for text in (f"parent,child\n{SWAPPED}", f"child,parent\n{SWAPPED}", ROWS):
        assert not any("stands first" in note for note in read_taxonomy(written(tmp_path, text)).notes)


def test_a_column_for_each_rank_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"Animalia,P{i % 3},C{i % 9},O{i}\n" for i in range(20))
    with pytest.raises(ValueError, match="line 1: a header of 4 columns, and none has a title of parents"):
        read_taxonomy(written(tmp_path, f"kingdom,phylum,class,order\n{rows}"))


RANKED = [("Animalia", f"P{i // 8}", f"C{i // 2}") for i in range(24)]
FAMILIES = [(f"s{i}", f"G{i // 2}", f"F{i // 8}") for i in range(24)]
WITH_GRANDPARENTS = [("poodle", "dog", "mammal"), ("pug", "dog", "mammal"), ("dog", "mammal", "animal")]
WITH_GRANDPARENTS += [("cat", "mammal", "animal"), ("mammal", "animal", "thing")]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (RANKED, "every name belongs to one name of the next column"),
        (FAMILIES, "every name belongs to one name of the next column"),
        (WITH_GRANDPARENTS, "its values are names that occur in the other columns"),
        ([("Kingdom", "Sub-phylum", "class"), ("a", "b", "b 2"), ("c", "b", "x")], "its titles are ranks"),
        ([("Level 1", "level_2", "L3"), ("a", "b", "b 2"), ("c", "b", "x")], "its titles are ranks"),
        ([("kingdom", "phylum", "class"), *RANKED], "its titles are ranks"),
        ([("tout", "partie", "article"), *RANKED], "every name belongs to one name of the next column"),
    ],
)
def test_three_columns_of_ranks_are_not_read_as_texts(tmp_path: Path, rows: list[tuple[str, ...]], why: str) -> None:
    text = "".join(",".join(row) + "\n" for row in rows)
    with pytest.raises(ValueError, match=rf"line 1: the three columns '{rows[0][0]}', .* look like ranks .*\({why}\)"):
        read_taxonomy(written(tmp_path, text))
    found = read_taxonomy(written(tmp_path, "child,parent,text\n" + text))  # the way out that the message states
    assert found.texts is not None


@pytest.mark.parametrize(
    "rows",
    [
        [(f"n{i}", f"n{i // 3}", f"about {i}") for i in range(1, 30)],  # a text of each node
        [(f"n{i}", f"m{i // 3}", f"about {i}") for i in range(1, 30)],
        [(f"n{i}", f"m{i // 3}", "en") for i in range(1, 30)],  # one value
        [(f"n{i}", f"m{i // 3}", ("new", "old")[i % 2]) for i in range(1, 30)],  # few values, but no level
        [("a", "b", "c"), ("d", "b", "e")],  # too few rows
        [(f"n{i}", f"n{i // 3}", f"about {i}" if i > 3 else f"n{i}") for i in range(1, 30)],  # some texts are names
    ],
)
def test_a_third_column_of_texts_is_read_as_such(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    found = read_taxonomy(written(tmp_path, "".join(",".join(row) + "\n" for row in rows)))
    assert found.texts is not None
    assert "column 3 is read as a text" in found.notes[0]


def test_a_name_with_several_parents_is_shown(tmp_path: Path) -> None:
    notes = read_taxonomy(written(tmp_path, "child,parent\nstar,tea\nstar,coat\ntea,shop\ncoat,shop\n")).notes
    assert any(
        "1, e.g. 'star' below 'tea' and 'coat'; the ancestors are those of all parents" in note for note in notes
    )


@pytest.mark.parametrize("header", ["", "source,target,weight\n"])
def test_a_third_column_of_numbers_is_no_text(tmp_path: Path, header: str) -> None:
    found = read_taxonomy(written(tmp_path, f"{header}dog,mammal,0.5\ncat,mammal,1\nmammal,animal,2\n"))
    assert found.texts is None
    assert "column 3 holds numbers, which are not used" in found.notes[0]
    assert edges_of(written(tmp_path, f"{header}dog,mammal,0.5\ncat,mammal,1\nmammal,animal,2\n")) == ANIMALS


def test_a_long_cycle_is_shortened(tmp_path: Path) -> None:
    text = "".join(f"n{i},n{(i + 1) % 100}\n" for i in range(100))
    with pytest.raises(ValueError, match=r"'n4' -> \.\.\. -> 'n96'"):
        read_taxonomy(written(tmp_path, text))


def test_too_many_ancestors_are_refused_before_they_take_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSURE_PAIRS", 100)
    found = read_taxonomy(written(tmp_path, "".join(f"{i},{i - 1}\n" for i in range(1, 16))))
    with pytest.raises(ValueError, match="too deep"):
        ancestor_pairs(found)


def test_closure_of_a_random_forest_equals_a_walk_to_the_root(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    parent = {i: int(generator.integers(i)) for i in range(1, 300)}
    found = read_taxonomy(written(tmp_path, "".join(f"{i},{p}\n" for i, p in parent.items())))
    walked = set()
    for node in parent:
        above = node
        while above in parent:
            above = parent[above]
            walked.add((str(node), str(above)))
    assert {(found.names[i], found.names[j]) for i, j in ancestor_pairs(found).T} == walked


def test_ancestors_of_a_closure_and_of_layers_take_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for every pair (node, ancestor): only the parents that are above no other parent have to be followed."""
    size, followed = 60, 0

    def counted(*arguments: Any) -> Any:
        nonlocal followed
        followed += 1
        return append(*arguments)

    append = np.append
    monkeypatch.setattr(np, "append", counted)
    pairs = np.array([(node, above) for node in range(size) for above in range(node)]).T
    assert np.array_equal(ancestor_pairs(Taxonomy("chain", tuple(map(str, range(size))), pairs)), pairs)
    assert followed == size - 1


@pytest.mark.parametrize("seed", range(20))
def test_ancestors_are_the_transitive_closure(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(5, 40))
    pairs = rng.permuted(np.arange(size)[:, None].repeat(60, 1), axis=0)[:2]
    order = rng.permutation(size)
    edges = np.unique(np.stack([order[pairs.max(0)], order[pairs.min(0)]]), axis=1)
    expected = transitive_closure(torch.from_numpy(edges), size).numpy()
    assert np.array_equal(ancestor_pairs(Taxonomy("dag", tuple(map(str, range(size))), edges)), expected)
