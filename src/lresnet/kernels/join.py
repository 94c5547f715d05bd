r"""The Lorentz join of tangent vectors, :math:`\exp_o z \oplus_w \exp_o g`, as one operator: forward and backward.

Bytes moved: forward reads z and g and writes y; backward reads z, g and the gradient and writes two.
:mod:`lresnet.nn.weighted_join` derives the formulas.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from lresnet.geometry.stack import sum_to
from lresnet.kernels.math import SHORTEST, jit, normaliser, sinhc
from lresnet.kernels.runtime import apply_kernel
from lresnet.kernels.tiles import small_tile, stack_rows

__all__ = ["backward", "backward_with_weight", "forward", "fused_join"]


# --- 1. Kernels -------------------------------------------------------------------------------------------------------


@jit
def _load(
    z_pointer, g_pointer, weight_pointer, row, column, inside, members,
    z_node, z_member, g_node, g_member, weight_step,
):  # fmt: skip
    """Load the two vectors of each row, and their weight as it is stored, with its sign."""
    node, member = (row // members).to(tl.int64), (row % members).to(tl.int64)
    z = tl.load(z_pointer + node * z_node + member * z_member + column, mask=inside, other=0.0)
    g = tl.load(g_pointer + node * g_node + member * g_member + column, mask=inside, other=0.0)
    return z, g, tl.load(weight_pointer + member * weight_step)


@jit
def _polar(v, root, max_radius):
    """Return direction, norm, radius, bounded radius, F and H = 2 F', none of them 0, as in lresnet.nn.input_map."""
    norm = tl.sqrt_rn(tl.sum(v * v, axis=1, keep_dims=True))
    norm = tl.maximum(norm, SHORTEST / root, propagate_nan=tl.PropagateNan.ALL)
    r = root * norm
    # Not a minimum of radii: an overflowed norm then gives NaN, which is noticed, instead of the origin.
    share = tl.minimum(tl.div_rn(max_radius, r), 1.0)
    bounded = r * share
    value, slope = sinhc(bounded * bounded)
    F = value * share
    # Correctly rounded, so that the difference of equal directions is exactly 0.
    return tl.div_rn(v, norm), norm, r, bounded, F, tl.where(r > max_radius, -((F / r) / r), 2.0 * slope)


@jit
def _cosh(a, R):
    """Return cosh a from a >= 0 and R = sinh a. For large a both are equal, and R * R could overflow float32."""
    return tl.where(a > 10.0, tl.abs(R), tl.sqrt_rn(1.0 + R * R))


@jit
def _distance(a, b, R_z, R_g, omega):
    """Return ``cosh d - 1`` and ``sinh(a - b)``, both from the sinh of (a - b)/2."""
    half = 0.5 * (a - b)
    value, _ = sinhc(half * half)
    sinh = half * value
    return 2.0 * sinh * sinh + R_z * R_g * omega, 2.0 * sinh * _cosh(tl.abs(half), sinh)


@jit
def _forward(
    z_pointer, g_pointer, weight_pointer, y_pointer, n, rows, members,
    z_node, z_member, g_node, g_member, weight_step, root, max_radius,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < n)
    z, g, weight = _load(
        z_pointer, g_pointer, weight_pointer, row, column, inside, members, z_node, z_member, g_node, g_member,
        weight_step,
    )  # fmt: skip
    w = tl.abs(weight)
    u, _norm_z, r_z, a, F_z, _H_z = _polar(z, root, max_radius)
    v, _norm_g, r_g, b, F_g, _H_g = _polar(g, root, max_radius)
    omega = 0.5 * tl.sum((u - v) * (u - v), axis=1, keep_dims=True)
    D, _turn = _distance(a, b, F_z * r_z, F_g * r_g, omega)
    c = tl.div_rn(1.0, normaliser(w, D))
    # Equal vectors give their point exactly. (Near the origin, where cosh rounds to 1, D = 0 may be an underflow.)
    equal = (D == 0.0) & (a > 1e-3)
    y = tl.where(equal, F_z, c * F_z) * z + tl.where(equal, 0.0, c * w * F_g) * g
    tl.store(y_pointer + row.to(tl.int64) * n + column, y, mask=inside)


@jit
def _backward(
    z_pointer, g_pointer, weight_pointer, G_pointer, gz_pointer, gg_pointer, gw_pointer, n, rows, members,
    z_node, z_member, g_node, g_member, weight_step, root, max_radius,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < n)
    z, g, weight = _load(
        z_pointer, g_pointer, weight_pointer, row, column, inside, members, z_node, z_member, g_node, g_member,
        weight_step,
    )  # fmt: skip
    place = row.to(tl.int64) * n + column
    G = tl.load(G_pointer + place, mask=inside, other=0.0)
    w, kappa = tl.abs(weight), root * root
    u, norm_z, r_z, a, F_z, H_z = _polar(z, root, max_radius)
    v, norm_g, r_g, b, F_g, H_g = _polar(g, root, max_radius)
    R_z, R_g, apart = F_z * r_z, F_g * r_g, u - v
    omega = 0.5 * tl.sum(apart * apart, axis=1, keep_dims=True)
    D, turn = _distance(a, b, R_z, R_g, omega)
    c = tl.div_rn(1.0, normaliser(w, D))
    Gz, Gg = tl.sum(G * z, axis=1, keep_dims=True), tl.sum(G * g, axis=1, keep_dims=True)
    # c is multiplied step by step: n^3 may overflow float32 where its factors do not.
    h = root * (F_z * Gz + w * F_g * Gg) * c * c * w * c
    D_a = tl.where(r_z > max_radius, 0.0, _cosh(a, R_z) * R_g * omega + turn)
    D_b = tl.where(r_g > max_radius, 0.0, _cosh(b, R_g) * R_z * omega - turn)
    to_z = kappa * H_z * Gz * c + h * (F_z * R_g * omega - D_a) / norm_z
    to_g = kappa * H_g * (w * Gg * c) + h * (F_g * R_z * omega - D_b) / norm_g
    tl.store(gz_pointer + place, (F_z * c) * G + to_z * z - (h * F_z * R_g) * apart, mask=inside)
    tl.store(gg_pointer + place, (w * F_g * c) * G + to_g * g + (h * F_g * R_z) * apart, mask=inside)
    if gw_pointer is not None:
        # G (x - y) from the difference of the directions, which is 0 for equal vectors.
        Gu = Gz / norm_z
        e = tl.where(a == b, 0.0, R_z - R_g) * Gu + R_g * tl.sum(G * apart, axis=1, keep_dims=True)
        ratio = D * c * c
        gw = -(e * ((1.0 + w) * c * c + w * ratio) + (1.0 - w) * ratio * R_z * Gu) * c / root
        sign = tl.where(weight > 0.0, 1.0, tl.where(weight < 0.0, -1.0, 0.0))
        tl.store(gw_pointer + row, sign * gw, mask=row < rows)


# --- 2. Launch --------------------------------------------------------------------------------------------------------


def forward(z: Tensor, g: Tensor, weight: Tensor, *, kappa: float, max_radius: float) -> Tensor:
    """Return points [..., n] for vectors z and g [..., n]; ``weight``: one number, or [S] for vectors [N, S, n]."""
    y = z.new_empty(z.shape)
    _launch(_forward, z, g, weight, kappa, max_radius, y)
    return y


def backward(
    G: Tensor, z: Tensor, g: Tensor, weight: Tensor, *, kappa: float, max_radius: float
) -> tuple[Tensor, Tensor, None]:
    """Return the gradients of z and g, for a weight that is not learned."""
    gz, gg = z.new_empty(z.shape), g.new_empty(g.shape)
    _launch(_backward, z, g, weight, kappa, max_radius, G.contiguous(), gz, gg, None)
    return gz, gg, None


def backward_with_weight(
    G: Tensor, z: Tensor, g: Tensor, weight: Tensor, *, kappa: float, max_radius: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of z, g and the weight. The last one is a sum over rows in a fixed order."""
    gz, gg, gw = z.new_empty(z.shape), g.new_empty(g.shape), z.new_empty(z.shape[:-1])
    _launch(_backward, z, g, weight, kappa, max_radius, G.contiguous(), gz, gg, gw)
    return gz, gg, sum_to(weight.shape, gw)


def _launch(
    kernel: Any, z: Tensor, g: Tensor, weight: Tensor, kappa: float, max_radius: float, *others: Tensor | None
) -> None:
    rows, g_rows = stack_rows(z), stack_rows(g)
    # Small tiles, two rows per warp: the scalars of a row take longer than its coordinates.
    tile = small_tile(z.shape[-1], 512)
    weight_step = 0 if weight.numel() == 1 else weight.stride(0)
    steps = rows.members, rows.node_step, rows.member_step, g_rows.node_step, g_rows.member_step, weight_step
    arguments = rows.tensor, g_rows.tensor, weight, *others, z.shape[-1], rows.total, *steps
    bounds = math.sqrt(kappa), float(max_radius)
    with torch.cuda.device_of(z):
        kernel[tile.grid(rows.total)](*arguments, *bounds, ROWS=tile.rows, BLOCK=tile.block)


# --- 3. The public function -------------------------------------------------------------------------------------------


def fused_join(
    z: Tensor, g: Tensor, weight: Tensor, kappa: float, max_radius: float, formula: Callable[..., Tensor]
) -> Tensor:
    """Return the join of vectors that ``supports_rows`` accepts, differentiable in z, g and the weight.

    ``formula(z, g, weight, kappa, max_radius)`` computes the same in torch operations, for second derivatives.
    """
    gradients = backward_with_weight if weight.requires_grad else backward
    return apply_kernel(forward, gradients, formula, z, g, weight, kappa=kappa, max_radius=max_radius)
