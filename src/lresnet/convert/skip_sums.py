"""Decision whether a sum of two values joins a skip connection and its branch.

One side, the skip connection, is a value v, or a shortcut of it: v scaled, subsampled, padded or mapped by a linear
layer to another shape. The other side, the branch, is computed from v by layers, and depends on v through the layers
only. All other sums are not residual connections: they add a bias, a mask, a position, or two branches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from lresnet.convert.provenance import Edge, Kind, Value, ancestors, direct_ancestors

__all__ = ["Relation", "SkipSums"]

_NORMS = ("instance_norm", "group_norm", "layer_norm", "rms_norm")
_NOISE = ("randn", "randn_like", "normal", "normal_", "rand", "rand_like")
_SHORTCUTS = ("downsample", "shortcut", "skip", "identity")

NO_DATA = "one side does not depend on the input: a bias, a position or a mask"
TWO_BRANCHES = "both sides are computed from one value by layers, and neither is a shortcut of it"
UNRELATED = "neither side is computed from the other"
DIRECT = "one side reaches the other without a layer in between"
PIECES = "both sides are computed from pieces of one value"
BOTH_LINEAR = "both sides are linear maps of one value, without an activation"
SAME_SHAPE = "the layer on the shortcut keeps the shape, so both sides may be branches"
NOISE = "one side is noise times a value"
RUNNING_TOTAL = "its branch is computed from what was added before: a running total"
BOTH_SHORTCUTS = "each side is a shortcut of what the other is computed from"


class Relation(NamedTuple):
    """What the two sides of a sum are to each other."""

    skip_first: bool | None
    """Whether the first side is the skip connection; None: the sum is not of a skip connection and its branch."""
    reason: str = ""
    """Why it is not."""


class SkipSums:
    """The sums of skip connections and branches that were found so far in a forward pass."""

    def __init__(self) -> None:
        self._found: dict[Value, tuple[Value, Value]] = {}
        """For the result of each such sum, its skip connection and its branch."""

    def relate(self, first: Value, second: Value, result: Value) -> Relation | None:
        """Return the relation of the two sides; None: they are not activations of one shape."""
        if not (first.is_float and second.is_float) or first.shape != second.shape or not first.shape:
            return None
        if not (first.is_data or second.is_data):
            return Relation(None, NO_DATA)
        found = [self._is_shortcut(first, second, result), self._is_shortcut(second, first, result)]
        sides = [reason for reason, _ in found]
        fits = [not reason for reason in sides]
        if all(fits):
            layers = [count for _, count in found]
            if layers[0] == layers[1]:
                return Relation(None, BOTH_SHORTCUTS)
            fits = [layers[0] < layers[1], layers[1] < layers[0]]  # the shorter shortcut is the skip connection
        if not any(fits):
            if not (first.is_data and second.is_data):
                return Relation(None, NO_DATA)
            telling = [reason for reason in sides if reason not in (UNRELATED, TWO_BRANCHES)]
            return Relation(None, telling[0] if telling else _general(first, second))
        skip, branch = (first, second) if fits[0] else (second, first)
        self._found[result] = skip, branch
        return Relation(fits[0])

    def _is_shortcut(self, skip: Value, branch: Value, result: Value) -> tuple[str, int]:
        """Return why ``skip`` is not a shortcut of what ``branch`` is computed from ("": it is), and its layers."""
        if not branch.is_data:
            return UNRELATED, 0
        before, depth = ancestors(branch), len(result.modules)
        # A residual block inside the branch is a layer of it, although it passes its input on.
        inner = {one for one in self._found if len(one.modules) > depth and one.modules[:depth] == result.modules}
        layers, cut, named = 0, False, False
        for value, edge in _linear_chain(skip):
            if edge is not None:
                layers += edge.kind.is_layer
                cut = cut or edge.kind is Kind.PART
                named = named or _is_named_shortcut(edge, result, value)
                value = edge.source.root
            if not value.is_float:
                break
            for alias, added in self._aliases(value):  # the nearest value that both sides come from decides
                if alias not in before:
                    continue
                if alias in direct_ancestors(branch, inner):
                    return DIRECT if not layers else UNRELATED, layers
                if cut and not layers and not _reads_whole(alias, before):
                    return PIECES, layers
                if any(one in before for one in added):
                    return UNRELATED if layers else RUNNING_TOTAL, layers
                return _projected(alias, skip, branch, before) if layers and not named else "", layers
        return UNRELATED, layers

    def _aliases(self, value: Value) -> Iterator[tuple[Value, list[Value]]]:
        """Yield the value, and the skip connections that it continues with the branches that were added to them."""
        added: list[Value] = []
        yield value, added
        while value in self._found:
            value, branch = self._found[value]
            added = [*added, branch]
            value = value.root
            yield value, added


def _linear_chain(value: Value) -> Iterator[tuple[Value, Edge | None]]:
    """Yield the value itself and each linear step back, as long as there is one input that depends on the data."""
    value = value.root
    yield value, None
    while True:
        inputs = [edge for edge in value.edges if edge.source.is_data]
        if len(inputs) != 1 or not (inputs[0].kind.is_linear or value.operation in _NORMS):
            return
        yield value, inputs[0]
        value = inputs[0].source.root


def _reads_whole(source: Value, before: set[Value]) -> bool:
    """Whether one of the values in ``before`` is computed from ``source`` as a whole, and not from pieces of it."""
    return any(
        edge.source.root is source and edge.kind is not Kind.PART
        for value in before
        for edge in value.edges
        if value.root is not source
    )


def _is_named_shortcut(edge: Edge, result: Value, value: Value) -> bool:
    """Whether a layer belongs to a part of the block that is called a shortcut."""
    around = set(result.modules)
    names = (path.rsplit(".", 1)[-1].lower() for path in value.modules if path not in around)
    return edge.kind.is_layer and any(word in name for name in names for word in _SHORTCUTS)


def _projected(source: Value, skip: Value, branch: Value, before: set[Value]) -> str:
    """Return why a shortcut with a linear layer is not one, although no name says that it is."""
    if math.prod(source.shape) == math.prod(skip.shape):
        return SAME_SHAPE
    layers, nonlinear = {source: 0}, {source: False}
    for value in sorted(before, key=lambda one: one.index):
        for edge in value.edges:
            if edge.source in layers and value is not source:
                layers[value] = max(layers.get(value, 0), layers[edge.source] + edge.kind.is_layer)
                bent = nonlinear[edge.source] or not edge.kind.is_linear
                nonlinear[value] = nonlinear.get(value, False) or bent
    if not nonlinear.get(branch, False):
        return BOTH_LINEAR
    if any(one.operation in _NOISE and one.shape == branch.shape for one in direct_ancestors(branch)):
        return NOISE
    return "" if layers[branch] >= 2 else TWO_BRANCHES


def _general(first: Value, second: Value) -> str:
    common = {one for one in ancestors(first) & ancestors(second) if one.is_data and one.is_float}
    return TWO_BRANCHES if common else UNRELATED
