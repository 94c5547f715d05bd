"""Safe reader of published pickles: no code that a pickle names is executed.

A pickle is a program: it may import any function and call it. Some published data sets are pickles nevertheless. They
are read by an unpickler that knows a short list of names and replaces each by a harmless substitute of this module.
Arrays, sparse matrices and graphs are plain records here; NumPy's own unpickling is not used. Any other name is refused
before it is looked up. A pass over the opcodes comes first: it refuses a pickle that requests more memory than its size
justifies, or whose tuples are nested so deeply that hashing one would overflow the stack.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from lresnet._files import open_file
from lresnet._limits import NESTING, PICKLE_BYTES
from lresnet.data.formats.arrays import sparse_matrix
from lresnet.data.quoting import quoted, reason

__all__ = ["PickledGraph", "read_pickle", "require_own_items"]

# Booleans, integers and floats of a fixed size. Not "O": arrays of objects may hold anything.
_PLAIN_DTYPE = re.compile(r"[<>=|]?(b1|[iu][1248]|f[248])")
_MAX_RANK = 8
_LONGEST_NUMBER = 16  # bytes of a single number
_COPIES = 4  # times the size of the file, for bytes that a pickle copies


def read_pickle(path: str | Path) -> Any:
    """Return the content of a pickle: plain Python data, an array, a CSR matrix, or a :class:`PickledGraph`.

    Raises:
        OSError: The file cannot be read.
        ValueError: The pickle names anything outside the list, or is damaged.
    """
    path = Path(path)
    with open_file(path) as file:
        data = file.read(PICKLE_BYTES + 1)
    if len(data) > PICKLE_BYTES:
        raise ValueError(f"{path} has more than {PICKLE_BYTES:,} bytes, the limit for a pickle; use the official file")
    try:
        _require_modest(data)
        return _finish(_Unpickler(data).load())
    except _Refused as error:
        raise ValueError(f"{path} is refused: {error}; use the official file") from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise ValueError(f"{path} cannot be read as a pickle: {type(error).__name__}: {reason(error)}") from error


def require_own_items(path: Path, containers: Iterable[Any]) -> None:
    """Raise ValueError if containers of a pickle have more items together than the file has bytes: some are shared."""
    items, size = sum(map(len, containers)), path.stat().st_size
    if items > size:
        raise ValueError(
            f"{path} repeats the same items up to {items:,} times in {size:,} bytes; use the official file"
        )


class _Refused(pickle.UnpicklingError):
    """The pickle needs something that is not allowed."""


class _Array:
    """Substitute for numpy.ndarray: created empty, filled by the state in the pickle, and made at the end."""

    def __init__(self) -> None:
        self.state: tuple[object, object, object, str] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, data = state
        if not isinstance(data, bytes | str):
            raise _Refused("it contains an array of objects")
        self.state = (data, dtype, shape, "F" if fortran else "C")


class _Dtype:
    """Substitute for numpy.dtype: plain numbers only."""

    def __init__(self, name: object, align: object = False, copy: object = False) -> None:
        if not isinstance(name, str) or not _PLAIN_DTYPE.fullmatch(name):
            raise _Refused(f"it contains an array of dtype {name!r}")
        self.value = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if any(part is not None for part in state[2:5]):
            raise _Refused("it contains an array of records")
        if state[1] in ("<", ">"):
            self.value = self.value.newbyteorder(state[1])


class _Csr:
    """Substitute for the csr_matrix of scipy."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = state


class PickledGraph:
    """Substitute for the Graph of networkx.

    Args:
        node: Node name to its attributes, in the order of the file.
        adj: Node name to ``{neighbour: attributes}``.
    """

    node: dict[Any, dict[str, Any]]
    adj: dict[Any, dict[Any, Any]]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.node, self.adj = state["_node"], state["_adj"]


class _Ignored:
    """Substitute for parts of a graph that are not needed."""

    def __setstate__(self, state: object) -> None:
        pass


class _Dict(dict[Any, Any]):
    """Substitute for defaultdict and OrderedDict; the default factory is dropped."""

    def __init__(self, *factory: object) -> None:
        super().__init__()

    def __setstate__(self, state: object) -> NoReturn:
        raise _Refused("it contains a dictionary with attributes")


class _Function:
    """A function that a pickle may call, but not change."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: object) -> Any:
        return self.function(*arguments)

    def __setstate__(self, state: object) -> NoReturn:
        raise _Refused("it changes a function")


def _new_array(kind: object, shape: object, typecode: object) -> _Array:
    return _Array()


def _from_buffer(data: object, dtype: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
    if not isinstance(data, bytes | bytearray):
        raise _Refused("it contains an array that is not made of bytes")
    array = _Array()
    array.state = (data, dtype, shape, order)
    return array


def _scalar(dtype: _Dtype, data: object) -> Any:
    if not isinstance(data, bytes | str) or len(data) > _LONGEST_NUMBER:
        raise _Refused("it contains a number that is an object")
    return _array(data, dtype, (), "C")[()]


def _no_bytes() -> bytes:
    return b""  # protocol 2 writes the content of an empty array in this way


def _no_list() -> list[Any]:
    return []  # without an argument, which could be one of any length


def _no_dict() -> dict[Any, Any]:
    return {}


_SUBSTITUTES: dict[str, Any] = {
    "builtins.list": _no_list,
    "builtins.dict": _no_dict,
    "__builtin__.list": _no_list,
    "__builtin__.dict": _no_dict,
    "__builtin__.bytes": _no_bytes,
    "collections.defaultdict": _Dict,
    "collections.OrderedDict": _Dict,
    "numpy.ndarray": _Array,
    "numpy.dtype": _Dtype,
    "networkx.classes.graph.Graph": PickledGraph,
    "networkx.classes.reportviews.NodeView": _Ignored,
    "networkx.classes.reportviews.EdgeView": _Ignored,
    "networkx.classes.reportviews.DegreeView": _Ignored,
    **{f"scipy.sparse.{module}.csr_matrix": _Csr for module in ("csr", "_csr")},
    **{f"numpy.{core}.multiarray._reconstruct": _new_array for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _scalar for core in ("core", "_core")},
    **{f"numpy.{core}.numeric._frombuffer": _from_buffer for core in ("core", "_core")},
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._left = _COPIES * len(data)  # bytes that may still be copied

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        own = {"_codecs.encode": self._latin1, "builtins.bytearray": self._bytearray}
        if full not in _SUBSTITUTES and full not in own:
            raise _Refused(f"it needs {quoted(full)[1:-1]}, which is not allowed in a data set")
        found: Any = own.get(full) or _SUBSTITUTES[full]
        return found if isinstance(found, type) else _Function(found)

    def persistent_load(self, pid: object) -> NoReturn:
        raise _Refused("it refers to objects outside the file")

    def _latin1(self, text: object, encoding: object) -> bytes:
        if not isinstance(text, str) or encoding != "latin1":
            raise _Refused("it uses an encoding other than latin1")
        self._spend(len(text))
        return text.encode("latin1")

    def _bytearray(self, data: object = b"") -> bytearray:
        if not isinstance(data, bytes):
            raise _Refused("it contains bytes that are an object")
        self._spend(len(data))
        return bytearray(data)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _Refused("it copies the same bytes again and again")


def _require_modest(data: bytes) -> None:
    """Raise an error for a pickle whose opcodes request more memory than its size justifies, or nest tuples deeply.

    The values on the stack are followed as far as their depth as tuples is concerned: hashing a tuple of tuples of ...
    overflows the stack of the process.
    """
    stack, marks, memo = list[int](), list[int](), dict[int, int]()
    for opcode, argument, _ in pickletools.genops(data):  # refuses a length beyond the end of the file
        name, popped = opcode.name, opcode.stack_before
        if name == "MARK":
            marks.append(len(stack))
            continue
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            number = len(memo) if name == "MEMOIZE" else int(argument or 0)
            if number > len(data):
                raise _Refused(f"it numbers its objects up to {number:,} in {len(data):,} bytes")
            memo[number] = stack[-1]
            continue
        if name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument or 0)])
            continue
        if name == "POP" and marks and marks[-1] == len(stack):
            marks.pop()
            continue
        start = marks.pop() if pickletools.markobject in popped else len(stack)
        start -= popped.index(pickletools.markobject) if pickletools.markobject in popped else len(popped)
        items = stack[max(start, 0) :]
        del stack[max(start, 0) :]
        depth = 1 + max(items, default=0) if name.startswith("TUPLE") else 0
        if depth > NESTING:
            raise _Refused(f"it nests tuples more than {NESTING} deep")
        stack += [items[0]] * 2 if name == "DUP" and items else [depth] * len(opcode.stack_after)


def _array(data: object, dtype: object, shape: object, order: str) -> NDArray[Any]:
    if not isinstance(dtype, _Dtype) or order not in ("C", "F"):
        raise _Refused("it contains an array without dtype or order")
    if not isinstance(shape, tuple) or len(shape) > _MAX_RANK or not all(type(n) is int and n >= 0 for n in shape):
        raise _Refused(f"it contains an array of shape {quoted(shape)}")
    content = data.encode("latin1") if isinstance(data, str) else data  # Python 2 wrote bytes as text
    assert isinstance(content, bytes | bytearray)
    if len(content) != math.prod(shape) * dtype.value.itemsize:
        raise _Refused(f"it contains an array of shape {quoted(shape)} in {len(content):,} bytes")
    native = np.frombuffer(content, dtype.value).astype(dtype.value.newbyteorder("="))
    return native.reshape(shape, order="F" if order == "F" else "C")


def _finish(content: Any) -> Any:
    """Replace the substitute at the top level of ``content`` by the array or matrix that it describes."""
    if isinstance(content, _Array):
        if content.state is None:
            raise ValueError("an array without content")
        return _array(*content.state)
    if isinstance(content, _Csr):
        parts = {name: _finish(content.state[name]) for name in ("data", "indices", "indptr")}
        return sparse_matrix(parts | {"shape": np.array(content.state["_shape"], dtype=np.int64)})
    return content
