"""Device functions that several kernels share, and the decorator of kernels.

The functions work on blocks of rows, with one number per row where they compute scalars.

Square roots and quotients use the device's fast instructions, accurate to two units in the last place, where the
formula is stationary in them or halves their error: in short rows the scalars cost as much as the coordinates. The
correctly rounded ones (``sqrt_rn``, ``div_rn``) are used where an error would go straight into the result, or into a
difference of two nearly equal numbers.
"""

from typing import TYPE_CHECKING

import triton.language as tl

if TYPE_CHECKING:
    from typing import no_type_check as jit  # Triton's language has the syntax of Python, but not its types
else:
    from triton import jit

__all__ = [
    "SHORTEST",
    "SMALLEST",
    "asinhc",
    "dot",
    "exponential",
    "horner",
    "jit",
    "norm_ratio",
    "normaliser",
    "per_column",
    "polar",
    "sinhc",
]

# Norms below this are inaccurate because their square underflows in float32: the root of the smallest normal number.
SHORTEST = tl.constexpr(1.0842021724855044e-19)
SMALLEST = tl.constexpr(1.1754943508222875e-38)


@jit
def dot(u, v):
    """Return the inner product of each row, [ROWS, 1]."""
    return tl.sum(u * v, axis=1, keep_dims=True)


@jit
def per_column(pointer, columns, n, ROWS: tl.constexpr):
    """Load one number per coordinate, repeated for every row, and 0 beyond the n-th; return 0 if there is none.

    A whole tile is loaded, so that each thread holds the same coordinates as it does of the points. A single line would
    have another layout, and every operation with the points would go through shared memory.
    """
    if pointer is None:
        return 0.0
    else:
        return tl.load(pointer + columns + tl.zeros((ROWS, 1), tl.int32), mask=columns < n, other=0.0)


@jit
def norm_ratio(x2, y2):
    """Return ``|x| / |y|`` from the squares, exactly 1 for equal norms; norms below SHORTEST count as SHORTEST."""
    return tl.where(x2 == y2, 1.0, tl.maximum(tl.sqrt(x2), SHORTEST) / tl.maximum(tl.sqrt(y2), SHORTEST))


@jit
def polar(x2, y2, across2, kappa):
    r"""Return ``cosh d - 1``, kappa times its derivative in kappa, and the unitless times of x and y.

    This is the polar form of geometry/distance.py. ``across2`` is :math:`|x - (|x|/|y|) y|^2`: the squared chord
    between the directions, times :math:`|x|^2`.
    """
    root = tl.sqrt(kappa)
    r_x, r_y = tl.sqrt(x2), tl.sqrt(y2)
    R_x, R_y = root * r_x, root * r_y
    T_x, T_y = tl.sqrt_rn(1.0 + kappa * x2), tl.sqrt_rn(1.0 + kappa * y2)
    sinh = root * (r_x - r_y) * ((R_x + R_y) / tl.maximum(R_x * T_y + T_x * R_y, SMALLEST))
    radial = sinh * (sinh / (1.0 + tl.sqrt(1.0 + sinh * sinh)))
    angular = 0.5 * kappa * (across2 / norm_ratio(x2, y2))
    return radial + angular, angular + 0.5 * sinh * (sinh / (T_x * T_y)), T_x, T_y


@jit
def normaliser(w, D):
    """Return ``sqrt((1 + w)^2 + 2 w D)``, in a form that is never below ``1 + w``."""
    total = 1.0 + w
    excess = 2.0 * w * D
    return total + tl.div_rn(excess, total + tl.sqrt(total * total + excess))


@jit
def horner(q, c0, c1, c2, c3, c4, c5, c6, c7, c8):
    """Return the polynomial with these coefficients at q."""
    return c0 + q * (c1 + q * (c2 + q * (c3 + q * (c4 + q * (c5 + q * (c6 + q * (c7 + q * c8)))))))


@jit
def asinhc(q):
    """Return ``asinh(sqrt q)/sqrt q`` and its derivative in q.

    For q < 1 it is the series of ``asinh r = 2 artanh(r/(1 + sqrt(1 + r^2)))``: the square of the argument is below
    0.172 and the first omitted term below 3e-9.
    """
    T = tl.sqrt_rn(1.0 + q)
    half = tl.div_rn(1.0, 1.0 + T)
    near = 2.0 * half * horner(q * half * half, 1.0, 1 / 3, 1 / 5, 1 / 7, 1 / 9, 1 / 11, 1 / 13, 1 / 15, 1 / 17)
    r = tl.sqrt_rn(tl.maximum(q, 1.0))
    value = tl.where(q < 1.0, near, tl.div_rn(tl.log(r + T), r))
    # The difference below cancels for small q, where the series replaces it. (Every formula multiplies it with q.)
    few = -1 / 6 + q * (3 / 20 - q * (15 / 112 - q * (35 / 288)))
    return value, tl.where(q < 1e-2, few, 0.5 * ((1.0 / T - value) / tl.maximum(q, 1e-2)))


@jit
def exponential(r):
    """Return ``exp r`` for r >= 0, accurate to two units in the last place.

    The device's own function rounds ``r log2(e)``, which loses bits. Here whole powers of two are split off first, with
    ln 2 in two parts; the first part times a small integer is exact.
    """
    whole = tl.floor(r * 1.4426950408889634 + 0.5)
    rest = (r - whole * 0.693145751953125) - whole * 1.428606820309417e-06
    return tl.exp(rest) * tl.exp2(whole)


@jit
def sinhc(q):
    """Return ``sinh(sqrt q)/sqrt q`` and its derivative in q; for q < 1 a series with an error below 1e-14."""
    near = horner(
        q, 1.0, 1 / 6, 1 / 120, 1 / 5040, 1 / 362880, 1 / 39916800, 1 / 6227020800, 1 / 1307674368000, 2.8114572543e-15
    )
    slope_near = horner(
        q, 1 / 6, 2 / 120, 3 / 5040, 4 / 362880, 5 / 39916800, 6 / 6227020800, 7 / 1307674368000, 2.2491658e-14, 0.0
    )
    far = tl.maximum(q, 1.0)
    r = tl.sqrt_rn(far)
    e = exponential(r)
    sinh, cosh = 0.5 * (e - 1.0 / e), 0.5 * (e + 1.0 / e)
    value = tl.where(q < 1.0, near, tl.div_rn(sinh, r))
    return value, tl.where(q < 1.0, slope_near, 0.5 * ((cosh - value) / far))
