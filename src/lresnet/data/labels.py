"""Node labels of any kind as class numbers: integers, floats, booleans, text, and missing ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lresnet.data.quoting import quoted

__all__ = ["NumberedLabels", "number_labels"]

# A label of a billion would mean a billion classes, i.e. a head that does not fit in memory.
_MANY_CLASSES = 10_000

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


class NumberedLabels(NamedTuple):
    """Labels as numbers.

    Args:
        numbers: ``[n]``, int64, -1 for a node without a label; None if no node has a label.
        classes: Names of the classes; empty if they have numbers only.
        unlabelled: Number of nodes without a label.
    """

    numbers: NDArray[np.int64] | None
    classes: tuple[str, ...]
    unlabelled: int


def number_labels(name: str, labels: Any, n: int, classes: Sequence[str] = ()) -> NumberedLabels:
    """Return ``labels`` as class numbers.

    Numbers stay as they are; negative numbers, NaN, None and empty text mean that a node has no label. Text becomes the
    position of its class in ``classes``, or in the sorted list of all labels without them (sorted by value if all are
    integers; labels "0", "1", ... without a gap are numbers).

    Args:
        name: Name of the graph, for error messages.
        labels: ``[n]`` or ``[n, 1]``: integers, floats that are integers, booleans or text.
        n: Number of nodes.
        classes: Names of the classes, or none.

    Raises:
        ValueError: The labels have another shape, are not integers, are all the same, or have no class name.

    Example:
        >>> number_labels("zoo", ["cat", "", "dog", "cat"], 4)
        NumberedLabels(numbers=array([ 0, -1,  1,  0]), classes=('cat', 'dog'), unlabelled=1)
    """
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (n,):
        raise ValueError(f"{name}: the labels have shape {list(array.shape)}, but there are {n} nodes")
    classes = tuple(classes)
    if array.dtype.kind in "USO":
        numbers, classes = _of_text(name, array, classes)
    elif array.dtype.kind == "b":
        numbers, classes = array.astype(np.int64), classes or ("False", "True")
    elif array.dtype.kind in "iuf":
        numbers = _of_numbers(name, array, n)
    else:
        raise ValueError(f"{name}: the labels are {array.dtype}; labels must be integers or text")
    found = numbers[numbers >= 0]
    if found.size == 0:
        return NumberedLabels(None, (), n)
    if (found == found[0]).all():
        same = quoted(classes[found[0]])[1:-1] if found[0] < len(classes) else found[0]
        raise ValueError(
            f"{name}: all labels are {same}; classification needs at least two classes, link prediction no labels"
        )
    if classes and found.max() >= len(classes):
        raise ValueError(f"{name}: there are {len(classes)} class names, but a label is {found.max()}")
    return NumberedLabels(numbers, classes, n - found.size)


def _of_numbers(name: str, array: NDArray[Any], n: int) -> NDArray[np.int64]:
    if array.dtype.kind == "f":
        array = np.where(array >= 0, array, -1.0)  # a comparison with NaN is false
        if (array != np.floor(array)).any():
            node = np.flatnonzero(array != np.floor(array))[0]
            raise ValueError(f"{name}: node {node} has the label {array[node]:g}; labels must be integers")
    highest = array.max() if array.size else -1
    if highest >= max(n, _MANY_CLASSES):
        raise ValueError(
            f"{name}: the highest label is {highest:.0f}, but there are {n} nodes; number the classes 0, 1, ..."
        )
    return np.maximum(array.astype(np.int64), -1)


def _of_text(name: str, array: NDArray[Any], classes: tuple[str, ...]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    text = ["" if _missing(label) else _text(label) for label in array.tolist()]
    found = {label for label in text if label}
    if classes:
        number = {label: position for position, label in enumerate(classes)}
        if unknown := next((label for label in text if label and label not in number), None):
            raise ValueError(f"{name}: the label {quoted(unknown)} is not among the {len(classes)} class names")
    elif all(_INTEGER.fullmatch(label) for label in found):
        values = sorted({int(label) for label in found} - {-1})
        number = {str(value): position for position, value in enumerate(values)} | {"-1": -1}
        classes = () if values == list(range(len(values))) else tuple(str(value) for value in values)
    else:
        classes = tuple(sorted(found))
        number = {label: position for position, label in enumerate(classes)}
    number[""] = -1
    return np.array([number[label] for label in text], dtype=np.int64), classes


def _missing(label: object) -> bool:
    return label is None or label in ("", b"", "nan", "NaN") or (isinstance(label, float) and label != label)


def _text(label: object) -> str:
    return label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)
