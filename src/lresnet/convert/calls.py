"""Kinds of calls: of a layer, of a method, of an operation on a tensor, or of another function."""

from __future__ import annotations

import ast
import dataclasses
import types

from lresnet.convert.callers import Site
from lresnet.convert.expressions import Expressions, called_name
from lresnet.convert.parts import is_name
from lresnet.convert.sums import as_sum, named
from lresnet.convert.values import Value
from lresnet.convert.vocabulary import (
    ALL_LAYERS,
    CONTAINER_METHODS,
    COPIES,
    FACTS,
    FUNCTIONAL_LAYERS,
    ITERATORS,
    SHORTCUT_NAMES,
    SHORTCUTS,
    VIEWS,
)

__all__ = ["Calls"]


class Calls(Expressions):
    """Expressions with calls among them."""

    def call(self, node: ast.Call) -> Value:
        """Read it."""
        found = as_sum(node, self.method.function.__globals__)
        if found is not None and not self._is_container(node):
            first = self.value(found.first)
            result = self.add(found, first, self.value(found.second))
            if found.in_place and isinstance(found.first, ast.Name):
                self.bind(found.first, result)
            return result
        name, _ = called_name(node)
        if isinstance(node.func, ast.Attribute) and node.args and is_name(node.args[0], self.self_name):
            self.base_called.add(ast.unparse(node.func))
        function = self._function_called(node.func)
        given = [self.value(one) for one in [*node.args, *(keyword.value for keyword in node.keywords)]]
        layers = [value for value in given if value.kind == "layer"]
        self._note_site(node, function, given)
        if name in ITERATORS and (layers or function is None):
            return self.values.new(*given, kind="layer" if layers else "sequence", view=True)
        if function is not None and self._is_layer(node.func, function):
            return function if name in ALL_LAYERS else self._layer(node, function, given)
        if isinstance(node.func, ast.Name) and function is not None and function.kind == "tensor":
            return self.values.layer(given, (f"{name}()",))  # act = F.relu; who knows
        if name in FACTS and not (isinstance(node.func, ast.Attribute) and name in COPIES):
            return self.values.new(kind="fact")
        # checkpoint(self.layer, x), or a layer as a function: linear(x, self.weight)
        if layers and function is None:
            self._note_helper(node)
        if layers or (name in FUNCTIONAL_LAYERS and any(map(self.is_tensor_of_self, node.args))):
            return self.values.layer(given)
        if function is not None and isinstance(node.func, ast.Attribute):
            return self._method_of(node.func, function, given)
        return self.values.new(*given, view=any(keyword.arg == "inplace" for keyword in node.keywords))

    def _note_site(self, node: ast.Call, function: Value | None, given: list[Value]) -> None:
        """Keep what is given to a part, self.f or one of a list, to a method or to a function."""
        called: tuple[str, ...] | types.FunctionType | None = None
        if isinstance(node.func, ast.Attribute) and is_name(node.func.value, self.self_name):
            called = self._static(node.func.attr) or (node.func.attr,)
        elif isinstance(node.func, ast.Name | ast.Subscript) and function is not None and function.kind == "layer":
            called = function.parts if all(map(self.parts.is_module, function.parts)) else None
        elif function is None:
            called = self._function_outside(node.func)
        if called and not self.unmet:
            starred = next((n for n, one in enumerate(node.args) if isinstance(one, ast.Starred)), len(node.args))
            names = [keyword.arg for keyword in node.keywords]
            named = {name: value for name, value in zip(names, given[len(node.args) :], strict=True) if name}
            self.sites.append(Site(called, self.parts, given[:starred], named))

    def _static(self, name: str) -> types.FunctionType | None:
        """The function, if it is a static method."""
        found = self.parts.find(name)
        function = found.__func__ if isinstance(found, staticmethod) else None
        return function if isinstance(function, types.FunctionType) else None

    def _function_outside(self, node: ast.expr) -> types.FunctionType | None:
        """One of the globals that is not torch's."""
        function = named(node, self.method.function.__globals__)
        ours = isinstance(function, types.FunctionType) and not str(function.__module__).startswith("torch.")
        return function if ours else None

    def _note_helper(self, node: ast.Call) -> None:
        """A function that may call what it is given, self.layer or a local one, and not self.layer.weight."""
        function = self._function_outside(node.func)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        called = any(
            isinstance(one, ast.Name | ast.Lambda) or is_name(getattr(one, "value", one), self.self_name)
            for one in given
            if self.value(one).kind == "layer"
        )
        if called and function is not None:
            self.helpers[ast.unparse(node.func)] = function

    def _is_layer(self, node: ast.expr, function: Value) -> bool:
        """Whether what is called is one: a part of the object, or an argument, forward(self, x, layer)."""
        return function.kind == "layer" or (isinstance(node, ast.Name) and function.number in self.arguments)

    def _function_called(self, node: ast.expr) -> Value | None:
        """What is called or, of a method of a value, that value; None: a function that the module does not own."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in self.base_called:
            return self.values.new(kind="layer")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id != self.self_name:
            key = ast.unparse(node)
            base = self.names.get(node.value.id)
            return self.names.get(key) or base
        if isinstance(node, ast.Attribute):
            if _is_super(node.value):
                self.base_called.add(node.attr)
                return self.values.new(kind="layer")
            if isinstance(node.value, ast.Name):
                return self.attribute(node)
            return self.value(node.value)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr" and node.args:
            return self.value(node.args[0])
        return self.value(node)

    def _layer(self, node: ast.Call, function: Value, given: list[Value]) -> Value:
        """A call on the object: of a layer, or of a method, which is one if it calls one."""
        name = None
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            name = node.func.attr if node.func.value.id == self.self_name else None
        if name is not None and self.parts.kind(name) == "embedding":
            return self.values.new()
        if name is None or self.parts.kind(name) != "method":
            lowered = (name or "").lower()
            short = any(word in lowered for word in SHORTCUTS) or lowered in SHORTCUT_NAMES
            return self.values.layer(given, function.parts, given[0] if short and given else None)
        for kept in [one for one in self.names if one.startswith(f"{self.self_name}.")]:  # it may set self.kept
            self.names[kept] = dataclasses.replace(self.values.new(), memory=self.names[kept].memory)
        layers = self.parts.layers_of(name)
        return self.values.new(*given) if layers is None else self.values.layer(given, (*layers, name))

    def _method_of(self, node: ast.Attribute, base: Value, given: list[Value]) -> Value:
        if node.attr in CONTAINER_METHODS and isinstance(node.value, ast.Name) and base.kind == "sequence":
            self.forget_parts(node.value.id)
            self.names[node.value.id] = self.values.new(base, *given, kind="sequence", view=True)
        elif isinstance(node.value, ast.Name) and node.attr not in COPIES | VIEWS:
            self.forget_parts(node.value.id)  # xs.pop(0)
        if node.attr in COPIES:
            return self.values.copy(base) if node.attr == "clone" else base
        return self.values.new(base, *given, view=node.attr in VIEWS or node.attr.endswith("_"))

    def _is_container(self, node: ast.Call) -> bool:
        """Whether ``.add`` is that of a set, say, or of a part of the module."""
        if not isinstance(node.func, ast.Attribute) or len(node.args) != 1:
            return False
        base = node.func.value
        named = self.names.get(base.id) if isinstance(base, ast.Name) else None
        return isinstance(base, ast.Attribute) or (named is not None and named.kind != "tensor")


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and is_name(node.func, "super")
