"""Example inputs of a network whose user gives none, guessed from its first layer and the signature of ``forward``."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

__all__ = ["guesses"]

_LENGTH = 6  # of sequences and graphs
_SIZES = (32, 64, 224, 8)  # of images
_CONVOLUTIONS = {torch.nn.Conv1d: 1, torch.nn.Conv2d: 2, torch.nn.Conv3d: 3}
_NORMS = {torch.nn.BatchNorm2d: 2, torch.nn.BatchNorm3d: 3, torch.nn.GroupNorm: 2, torch.nn.InstanceNorm2d: 2}


def guesses(net: torch.nn.Module) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield positional and named arguments that may fit ``forward``, the likeliest first.

    Example:
        >>> (x,), _ = next(guesses(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3))))
        >>> x.shape
        torch.Size([2, 3, 32, 32])
    """
    named = getattr(net, "dummy_inputs", None)  # of transformers' models
    if isinstance(named, dict) and named:
        yield (), named
    names = _required_arguments(net)
    for x in _tensors(net):
        if names == [] or names is None:
            yield (x,), {}
            continue
        yield tuple(_argument(name, x) for name in names), {}


def _required_arguments(net: torch.nn.Module) -> list[str] | None:
    """Return the names of the arguments without a default; None: they are not known."""
    method = type(net).forward if type(net).__call__ is torch.nn.Module.__call__ else type(net).__call__
    try:
        parameters = list(inspect.signature(method).parameters.values())[1:]
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in parameters if one.kind in kinds and one.default is inspect.Parameter.empty]


def _argument(name: str, x: Tensor) -> Any:
    if name == "edge_index":
        count = x.shape[-2] if x.dim() > 1 else x.shape[0]
        ring = torch.arange(count)
        return torch.stack([ring, ring.roll(-1)])
    return x.clone()


def _tensors(net: torch.nn.Module) -> Iterator[Tensor]:
    """Yield tensors that may be the input of the first layer."""
    size = next((one.get("input_size") for one in _configurations(net) if one.get("input_size")), None)
    generator = torch.Generator().manual_seed(0)
    parameter = next((one for one in net.parameters() if one.is_floating_point()), None)
    kind: dict[str, Any] = {} if parameter is None else {"dtype": parameter.dtype, "device": parameter.device}

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(**kind)

    if size is not None:  # of timm's models
        yield normal(2, *size)
    needs_graph = "edge_index" in (_required_arguments(net) or ())
    for layer in itertools.islice((one for one in net.modules() if not list(one.children())), 3):
        if isinstance(layer, torch.nn.Embedding):
            tables = [one.num_embeddings for one in net.modules() if isinstance(one, torch.nn.Embedding)]
            for length in dict.fromkeys([_LENGTH, *tables[1:]]):  # a table of positions may fix the length
                ids = torch.randint(layer.num_embeddings, (2, length), generator=generator)
                yield ids.to(kind.get("device"))
            continue
        axes = next((count for cls, count in (_CONVOLUTIONS | _NORMS).items() if isinstance(layer, cls)), None)
        width = _width(layer)
        if width is None:
            continue
        if axes is not None:
            for side in _SIZES if axes == 2 else (16,):
                yield normal(2, width, *[side] * axes)
            continue
        if needs_graph:
            yield normal(_LENGTH, width)
            continue
        lengths = dict.fromkeys([_LENGTH, *(one.in_features for one in net.modules() if type(one) is torch.nn.Linear)])
        for length in lengths:
            yield normal(2, length, width)
        yield normal(2, width)
    yield normal(2, _LENGTH, 8)


def _configurations(net: torch.nn.Module) -> Iterator[dict[str, Any]]:
    for name in ("pretrained_cfg", "default_cfg"):
        found = getattr(net, name, None)
        if isinstance(found, dict):
            yield found


def _width(layer: torch.nn.Module) -> int | None:
    """Return the number of channels that a layer takes."""
    for name in ("in_channels", "in_features", "num_features", "num_channels", "embed_dim", "input_size"):
        found = getattr(layer, name, None)
        if isinstance(found, int):
            return found
    shape = getattr(layer, "normalized_shape", None)
    return int(shape[-1]) if isinstance(shape, tuple) and shape else None
