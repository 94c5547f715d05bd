"""Texts as tasks: contiguous parts, documents, and files that are no texts."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lresnet.data import TEXTS, TextTask, Tokenizer, text_task
from lresnet.data import text as text_module
from lresnet.data import tokenizer as tokenizer_module
from lresnet.data.registry import reader

LINES = "".join(f"line {i}: some text\n" for i in range(200)).encode()


def decoded(task: TextTask) -> bytes:
    parts = torch.cat([task.train, task.val, task.test])
    return task.tokenizer.decode(parts.tolist())


@pytest.mark.parametrize("tokens", ["bytes", "bpe"])
def test_the_parts_are_the_text_in_its_order(tokens: str) -> None:
    task = text_task(LINES, tokens=tokens, vocab_size=300 if tokens == "bpe" else None, context=16)  # type: ignore[arg-type]
    assert decoded(task) == LINES
    sizes = [len(task.tokenizer.decode(part.tolist())) for part in (task.train, task.val, task.test)]
    assert [round(size / len(LINES), 2) for size in sizes] == [0.9, 0.05, 0.05]
    assert task.facts()["bytes"] == len(LINES)


def test_byte_pairs_are_counted_in_the_training_part_only() -> None:
    training, rest = b"ab" * 450, b"zq" * 50
    assert b"zq" not in [text_task(training + rest, tokens="bpe", context=4).tokenizer.decode([256])]
    assert (
        text_task(training + rest, tokens="bpe", context=4).tokenizer
        == text_task(training + b"xyxy" * 25, tokens="bpe", context=4).tokenizer
    )


@pytest.mark.parametrize("length", range(97, 110))
def test_no_character_is_cut(length: int) -> None:
    text = ("\u4f60" * length).encode()
    task = text_task(text, context=4)
    for part in (task.train, task.val, task.test):
        task.tokenizer.decode(part.tolist()).decode()


def test_documents_end_with_a_token_where_they_end() -> None:
    task = text_task([b"a" * 30, b"b" * 30, b"", b"c" * 40], context=4)
    end = task.tokenizer.end
    assert end == 256
    whole = torch.cat([task.train, task.val, task.test])
    assert (whole == end).nonzero().flatten().tolist() == [30, 61, 102]
    assert int(whole[-1]) == end
    assert decoded(task) == b"a" * 30 + b"b" * 30 + b"c" * 40
    assert "3 documents" in task.notes[0]


def test_a_folder_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a.txt").write_bytes(b"first " * 20)
    (tmp_path / "b" / "x.TXT.gz").write_bytes(gzip.compress(b"second " * 20))
    (tmp_path / "c.txt").write_bytes(b"")
    (tmp_path / "ignored.md").write_bytes(b"other")
    task = text_task(tmp_path, context=4)
    assert decoded(task) == b"first " * 20 + b"second " * 20
    assert task.vocab_size == 257


def test_a_gzipped_file_is_the_same_text(tmp_path: Path) -> None:
    plain, zipped = tmp_path / "text.txt", tmp_path / "text.gz"
    plain.write_bytes(LINES)
    zipped.write_bytes(gzip.compress(LINES))
    assert text_task(plain).facts() == text_task(zipped).facts()


def test_a_gzipped_text_that_expands_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    text = b"all the same\n" * 200_000
    (tmp_path / "text.txt").write_bytes(text)
    (tmp_path / "text.gz").write_bytes(gzip.compress(text))
    with pytest.raises(ValueError, match=r"text\.gz expands to more than 1,048,576 bytes, the limit for this file"):
        text_task(tmp_path / "text.gz")
    assert text_task(tmp_path / "text.txt").vocab_size == 256


def test_bytes_that_are_not_utf8_are_kept_and_counted() -> None:
    text = LINES + b"caf\xe9 \xff" + LINES
    task = text_task(text)
    assert decoded(task) == text
    assert "2 bytes belong to no character" in task.notes[0]
    assert "1 byte belongs to no character" in text_task(LINES + b"\xff").notes[0]


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbf" + LINES)
    (tmp_path / "only_a_mark.txt").write_bytes(b"\xef\xbb\xbf")
    assert decoded(text_task(tmp_path, context=16)) == LINES


def test_the_first_bytes_of_the_documents_are_used() -> None:
    documents = [b"a" * 300, "\u4f60".encode() * 100, b"c" * 300]
    task = text_task(documents, context=16, max_bytes=400)
    assert decoded(task) == b"a" * 300 + "\u4f60".encode() * 34  # 400 would cut a character
    assert task.notes[0] == "the first 402 of 900 bytes are used (--max-bytes)"
    assert "2 documents" in task.notes[1]
    whole = text_task(documents, context=16, max_bytes=900)
    assert whole.facts() == text_task(documents, context=16).facts()
    assert "used" not in whole.notes[0]
    assert decoded(text_task(documents, context=16, max_bytes=300)) == b"a" * 300


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"PNG\0data" * 100, "byte 3 is zero"),
        ("text".encode("utf-16") * 50, "UTF-16"),
        ("text".encode("utf-32") * 50, "is UTF-32; convert it first: iconv -f utf-32"),
        (b"x", "has only 1 byte, too few"),
        (b"x" * 5, "use a longer text"),
        (b"x" * 200, "train has 180 tokens, but needs at least 257"),
        (b"\x1f\x8bxxxxxx", "damaged"),
    ],
)
def test_a_file_that_is_no_text_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        text_task(file)


def test_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        text_task(tmp_path / "no.txt")
    with pytest.raises(FileNotFoundError, match=r"has no \.txt"):
        text_task(tmp_path)


def test_a_text_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lresnet.data.formats.text_files.TEXT_BYTES", 1000)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(b"x" * 600)
    text_task(tmp_path / "a.txt", context=4)
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        text_task(tmp_path, context=4)
    (tmp_path / "c.gz").write_bytes(gzip.compress(b"x" * 1200))
    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        text_task(tmp_path / "c.gz", context=4)


def test_the_dictionary_is_one_document(tmp_path: Path) -> None:
    file = tmp_path / "gcide.dict.dz"
    file.write_bytes(gzip.compress(LINES))
    source = TEXTS["gcide"]
    assert [one.name for one in source.files] == [file.name]
    assert reader(source)({file.name: file}) == [LINES]


def test_a_text_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"texts/gcide\.dict\.dz; its origin: the Debian package dict-gcide"):
        text_task("gcide", root=tmp_path)


@pytest.mark.parametrize("text", ["", "to be or not to be " * 50, "two\nlines"])
def test_a_str_that_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=rf"is the path of a text, got one of {len(text)} characters.*text\.encode"):
        text_task(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (5, "must be a file, bytes or a list of bytes, got int"),
        (None, "must be a file, bytes or a list of bytes, got NoneType"),
        (["a"], "documents of a text must be bytes, got str"),
        ((b"a", "b"), "documents of a text must be bytes, got str"),
    ],
)
def test_what_is_no_text_is_refused(text: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"{message}$"):
        text_task(text)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="for tokens='bpe'"):
        text_task(LINES, vocab_size=300)
    with pytest.raises(ValueError, match="bytes or bpe"):
        text_task(LINES, tokens="words")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="whole number of at least 1, got 0"):
        text_task(LINES, context=0)
    with pytest.raises(ValueError, match="max_bytes must be a whole number of at least 1, got 0"):
        text_task(LINES, max_bytes=0)
    with pytest.raises(ValueError, match="steps_per_epoch must be a whole number of at least 1, got True"):
        text_task(LINES, steps_per_epoch=True)
    with pytest.raises(ValueError, match="whole numbers"):
        TextTask("floats", torch.zeros(9), torch.zeros(9), torch.zeros(9), Tokenizer(), 2)


_PEAK_MEMORY = """
import sys
from lresnet.data import text_task

def peak():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

text_task(sys.argv[1], context=4, max_bytes=1000).facts()
before = peak()
text_task(sys.argv[1], context=4).facts()
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_a_text_takes_a_small_multiple_of_its_size_in_memory(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes("words and \U0001f600 more words\n".encode() * 500_000)
    command = [sys.executable, "-c", _PEAK_MEMORY, str(text)]
    growth = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert growth < 4 * text.stat().st_size


@pytest.mark.parametrize("tokens", ["bytes", "bpe"])
def test_tokens_and_notes_do_not_depend_on_the_bytes_read_at_once(tokens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"".join((b"low lower  lowest\n", "\U0001f600\u00e9".encode(), b"\xf0\x9f", b"7" * 40, b"a" * 90)) * 20
    whole = text_task([text, text[:150]], tokens=tokens, context=4)
    assert "42 bytes belong to no character" in whole.notes[-1]
    for size in (40, 41, 77):
        monkeypatch.setattr(tokenizer_module, "_BYTES_AT_ONCE", size)
        monkeypatch.setattr(text_module, "_DECODED_BYTES", size - 37)
        task = text_task([text, text[:150]], tokens=tokens, context=4)
        assert (task.tokenizer, task.notes) == (whole.tokenizer, whole.notes)
        for part in ("train", "val", "test"):
            assert torch.equal(getattr(task, part), getattr(whole, part))
