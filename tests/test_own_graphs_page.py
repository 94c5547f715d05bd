"""docs/howto/own_graph.md: its scripts and commands run in an empty folder, and its table shows the results."""

import json
import re
import shlex
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from lresnet.cli import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "own_graphs.md").read_text(encoding="utf-8")
SCRIPTS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
SESSIONS = [
    re.findall(r"\$ lresnet (.*)", block) for block in re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL)
]


@pytest.mark.parametrize("number", range(2))
def test_the_commands_of_a_transcript_run_in_an_empty_folder(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(SCRIPTS[number], {})
    for command in SESSIONS[number]:
        words = shlex.split(command)
        short = ["--search", "1", "--epochs", "5"] if words[0] == "train" else []
        assert main([*words, *short]) == 0, command
    shown = capsys.readouterr().out
    expected = [["5 of 1,439,150 pairs without an edge of friends.csv", "near.png"], ["person 8", "village.png"]]
    for text in expected[number]:
        assert text in shown
    assert [file for file in ("near.png", "village.png") if (tmp_path / file).is_file()]


def test_the_python_code_runs_and_is_short() -> None:
    code = SCRIPTS[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    names: dict[str, object] = {}
    exec(code.replace("epochs=50", "epochs=5"), names)
    assert tuple(names["logits"].shape) == (200, 2)  # type: ignore[attr-defined]


def test_the_table_shows_the_results() -> None:
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in (ROOT / "results" / "own_graphs.jsonl").read_text().splitlines():
        row = json.loads(line)
        values[row["graph"], row["method"]].append(row["value"])
    rows = re.findall(r"^\| ([\w-]+) \| (?:node|link), [\w ]+ \| ([^|]+) \| ([^|]+) \|", PAGE, flags=re.MULTILINE)
    assert len(rows) == 6
    for graph, ours, baseline in rows:
        assert ours == _mean(values[graph, "lresnet"])
        others = {method: found for (name, method), found in values.items() if name == graph and method != "lresnet"}
        best = max(others, key=lambda method: statistics.mean(others[method]))
        assert baseline == f"{best} {_mean(others[best])}"


def _mean(values: list[float]) -> str:
    assert len(values) == 5
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
