"""Outputs of a run on a user's graph with names and partial labels: names stay names, paths become file names."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from lresnet import cli
from lresnet.plots import embedding
from lresnet.plots.picture import save_picture
from tests.plots.html_reader import Reader

LABELS = {f"member {k}": "red" if k < 12 else "blue" for k in range(24) if k % 4}
SHORT = ["--search", "1", "--epochs", "3", "--device", "cpu"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node run and a link run on one graph: two rings of twelve members each, joined by one edge."""
    here = tmp_path_factory.mktemp("own")
    graph = here / "club"
    graph.mkdir()
    pairs = [(12 * half + k, 12 * half + (k + step) % 12) for half in (0, 1) for k in range(12) for step in (1, 2)]
    rows = [f"member {low},member {high}" for low, high in [*pairs, (0, 12)]]
    (graph / "edges.csv").write_text("\n".join(["source,target", *rows]))
    (graph / "labels.csv").write_text("\n".join(["node,label", *(f"{name},{label}" for name, label in LABELS.items())]))
    for task in ("node", "link"):
        folder = here / "runs" / task
        assert cli.main(["train", str(graph), "--task", task, *SHORT, "--out", str(folder)]) == 0
        assert cli.main(["evaluate", str(folder), "--device", "cpu"]) == 0
    return here / "runs"


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object, code: int = 0) -> str:
        capsys.readouterr()
        assert cli.main([*map(str, words)]) == code
        captured = capsys.readouterr()
        return captured.err if code else captured.out

    return call


def test_the_graph_goes_by_its_file_name(runs: Path, output: Callable[..., str]) -> None:
    lines = {
        "evaluate": output("evaluate", runs / "node", "--device", "cpu"),
        "neighbours": output("neighbours", runs / "node", "member 3", "--device", "cpu"),
        "links": output("predict", runs / "link", "--links", "--top", "3", "--device", "cpu"),
        "embed": output("embed", runs / "node", "--device", "cpu"),
    }
    graph = str(runs.parent / "club")
    assert lines["evaluate"].startswith("club, ")
    assert "among 24 nodes of club," in lines["neighbours"]
    assert "pairs without an edge of club," in lines["links"]
    assert lines["embed"].startswith("24 nodes of club: ")
    assert not any(graph in text for text in lines.values())
    assert json.loads((runs / "node" / "run.json").read_text())["task"]["name"] == graph


def test_points_keep_names_and_leave_unknown_labels_empty(
    runs: Path, tmp_path: Path, output: Callable[..., str]
) -> None:
    output("embed", runs / "node", "--out", tmp_path / "p.csv", "--device", "cpu")
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert len(rows) == 24
    assert {row["name"]: row["label"] for row in rows if row["label"]} == LABELS
    output("embed", runs / "node", "--out", tmp_path / "p.npz", "--device", "cpu")
    with np.load(tmp_path / "p.npz") as file:
        found = dict(file)
    assert set(found["labels"].tolist()) == {-1, 0, 1}
    assert {
        str(name): str(found["classes"][label])
        for name, label in zip(found["names"], found["labels"], strict=True)
        if label >= 0
    } == LABELS


def test_the_picture_has_names_and_can_be_centred_at_one(
    runs: Path, tmp_path: Path, output: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Figure] = []

    def save(figure: Figure, path: Path) -> Path:
        figures.append(figure)
        return save_picture(figure, path)

    monkeypatch.setattr(embedding, "save_picture", save)
    call = ("plot", "embedding", runs / "node", "--out", tmp_path / "p.png", "--device", "cpu")
    output(*call, "--centre", "member 3")
    output(*call, "--names", "0")
    (disk, legend), (bare, _) = ([[text.get_text() for text in axes.texts] for axes in one.axes] for one in figures)
    assert disk[0] == "member 3"
    assert len(disk) > 12
    assert set(disk) <= {f"member {k}" for k in range(24)}
    assert bare == []
    assert legend[0] == "club, lorentz, seed 0"
    assert legend[2:5] == ["blue", "red", "no label (6 nodes)"]
    assert "Node member 3 is at the centre" in " ".join(legend[-1].split())
    assert "club has no node 'member 33'; did you mean" in output(*call, "--centre", "member 33", code=2).lower()
    assert "--names must be at least 0, got -1" in output(*call, "--names", "-1", code=2)


def test_characters_missing_from_the_font_are_reported_in_one_line(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = tmp_path / "g.csv"
    graph.write_text("a,b\n" + "\n".join(f"点{k},点{(k + step) % 20}" for k in range(20) for step in (1, 2)))
    assert cli.main(["train", str(graph), *SHORT, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert cli.main(["plot", "embedding", str(tmp_path / "run"), "--out", str(tmp_path / "p.png")]) == 0
    errors = capsys.readouterr().err
    assert errors.count("\n") <= 1  # none if a font with these characters is installed
    assert "Glyph" not in errors


def test_the_report_names_file_task_metrics_and_search(runs: Path, tmp_path: Path, output: Callable[..., str]) -> None:
    page = tmp_path / "r.html"
    printed = output("report", runs, "-o", page, "--embedding", runs / "node")
    assert "club, link: roc_auc in percent" in printed
    assert "club, node: accuracy in percent" in printed
    assert "average_precision" in printed
    assert "Settings of the run: the best of 1 trial of a search on validation data." in printed
    link, node = json.loads(output("report", runs, "--json"))
    assert (link["task"], node["task"]) == ("club, link", "club, node")
    assert link["data"] == str(runs.parent / "club")
    assert (link["search_trials"], link["metric"]) == ([1], "roc_auc")
    assert list(link["metrics"]) == ["roc_auc", "average_precision"]
    html = page.read_text()
    assert re.search(r"club, \w+, seed 0: 24 nodes, 49 edges", html)
    assert "no label (6)" in html
    assert "Evaluated runs: 1 on club, link, 1 on club, node." in html
    assert "Other metrics: average_precision " in html
    assert ["1", f"{link['validation']['mean']:.2f}", "3"] in [row[:3] for row in Reader(html).rows]
    data = json.loads(html.split('id="embedding">')[1].split("</script>")[0])
    assert set(data["names"]) == {f"member {k}" for k in range(24)}
    assert data["noLabel"]["name"] == "no label"
