"""The command line on texts: train, evaluate, generate, report, plot, and the messages of wrong calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lresnet.cli import main
from lresnet.cli.generate import _printable

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
    assert "lower is better" in capsys.readouterr().out
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


def test_a_txt_that_is_read_as_a_graph_may_be_a_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pairs.txt").write_text("".join(f"one {i},two {i * i % 17}\n" for i in range(60)))
    assert main(["train", "pairs.txt", "--search", "off", "--epochs", "1"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "pairs.txt is read as a graph; if it is none, add --task text or --task hierarchy" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "nothing.txt", "--task", "text"], "does not exist"),
        (["train", "short.txt"], "if the file is no graph, add --task text or --task hierarchy"),
        (["train", "empty.txt", "--task", "text"], "is empty"),
        (["train", "image.bin", "--task", "text"], "byte 4 is zero"),
        (["train", "short.txt", "--task", "text"], "--context"),
        (["train", "song.txt", "--task", "text", "--split", "random"], "--split is for graphs"),
        (["train", "song.txt", "--task", "text", "--hidden", "8"], "--hidden is for graphs"),
        (["train", "song.txt", "--task", "text", "--search", "off"], "--search is for your own graph"),
        (["train", "song.txt", "--task", "text", "--context", "0"], "at least 1"),
        (["train", "song.txt", "--task", "text", "--model", "lorentz_gcn"], "not a network for texts"),
        (
            ["train", "song.txt", "--task", "text", "--width", "16", "--heads", "3"],
            "not a multiple of heads=3",
        ),
        (["train", "song.txt", "--task", "text", "--width", "16", "--heads", "8"], "use fewer heads"),
        (["train", "song.txt", "--task", "text", "--max-bytes", "9"], "has only 9 bytes"),
        (["train", "song.txt", "--task", "text", "--steps-per-epoch", "0"], "at least 1"),
        (["train", "disease_tree/lp", "--max-bytes", "9"], "--max-bytes is for texts"),
        (["generate", "nowhere"], "nowhere"),
        (["generate", ".", "--tokens", "0"], "--tokens must be at least 1"),
        (["generate", ".", "--temperature", "nan"], "--temperature must be at least 0"),
        (["generate", ".", "--top-p", "1.5"], "--top-p must be above 0 and at most 1, got 1.5"),
        (["generate", ".", "--top-k", "-1"], "--top-k must be at least 1, or 0"),
    ],
)
def test_wrong_calls_are_answered_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (folder / "run.json").touch()
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


def test_an_epoch_of_given_length_is_reported_and_recorded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["--max-bytes", "900", "--steps-per-epoch", "2"]
    assert main(["train", "song.txt", *TINY, *limits, "--out", "run"]) == 0
    printed = capsys.readouterr().out
    assert "the first 900 of 1,730 bytes are used (--max-bytes)" in printed
    assert "1 epoch of 2 steps, each of 16 windows of 8 tokens" in printed
    record = json.loads((folder / "run" / "run.json").read_text())
    assert record["text"]["bytes"] == 900
    assert record["task"]["steps_per_epoch"] == 2
    assert "--steps-per-epoch 2" in record["command"]


def test_a_terminal_without_the_characters_gets_question_marks() -> None:
    assert _printable("a\tb\r\n", "utf-8") == "a\tb\r\n"
    assert _printable("\x1b[31mred\x00\x9b", "utf-8") == "\ufffd[31mred\ufffd\ufffd"
    assert _printable("caf\xe9 \u4f60", "latin-1") == "caf\xe9 ?"
