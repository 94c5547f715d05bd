"""The step of :class:`~lresnet.optim.riemannian.RiemannianAdam` as one kernel, with the formulas of that class.

In torch operations the step is a chain of a hundred operations on a few numbers each, and on a GPU as many launches.
"""

import math

import torch
import triton.language as tl
from torch import Tensor

from lresnet.kernels.math import SHORTEST, SMALLEST, asinhc, dot, jit, sinhc
from lresnet.kernels.tiles import small_tile

__all__ = ["fused_step"]


# --- Kernel -----------------------------------------------------------------------------------------------------------


@jit
def _unit(x):
    """Return direction and norm."""
    r = tl.sqrt_rn(dot(x, x))
    # Correctly rounded: far from the origin an error in the direction's length changes the distance at every step.
    return tl.div_rn(x, tl.maximum(r, SHORTEST, propagate_nan=tl.PropagateNan.ALL)), r


@jit
def _metric(x, e, g, kappa):
    """Return the squared norm of g in the metric at x, whose direction is e: ``lresnet.geometry.maps.inner``."""
    T2, xg, a = 1.0 + kappa * dot(x, x), dot(x, g), dot(e, g)
    across = g - a * e
    return tl.where(T2 > 2.0, dot(across, across) + a * a / T2, dot(g, g) - kappa * xg * (xg / T2))


@jit
def _exp(x, e, r, T, u, root):
    """Return the end of the geodesic from x along u: ``lresnet.geometry.maps.expmap_value``."""
    a = dot(e, u)
    across = u - a * e
    beta, pi2 = root * a / T, root * root * dot(across, across)
    alpha2 = beta * beta + pi2
    alpha = tl.sqrt_rn(alpha2)
    stretch, _ = sinhc(alpha2)
    outwards = tl.where(beta < 0.0, -1.0, 1.0)
    slack = stretch * (pi2 / tl.where(alpha > 0.0, alpha + tl.abs(beta), 1.0)) * T
    R = root * r
    per_sinh, _ = asinhc(R * R)
    end = R * per_sinh + outwards * alpha
    per_radius, _ = sinhc(end * end)
    radial = end * per_radius - outwards * slack
    return tl.where(alpha == 0.0, x + u, (radial / root) * e + stretch * across)


@jit
def _transported(x, e, r_x, T_x, y, u, root):
    """Transport u, tangent at x, to y: ``lresnet.geometry.maps.transp_value``."""
    f, r_y = _unit(y)
    R_x, R_y = root * r_x, root * r_y
    T_y = tl.sqrt_rn(1.0 + R_y * R_y)
    difference = f - e
    omega = 0.5 * dot(difference, difference)
    sinh = (R_x - R_y) * ((R_x + R_y) / tl.maximum(R_x * T_y + T_x * R_y, SMALLEST))
    separation = sinh * (sinh / (1.0 + tl.sqrt_rn(1.0 + sinh * sinh))) + R_x * R_y * omega
    u -= dot(e, u) * (1.0 - 1.0 / T_x) * e
    X, d, c = root * x, R_y * (difference + omega * e), 2.0 + T_x + T_y + separation
    first = dot(d, u) * X - dot(X, u) * d
    second = dot(d, first) * X - dot(X, first) * d
    u += 2.0 * (c * first + second) / (c * c + dot(X, X) * dot(d, d))
    return u + dot(f, u) * (T_y - 1.0) * f


@jit
def _step(
    x_pointer, g_pointer, mean_pointer, square_pointer, count_pointer, lr_pointer, n, rows,
    root, share_1, share_2, log_1, log_2, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    there, place = row < rows, row.to(tl.int64) * n + column
    inside = there & (column < n)
    x = tl.load(x_pointer + place, mask=inside, other=0.0)
    g = tl.load(g_pointer + place, mask=inside, other=0.0)
    mean = tl.load(mean_pointer + place, mask=inside, other=0.0)
    square = tl.load(square_pointer + row, mask=there, other=0.0)
    count = tl.load(count_pointer + row, mask=there, other=0.0) + 1.0
    # In float64, like the count: in float32, 1 - 0.999 ** step would lose four digits.
    correction_1 = (1.0 - tl.exp(count * log_1)).to(tl.float32)
    correction_2 = (1.0 - tl.exp(count * log_2)).to(tl.float32)
    e, r = _unit(x)
    R = root * r
    T = tl.sqrt_rn(1.0 + R * R)
    g += root * root * dot(x, g) * x  # the Riemannian gradient
    mean += share_1 * (g - mean)
    square += share_2 * (_metric(x, e, g, root * root) - square)
    spread = tl.sqrt_rn(square / correction_2) + eps
    y = _exp(x, e, r, T, -tl.load(lr_pointer).to(tl.float32) * (mean / correction_1) / spread, root)
    mean = _transported(x, e, r, T, y, mean, root)
    # Several warps hold copies of a small tile: none may write before all have read.
    tl.debug_barrier()
    tl.store(x_pointer + place, y, mask=inside)
    tl.store(mean_pointer + place, mean, mask=inside)
    tl.store(square_pointer + row, square, mask=there)
    tl.store(count_pointer + row, count, mask=there)


# --- Launch -----------------------------------------------------------------------------------------------------------


def fused_step(
    x: Tensor,
    g: Tensor,
    mean: Tensor,
    square: Tensor,
    count: Tensor,
    lr: Tensor,
    *,
    kappa: float,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """Move points x [..., n] along the gradient g, and update ``mean`` [..., n], ``square`` and ``count`` [..., 1]."""
    n = x.shape[-1]
    rows = x.numel() // n
    tile = small_tile(n, 256)  # few rows per program: the step is one long chain, and points are few
    logarithms = [math.log(beta) if beta > 0 else -math.inf for beta in betas]
    # 1 - beta and log beta are computed here: beta in float32 would be too inaccurate for them.
    factors = math.sqrt(kappa), *(1 - beta for beta in betas), *logarithms, eps
    with torch.cuda.device_of(x):
        _step[tile.grid(rows)](
            x, g.contiguous(), mean, square, count, lr, n, rows, *factors, ROWS=tile.rows, BLOCK=tile.block
        )
