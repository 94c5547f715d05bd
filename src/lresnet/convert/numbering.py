"""Numbers of the sums of a method. Sums of which only one runs, as in the branches of an ``if``, share a number."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

__all__ = ["numbered"]


def numbered(body: Sequence[ast.stmt], sums: Collection[ast.AST], start: int = 1) -> dict[ast.AST, int]:
    """The number of each of the ``sums`` that stand in ``body``, from ``start``.

    A parameter of a residual that no run meets would never be trained, and DistributedDataParallel would complain.

    Example:
        >>> body = ast.parse('''
        ... if self.norm_first:
        ...     x = x + f(x)
        ... else:
        ...     x = g(x + f(x))
        ... x = x + h(x)
        ... ''').body
        >>> sums = [node for node in ast.walk(ast.Module(body, [])) if isinstance(node, ast.BinOp)]
        >>> [(ast.unparse(node), number) for node, number in numbered(body, sums).items()]
        [('x + f(x)', 1), ('x + f(x)', 1), ('x + h(x)', 2)]
    """
    found: dict[ast.AST, int] = {}
    _block(body, set(sums), start, found)
    return found


def _block(body: Sequence[ast.stmt], sums: set[ast.AST], number: int, found: dict[ast.AST, int]) -> int:
    for place, statement in enumerate(body):
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Return | ast.Raise):
            number = _node(statement.test, sums, number, found)
            rest = [*statement.orelse, *body[place + 1 :]]
            return max(_block(statement.body, sums, number, found), _block(rest, sums, number, found))
        number = _node(statement, sums, number, found)
    return number


def _node(node: ast.AST, sums: set[ast.AST], number: int, found: dict[ast.AST, int]) -> int:
    """The number that is free behind ``node``."""
    match node:
        case ast.If():
            number = _node(node.test, sums, number, found)
            return max(_block(arm, sums, number, found) for arm in (node.body, node.orelse))
        case ast.IfExp():
            number = _node(node.test, sums, number, found)
            return max(_node(arm, sums, number, found) for arm in (node.body, node.orelse))
        case ast.Match():
            number = _node(node.subject, sums, number, found)
            return max(_block(case.body, sums, number, found) for case in node.cases)
    for _, field in ast.iter_fields(node):
        if isinstance(field, list) and field and isinstance(field[0], ast.stmt):
            number = _block(field, sums, number, found)
        else:
            for child in field if isinstance(field, list) else [field]:
                number = _node(child, sums, number, found) if isinstance(child, ast.AST) else number
    if node in sums:
        found[node] = number
        number += 1
    return number
