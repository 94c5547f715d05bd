"""Data flow of a method: its source, evaluated in the order of execution with a value for every name."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from lresnet.convert.callers import Related
from lresnet.convert.calls import Calls
from lresnet.convert.expressions import Names
from lresnet.convert.method_source import Method
from lresnet.convert.parts import Parts
from lresnet.convert.sums import Sum, as_sum
from lresnet.convert.values import Value

__all__ = ["Dataflow"]


class Dataflow(Calls):
    """Reads one method of one module, statement by statement."""

    def __init__(self, method: Method, parts: Parts) -> None:
        super().__init__(method, parts)
        self.loops: list[ast.stmt] = []
        """Those around the statement that is read, the innermost last."""
        self.overwritten: list[Sum] = []
        """Sums that are converted and were written into an argument."""
        self._jumps: list[Names] = []
        """What ``break`` and ``continue`` leave the loop, or its round, with."""

    def run(self, related: Related) -> None:
        """Read all of it; ``related`` are those of the arguments."""
        self.enter(self.method.node.args)
        for branch in sorted(
            {branch for _, branch in related}, key=lambda name: sum(name == one for _, one in related)
        ):
            self._relate(branch, {skip: parts for (skip, one), parts in related.items() if one == branch})
        self.block(self.method.node.body)

    def _relate(self, branch: str, skips: Mapping[str, tuple[str, ...]]) -> None:
        """Let an argument be what layers have made of others."""
        sources = [self.names[skip] for skip in skips if skip in self.names]
        if sources and branch in self.names:
            parts = tuple(dict.fromkeys(part for one in skips.values() for part in one))
            self.names[branch] = value = self.values.layer(sources, parts)
            self.arguments.add(value.number)

    def block(self, statements: Sequence[ast.stmt]) -> bool:
        """Read statements; whether the run goes on behind them."""
        for place, statement in enumerate(statements):
            if not self._statement(statement):
                if isinstance(statement, ast.If) and self.parts.known(statement.test, self.self_name) is not None:
                    self.unmet += 1  # with other settings it would go on
                    self.block(statements[place + 1 :])
                    self.unmet -= 1
                return False
        return True

    def _statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Assign():
                self._assign(node)
            case ast.AnnAssign(value=ast.expr() as value):
                self.bind(node.target, self.value(value))
            case ast.AugAssign():
                self.bind(node.target, self._augmented(node))
            case ast.If():
                self.value(node.test)
                return self._either([node.body, node.orelse], self.parts.known(node.test, self.self_name))
            case ast.For() | ast.AsyncFor() | ast.While():
                self._loop(node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    entered = self.value(item.context_expr)
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, entered)
                return self.block(node.body)
            case ast.Try() | ast.TryStar():
                goes_on = self._try(node)
                return self.block(node.finalbody) and goes_on
            case ast.Match():
                self.value(node.subject)
                return self._either([*(case.body for case in node.cases), []])
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.Break() | ast.Continue():
                self._jumps.append(self.names)
                return False
            case ast.Return() | ast.Raise():
                self.children(node)
                return False
            case _:
                self.children(node)
        return True

    def _assign(self, node: ast.Assign) -> None:
        if isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple) and len(node.targets) == 1:
            targets, given = node.targets[0].elts, node.value.elts
            if len(targets) == len(given) and not any(isinstance(one, ast.Starred) for one in [*targets, *given]):
                for target, value in zip(targets, [self.value(one) for one in given], strict=True):
                    self.bind(target, value)
                return
        value = self.value(node.value)
        for target in node.targets:
            self.bind(target, value)

    def _augmented(self, node: ast.AugAssign) -> Value:
        found = as_sum(node, self.method.function.__globals__)
        if found is None:
            return self.values.new(self._read(node.target), self.value(node.value), view=True)
        first = self.value(found.first)
        return self.add(found, first, self.value(found.second))

    def _read(self, target: ast.expr) -> Value:
        return self.names.get(ast.unparse(target)) or self.values.new()

    def _either(self, arms: Sequence[Sequence[ast.stmt]], first: bool | None = None) -> bool:
        """Read all arms; ``first`` says whether a run takes the first of them, if that is known."""
        before = self.names
        met: list[Names] = []
        unmet: list[Names] = []
        for number, arm in enumerate(arms):
            self.names = dict(before)
            ruled_out = first is not None and first != (number == 0)
            self.unmet += ruled_out
            if self.block(arm):
                (unmet if ruled_out else met).append(self.names)
            self.unmet -= ruled_out
        self.names = self._merged(met or unmet or [before])
        for end in unmet if met else ():
            taken = {name: self.values.taken(value, end.get(name, value)) for name, value in self.names.items()}
            self.names = end | taken
        return bool(met)

    def _try(self, node: ast.Try | ast.TryStar) -> bool:
        """A handler may find what was before, or what the body has made of it."""
        before = dict(self.names)
        goes_on = self.block([*node.body, *node.orelse])
        found = [before, self.names]
        ends = [self.names] if goes_on else []
        for handler in node.handlers:
            self.names = self._merged(found)
            if self.block(handler.body):
                ends.append(self.names)
        self.names = self._merged(ends or found)
        return bool(ends)

    def _merged(self, ends: Sequence[Names]) -> Names:
        merged = dict(ends[0])
        for end in ends[1:]:
            for name, value in end.items():
                merged[name] = self.values.either(merged[name], value) if name in merged else value
        return merged

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        """Twice: the second time with what a round may leave behind. That there is a round is taken for granted."""
        outside, before, ends = self._jumps, self.names, [self.names]
        self.loops.append(node)
        for _ in range(2):
            self.names, self._jumps = dict(self._merged([before, *ends])), []
            if isinstance(node, ast.While):
                self.value(node.test)
            else:
                self.bind_element(node.target, node.iter)
            goes_on = self.block(node.body)
            ends = self._jumps + ([self.names] if goes_on else [])
        self.names = self._merged(ends or [before])
        self.loops.pop()
        self._jumps = outside
        self.block(node.orelse)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function within: read here, and a layer if it calls one."""
        outside, loops = self.names, self.loops
        self.names, self.loops = dict(outside), []
        self.scopes += 1
        self.enter(node.args)
        self.block(node.body)
        self.names, self.loops, self.scopes = outside, loops, self.scopes - 1
        self.names[node.name] = self.values.new(kind="layer" if self.uses_self(node) else "fact")
