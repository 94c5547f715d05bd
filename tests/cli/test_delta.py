"""`lresnet delta` on users' graphs: rows are counted as read_graph counts them, and what was detected is printed."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from lresnet import cli

SQUARE = "a b\nb c\nc d\nd a\n"


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert cli.main(["delta", *map(str, words)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_header_and_weights_are_reported_and_are_no_edges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "square.csv"
    path.write_text("source,target,weight\na,b,1\nb,c,2\nc,d,3\nd,a,4\n")
    out = printed(capsys, path)
    assert "square.csv has 4 rows; columns are separated by a comma; line 1 is a header" in out
    assert "weights are in column 3 (weight)." in out
    assert "Weights are not used: the distance is the number of hops." in out
    assert "│ points │ 4 │" in out
    assert "1, exact" in out


def test_every_form_of_a_graph_has_the_same_delta(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "square.txt").write_text(SQUARE)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "edges.tsv").write_text(SQUARE.replace(" ", "\t"))
    nx.write_gml(nx.cycle_graph(4), tmp_path / "square.gml")
    np.savez(tmp_path / "square.npz", edge_index=np.array([[0, 1, 2, 3], [1, 2, 3, 0]]))
    for name in ("square.txt", "folder", "square.gml", "square.npz"):
        out = printed(capsys, tmp_path / name)
        assert "│ points │ 4 │" in out
        assert "1, exact" in out


def test_bad_row_is_reported_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("a,b,1\nb,c,-1\n")
    assert cli.main(["delta", str(path)]) != 0
    error = capsys.readouterr().err
    assert "bad.csv, line 2: the weight is -1" in error.replace("\n", "")
