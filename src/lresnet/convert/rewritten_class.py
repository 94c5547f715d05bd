"""Class of a converted block: a subclass of the same name in which sums are calls of residuals."""

from __future__ import annotations

import ast
import copyreg
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
import torch.fx
from torch import Tensor

from lresnet.convert.source import (
    Source,
    Sum,
    all_calls,
    all_sums,
    called_function,
    compiled,
    read_function,
    read_method,
)

__all__ = ["Replacement", "find_sum", "is_rewritten", "rewritten_class"]

_MARK = "_lorentz_replacements"
_OBJECT = "_lorentz_self"
_BRANCH_FIRST = "_lorentz_branch_first"


class Replacement(NamedTuple):
    """One sum of a class, and the part of the module that takes its place."""

    method: str
    calls: tuple[tuple[int, str], ...]
    """The calls that lead from the method to the function with the sum: place in :func:`all_calls`, and text."""
    ordinal: int
    """Place of the sum in :func:`all_sums` of its function."""
    text: str
    skip_first: bool
    part: str
    """Name of the residual in the module."""
    each_round: bool
    """Whether the part is a list with one residual for each round of the loop around the sum."""


def rewritten_class(cls: type, replacements: tuple[Replacement, ...]) -> type:
    """Return the class derived from ``cls`` that calls the residuals; the same one each time.

    Its code has the globals, the closure, the file and the lines of the original. A helper function with a sum becomes
    a private method of the class.

    Raises:
        ValueError: the source is not the one that the replacements were made for.
    """
    known: type
    for known in type.__subclasses__(cls):
        if vars(known).get(_MARK) == replacements:
            return known
    methods: dict[str, Any] = {}
    for name in dict.fromkeys(replacement.method for replacement in replacements):
        source = read_method(cls, name)
        own = [(one, one.calls) for one in replacements if one.method == name]
        _rewrite(cls, source, own, source.self_name, methods)
        methods[name] = compiled(source)
    same = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    extra = {
        _MARK: replacements,
        "__reduce_ex__": _reduce,
        "__prepare_scriptable__": _refuse_script,
        "save_pretrained": _save_pretrained,
        _BRANCH_FIRST: staticmethod(_branch_first),
    }
    body = same | extra | methods
    return types.new_class(cls.__name__, (_Unannounced, cls), exec_body=lambda namespace: namespace.update(body))


class _Unannounced(torch.nn.Module):
    """Keeps the new class out of a list of classes that a base collects by ``__init_subclass__``."""

    def __init_subclass__(cls, **options: Any) -> None:
        pass


def is_rewritten(cls: type) -> bool:
    """Whether it is the class of a converted block.

    Example:
        >>> is_rewritten(torch.nn.Linear)
        False
    """
    return _MARK in vars(cls)


def find_sum(cls: type, method: str, calls: Sequence[tuple[int, str]], ordinal: int, text: str) -> Sum:
    """Return the sum that a replacement names.

    Raises:
        ValueError: the source does not have it.
    """
    source = read_method(cls, method)
    for place, called in calls:
        source = _helper(cls, source, place, called)
    sums = all_sums(source)
    if ordinal >= len(sums) or sums[ordinal].text != text:
        raise ValueError(
            f"{cls.__name__}.{method} does not have the sum {text!r} at its place; the source has changed since the "
            "network was converted: convert the network again, and load its state_dict"
        )
    return sums[ordinal]


def _helper(cls: type, source: Source, place: int, text: str) -> Source:
    """Return the source of the function that a call calls."""
    calls = all_calls(source)
    if place >= len(calls) or ast.unparse(calls[place]) != text:
        raise ValueError(
            f"{source.function.__qualname__} does not have the call {text!r} at its place; the source has changed "
            "since the network was converted: convert the network again, and load its state_dict"
        )
    function, owner = called_function(calls[place], source, cls)
    return read_function(function, owner, text.split("(")[0])


def _reduce(self: Any, protocol: int) -> tuple[Any, ...]:
    """For pickle and deepcopy: the class is made again from the original one, which can be imported."""
    cls: Any = next(base for base in type(self).__mro__ if is_rewritten(base))
    make, arguments, *state = super(cls, self).__reduce_ex__(max(protocol, 2))
    if make is not copyreg.__newobj__:  # type: ignore[attr-defined]
        raise TypeError(f"{cls.__name__} has a __reduce__ of its own and cannot be copied or pickled once converted")
    return _restored, (cls.__bases__[1], vars(cls)[_MARK], *arguments[1:]), *state


def _restored(cls: type, replacements: tuple[Replacement, ...], *arguments: Any) -> Any:
    new = rewritten_class(cls, replacements)
    return new.__new__(new, *arguments)


def _save_pretrained(self: Any, folder: Any, **options: Any) -> Any:
    """Write ``config.json`` and ``model.safetensors`` into ``folder``; :func:`lresnet.from_pretrained` reads them."""
    from lresnet.convert.saved import save_converted

    return save_converted(self, folder, **options)


def _branch_first(residual: Callable[..., Tensor], branch: Tensor, skip: Tensor) -> Tensor:
    """Return the residual of ``branch + skip`` in the memory layout of the sum: that of its first side."""
    return _laid_out(residual(x=skip, y=branch), branch)


@torch.fx.wrap
def _laid_out(result: Tensor, like: Tensor) -> Tensor:
    if result.shape != like.shape or result.stride() == like.stride():
        return result
    return torch.empty_like(like, dtype=result.dtype, device=result.device).copy_(result)


def _refuse_script(self: Any) -> NoReturn:
    raise TypeError(
        f"torch.jit.script reads source files, where {type(self).__name__} still has its sums; "
        "use torch.compile, torch.export or torch.jit.trace"
    )


def _rewrite(
    cls: type,
    source: Source,
    replacements: Sequence[tuple[Replacement, tuple[tuple[int, str], ...]]],
    self_name: str,
    methods: dict[str, Any],
) -> None:
    """Replace the sums of a function in its tree; functions that it calls are added to ``methods``.

    Each replacement comes with the calls that still lead to its sum from here.
    """
    sums, calls = all_sums(source), all_calls(source)
    chosen: dict[ast.AST, tuple[Sum, Replacement]] = {}
    called: dict[ast.AST, tuple[str, bool]] = {}
    by_call: dict[tuple[int, str], list[tuple[Replacement, tuple[tuple[int, str], ...]]]] = {}
    for one, path in replacements:
        if path:
            by_call.setdefault(path[0], []).append((one, path[1:]))
            continue
        if one.ordinal >= len(sums) or sums[one.ordinal].text != one.text:
            find_sum(cls, one.method, one.calls, one.ordinal, one.text)  # raises
        chosen[sums[one.ordinal].node] = sums[one.ordinal], one
    for (place, text), inner in by_call.items():
        helper = _helper(cls, source, place, text)
        is_method = helper.owner is not None
        name = f"_lorentz_{len(methods)}_{helper.node.name}"
        methods[name] = None  # takes the number
        if not is_method:
            arguments = helper.node.args
            (arguments.posonlyargs or arguments.args).insert(0, ast.arg(_OBJECT))
        _rewrite(cls, helper, inner, helper.self_name if is_method else _OBJECT, methods)
        ast.fix_missing_locations(helper.tree)
        methods[name] = compiled(helper)
        call = calls[place]
        explicit = is_method and not (isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call))
        called[call] = name, explicit
    _Rewriter(self_name, chosen, called).visit(source.node)
    ast.fix_missing_locations(source.tree)


class _Rewriter(ast.NodeTransformer):
    """Puts calls of residuals in the place of sums."""

    def __init__(
        self,
        self_name: str,
        chosen: dict[ast.AST, tuple[Sum, Replacement]],
        called: dict[ast.AST, tuple[str, bool]],
    ) -> None:
        self.self_name, self.chosen, self.called = self_name, chosen, called
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
        if node in self.called:
            name, explicit = self.called[node]
            node.func = ast.copy_location(ast.Attribute(_name(self.self_name, node), name, ast.Load()), node.func)
            node.args = node.args[1:] if explicit else node.args  # Base.method(self, x)
            return node
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
        """Return the call; both operands are computed in their order, so dropout draws the same numbers as before."""
        _, replacement = self.chosen[node]
        part: ast.expr = ast.Attribute(_name(self.self_name, node), replacement.part, ast.Load())
        if replacement.each_round:
            self.counted.add(self.loops[-1])
            part = ast.Subscript(part, _name(_counter(self.loops[-1]), node), ast.Load())
        if not replacement.skip_first:
            join = ast.Attribute(_name(self.self_name, node), _BRANCH_FIRST, ast.Load())
            return ast.copy_location(ast.Call(join, [part, first, second], []), node)
        given = [ast.keyword("x", first), ast.keyword("y", second)]
        return ast.copy_location(ast.Call(part, [], given), node)


def _name(name: str, place: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), place)


def _counter(loop: ast.For) -> str:
    return f"_lorentz_round_{loop.lineno}"


def _in_dtype_of(name: str, call: ast.Call) -> ast.expr:
    """A sum in place has the dtype of the tensor that it is written to."""
    dtype = ast.Attribute(_name(name, call), "dtype", ast.Load())
    return ast.copy_location(ast.Call(ast.Attribute(call, "to", ast.Load()), [dtype], []), call)
