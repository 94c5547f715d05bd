"""Text to model: its tokens, split into contiguous training, validation and test parts."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from lresnet.data.files import Root, source_files
from lresnet.data.formats.text_files import read_documents
from lresnet.data.registry import TEXTS, reader
from lresnet.data.shaped import shaped
from lresnet.data.source import DataKind
from lresnet.data.tokenizer import Tokenizer, train_bpe

__all__ = ["TextTask", "Tokens", "text_task"]

Tokens = Literal["bytes", "bpe"]
"""What the tokens of a text are."""

# Shares of the text for validation and test: its end, so that no sentence of them is in the training part.
_HELD_OUT = 0.05
_DECODED_BYTES = 2**20  # decoded at once, to count the bytes that are not UTF-8
DEFAULT_VOCABULARY = 1024
DEFAULT_CONTEXT = 256


@dataclass(frozen=True, eq=False)
class TextTask:
    """Language modelling: predict every token of a text from those before it.

    :func:`text_task` makes one from a file.

    Args:
        name: Name of the task, or the path of the text.
        train: Training tokens ``[n]``, of an integer type that holds them, see :attr:`Tokenizer.dtype`.
        val: Validation tokens.
        test: Test tokens.
        tokenizer: What the tokens stand for.
        context: Number of tokens that a model sees at once.
        steps_per_epoch: Training steps of an epoch. None: an epoch reads as many tokens as the training part has.
        notes: What was done to the text to make the task, one sentence each.

    Raises:
        ValueError: A part has no ``context + 1`` tokens to train on, or no two tokens to evaluate on.
    """

    data_kind: ClassVar[DataKind] = "texts"

    name: str
    train: Tensor
    val: Tensor
    test: Tensor
    tokenizer: Tokenizer
    context: int
    steps_per_epoch: int | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return shaped(self)

    def __post_init__(self) -> None:
        _require_count("context", self.context)
        if self.steps_per_epoch is not None:
            _require_count("steps_per_epoch", self.steps_per_epoch)
        for part, least in (("train", self.context + 1), ("val", 2), ("test", 2)):
            tokens: Tensor = getattr(self, part)
            if tokens.dim() != 1 or tokens.is_floating_point():
                raise ValueError(
                    f"{self.name}: {part} must be whole numbers [n], got {tokens.dtype} {list(tokens.shape)}"
                )
            if len(tokens) < least:
                hint = "a longer text or a smaller context (--context)" if part == "train" else "a longer text"
                found = _counted(len(tokens), "token")
                raise ValueError(f"{self.name}: {part} has {found}, but needs at least {least:,}; use {hint}")

    @property
    def vocab_size(self) -> int:
        """Number of different tokens."""
        return self.tokenizer.vocab_size

    def to(self, device: torch.device | str) -> TextTask:
        """Return the task with its tokens on ``device``."""
        return replace(self, train=self.train.to(device), val=self.val.to(device), test=self.test.to(device))

    def model_sizes(self) -> dict[str, Any]:
        """Return the arguments of :func:`lresnet.create_model` that the task decides."""
        return {"vocab_size": self.vocab_size, "context": self.context}

    def describe(self) -> dict[str, Any]:
        """Return the name of the task, its context, its steps per epoch and a checksum of the text as JSON values."""
        steps = {} if self.steps_per_epoch is None else {"steps_per_epoch": self.steps_per_epoch}
        return {"name": self.name, "context": self.context, "digest": self.facts()["digest"]} | steps

    def facts(self) -> dict[str, Any]:
        """Return the sizes and a checksum of the text as JSON values."""
        digest = hashlib.sha256(self.tokenizer.to_json().encode())
        for part in (self.train, self.val, self.test):
            digest.update(f"{len(part)}".encode())
            digest.update(part.cpu().contiguous().view(torch.uint8).numpy().data)
        lengths = self.tokenizer.lengths
        # Counted by token: an index of every token would need sixteen times the memory of a text.
        counts = (part.cpu().bincount(minlength=len(lengths)) for part in (self.train, self.val, self.test))
        sizes = [int((count * lengths).sum()) for count in counts]
        return {
            "bytes": sum(sizes),
            "training_bytes": sizes[0],
            "test_bytes": sizes[2],
            "vocab_size": self.vocab_size,
            "tokens": "bpe" if self.tokenizer.merges else "bytes",
            "digest": digest.hexdigest(),
        }


def text_task(
    text: str | Path | bytes | Sequence[bytes],
    *,
    tokens: Tokens = "bytes",
    vocab_size: int | None = None,
    context: int = DEFAULT_CONTEXT,
    max_bytes: int | None = None,
    steps_per_epoch: int | None = None,
    name: str | None = None,
    root: Root = None,
) -> TextTask:
    """Return the task to model a text: its first 90 % to train on, then 5 % for validation and 5 % for the test.

    The parts are contiguous, and are cut where a character begins. A text that is not UTF-8 stays as it is: tokens are
    bytes, or pairs that were merged from bytes.

    Args:
        text: A name of :data:`lresnet.data.TEXTS`; a file, also gzipped, or a folder whose ``.txt`` and ``.txt.gz``
            files are documents; or the bytes of a text, or of each of several documents. A token ends each of several
            documents.
        tokens: ``"bytes"``, or ``"bpe"`` for byte pairs that are merged by their frequency in the training part.
        vocab_size: Number of tokens of ``"bpe"``; None: 1024.
        context: Number of tokens that a model sees at once.
        max_bytes: Use the first bytes of the text only, this many or up to three more, so that the last character is
            whole. None: all.
        steps_per_epoch: Training steps of an epoch. None: an epoch reads as many tokens as the training part has.
        name: Name of the task; None: the path of the text, or ``"text"``.
        root: Data roots of the named texts, see :func:`lresnet.data.files.data_roots`.

    Raises:
        FileNotFoundError: There is no such file, or no text in the folder.
        TypeError: The text is something else, such as a list of str.
        ValueError: The text is empty, binary, damaged, or too short for the context; ``vocab_size`` is given for
            bytes; or a number is below 1.

    Example:
        >>> task = text_task(b"to be or not to be, " * 50, context=16)
        >>> task
        TextTask(name='text', train=[900], val=[50], test=[50], tokenizer=Tokenizer(bytes: 256 tokens), context=16)
    """
    if tokens not in ("bytes", "bpe"):
        raise ValueError(f"tokens must be bytes or bpe, got {tokens!r}")
    if tokens == "bytes" and vocab_size is not None:
        raise ValueError(f"vocab_size={vocab_size} is for tokens='bpe', but bytes are 256 tokens; leave it out")
    if isinstance(text, str) and text in TEXTS:
        documents, name = reader(TEXTS[text])(source_files(TEXTS[text], root)), text if name is None else name
    elif isinstance(text, str | Path):
        if not _may_be_path(str(text)):
            raise ValueError(
                f"a str is the path of a text, got one of {len(str(text)):,} characters; to model the str itself, pass "
                "its bytes: text.encode()"
            )
        documents = read_documents(Path(text))
        name = str(text) if name is None else name
    else:
        documents = _documents(text)
    size = sum(map(len, documents))
    if max_bytes is not None:
        _require_count("max_bytes", max_bytes)
        documents = _first_bytes(documents, max_bytes)
    name, end = "text" if name is None else name, len(documents) > 1
    parts = _split(documents)
    if not all(parts):
        size = sum(map(len, documents))
        raise ValueError(
            f"{name} has only {_counted(size, 'byte')}, too few for training, validation and test parts; use a longer "
            "text"
        )
    if tokens == "bpe":
        pieces = [piece for piece, _ in parts[0]]
        whole = pieces[0] if len(pieces) == 1 else b"\n".join(pieces)
        tokenizer = train_bpe(whole, vocab_size or DEFAULT_VOCABULARY, end=end)
        del whole
    else:
        tokenizer = Tokenizer(end=end)
    train, val, test = (_encode(part, tokenizer) for part in parts)
    notes = _notes(documents, end, whole=size)
    return TextTask(name, train, val, test, tokenizer, context, steps_per_epoch, tuple(notes))


def _may_be_path(text: str) -> bool:
    """Return whether a file may have this path: no part of it is longer than file systems allow."""
    return 0 < max(map(len, text.split("/"))) < 256 and "\n" not in text


def _documents(text: Any) -> list[bytes]:
    """Return the documents that are not empty, from bytes or a sequence of bytes."""
    documents = [text] if isinstance(text, bytes) else text
    if not isinstance(documents, list | tuple):
        raise TypeError(f"a text must be a file, bytes or a list of bytes, got {type(text).__name__}")
    if kinds := {type(one).__name__ for one in documents if not isinstance(one, bytes)}:
        raise TypeError(f"the documents of a text must be bytes, got {' and '.join(sorted(kinds))}")
    return [one for one in documents if one]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _require_count(name: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def _first_bytes(documents: Sequence[bytes], size: int) -> list[bytes]:
    """Return the first ``size`` bytes of the documents; the last of them is cut after a character."""
    found = []
    for document in documents:
        if size <= 0:
            break
        found.append(document[: _start_of_character(document, min(size, len(document)))])
        size -= len(document)
    return found


Piece = tuple[memoryview, bool]  # a part of a document, not copied, and whether the document ends with it


def _split(documents: Sequence[bytes]) -> list[list[Piece]]:
    """Return the documents of the three parts; a document that is cut continues in the next part."""
    size = sum(map(len, documents))
    cuts = [round((1 - 2 * _HELD_OUT) * size), round((1 - _HELD_OUT) * size)]
    parts: list[list[Piece]] = [[], [], []]
    start = 0
    for document in documents:
        first, second = (_start_of_character(document, min(max(cut - start, 0), len(document))) for cut in cuts)
        bounds = ((0, first), (first, second), (second, len(document)))
        for part, (low, high) in zip(parts, bounds, strict=True):
            part.extend([(memoryview(document)[low:high], high == len(document))] * (low < high))
        start += len(document)
    return parts


def _start_of_character(text: bytes, place: int) -> int:
    """Return ``place`` or the next place at which a character of UTF-8 begins, three bytes further at most."""
    ends = (at for at in range(place, place + 4) if at >= len(text) or text[at] & 0xC0 != 0x80)
    return min(next(ends, place), len(text))


def _encode(pieces: Sequence[Piece], tokenizer: Tokenizer) -> Tensor:
    """Return the tokens of a part."""
    tokens: list[Tensor] = []
    for piece, ends in pieces:
        tokens.append(tokenizer.encode(piece))
        if ends and tokenizer.end is not None:
            tokens.append(torch.tensor([tokenizer.end], dtype=tokenizer.dtype))
    return tokens[0] if len(tokens) == 1 else torch.cat(tokens)


def _notes(documents: Sequence[bytes], end: bool, whole: int) -> list[str]:
    used = sum(map(len, documents))
    notes = [f"the first {used:,} of {whole:,} bytes are used (--max-bytes)"] if used < whole else []
    if end:
        notes.append(f"{len(documents):,} documents, each of which ends with a token of its own")
    damaged = sum(_bytes_outside_utf8(document) for document in documents)
    if damaged:
        belong = "byte belongs" if damaged == 1 else "bytes belong"
        notes.append(f"the text is not UTF-8: {damaged:,} {belong} to no character, and the model learns them as bytes")
    return notes


def _bytes_outside_utf8(text: bytes) -> int:
    """Return the number of bytes of a text that belong to no character of UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")
    view, kept = memoryview(text), 0
    for start in range(0, len(text), _DECODED_BYTES):  # as one str, a text may take four times its memory
        kept += len(decoder.decode(view[start : start + _DECODED_BYTES]).encode())
    return len(text) - kept - len(decoder.decode(b"", final=True).encode())
