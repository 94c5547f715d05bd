r"""A network of one's own with another residual connection: every sum of a skip connection and its branch replaced.

A convolution, a norm, a ReLU or a linear map of space coordinates *is* a hyperbolic layer, so the rest of the network
stays what it is; what is new are the points' sums.

Which curvature. In flat space the Lorentz residual of weight 1 and scale 2 is x + y; far from the origin its norm is
about :math:`2/\sqrt\kappa`, whatever those of x and y. Activations after a norm have coordinates of about unit
variance, and so a norm of :math:`\sqrt n`. ``"auto"`` is :math:`\kappa = 1/n` with n the width of the widest sum: such
points lie one radius of curvature from the origin, where the space is curved and the sum still follows its arguments.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch.fx import GraphModule, Node

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.models.skip_sums import SkipSum, Unreadable, may_add, skip_sums, trace
from lresnet.residual import make_residual

__all__ = ["lorentzify"]

_LORENTZ_OPTIONS = {"weight": "learned", "scale": "learned", "initial_scale": 2.0}
_CHANNELS_FIRST = (
    torch.nn.modules.conv._ConvNd,
    torch.nn.modules.batchnorm._BatchNorm,
    torch.nn.GroupNorm,
    torch.nn.modules.instancenorm._InstanceNorm,
)
_CHANNELS_LAST = (torch.nn.Linear, torch.nn.LayerNorm, torch.nn.RMSNorm)
_NO_CODE = (torch.nn.Sequential.forward, torch.nn.Module.forward)
# How layers call the size of what they put out.
_WIDTHS = ("out_channels", "out_features", "num_features", "num_channels", "normalized_shape", "embed_dim")


class _Block(NamedTuple):
    """A module whose own code adds skip connections."""

    path: str
    module: torch.nn.Module
    graph: torch.fx.Graph
    sums: list[SkipSum]


def lorentzify(
    module: torch.nn.Module,
    curvature: float | Literal["auto"] | Lorentz = "auto",
    residual: str = "lorentz",
    dim: int | None = None,
    **options: Any,
) -> torch.nn.Module:
    """A copy of ``module`` in which every sum of a skip connection and its branch is a residual connection.

    Parameters keep their names and values; each residual adds its own (``residual``, ``residual_2``, ... of its block).
    They all refer to one ``manifold``, a part of the first block. ``module`` itself stays as it is.

    Args:
        curvature: K < 0; ``"auto"``: -1/n, n being the number of coordinates of the widest sum; or a manifold, e.g. one
            with a learned curvature.
        residual: a name of :data:`lresnet.residual.RESIDUALS`.
        dim: the coordinate axis of the sums. None: 1 after convolutions and batch norms, -1 after linear layers and
            layer norms; needed where a block has both.
        options: those of the residual. Where they do not say, the Lorentz residual has a learned weight (from 1) and a
            learned scale (from 2): with a small curvature, and before training, the network then computes what it did.

    Raises:
        ValueError: no such sum is found, or a block's width or axis is not to be seen; the message says where and why.

    Example:
        >>> class Block(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.layer = torch.nn.Linear(8, 8)
        ...     def forward(self, x):
        ...         return x + self.layer(x).relu()
        >>> lorentzify(torch.nn.Sequential(Block(), Block()))[0].residual
        LorentzResidual(curvature=-0.125, dim=-1, weight=learned, scale=learned)
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    if any(isinstance(part, ManifoldModule) for part in module.modules()):
        raise ValueError(f"{type(module).__name__} computes on a manifold already")
    network = copy.deepcopy(module)
    blocks, unreadable = _find(network)
    if not blocks:
        raise ValueError(_nothing_found(module, unreadable))
    if missed := [path for path in unreadable if path and may_add(network.get_submodule(path))]:
        warnings.warn(f"sums that stay as they are, if any: {_named(missed)} could not be read", stacklevel=2)
    manifold = curvature if isinstance(curvature, Lorentz) else Lorentz(_curvature(curvature, blocks))
    device = next((parameter.device for parameter in network.parameters()), None)
    options = (_LORENTZ_OPTIONS if residual == "lorentz" else {}) | options
    # Not the network itself: a Sequential would call it. Layers refer, and one of them registers (ManifoldModule).
    blocks[0].module.add_module("manifold", manifold.to(device).train(blocks[0].module.training))
    for block in blocks:
        for number, found in enumerate(block.sums, 1):
            axis = _axis(block, found) if dim is None else dim
            _replace(block, found, number, make_residual(residual, manifold, dim=axis, **options).to(device))
        network = _put(network, block)
    return network


def _find(network: torch.nn.Module) -> tuple[list[_Block], dict[str, str]]:
    """The blocks, and what could not be read: the path and the reason."""
    blocks, unreadable = [], {}
    for path, module in network.named_modules():
        if not any(True for _ in module.children()) or type(module).forward in _NO_CODE:
            continue  # a layer by itself, or a list of them: nothing is added there
        try:
            graph = trace(module)
        except Unreadable as error:
            unreadable[path] = str(error)
            continue
        if sums := list(skip_sums(graph)):
            blocks.append(_Block(path, module, graph, sums))
    return blocks, unreadable


def _nothing_found(module: torch.nn.Module, unreadable: dict[str, str]) -> str:
    message = f"no sum of a skip connection and its branch was found in {type(module).__name__}"
    if not unreadable:
        return f"{message}; write it as x + layer(x) in a forward"
    reason = next(iter(unreadable.values()))
    names = [path or type(module).__name__ for path in unreadable]
    return f"{message}; the code of {_named(names)} could not be read: {reason}"


def _named(paths: list[str]) -> str:
    """The first few of them."""
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _curvature(asked: float | str, blocks: list[_Block]) -> float:
    if asked != "auto":
        if isinstance(asked, str):
            raise ValueError(f'curvature must be a negative number, "auto" or a Lorentz manifold, got {asked!r}')
        return asked
    widths = [(block, _width(block, found)) for block in blocks for found in block.sums]
    unknown = next((block.path for block, width in widths if width is None), None)
    if unknown is not None:
        raise ValueError(
            f"how many coordinates the sum in {unknown or 'the network'} has is not to be seen from its layers; "
            'say the curvature instead of "auto", e.g. curvature=-0.02'
        )
    return -1 / max(width for _, width in widths if width is not None)


def _layers_before(block: _Block, found: SkipSum) -> Iterator[torch.nn.Module]:
    """The layers of the branch, the last first, then those of the skip connection."""
    seen: set[Node] = set()
    for operand in reversed(found.operands):
        waiting = [operand]
        while waiting:
            node = waiting.pop(0)
            if node in seen:
                continue
            seen.add(node)
            if node.op == "call_module":
                parts = list(block.module.get_submodule(str(node.target)).modules())
                yield from reversed(parts)
            waiting += node.all_input_nodes


def _width(block: _Block, found: SkipSum) -> int | None:
    for layer in _layers_before(block, found):
        for name in _WIDTHS:
            size = getattr(layer, name, None)
            if isinstance(size, tuple) and size:
                size = size[-1]
            if isinstance(size, int):
                return size
    return None


def _axis(block: _Block, found: SkipSum) -> int:
    """1 or -1, as the layers before the sum have it; they do not say which where there are both kinds."""
    layers = list(_layers_before(block, found))
    first, last = (any(isinstance(layer, kinds) for layer in layers) for kinds in (_CHANNELS_FIRST, _CHANNELS_LAST))
    if first and last:
        raise ValueError(
            f"before the sum in {block.path or type(block.module).__name__} there are layers whose channels lie along "
            "axis 1 and along the last one; say which it is there: dim=1 or dim=-1"
        )
    return 1 if first else -1


def _replace(block: _Block, found: SkipSum, number: int, residual: torch.nn.Module) -> None:
    name = "residual" if number == 1 else f"residual_{number}"
    if hasattr(block.module, name):
        raise ValueError(f"{block.path or type(block.module).__name__} has a part called {name} already; rename it")
    block.module.add_module(name, residual.train(block.module.training))
    with block.graph.inserting_after(found.node):
        node = block.graph.call_module(name, found.operands)
    found.node.replace_all_uses_with(node)
    block.graph.erase_node(found.node)


def _put(network: torch.nn.Module, block: _Block) -> torch.nn.Module:
    """The network with the block's new code wherever the block stands; all else that the block has stays with it."""
    new = GraphModule(block.module, block.graph, class_name=type(block.module).__name__)
    new.__dict__.update(block.module.__dict__)  # parts that the code does not call, attributes, hooks, its mode
    places = [path for path, module in network.named_modules(remove_duplicate=False) if module is block.module]
    for path in filter(None, places):
        parent, _, name = path.rpartition(".")
        network.get_submodule(parent)._modules[name] = new
    return new if "" in places else network
