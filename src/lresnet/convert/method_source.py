"""Methods as syntax trees with the line numbers of the user's file, and functions compiled from changed trees."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import types
from typing import Any, NamedTuple

__all__ = ["Method", "Unreadable", "compiled", "enclosed", "read_method"]

# from __future__ import annotations, the one that is not yet the rule, changes how a method is compiled.
_FUTURES = annotations.compiler_flag


class Unreadable(ValueError):
    """A method whose source is not to be had, or is not that of the function that runs."""


class Method(NamedTuple):
    """A method of a class, and its source."""

    owner: type
    """The class that defines it: the one asked, or one it is derived from."""
    function: Any
    """What runs, without its decorators."""
    tree: ast.Module
    node: ast.FunctionDef
    """The definition, within ``tree``."""
    wrappers: int
    """How many functions stand around it."""

    @property
    def self_name(self) -> str:
        """How it calls the object."""
        return [*self.node.args.posonlyargs, *self.node.args.args][0].arg

    @property
    def arguments(self) -> list[str]:
        """What it is given in order, the object apart."""
        return [one.arg for one in [*self.node.args.posonlyargs, *self.node.args.args]][1:]

    def place(self, node: ast.AST) -> str:
        """File and line of a part of it."""
        return f"{self.function.__code__.co_filename}:{getattr(node, 'lineno', self.node.lineno)}"


def read_method(cls: type, name: str) -> Method:
    """The source of ``cls.name``.

    Raises:
        Unreadable: there is none, e.g. since it was made by ``exec`` or is not written in Python.

    Example:
        >>> read_method(torch.nn.Sequential, "forward").self_name
        'self'
    """
    owner = next((base for base in cls.__mro__ if name in vars(base)), None)
    given = None if owner is None else vars(owner)[name]
    function = None if given is None else inspect.unwrap(given)
    if owner is None or not isinstance(function, types.FunctionType):
        raise Unreadable(f"{cls.__name__}.{name} is no plain Python function")
    try:
        lines, first = _lines(function)
    except (OSError, TypeError) as error:
        raise Unreadable(f"the source of {cls.__name__}.{name} is not to be had ({error})") from error
    # Within a class, for the compiler to rename self.__private as it did; its line comes before the method's own.
    indented = lines[0][:1].isspace()
    text = (f"class {owner.__name__}:\n" if indented else "\n") + "".join(lines)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise Unreadable(f"the source of {cls.__name__}.{name} is not that of a method ({error.msg})") from error
    node = tree.body[0].body[0] if isinstance(tree.body[0], ast.ClassDef) else tree.body[0]
    code = function.__code__
    if not isinstance(node, ast.FunctionDef) or node.name != code.co_name or not _same_arguments(node, code):
        raise Unreadable(f"the source found for {cls.__name__}.{name} is that of something else")
    if not _names(_code(tree, function)) <= _names(code):
        raise Unreadable(f"the file of {cls.__name__}.{name} was changed since it was imported")
    wraps = function.__name__ != name and any(map(callable, enclosed(function).values()))
    if wraps or not node.args.posonlyargs + node.args.args:
        raise Unreadable(f"{cls.__name__}.{name} is wrapped by a decorator; give that functools.wraps")
    ast.increment_lineno(tree, first - 2)
    return Method(owner, function, tree, node, _wrappers(given))


def enclosed(function: types.FunctionType) -> dict[str, Any]:
    """What the variables of the functions around it hold, those that are set."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def compiled(method: Method) -> Any:
    """A function of the method's tree as it is now; all else is that of the method: globals, closure, defaults, lines.

    Decorators are applied anew.
    """
    old = method.function
    cells = dict(zip(old.__code__.co_freevars, old.__closure__ or (), strict=True))
    decorators, method.node.decorator_list = method.node.decorator_list, []
    file, flags = old.__code__.co_filename, old.__code__.co_flags & _FUTURES
    code = _code(method.tree, old)
    new = types.FunctionType(
        code, old.__globals__, old.__name__, old.__defaults__, tuple(cells[name] for name in code.co_freevars)
    )
    functools.update_wrapper(new, old)
    del new.__wrapped__  # type: ignore[attr-defined]  # torch.compile and inspect would follow it to the old code
    new.__kwdefaults__ = old.__kwdefaults__
    for decorator in reversed(decorators):
        expression = compile(ast.Expression(decorator), file, "eval", flags=flags, dont_inherit=True)
        try:
            new = eval(expression, old.__globals__, {**vars(method.owner), **enclosed(old)})(new)
        except NameError as error:
            text = ast.unparse(decorator)
            raise Unreadable(f"@{text} of {old.__qualname__} cannot be applied anew: {error}") from error
    if _wrappers(new) != method.wrappers:
        raise Unreadable(
            f"{old.__qualname__} was wrapped after its definition, which its source does not tell; write that as a "
            "decorator"
        )
    return new


def _wrappers(function: Any) -> int:
    """How many wrappers there are around what was defined."""
    return 1 + _wrappers(function.__wrapped__) if hasattr(function, "__wrapped__") else 0


@functools.lru_cache(maxsize=256)
def _lines(function: types.FunctionType) -> tuple[list[str], int]:
    """A network has many modules of one class."""
    return inspect.getsourcelines(function)


def _code(tree: ast.Module, old: types.FunctionType) -> types.CodeType:
    """What the compiler makes of the definition in ``tree``, with the variables around the old function."""
    scope = _within_a_function([name for name in old.__code__.co_freevars if name != "__class__"], tree)
    flags = old.__code__.co_flags & _FUTURES
    return _code_of(compile(scope, old.__code__.co_filename, "exec", flags, dont_inherit=True), old.__code__.co_name)


def _names(code: types.CodeType) -> set[str]:
    """All names that a function uses, and those within it; what pytest makes of an ``assert`` uses more."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return {*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars}.union(*inner)


def _same_arguments(node: ast.FunctionDef, code: types.CodeType) -> bool:
    names = [argument.arg for argument in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
    return len(names) == code.co_argcount + code.co_kwonlyargcount


def _within_a_function(names: list[str], tree: ast.Module) -> ast.Module:
    """The same where ``names`` are variables of a function around it, so that they become free ones."""
    around = ast.parse(f"def around({', '.join(names)}): pass")
    function = around.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = tree.body
    return ast.fix_missing_locations(around)


def _code_of(code: types.CodeType, name: str) -> types.CodeType:
    """The innermost of ``code``, module, function and perhaps class, that is called ``name``."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    found = next((constant for constant in inner if constant.co_name == name and constant.co_name != "around"), None)
    return found or _code_of(inner[0], name)
