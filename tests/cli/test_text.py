"""The command line on texts: train, evaluate, generate, report, plot, and the messages of wrong calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lresnet.cli import main

TINY = [
    "--task",
    "text",
    "--device",
    "cpu",
    "--epochs",
    "1",
    "--layers",
    "1",
    "--width",
    "16",
    "--heads",
    "2",
    "--context",
    "8",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "song.txt").write_bytes(b"".join(b"%d green bottles on the wall\n" % i for i in range(60)))
    return tmp_path


def test_a_text_is_trained_evaluated_continued_and_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "song.txt", *TINY, "--test"]) == 0
    printed = capsys.readouterr().out
    assert "256 different ones" in printed
    assert "bits_per_byte" in printed
    run = "runs/song.txt-lorentz-0"
    assert (folder / run / "model" / "tokenizer.json").is_file()
    assert main(["generate", run, "--prompt", "7 green", "--tokens", "9", "--seed", "1"]) == 0
    one = capsys.readouterr().out
    assert one.startswith("7 green")
    assert main(["generate", run, "--prompt", "7 green", "--tokens", "9", "--seed", "1", "--top-k", "0"]) == 0
    assert capsys.readouterr().out.startswith("7 green")
    assert main(["train", "song.txt", *TINY, "--method", "euclidean", "--test"]) == 0
    capsys.readouterr()
    assert main(["report", "runs"]) == 0
    assert "less is better" in capsys.readouterr().out
    assert main(["report", "runs", "--out", "report.html"]) == 0
    assert "lowest mean test bits_per_byte" in (folder / "report.html").read_text()
    capsys.readouterr()
    assert main(["report", "runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["metric"] == "bits_per_byte"
    assert main(["plot", "curves", run, "--out", "curves.svg"]) == 0
    for verb in (["predict", run], ["embed", run], ["neighbours", run, "1"], ["predict", run, "--links"], ["ood", run]):
        capsys.readouterr()
        assert main(verb) == 2
        assert "lresnet generate" in capsys.readouterr().err
    for picture in ("embedding", "ood"):
        assert main(["plot", picture, run]) == 2


def test_the_same_command_resumes_nothing_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["train", "song.txt", *TINY, "--tokens", "bpe", "--vocab-size", "260", "--out", "run"]) == 0
    assert "byte pairs, 260 different ones" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "nothing.txt", "--task", "text"], "does not exist"),
        (["train", "empty.txt", "--task", "text"], "is empty"),
        (["train", "image.bin", "--task", "text"], "byte 4 is zero"),
        (["train", "short.txt", "--task", "text"], "--context"),
        (["train", "song.txt", "--task", "text", "--split", "random"], "--split is for graphs"),
        (["train", "song.txt", "--task", "text", "--hidden", "8"], "--hidden is for graphs"),
        (["train", "song.txt", "--task", "text", "--search", "off"], "--search is for your own graph"),
        (["train", "song.txt", "--task", "text", "--context", "0"], "at least 1"),
        (["train", "song.txt", "--task", "text", "--model", "lorentz_gcn"], "not a network for texts"),
        (["generate", "nowhere"], "nowhere"),
    ],
)
def test_wrong_calls_are_answered_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (folder / "empty.txt").touch()
    (folder / "image.bin").write_bytes(b"\x89PNG\0" * 100)
    (folder / "short.txt").write_text("a few words " * 10)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_run_on_a_graph_continues_no_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "disease_tree/lp", "--epochs", "1", "--out", "tree", "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main(["generate", "tree"]) == 2
    assert "is no text" in capsys.readouterr().err
