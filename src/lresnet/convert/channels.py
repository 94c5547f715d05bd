"""Axis and number of the channels of a branch, inferred from its layers."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Iterator

import torch

from lresnet.convert.method_source import Method, Unreadable, read_method
from lresnet.convert.vocabulary import LAYOUT, TURNS

__all__ = ["Undecided", "axis_of", "layers_of", "width_of"]

_FIRST = (
    torch.nn.modules.conv._ConvNd,
    torch.nn.modules.batchnorm._BatchNorm,
    torch.nn.modules.instancenorm._InstanceNorm,
    torch.nn.GroupNorm,
)
_LAST = (torch.nn.Linear, torch.nn.Bilinear, torch.nn.LayerNorm, torch.nn.RMSNorm)
_GRAPH_LAYERS = "torch_geometric.nn.conv"  # rows are nodes
_TURNING_LAYERS = ("rearrange", "permute", "transpose", "swapaxes", "flatten", "unflatten", "view", "reshape")
# How layers call the size of what they put out.
_WIDTHS = ("out_channels", "out_features", "num_features", "num_channels", "normalized_shape", "embed_dim")


class Undecided(ValueError):
    """The layers do not say which axis holds the channels; the message is a reason."""


def layers_of(block: torch.nn.Module, parts: tuple[str, ...]) -> Iterator[torch.nn.Module]:
    """All modules of these parts, in their order."""
    for part in parts:
        found = getattr(block, part, None)
        held = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else [found]
        for one in held:
            if isinstance(one, torch.nn.Module):
                yield from one.modules()


def axis_of(layers: list[torch.nn.Module], methods: Iterable[Method], called: Iterable[Method] = ()) -> int:
    """1 or -1; ``methods`` are those of the block that have sums, ``called`` others that they call.

    Example:
        >>> axis_of([torch.nn.Conv2d(3, 8, 3)], []), axis_of([torch.nn.Linear(3, 8)], [])
        (1, -1)
    """
    for method in methods:
        if word := next((word for word in _words(method) if word in LAYOUT), None):
            raise Undecided(f"its {method.node.name} calls {word}, which may change the order of axes")
    if turn := next((layer for layer in layers if type(layer).__name__.lower() in _TURNING_LAYERS), None):
        raise Undecided(f"its branch has a {type(turn).__name__}, which may change the order of axes")
    first = next((layer for layer in layers if isinstance(layer, _FIRST)), None)
    last = next((layer for layer in layers if isinstance(layer, _LAST) or _is_graph_layer(layer)), None)
    if last is not None and isinstance(first, torch.nn.BatchNorm1d):
        rest = (layer for layer in layers if isinstance(layer, _FIRST) and not isinstance(layer, torch.nn.BatchNorm1d))
        first = next(rest, None)  # after a linear layer, it is of rows: axis 1 is the last one
    if first is not None and last is not None:
        raise Undecided(f"{type(first).__name__} has channels along axis 1, {type(last).__name__} along the last one")
    if first is None and last is None:
        kinds = ", ".join(dict.fromkeys(type(layer).__name__ for layer in layers)) or "none"
        raise Undecided(f"its branch has no convolution, linear layer or norm of torch.nn (layers: {kinds})")
    if first is not None:  # of channels last, for the convolution's sake?
        for method in [*called, *_forwards(layers)]:
            if word := next((word for word in _words(method) if word in TURNS), None):
                name = f"{method.owner.__name__}.{method.node.name}"
                raise Undecided(f"{word} in {name} may change the order of axes for {type(first).__name__}")
    for method in [*called, *_forwards([layer for layer in layers if _has_linear(layer)])]:
        if word := _turned_input(method):
            name = f"{method.owner.__name__}.{method.node.name}"
            raise Undecided(f"{word} in {name} turns what is given to the layers of the branch")
    return 1 if last is None else -1


def width_of(layers: list[torch.nn.Module]) -> int | None:
    """The size of what the last layer that has one puts out.

    Example:
        >>> width_of([torch.nn.Linear(3, 8), torch.nn.ReLU()])
        8
    """
    for layer in reversed(layers):
        for name in _WIDTHS:
            size = getattr(layer, name, None)
            if isinstance(size, tuple) and size:
                size = size[-1]
            if isinstance(size, int) and not isinstance(size, bool):
                return size
    return None


def _is_graph_layer(layer: torch.nn.Module) -> bool:
    return any(base.__module__.startswith(_GRAPH_LAYERS) for base in type(layer).__mro__)


def _words(method: Method) -> Iterator[str]:
    """Names of what a method calls, and attributes that it reads."""
    for node in ast.walk(method.node):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _has_linear(layer: torch.nn.Module) -> bool:
    return any(isinstance(part, _LAST) for part in layer.modules())


def _turned_input(method: Method) -> str | None:
    """The call that exchanges the last axis of an argument, before anything is made of it."""
    arguments = {one.arg for one in method.node.args.args}
    written: set[str] = set()
    calls = (node for node in ast.walk(method.node) if isinstance(node, ast.Call | ast.Name))
    for node in sorted(calls, key=lambda node: (node.lineno, isinstance(node, ast.Name))):
        if isinstance(node, ast.Name):
            written |= {node.id} if isinstance(node.ctx, ast.Store) else set()
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        turned = [getattr(node.func, "value", None), *node.args]
        given = any(isinstance(one, ast.Name) and one.id in arguments - written for one in turned)
        axes = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, int)]
        if name in TURNS - {"einsum"} and given and sorted(axes) != [0, 1] and axes[-1:] != [len(axes) - 1]:
            return name
    return None


def _forwards(layers: list[torch.nn.Module]) -> Iterator[Method]:
    """The code of the branch's own modules, torch's apart."""
    for layer in layers:
        if not type(layer).__module__.startswith("torch.nn."):
            with contextlib.suppress(Unreadable):
                yield read_method(type(layer), "forward")
