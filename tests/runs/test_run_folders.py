"""Folders of runs, whole and otherwise, in the report: each is listed for what it is, and none is a traceback."""

import json
import shutil
from pathlib import Path

import pytest

from lresnet import cli
from lresnet._version import __version__
from lresnet.runs.run_folders import folder_states

HOSTILE = "<img src=x onerror=alert(1)> \"q\" 'q' 🌲 [bold]"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "tree"
    options = ["--hidden", "3", "--epochs", "5", "--device", "cpu", "--out", str(folder)]
    assert cli.main(["train", "disease_tree/lp", *options]) == 0
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    """One folder of every kind."""
    root = tmp_path / "runs"
    for name in ("whole", "unread", "unfinished", "older", "elsewhere", HOSTILE.replace("/", "")):
        shutil.copytree(trained, root / name)
    assert cli.main(["evaluate", str(root / "whole"), "--device", "cpu"]) == 0
    change(root / "unfinished" / "run.json", best_epoch=None)
    change(root / "older" / "run.json", versions={"lresnet": "0.0.1"})
    (root / "elsewhere" / "run.json").write_text('{"epochs": 3, "model": "unknown"}')
    (root / "torn").mkdir()
    (root / "torn" / "run.json").write_text('{"table": "tra')
    (root / "no run").mkdir()
    return root


def change(file: Path, **facts: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | facts))


def test_every_folder_is_listed_for_what_it_is(runs: Path) -> None:
    states = {state.folder.name: state.state for state in folder_states(runs)}
    assert "no run" not in states
    assert states["whole"] == "evaluated"
    assert states["unread"].startswith("not evaluated: `lresnet evaluate ")
    assert "has not finished" in states["unfinished"]
    assert states["older"].endswith(f"; made by lresnet 0.0.1, and this is {__version__}")
    for name in ("elsewhere", "torn"):
        assert "run.json is not what `lresnet train` writes" in states[name]
    (state,) = folder_states(runs / "unread")
    assert state.folder == runs / "unread"


def test_the_report_of_folders(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # else the length of the path decides where a name is broken in two
    page, text = tmp_path / "r.html", tmp_path / "r.md"
    capsys.readouterr()
    assert cli.main(["report", str(runs), "-o", str(page), "--markdown", str(text)]) == 0
    printed = "".join(capsys.readouterr().out.split())
    assert "disease_tree/lp" in printed
    assert "hasnotfinished" in printed
    assert "".join(HOSTILE.split()) in printed  # as text, without markup
    assert "### disease_tree/lp, disjoint" in text.read_text()
    html = page.read_text()
    assert "<img src=x" not in html
    assert "&lt;img src=x onerror=alert(1)&gt; &quot;q&quot; &#x27;q&#x27; 🌲 [bold]" in html
    assert "made by lresnet 0.0.1" in html
    drawn = tmp_path / "c.svg"
    assert cli.main(["plot", "comparison", str(runs), "--table", "train", "--out", str(drawn)]) == 0
    assert "disease_tree/lp, disjoint" in drawn.read_text()
    capsys.readouterr()
    assert cli.main(["report", str(runs), "--json"]) == 0
    (figure,) = json.loads(capsys.readouterr().out)
    assert (figure["table"], figure["cell"], figure["n"]) == ("train", "disease_tree/lp", 1)


def test_runs_of_other_settings_have_rows_and_a_page_of_their_own(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, text = tmp_path / "runs", tmp_path / "r.md"
    record = json.loads((trained / "run.json").read_text()) | {"stage": "final", "metrics": {}}
    for folder, value, config in (("a", 70.0, {"hidden": 3}), ("b|c", 60.0, {"hidden": 4, "dropout": 0.5})):
        shutil.copytree(trained, root / folder)
        facts = record | {"value": value, "config": record["config"] | config}
        (root / folder / "evaluation.json").write_text(json.dumps(facts))
    assert cli.main(["report", str(root), "--markdown", str(text)]) == 0
    assert "hidden 3" in capsys.readouterr().out
    page = text.read_text()
    assert page.startswith(f"# Runs in {root}\n")
    assert "| lorentz, hidden 3, dropout default | 70.00 | 1 |" in page
    assert "| lorentz, hidden 4, dropout 0.5 | 60.00 | 1 |" in page
    assert "b\\|c` | evaluated |" in page
    assert "paper" not in page.lower()
    shutil.rmtree(root / "b|c")
    (root / "a" / "evaluation.json").unlink()
    assert cli.main(["report", str(root), "--markdown", str(text)]) == 0
    assert "None of the runs has been evaluated yet." in text.read_text()


@pytest.mark.parametrize("wrong", ["{}", "[]", '{"value": "high"}'])
def test_an_evaluation_that_is_none(wrong: str, runs: Path) -> None:
    (runs / "whole" / "evaluation.json").write_text(wrong)
    (state,) = folder_states(runs / "whole")
    assert "evaluation.json is not what" in state.state
    assert state.run is None
    whole = json.loads((runs / "unread" / "run.json").read_text()) | {"stage": "final", "value": "high"}
    (runs / "whole" / "evaluation.json").write_text(json.dumps(whole))
    (state,) = folder_states(runs / "whole")
    assert state.state.endswith("evaluation.json is not what `lresnet evaluate` writes")
