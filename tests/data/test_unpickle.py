"""The reader of pickles: what it reads, and that it never executes what a pickle names."""

import builtins
import os
import pickle
import resource
import subprocess
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from lresnet.data.formats.unpickle import read_pickle, require_own_items
from tests.data.official import old_names


class _Calls:
    """An object that is pickled as a call of ``function`` with ``arguments``."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def _written(folder: Path, content: bytes) -> Path:
    path = folder / "graph.p"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_matrices_are_read(tmp_path: Path, protocol: int) -> None:
    for array in (
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([1.5, 2.5], dtype=">f4"),
        np.zeros((0, 3), dtype=np.float32),
    ):
        read = read_pickle(_written(tmp_path, pickle.dumps(array, protocol)))
        assert np.array_equal(read, array)
        assert read.dtype == array.dtype.newbyteorder("=")
    matrix = sparse.csr_matrix(np.eye(3, dtype=np.float32)[[2, 0]])
    read = read_pickle(_written(tmp_path, old_names(pickle.dumps(matrix, protocol=2))))
    assert np.array_equal(read.toarray(), matrix.toarray())


def test_dictionaries_of_lists_are_read(tmp_path: Path) -> None:
    neighbours = defaultdict(list, {0: [1, 2], 1: [0]})
    assert read_pickle(_written(tmp_path, pickle.dumps(neighbours, protocol=2))) == {0: [1, 2], 1: [0]}
    ordered = OrderedDict([("b", 1), ("a", 2)])
    assert list(read_pickle(_written(tmp_path, pickle.dumps(ordered))).items()) == [("b", 1), ("a", 2)]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (os.system, ("touch harmed",)),
        (eval, ("open('harmed', 'w')",)),
        (exec, ("open('harmed', 'w')",)),
        (builtins.getattr, ("text", "format")),
        (builtins.__import__, ("antigravity",)),
        (subprocess.call, (["touch", "harmed"],)),
        (Path, ("harmed",)),
        (np.fromfile, ("harmed",)),
        (np.load, ("harmed",)),
        (pickle.loads, (b"N.",)),
    ],
)
def test_pickle_that_calls_a_function_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int, function: Any, arguments: tuple[Any, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = _written(tmp_path, pickle.dumps(_Calls(function, *arguments), protocol))
    with pytest.raises(ValueError, match=r"graph\.p is refused: it needs") as caught:
        read_pickle(path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "harmed").exists()


def test_call_inside_an_allowed_container_is_refused(tmp_path: Path) -> None:
    hidden = {"graph": [np.arange(3), _Calls(os.system, "true")]}
    with pytest.raises(ValueError, match=r"it needs posix\.system"):
        read_pickle(_written(tmp_path, pickle.dumps(hidden)))


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}, []], dtype=object),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["text"]),
        np.array([1 + 2j]),
    ],
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_arrays_of_objects_and_records_are_refused(tmp_path: Path, array: Any, protocol: int) -> None:
    with pytest.raises(ValueError, match="is refused: "):
        read_pickle(_written(tmp_path, pickle.dumps(array, protocol)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"cbuiltins\ndict\n(N(S'get'\ncos\nsystem\ndtb.", "it needs os.system"),
        (b"cnumpy\nndarray\n}S'value'\ncposix\nsystem\nsb.", "it needs posix.system"),
        (b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.", "dtype 'O8'"),
        (b"c_codecs\nencode\n(Vtext\nVrot13\ntR.", "other than latin1"),
        (b"Pelsewhere\n.", "outside the file"),
        (b"(Vos\nios\nsystem\n.", "it needs os.system"),
        (
            b"\x80\x04\x8c\x0bcollections\x8c\x20defaultdict.__init__.__globals__\x93.",
            "it needs collections.defaultdict.",
        ),
    ],
)
def test_crafted_opcodes_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match="is refused") as caught:
        read_pickle(_written(tmp_path, content))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps(np.arange(1000))[:100],
        b"cnumpy\nndarray\n(N}S'value'\nI1\nstb.",  # sets the state of the substitute class itself
        b"ccollections\ndefaultdict\n(N}S'fromkeys'\nI1\nstb.",
        b"cbuiltins\ndict\n(N}S'get'\nI1\nstb.",
    ],
)
def test_damaged_pickle_is_reported_in_one_line(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match=r"graph\.p") as caught:
        read_pickle(_written(tmp_path, content))
    assert "\n" not in str(caught.value)
    assert read_pickle(_written(tmp_path, pickle.dumps(np.arange(3)))).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "content",
    [
        b"B\xff\xff\xff\xff" + b"abc.",  # BINBYTES of 4 GB
        b"\x80\x04\x8e" + (2**40).to_bytes(8, "little") + b"abc.",  # BINBYTES8
        b"\x80\x05\x96" + (2**33).to_bytes(8, "little") + b"abc.",  # BYTEARRAY8
        b"\x80\x04\x8d" + (2**33).to_bytes(8, "little") + b"abc.",  # BINUNICODE8
        b"\x8b\xff\xff\xff\x7f" + b"abc.",  # LONG4
        b"\x80\x04\x95" + (2**40).to_bytes(8, "little") + b"N.",  # FRAME
        b"Nr\xff\xff\xff\xff.",  # LONG_BINPUT: the memo of the unpickler would have 4 billion entries
        b"Np4000000000\n.",  # PUT
        b"cbuiltins\nbytearray\n(I4000000000\ntR.",  # bytearray(4_000_000_000)
        b"cbuiltins\nlist\n(Vabc\ntR.",
        b")" + b"\x85" * 1_000_000 + b".",  # a tuple of a tuple of ...; its hash would overflow the stack
        b"(" * 200_000 + b"t" * 200_000 + b".",
    ],
)
def test_a_pickle_that_requests_too_much_is_refused(tmp_path: Path, content: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"graph\.p (is refused|cannot be read as a pickle): ") as caught:
        read_pickle(_written(tmp_path, content))
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_a_pickle_that_copies_the_same_bytes_again_and_again_is_refused(tmp_path: Path) -> None:
    text = b"X" + (100_000).to_bytes(4, "little") + b"a" * 100_000 + b"q\x00"
    call = b"c_codecs\nencode\nq\x01"
    copies = b"h\x01h\x00X\x06\x00\x00\x00latin1\x86R" * 1000
    with pytest.raises(ValueError, match="copies the same bytes again and again"):
        read_pickle(_written(tmp_path, b"\x80\x02](" + text + call + copies + b"e."))


def test_deep_lists_and_shared_lists_are_no_danger(tmp_path: Path) -> None:
    read_pickle(_written(tmp_path, b"]" * 100_000 + b"a" * 99_999 + b"."))  # nothing recurses into it
    shared = [0] * 1000
    path = _written(tmp_path, pickle.dumps(dict.fromkeys(range(1000), shared)))
    with pytest.raises(ValueError, match="repeats the same items up to 1,000,000 times"):
        require_own_items(path, read_pickle(path).values())


@pytest.mark.parametrize("name", ["numpy.core.multiarray _reconstruct", "_codecs encode", "builtins bytearray"])
def test_the_substitutes_cannot_be_changed(tmp_path: Path, name: str) -> None:
    module, function = name.split()
    content = f"c{module}\n{function}\n(N(S'__defaults__'\n(I1\nI2\ntdtb.".encode()
    with pytest.raises(ValueError, match="is refused: it changes a function"):
        read_pickle(_written(tmp_path, content))
