"""Functions that are smooth at the origin: sinh(r)/r and asinh(r)/r of q = r^2, and a root with finite gradients.

In r these quotients are 0/0 at the origin, and their derivatives lose all digits near it; in q they are analytic.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["asinhc", "cosh_minus_one", "safe_sqrt", "sinhc", "with_derivatives_of"]

# Below this q the power series is used. Its first dropped term (q^8 times a coefficient below 0.012) is then under
# 1.2e-18, which is below the rounding of float64. Above it the closed form is used. Its derivative subtracts two
# numbers that agree to about q, and has a relative error of 5e-5 (float32) or 1e-13 (float64).
_SERIES_BELOW = 1e-2

# Taylor coefficients in q: 1/(2k+1)! and (-1)^k (2k)! / (4^k (k!)^2 (2k+1)).
_SINHC = (1.0, 1 / 6, 1 / 120, 1 / 5040, 1 / 362880, 1 / 39916800, 1 / 6227020800, 1 / 1307674368000)
_ASINHC = (1.0, -1 / 6, 3 / 40, -5 / 112, 35 / 1152, -63 / 2816, 231 / 13312, -143 / 10240)


def sinhc(q: Tensor) -> Tensor:
    """Return ``sinh(sqrt(q)) / sqrt(q)`` for ``q >= 0``; 1 at ``q = 0``, with all derivatives."""
    small = q < _SERIES_BELOW
    r = torch.where(small, 1.0, q).sqrt()
    return torch.where(small, _horner(_SINHC, q), torch.sinh(r) / r)


def asinhc(q: Tensor) -> Tensor:
    """Return ``asinh(sqrt(q)) / sqrt(q)`` for ``q >= 0``; 1 at ``q = 0``, with all derivatives."""
    small = q < _SERIES_BELOW
    r = torch.where(small, 1.0, q).sqrt()
    return torch.where(small, _horner(_ASINHC, q), torch.asinh(r) / r)


def cosh_minus_one(q: Tensor) -> Tensor:
    """Return ``cosh(sqrt(q)) - 1 = 2 sinh^2(sqrt(q)/2)`` without cancellation, smooth at 0."""
    return q * sinhc(q / 4).square() / 2


def safe_sqrt(q: Tensor) -> Tensor:
    """Return ``sqrt(q)`` whose gradient at ``q = 0`` is 0, the least-norm subgradient, instead of infinite."""
    zero = q == 0  # not "q > 0": NaN must stay NaN
    return torch.where(zero, 0.0, torch.where(zero, 1.0, q).sqrt())


def with_derivatives_of(value: Tensor, smooth: Tensor) -> Tensor:
    """Return ``value`` with the derivatives of ``smooth``.

    Both are the same function: ``value`` is computed without cancellation, ``smooth`` is differentiable everywhere.
    Derivatives of every order, in forward and reverse mode, are those of ``smooth``.
    """
    return value.detach() + (smooth - smooth.detach())


def _horner(coefficients: tuple[float, ...], q: Tensor) -> Tensor:
    # Clamped: otherwise the branch that torch.where discards may overflow, and 0 * inf would make the gradient NaN.
    q = q.clamp(max=_SERIES_BELOW)
    total = torch.full_like(q, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * q + coefficient
    return total
