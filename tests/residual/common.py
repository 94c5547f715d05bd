"""Helpers of the residual tests: more pairs, rounding errors, every configuration of every module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet import Lorentz
from lresnet.geometry import distance
from lresnet.residual import RESIDUALS, make_residual
from lresnet.residual.base import Residual
from tests.families import FAMILIES, pairs

WEIGHTS = (1.0, 0.37, 3.0, 100.0, 0.01, 0.0)
MORE_FAMILIES = (*FAMILIES, "zero skip", "opposite", "unequal norms")

# Half a unit in the last place, relative: the largest error of rounding a coordinate.
HALF_ULP = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


def more_pairs(family: str, norm: float, count: int = 128, n: int = 16, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Float64 pairs: the five families of tests/families.py and three more."""
    if family == "zero skip":
        y, x = pairs("zero", norm, count, n, seed)
        return x, y
    if family == "opposite":
        x, _ = pairs("zero", norm, count, n, seed)
        return x, -x
    if family == "unequal norms":
        x, y = pairs("random", norm, count, n, seed)
        return x, y / norm
    return pairs(family, norm, count, n, seed)


def float32(value: float) -> float:
    """The float32 number nearest to ``value``, so that both precisions compute with the same one."""
    return float(torch.tensor(value, dtype=torch.float32))


def per_point(count: int, seed: int = 1) -> Tensor:
    """One weight per point, from about 0 to 3, float32."""
    return 3 * torch.rand(count, generator=torch.Generator().manual_seed(seed))


def geodesic(x: Tensor, y: Tensor, K: float) -> Tensor:
    """Geodesic distance in float64, in units of the radius of curvature."""
    return distance.dist(x.double(), y.double(), -K, -1).squeeze(-1) * (-K) ** 0.5


def normals(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# Every method with every kind of option; "per point" stands for 4 weights.
CONFIGURATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        ("lorentz", {"weight": weight, "scale": scale})
        for weight in ("learned", 0.5, "per point")
        for scale in (None, 2.0, "learned", "1+w")
    ),
    *(("tangent", {"weight": weight}) for weight in ("learned", 0.5, "per point")),
    *((kind, {}) for kind in RESIDUALS if kind not in ("lorentz", "tangent")),
)


def name_of(configuration: object) -> str:
    if not isinstance(configuration, tuple):
        return str(configuration)
    kind, options = configuration
    return "-".join([kind, *(f"{key}={value}" for key, value in options.items())])


def build(configuration: tuple[str, dict[str, Any]], manifold: Lorentz, **more: Any) -> Residual:
    kind, options = configuration
    if options.get("weight") == "per point":
        options = {**options, "weight": torch.tensor([0.2, 1.0, 1.7, 0.0])}
    return make_residual(kind, manifold, **options, **more)
