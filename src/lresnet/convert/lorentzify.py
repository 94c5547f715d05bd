r"""Conversion of a network: every sum of a skip connection and its branch becomes a residual connection.

A convolution, norm, ReLU or linear map of space coordinates *is* a hyperbolic layer, so the rest of the network does
not change.

Choice of the curvature: in flat space the Lorentz residual with weight 1 and scale 2 is x + y. Far from the origin its
norm is about :math:`2/\sqrt\kappa`, independent of x and y. Activations after a norm have coordinates of about unit
variance, and so a norm of :math:`\sqrt n`. ``"auto"`` is :math:`\kappa = 1/n` with n the width of the widest sum. Such
points are one radius of curvature from the origin, where the space is curved and the sum still depends on x and y.
"""

from __future__ import annotations

import ast
import copy
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from lresnet.convert.blocks import Block, Survey, survey
from lresnet.convert.method_source import enclosed
from lresnet.convert.places import Dim, Place, axes_of, curvature_for, places_of
from lresnet.convert.rewritten_class import Replacement, rewritten_class
from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.residual import RESIDUALS, make_residual

__all__ = ["lorentzify"]

_LORENTZ_OPTIONS = {"weight": "learned", "scale": "learned", "initial_scale": 2.0}
_WRITE_IT = "a skip connection is written x + f(x), f being layers of the module (self.f), in its forward"


def lorentzify(
    module: torch.nn.Module,
    curvature: float | Literal["auto"] | Lorentz = "auto",
    residual: str = "lorentz",
    dim: Dim = None,
    **options: Any,
) -> torch.nn.Module:
    """A copy of ``module`` in which every sum of a skip connection and its branch is a residual connection.

    The source of each ``forward`` is read, and its class replaced by one derived from it in which those sums are calls
    of residuals. Parameters keep their names and values; each residual adds its own (``residual``, ``residual_2``, ...
    of its block). They all refer to one ``manifold``, a part of the first block. ``module`` itself stays as it is.

    Args:
        curvature: K < 0; ``"auto"``: -1/n, n being the number of coordinates of the widest sum; or a manifold, e.g. one
            with a learned curvature.
        residual: a name of :data:`lresnet.residual.RESIDUALS`.
        dim: the coordinate axis of the sums: a number, or numbers for parts of the network, ``{"stem": 1, "blocks":
            -1}``. None: 1 after convolutions and batch norms, -1 after linear layers and layer norms.
        options: those of the residual. Where they do not say, the Lorentz residual has a learned weight (from 1) and a
            learned scale (from 2): with a small curvature, and before training, the network then computes what it did.

    docs/howto/convert.md says which sums are converted. Sums whose meaning is unclear stay, and one warning names them.
    A layer norm directly after the sum cancels the Lorentz residual's factor.

    Raises:
        ValueError: no such sum is found, a block's width or axis is not to be seen, or a sum in place changes a tensor
            that is used under another name; the message says where and why.

    Example:
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2)
        >>> lorentzify(layer).residual
        LorentzResidual(curvature=-0.125, dim=-1, weight=learned, scale=learned)
    """
    _require_module(module)
    if residual not in RESIDUALS:
        make_residual(residual, Lorentz())  # says what there is
    network = copy.deepcopy(module)
    found = survey(network)
    if not found.blocks:
        raise ValueError(_nothing_found(module, found))
    places = [place for block in found.blocks for place in places_of(block)]
    axes = axes_of(places, dim)
    manifold = curvature if isinstance(curvature, Lorentz) else Lorentz(curvature_for(curvature, places))
    if left := found.left():
        warnings.warn(f"left as they are in {type(module).__name__}:\n{left}\n({_WRITE_IT})", stacklevel=2)
    if changed := "\n".join(f"  {place}: {text}" for place, text in found.overwritten.items()):
        warnings.warn(
            f"in {type(module).__name__} these sums changed an argument in place, and no longer do; if the caller "
            f"counts on it, write x = x + f(x) and use what is returned:\n{changed}",
            stacklevel=2,
        )
    options = (_LORENTZ_OPTIONS if residual == "lorentz" else {}) | options
    _register(found.blocks[0], manifold)
    for block in found.blocks:
        own = [(place, axis) for place, axis in zip(places, axes, strict=True) if place.block is block]
        _convert(block, own, lambda axis: make_residual(residual, manifold, dim=axis, **options))
    _switch_fast_paths_off(network, found.blocks)
    return network


def _require_module(module: object) -> None:
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    name = type(module).__name__
    for part in module.modules():
        if isinstance(part, ManifoldModule | Lorentz):
            raise ValueError(f"{name} computes on a manifold already; convert the Euclidean network")
        # By name: torch._dynamo, which has the class, takes seconds to import.
        if type(part).__name__ == "OptimizedModule" or part._compiled_call_impl is not None:
            raise ValueError(f"{name} is compiled, from the sums that it has now; first lorentzify, then compile")
        if isinstance(part, torch.fx.GraphModule):
            raise ValueError(f"{name} is a traced graph; lorentzify the module that it was traced from")
        if isinstance(part, torch.nn.parallel.DistributedDataParallel | torch.nn.DataParallel):
            raise ValueError(f"{name} is wrapped in {type(part).__name__}; first lorentzify, then wrap")
        _require_copyable(part, name)
    if isinstance(module, torch.jit.ScriptModule):
        raise ValueError(f"{name} is TorchScript, which has no source; lorentzify the module that it was made of")


def _require_copyable(part: torch.nn.Module, name: str) -> None:
    """A copy of a function still speaks of the objects that the old one does."""
    for attribute, value in vars(part).items():
        held = enclosed(value).values() if isinstance(value, types.FunctionType) else ()
        if any(isinstance(one, torch.nn.Module) for one in held):
            raise ValueError(
                f"{name}: {attribute} of {type(part).__name__} is a function that holds a module; in a copy it would "
                "still call the old one: make it a method"
            )


def _nothing_found(module: torch.nn.Module, found: Survey) -> str:
    message = f"no sum of a skip connection and its branch was found in {type(module).__name__}"
    looked = f"the code of {found.read} module{'' if found.read == 1 else 's'} was looked at, torch's own layers apart"
    left = f"\n{found.left()}" if found.left() else ""
    return f"{message}: {looked}; {_WRITE_IT}{left}"


def _register(first: Block, manifold: Lorentz) -> None:
    """In the first block, not in the network: a Sequential would call it, and layers only refer (ManifoldModule).

    It keeps its dtype, as a learned curvature of the user's own would be another one after rounding.
    """
    names = ["manifold", "lorentz_manifold", *(f"lorentz_manifold_{number}" for number in range(2, 100))]
    name = next(name for name in names if not _taken(first, name))
    device = _like(first.module).get("device")
    first.module.add_module(name, manifold.to(device).train(first.module.training))


def _convert(block: Block, places: Sequence[tuple[Place, int]], make: Callable[[int], torch.nn.Module]) -> None:
    """Give the block its residuals, and the class that calls them."""
    stems = ["residual", "lorentz_residual", *(f"lorentz_residual_of_{number}" for number in range(2, 100))]
    suffixes = ["" if number == 0 else f"_{number + 1}" for number in range(len(places))]
    stem = next(stem for stem in stems if not any(_taken(block, stem + suffix) for suffix in suffixes))
    replacements = []
    for (place, axis), suffix in zip(places, suffixes, strict=True):
        each_round = place.rounds is not None
        part = torch.nn.ModuleList(make(axis) for _ in range(place.rounds or 0)) if each_round else make(axis)
        like = _like(torch.nn.ModuleList(place.layers)) or _like(block.module)
        block.module.add_module(stem + suffix, part.to(**like).train(block.module.training))
        for method, one in place.sums:
            name = stem + suffix
            replacements.append(Replacement(method, one.ordinal, one.sum.text, one.skip_first, name, each_round))
    block.module.__class__ = rewritten_class(type(block.module), tuple(replacements))


def _taken(block: Block, name: str) -> bool:
    """Whether the block has such a part, or its code speaks of one."""
    spoken = (
        node.attr
        for method in block.methods.values()
        for node in ast.walk(method.node)
        if isinstance(node, ast.Attribute)
    )
    return hasattr(block.module, name) or name in spoken


def _like(module: torch.nn.Module) -> dict[str, Any]:
    """Device and dtype of a module's parameters."""
    floating = (one for one in module.parameters() if one.is_floating_point())
    return next(({"device": one.device, "dtype": one.dtype} for one in floating), {})


def _switch_fast_paths_off(network: torch.nn.Module, blocks: Sequence[Block]) -> None:
    """In evaluation torch's encoder layers would call one kernel for all they do, with the old sums within."""
    converted = {id(block.module) for block in blocks}
    for module in network.modules():
        if isinstance(module, torch.nn.TransformerEncoderLayer) and id(module) in converted:
            module.activation_relu_or_gelu = 0  # what that kernel is chosen by
        if isinstance(module, torch.nn.TransformerEncoder) and converted & set(map(id, module.layers)):
            module.use_nested_tensor = False
