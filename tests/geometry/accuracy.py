"""Accuracy of the maps: the error against the exact result, and the floor that the error is compared with.

The floor of a map at given arguments is the larger of two unavoidable errors: that of the exact result rounded to the
dtype, and that of the exact map when its arguments move by half a unit in the last place (each argument as a whole,
and each coordinate by itself). A map whose error is a small multiple of the floor has no cancellation of its own.

Errors are in radii of curvature: the geodesic distance of points, the Riemannian norm of the difference of vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import mpmath
import torch
from mpmath import mpf
from torch import Tensor

from lresnet import Lorentz
from tests.families import NORMS, pairs
from tests.geometry import oracle

HALF_UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


@dataclass(frozen=True)
class Map:
    """A method of Lorentz; ``oracle`` has its definition under the same name."""

    name: str
    result: str  # "scalar", "point", or "vector at k": a tangent vector at argument k
    arguments: str
    bar: float  # how many floors the error may be; the worst ratio measured is noted beside each

    def __call__(self, M: Lorentz, *args: Tensor) -> Tensor:
        out: Tensor = getattr(M, self.name)(*args)
        return out.unsqueeze(-1) if self.result == "scalar" else out

    def error(self, M: Lorentz, args: list[Tensor], a: Tensor, b: Tensor) -> Tensor:
        root = float(M.kappa) ** 0.5
        if self.result == "point":
            return root * M.dist(a, b)
        if self.result == "scalar":
            return root * (a - b).abs().squeeze(-1)
        return root * M.inner(args[int(self.result[-1])], a - b).clamp(min=0).sqrt()

    def exact(self, kappa: mpf, *rows: oracle.Row) -> oracle.Row:
        return getattr(oracle, self.name)(kappa, *rows)

    def exact_error(self, kappa: mpf, args: list[oracle.Row], a: oracle.Row, b: oracle.Row) -> mpf:
        root = mpmath.sqrt(kappa)
        if self.result == "point":
            return root * oracle.dist(kappa, a, b)[0]
        if self.result == "scalar":
            return root * abs(a[0] - b[0])
        return root * oracle.norm(kappa, args[int(self.result[-1])], oracle.combine(mpf(1), a, mpf(-1), b))


MAPS = {
    "dist": Map("dist", "scalar", "xy", bar=4),  # 2.9
    "logmap": Map("logmap", "vector at 0", "xy", bar=3),  # 2.5
    "boost": Map("boost", "point", "xy", bar=3),  # 2.2
    "expmap": Map("expmap", "point", "xu", bar=12),  # 10.8: sinh and cosh of the speed are rounded independently
    "transp": Map("transp", "vector at 1", "xyu", bar=12),  # 9.7
    "inner": Map("inner", "scalar", "xuv", bar=24),  # 19.6: the square of an error, of radial vectors at norm 1e4
}


def arguments(
    m: Map, M: Lorentz, family: str, dtype: torch.dtype, norms: tuple[float, ...] = NORMS, count: int = 64, n: int = 16
) -> Iterator[list[Tensor]]:
    """Lists of float64 tensors [norms, count, n] whose values are numbers of ``dtype``."""
    x, y = (torch.stack(side) for side in zip(*(pairs(family, norm, count=count, n=n) for norm in norms), strict=True))
    g = torch.Generator().manual_seed(5)
    u, v = (torch.randn(x.shape, generator=g, dtype=x.dtype) for _ in range(2))
    # Vectors of Riemannian length 1, across and along the radius, so that one absolute tolerance applies to all norms.
    u, v, radial, towards = (_of_length_one(M, x, w) for w in (u, v, x, M.logmap(x, y)))
    sets = {
        "xy": [[x, y]],
        "xu": [[x, M.logmap(x, y)]],
        "xyu": [[x, y, u], [x, y, radial], [x, y, towards]],
        "xuv": [[x, u, v]],
    }
    if family == "random":  # what does not depend on y is tried once
        sets["xu"] += [[x, 3 * u], [x, 1e-3 * u], [x, -3 * radial], [x, 3 * radial]]
        sets["xuv"] += [[x, u, u], [x, radial, radial], [x, radial, u]]
    for args in sets[m.arguments]:
        yield [a.to(dtype).double() for a in args]


def _of_length_one(M: Lorentz, x: Tensor, u: Tensor) -> Tensor:
    length = M.inner(x, u, keepdim=True).sqrt() * float(M.kappa) ** 0.5
    return u / torch.where(length > 0, length, 1.0)


def float32_error_and_floor(m: Map, M: Lorentz, args: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Per norm, the largest error of the float32 evaluation against float64, and the largest floor."""
    exact = m(M, *args)
    half = HALF_UNIT[torch.float32]
    candidates = [exact * (1 + half) if m.result == "scalar" else exact.float().double()]
    candidates += [m(M, *args[:i], args[i] * (1 + half), *args[i + 1 :]) for i in range(len(args))]
    g = torch.Generator().manual_seed(9)
    for _ in range(3):
        candidates.append(m(M, *(a * (1 + half * torch.randint(-1, 2, a.shape, generator=g)) for a in args)))
    floor = torch.stack([m.error(M, args, exact, c) for c in candidates]).amax(0)
    got = m(M, *(a.float() for a in args))
    assert got.dtype == torch.float32
    return m.error(M, args, exact, got.double()).amax(-1), floor.amax(-1)


def float64_error_and_floor(m: Map, M: Lorentz, args: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The same for float64 against 50 digits."""
    shape = args[0].shape[:-1]
    errors, floors = [], []
    with mpmath.workdps(oracle.DIGITS):
        kappa = mpf(float(M.kappa))
        for result, *vectors in zip(m(M, *args).flatten(0, -2), *(a.flatten(0, -2) for a in args), strict=True):
            rows = [[mpf(c) for c in v.tolist()] for v in vectors]
            exact = m.exact(kappa, *rows)
            candidates = _exact_candidates(m, kappa, rows, exact)
            floors.append(float(max(m.exact_error(kappa, rows, exact, c) for c in candidates)))
            errors.append(float(m.exact_error(kappa, rows, exact, [mpf(c) for c in result.tolist()])))
    return torch.tensor(errors).view(shape).amax(-1), torch.tensor(floors).view(shape).amax(-1)


def _exact_candidates(m: Map, kappa: mpf, rows: list[oracle.Row], exact: oracle.Row) -> Iterator[oracle.Row]:
    half = mpf(2) ** -53
    yield [e * (1 + half) for e in exact] if m.result == "scalar" else [mpf(float(e)) for e in exact]
    yield m.exact(kappa, *([c * (1 + half) for c in r] for r in rows))
    for sign in (1, -1):  # signs that repeat after three coordinates, shifted from argument to argument
        yield m.exact(
            kappa, *([c * (1 + sign * half * ((k + i) % 3 - 1)) for k, c in enumerate(r)] for i, r in enumerate(rows))
        )
