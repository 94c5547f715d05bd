"""Place of an operation in the source: module, method, helper functions in between, and the sum's syntax node."""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from lresnet.convert.rewritten_class import is_rewritten
from lresnet.convert.source import (
    Source,
    Sum,
    Unreadable,
    all_calls,
    all_sums,
    called_function,
    compiled,
    read_function,
    read_method,
)

__all__ = ["Place", "place_of", "position"]

_TORCH = tuple(
    f"{torch.__path__[0]}/{file}" for file in ("overrides.py", "_tensor.py", "functional.py", "nn/functional.py")
)
_MOST_CALLS = 8  # helper functions between a method and a sum
Span = tuple[int | None, int | None, int | None, int | None]

# Many modules of a network have the same class. The trees are only read here.
_cached_method: Any = functools.lru_cache(maxsize=1024)(read_method)
_cached_function: Any = functools.lru_cache(maxsize=1024)(read_function)


class Place(NamedTuple):
    """Where a sum stands, or the reason why it cannot be rewritten."""

    module: torch.nn.Module | None
    method: str
    calls: tuple[tuple[int, str], ...]
    ordinal: int
    text: str
    file: str
    line: int
    column: int
    end: tuple[int, int]
    function: str
    """Name of the function with the sum."""
    loop: str | None
    """The list of layers that the loop around the sum goes through."""
    in_place: bool
    writes_argument: bool
    reason: str
    """Why the sum cannot be rewritten; empty if it can."""

    @property
    def source_line(self) -> tuple[str, int, int, tuple[int, int]]:
        """What all modules of a class share; the inner one of ``a + b + c`` comes first."""
        return self.file, self.line, self.column, self.end


def position(frame: types.FrameType) -> Span:
    """Return first line, last line, first column and last column of the expression that a frame is computing."""
    for place, span in enumerate(frame.f_code.co_positions()):
        if place == frame.f_lasti // 2:
            return span
    return None, None, None, None


def place_of(frame: types.FrameType) -> Place | None:
    """Return the place of the operation that ``frame`` computes; None: no module of the network is computing it."""
    inner: types.FrameType | None = frame
    while inner is not None and inner.f_code.co_filename in _TORCH:
        inner = inner.f_back
    if inner is None:
        return None
    span, top = position(inner), inner
    chain: list[tuple[types.CodeType, Span]] = []  # functions below the method, and where each was called
    current: types.FrameType = inner
    for _ in range(_MOST_CALLS):
        owner = _owner(current)
        if owner is None and (around := _enclosing(current)) is not None:
            current, owner = around, _owner(around)
        if owner is not None and owner[1] is not None:
            return _read(owner[0], owner[1], chain, span, top)
        if current.f_back is None or current.f_back.f_code.co_filename.startswith(torch.__path__[0]):
            break
        chain.append((current.f_code, position(current.f_back)))
        current = current.f_back
    module = next((found[0] for one in _frames(inner) if (found := _owner(one)) is not None), None)
    reason = f"it stands in {top.f_code.co_name}, a function that no method of the module calls by its name"
    return None if module is None else _unread(module, top, span, reason)


def _frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _owner(frame: types.FrameType) -> tuple[torch.nn.Module, str | None] | None:
    """Return the module whose method a frame runs, and the name under which the module has it.

    The name is None for a method of a base that the module's class overrides.
    """
    code = frame.f_code
    first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    if not isinstance(first, torch.nn.Module):
        return None
    overridden, names = False, _names(type(first))  # type: ignore[arg-type]
    for name in dict.fromkeys((code.co_name, *names.get(code, ()))):
        for number, base in enumerate(one for one in type(first).__mro__ if name in vars(one)):
            if _code(vars(base)[name]) is code:
                if number == 0:
                    return first, name
                overridden = True
    return (first, None) if overridden else None


@functools.lru_cache(maxsize=512)
def _names(cls: Any) -> Mapping[types.CodeType, tuple[str, ...]]:
    """Return the names of a class's functions that are not called after their definition."""
    found: dict[types.CodeType, tuple[str, ...]] = {}
    for base in cls.__mro__:
        for name, value in vars(base).items():
            code = _code(value)
            if code is not None and code.co_name != name:
                found[code] = (*found.get(code, ()), name)
    return found


def _code(value: Any) -> types.CodeType | None:
    try:
        function = inspect.unwrap(value)
    except ValueError:
        return None
    return function.__code__ if isinstance(function, types.FunctionType) else None


def _enclosing(frame: types.FrameType) -> types.FrameType | None:
    """Return the running method in which a lambda, comprehension or nested function of a frame is defined."""
    code = frame.f_code
    return next((one for one in _frames(frame.f_back) if _owner(one) is not None and code in _nested(one.f_code)), None)


@functools.lru_cache(maxsize=512)
def _nested(code: types.CodeType) -> frozenset[types.CodeType]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return frozenset(inner).union(*map(_nested, inner))


def _read(
    module: torch.nn.Module,
    method: str,
    chain: list[tuple[types.CodeType, Span]],
    span: Span,
    frame: types.FrameType,
) -> Place:
    """Find the sum in the source of the method, or of the functions that it calls."""
    cls = type(module)
    if method in module.__dict__:
        return _unread(module, frame, span, f"the {method} of this {cls.__name__} was replaced on the object")
    if is_rewritten(cls):
        return _unread(module, frame, span, "it is converted already")
    try:
        source, calls = _cached_method(cls, method), []
        _compile_once(read_method, cls, method)
        for code, place in reversed(chain):
            number = next((n for n, one in enumerate(all_calls(source)) if _spans(one, place)), None)
            if number is None:
                raise Unreadable(f"{code.co_name} is not called by an expression of {source.node.name}")
            call = all_calls(source)[number]
            given, owner = called_function(call, source, cls)
            if _code(given) is not code:
                raise Unreadable(f"which function {ast.unparse(call)} calls is decided while it runs")
            calls.append((number, ast.unparse(call)))
            source = _cached_function(given, owner, code.co_name)
            _compile_once(read_function, given, owner, code.co_name)
    except Unreadable as error:
        return _unread(module, frame, span, str(error))
    sums = all_sums(source)
    ordinal = next((n for n, one in enumerate(sums) if _spans(one.node, span)), None)
    if ordinal is None:
        return _unread(module, frame, span, _written(source, span))
    found = sums[ordinal]
    return Place(
        module,
        method,
        tuple(calls),
        ordinal,
        found.text,
        source.function.__code__.co_filename,
        span[0] or 0,
        span[2] or 0,
        (span[1] or 0, span[3] or 0),
        source.node.name,
        None if calls else _loop(source, found),
        found.in_place,
        found.in_place and _is_argument(source, found),
        _why_not(source, found, bool(calls)),
    )


def _require_compilable(read: Any, *arguments: Any) -> None:
    """Raise ``Unreadable`` if a function cannot be compiled again, e.g. because of its decorators."""
    compiled(read(*arguments))


_compile_once: Any = functools.lru_cache(maxsize=1024)(_require_compilable)


def _unread(module: torch.nn.Module, frame: types.FrameType, span: Span, reason: str) -> Place:
    line, column, end = span[0] or frame.f_lineno, span[2] or 0, (span[1] or 0, span[3] or 0)
    code = frame.f_code
    return Place(
        module, code.co_name, (), -1, "", code.co_filename, line, column, end, code.co_name, None, False, False, reason
    )


def _spans(node: ast.AST, span: Span) -> bool:
    first, last, start, end = span
    if (node.end_lineno, node.end_col_offset) != (last, end):  # type: ignore[attr-defined]
        return False
    exact = (node.lineno, node.col_offset) == (first, start)  # type: ignore[attr-defined]
    return exact or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))  # starts at the attribute


def _written(source: Source, span: Span) -> str:
    nodes = [node for node in ast.walk(source.node) if isinstance(node, ast.expr) and _spans(node, span)]
    text = ast.unparse(nodes[0]) if nodes else source.node.name
    return f"it is written as {text}; write x + f(x)"


def _why_not(source: Source, found: Sum, in_helper: bool) -> str:
    if found.has_keywords:
        return "it has named arguments; write x + f(x)"
    if found.in_place and isinstance(found.first, ast.Attribute | ast.Subscript | ast.Starred):
        return "it is written into an attribute or a part of a tensor; write x = x + f(x)"
    scopes = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.FunctionDef)
    around = [node for node in ast.walk(source.node) if isinstance(node, scopes) and node is not source.node]
    inside = [node for node in around if any(one is found.node for one in ast.walk(node))]
    if inside and found.in_place and isinstance(found.node, ast.Call):
        return "it is in place inside a comprehension or a nested function; write x = x + f(x)"
    if inside and in_helper:
        return "it stands in a nested function of a helper function"
    if not in_helper and (text := _all_parts(source)):
        return f"{text} goes through all parts of the module, and the residual would be one of them"
    return ""


def _all_parts(source: Source) -> str:
    """Return the expression by which a method goes through all of its own parts, if there is one."""
    self_name = source.self_name
    for node in ast.walk(source.node):
        match node:
            case ast.For(iter=ast.Name(id=name)) | ast.comprehension(iter=ast.Name(id=name)) if name == self_name:
                return f"for ... in {self_name}"
            case ast.For(iter=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="children"))) if (
                name == self_name
            ):
                return f"for ... in {self_name}.children()"
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="forward")) if (
                source.owner is not None and issubclass(source.owner, torch.nn.Sequential)
            ):
                return ast.unparse(node)
    return ""


def _is_argument(source: Source, found: Sum) -> bool:
    """Whether a sum in place writes into an argument that was not assigned to before."""
    if not isinstance(found.first, ast.Name):
        return False
    arguments = [one.arg for one in [*source.node.args.posonlyargs, *source.node.args.args]]
    stored = [
        node
        for node in ast.walk(source.node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == found.first.id
    ]
    return found.first.id in arguments and all(one.lineno >= found.node.lineno for one in stored)


def _loop(source: Source, found: Sum) -> str | None:
    """Return the list of layers of the innermost loop around a sum, if the loop goes through one."""
    loops = [
        node
        for node in ast.walk(source.node)
        if isinstance(node, ast.For | ast.While) and any(one is found.node for one in ast.walk(node))
    ]
    innermost = loops[-1] if loops else None  # ast.walk goes from the outside to the inside
    return _iterated(innermost.iter, source.self_name) if isinstance(innermost, ast.For) else None


def _iterated(node: ast.expr, self_name: str) -> str | None:
    """Return ``layers`` for ``self.layers``, ``enumerate(self.layers)``, ``range(len(self.layers))`` and the like."""
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
