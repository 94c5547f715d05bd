"""What the names after ``self.`` stand for in a module: a layer, a method that is or is not one, a tensor, or else."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterable
from typing import Literal

import torch

from lresnet.models.conversion.method_source import Method, Unreadable, read_method

__all__ = ["Parts"]

PartKind = Literal["layer", "method", "embedding", "tensor", "other"]


class Parts:
    """The parts of one module; nothing of it is run, properties neither."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self._methods: dict[str, tuple[str, ...] | None] = {}

    def kind(self, name: str) -> PartKind:
        """What ``self.name`` is. A name that nothing has yet counts as a layer: only what is called is asked for.

        Example:
            >>> parts = Parts(torch.nn.BatchNorm1d(4))
            >>> parts.kind("weight"), parts.kind("eps"), parts.kind("forward")
            ('tensor', 'other', 'method')
        """
        found = self.find(name)
        if isinstance(found, torch.nn.Embedding | torch.nn.EmbeddingBag):
            return "embedding"
        if isinstance(found, torch.nn.Module) or found is None:
            return "layer"
        if isinstance(found, torch.Tensor):
            return "tensor"
        if isinstance(found, types.FunctionType) and name not in self.module.__dict__:
            return "method"
        if isinstance(found, staticmethod | classmethod):
            return "other"  # it does not see the module's layers
        return "layer" if callable(found) or isinstance(found, property) or _holds_modules(found) else "other"

    def is_module(self, name: str) -> bool:
        """Whether ``self.name`` is one, or a list of them, or set later on: not a function, which may hold no layer."""
        found = self.find(name)
        return (found is None and name.isidentifier()) or isinstance(found, torch.nn.Module) or _holds_modules(found)

    def find(self, name: str) -> object:
        """The part, or None."""
        module = self.module
        for own in (module._modules, module._parameters, module._buffers, module.__dict__):
            if name in own:
                return own[name]
        return next((vars(base)[name] for base in type(module).__mro__ if name in vars(base)), None)

    def known(self, test: ast.expr, self_name: str) -> bool | None:
        """What a condition on the module's own settings gives: ``self.flag``, ``self.part is None``; None: who knows.

        Example:
            >>> parts = Parts(torch.nn.BatchNorm1d(4, affine=False))
            >>> tests = [ast.parse(text).body[0].value for text in ("self.affine", "self.bias is None", "x")]
            >>> [parts.known(test, "self") for test in tests]
            [False, True, None]
        """
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                known = self.known(inner, self_name)
                return None if known is None else not known
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if (
                name == self_name and attribute != "training"
            ):
                found = self.find(attribute)
                return found if isinstance(found, bool) else None
            case ast.Compare(
                left=ast.Attribute(value=ast.Name(id=name), attr=attribute),
                ops=[ast.Is() | ast.IsNot() as operator],
                comparators=[ast.Constant(value=None)],
            ) if name == self_name:
                return (self.find(attribute) is None) == isinstance(operator, ast.Is)
        return None

    def layers_of(self, method: str) -> tuple[str, ...] | None:
        """The layers that a method calls, itself or through others, in that order; None: none at all."""
        if method not in self._methods:
            self._methods[method] = None  # a method that calls itself
            try:
                self._methods[method] = tuple(dict.fromkeys(self._called(read_method(type(self.module), method))))
            except Unreadable:
                self._methods[method] = (method,)
        return self._methods[method] or None

    def _called(self, method: Method) -> Iterable[str]:
        ends: dict[ast.expr, ast.expr] = {}
        for node in ast.walk(method.node):
            if isinstance(node, ast.Attribute) and _is(node.value, method.self_name):
                ends.setdefault(node, node)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                ends[node.func] = node  # a call is over when its last bracket is
        for node in sorted(ends, key=lambda node: (ends[node].end_lineno or 0, ends[node].end_col_offset or 0)):
            if not (isinstance(node, ast.Attribute) and _is(node.value, method.self_name)):
                continue
            kind = self.kind(node.attr)
            if kind == "layer" and self.find(node.attr) is not None:
                yield node.attr
            elif kind == "method" and node.attr != method.function.__name__:
                yield from self.layers_of(node.attr) or ()


def _holds_modules(found: object) -> bool:
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else ()
    return any(isinstance(one, torch.nn.Module) for one in inner)


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
