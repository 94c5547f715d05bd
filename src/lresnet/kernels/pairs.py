"""Squared distances of listed pairs (:mod:`lresnet.nn.pair_distance`) without writing down the differences."""
# mypy: ignore-errors
# (Triton's language has the syntax of Python, not its types.)

import torch
import triton
import triton.language as tl
from torch import Tensor

from lresnet.kernels.layout import tile_for

__all__ = ["pairs_backward", "pairs_forward"]


def pairs_forward(z: Tensor, pairs: Tensor, *, kappa: float | None) -> Tensor:
    """[N, n] and [2, P] -> [P]; ``kappa=None``: Euclidean."""
    d2 = z.new_empty(pairs.shape[1])
    _launch(_forward, z, pairs, kappa, d2)
    return d2


def pairs_backward(g: Tensor, z: Tensor, pairs: Tensor, *, kappa: float | None) -> tuple[Tensor, None]:
    """Gradient of z. Rows are added to in any order: the last digits differ from call to call, as with index_add."""
    gz = torch.zeros(z.shape, dtype=z.dtype, device=z.device)
    _launch(_backward, z, pairs, kappa, g.contiguous(), gz)
    return gz, None


def _launch(kernel, z, pairs, kappa, *results):
    z, pairs, tile = z.contiguous(), pairs.contiguous(), tile_for(z.shape[-1])
    least = 0.0 if kappa is None else 1 / kappa
    count = pairs.shape[1]
    with torch.cuda.device_of(z):
        kernel[tile.grid(count)](
            z, pairs, *results, count, z.shape[-1], least, CURVED=kappa is not None, ROWS=tile.rows, BLOCK=tile.block
        )


@triton.jit
def _ends(z_pointer, pairs_pointer, count, n, least, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """For each pair: where its rows start, the points and their times."""
    pair = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (pair < count) & (column < n)
    i = tl.load(pairs_pointer + pair, mask=pair < count, other=0) * n + column
    j = tl.load(pairs_pointer + count + pair, mask=pair < count, other=0) * n + column
    x, y = tl.load(z_pointer + i, mask=inside, other=0.0), tl.load(z_pointer + j, mask=inside, other=0.0)
    x_t = tl.sqrt_rn(tl.sum(x * x, axis=1, keep_dims=True) + least)
    y_t = tl.sqrt_rn(tl.sum(y * y, axis=1, keep_dims=True) + least)
    return pair, inside, i, j, x, y, x_t, y_t


@triton.jit
def _forward(
    z_pointer, pairs_pointer, d2_pointer, count, n, least,
    CURVED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pair, _inside, _i, _j, x, y, x_t, y_t = _ends(z_pointer, pairs_pointer, count, n, least, ROWS, BLOCK)
    d2 = tl.sum((x - y) * (x - y), axis=1, keep_dims=True)
    if CURVED:
        d2 -= (x_t - y_t) * (x_t - y_t)
    tl.store(d2_pointer + pair, d2, mask=pair < count)


@triton.jit
def _backward(
    z_pointer, pairs_pointer, g_pointer, gz_pointer, count, n, least,
    CURVED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pair, inside, i, j, x, y, x_t, y_t = _ends(z_pointer, pairs_pointer, count, n, least, ROWS, BLOCK)
    g = 2.0 * tl.load(g_pointer + pair, mask=pair < count, other=0.0)
    gx, gy = x - y, y - x
    if CURVED:  # the time enters with the other sign
        gx -= ((x_t - y_t) / x_t) * x
        gy -= ((y_t - x_t) / y_t) * y
    # A pair that the margin has let go pulls at nothing.
    pulls = inside & (g != 0)
    tl.atomic_add(gz_pointer + i, g * gx, mask=pulls, sem="relaxed")
    tl.atomic_add(gz_pointer + j, g * gy, mask=pulls, sem="relaxed")
