"""Residuals of a converted network: for which sums, along which axis, and with what curvature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from lresnet.convert.blocks import Block
from lresnet.convert.channels import Undecided, axis_of, layers_of, width_of
from lresnet.convert.numbering import numbered
from lresnet.convert.skip_sums import SkipSum

__all__ = ["Dim", "Place", "axes_of", "curvature_for", "places_of"]

Dim = int | Mapping[str, int] | None


class Place(NamedTuple):
    """Where a residual is wanted: for one sum, or for several of which a run meets only one."""

    block: Block
    number: int
    rounds: int | None
    """Of the loop over layers around it; each has a residual of its own."""
    sums: list[tuple[str, SkipSum]]
    layers: list[torch.nn.Module]


def places_of(block: Block) -> list[Place]:
    """The residuals that a block needs."""
    places: dict[tuple[int, int | None], Place] = {}
    start = 1
    for name, sums in block.sums.items():
        nodes = {one.sum.node: one for one in sums}
        numbers = numbered(block.methods[name].node.body, nodes.keys(), start)
        start = max(numbers.values()) + 1
        for node, number in numbers.items():
            one = nodes[node]  # type: ignore[index]
            rounds = _rounds(block.module, one.loop)
            place = places.setdefault((number, rounds), Place(block, number, rounds, [], []))
            place.sums.append((name, one))
            place.layers.extend(layers_of(block.module, one.parts))
    return [place for place in places.values() if any(one.met for _, one in place.sums)]


def _rounds(module: torch.nn.Module, loop: str | None) -> int | None:
    layers = None if loop is None else getattr(module, loop, None)
    if isinstance(layers, torch.nn.ModuleList | torch.nn.Sequential | torch.nn.ModuleDict | list | tuple):
        return len(layers)
    return None


def axes_of(places: list[Place], dim: Dim) -> list[int]:
    """The coordinate axis of each; all that cannot be seen are named in one error."""
    if isinstance(dim, Mapping):
        known = [place.block.path for place in places]
        for prefix in dim:
            if not any(_starts_with(path, prefix) for path in known):
                raise ValueError(f"dim: no block is found at {prefix!r}; they are at {', '.join(dict.fromkeys(known))}")
    elif dim is not None and type(dim) is not int:
        raise TypeError(f"dim must be a number, a dict from paths to numbers, or None; got {dim!r}")
    axes: list[int] = []
    reasons: dict[tuple[type, str], Block] = {}
    for place in places:
        try:
            axes.append(_axis(place, dim))
        except Undecided as error:
            reasons.setdefault((type(place.block.module), str(error)), place.block)
    if reasons:
        lines = "\n".join(f"  {block.title}: {reason}" for (_, reason), block in reasons.items())
        path = next(iter(reasons.values())).path
        parts = f", or both for parts of the network, e.g. dim={{{path!r}: -1}}" if path else ""
        raise ValueError(
            f"along which axis the coordinates lie is not to be seen in\n{lines}\nSay dim=1 (channels after the batch) "
            f"or dim=-1 (channels last){parts}"
        )
    return axes


def _axis(place: Place, dim: Dim) -> int:
    if isinstance(dim, int):
        return dim
    fitting = [prefix for prefix in dim or {} if _starts_with(place.block.path, prefix)]
    if dim and fitting:
        return dim[max(fitting, key=len)]
    block = place.block
    with_sums = [block.methods[name] for name in block.sums]
    others = [method for name, method in block.methods.items() if name not in block.sums]
    return axis_of(place.layers, with_sums, others)


def _starts_with(path: str, prefix: str) -> bool:
    return prefix in ("", path) or path.startswith(f"{prefix}.")


def curvature_for(asked: float | str, places: list[Place]) -> float:
    """K, as a number."""
    if asked != "auto":
        if isinstance(asked, str):
            raise ValueError(f'curvature must be a negative number, "auto" or a Lorentz manifold, got {asked!r}')
        return asked
    widths = [(place, width_of(place.layers)) for place in places]
    unknown = next((place.block for place, width in widths if width is None), None)
    if unknown is not None:
        raise ValueError(
            f"how many coordinates the sum in {unknown.title} has is not to be seen from its layers; "
            'say the curvature instead of "auto", e.g. curvature=-0.02'
        )
    return -1 / max(width for _, width in widths if width is not None)
