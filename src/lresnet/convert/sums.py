"""Sums in the source of a method: ``a + b``, ``a += b``, ``torch.add(a, b)``, ``a.add(b)``, ``a.add_(b)``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from lresnet.convert.method_source import Method

__all__ = ["Sum", "all_sums", "as_sum", "named"]

_FUNCTIONS = (torch.add, operator.add, torch.Tensor.add)
_METHODS = ("add", "add_")
_Names = Mapping[str, Any]


class Sum(NamedTuple):
    """A sum of two expressions."""

    node: ast.BinOp | ast.AugAssign | ast.Call
    first: ast.expr
    second: ast.expr
    in_place: bool = False
    """Whether the first is overwritten."""
    plain: bool = True
    """Whether it is the sum and nothing else: no ``alpha=``, no ``out=``, no name for what is added."""

    @property
    def text(self) -> str:
        """As the source has it, on one line."""
        return ast.unparse(self.node)


def as_sum(node: ast.AST, names: _Names) -> Sum | None:
    """``node`` as a sum, if it is one; ``names`` are the globals of its function.

    Example:
        >>> as_sum(ast.parse("x.add_(self.f(x))").body[0].value, {}).in_place
        True
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return Sum(node, node.left, node.right)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return Sum(node, _loaded(node.target), node.value, in_place=True)
    if not isinstance(node, ast.Call) or any(isinstance(argument, ast.Starred) for argument in node.args):
        return None
    if named(node.func, names) in _FUNCTIONS:
        given = node.args + [one.value for one in node.keywords if one.arg in ("input", "other")]
        return Sum(node, given[0], given[1], plain=not node.keywords) if len(given) == 2 else None
    if len(node.args) == 1 and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        in_place = node.func.attr == "add_"
        return Sum(node, node.func.value, node.args[0], in_place, plain=not node.keywords)
    return None


def all_sums(method: Method) -> list[Sum]:
    """Every sum of a method, in an order that depends on its source alone."""
    found = (as_sum(node, method.function.__globals__) for node in ast.walk(method.node))
    return [one for one in found if one is not None]


def _loaded(target: ast.expr) -> ast.expr:
    """What is written, as an expression that reads it."""
    read = ast.parse(ast.unparse(target), mode="eval").body
    for node in ast.walk(read):
        ast.copy_location(node, target)
    return read


def named(node: ast.expr, names: _Names) -> Any:
    """The function that ``torch.add`` or ``add`` names there."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return getattr(names.get(node.value.id), node.attr, None)
    return None
