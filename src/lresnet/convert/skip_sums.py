"""Sums of a method that join a skip connection and its branch.

One side of such a sum is a value v, or a shortcut of it. The other side is computed from v by layers, and depends on v
through the layers only. A sum is *unclear* if this cannot be decided although both sides come from one value and pass a
layer. All other sums are not residual connections: they add a bias, a mask or a position.
"""

from __future__ import annotations

import ast
import dataclasses
from typing import NamedTuple, TypeGuard

from lresnet.convert.callers import Related
from lresnet.convert.dataflow import Dataflow
from lresnet.convert.method_source import Method
from lresnet.convert.parts import Parts, is_name
from lresnet.convert.sums import Sum, all_sums
from lresnet.convert.values import Value
from lresnet.convert.vocabulary import DOUBTFUL, SHORTCUTS

__all__ = ["SkipSum", "UnclearSum", "find_skip_sums"]

_SHARED = (
    "{text} is a sum in place, and {alias} is the same tensor and used after it; a residual connection gives a new "
    "tensor, which {alias} would not see: write {target} = {target} + ... of a copy, or rename"
)


class SkipSum(NamedTuple):
    """A sum of a skip connection and its branch."""

    ordinal: int
    """Its place in :func:`lresnet.convert.sums.all_sums`."""
    sum: Sum
    skip_first: bool
    parts: tuple[str, ...]
    """The parts of the module that the branch goes through, in that order."""
    loop: str | None
    """The list of layers that the loop around it goes over, if there is one."""
    met: bool
    """Whether a run may come there, as the module is set."""

    @property
    def position(self) -> tuple[int, int | None]:
        """Where it ends in the source."""
        return self.sum.node.lineno, self.sum.node.end_col_offset


class UnclearSum(NamedTuple):
    """A sum that may be one of a skip connection, or not."""

    sum: Sum
    reason: str


class _Found(NamedTuple):
    sum: SkipSum | UnclearSum
    first: Value
    second: Value
    result: Value


def find_skip_sums(
    method: Method, parts: Parts, related: Related | None = None
) -> tuple[list[SkipSum], list[UnclearSum], Dataflow]:
    """The sums of a method of the module that ``parts`` are of, in the order of the source.

    ``related`` are the pairs of its arguments of which one is computed from the other.

    Raises:
        ValueError: a sum in place changes a tensor that is used under another name.

    Example:
        >>> from lresnet.convert.method_source import read_method
        >>> layer = torch.nn.TransformerDecoderLayer(4, 2)
        >>> sums, _, _ = find_skip_sums(read_method(type(layer), "forward"), Parts(layer))
        >>> len(sums), sums[-1].sum.text
        (6, 'x + self._ff_block(x)')
    """
    reader = _Finder(method, parts)
    reader.run(related or {})
    found = [one for one in reader.found.values() if one is not None]
    skips = [one for one in found if isinstance(one.sum, SkipSum)]
    unclear = [
        one for one in found if isinstance(one.sum, UnclearSum) and not any(_is_branch(one, skip) for skip in skips)
    ]
    in_order = sorted((one.sum for one in skips if isinstance(one.sum, SkipSum)), key=lambda one: one.position)
    return in_order, [one.sum for one in unclear if isinstance(one.sum, UnclearSum)], reader


def _is_branch(one: _Found, skip: _Found) -> bool:
    """Whether an unclear sum is part of the branch that joins a skip connection: (self.a(x) + self.b(x)) + x."""
    assert isinstance(skip.sum, SkipSum)
    side, branch = (skip.first, skip.second) if skip.sum.skip_first else (skip.second, skip.first)
    return one.result.number in branch.before and bool(side.same & one.first.before & one.second.before)


class _Finder(Dataflow):
    def __init__(self, method: Method, parts: Parts) -> None:
        super().__init__(method, parts)
        self.index = {id(one.node): index for index, one in enumerate(all_sums(method))}
        self.found: dict[int, _Found | None] = {}
        self.unlike: set[int] = set()
        """Sums that were none of a skip connection when they were read before, in the first round of a loop."""
        self.added: dict[int, frozenset[int]] = {}
        """Of each sum with a skip connection, what its branch is."""

    def add(self, found: Sum, first: Value, second: Value) -> Value:
        result = super().add(found, first, second)
        key = id(found.node)
        self.found[key] = None  # in a loop, what its second round tells
        if result.kind == "sequence" or "layer" in (first.kind, second.kind):
            return result
        sides = _preferred([first.is_skip_of(second), second.is_skip_of(first)], first, second)
        reason = self._reason(found, first, second, sides)
        if sides.count(True) == 1 and reason is None:
            skip, branch = (first, second) if sides[0] else (second, first)
            self._refuse_aliases(found, first)
            result = dataclasses.replace(result, same=result.same | skip.same)
            parts = tuple(part for part in branch.parts if part not in skip.parts) or branch.parts
            one = SkipSum(self.index[key], found, sides[0], parts, self._list_of_layers(), not self.unmet)
            self.found[key] = _Found(one, first, second, result)
            if not self.unmet:
                self.added[result.number] = branch.direct
            if found.in_place and first.memory & self.arguments and not self.scopes and not self.unmet:
                self.overwritten.append(found)
        elif reason is not None and not self.unmet:
            self.found[key] = _Found(UnclearSum(found, reason), first, second, result)
        if not any(sides) and not self._is_unset(found.first, first) and not self._is_unset(found.second, second):
            self.unlike.add(key)
        return result

    def _is_unset(self, node: ast.expr, value: Value) -> bool:
        """Whether a later round sets it: it is None so far, a number, or not there."""
        return value.kind == "fact" or (isinstance(node, ast.Name) and node.id not in self.names)

    def _reason(self, found: Sum, first: Value, second: Value, sides: list[bool]) -> str | None:
        """Why a sum is unclear, if it is."""
        if any(sides):
            skip, branch = (first, second) if sides[0] else (second, first)
            if all(sides):
                return "each side is a shortcut of what the other is computed from"
            if self.parts.is_doubtful(branch.last_part):
                return f"{branch.last_part} may be a branch, or add a position, a mask or a bias"
            if branch.parts and not any(map(self.parts.is_module, branch.parts)):
                return f"whether {', '.join(branch.parts)} calls a layer is not seen"
            if any(skip.number in added for added in self.added.values()):
                return "its skip connection is itself the branch of another sum"
            if any(self.added.get(one, frozenset()) & branch.through for one in skip.same - branch.through):
                return "its branch is computed from what was added before"
            if id(found.node) in self.unlike:
                return "in the first round of the loop, neither side is computed from the other"
            if all(
                _is_element(node) and not is_name(node.value, self.self_name) for node in (found.first, found.second)
            ):
                return "both sides are taken from what layers give, and may be tuples"
            if not found.plain:
                return "it has arguments by name; write x + f(x)"
            if found.in_place and not isinstance(found.first, ast.Name) and not self._is_passing(found.first, first):
                return "it is written into a part of a tensor, or into an attribute"
            if self.scopes and isinstance(found.node, ast.Call) and found.in_place:
                return "it is in place, within a comprehension or a function; write x = x + f(x)"
            return None
        forks = self.values.forks(first, second)
        if forks & (first.through | second.through):
            return "both sides are computed from one value, and neither is that value as it is"
        if any(self._is_given(*pair) for pair in ((found.first, first, second), (found.second, second, first))):
            return "one side is an argument, the other computed from another one: whether from it, is not seen here"
        if any(self._is_called_skip(*pair) for pair in ((found.first, first, second), (found.second, second, first))):
            return "both sides are arguments, and one is called like a skip connection"
        return None

    def _is_called_skip(self, node: ast.expr, side: Value, other: Value) -> bool:
        """Whether a side is an argument of such a name, and the other one comes from another argument."""
        called = isinstance(node, ast.Name) and any(word in node.id.lower() for word in SHORTCUTS)
        return called and side.number in self.arguments and bool(other.direct & self.arguments - side.direct)

    def _is_passing(self, node: ast.expr, value: Value) -> bool:
        """Whether it is what a call gives and no name shows, so that what is written into it is the result alone."""
        return isinstance(node, ast.Call) and not any(value.memory & one.memory for one in self.names.values())

    def _is_given(self, node: ast.expr, side: Value, other: Value) -> bool:
        """Whether a side is an argument as it is, the other what a layer makes of another: forward(self, x, skip)."""
        doubtful = isinstance(node, ast.Name) and any(word in f"_{node.id.lower()}_" for word in DOUBTFUL)
        given = side.number in self.arguments and bool(other.through & self.arguments)
        return given and not doubtful and side.number not in other.before

    def _list_of_layers(self) -> str | None:
        if not self.loops or not isinstance(self.loops[-1], ast.For):
            return None
        return _iterated(self.loops[-1].iter, self.self_name)

    def _refuse_aliases(self, found: Sum, target: Value) -> None:
        """A sum in place changes what other names show; a residual cannot, as its gradient needs what it was given."""
        if not found.in_place or not isinstance(found.first, ast.Name):
            return
        name = found.first.id
        for alias, value in self.names.items():
            if alias != name and value.memory & target.memory and self._used_after(alias, found.node):
                where = f"{self.method.owner.__name__}, {self.method.place(found.node)}"
                raise ValueError(f"{where}: " + _SHARED.format(text=found.text, alias=alias, target=name))

    def _used_after(self, name: str, node: ast.AST) -> bool:
        if name.startswith(f"{self.self_name}."):
            return True  # kept beyond the call
        end = (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        around = self.loops[0] if self.loops else None
        for one in ast.walk(self.method.node):
            read = isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id == name.split(".")[0]
            if read and ((one.lineno, one.col_offset) >= end or _within(one, around)):  # type: ignore[attr-defined]
                return True
        return False


def _preferred(sides: list[bool], first: Value, second: Value) -> list[bool]:
    """Where each side may be the shortcut: self.residual_function(x) + self.shortcut(x)."""
    last = [" ".join(side.parts[-1:]).lower() for side in (first, second)]
    by_name = [any(word in name for word in SHORTCUTS[:-1]) for name in last]
    branches = [SHORTCUTS[-1] in name and not shortcut for name, shortcut in zip(last, by_name, strict=True)]
    return by_name if all(sides) and branches == by_name[::-1] and any(by_name) else sides


def _is_element(node: ast.expr) -> TypeGuard[ast.Subscript | ast.Attribute]:
    """Whether it is outputs[1], or outputs.hidden."""
    return isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.value, ast.Name)


def _within(node: ast.AST, loop: ast.AST | None) -> bool:
    return loop is not None and any(one is node for one in ast.walk(loop))


def _iterated(node: ast.expr, self_name: str) -> str | None:
    """The name of the list of layers in ``self.layers``, ``enumerate(self.layers)``, ``range(len(self.layers))``..."""
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name == self_name:
            return attribute
        case ast.Subscript(value=inner, slice=ast.Slice()):
            return _iterated(inner, self_name)
        case ast.Call(func=ast.Attribute(value=inner, attr="values" | "items" | "children")):
            return _iterated(inner, self_name)
        case ast.Call(func=ast.Name(id="enumerate" | "zip" | "reversed" | "range" | "len" | "list"), args=given):
            found = (_iterated(one, self_name) for one in given)
            return next((one for one in found if one is not None), None)
    return None
