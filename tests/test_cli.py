"""The command line: what it prints, and how it ends."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lresnet import __version__, cli


def test_help_names_every_verb_and_is_quick() -> None:
    def seconds() -> float:
        """Processor time, which other work on the machine does not lengthen as it does the wall clock."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = subprocess.run([sys.executable, "-m", "lresnet", "--help"], check=True, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert all(verb in result.stdout for verb in ("demo", "delta", "doctor"))
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    assert min(seconds() for _ in range(5)) < 0.5


@pytest.mark.parametrize("args", [["demo", "--help"], ["delta", "--help"], ["doctor", "--help"]])
def test_every_verb_explains_itself_with_an_example(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(args)
    assert end.value.code == 0
    assert f"Example: lresnet {args[0]}" in capsys.readouterr().out


def test_without_a_verb_it_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([])
    assert end.value.code == 0
    assert "usage: lresnet" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"lresnet {__version__}\n"


@pytest.mark.parametrize("args", [["dmo"], ["demo", "--x", "1"], ["demo", "--colour", "red"], ["delta"]])
def test_a_wrong_call_ends_with_code_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(args)
    assert end.value.code == 2
    assert "lresnet" in capsys.readouterr().err


def test_demo_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "picture.png"
    assert cli.main(["demo", "--x", "2", "-2", "--y", "2", "2", "--curvature", "-1", "--out", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "(8, -4)" in out
    assert "(0.8944, 0)" in out
    assert str(picture) in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_demo_draws_into_the_current_folder_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo"]) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["lresnet-demo.png"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["demo", "--curvature", "1"], "curvature must be negative"),
        (["demo", "--x", "nan", "0"], "x must be two finite numbers"),
        (["demo", "--out", "no-such-folder/picture.png"], "No such file or directory"),
        (["demo", "--out", "picture.doc"], "doc"),
        (["delta", "no-such-file"], "no-such-file: No such file or directory"),
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


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LRESNET_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        cli.main(["delta", "no-such-file"])


def test_interruption_ends_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lresnet.doctor.examine", interrupted)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == ""


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
