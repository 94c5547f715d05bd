"""`python -m lresnet_paper`: verbs, pages, and the commands in results/."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lresnet.cli.app import read_call
from lresnet_paper.__main__ import _find_verb, main

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(
    {
        json.loads(line)["command"]
        for table in ("benchmarks", "runtime")
        for line in (ROOT / f"results/{table}.jsonl").read_text().splitlines()
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_a_benchmark_in_results_still_parses(command: str) -> None:
    program, verb, *args = shlex.split(command)
    assert program == "lresnet"
    assert callable(read_call(_find_verb(verb), f"lresnet {verb}", args))


def test_it_runs_without_installed_metadata() -> None:
    code = (
        "import importlib.metadata; importlib.metadata.entry_points = lambda **_: [];"
        "from lresnet_paper.__main__ import main; raise SystemExit(main(['bench', 'gcn', '--help']))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "python -m lresnet_paper bench gcn" in done.stdout


def test_without_a_verb_it_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(f"  {verb} " in out for verb in ("reproduce", "bench", "untrained", "pages", "report"))


def test_a_misspelt_verb_is_an_error_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bnch"]) == 2
    assert "unknown verb 'bnch'; did you mean 'bench'" in capsys.readouterr().err


def test_pages_skips_what_has_no_results_and_names_the_command_that_makes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").mkdir()
    docs = tmp_path / "docs"
    assert main(["pages", "--results", str(tmp_path / "results"), "--docs", str(docs)]) == 0
    skipped = [line for line in capsys.readouterr().out.splitlines() if line.startswith("skipped ")]
    written = {str(path.relative_to(docs)) for path in docs.rglob("*") if path.is_file()}
    assert written == {"reproduction/index.md", "reproduction/results.md"}
    names = {line.split(":")[0].removeprefix("skipped ") for line in skipped}
    assert {"reproduction/deep.md", "reproduction/ancestors.md", "start/when.md", "images/depth-deep.png"} <= names
    assert all(line.count("`") == 2 for line in skipped), skipped


@pytest.mark.slow
def test_pages_writes_every_generated_page(tmp_path: Path) -> None:
    assert main(["pages", "--results", str(ROOT / "results"), "--docs", str(tmp_path)]) == 0
    pages = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.md"))
    assert [str(page) for page in pages] == [
        "howto/convert_zoo.md",
        "performance/benchmarks.md",
        "performance/index.md",
        "performance/numerics.md",
        "reproduction/ancestors.md",
        "reproduction/completion.md",
        "reproduction/deep.md",
        "reproduction/hierarchy.md",
        "reproduction/index.md",
        "reproduction/results.md",
        "reproduction/splits.md",
        "reproduction/transformers.md",
        "start/when.md",
    ]
    assert all((tmp_path / "images" / name).exists() for name in ("depth.png", "depth-deep.png", "completion.png"))
    for page in pages:
        assert (tmp_path / page).read_text() == (ROOT / "docs" / page).read_text(), page
