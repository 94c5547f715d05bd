"""The maps of the hyperboloid from their textbook definitions, in 50 digits, on rows of space coordinates.

Here the textbook forms are right: 50 digits outlast every cancellation at the norms of the tests.
"""

from __future__ import annotations

import mpmath
from mpmath import mpf

Row = list[mpf]
DIGITS = 50


def dot(a: Row, b: Row) -> mpf:
    return mpmath.fsum(p * q for p, q in zip(a, b, strict=True))


def combine(a: mpf, x: Row, b: mpf, y: Row) -> Row:
    return [a * p + b * q for p, q in zip(x, y, strict=True)]


def time(x: Row, kappa: mpf) -> mpf:
    return mpmath.sqrt(dot(x, x) + 1 / kappa)


def product(x: Row, y: Row, kappa: mpf) -> mpf:
    """Lorentz product of two points."""
    return dot(x, y) - time(x, kappa) * time(y, kappa)


def dist(kappa: mpf, x: Row, y: Row) -> Row:
    return [mpmath.acosh(max(mpf(1), -kappa * product(x, y, kappa))) / mpmath.sqrt(kappa)]


def inner(kappa: mpf, x: Row, u: Row, v: Row) -> Row:
    return [dot(u, v) - dot(x, u) * dot(x, v) / time(x, kappa) ** 2]


def norm(kappa: mpf, x: Row, u: Row) -> mpf:
    return mpmath.sqrt(max(mpf(0), inner(kappa, x, u, u)[0]))


def expmap(kappa: mpf, x: Row, u: Row) -> Row:
    alpha = mpmath.sqrt(kappa) * norm(kappa, x, u)
    return combine(mpmath.cosh(alpha), x, mpmath.sinh(alpha) / alpha if alpha else mpf(1), u)


def logmap(kappa: mpf, x: Row, y: Row) -> Row:
    cosh = -kappa * product(x, y, kappa)
    alpha = mpmath.acosh(max(mpf(1), cosh))
    factor = alpha / mpmath.sinh(alpha) if alpha else mpf(1)
    return combine(factor, y, -factor * cosh, x)


def transp(kappa: mpf, x: Row, y: Row, u: Row) -> Row:
    pairing = dot(y, u) - time(y, kappa) * dot(x, u) / time(x, kappa)
    weight = pairing / (1 / kappa - product(x, y, kappa))
    return combine(mpf(1), u, weight, combine(mpf(1), x, mpf(1), y))


def boost(kappa: mpf, x: Row, y: Row) -> Row:
    """exp_x of the transport to x of log_o y."""
    origin = [mpf(0)] * len(x)
    return expmap(kappa, x, transp(kappa, origin, x, logmap(kappa, origin, y)))
