"""Tokenisers: no byte is lost, merges follow frequency, and files that are not tokenisers are refused."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lresnet.data import Tokenizer
from lresnet.data.tokenizer import train_bpe

TEXT = b"the cat sat on the mat, the cat ate the rat 12 times\n" * 3 + "Gr\u00fc\u00dfe \u4f60\u597d\n".encode()


@given(st.binary(max_size=300))
def test_no_byte_is_lost(text: bytes) -> None:
    for tokenizer in (Tokenizer(), Tokenizer(end=True), train_bpe(TEXT, 300)):
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens.tolist()) == text
        assert int(tokenizer.lengths[tokens.long()].sum()) == len(text)


def test_merges_are_the_most_frequent_pairs() -> None:
    """Against the definition: count all pairs inside words, merge the first of the most frequent ones, repeat."""
    words = [
        list(word) for word in re.findall(rb" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+", b"low lower, lowest slow" * 4)
    ]
    merges = []
    for token in range(256, 262):
        counts = Counter(pair for word in words for pair in itertools.pairwise(word))
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merges.append(best)
        for word in words:
            for place in range(len(word) - 1):
                if tuple(word[place : place + 2]) == best:
                    word[place : place + 2] = [token]
    assert train_bpe(b"low lower, lowest slow" * 4, 262).merges == tuple(merges)


def test_a_token_never_spans_two_words() -> None:
    tokenizer = train_bpe(b"ab cd " * 100, 400)
    assert all(b" " not in tokenizer.decode([token])[1:] for token in range(256, tokenizer.vocab_size))


def test_training_stops_where_no_pair_occurs_twice() -> None:
    assert train_bpe(b"abcd", 1000).vocab_size == 256


@pytest.mark.parametrize("tokenizer", [Tokenizer(), Tokenizer(end=True), train_bpe(TEXT, 280, end=True)])
def test_a_tokeniser_is_read_as_it_was_written(tokenizer: Tokenizer, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(tokenizer.to_json())
    assert Tokenizer.read(file) == tokenizer


def test_the_type_of_the_tokens_holds_all_of_them() -> None:
    assert Tokenizer().encode(b"\xff").dtype == torch.uint8
    assert Tokenizer(end=True).encode(b"\xff").dtype == torch.int16
    pairs = [(i // 256, i % 256) for i in range(2**15)]
    large = Tokenizer(pairs)
    assert large.encode(b"~ ab").tolist() == [126, 256 + 32 * 256 + 97, 98]
    assert large.encode(b"zz").tolist() == [256 + 122 * 256 + 122]
    assert large.dtype == torch.int32


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "list, not an object"),
        ("{}", "no list of merges"),
        (json.dumps({"merges": [[1, 2, 3]], "end": False}), "not pairs"),
        (json.dumps({"merges": [[256, 1]], "end": False}), "must be below 256"),
        (json.dumps({"merges": [[1, -1]], "end": False}), "must be below 256"),
        (json.dumps({"merges": [[97, 97]] + [[256 + i] * 2 for i in range(6)], "end": False}), "more than 64 bytes"),
        (json.dumps({"merges": [[97, 97]] * 2**16, "end": False}), "too large"),
        ("{", "Expecting"),
    ],
)
def test_a_damaged_tokeniser_is_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=message):
        Tokenizer.read(file)


@pytest.mark.parametrize("size", [255, 2**16 + 1])
def test_a_vocabulary_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"got {size}"):
        train_bpe(TEXT, size)
