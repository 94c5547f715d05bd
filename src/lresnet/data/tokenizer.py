"""Tokenisers of text: single bytes, or byte pairs merged by their frequency in a training text."""

from __future__ import annotations

import heapq
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lresnet._json import read_json
from lresnet._limits import VOCABULARY

__all__ = ["Tokenizer", "train_bpe"]

_BYTES = 256
# A word with the space before it, digits, other signs, or white space. No token spans two of them, and the length is
# limited, because merging the pairs of a word takes a time that grows with the square of its length.
_WORD = re.compile(
    rb" ?[A-Za-z\x80-\xff]{1,32}| ?[0-9]{1,32}| ?[^\sA-Za-z0-9\x80-\xff]{1,32}|\s{1,32}",
)

_BYTES_AT_ONCE = 2**20  # a list of words takes ten times the memory of their bytes

Pair = tuple[int, int]


class Tokenizer:
    r"""Turn bytes into tokens and back, without loss for any bytes.

    Tokens 0 to 255 are the bytes. Token 256 + i is the pair ``merges[i]`` of tokens before it (byte-pair encoding;
    Sennrich, Haddow, Birch: Neural Machine Translation of Rare Words with Subword Units, ACL 2016). The last token
    ends a document, if there is one; it stands for no bytes.

    Args:
        merges: pairs of tokens, in the order in which they are merged; none: tokens are bytes.
        end: whether there is a token for the end of a document.

    Raises:
        ValueError: a pair is not one of earlier tokens, or there are too many.

    Example:
        >>> tokenizer = Tokenizer([(104, 105)], end=True)
        >>> tokenizer.encode(b"hi you").tolist(), tokenizer.vocab_size
        ([256, 32, 121, 111, 117], 258)
        >>> tokenizer.decode([256, 33, tokenizer.end])
        b'hi!'
    """

    def __init__(self, merges: Iterable[Sequence[int]] = (), *, end: bool = False) -> None:
        self.merges: tuple[Pair, ...] = tuple((int(left), int(right)) for left, right in merges)
        self.vocab_size = _BYTES + len(self.merges) + end
        if self.vocab_size > VOCABULARY:
            raise ValueError(f"a vocabulary of {self.vocab_size:,} tokens is too large; the limit is {VOCABULARY:,}")
        self.end = self.vocab_size - 1 if end else None
        self._bytes = [bytes([value]) for value in range(_BYTES)]
        for token, (left, right) in enumerate(self.merges, _BYTES):
            if not (0 <= left < token and 0 <= right < token):
                raise ValueError(
                    f"merge {token - _BYTES} joins the tokens {left} and {right}; both must be below {token}"
                )
            self._bytes.append(self._bytes[left] + self._bytes[right])
            if len(self._bytes[-1]) > _LONGEST:
                raise ValueError(f"merge {token - _BYTES} gives a token of more than {_LONGEST} bytes")
        self._bytes += [b""] * end
        self._ranks = {pair: token for token, pair in enumerate(self.merges, _BYTES)}
        self._words: dict[bytes, list[int]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and (self.merges, self.end) == (other.merges, other.end)

    def __hash__(self) -> int:
        return hash((self.merges, self.end))

    def __repr__(self) -> str:
        kind = f"{len(self.merges):,} merged pairs" if self.merges else "bytes"
        return f"Tokenizer({kind}{'' if self.end is None else ', end token'}: {self.vocab_size:,} tokens)"

    @property
    def dtype(self) -> torch.dtype:
        """The smallest type of integers that torch can index with and that holds every token."""
        return torch.uint8 if self.vocab_size <= _BYTES else torch.int16 if self.vocab_size <= 2**15 else torch.int32

    @property
    def lengths(self) -> Tensor:
        """Number of bytes of every token, int64 ``[vocab_size]``; 0 for the end of a document."""
        return torch.tensor([len(one) for one in self._bytes])

    def encode(self, text: bytes | memoryview) -> Tensor:
        """Return the tokens of ``text``, ``[n]``."""
        if not self.merges:
            return torch.from_numpy(np.frombuffer(text, dtype=np.uint8).copy()).to(self.dtype)
        parts: list[Tensor] = []
        for words in _words(text):
            tokens: list[int] = []
            for word in words:
                found = self._words.get(word)
                if found is None:
                    found = self._words[word] = self._merged(word)
                tokens += found
            parts.append(torch.tensor(tokens, dtype=self.dtype))
        return torch.cat(parts) if parts else torch.empty(0, dtype=self.dtype)

    def decode(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes for which ``tokens`` stand."""
        return b"".join(self._bytes[token] for token in tokens)

    def _merged(self, word: bytes) -> list[int]:
        tokens = list(word)
        while len(tokens) > 1:
            pair = min(itertools.pairwise(tokens), key=lambda pair: self._ranks.get(pair, VOCABULARY))
            if pair not in self._ranks:
                break
            tokens = _with_merged(tokens, pair, self._ranks[pair])
        return tokens

    def as_dict(self) -> dict[str, Any]:
        """Return what :meth:`from_dict` reads, as JSON values."""
        return {"tokens": "bpe" if self.merges else "bytes", "end": self.end is not None, "merges": self.merges}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Tokenizer:
        """Return the tokeniser that :meth:`as_dict` describes.

        Raises:
            ValueError: the values are not those of a tokeniser.
        """
        merges, end = values.get("merges"), values.get("end")
        if not isinstance(merges, list) or type(end) is not bool:
            raise ValueError("it has no list of merges, or end is neither true nor false")
        if not all(
            isinstance(pair, list) and len(pair) == 2 and all(type(one) is int for one in pair) for pair in merges
        ):
            raise ValueError("its merges are not pairs of whole numbers")
        return cls(merges, end=end)

    def to_json(self) -> str:
        """Return the content of ``tokenizer.json``."""
        return json.dumps(self.as_dict()) + "\n"

    @classmethod
    def read(cls, path: Path) -> Tokenizer:
        """Read ``tokenizer.json``.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not one of lresnet.
        """
        try:
            values = read_json(path)
            if not isinstance(values, dict):
                raise ValueError(f"it holds {type(values).__name__}, not an object")
            return cls.from_dict(values)
        except ValueError as error:
            raise ValueError(f"{path} is not a tokenizer.json of lresnet: {error}") from error


def _words(text: bytes | memoryview) -> Iterator[list[bytes]]:
    """Yield all words of a text in lists; they do not depend on where the lists end."""
    start = 0
    while start < len(text):
        end = start + _BYTES_AT_ONCE
        words = _WORD.findall(text, start, end)
        if end < len(text):
            words.pop()  # may go on after the end
        start += sum(map(len, words))
        yield words


_LONGEST = 64  # bytes of a token; a word has 33 at most


def train_bpe(text: bytes | memoryview, vocab_size: int, *, end: bool = False) -> Tokenizer:
    """Return the tokeniser of byte pairs whose ``vocab_size`` tokens suit ``text``.

    The most frequent pair inside words is merged, the smaller one of equals, until there are as many tokens or no pair
    occurs twice. The result depends on the text only.

    Example:
        >>> train_bpe(b"low lower lowest", 258).decode([257])
        b'low'
    """
    if not _BYTES + end <= vocab_size <= VOCABULARY:
        raise ValueError(f"vocab_size must be {_BYTES + end} to {VOCABULARY:,}, got {vocab_size}")
    counts: Counter[bytes] = Counter()
    for some in _words(text):
        counts.update(some)
    words, frequency = [list(word) for word in counts], list(counts.values())
    pairs: Counter[Pair] = Counter()
    places: dict[Pair, set[int]] = defaultdict(set)
    for number, word in enumerate(words):
        for pair in itertools.pairwise(word):
            pairs[pair] += frequency[number]
            places[pair].add(number)
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    merges: list[Pair] = []
    while heap and len(merges) < vocab_size - _BYTES - end:
        count, pair = heapq.heappop(heap)
        if -count != pairs[pair]:  # an old entry; the current one is further back
            continue
        if count > -2:
            break
        token = _BYTES + len(merges)
        merges.append(pair)
        changed: set[Pair] = set()
        for number in sorted(places.pop(pair)):
            old, new = words[number], _with_merged(words[number], pair, token)
            for sign, own in ((-1, old), (1, new)):
                for one in itertools.pairwise(own):
                    pairs[one] += sign * frequency[number]
                    changed.add(one)
            for one in itertools.pairwise(new):
                places[one].add(number)
            words[number] = new
        pairs.pop(pair, None)
        for one in changed - {pair}:
            if pairs[one] > 0:
                heapq.heappush(heap, (-pairs[one], one))
    return Tokenizer(merges, end=end)


def _with_merged(tokens: Sequence[int], pair: Pair, token: int) -> list[int]:
    """Return the tokens with every occurrence of ``pair`` replaced, from left to right."""
    return list(_merge(tokens, pair, token))


def _merge(tokens: Sequence[int], pair: Pair, token: int) -> Iterator[int]:
    index = 0
    while index < len(tokens):
        if index + 1 < len(tokens) and (tokens[index], tokens[index + 1]) == pair:
            yield token
            index += 2
        else:
            yield tokens[index]
            index += 1
