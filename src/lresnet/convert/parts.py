"""Meaning of the names after ``self.`` in a module: a layer, a method with or without layers, a tensor, or other."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import operator
import re
import types
from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch

from lresnet.convert.method_source import Method, Unreadable, read_method
from lresnet.convert.vocabulary import DOUBTFUL, FACTS

__all__ = ["Parts", "is_doubtful_name", "is_name"]

PartKind = Literal["layer", "method", "embedding", "tensor", "other"]

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le,
}  # fmt: skip


class _Unknown(Exception):
    """It is not the module's settings alone that decide."""


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
        try:
            return bool(self._setting(test, self_name))
        except (_Unknown, TypeError):  # a comparison of different kinds
            return None

    def _setting(self, node: ast.expr, self_name: str) -> Any:
        """The value of an expression of constants and settings."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return not self._setting(inner, self_name)
            case ast.BoolOp(op=joined, values=values):
                known, decisive = [self.known(one, self_name) for one in values], isinstance(joined, ast.Or)
                if decisive in known:
                    return decisive
                if None not in known:
                    return not decisive
            case ast.Compare(left=left, ops=[compared], comparators=[right]) if type(compared) in _COMPARISONS:
                return _COMPARISONS[type(compared)](self._setting(left, self_name), self._setting(right, self_name))
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == self_name:
                found = self.find(attribute)
                if isinstance(found, bool | int | str | torch.nn.Module | None) and not self._changes(attribute):
                    return found
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=name), attr=held), attr=attribute) if (
                name == self_name and not self._changes(held) and not self._changes(attribute)
            ):  # self.config.parallel
                found = _own(self.find(held)).get(attribute, _Unknown)
                if isinstance(found, bool | int | str | None):
                    return found
            case ast.Call(
                func=ast.Name(id="hasattr"), args=[ast.Name(id=name), ast.Constant(value=str(attribute))]
            ) if name == self_name and not self._changes(attribute):
                return attribute in dir(self.module)
        raise _Unknown

    def _changes(self, attribute: str) -> bool:
        """Whether a method other than the constructor sets it: self.training, a flag for the first call."""
        return attribute == "training" or attribute in _written(type(self.module))  # type: ignore[arg-type]

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
        asked = self._asked(method)
        for node in ast.walk(method.node):
            if isinstance(node, ast.Attribute) and is_name(node.value, method.self_name) and node not in asked:
                ends.setdefault(node, node)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                ends[node.func] = node  # a call is over when its last bracket is
        for node in sorted(ends, key=lambda node: (ends[node].end_lineno or 0, ends[node].end_col_offset or 0)):
            if not (isinstance(node, ast.Attribute) and is_name(node.value, method.self_name)):
                continue
            kind = self.kind(node.attr)
            if kind == "layer" and self.find(node.attr) is not None:
                yield node.attr
            elif kind == "method" and node.attr != method.function.__name__:
                yield from self.layers_of(node.attr) or ()

    def is_doubtful(self, part: str) -> bool:
        """Whether a part is called like a position, a mask or a bias; RelPositionAttention is a branch."""
        cls = type(self.find(part)).__name__.lower()
        by_class = "att" not in cls and re.search("position|pos_?e(nc|mb)", cls) is not None
        return "att" not in part and (by_class or is_doubtful_name(part))

    def is_number(self, layer: str, attribute: str) -> bool:
        """Whether it is self.layer.out_features, say."""
        found = self.find(layer)
        return isinstance(found, torch.nn.Module) and Parts(found).kind(attribute) == "other"

    def _asked(self, method: Method) -> set[ast.expr]:
        """The layers of which a number is wanted, and no more: ``self.f`` in self.f.patch_size, self.f.weight.dtype."""
        asked: set[ast.expr] = set()
        for node in ast.walk(method.node):
            chain = [node] if isinstance(node, ast.Attribute) else []
            while chain and isinstance(chain[-1].value, ast.Attribute):
                chain.append(chain[-1].value)
            if len(chain) > 1 and is_name(chain[-1].value, method.self_name):
                *_, second, first = chain
                if chain[0].attr in FACTS or self.is_number(first.attr, second.attr):
                    asked.add(first)
        return asked


@functools.lru_cache(maxsize=256)
def _written(cls: type) -> frozenset[str]:
    """The attributes that its methods set, of any object; torch's own classes and the constructors apart."""
    functions = (
        inspect.unwrap(function)
        for base in cls.__mro__
        if not base.__module__.startswith("torch.nn.")
        for name, function in vars(base).items()
        if isinstance(function, types.FunctionType) and name != "__init__"
    )
    return frozenset(
        one.argval for function in functions for one in dis.get_instructions(function) if one.opname == "STORE_ATTR"
    )


def _own(found: object) -> dict[str, Any]:
    """The attributes that an object keeps itself, if it is one of settings: not a layer, a class or a function."""
    code = torch.nn.Module | torch.Tensor | type | property | types.FunctionType
    return {} if isinstance(found, code) else getattr(found, "__dict__", {})


def _holds_modules(found: object) -> bool:
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else ()
    return any(isinstance(one, torch.nn.Module) for one in inner)


def is_doubtful_name(name: str) -> bool:
    """Whether it speaks of a position, a mask or a bias.

    Example:
        >>> [is_doubtful_name(name) for name in ("attention_mask", "query_pos", "pe", "hidden_states")]
        [True, True, True, False]
    """
    return any(word in name for word in DOUBTFUL) or re.search(r"(^|_)(pos|pe)(_?e(nc|mb)|\d|$)", name) is not None


def is_name(node: ast.AST, name: str) -> bool:
    """Whether an expression is this name and nothing more."""
    return isinstance(node, ast.Name) and node.id == name
