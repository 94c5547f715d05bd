"""The command line: output and exit codes."""

import os
import subprocess
import sys
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lresnet import __version__, cli
from lresnet.cli.app import read_call
from lresnet.runs import RunConfig
from lresnet.runs.record import RunRecord

VERBS = (
    *("demo", "train", "evaluate", "predict", "ancestors", "generate", "embed", "neighbours", "ood"),
    *("report", "data", "delta", "plot", "doctor", "bench", "reproduce"),
)
CALLS = [
    *([verb] for verb in VERBS if verb not in ("data", "plot", "bench")),
    *(["data", verb] for verb in ("list", "fetch", "verify")),
    *(["plot", verb] for verb in ("residuals", "embedding", "curves", "ood")),
]


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"]], ids=["bare", "--help", "-h"])
def test_the_overview_lists_every_verb_on_one_screen(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(args) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(VERBS)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--help"],
        ["train", "--help"],
        ["trian"],
        ["train", "--patienc", "3"],
        ["train", "nosuchfolder"],
        ["train", "airport/lp", "--lr", "-1"],
        ["train", "airport/lp", "--heads", "2"],
        ["reproduce", "--help"],
        ["evaluate", "nosuchfolder"],
        ["predict", "nosuchfolder", "0"],
        ["embed", "nosuchfolder"],
        ["neighbours", "nosuchfolder", "0"],
        ["ood", "nosuchfolder"],
        ["delta", "nosuchfolder"],
        ["report", "nosuchfolder"],
        ["plot", "curves", "nosuchfolder"],
        ["plot", "embedding", "nosuchfolder"],
        ["plot", "ood", "nosuchfolder"],
    ],
    ids=" ".join,
)
def test_help_and_wrong_calls_answer_without_torch(args: list[str]) -> None:
    """These imports take most of the time. The test checks for them because the time depends on the machine."""
    code = f"""import sys
from lresnet.cli import main
try:
    main({args!r})
except SystemExit:
    pass
heavy = {{"torch", "numpy", "scipy", "geoopt", "torch_geometric", "matplotlib"}}
sys.exit(" ".join(sorted(heavy & sys.modules.keys())) or 0)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("args", CALLS, ids=" ".join)
def test_the_help_of_every_verb_has_an_example(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([*args, "--help"])
    assert end.value.code == 0
    assert f"Example: lresnet {' '.join(args)}" in capsys.readouterr().out


def test_a_help_text_does_not_keep_the_line_breaks_of_the_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def count(number: int = 1) -> int:
        """Count.

        Args:
            number: How far to count, in one
                sentence of two lines.
        """
        return number

    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        read_call(count, "lresnet count", ["--help"])
    assert "How far to count, in one sentence of two lines." in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"lresnet {__version__}\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["dmo"], "unknown verb 'dmo'; did you mean 'demo'? Choose one of demo, train"),
        (["trian"], "unknown verb 'trian'; did you mean 'train'?"),
        (["--verson"], "unknown option '--verson'; `lresnet --help` lists the verbs"),
        (["plot", "residuals", "--x", "1"], "--x needs 2 values; see `lresnet plot residuals --help`\n"),
        (
            ["plot", "residuls"],
            "unknown verb 'residuls'; did you mean 'residuals'? Choose one of residuals, embedding, ",
        ),
        (["plot"], "a verb is missing; choose one of residuals, embedding, curves, ood; see `lresnet plot --help`\n"),
        (["plot", "--out", "x"], "--out belongs after a verb; choose one of residuals, embedding, curves, ood; see "),
        (["demo", "--colour", "red"], "unknown option --colour; see `lresnet demo --help`\n"),
        (["train", "a.csv", "b.csv"], "unexpected argument 'b.csv'; see `lresnet train --help`\n"),
        (
            ["train", "--wieght", "1"],
            "unknown option --wieght; did you mean --weight learned|FLOAT? See `lresnet train",
        ),
        (["train", "--wieght", "1", "--epocs", "2"], "unknown option --wieght, --epocs; did you mean --"),
        (
            ["train", "--task", "imags"],
            "--task must be one of auto, images, graphs, link, node, graph-level, hierarchy, ",
        ),
        (["train", "--task", "imags"], "text, got 'imags'; did you mean 'images'? See `lresnet train --help`\n"),
        (
            ["train", "--loss", "x"],
            "--loss must be one of cones, cross_entropy, margin, ranking, got 'x'; see `lresnet ",
        ),
        (["train", "--lr"], "--lr needs a value; see `lresnet train --help`\n"),
        (["train", "--epochs", "ten"], "--epochs must be an integer, got 'ten'; see `lresnet train --help`\n"),
        (["train", "--weight", "x"], "--weight must be learned or a number, got 'x'; see `lresnet train --help`\n"),
        (["train", "--drop-columns", "x"], "--drop-columns must be integers, got 'x'; see `lresnet train --help`\n"),
        (["bench", "resnet", "--batch", "x"], "--batch does not take 'x'; see `lresnet bench --help`\n"),
        (["delta"], "FILE|NAME|RUN_DIR is missing; see `lresnet delta --help`\n"),
        (["train", "--seed", "x"], "--seed must be an integer, got 'x'; see `lresnet train --help`\n"),
        (["generate", "run", "--top-p", "x"], "--top-p must be a number, got 'x'; see `lresnet generate --help`\n"),
    ],
)
@pytest.mark.parametrize("columns", ["60", "200"])
def test_a_wrong_call_is_one_line_and_code_2(
    args: list[str], words: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert cli.main(args) == 2
    err = capsys.readouterr().err
    assert err.startswith("lresnet: error: ")
    assert err.count("\n") == 1
    assert words in err


def test_a_wrong_call_on_an_ascii_terminal_is_one_line() -> None:
    words = "lresnet: error: unknown option --patienc; did you mean --patience EPOCHS? See `lresnet train --help`\n"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    call = [sys.executable, "-m", "lresnet", "train", "--patienc", "3"]
    result = subprocess.run(call, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(words)
    assert result.stderr.count("\n") == 1


def test_plot_residuals_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "picture.png"
    options = ["--x", "2", "-2", "--y", "2", "2", "--curvature", "-1", "--out", str(picture)]
    assert cli.main(["plot", "residuals", *options]) == 0
    out = capsys.readouterr().out
    assert "(8, -4)" in out
    assert "(0.8944, 0)" in out
    assert str(picture) in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_plot_draws_into_the_current_folder_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plot", "residuals"]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["lresnet-residuals.png"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["plot", "residuals", "--curvature", "1"], "curvature must be negative"),
        (["plot", "residuals", "--x", "nan", "0"], "x must be two finite numbers"),
        (["plot", "residuals", "--out", "no-such-folder/picture.png"], "No such file or directory"),
        (["plot", "residuals", "--out", "picture.doc"], "must end with .png, .svg, .pdf"),
        (["demo", "--out", "no-such-folder/picture.png"], "no-such-folder/picture.png: No such file or directory"),
        (["demo", "--out", "picture.doc"], "must end with .png, .svg, .pdf"),
        (["demo", "--workers", "0"], "workers must be at least 1"),
        (["delta", "no-such-file"], "no file 'no-such-file', and no data set of that name"),
        (["delta", "one.txt"], "one.txt, line 2: expected two node names, found 'lonely'"),
        (["delta", "edges.txt", "--samples", "0"], "samples must be at least 1"),
    ],
)
def test_user_errors_are_one_line_and_code_2(
    args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.txt").write_text("a b\nlonely\n")
    Path("edges.txt").write_text("a b\nb c\n")
    assert cli.main(args) == 2
    err = capsys.readouterr().err
    assert err.startswith("lresnet: error: ")
    assert words in err
    assert err.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["edges.txt", "one.txt"]


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LRESNET_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        cli.main(["evaluate", "no-such-folder"])


def test_an_interruption_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lresnet.doctor.examine", interrupted)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "lresnet: interrupted\n"


_INTERRUPTED = """
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may have been started with it ignored
moment, folder = sys.argv[1:]
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
if moment == "the end":
    atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
from lresnet.__main__ import main
sys.argv[1:] = ["data", "list"] if moment == "the end" else ["evaluate", folder]
sys.exit(main())
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("moment", ["lresnet.cli", "tyro", "torch", "torch.nn", "the end"])
def test_an_interruption_is_one_line_during_imports_and_at_the_end(moment: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED, moment, tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "lresnet: interrupted\n")


@pytest.mark.skipif(os.name != "posix", reason="descriptors are those of POSIX")
def test_an_output_that_is_closed_from_the_start_is_reported(tmp_path: Path) -> None:
    shell = f"{sys.executable} -m lresnet data list"
    done = subprocess.run(["sh", "-c", f"{shell} >&-"], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    words = "lresnet: error: the standard output is closed, so what was to be printed is lost\n"
    assert (done.returncode, done.stderr) == (1, words)
    done = subprocess.run(["sh", "-c", f"{shell} 2>&-"], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert done.returncode == 0
    assert "cora" in done.stdout


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path: Path) -> None:
    code = "import sys; from lresnet.cli import run_command; sys.exit(run_command(['v'], 'p', lambda _: verb, str))"
    verb = "def verb() -> int:\n    print('K\\u00f8ln', '\\ud800')\n    return 0\n"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", verb + code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "K\\xf8ln \\ud800\n", "")


def test_warnings_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def verb() -> int:
        message = warnings.formatwarning(UserWarning("something\n is odd"), UserWarning, "file.py", 3)
        sys.stderr.write(message)
        return 0

    assert cli.run_command(["verb"], "lresnet", lambda name: verb, str) == 0
    assert capsys.readouterr().err == "lresnet: warning: something is odd\n"


def test_a_full_memory_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> None:
        raise MemoryError("Unable to allocate 3 PiB")

    monkeypatch.setattr("lresnet.doctor.examine", full)
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err == "lresnet: error: there is not enough memory: Unable to allocate 3 PiB\n"


def test_delta_of_a_cycle_is_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cycle.txt"
    file.write_text("# a cycle of 8, and an edge apart\n" + "".join(f"{i} {(i + 1) % 8}\n" for i in range(8)) + "p q\n")
    assert cli.main(["delta", str(file)]) == 0
    out = capsys.readouterr().out
    assert "8 in the largest component (2 outside it)" in out
    assert "2, exact" in out  # a cycle of 4m nodes has delta m


def test_delta_of_a_large_space_is_a_lower_bound_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = np.random.default_rng(0).normal(size=(400, 3))
    np.save(tmp_path / "space.npy", np.linalg.norm(points[:, None] - points, axis=-1))
    assert cli.main(["delta", str(tmp_path / "space.npy"), "--samples", "500", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    assert "(seen)" in out
    assert "at least" in out
    assert "500 drawn at random" in out


def test_delta_of_a_data_set_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["delta", "disease_tree", "--samples", "2000"]) == 0
    out = capsys.readouterr().out
    assert "disease_tree" in out
    assert "1,000" in out
    assert "0, exact" in out  # a tree


def test_delta_prefers_a_file_to_a_data_set_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("airport").write_text("".join(f"{i} {(i + 1) % 4}\n" for i in range(4)))
    assert cli.main(["delta", "airport"]) == 0
    assert "1, exact" in capsys.readouterr().out


def test_demo_prints_the_table_and_draws_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trainings are replaced; tests/runs/test_demo.py tests them."""
    from lresnet.runs import demo

    def quick(runs: list[RunConfig], **options: Any) -> tuple[list[RunRecord], demo.TreeEmbedding]:
        about: dict[str, Any] = {"command": "", "device": "cpu", "versions": {}, "hardware": ""}
        records = [RunRecord(**run.as_dict(), **about, metrics={"f1": 50.0 + run.train.seed}) for run in runs]
        for record in records:
            options["report"](record)
        return records, demo.learn_embedding(epochs=1)

    monkeypatch.setattr(demo, "run_demo", quick)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo"]) == 0
    out = capsys.readouterr().out
    assert out.count("30/30") == 2
    assert out.count("52.0 ± 1.6") == 12
    assert "60 trainings in" in out
    assert [file.name for file in tmp_path.iterdir()] == ["lresnet-demo.png"]


@pytest.mark.parametrize(
    "args", [["data", "list"], pytest.param(["report", ".", "--json"], marks=pytest.mark.slow)], ids=" ".join
)
def test_a_closed_output_pipe_ends_the_command_silently(args, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "lresnet", *args]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_verb_of_another_package_that_does_not_load_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in ("no_such_package:verb", "json:no_such_verb"):
        entry = EntryPoint("count", value, "lresnet.verbs")
        monkeypatch.setattr("lresnet.cli._entries", lambda entry=entry: {"count": entry})
        assert cli.main(["count"]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"lresnet: error: the verb 'count' of another package, {value}, cannot be loaded: ")
        assert error.count("\n") == 1
