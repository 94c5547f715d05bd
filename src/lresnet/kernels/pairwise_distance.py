r"""Geodesic distances of all points of one set to all points of another, as one operator.

With :math:`d = x - y`, :math:`\delta = d \cdot (x + y) / (r_x + r_y)` and the unit directions u, v, the kernel computes
the chord of :mod:`lresnet.geometry.distance`,

.. math:: C = \frac{2 h^2}{1 + \sqrt{1 + \kappa h^2}} + \frac{4 r_x r_y}{(r_x + r_y)^2} |d - \tfrac\delta2 (u + v)|^2,
    \qquad h = \frac{\delta\,(r_x + r_y)}{r_x T_y + r_y T_x} .

A program owns a tile of pairs and loops over the coordinates twice, first for :math:`\delta` and then for the
difference. It subtracts coordinates before it squares them, so float32 is sufficient: the error of a distance is a few
units in the last place, and :math:`\epsilon T` relative for points on nearly one ray. A matrix product would lose
:math:`\epsilon / \theta^2` at small angles :math:`\theta`, and Triton has none in float64.

Bytes moved: forward reads each point once for every tile of the other set and writes each distance once. Backward
reads the distances and their gradients once for each of the two results and recomputes :math:`\delta`:

.. math:: \partial x_i = \sum_j \frac{g_{ij}}{d_{ij} \operatorname{sinhc}(\kappa d_{ij}^2)} \Big(x_i - y_j
    - \frac{\kappa\, (x_i - y_j) \cdot (x_i + y_j)}{(T_i + T_j)\, T_i} x_i \Big) .

Nothing of size [N, M, n] is stored, and sums have a fixed order. The formula is in :mod:`lresnet.geometry.pairwise`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from lresnet.kernels.math import SHORTEST, asinhc, jit, sinhc
from lresnet.kernels.tiles import pairwise_tile

__all__ = ["backward", "forward"]

_COORDINATES = 32  # gradients that a program of the backward pass accumulates, for each of its rows


# --- 1. Kernels -------------------------------------------------------------------------------------------------------
# Points are transposed, [n, N]: a tile's k-th coordinates are adjacent in memory.


@jit
def _inverse(r):
    """Return 1/r, and 1/SHORTEST for shorter norms, whose squares underflow."""
    return tl.div_rn(1.0, tl.maximum(r, SHORTEST))


@jit
def _coordinate(x_pointer, y_pointer, i, j, k, rows, columns, n):
    """Load the k-th coordinates of the points i and j, [ROWS, 1] and [1, COLUMNS]; 0 beyond the n-th."""
    k = tl.zeros((1, 1), dtype=tl.int64) + k
    x = tl.load(x_pointer + k * rows + i, mask=(i < rows) & (k < n), other=0.0)
    return x, tl.load(y_pointer + k * columns + j, mask=(j < columns) & (k < n), other=0.0)


@jit
def _distances(
    x_pointer, y_pointer, r_x_pointer, r_y_pointer, d_pointer, rows, columns, n, kappa,
    CURVED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    j = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    r_x = tl.load(r_x_pointer + i, mask=i < rows, other=0.0)
    r_y = tl.load(r_y_pointer + j, mask=j < columns, other=0.0)
    to_u, to_v = _inverse(r_x), _inverse(r_y)
    squares = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    product = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    apart = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for k in range(n):
        x, y = _coordinate(x_pointer, y_pointer, i, j, k, rows, columns, n)
        squares += (x - y) * (x - y)
        if CURVED:
            product += (x - y) * (x + y)
            turn = x * to_u - y * to_v
            apart += turn * turn
    if CURVED:
        total = tl.maximum(r_x + r_y, SHORTEST)
        delta = tl.div_rn(product, total)
        across = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for k in range(n):
            x, y = _coordinate(x_pointer, y_pointer, i, j, k, rows, columns, n)
            p = (x - y) - 0.5 * delta * (x * to_u + y * to_v)
            across += p * p
        share_x, share_y = tl.div_rn(r_x, total), tl.div_rn(r_y, total)
        T_x, T_y = tl.sqrt_rn(1.0 + kappa * r_x * r_x), tl.sqrt_rn(1.0 + kappa * r_y * r_y)
        h = tl.div_rn(delta, tl.maximum(share_x * T_y + share_y * T_x, 1.0))
        radial = h * tl.div_rn(2.0 * h, 1.0 + tl.sqrt_rn(1.0 + kappa * h * h))
        # as in geometry/distance.py: directions are subtracted where the points are far apart
        near = squares < 0.0625 * total * total
        chord = radial + tl.where(near, 4.0 * share_x * share_y * across, r_x * r_y * apart)
        stretch, _slope = asinhc(0.25 * kappa * chord)
        d = tl.sqrt_rn(chord) * stretch
    else:
        d = tl.sqrt_rn(squares)
    tl.store(d_pointer + i.to(tl.int64) * columns + j, d, mask=(i < rows) & (j < columns))


@jit
def _gradients(
    x_pointer, y_pointer, r_x_pointer, r_y_pointer, g_pointer, d_pointer, gx_pointer, rows, columns, n, kappa,
    g_row, g_column, d_row, d_column,
    CURVED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write BLOCK coordinates of the gradients of ROWS points x, summed over all y."""
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    first = tl.program_id(1) * BLOCK
    place = tl.arange(0, BLOCK)[None, :]
    r_x = tl.load(r_x_pointer + i, mask=i < rows, other=0.0)
    T_x = tl.sqrt_rn(1.0 + kappa * r_x * r_x)
    gx, pull = tl.zeros((ROWS, BLOCK), dtype=tl.float32), tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, columns, COLUMNS):
        j = (start + tl.arange(0, COLUMNS))[None, :]
        inside = (i < rows) & (j < columns)
        row, column = i.to(tl.int64), j.to(tl.int64)
        g = tl.load(g_pointer + row * g_row + column * g_column, mask=inside, other=0.0)
        d = tl.load(d_pointer + row * d_row + column * d_column, mask=inside, other=0.0)
        h = tl.where(d != 0, g / tl.where(d != 0, d, 1.0), 0.0)
        if CURVED:
            stretch, _slope = sinhc(kappa * d * d)
            h /= stretch
            product = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
            for k in range(n):
                x, y = _coordinate(x_pointer, y_pointer, i, j, k, rows, columns, n)
                product += (x - y) * (x + y)
            r_y = tl.load(r_y_pointer + j, mask=j < columns, other=0.0)
            T_y = tl.sqrt_rn(1.0 + kappa * r_y * r_y)
            pull += tl.sum(h * (kappa * product / (T_x + T_y)), axis=1, keep_dims=True)
        for c in range(BLOCK):
            x, y = _coordinate(x_pointer, y_pointer, i, j, first + c, rows, columns, n)
            gx += tl.where(place == c, tl.sum(h * (x - y), axis=1, keep_dims=True), 0.0)
    k = first + place
    own = (i < rows) & (k < n)
    if CURVED:
        gx -= (pull / T_x) * tl.load(x_pointer + k.to(tl.int64) * rows + i, mask=own, other=0.0)
    tl.store(gx_pointer + i.to(tl.int64) * n + k, gx, mask=own)


# --- 2. Launch --------------------------------------------------------------------------------------------------------


def forward(x: Tensor, y: Tensor, *, kappa: float | None) -> Tensor:
    """Return the distances [N, M] of float32 points [N, n] and [M, n]; ``kappa=None`` means Euclidean distances."""
    d, tile = x.new_empty(len(x), len(y)), pairwise_tile()
    with torch.cuda.device_of(x):
        _distances[(*tile.grid(len(x)), triton.cdiv(len(y), tile.block))](
            _transposed(x), _transposed(y), _norms(x), _norms(y), d, *d.shape, x.shape[1], kappa or 0.0,
            CURVED=kappa is not None, ROWS=tile.rows, COLUMNS=tile.block, num_warps=tile.warps,
        )  # fmt: skip
    return d


def backward(
    g: Tensor, x: Tensor, y: Tensor, d: Tensor, *, kappa: float | None, needed: tuple[bool, bool] = (True, True)
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of x and y, given the gradients g of the distances d; None for one that is not needed."""
    gx = _gradient(g, x, y, d, kappa) if needed[0] else None
    gy = _gradient(g.mT, y, x, d.mT, kappa) if needed[1] else None
    return gx, gy


def _gradient(g: Tensor, x: Tensor, y: Tensor, d: Tensor, kappa: float | None) -> Tensor:
    gx, n = torch.empty_like(x, memory_format=torch.contiguous_format), x.shape[1]
    block, tile = min(_COORDINATES, triton.next_power_of_2(n)), pairwise_tile()
    with torch.cuda.device_of(x):
        _gradients[(*tile.grid(len(x)), triton.cdiv(n, block))](
            _transposed(x), _transposed(y), _norms(x), _norms(y), g, d, gx, *d.shape, n, kappa or 0.0,
            *g.stride(), *d.stride(),
            CURVED=kappa is not None, ROWS=tile.rows, COLUMNS=tile.block, BLOCK=block, num_warps=tile.warps,
        )  # fmt: skip
    return gx


def _transposed(x: Tensor) -> Tensor:
    return x.mT.contiguous()


def _norms(x: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float64)
    return norms.float()
