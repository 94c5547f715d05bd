"""Safe reader of published pickles: no code that a pickle names is executed.

A pickle is a program: it may import any function and call it. Some published data sets are pickles nevertheless. They
are read by an unpickler that knows a short list of names and replaces each by a harmless substitute of this module.
Arrays, sparse matrices and graphs are plain records here; NumPy's own unpickling is not used. Any other name is refused
before it is looked up.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["PickledGraph", "read_pickle"]

# Booleans, integers and floats of a fixed size. Not "O": arrays of objects may hold anything.
_PLAIN_DTYPE = re.compile(r"[<>=|]?(b1|[iu][1248]|f[248])")
_MAX_RANK = 8


def read_pickle(path: str | Path) -> Any:
    """Return the content of a pickle: plain Python data, an array, a CSR matrix, or a :class:`PickledGraph`.

    Raises:
        OSError: The file cannot be read.
        ValueError: The pickle names anything outside the list, or is damaged.
    """
    with Path(path).open("rb") as file:
        try:
            content = _Unpickler(file, encoding="latin1").load()
            return _finish(content)
        except _Refused as error:
            raise ValueError(f"{path} is refused: {error}; use the official file") from None
        except Exception as error:  # a damaged pickle can fail in any way
            raise ValueError(f"{path} cannot be read as a pickle: {type(error).__name__}: {error}") from error


class _Refused(pickle.UnpicklingError):
    """The pickle needs something that is not allowed."""


class _Array:
    """Substitute for numpy.ndarray: created empty, filled by the state in the pickle."""

    def __init__(self) -> None:
        self.value: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, fortran, data = state
        if isinstance(data, str):
            data = data.encode("latin1")  # Python 2 wrote bytes in this way
        if not isinstance(data, bytes):
            raise _Refused("it contains an array of objects")
        self.value = _array(data, dtype, shape, "F" if fortran else "C")


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
        self.state = dict(state)


class PickledGraph:
    """Substitute for the Graph of networkx.

    Args:
        node: Node name to its attributes, in the order of the file.
        adj: Node name to ``{neighbour: attributes}``.
    """

    node: dict[Any, dict[str, Any]]
    adj: dict[Any, dict[Any, Any]]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.node, self.adj = dict(state["_node"]), dict(state["_adj"])


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


def _new_array(kind: object, shape: object, typecode: object) -> _Array:
    return _Array()


def _from_buffer(data: object, dtype: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
    if not isinstance(data, bytes | bytearray):
        raise _Refused("it contains an array that is not made of bytes")
    array = _Array()
    array.value = _array(bytes(data), dtype, shape, order)
    return array


def _scalar(dtype: _Dtype, data: object) -> Any:
    if isinstance(data, str):
        data = data.encode("latin1")
    if not isinstance(data, bytes):
        raise _Refused("it contains a number that is an object")
    return _array(data, dtype, (), "C")[()]


def _latin1(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise _Refused("it uses an encoding other than latin1")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    return b""  # protocol 2 writes the content of an empty array in this way


_SUBSTITUTES: dict[str, Any] = {
    "builtins.list": list,
    "builtins.dict": dict,
    "builtins.bytearray": bytearray,
    "__builtin__.list": list,
    "__builtin__.dict": dict,
    "__builtin__.bytes": _no_bytes,
    "collections.defaultdict": _Dict,
    "collections.OrderedDict": _Dict,
    "_codecs.encode": _latin1,
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
    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full not in _SUBSTITUTES:
            raise _Refused(f"it needs {full}, which is not allowed in a data set")
        return _SUBSTITUTES[full]

    def persistent_load(self, pid: object) -> NoReturn:
        raise _Refused("it refers to objects outside the file")


def _array(data: bytes, dtype: object, shape: object, order: str) -> NDArray[Any]:
    if not isinstance(dtype, _Dtype) or order not in ("C", "F"):
        raise _Refused("it contains an array without dtype or order")
    if not isinstance(shape, tuple) or len(shape) > _MAX_RANK or not all(type(n) is int and n >= 0 for n in shape):
        raise _Refused(f"it contains an array of shape {shape!r}")
    flat = np.frombuffer(data, dtype.value)
    native = flat.astype(dtype.value.newbyteorder("="))
    return native.reshape(shape, order="F" if order == "F" else "C")


def _finish(content: Any) -> Any:
    """Replace the substitute at the top level of ``content`` by the array or matrix that it describes."""
    if isinstance(content, _Array):
        if content.value is None:
            raise ValueError("an array without content")
        return content.value
    if isinstance(content, _Csr):
        parts = [_finish(content.state[name]) for name in ("data", "indices", "indptr")]
        matrix = sparse.csr_array(tuple(parts), shape=tuple(content.state["_shape"]))
        matrix.check_format(full_check=True)
        return matrix
    return content
