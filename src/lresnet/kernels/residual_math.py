r"""Device formulas of the residuals: coefficients of values and gradients, one set per row.

Every residual of two points is a combination of them with one coefficient per row (Proposition 4.2 of the paper),

.. math:: z = \alpha x + \beta y ,

and each row of its gradient is a combination of the incoming gradient g, the point itself and one partner vector,

.. math:: \partial x = A_x g + E_x p_x + X x , \qquad \partial y = A_y g + E_y p_y + Y y .

The partner is the difference x - y for the Lorentz residual (so that nothing cancels for near points), the other
point for the boost, and the sum of logarithms for the tangent residual. The coefficients follow from a few sums over
the row. One of these sums needs the norms first: the squared norm of :func:`second_vector`.

Equal points return that point exactly. This follows from comparisons of equal sums, and from differences that the
compiler's fused multiply-add leaves at 0.

``KIND`` is a compile-time constant: "lorentz", "parallel_transport" (a Lorentz boost), "tangent" or "space".
"""

import triton.language as tl

from lresnet.kernels.math import asinhc, jit, norm_ratio, normaliser, polar, sinhc

__all__ = ["gradient_coefficients", "partners", "second_vector", "sign_coefficients", "value_coefficients"]


@jit
def second_vector(x2, y2, w, kappa, KIND: tl.constexpr):
    """Return coefficients (a, b) of each row, from its norms: the row's second sum is ``|a x + b y|^2``."""
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


@jit
def boost_weight(x2, y2, xy, second2, kappa):
    """Return the weight of x in the boost, and the unitless times. For xy < 0 the form has no subtraction."""
    D, _, T_x, T_y = polar(x2, y2, second2, kappa)
    smooth = T_y + kappa * xy / (1.0 + T_x)
    return tl.where(xy < 0.0, tl.div_rn(1.0 + D + T_y, 1.0 + T_x), smooth), T_x, T_y


@jit
def value_coefficients(x2, y2, xy, second2, w, scale, kappa, KIND: tl.constexpr):
    """Return (alpha, beta) of ``z = alpha x + beta y``. Only parallel transport uses ``xy``."""
    if KIND == "lorentz":
        D, _, _, _ = polar(x2, y2, second2, kappa)
        n = normaliser(w, D)
        c = scale * tl.div_rn(1.0, n)
        # Equal points give that point exactly. (For norms below 1e-12 a difference of 0 may be an underflow. A NaN in
        # the weight makes n a NaN, and the result too.)
        equal = (second2 == 0.0) & (x2 == y2) & (x2 > 1e-24) & (n == n)
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


@jit
def sign_coefficients(x2, y2, xy, second2, w, kappa, KIND: tl.constexpr):
    """Return (a, b) such that ``a x + b y`` has the signs of the result, for the derivative of a ReLU."""
    if KIND == "lorentz":
        return 1.0, w
    elif KIND == "parallel_transport":
        weight, _, _ = boost_weight(x2, y2, xy, second2, kappa)
        return weight, 1.0
    else:
        return second_vector(x2, y2, w, kappa, KIND)


@jit
def partners(x, y, a, b, KIND: tl.constexpr):
    """Return the partner vectors (p_x, p_y) of the gradients of x and of y."""
    if KIND == "lorentz":
        return x - y, x - y
    elif KIND == "parallel_transport":
        return y, x
    else:
        return a * x + b * y, a * x + b * y


@jit
def gradient_coefficients(x2, y2, mixed, second2, gx, gp, w, scale, kappa, KIND: tl.constexpr):
    r"""Return the coefficients (A_x, E_x, X, A_y, E_y, Y) and the row's derivatives in weight, scale and kappa.

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


@jit
def lorentz_gradient(x2, y2, mixed, second2, gx, ge, w, scale, kappa):
    """Return the coefficients of the Lorentz residual; ``_gradients`` in residual/lorentz.py has the equations."""
    D, growth, T_x, T_y = polar(x2, y2, second2, kappa)
    inverse = tl.div_rn(1.0, normaliser(w, D))
    c = scale * inverse
    along = ((1.0 + w) * gx - w * ge) * inverse  # g . (x + w y) / n
    a = along * inverse
    pull = c * (w * kappa * a)
    # (tau / x_t) x nearly cancels e if y is 0, and (tau / y_t) y if x is 0.
    slope_x = tl.div_rn(kappa * mixed, (T_x + T_y) * T_x)
    slope_y = tl.div_rn(kappa * mixed, (T_x + T_y) * T_y)
    ratio = D * inverse * inverse
    gw = c * (-ge * ((1.0 + w) * inverse * inverse + w * ratio) - (1.0 - w) * ratio * gx)
    gk = -c * a * w * growth * (1.0 / kappa)
    return c, -pull, pull * slope_x, c * w, pull, -pull * slope_y, gw, along, gk


@jit
def boost_gradient(x2, y2, xy, second2, gx, gy, w, scale, kappa):
    r"""Return the coefficients of :math:`y + \omega x`, :math:`\omega = T_y + \kappa\, x \cdot y / (1 + T_x)`."""
    weight, T_x, T_y = boost_weight(x2, y2, xy, second2, kappa)
    t = kappa / (1.0 + T_x)
    pull = scale * gx * t
    X = -pull * (t * xy / T_x)
    Y = scale * gx * (kappa / T_y)
    gk = scale * gx * (0.5 * y2 / T_y + xy / (1.0 + T_x) * (1.0 - 0.5 * t * (x2 / T_x)))
    return scale * weight, pull, X, scale, pull, Y, 0.0 * gx, gy + weight * gx, gk


@jit
def tangent_gradient(x2, y2, xy, second2, gx, gy, w, scale, kappa):
    r"""Return the coefficients of :math:`\sinh_c(\kappa |v|^2)\, v`, :math:`v = l_x x + w\, l_y y`.

    The factors l are :math:`\mathrm{asinh}_c` of :math:`\kappa |x|^2` and :math:`\kappa |y|^2`.
    """
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
