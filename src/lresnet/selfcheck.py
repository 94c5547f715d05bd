"""A quick check that the arithmetic of this machine keeps the library's promises (``lresnet doctor`` runs it).

The tests of the repository check far more; this is for a user's machine: another processor, another build of torch,
a GPU. The reference below is written out in float64 on its own and shares no code with the formulas under test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lresnet import functional
from lresnet.geometry import Lorentz
from lresnet.residual import make_residual

__all__ = ["Check", "run_checks"]

_CURVATURES = (-0.1, -1.0, -2.0, -10.0)
_NORMS = (1e-3, 1.0, 1e2, 1e3, 1e4)
_KINDS = ("lorentz", "parallel_transport", "parallel_transport_reversed", "tangent", "space")


class Check(NamedTuple):
    """One promise, and whether it was kept here."""

    name: str
    device: str
    ok: bool
    detail: str


def run_checks(device: str) -> list[Check]:
    """Run every check on ``device``. A check that raises counts as failed, with the error as its detail."""
    return [_run(name, check, device) for name, check in _CHECKS.items()]


def _run(name: str, check: Callable[[str], tuple[bool, str]], device: str) -> Check:
    try:
        ok, detail = check(device)
    except Exception as error:  # on a broken machine anything may be raised, and the doctor has to name it
        ok, detail = False, f"{type(error).__name__}: {error}"
    return Check(name, device, ok, detail)


def _paper_example(device: str) -> tuple[bool, str]:
    x, y = torch.tensor([2.0, -2.0], device=device), torch.tensor([2.0, 2.0], device=device)
    forward = functional.parallel_transport_residual(x, y, K=-1.0).tolist()
    backward = functional.parallel_transport_residual(y, x, K=-1.0).tolist()
    error = math.dist([*forward, *backward], [8.0, -4.0, 8.0, 4.0])
    return error < 1e-5, f"x (+) y = {_short(forward)}, y (+) x = {_short(backward)}"


def _lorentz_accuracy(device: str) -> tuple[bool, str]:
    """Geodesic error at most 4 times that of the exact result rounded to float32, plus 3e-7/sqrt(kappa).

    Both are the largest of their family of pairs: a single exact result may happen to need no rounding at all.
    """
    worst, where = 0.0, "nothing was measured"
    for K in _CURVATURES:
        for norm in _NORMS:
            for family, x, y in _pairs(norm):
                exact = _lorentz64(x, y, -K)
                got = functional.lorentz_residual(x.to(device), y.to(device), K=K).cpu()
                rounding = float(_distance64(exact.float().double(), exact, -K).max())
                error = float(_distance64(got.double(), exact, -K).max())
                ratio = error / (4 * rounding + 3e-7 / math.sqrt(-K))
                here = f"{family} points, norm {norm:g}, K = {K:g}"
                if math.isnan(ratio):
                    return False, f"not a number ({here})"
                worst, where = max((worst, where), (ratio, here))
    return worst <= 1, f"at worst {worst:.2f} of what is allowed ({where})"


def _equal_points(device: str) -> tuple[bool, str]:
    for K in _CURVATURES:
        M = Lorentz(K).to(device)
        for norm in _NORMS:
            x = _directions(64, seed=1).mul(norm).to(device)
            if not torch.equal(functional.lorentz_residual(x, x, K=K), x):
                return False, f"the residual of x and x is not x at norm {norm:g}, K = {K:g}"
            if M.dist(x, x).any() or M.logmap(x, x).any():
                return False, f"dist(x, x) or logmap(x, x) is not 0 at norm {norm:g}, K = {K:g}"
    return True, "dist(x, x) and logmap(x, x) are 0, the residual of x and x is x"


def _commutative(device: str) -> tuple[bool, str]:
    for norm in _NORMS:
        for family, x, y in _pairs(norm):
            here, there = x.to(device), y.to(device)
            if not torch.equal(functional.lorentz_residual(here, there), functional.lorentz_residual(there, here)):
                return False, f"x (+) y and y (+) x differ for {family} points of norm {norm:g}"
    return True, "x (+) y and y (+) x are equal to the last bit"


def _finite_gradients(device: str) -> tuple[bool, str]:
    zero, tiny, point = torch.zeros(4), torch.full((4,), 1e-40), torch.arange(4.0)
    for kind in _KINDS:
        residual = make_residual(kind, Lorentz(-1.0)).to(device)
        for a in (zero, tiny, point):
            for b in (zero, tiny, point):
                x, y = (leaf.clone().to(device).requires_grad_() for leaf in (a, b))
                z = residual(x, y)
                gradients = torch.autograd.grad(z.sum(), (x, y))
                if not all(value.isfinite().all() for value in (z, *gradients)):
                    return False, f"{kind} residual of {_short(a.tolist())} and {_short(b.tolist())}"
    return True, f"{len(_KINDS)} residuals at zeros, subnormals and ordinary points"


_CHECKS = {
    "the paper's example": _paper_example,
    "Lorentz residual, float32": _lorentz_accuracy,
    "equal points": _equal_points,
    "commutative": _commutative,
    "finite gradients": _finite_gradients,
}


def _directions(count: int, seed: int) -> Tensor:
    """Random unit vectors, the same on every machine and device."""
    return torch.nn.functional.normalize(torch.randn(count, 16, generator=torch.Generator().manual_seed(seed)), dim=-1)


def _pairs(norm: float) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Pairs of points of space norm ``norm``, in float32, of every kind that has been seen to lose digits."""
    x, v = norm * _directions(256, seed=0), norm * _directions(256, seed=1)
    yield "random", x, v
    yield "near", x, x + 1e-3 * v
    yield "equal", x, x
    yield "radial", x, 1.5 * x
    yield "half-zero", x, torch.zeros_like(x)


def _time64(x: Tensor, kappa: float) -> Tensor:
    return (x.square().sum(-1, keepdim=True) + 1 / kappa).sqrt()


def _separation64(x: Tensor, y: Tensor, kappa: float) -> Tensor:
    """``<x - y, x - y>`` with the difference of the times rationalised: good to 1e-9 for norms up to 1e4."""
    d = x - y
    dt = (d * (x + y)).sum(-1, keepdim=True) / (_time64(x, kappa) + _time64(y, kappa))
    return (d.square().sum(-1, keepdim=True) - dt.square()).clamp(min=0)


def _lorentz64(x: Tensor, y: Tensor, kappa: float) -> Tensor:
    x, y = x.double(), y.double()
    return (x + y) / (4 + kappa * _separation64(x, y, kappa)).sqrt()


def _distance64(x: Tensor, y: Tensor, kappa: float) -> Tensor:
    half = (kappa * _separation64(x, y, kappa)).sqrt() / 2
    return 2 / math.sqrt(kappa) * half.asinh()


def _short(values: list[float]) -> str:
    return "[" + ", ".join(f"{value:g}" for value in values) + "]"
