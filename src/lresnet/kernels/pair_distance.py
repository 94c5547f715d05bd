r"""Squared Lorentzian distances of listed pairs, as one operator that never stores the differences.

.. math:: d_L^2 = |x - y|^2 - (x_t - y_t)^2

Bytes moved: forward reads both points of each pair and writes one number; backward reads them again and adds to two
rows. The formula is ``lorentz_distance2`` in :mod:`lresnet.nn.pair_distance`.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from lresnet.kernels.math import jit
from lresnet.kernels.runtime import apply_kernel
from lresnet.kernels.tiles import small_tile

__all__ = ["backward", "forward", "fused_distance2"]


# --- 1. Kernels -------------------------------------------------------------------------------------------------------


@jit
def _ends(z_pointer, pairs_pointer, count, n, least, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Return, for each pair, the offsets of its two points, the points and their times."""
    pair = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (pair < count) & (column < n)
    i = tl.load(pairs_pointer + pair, mask=pair < count, other=0) * n + column
    j = tl.load(pairs_pointer + count + pair, mask=pair < count, other=0) * n + column
    x, y = tl.load(z_pointer + i, mask=inside, other=0.0), tl.load(z_pointer + j, mask=inside, other=0.0)
    x_t = tl.sqrt_rn(tl.sum(x * x, axis=1, keep_dims=True) + least)
    y_t = tl.sqrt_rn(tl.sum(y * y, axis=1, keep_dims=True) + least)
    return pair, inside, i, j, x, y, x_t, y_t


@jit
def _forward(
    z_pointer, pairs_pointer, d2_pointer, count, n, least,
    CURVED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pair, _inside, _i, _j, x, y, x_t, y_t = _ends(z_pointer, pairs_pointer, count, n, least, ROWS, BLOCK)
    d2 = tl.sum((x - y) * (x - y), axis=1, keep_dims=True)
    if CURVED:
        d2 -= (x_t - y_t) * (x_t - y_t)
    tl.store(d2_pointer + pair, d2, mask=pair < count)


@jit
def _backward(
    z_pointer, pairs_pointer, g_pointer, gz_pointer, count, n, least,
    CURVED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pair, inside, i, j, x, y, x_t, y_t = _ends(z_pointer, pairs_pointer, count, n, least, ROWS, BLOCK)
    g = 2.0 * tl.load(g_pointer + pair, mask=pair < count, other=0.0)
    gx, gy = x - y, y - x
    if CURVED:  # the time has the opposite sign
        gx -= ((x_t - y_t) / x_t) * x
        gy -= ((y_t - x_t) / y_t) * y
    # Pairs beyond the margin have gradient 0 and need no atomic addition.
    pulls = inside & (g != 0)
    tl.atomic_add(gz_pointer + i, g * gx, mask=pulls, sem="relaxed")
    tl.atomic_add(gz_pointer + j, g * gy, mask=pulls, sem="relaxed")


# --- 2. Launch --------------------------------------------------------------------------------------------------------


def forward(z: Tensor, pairs: Tensor, *, kappa: float | None) -> Tensor:
    """Return [P] for points [N, n] and pairs [2, P]; ``kappa=None`` means Euclidean distances."""
    d2 = z.new_empty(pairs.shape[1])
    _launch(_forward, z, pairs, kappa, d2)
    return d2


def backward(g: Tensor, z: Tensor, pairs: Tensor, *, kappa: float | None) -> tuple[Tensor, None]:
    """Return the gradient of z. Rows are summed in any order: the last digits vary between calls, as with index_add."""
    gz = torch.zeros(z.shape, dtype=z.dtype, device=z.device)
    _launch(_backward, z, pairs, kappa, g.contiguous(), gz)
    return gz, None


def _launch(kernel: Any, z: Tensor, pairs: Tensor, kappa: float | None, *results: Tensor) -> None:
    z, pairs, tile = z.contiguous(), pairs.contiguous(), small_tile(z.shape[-1])
    least = 0.0 if kappa is None else 1 / kappa
    count = pairs.shape[1]
    with torch.cuda.device_of(z):
        kernel[tile.grid(count)](
            z, pairs, *results, count, z.shape[-1], least, CURVED=kappa is not None, ROWS=tile.rows, BLOCK=tile.block
        )


# --- 3. The public function -------------------------------------------------------------------------------------------


def fused_distance2(z: Tensor, pairs: Tensor, kappa: float | None, formula: Callable[..., Tensor]) -> Tensor:
    """Return the distances [P] of points z [N, n] that ``supports_rows`` accepts, differentiable in z.

    ``formula(z, pairs, kappa)`` computes the same in torch operations, for second derivatives.
    """
    return apply_kernel(forward, backward, formula, z, pairs, kappa=kappa)
