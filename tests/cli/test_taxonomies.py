"""The command line on a taxonomy: training with a search, ranked ancestors, parents of new terms, the disk."""

import csv
import io
import json
from pathlib import Path

import pytest

from lresnet import cli
from lresnet.runs import graphs
from lresnet.runs.run import Run
from lresnet.runs.training import fit

QUICK = ["--epochs", "10", "--hidden", "8", "--device", "cpu"]
KINDS = ("bear", "oak", "fish", "bird", 'the "owl", grey')


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [[kind, "thing", "a kind"] for kind in KINDS] + [["thing", "", "all"]]
    rows += [[f"{colour} {kind}", kind, f"its colour is {colour}"] for kind in KINDS for colour in "abcdefgh"]
    for name, columns in (("things.csv", 2), ("texts.csv", 3)):
        with Path(name).open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(row[:columns] for row in rows)
    graphs.load_own_task.cache_clear()
    return tmp_path


@pytest.fixture
def run(here: Path) -> str:
    assert cli.main(["train", "things.csv", "--task", "hierarchy", "--search", "off", *QUICK]) == 0
    return "runs/things-hierarchy-0"


def complaint(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    assert cli.main(list(args)) == 2
    err = capsys.readouterr().err
    assert err.startswith("lresnet: error: ")
    assert err.count("\n") == 1
    return err


def test_a_search_tries_embeddings_and_networks_and_prints_an_untrained_score(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "things.csv", "--task", "hierarchy", "--search", "3", "--test", *QUICK]) == 0
    out = capsys.readouterr().out
    assert "1 root: thing" in out
    assert "model lorentz_gcn" in out
    assert "loss cones" in out
    assert "untrained baseline: most descendants" in out
    folder = here / "runs" / "things-hierarchy-0"
    assert len((folder / "search.jsonl").read_text().splitlines()) == 3
    metrics = json.loads((folder / "evaluation.json").read_text())["metrics"]
    assert list(metrics)[:4] == ["ordered_mrr", "mrr", "order", "parent_first"]
    assert cli.main(["report", "runs"]) == 0
    assert "hierarchy: ordered_mrr in percent" in capsys.readouterr().out


def test_the_euclidean_baseline_runs_with_the_same_search(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["train", "things.csv", "--task", "hierarchy", "--search", "3", "--method", "euclidean", *QUICK]
    assert cli.main(call) == 0
    out = capsys.readouterr().out
    assert "cones" not in out
    assert Run.open("runs/things-hierarchy-euclidean-0").record.method == "euclidean"


def test_ancestors_are_ranked_and_marked(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["ancestors", run, "a oak", "--top", "60", "--csv", "-"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    relation = {row["name"]: row["relation"] for row in rows}
    assert len(rows) == 45  # all nodes but the node itself
    assert relation["oak"] == "parent"
    assert relation["thing"] in ("ancestor", "held-out ancestor")
    assert {name for name, each in relation.items() if each} == {"oak", "thing"}
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert cli.main(["ancestors", run, "thing", "--top", "60", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)["ranked"][0]
    assert {one["relation"] for one in found["candidates"]} == {"descendant"}
    assert cli.main(["ancestors", run, "a oak", "--top", "3"]) == 0
    out = capsys.readouterr().out
    assert "ancestors of a oak among 45 nodes of things.csv" in out
    python = Run.open(run).ancestors("a oak", top=3)
    assert [one.name for one in python.found] == [row["name"] for row in rows[:3]]


def test_an_interrupted_run_resumes_to_the_same_points(run: str, here: Path) -> None:
    before = Path(run, "model", "model.safetensors").read_bytes()
    stopped = Run.open(run)
    task, model = stopped.task, stopped.record.config.model  # type: ignore[union-attr]

    class Stopped(Exception):
        pass

    def stop(epoch: int, _: float | None) -> None:
        if epoch == 5:  # the checkpoint is that of epoch 4
            raise Stopped

    config = stopped.train_config
    with pytest.raises(Stopped):
        fit(task, model, config, out="again", checkpoint_every=4, device="cpu", on_epoch=stop)
    fit(task, model, config, out="again", checkpoint_every=4, device="cpu")
    assert Path("again", "model", "model.safetensors").read_bytes() == before


def test_the_model_card_has_the_figures(run: str) -> None:
    opened = Run.open(run)
    opened.evaluate()
    card = opened.model_card()
    assert "hierarchy completion" in card
    assert "| ordered MRR | MRR | ancestors in order | parent first |" in card
    assert "They are in percent, except mean rank, distortion, norm depth correlation." in card
    assert 'name: "mean rank, test"' in card
    assert "| split | leaves if the features are texts or names, otherwise closure |" in card


def test_held_out_pairs_are_marked(run: str) -> None:
    opened = Run.open(run)
    task = opened.task
    node, above = task.test_pairs[:, 0].tolist()  # type: ignore[union-attr]
    found = {one.number: one.relation for one in opened.ancestors(node, top=60).found}
    assert found[above] == "held-out ancestor"


def test_unknown_names_get_a_suggestion(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'a oak'?" in complaint(capsys, "ancestors", run, "a oka")
    assert "did you mean 'oak'?" in complaint(capsys, "ancestors", run, "OAK")
    assert "--top must be at least 1" in complaint(capsys, "ancestors", run, "oak", "--top", "0")


def test_new_terms_need_features_of_texts(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    err = complaint(capsys, "predict", run, "--parents", "z oak")
    assert "--node-features names" in err
    assert "--parents TERM" in complaint(capsys, "predict", run, "oak")
    assert "contradict" in complaint(capsys, "predict", run, "--links", "--parents", "z oak")


@pytest.mark.parametrize(
    ("data", "model", "at_most"),
    [("things.csv", "lorentz_embedding", 1), ("texts.csv", "lorentz_embedding", 1), ("things.csv", "lorentz_gcn", 3)],
)
def test_parents_of_new_terms_share_their_words(
    here: Path, capsys: pytest.CaptureFixture[str], data: str, model: str, at_most: int
) -> None:
    call = [
        "train",
        data,
        "--task",
        "hierarchy",
        "--search",
        "off",
        "--model",
        model,
        "--out",
        "run",
        "--device",
        "cpu",
    ]
    names = ["--node-features", "names"] if data == "things.csv" else []
    assert cli.main([*call, *names, "--epochs", "60"]) == 0
    capsys.readouterr()
    terms = ["z oak", "z fish"]
    assert cli.main(["predict", "run", "--parents", *terms, "--top", "3", "--json", "-"]) == 0
    ranked = json.loads(capsys.readouterr().out)["ranked"]
    assert [one["name"] for one in ranked] == terms
    for one, kind in zip(ranked, ("oak", "fish"), strict=True):
        assert kind in [each["name"] for each in one["candidates"][:at_most]]
    assert all(one["new"] and len(one["candidates"]) == 3 for one in ranked)
    assert cli.main(["predict", "run", "--parents", *terms, "--top", "2"]) == 0
    assert "parents of the new term z oak among 46 nodes" in capsys.readouterr().out
    assert "letters or digits, got '?!'" in complaint(capsys, "predict", "run", "--parents", "z oak", "?!")


def test_a_known_term_is_ranked_as_its_node(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["train", "texts.csv", "--task", "hierarchy", "--search", "off", "--out", "run", *QUICK]
    assert cli.main(call) == 0
    capsys.readouterr()
    assert cli.main(["ancestors", "run", "b fish", "--top", "5", "--json", "-"]) == 0
    of_node = json.loads(capsys.readouterr().out)["ranked"]
    assert cli.main(["predict", "run", "--parents", "b fish", "z fish", "--top", "5", "--json", "-"]) == 0
    of_term = json.loads(capsys.readouterr().out)["ranked"]
    assert [one["new"] for one in of_term] == [False, True]
    assert [each["name"] for each in of_term[0]["candidates"]] == [each["name"] for each in of_node[0]["candidates"]]
    for mine, other in zip(of_term[0]["candidates"], of_node[0]["candidates"], strict=True):
        assert mine["score"] == pytest.approx(other["score"], abs=1e-5)


def test_a_name_may_be_typed_with_composed_or_decomposed_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"n{i},n{i // 2}" for i in range(2, 40)] + ["cafe\u0301,n3"]
    Path("t.csv").write_text("\n".join(rows), encoding="utf-8")
    assert cli.main(["train", "t.csv", "--task", "hierarchy", "--search", "off", *QUICK]) == 0
    for verb, option in (("ancestors", "--top"), ("neighbours", "--count")):
        assert cli.main([verb, "runs/t-hierarchy-0", "caf\u00e9", option, "3"]) == 0
    assert "no node" not in capsys.readouterr().err
    assert "did you mean 'cafe\u0301'?" in complaint(capsys, "ancestors", "runs/t-hierarchy-0", "Cafe")


def test_a_graph_with_columns_child_and_parent_may_be_a_taxonomy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"n{i},n{i // 2}\n" for i in range(2, 40))
    for name, header, expected in (("tree", "child,parent\n", True), ("graph", "source,target\n", False)):
        Path(f"{name}.csv").write_text(header + rows, encoding="utf-8")
        call = ["train", f"{name}.csv", "--search", "off", "--epochs", "1", "--device", "cpu", "--out", name]
        assert cli.main(call) == 0
        assert ("use --task hierarchy" in capsys.readouterr().out) == expected


def test_points_neighbours_and_the_disk_of_a_taxonomy(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["embed", run, "--out", "points.npz"]) == 0
    assert cli.main(["neighbours", run, "oak", "--count", "3"]) == 0
    assert cli.main(["plot", "embedding", run, "--out", "disk.html"]) == 0
    assert cli.main(["plot", "embedding", run, "--out", "disk.png", "--centre", "oak"]) == 0
    page = Path("disk.html").read_text(encoding="utf-8")
    assert '"order"' in page
    assert "Colours show the largest branches." in page
    assert "class Labels" in page
    assert cli.main(["report", "runs", "-o", "report.html", "--embedding", run]) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--split", "random"], "the splits closure and leaves"),
        (["--labels", "things.csv"], "--labels is for --task node"),
        (["--metric", "roc_auc"], "unknown metric 'roc_auc' of a hierarchy"),
        (["--directed"], "--directed is for graphs"),
        (["--node-features", "missing.csv"], "there is no such file"),
        (["--loss", "margin"], "loss=margin is not for a hierarchy"),
        (["--method", "euclidean", "--loss", "cones"], "cones needs a hyperbolic space"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    call = ["train", "things.csv", "--task", "hierarchy", "--search", "off", *QUICK, *options]
    assert words in complaint(capsys, *call)


def test_a_missing_file_is_called_a_taxonomy(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "needs the path of your own taxonomy" in complaint(capsys, "train", "gone.csv", "--task", "hierarchy")
    assert "lresnet train FILE --task hierarchy" in complaint(capsys, "train", "--task", "hierarchy")


def test_a_changed_taxonomy_is_noticed(run: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Path("things.csv").open("a", encoding="utf-8") as stream:
        stream.write("x oak,oak\n")
    graphs.load_own_task.cache_clear()
    assert "has other nodes than when the run" in complaint(capsys, "ancestors", run, "oak")


def test_a_wrong_row_is_reported_with_its_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("things.csv").write_text("b,a\nc,b\na,c\n")
    err = complaint(capsys, "train", "things.csv", "--task", "hierarchy")
    assert "things.csv, line 3: the parents form a cycle: 'b' -> 'a' -> 'c' -> 'b'" in err


def test_control_characters_of_names_are_escaped_in_notes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("red.csv").write_text("".join(f"\x1b[31m{i},\x1b[31m{(i - 1) // 3}\n" for i in range(1, 60)), encoding="utf-8")
    for search in ("off", "1"):
        assert cli.main(["train", "red.csv", "--task", "hierarchy", "--search", search, *QUICK, "--out", search]) == 0
        printed = capsys.readouterr().out
        assert r"1 root: \x1b[31m0." in printed
        assert "\x1b[31m" not in printed


def test_relations_in_the_table_are_explained(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    node, _ = Run.open(run).task.test_pairs[:, 0].tolist()  # type: ignore[union-attr]
    capsys.readouterr()
    assert cli.main(["ancestors", run, str(node), "--top", "40"]) == 0
    out = capsys.readouterr().out
    assert "An empty field: no ancestor in the file; it may be a missing one." in out
    assert "Held out: in the file, but not seen in training" in out
    assert cli.main(["ancestors", run, "oak", "--top", "1", "--csv", "-"]) == 0
    assert "An empty field" not in capsys.readouterr().out


def test_evaluate_explains_every_figure_of_a_taxonomy(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["evaluate", run]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "things.csv, lorentz, seed 0, test pairs:"
    metrics = Run.open(run).evaluate()
    for (name, value), line in zip(metrics.items(), lines, strict=False):
        shown, figure, meaning = line.split(maxsplit=2)
        assert (shown, float(figure)) == (name, round(value, 2))
        assert len(meaning) > 10
    assert lines[-2].startswith("untrained baseline: most descendants ")
    assert lines[-1].startswith("without the order: mrr ")
    found = metrics["mrr"] * metrics["order"] / 100
    assert metrics["ordered_mrr"] == pytest.approx(found, abs=0.01)


def test_a_search_by_mrr_may_be_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["train", "things.csv", "--task", "hierarchy", "--search", "1", *QUICK]
    for metric, options in (("ordered_mrr", []), ("mrr", ["--metric", "mrr"])):
        assert cli.main([*call, *options, "--test", "--out", metric]) == 0
        out = capsys.readouterr().out
        assert f"on validation data by {metric} (--search, 1 trial):" in out
        assert ("without the order" in out) == (metric == "ordered_mrr")


@pytest.mark.parametrize("loss", ["cones", "ranking"])
def test_ancestors_of_cones_are_said_to_have_no_order(
    here: Path, loss: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--task", "hierarchy", "--search", "off", "--loss", loss, *QUICK, "--out", "run"]
    assert cli.main(["train", "things.csv", *options]) == 0
    assert cli.main(["ancestors", "run", "a bear"]) == 0
    assert ("The loss cones does not order the ancestors" in capsys.readouterr().out) == (loss == "cones")
    assert cli.main(["ancestors", "run", "a bear", "--json", "-"]) == 0
    json.loads(capsys.readouterr().out)
