"""Inputs of an expression of a method, and whether a layer of the module lies between them and the result."""

from __future__ import annotations

import abc
import ast
import dataclasses
import re
import types
from collections.abc import Sequence
from typing import Literal

from lresnet.convert.callers import Site
from lresnet.convert.method_source import Method
from lresnet.convert.parts import Parts, is_name
from lresnet.convert.sums import Sum, as_sum
from lresnet.convert.values import Value, Values
from lresnet.convert.vocabulary import (
    FACTS,
)

__all__ = ["Expressions", "Names", "called_name"]

Names = dict[str, Value]
_NAME = re.compile(r"""(?<![\w.'"])[a-zA-Z_]\w*""")  # neither an attribute nor a key


class Expressions(abc.ABC):
    """The names of one method of one module, and what becomes of them in expressions."""

    def __init__(self, method: Method, parts: Parts) -> None:
        self.method, self.parts, self.values = method, parts, Values()
        self.self_name = method.self_name
        self.names: Names = {}
        self.called: set[str] = set()
        """Other methods of the object that this one calls."""
        self.base_called: set[str] = set()
        """Those that it calls by super(), and by a class, ``Base.forward(self, x)``, with its name."""
        self.arguments: set[int] = set()
        """The numbers of the values that were given."""
        self.helpers: dict[str, types.FunctionType] = {}
        """Functions outside the class that are given a layer to call."""
        self.sites: list[Site] = []
        """Calls of parts, of methods of the object and of functions outside, with what they are given."""
        self.unmet = 0
        """Arms around the expression that is read which no run takes, as the module is set."""
        self.scopes = 0
        """Comprehensions and functions around the expression that is read."""

    def add(self, found: Sum, first: Value, second: Value) -> Value:
        """The value of a sum; a class derived from this one says more."""
        return self.values.new(first, second, kind=first.kind if first.kind == "sequence" else second.kind)

    def enter(self, arguments: ast.arguments) -> None:
        """Give a value to each argument of a function."""
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for argument in every:
            if argument is not None and argument.arg != self.self_name:
                self.names[argument.arg] = value = self.values.new()
                self.arguments.add(value.number)

    def bind(self, target: ast.expr, value: Value) -> None:
        """Assign."""
        match target:
            case ast.Name(id=name):
                self.forget_parts(name)
                self.names[name] = value
            case ast.Attribute():
                self.names[ast.unparse(target)] = value
            case ast.Tuple() | ast.List():
                for element in target.elts:
                    self.bind(element, self.values.new(value, kind=_element_kind(value), view=True))
            case ast.Starred():
                self.bind(target.value, value)
            case ast.Subscript(value=ast.Name(id=name)) if name in self.names:
                self.forget_parts(name)
                self.names[name] = self.values.new(self.names[name], value, kind=self.names[name].kind, view=True)
                if isinstance(target.slice, ast.Constant):
                    self.names[ast.unparse(target)] = value

    def forget_parts(self, name: str) -> None:
        """What was read as ``name.x``, ``name[0]`` or ``xs[name]`` may be something else the next time."""
        for part in [one for one in self.names if one != name and name in _NAME.findall(one)]:
            del self.names[part]

    def bind_element(self, target: ast.expr, iterated: ast.expr) -> None:
        """Assign an element of what a loop goes over."""
        name, given = called_name(iterated)
        match target:
            case ast.Tuple(elts=[number, element]) if name == "enumerate" and given:
                self.bind(number, self.values.new())
                self.bind_element(element, given[0])
            case ast.Tuple(elts=elements) if name == "zip" and len(elements) == len(given):
                for element, one in zip(elements, given, strict=True):
                    self.bind_element(element, one)
            case _:
                value = self.value(iterated)
                self.bind(target, self.values.new(value, kind=_element_kind(value), view=True))

    def value(self, node: ast.expr) -> Value:
        """The value of an expression."""
        new = self.values.new
        match node:
            case ast.Name(id=name):
                return self.names.get(name) or new(kind="layer" if name == self.self_name else "tensor")
            case ast.Constant() | ast.JoinedStr():
                return new(kind="fact")
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                self.children(node)
                return new(kind="fact")
            case ast.BoolOp():
                values = [self.value(one) for one in node.values]
                return self._any(values)
            case ast.IfExp():
                self.value(node.test)
                known = self.parts.known(node.test, self.self_name)
                arms = [self._arm(node.body, known is False), self._arm(node.orelse, known is True)]
                return self._any(arms) if known is None else self.values.taken(*(arms if known else arms[::-1]))
            case ast.NamedExpr():
                value = self.value(node.value)
                self.bind(node.target, value)
                return value
            case ast.Tuple() | ast.List() | ast.Set() | ast.Dict():
                values = self.children(node)
                layers = bool(values) and all(value.kind == "layer" for value in values)
                return new(*values, kind="layer" if layers else "sequence", view=True)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp() | ast.Lambda():
                return self._scope(node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.BinOp():
                return self._operation(node)
            case ast.Call():
                return self.call(node)
            case _:
                return new(*self.children(node))

    def children(self, node: ast.AST) -> list[Value]:
        """The values of the expressions within."""
        return [self.value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]

    def uses_self(self, node: ast.AST) -> bool:
        """Whether the object is named within."""
        return any(is_name(one, self.self_name) for one in ast.walk(node))

    def _arm(self, node: ast.expr, unmet: bool) -> Value:
        self.unmet += unmet
        value = self.value(node)
        self.unmet -= unmet
        return value

    def _any(self, values: Sequence[Value]) -> Value:
        first = values[0]
        for value in values[1:]:
            first = self.values.either(first, value)
        return first

    def _scope(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp | ast.Lambda) -> Value:
        outside, self.names = self.names, dict(self.names)
        self.scopes += 1
        if isinstance(node, ast.Lambda):
            self.enter(node.args)
            self.value(node.body)
            self.names, self.scopes = outside, self.scopes - 1
            return self.values.new(kind="layer" if self.uses_self(node) else "fact")
        for part in node.generators:
            self.bind_element(part.target, part.iter)
            for condition in part.ifs:
                self.value(condition)
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        values = [self.value(element) for element in elements]
        self.names, self.scopes = outside, self.scopes - 1
        return self.values.new(*values, kind="sequence", view=True)

    def attribute(self, node: ast.Attribute) -> Value:
        key = ast.unparse(node)
        if key in self.names:
            return self.names[key]
        if is_name(node.value, self.self_name):
            kind = self.parts.kind(node.attr)
            if kind == "method":  # called here, or given to what calls it: checkpoint(self.block, x)
                self.called.add(node.attr)
                layers = self.parts.layers_of(node.attr) or (node.attr,)
                return dataclasses.replace(self.values.new(kind="layer"), parts=(*layers, node.attr))
            return (
                self.values.new(kind="layer", part=node.attr) if kind in ("layer", "embedding") else self.values.new()
            )
        base = self.value(node.value)
        if node.attr in FACTS or self._is_number_of_layer(node):
            return self.values.new(kind="fact")
        value = self.values.new(base, kind=_element_kind(base), view=True)
        if isinstance(node.value, ast.Name) and node.value.id in self.names:
            self.names[key] = value  # the same the next time
        return value

    def _subscript(self, node: ast.Subscript) -> Value:
        key = ast.unparse(node)
        if key in self.names:
            return self.names[key]
        base, index = self.value(node.value), self.value(node.slice)
        value = self.values.new(base, index, kind=_element_kind(base), view=True)
        if isinstance(node.value, ast.Name) and node.value.id in self.names and index.kind == "fact":
            self.names[key] = value  # xs[-1] is the same the next time, until something is put into xs
        return value

    def _operation(self, node: ast.BinOp) -> Value:
        found = as_sum(node, self.method.function.__globals__)
        first, second = self.value(node.left), self.value(node.right)
        if found is not None:
            return self.add(found, first, second)
        if isinstance(node.op, ast.MatMult) and any(map(self.is_tensor_of_self, (node.left, node.right))):
            return self.values.layer([first, second])
        return self.values.new(first, second)

    @abc.abstractmethod
    def call(self, node: ast.Call) -> Value:
        """The value of a call."""

    def _is_number_of_layer(self, node: ast.Attribute) -> bool:
        """Whether it is self.layer.out_features, say."""
        own = isinstance(node.value, ast.Attribute) and is_name(node.value.value, self.self_name)
        return own and self.parts.is_number(node.value.attr, node.attr)  # type: ignore[attr-defined]

    def is_tensor_of_self(self, node: ast.expr) -> bool:
        own = isinstance(node, ast.Attribute) and is_name(node.value, self.self_name)
        return own and self.parts.kind(node.attr) == "tensor"  # type: ignore[attr-defined]


def called_name(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """The last name of the function that is called, and its arguments."""
    if not isinstance(node, ast.Call):
        return "", []
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name, node.args


def _element_kind(value: Value) -> Literal["layer", "tensor"]:
    return "layer" if value.kind == "layer" else "tensor"
