"""Residual connections by name: the one list that models, recipes and the command line choose from."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from lresnet.geometry import Lorentz
from lresnet.residual import modules

__all__ = ["RESIDUALS", "make_residual", "residual_options"]

RESIDUALS: Mapping[str, type[modules.Residual]] = MappingProxyType(
    {
        "lorentz": modules.LorentzResidual,
        "parallel_transport": modules.ParallelTransportResidual,
        "parallel_transport_reversed": modules.ReversedParallelTransportResidual,
        "tangent": modules.TangentResidual,
        "space": modules.SpaceResidual,
        "none": modules.NoResidual,
        "euclidean": modules.EuclideanResidual,
        "parallel_transport_textbook": modules.TextbookParallelTransportResidual,
        "tangent_textbook": modules.TextbookTangentResidual,
    }
)


def make_residual(kind: str, manifold: Lorentz, dim: int = -1, **options: Any) -> modules.Residual:
    """Build the residual ``kind`` of :data:`RESIDUALS`; ``options`` are those of its class.

    Example:
        >>> make_residual("lorentz", Lorentz(-1.0), scale="learned")
        LorentzResidual(curvature=-1, dim=-1, weight=learned, scale=learned)
    """
    if kind not in RESIDUALS:
        near = difflib.get_close_matches(str(kind), RESIDUALS, n=1, cutoff=0.0)
        raise ValueError(f"unknown residual {kind!r}; did you mean {near[0]!r}? Known: {', '.join(RESIDUALS)}")
    cls = RESIDUALS[kind]
    accepted = residual_options(kind)
    unknown = sorted(set(options) - accepted)
    if unknown:
        names = ", ".join(sorted(accepted)) or "no options"
        raise TypeError(f"residual {kind!r} has no option {', '.join(map(repr, unknown))}; it takes {names}")
    return cls(manifold, dim=dim, **options)


def residual_options(kind: str) -> set[str]:
    """Names of the options that ``kind`` takes in :func:`make_residual`.

    Example:
        >>> sorted(residual_options("space"))
        []
    """
    constructors = [
        vars(base)["__init__"]
        for base in RESIDUALS[kind].__mro__
        if issubclass(base, modules.Residual) and "__init__" in vars(base)
    ]
    names = {name for constructor in constructors for name in inspect.signature(constructor).parameters}
    factory = {"device", "dtype"} if "factory" in names else set()
    return (names | factory) - {"self", "manifold", "dim", "options", "factory"}
