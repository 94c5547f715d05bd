"""Where a network's own code adds a branch to its skip connection: found in the graph that torch.fx traces."""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch.fx import Graph, Node, Tracer

__all__ = ["SkipSum", "Unreadable", "may_add", "skip_sums", "trace"]

_SUMS = (operator.add, operator.iadd, torch.add)
_METHODS = ("add", "add_", "__add__", "__iadd__")
# What is asked of a tensor and is none itself: sums of these are of sizes.
_FACTS = ("size", "dim", "numel", "stride", "shape", "ndim", "dtype", "device", "item", "tolist")


class Unreadable(ValueError):
    """Code that cannot be traced, or that does one thing in training and another in evaluation."""


class SkipSum(NamedTuple):
    """A sum of two tensors that come from a common one."""

    node: Node
    skip_first: bool
    """Whether the skip connection, which reaches the sum by the shorter way, is the first of the two."""

    @property
    def operands(self) -> tuple[Node, Node]:
        """Skip connection and branch, as they are now: a sum before this one may have been replaced."""
        first, second = self.node.all_input_nodes
        return (first, second) if self.skip_first else (second, first)


class _OneModule(Tracer):
    """Looks into one module's forward, and not into those of its parts."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return True


def trace(module: torch.nn.Module) -> Graph:
    """What ``module.forward`` does to its arguments.

    Raises:
        Unreadable: it asks for values, for ``self.training``, or whether an argument is given: a graph would keep the
            answer of today.
    """
    was_training = module.training
    optional = {name: None for name, p in inspect.signature(module.forward).parameters.items() if p.default is None}
    try:
        module.training = False
        evaluated, without = _OneModule().trace(module), _OneModule().trace(module, optional or None)
        module.training = True
        graph = _OneModule().trace(module)
    except Exception as error:  # whatever code does with a tensor that is none
        raise Unreadable(str(error).splitlines()[0] if str(error) else type(error).__name__) from error
    finally:
        module.training = was_training
    if str(graph) != str(evaluated):
        raise Unreadable("it asks for self.training, e.g. for a functional dropout; use a module, torch.nn.Dropout")
    if _calls(without) != _calls(graph):
        raise Unreadable(f"what it does depends on whether {' or '.join(optional)} is None")
    return graph


def skip_sums(graph: Graph) -> Iterator[SkipSum]:
    """The sums of a skip connection and its branch, in the order of the code.

    Both have to come from one tensor that is computed: a position's embedding or a mask that is added is no branch.
    """
    tensors, ways = _tensors(graph), _ways(graph)
    order = {node: place for place, node in enumerate(graph.nodes) if node.op != "get_attr"}
    for node in graph.nodes:
        if not (_is_sum(node) and all(argument in tensors for argument in node.args)):
            continue
        first, second = node.args
        common = ways[first].keys() & ways[second].keys() & tensors & order.keys()
        if first is second or not common:
            continue
        # From the last tensor that both come from, the branch takes more steps.
        fork = max(common, key=order.__getitem__)
        yield SkipSum(node, ways[first][fork] <= ways[second][fork])


def may_add(module: torch.nn.Module) -> bool:
    """Whether code that cannot be traced adds something at all, as its text tells; of torch's own modules, which do.

    Example:
        >>> may_add(torch.nn.MultiheadAttention(4, 2)), may_add(torch.nn.TransformerEncoderLayer(4, 2))
        (False, True)
    """
    if type(module).__module__.startswith("torch.nn."):
        return isinstance(module, torch.nn.TransformerEncoderLayer | torch.nn.TransformerDecoderLayer)
    try:
        text = ast.parse(textwrap.dedent(inspect.getsource(type(module).forward)))
    except (OSError, TypeError, SyntaxError):  # no text is to be had, of what was typed into a prompt say
        return True
    sums = (node for node in ast.walk(text) if isinstance(node, ast.BinOp | ast.AugAssign))
    return any(isinstance(node.op, ast.Add) for node in sums)


def _calls(graph: Graph) -> list[str]:
    """What is called, in order, but for the checks that an argument is what it was."""
    checks = (torch._assert, torch.fx._symbolic_trace._assert_is_none)
    return [str(node.target) for node in graph.nodes if node.op.startswith("call") and node.target not in checks]


def _is_sum(node: Node) -> bool:
    named = node.op == "call_function" and node.target in _SUMS
    method = node.op == "call_method" and node.target in _METHODS
    return (named or method) and len(node.args) == 2 and not node.kwargs and all(isinstance(a, Node) for a in node.args)


def _tensors(graph: Graph) -> set[Node]:
    """The nodes that are tensors, as far as code tells: all but sizes and what is computed from them."""
    tensors: set[Node] = set()
    for node in graph.nodes:
        asked = node.target is getattr and node.args[1] in _FACTS
        fact = asked or (node.op == "call_method" and node.target in _FACTS)
        from_tensors = any(argument in tensors for argument in node.all_input_nodes)
        if node.op in ("placeholder", "call_module", "get_attr") or (from_tensors and not fact):
            tensors.add(node)
    return tensors


def _ways(graph: Graph) -> dict[Node, dict[Node, int]]:
    """Of each node, the nodes that it comes from, itself among them, and the most steps from there."""
    ways: dict[Node, dict[Node, int]] = {}
    for node in graph.nodes:
        own = {node: 0}
        for argument in node.all_input_nodes:
            for source, steps in ways[argument].items():
                own[source] = max(own.get(source, 0), steps + 1)
        ways[node] = own
    return ways
