"""The scripts under examples/ run with small settings, and their notebooks contain the same code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.notebooks import EXAMPLES, NOTEBOOKS, PARSE_IN_NOTEBOOK, code_cells, stored

# Small settings of each script. A script that is missing here fails a test.
ARGUMENTS = {
    "own_block": ["--epochs", "1", "--seeds", "2", "--samples", "200"],
    "link_prediction": ["--epochs", "5", "--seeds", "2"],
    "deep_gcn": ["--epochs", "2", "--seeds", "2", "--depths", "2", "4"],
    "fine_tune": ["--steps", "2", "--epochs", "1", "--seeds", "2"],
    "cifar_resnet": "--data patterns --model lorentz_resnet20 --batch-size 48 --epochs 1 --seeds 2 --rates 0.1".split(),
    "out_of_distribution": ["--data", "patterns", "--epochs", "1", "--seeds", "2"],
    "hierarchy": ["--steps", "5", "--seeds", "2"],
    "distributed": ["--steps", "5"],
}
# Files and folders that a script writes, with --out.
FILES = {
    "link_prediction": ["link_prediction.png"],
    "deep_gcn": ["deep_gcn.png"],
    "cifar_resnet": [f"{kind}-{seed}" for kind in ("euclidean", "lorentz") for seed in (0, 1)]
    + ["patterns.npz", "search-euclidean-0.1", "search-lorentz-0.1"],
    "out_of_distribution": [f"ood-{kind}-{seed}" for kind in ("euclidean", "lorentz") for seed in (0, 1)]
    + ["out_of_distribution.png", "rings.npz", "stripes.npz"],
    "hierarchy": ["hierarchy.html", "hierarchy.png"],
    "distributed": ["distributed.pt"],
}
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def header(name: str) -> str:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    return text.split('"""')[1]


def test_there_are_at_most_eight_scripts_and_each_has_settings_here() -> None:
    assert len(SCRIPTS) <= 8
    assert set(SCRIPTS) == set(ARGUMENTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_and_its_header_states_command_seeds_and_hardware(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 150
    assert f"examples/{name}.py" in header(name)
    assert re.search(r"\d+ seeds?|seeds? \d", header(name))
    assert re.search(r"CPU|GPU|H200", header(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_and_writes_only_to_its_output_folder(name: str, tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    out.mkdir()
    arguments = [*ARGUMENTS[name], *(["--out", str(out)] if name in FILES else [])]
    run = run_script(name, arguments, work)
    assert run.returncode == 0, run.stderr
    assert run.stdout
    assert sorted(path.name for path in out.iterdir()) == FILES.get(name, [])
    assert list(work.iterdir()) == []


@pytest.mark.slow
def test_link_prediction_reads_an_edge_list(tmp_path: Path) -> None:
    ring = "".join(f"person {i},person {(i + step) % 40}\n" for i in range(40) for step in (1, 2))
    (tmp_path / "friends.csv").write_text(ring, encoding="utf-8")
    run = run_script("link_prediction", ["friends.csv", *ARGUMENTS["link_prediction"]], tmp_path)
    assert run.returncode == 0, run.stderr
    assert "40 nodes, 80 edges" in run.stdout


def run_script(name: str, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error::UserWarning", str(EXAMPLES / f"{name}.py"), *arguments]
    settings = os.environ | {"PYTHONPATH": str(EXAMPLES.parent / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_up_to_date_with_its_script(name: str) -> None:
    """If not: python -m tests.examples.notebooks."""
    assert (EXAMPLES / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8") == stored(name)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_code_cells_of_a_notebook_run_in_one_namespace(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small, namespace = small_options(name), dict[str, object]()
    for code in code_cells(name):
        exec(compile(code.replace(PARSE_IN_NOTEBOOK, small), name, "exec"), namespace)
    assert "seed 0" in capsys.readouterr().out


def small_options(name: str) -> str:
    """Return the line of a notebook that sets its options, with single quotes, which JSON does not escape."""
    return PARSE_IN_NOTEBOOK.replace("[]", repr([*ARGUMENTS[name], "--seeds", "1"]))


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_in_jupyter(name: str, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    text = stored(name)
    assert text.count(PARSE_IN_NOTEBOOK) == 1
    small = text.replace(PARSE_IN_NOTEBOOK, small_options(name))
    notebook = nbformat.reads(small, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = [output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", [])]
    assert "seed 0" in "".join(printed)
