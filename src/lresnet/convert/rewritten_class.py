"""Class of a converted block: a subclass of the same name, in whose methods the sums are replaced."""

from __future__ import annotations

import ast
import copyreg
import types
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import torch

from lresnet.convert.method_source import Method, compiled, read_method
from lresnet.convert.sums import Sum, all_sums

__all__ = ["Replacement", "is_rewritten", "rewritten_class"]

_MARK = "_lorentz_replacements"


class Replacement(NamedTuple):
    """One sum of a method, and the part that takes its place."""

    method: str
    ordinal: int
    """Its place in :func:`lresnet.convert.sums.all_sums`."""
    text: str
    skip_first: bool
    part: str
    """The residual's name in the block."""
    each_round: bool
    """Whether the part is a list, with one residual for each round of the loop."""


def rewritten_class(cls: type, replacements: tuple[Replacement, ...]) -> type:
    """The class derived from ``cls`` that calls the residuals; the same one each time.

    Its code has the globals, the closure, the file and the lines of the original.

    Raises:
        ValueError: the source is no longer the one that the replacements were made for.
    """
    known: type
    for known in type.__subclasses__(cls):
        if vars(known).get(_MARK) == replacements:
            return known
    names = dict.fromkeys(replacement.method for replacement in replacements)
    methods = {name: _rewritten(cls, name, [one for one in replacements if one.method == name]) for name in names}
    same = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    own = {_MARK: replacements, "__reduce_ex__": _reduce, "__prepare_scriptable__": _refuse_script}
    return types.new_class(cls.__name__, (_Unannounced, cls), exec_body=lambda body: body.update(same | own | methods))


class _Unannounced(torch.nn.Module):
    """Keeps the new class out of a list of models, say, that a base of it keeps by ``__init_subclass__``."""

    def __init_subclass__(cls, **options: Any) -> None:
        pass


def is_rewritten(cls: type) -> bool:
    """Whether it is the class of a converted block.

    Example:
        >>> is_rewritten(torch.nn.Linear)
        False
    """
    return _MARK in vars(cls)


def _reduce(self: Any, protocol: int) -> tuple[Any, ...]:
    """For pickle and deepcopy: the class is made anew from the original one, which can be imported."""
    cls: Any = next(base for base in type(self).__mro__ if is_rewritten(base))
    make, arguments, *state = super(cls, self).__reduce_ex__(max(protocol, 2))
    if make is not copyreg.__newobj__:  # type: ignore[attr-defined]
        raise TypeError(f"{cls.__name__} has a __reduce__ of its own and cannot be copied or pickled once converted")
    return _restored, (cls.__bases__[1], vars(cls)[_MARK], *arguments[1:]), *state


def _restored(cls: type, replacements: tuple[Replacement, ...], *arguments: Any) -> Any:
    new = rewritten_class(cls, replacements)
    return new.__new__(new, *arguments)


def _refuse_script(self: Any) -> NoReturn:
    raise TypeError(
        f"torch.jit.script reads source files, where {type(self).__name__} still has its sums; "
        "use torch.compile, torch.export or torch.jit.trace"
    )


def _rewritten(cls: type, name: str, replacements: Sequence[Replacement]) -> Any:
    method = read_method(cls, name)
    sums = dict(enumerate(all_sums(method)))
    for one in replacements:
        if one.ordinal not in sums or sums[one.ordinal].text != one.text:
            raise ValueError(
                f"{cls.__name__}.{name} no longer has the sum {one.text!r} that was replaced; its source has changed: "
                "convert the module anew, and load its state_dict"
            )
    _Rewriter(method, {sums[one.ordinal].node: (sums[one.ordinal], one) for one in replacements}).visit(method.node)
    ast.fix_missing_locations(method.tree)
    return compiled(method)


class _Rewriter(ast.NodeTransformer):
    """Puts calls of residuals in the place of sums."""

    def __init__(self, method: Method, chosen: dict[ast.AST, tuple[Sum, Replacement]]) -> None:
        self.self_name, self.chosen = method.self_name, chosen
        self.loops: list[ast.For] = []
        self.counted: set[ast.For] = set()

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return self._call(node, node.left, node.right) if node in self.chosen else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if node not in self.chosen or not isinstance(node.target, ast.Name):
            return node
        call = self._call(node, _name(node.target.id, node), node.value)
        return ast.copy_location(ast.Assign([node.target], _in_dtype_of(node.target.id, call)), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if node not in self.chosen:
            return node
        if len(node.args) == 2:
            return self._call(node, *node.args)
        assert isinstance(node.func, ast.Attribute)
        target = node.func.value
        call = self._call(node, target, node.args[0])
        if self.chosen[node][0].in_place and isinstance(target, ast.Name):
            bound = ast.Name(target.id, ast.Store())
            return ast.copy_location(ast.NamedExpr(bound, _in_dtype_of(target.id, call)), node)
        return call

    def visit_For(self, node: ast.For) -> Any:
        self.loops.append(node)
        self.generic_visit(node)
        self.loops.pop()
        if node not in self.counted:
            return node
        start, step = ast.parse(f"{_counter(node)} = -1; {_counter(node)} += 1").body
        node.body.insert(0, step)
        for added in ast.walk(ast.Module([start, step], [])):
            ast.copy_location(added, node)
        return [start, node]

    def _call(self, node: ast.AST, first: ast.expr, second: ast.expr) -> ast.Call:
        """The residual of both, which are still computed in their order: dropout draws its numbers as before."""
        _, replacement = self.chosen[node]
        part: ast.expr = ast.Attribute(_name(self.self_name, node), replacement.part, ast.Load())
        if replacement.each_round:
            self.counted.add(self.loops[-1])
            part = ast.Subscript(part, _name(_counter(self.loops[-1]), node), ast.Load())
        names = ("x", "y") if replacement.skip_first else ("y", "x")
        given = [ast.keyword(name, one) for name, one in zip(names, (first, second), strict=True)]
        return ast.copy_location(ast.Call(part, [], given), node)


def _name(name: str, place: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), place)


def _counter(loop: ast.For) -> str:
    return f"_lorentz_round_{loop.lineno}"


def _in_dtype_of(name: str, call: ast.Call) -> ast.expr:
    """A sum in place has the dtype of what it is written into."""
    dtype = ast.Attribute(_name(name, call), "dtype", ast.Load())
    return ast.copy_location(ast.Call(ast.Attribute(call, "to", ast.Load()), [dtype], []), call)
