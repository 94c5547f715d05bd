r"""The formulas of the residuals on the device, per row: one owner each, for every kernel in this package.

Every residual of two points is a combination of them with one coefficient per row (Proposition 4.2 of the paper),

.. math:: z = \alpha x + \beta y ,

and its gradient is, row by row, a combination of the incoming gradient g, the point itself and one partner vector,

.. math:: \partial x = A_x g + E_x p_x + X x , \qquad \partial y = A_y g + E_y p_y + Y y .

The partner is the difference x - y for the Lorentz residual (so that nothing cancels for near points), the other
point for the boost, and the sum of logarithms for the tangent residual. The coefficients follow from a handful of
sums over the row: :func:`second_vector` names the one that needs the norms first.

Square roots and quotients are the device's own, good to two units in the last place, where the formula is stationary
in them or halves their error: in short rows the scalars cost as much as the coordinates. Those rounded to nearest
(``sqrt_rn``, ``div_rn``) stand where an error would go straight into the result, or into a difference of two numbers
that nearly agree. Equal points stay that point in any case: this follows from comparisons of equal sums, and from
differences in which the compiler's fused multiply-add finds no rounding to uncover.
"""

import triton
import triton.language as tl

__all__ = ["gradient_coefficients", "partners", "second_vector", "sign_coefficients", "value_coefficients"]

# Norms below this have lost digits to the underflow of their square (float32): the root of the smallest normal number.
SHORTEST = tl.constexpr(1.0842021724855044e-19)
SMALLEST = tl.constexpr(1.1754943508222875e-38)


@triton.jit
def norm_ratio(x2, y2):
    """``|x| / |y|`` from the squares, exactly 1 for equal norms; a norm too short to be measured counts as SHORTEST."""
    return tl.where(x2 == y2, 1.0, tl.maximum(tl.sqrt(x2), SHORTEST) / tl.maximum(tl.sqrt(y2), SHORTEST))


@triton.jit
def polar(x2, y2, across2, kappa):
    r"""``cosh d - 1``, its growth with kappa, and the unitless times: the polar form of geometry/pair.py.

    ``across2`` is :math:`|x - (|x|/|y|) y|^2`: the chord of the directions, times :math:`|x|^2`.
    """
    root = tl.sqrt(kappa)
    r_x, r_y = tl.sqrt(x2), tl.sqrt(y2)
    R_x, R_y = root * r_x, root * r_y
    T_x, T_y = tl.sqrt_rn(1.0 + kappa * x2), tl.sqrt_rn(1.0 + kappa * y2)
    sinh = root * (r_x - r_y) * ((R_x + R_y) / tl.maximum(R_x * T_y + T_x * R_y, SMALLEST))
    radial = sinh * (sinh / (1.0 + tl.sqrt(1.0 + sinh * sinh)))
    angular = 0.5 * kappa * (across2 / norm_ratio(x2, y2))
    return radial + angular, angular + 0.5 * sinh * (sinh / (T_x * T_y)), T_x, T_y


@triton.jit
def normaliser(w, D):
    """``sqrt((1 + w)^2 + 2 w D)``, written so that it is never below ``1 + w``."""
    total = 1.0 + w
    excess = 2.0 * w * D
    return total + tl.div_rn(excess, total + tl.sqrt(total * total + excess))


@triton.jit
def horner(q, c0, c1, c2, c3, c4, c5, c6, c7, c8):
    """The polynomial with these coefficients at q."""
    return c0 + q * (c1 + q * (c2 + q * (c3 + q * (c4 + q * (c5 + q * (c6 + q * (c7 + q * c8)))))))


@triton.jit
def asinhc(q):
    r"""``asinh(sqrt q)/sqrt q`` and its derivative in q.

    Near the origin by :math:`\operatorname{asinh} r = 2 \operatorname{artanh}(r/(1 + \sqrt{1 + r^2}))` and its
    series: at q < 1 the argument's square is below 0.172, the first dropped term below 3e-9.
    """
    T = tl.sqrt_rn(1.0 + q)
    half = tl.div_rn(1.0, 1.0 + T)
    near = 2.0 * half * horner(q * half * half, 1.0, 1 / 3, 1 / 5, 1 / 7, 1 / 9, 1 / 11, 1 / 13, 1 / 15, 1 / 17)
    r = tl.sqrt_rn(tl.maximum(q, 1.0))
    value = tl.where(q < 1.0, near, tl.div_rn(tl.log(r + T), r))
    # The difference cancels below; the series stands in where q, its weight in every formula, is not yet small enough.
    few = -1 / 6 + q * (3 / 20 - q * (15 / 112 - q * (35 / 288)))
    return value, tl.where(q < 1e-2, few, 0.5 * ((1.0 / T - value) / tl.maximum(q, 1e-2)))


@triton.jit
def exponential(r):
    """``exp r`` for r >= 0 to two units in the last place.

    The device's own rounds ``r log2(e)`` and loses bits by that. So whole powers of two go first, with ln 2 in two
    parts of which the first times a small integer is exact.
    """
    whole = tl.floor(r * 1.4426950408889634 + 0.5)
    rest = (r - whole * 0.693145751953125) - whole * 1.428606820309417e-06
    return tl.exp(rest) * tl.exp2(whole)


@triton.jit
def sinhc(q):
    """``sinh(sqrt q)/sqrt q`` and its derivative in q; series below 1, where the first dropped term is under 1e-14."""
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


@triton.jit
def second_vector(x2, y2, w, kappa, KIND: tl.constexpr):
    """Row coefficients (a, b): the row's second sum is ``|a x + b y|^2``, known once the norms are."""
    if KIND == "lorentz":
        return 1.0, -norm_ratio(x2, y2)
    elif KIND == "parallel_transport":
        return 1.0, norm_ratio(x2, y2)
    elif KIND == "tangent":
        log_x, _ = asinhc(kappa * x2)
        log_y, _ = asinhc(kappa * y2)
        return log_x, w * log_y
    else:
        return 1.0, 1.0


@triton.jit
def boost_weight(x2, y2, xy, second2, kappa):
    """Weight of x in the boost, and the unitless times; for opposite points the form with nothing subtracted."""
    D, _, T_x, T_y = polar(x2, y2, second2, kappa)
    smooth = T_y + kappa * xy / (1.0 + T_x)
    return tl.where(xy < 0.0, tl.div_rn(1.0 + D + T_y, 1.0 + T_x), smooth), T_x, T_y


@triton.jit
def value_coefficients(x2, y2, xy, second2, w, scale, kappa, KIND: tl.constexpr):
    """(alpha, beta) of ``z = alpha x + beta y``. ``xy`` counts for parallel transport only."""
    if KIND == "lorentz":
        D, _, T_x, _ = polar(x2, y2, second2, kappa)
        n = normaliser(w, D)
        c = scale * tl.div_rn(1.0, n)
        # Equal points give that point, a float. (So near the origin that T is 1, D = 0 may be an underflow; and a
        # weight that is not a number stays visible.)
        equal = (D == 0.0) & (T_x > 1.0) & (n == n)
        return tl.where(equal, scale, c), tl.where(equal, 0.0, c * w)
    elif KIND == "parallel_transport":
        weight, _, _ = boost_weight(x2, y2, xy, second2, kappa)
        return scale * weight, scale
    elif KIND == "tangent":
        log_x, log_y = second_vector(x2, y2, w, kappa, KIND)
        stretch, _ = sinhc(kappa * second2)
        return scale * stretch * log_x, scale * stretch * log_y
    else:
        return scale, scale


@triton.jit
def sign_coefficients(x2, y2, xy, second2, w, kappa, KIND: tl.constexpr):
    """(a, b) such that ``a x + b y`` has the signs of the result: what a ReLU's derivative asks for."""
    if KIND == "lorentz":
        return 1.0, w
    elif KIND == "parallel_transport":
        weight, _, _ = boost_weight(x2, y2, xy, second2, kappa)
        return weight, 1.0
    else:
        return second_vector(x2, y2, w, kappa, KIND)


@triton.jit
def partners(x, y, a, b, KIND: tl.constexpr):
    """(p_x, p_y): the vectors that join g and the point itself in the gradients of x and of y."""
    if KIND == "lorentz":
        return x - y, x - y
    elif KIND == "parallel_transport":
        return y, x
    else:
        return a * x + b * y, a * x + b * y


@triton.jit
def gradient_coefficients(x2, y2, mixed, second2, gx, gp, w, scale, kappa, KIND: tl.constexpr):
    r"""Coefficients (A_x, E_x, X, A_y, E_y, Y) and the row's derivatives of weight, scale and kappa.

    Args:
        mixed: :math:`(x - y) \cdot (x + y)` for the Lorentz residual, else :math:`x \cdot y`.
        gx: :math:`g \cdot x`.
        gp: :math:`g \cdot (x - y)` for the Lorentz residual, else :math:`g \cdot y`.
    """
    if KIND == "lorentz":
        return lorentz_gradient(x2, y2, mixed, second2, gx, gp, w, scale, kappa)
    elif KIND == "parallel_transport":
        return boost_gradient(x2, y2, mixed, second2, gx, gp, w, scale, kappa)
    elif KIND == "tangent":
        return tangent_gradient(x2, y2, mixed, second2, gx, gp, w, scale, kappa)
    else:
        none = 0.0 * gx
        return scale, 0.0, 0.0, scale, 0.0, 0.0, none, gx + gp, none


@triton.jit
def lorentz_gradient(x2, y2, mixed, second2, gx, ge, w, scale, kappa):
    """The closed form of residual/lorentz.py (``_gradients``), which writes it out."""
    D, growth, T_x, T_y = polar(x2, y2, second2, kappa)
    inverse = tl.div_rn(1.0, normaliser(w, D))
    c = scale * inverse
    along = ((1.0 + w) * gx - w * ge) * inverse  # g . (x + w y) / n
    a = along * inverse
    pull = c * (w * kappa * a)
    # (tau / x_t) x nearly cancels e where y is 0, and (tau / y_t) y where x is.
    slope_x = tl.div_rn(kappa * mixed, (T_x + T_y) * T_x)
    slope_y = tl.div_rn(kappa * mixed, (T_x + T_y) * T_y)
    ratio = D * inverse * inverse
    gw = c * (-ge * ((1.0 + w) * inverse * inverse + w * ratio) - (1.0 - w) * ratio * gx)
    gk = -c * a * w * growth * (1.0 / kappa)
    return c, -pull, pull * slope_x, c * w, pull, -pull * slope_y, gw, along, gk


@triton.jit
def boost_gradient(x2, y2, xy, second2, gx, gy, w, scale, kappa):
    r"""Of :math:`y + \omega x`, :math:`\omega = T_y + \kappa\, x \cdot y / (1 + T_x)`."""
    weight, T_x, T_y = boost_weight(x2, y2, xy, second2, kappa)
    t = kappa / (1.0 + T_x)
    pull = scale * gx * t
    X = -pull * (t * xy / T_x)
    Y = scale * gx * (kappa / T_y)
    gk = scale * gx * (0.5 * y2 / T_y + xy / (1.0 + T_x) * (1.0 - 0.5 * t * (x2 / T_x)))
    return scale * weight, pull, X, scale, pull, Y, 0.0 * gx, gy + weight * gx, gk


@triton.jit
def tangent_gradient(x2, y2, xy, second2, gx, gy, w, scale, kappa):
    r"""Of :math:`\sinh_c(\kappa |v|^2)\, v` with :math:`v = l_x x + w\, l_y y`, :math:`l = \mathrm{asinh}_c`."""
    l_x, dl_x = asinhc(kappa * x2)
    l_y, dl_y = asinhc(kappa * y2)
    s, ds = sinhc(kappa * second2)
    b = w * l_y
    gv = l_x * gx + b * gy
    pull = 2.0 * kappa * ds * gv  # the gradient of v is s g + pull v
    to_x = s * gx + pull * (l_x * x2 + b * xy)
    to_y = s * gy + pull * (l_x * xy + b * y2)
    X, Y = 2.0 * kappa * dl_x * to_x, 2.0 * kappa * w * dl_y * to_y
    gk = ds * second2 * gv + dl_x * x2 * to_x + w * dl_y * y2 * to_y
    return (
        scale * (s * l_x),
        scale * (pull * l_x),
        scale * X,
        scale * (s * b),
        scale * (pull * b),
        scale * Y,
        scale * (l_y * to_y),
        s * gv,
        scale * gk,
    )
