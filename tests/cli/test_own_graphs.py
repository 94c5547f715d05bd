"""The command line on a user's own graph: training with a search, predictions, new graphs, and wrong calls."""

import csv
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lresnet import cli, from_pretrained
from lresnet.runs import graphs
from tests.data.graph_folders import write_graph_files, write_tu_files

QUICK = ["--epochs", "2", "--hidden", "4", "--eval-every", "1", "--device", "cpu"]


def _names(count: int = 30) -> list[str]:
    return [f'Né, "{number}"' for number in range(count)]


def _write(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(rows)


def _write_graph(path: Path, seed: int = 0) -> None:
    names = _names()
    ring = [[names[i], names[(i + 1) % 30]] for i in range(30)]
    more = np.random.default_rng(seed).integers(30, size=(60, 2)).tolist()
    _write(path, [["source", "target"], *ring, *([names[i], names[j]] for i, j in more if i != j)])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    _write_graph(tmp_path / "friends.csv")
    _write(tmp_path / "labels.csv", [["node", "label"], *([name, "ab"[i % 2]] for i, name in enumerate(_names()))])
    _forget()
    return tmp_path


def _forget() -> None:
    graphs.load_own_task.cache_clear()
    graphs._graph.cache_clear()


def _complaint(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    assert cli.main(list(args)) == 2
    err = capsys.readouterr().err
    assert err.startswith("lresnet: error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def _links(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, str]]:
    capsys.readouterr()
    assert cli.main(["predict", *args, "--csv", "-"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_the_search_chooses_a_run_and_its_command_repeats_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["train", "friends.csv", "--search", "2", *QUICK]
    assert cli.main(call) == 0
    out = capsys.readouterr().out
    folder = here / "runs" / "friends-link-0"
    record = json.loads((folder / "run.json").read_text())
    command = next(line.strip() for line in out.splitlines() if line.startswith("  lresnet train"))
    assert command == record["command"]
    assert "trial  1: validation" in out
    assert len((folder / "search.jsonl").read_text().splitlines()) == 2
    assert not (folder / "trials").exists()
    model = (folder / "model" / "model.safetensors").read_bytes()
    assert cli.main([*shlex.split(command)[1:], "--device", "cpu", "--out", "again"]) == 0
    again = json.loads(Path("again/run.json").read_text())
    assert Path("again/model/model.safetensors").read_bytes() == model
    assert {again[name] == record[name] for name in ("task", "model", "train", "validation", "command")} == {True}
    assert not Path("again/search.jsonl").exists()

    capsys.readouterr()
    assert cli.main(call) == 0  # neither searched nor trained again
    out = capsys.readouterr().out
    assert "holds a run whose settings were chosen before; it is not searched again" in out
    assert "trial  1" not in out
    assert json.loads((folder / "run.json").read_text()) == record
    assert "hidden is 4 there, not 8; use another folder" in _complaint(capsys, *call, "--hidden", "8")
    _write_graph(here / "others.csv", seed=1)
    words = _complaint(capsys, "train", "others.csv", "--out", str(folder), *QUICK)
    assert "holds another run: task is" in words


def test_named_links_are_ranked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "friends.csv", "--search", "off", *QUICK, "--out", "run"]) == 0
    assert not (here / "run" / "search.jsonl").exists()
    found = _links(capsys, "run", "--links", "--top", "7")
    assert len(found) == 7
    assert {row["first"] for row in found} <= set(_names())
    name = _names()[5]
    assert all(name in (row["first"], row["second"]) for row in _links(capsys, "run", "--links", "--node", name))
    _write(here / "pairs.csv", [["a", "b"], [name, _names()[6]], [_names()[1], _names()[20]]])
    rows = _links(capsys, "run", "--links", "--pairs", "pairs.csv")
    assert {row["known"] for row in rows if row["first"] == name} == {"true"}
    assert len(_links(capsys, "run", "--links", "--pairs", "pairs.csv", "--top", "1")) == 1
    for args, words in (
        (["--node", name], "--node is for ranked links; add --links"),
        (["--pairs", "pairs.csv"], "--pairs is for ranked links; add --links"),
        (["--links", "--node", name, "--pairs", "pairs.csv"], "--node and --pairs contradict each other"),
        (["--links", name], "--links ranks pairs of nodes; write --node"),
        (["--links", "--node", "Bob"], "has no node 'Bob'"),
        (["--links", "--top", "0"], "top must be at least 1, got 0"),
        (["--links", "--pairs", "gone.csv"], "no file gone.csv"),
        (["--links", "--graph", "friends.csv"], "has one learned point for each node of"),
        (["3"], "this needs one that classifies nodes, or --links to rank links"),
    ):
        assert words in _complaint(capsys, "predict", "run", *args)
    for verb in (["embed", "run"], ["neighbours", "run", name]):
        assert "knows no other nodes" in _complaint(capsys, *verb, "--graph", "friends.csv")


def test_structural_features_carry_over_to_a_new_graph(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--labels", "labels.csv", "--node-features", "structural", "--search", "off", *QUICK]
    assert cli.main(["train", "friends.csv", *options, "--out", "run"]) == 0
    (here / "new.csv").write_text("".join(f"x{i},x{(i + 1) % 9}\n" for i in range(9)))
    rows = _links(capsys, "run", "--graph", "new.csv")
    assert [row["name"] for row in rows] == [f"x{i}" for i in range(9)]
    assert {row["class"] for row in rows} <= {"a", "b"}
    assert cli.main(["embed", "run", "--graph", "new.csv", "--out", "points.npz"]) == 0
    with np.load("points.npz") as points:
        assert points["points"].shape == (9, 4)
    assert cli.main(["neighbours", "run", "x3", "--graph", "new.csv", "--count", "2"]) == 0
    assert "this needs one that predicts links" in _complaint(capsys, "predict", "run", "--links")
    assert "gone.csv does not exist" in _complaint(capsys, "predict", "run", "--graph", "gone.csv")


def test_a_graph_that_has_changed_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["train", "friends.csv", "--search", "off", *QUICK, "--out", "run"]
    assert cli.main(call) == 0
    with (here / "friends.csv").open("a", encoding="utf-8") as stream:
        stream.write("new,node\n")
    _forget()
    for verb in (["evaluate", "run"], ["predict", "run", "--links"], ["embed", "run"], call):
        words = _complaint(capsys, *verb)
        assert "has other nodes than when the run in run was started; restore the file" in words
    (here / "friends.csv").unlink()
    _forget()
    assert "does not exist; move it back" in _complaint(capsys, "evaluate", "run")


@pytest.mark.parametrize("write", [write_graph_files, write_tu_files])
def test_whole_graphs_are_classified(
    write: Callable[[Path], Path], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(here / "set")
    options = ["--task", "graph-level", "--search", "off", "--epochs", "40", "--hidden", "8", "--device", "cpu"]
    assert cli.main(["train", "set", *options, "--out", "run", "--test"]) == 0
    figures = json.loads(Path("run/evaluation.json").read_text())["metrics"]
    assert figures["accuracy"] == 100.0, "rings and stars differ in their degrees"
    rows = _links(capsys, "run")
    assert [row["graph"] for row in rows] == [str(number) for number in range(24)]
    classes = ("ring", "star") if write is write_graph_files else ("1", "-1")
    assert sum(row["class"] == classes[number % 2] for number, row in enumerate(rows)) >= 22
    one = _links(capsys, "run", rows[3]["name"], "--top", "2")
    assert one[0] == rows[3] | {"probability": one[0]["probability"]}
    assert len(one) == 2
    assert "has no graph 'zz'" in _complaint(capsys, "predict", "run", "zz")
    assert "--graph is for runs on one graph" in _complaint(capsys, "predict", "run", "--graph", "friends.csv")
    for verb in (["embed", "run"], ["neighbours", "run", "0"], ["predict", "run", "--links"]):
        assert "holds a run on the set of graphs" in _complaint(capsys, *verb)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["empty", "--task", "link"], "has no file edges.*, such as edges.csv"),
        (["empty"], "or into train/CLASS/ and test/CLASS/ (a graph needs edges.csv)"),
        (["empty", "--task", "graph-level"], "has no labels.csv; write one row per graph"),
        (["empty.csv"], "holds no edges: the file is empty"),
        (["column.csv"], "column.csv, line 1: expected two node names, found '0'"),
        (["few.csv"], "the graph has 19 edges; holding out 5 % needs at least 20"),
        (["complete.csv"], "the graph has only 0 pairs without an edge"),
        (["friends.csv", "--task", "node"], "has no labels, which node classification needs"),
        (["friends.csv", "--labels", "strangers.csv"], "strangers.csv, line 2: there is no node 'z'"),
        (["friends.csv", "--labels", "same.csv"], "all labels are a; classification needs at least two classes"),
        (["friends.csv", "--labels", "two.csv"], "2 labelled nodes are too few for a random split"),
        (["friends.csv", "--labels", "gone.csv"], "--labels gone.csv: there is no such file; give a file with rows"),
        (["friends.csv", "--labels", "learned"], "--labels learned: there is no such file"),
        (["friends.csv", "--node-features", "gone.csv"], "there is no such file; give learned, structural, or a file"),
        (["friends.csv", "--split", "legacy"], "there is no such file; give random, the number of one of the graph's"),
        (["friends.csv", "--split", "3"], "--split 3 is for node classification; for links give a file"),
        (["friends.csv", "--labels", "labels.csv", "--split", "3"], "has no split of its own"),
        (["friends.csv", "--task", "link", "--labels", "labels.csv"], "--labels is for --task node"),
        (["friends.csv", "--metric", "accuracy"], "unknown metric 'accuracy' of links"),
        (["friends.csv", "--labels", "labels.csv", "--metric", "mrr"], "unknown metric 'mrr' of a classification"),
        (["friends.csv", "--search", "-1"], "--search must be a time such as 60s or 5m"),
        (["friends.csv", "--search", "0"], "--search must be a time such as 60s or 5m"),
        (["friends.csv", "--search", "soon"], "--search must be a time such as 60s or 5m"),
        (["friends.csv", "--task", "graph-level"], "is not a folder; graphs to classify are a folder"),
        (["empty", "--task", "graph-level", "--split", "labels.csv"], "--split is for one graph"),
        (["empty", "--task", "graph-level", "--labels", "labels.csv"], "--labels is for one graph"),
        (["friends.csv", "--recipe", "fast"], "--recipe is for images"),
        (["friends.csv", "--model", "lorentz_resnet18"], "is not a network for graphs"),
        (["gone.csv", "--task", "link"], "gone.csv does not exist; --task link needs the path of your own graph"),
        (["cifar10", "--task", "node"], "cifar10 is a set of images; --task node needs the path of your own graph"),
        (["disease_tree/lp", "--task", "link"], "--task link is for your own graph, but disease_tree/lp is a shipped"),
        (["disease_tree/lp", "--search", "5m"], "--search is for your own graph, but disease_tree/lp has settings"),
        (["disease_tree/nc", "--metric", "f1"], "--metric is for your own graph"),
        (["--task", "node"], "--task node needs your own graph: lresnet train GRAPH --task node"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_trainings_are_one_line(
    args: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "empty").mkdir()
    (here / "empty.csv").touch()
    (here / "column.csv").write_text("0\n1\n2\n")
    (here / "few.csv").write_text("".join(f"{i},{i + 1}\n" for i in range(19)))
    (here / "complete.csv").write_text("".join(f"{i},{j}\n" for i in range(10) for j in range(i)))
    (here / "strangers.csv").write_text("node,label\nz,a\ny,b\n")
    _write(here / "same.csv", [[name, "a"] for name in _names()])
    _write(here / "two.csv", [[_names()[0], "a"], [_names()[1], "b"]])
    assert words in _complaint(capsys, "train", *args)
    assert not (here / "runs").exists()


@pytest.mark.parametrize("model", ["lorentz_sage", "lorentz_sgformer"])
def test_a_given_network_uses_the_first_settings_that_it_has(model: str, here: Path) -> None:
    for task in (["--task", "link"], ["--labels", "labels.csv"]):
        call = ["train", "friends.csv", *task, "--model", model, *QUICK]
        assert cli.main([*call, "--search", "2", "--out", f"searched{len(task[1])}"]) == 0


@pytest.mark.parametrize(
    ("model", "scale", "expected"), [("lorentz_gcn", "1+w", "1+w"), ("lorentz_sage", "none", None)]
)
def test_a_scale_is_given_by_name(model: str, scale: str, expected: str | None, here: Path) -> None:
    call = ["train", "friends.csv", "--labels", "labels.csv", "--model", model, "--scale", scale, "--search", "off"]
    assert cli.main([*call, *QUICK, "--out", "run"]) == 0
    assert json.loads(Path("run/run.json").read_text())["model"]["scale"] == scale
    assert from_pretrained("run/model").config["residual_options"] == {"scale": expected}


def test_an_own_metric_and_split_are_used(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = ["train", "val", "test"]
    _write(here / "split.csv", [[name, parts[i % 3]] for i, name in enumerate(_names())])
    options = ["--labels", "labels.csv", "--split", "split.csv", "--metric", "f1_macro", "--search", "off"]
    assert cli.main(["train", "friends.csv", *options, *QUICK, "--out", "run", "--test"]) == 0
    out = capsys.readouterr().out
    assert "Given split: 10 nodes to train on, 10 for validation, 10 for test." in out
    assert list(json.loads(Path("run/evaluation.json").read_text())["metrics"]) == ["f1_macro", "accuracy"]
