"""Source of the functions of a network: syntax trees with the user's line numbers, and functions compiled from them."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import operator
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

__all__ = ["Source", "Sum", "Unreadable", "all_calls", "all_sums", "called_function", "compiled", "enclosed",
           "read_function", "read_method"]  # fmt: skip

# "from __future__ import annotations" changes how a function is compiled.
_FUTURES = annotations.compiler_flag
_SCOPE = "_lorentz_scope"


class Unreadable(ValueError):
    """The source of a function is missing, or is not that of the function that runs."""


class Source(NamedTuple):
    """A function and its syntax tree."""

    function: Any
    """The function that runs, without its decorators."""
    owner: type | None
    """The class that defines it; None: a plain function."""
    tree: ast.Module
    node: ast.FunctionDef
    """The definition within ``tree``."""
    given: Any
    """The function with its decorators."""

    @property
    def self_name(self) -> str:
        """Name of the first argument."""
        return [*self.node.args.posonlyargs, *self.node.args.args][0].arg


def read_method(cls: type, name: str) -> Source:
    """Return the source of ``cls.name``, which the class or one of its bases defines.

    Raises:
        Unreadable: there is no source, e.g. because the method was made by ``exec``, or it is not the code that runs.

    Example:
        >>> read_method(torch.nn.Sequential, "forward").self_name
        'self'
    """
    owner = next((base for base in cls.__mro__ if name in vars(base)), None)
    if owner is None:
        raise Unreadable(f"{cls.__name__} has no method {name}")
    source = read_function(vars(owner)[name], owner, f"{cls.__name__}.{name}")
    function = source.function
    hidden = function.__name__ != name and any(map(callable, enclosed(function).values()))
    if hidden or not source.node.args.posonlyargs + source.node.args.args:
        raise Unreadable(f"{cls.__name__}.{name} is wrapped by a decorator without functools.wraps")
    return source


def read_function(given: Any, owner: type | None, title: str) -> Source:
    """Return the source of a function; ``title`` is its name in messages.

    Raises:
        Unreadable: there is no source, or it is not the code that runs.
    """
    function = None if isinstance(given, type) else inspect.unwrap(given)
    if not isinstance(function, types.FunctionType):
        raise Unreadable(f"{title} is not a plain Python function")
    try:
        lines, first = _lines(function)
    except (OSError, TypeError) as error:
        raise Unreadable(f"the source of {title} is not available ({error})") from error
    # Inside a class the compiler renames self.__private. The line of the class comes before that of the method.
    indented = lines[0][:1].isspace()
    text = (f"class {owner.__name__ if owner is not None else 'Around'}:\n" if indented else "\n") + "".join(lines)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise Unreadable(f"the source of {title} is not that of a function ({error.msg})") from error
    node = tree.body[0].body[0] if isinstance(tree.body[0], ast.ClassDef) else tree.body[0]
    code = function.__code__
    if not isinstance(node, ast.FunctionDef) or node.name != code.co_name:
        raise Unreadable(f"the source found for {title} is that of something else")
    if not _is_compiled_from(code, function):
        raise Unreadable(
            f"the source of {title} is not the code that runs: its file was changed after the import, or an import "
            "hook changed the code (pytest rewrites assertions in test files)"
        )
    ast.increment_lineno(tree, first - 2)
    return Source(function, owner, tree, node, given)


def enclosed(function: types.FunctionType) -> dict[str, Any]:
    """Return the variables of the enclosing functions that are set."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def compiled(source: Source) -> Any:
    """Return a function of the changed tree; globals, closure, defaults, file and lines are those of the original.

    It has the same decorators, also those that were applied after its definition.

    Raises:
        Unreadable: a decorator does not hold the function in a variable.
    """
    old = source.function
    cells = dict(zip(old.__code__.co_freevars, old.__closure__ or (), strict=True))
    source.node.decorator_list = []
    code = _code(source.tree, old)
    new = types.FunctionType(
        code, old.__globals__, old.__name__, old.__defaults__, tuple(cells[name] for name in code.co_freevars)
    )
    functools.update_wrapper(new, old)
    del new.__wrapped__  # type: ignore[attr-defined]  # torch.compile and inspect would follow it to the old code
    new.__kwdefaults__ = old.__kwdefaults__
    return _decorated(source.given, old, new)


def _decorated(given: Any, old: Any, new: Any) -> Any:
    """Return a copy of ``given``, the function ``old`` with decorators around it, with ``new`` in its place."""
    given = getattr(given, "__func__", given)  # a static method becomes a method
    if given is old:
        return new
    inner = given.__wrapped__
    replaced = _decorated(inner, old, new)
    held = [cell.cell_contents for cell in given.__closure__ or ()] if isinstance(given, types.FunctionType) else []
    if not any(one is inner for one in held):
        raise Unreadable(f"a decorator of {old.__qualname__} does not hold the function in a variable")
    closure = tuple(types.CellType(replaced if one is inner else one) for one in held)
    copied = types.FunctionType(given.__code__, given.__globals__, given.__name__, given.__defaults__, closure)
    functools.update_wrapper(copied, replaced)
    copied.__kwdefaults__ = given.__kwdefaults__
    return copied


@functools.lru_cache(maxsize=256)
def _lines(function: types.FunctionType) -> tuple[list[str], int]:
    return inspect.getsourcelines(function)


def _code(tree: ast.Module, old: types.FunctionType) -> types.CodeType:
    """Compile the definition in ``tree`` where the free variables of the old function are free variables too."""
    names = [name for name in old.__code__.co_freevars if name != "__class__"]
    around = ast.parse(f"def {_SCOPE}({', '.join(names)}): pass")
    function = around.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = tree.body
    scope = ast.fix_missing_locations(around)
    flags = old.__code__.co_flags & _FUTURES
    return _code_of(compile(scope, old.__code__.co_filename, "exec", flags, dont_inherit=True), old.__code__.co_name)


def _code_of(code: types.CodeType, name: str) -> types.CodeType:
    """Return the first code object called ``name`` within a module, a function and perhaps a class."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    found = next((constant for constant in inner if constant.co_name == name), None)
    return found or _code_of(inner[0], name)


def _is_compiled_from(code: types.CodeType, function: types.FunctionType) -> bool:
    """Whether the file of a function, as it is now, compiles to the code that runs."""
    lines, _ = inspect.findsource(function)
    try:
        known = _codes_of_file(code.co_filename, "".join(lines), code.co_flags & _FUTURES)
    except SyntaxError:
        return False
    return any(_same_code(one, code) for one in known.get((code.co_name, code.co_firstlineno), ()))


@functools.lru_cache(maxsize=64)
def _codes_of_file(file: str, text: str, flags: int) -> dict[tuple[str, int], list[types.CodeType]]:
    """Compile a whole file, since the compiler treats names that the file imports in another way."""
    found: dict[tuple[str, int], list[types.CodeType]] = {}
    waiting = [compile(text, file, "exec", flags, dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        found.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        waiting.extend(one for one in code.co_consts if isinstance(one, types.CodeType))
    return found


def _same_code(first: types.CodeType, second: types.CodeType) -> bool:
    """Whether two functions have the same bytecode, names and constants, nested functions included."""
    facts = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_exceptiontable")
    constants = len(first.co_consts) == len(second.co_consts)
    return (
        constants
        and all(getattr(first, fact) == getattr(second, fact) for fact in facts)
        and all(map(_same_constant, first.co_consts, second.co_consts))
    )


def _same_constant(first: object, second: object) -> bool:
    if isinstance(first, types.CodeType) and isinstance(second, types.CodeType):
        return _same_code(first, second)
    if isinstance(first, frozenset) and isinstance(second, frozenset):  # no order
        return first == second
    return type(first) is type(second) and repr(first) == repr(second)  # repr: nan equals nan, 0.0 differs from -0.0


# Sums and calls in a function

_SUMS = (torch.add, operator.add, torch.Tensor.add)


class Sum(NamedTuple):
    """A sum of two expressions: ``a + b``, ``a += b``, ``torch.add(a, b)``, ``a.add(b)`` or ``a.add_(b)``."""

    node: ast.BinOp | ast.AugAssign | ast.Call
    first: ast.expr
    in_place: bool = False
    """Whether the first operand is overwritten."""
    has_keywords: bool = False
    """Whether there is an ``alpha=``, ``out=`` or a named operand."""

    @property
    def text(self) -> str:
        """The expression on one line."""
        return ast.unparse(self.node)


def all_sums(source: Source) -> list[Sum]:
    """Return every sum of a function, in an order that depends on its source alone.

    Example:
        >>> [one.text for one in all_sums(read_method(torch.nn.TransformerEncoderLayer, "forward"))][:1]
        ['x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal=is_causal)']
    """
    found = (_as_sum(node, source.function.__globals__) for node in ast.walk(source.node))
    return [one for one in found if one is not None]


def _as_sum(node: ast.AST, names: Mapping[str, Any]) -> Sum | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return Sum(node, node.left)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return Sum(node, node.target, in_place=True)
    if not isinstance(node, ast.Call) or any(isinstance(argument, ast.Starred) for argument in node.args):
        return None
    if _named(node.func, names) in _SUMS and len(node.args) + len(node.keywords) >= 2:
        return Sum(node, node.args[0] if node.args else node.func, has_keywords=bool(node.keywords))
    if len(node.args) == 1 and isinstance(node.func, ast.Attribute) and node.func.attr in ("add", "add_"):
        return Sum(node, node.func.value, node.func.attr == "add_", bool(node.keywords))
    return None


def all_calls(source: Source) -> list[ast.Call]:
    """Return every call of a function, in an order that depends on its source alone."""
    return [node for node in ast.walk(source.node) if isinstance(node, ast.Call)]


def called_function(call: ast.Call, source: Source, cls: type) -> tuple[Any, type | None]:
    """Return the function that a call in ``source``, part of a class ``cls``, calls, and the class that defines it.

    Known forms: ``function(x)``, ``module.function(x)``, ``self.static(x)``, ``super().method(x)``,
    ``Base.method(self, x)``.

    Raises:
        Unreadable: the call has another form.
    """
    match call.func:
        case ast.Name(id=name):
            return (enclosed(source.function) | source.function.__globals__).get(name), None
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[]), attr=name) if source.owner is not None:
            later = cls.__mro__[cls.__mro__.index(source.owner) + 1 :]
            owner = next((base for base in later if name in vars(base)), None)
            if owner is not None:
                return vars(owner)[name], owner
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            base = (enclosed(source.function) | source.function.__globals__).get(name)
            if isinstance(base, type):
                owner = next((one for one in base.__mro__ if attribute in vars(one)), None)
                if owner is not None:
                    found = vars(owner)[attribute]
                    return (found.__func__, None) if isinstance(found, staticmethod) else (found, owner)
            elif isinstance(base, types.ModuleType):
                return getattr(base, attribute, None), None
            elif base is None:  # a local name: self
                found = inspect.getattr_static(cls, attribute, None)
                if isinstance(found, staticmethod):
                    return found.__func__, None
    raise Unreadable(f"which function {ast.unparse(call)} calls is decided while it runs")


def _named(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the function that ``torch.add`` or ``add`` names."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return getattr(names.get(node.value.id), node.attr, None)
    return None
