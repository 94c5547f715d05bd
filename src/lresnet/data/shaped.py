"""How graphs and tasks print: the shapes of their tensors, as PyG's Data does."""

from dataclasses import fields
from typing import Any

__all__ = ["shaped"]


def shaped(record: Any) -> str:
    """Return the ``repr`` of a dataclass with the shapes of its arrays and the lengths of its tuples.

    Fields that are None or empty are left out.

    Example:
        >>> from dataclasses import dataclass
        >>> import torch
        >>> @dataclass
        ... class Graph:
        ...     name: str
        ...     edges: torch.Tensor
        ...     names: tuple[str, ...] = ()
        >>> shaped(Graph("path", torch.tensor([[0, 1], [1, 2]]), ("a", "b", "c")))
        "Graph(name='path', edges=[2, 2], names=[3])"
    """
    values = {each.name: getattr(record, each.name) for each in fields(record) if each.repr}
    parts = [f"{name}={_value(value)}" for name, value in values.items() if not _is_empty(value)]
    return f"{type(record).__name__}({', '.join(parts)})"


def _value(value: Any) -> str:
    if hasattr(value, "shape"):
        return str(list(value.shape))
    if isinstance(value, tuple):
        return f"[{len(value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_value(each)}" for key, each in value.items()) + "}"
    return repr(value)


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, tuple | dict) and not value)
