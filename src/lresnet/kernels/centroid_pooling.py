r"""The Lorentzian centroid of an image's pixels, as one operator with one program per image.

With the notation of :mod:`lresnet.geometry.centroid` and weights of 1,

.. math:: c = \frac{s}{n}, \quad n^2 = \kappa \sum_i (t_i - p_i) \sum_i (t_i + p_i), \qquad
    \partial x_i = \tfrac1n [g - \kappa (g \cdot c) (d_i - \tfrac{\tau_i}{t_i} x_i)] .

Sums are in float64, as in that module. Bytes moved: forward reads the pixels and backward reads them and writes their
gradient; the pixels of an image are read again from the cache.
"""

from collections.abc import Callable

import torch
import triton.language as tl
from torch import Tensor

from lresnet.kernels.math import jit
from lresnet.kernels.pooling import image_sizes, image_tile
from lresnet.kernels.runtime import apply_kernel, launch

__all__ = ["backward", "forward", "fused_centroid_pool"]

_HELD = 4096  # float64 numbers that a program holds in registers at a time


# --- 1. Kernels -------------------------------------------------------------------------------------------------------


@jit
def _pixels(x_pointer, begin, pixels, n, kappa, PIXELS: tl.constexpr, BLOCK: tl.constexpr):
    """Load PIXELS pixels of the program's image: x, its time, and whether the pixel exists."""
    pixel = (begin + tl.arange(0, PIXELS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    first = tl.program_id(0).to(tl.int64) * pixels * n
    x = tl.load(x_pointer + first + pixel * n + column, mask=(pixel < pixels) & (column < n), other=0.0).to(tl.float64)
    return x, tl.sqrt(tl.sum(x * x, axis=1, keep_dims=True) + 1.0 / kappa), pixel < pixels


@jit
def _centroid(x_pointer, pixels, n, kappa, PIXELS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the centroid [1, BLOCK] and the norm of the sum [1, 1]."""
    total = tl.zeros((PIXELS, BLOCK), tl.float64)
    for begin in range(0, pixels, PIXELS):
        x, _t, _here = _pixels(x_pointer, begin, pixels, n, kappa, PIXELS, BLOCK)
        total += x
    s = tl.sum(total, axis=0, keep_dims=True)
    length = tl.sqrt(tl.sum(s * s, axis=1, keep_dims=True))
    u = s / tl.where(length > 0.0, length, 1.0)
    minus, plus = tl.zeros((PIXELS, 1), tl.float64), tl.zeros((PIXELS, 1), tl.float64)
    for begin in range(0, pixels, PIXELS):
        x, t, here = _pixels(x_pointer, begin, pixels, n, kappa, PIXELS, BLOCK)
        p = tl.sum(x * u, axis=1, keep_dims=True)
        across = x - p * u
        far = t + tl.abs(p)
        near = (tl.sum(across * across, axis=1, keep_dims=True) + 1.0 / kappa) / far
        minus += tl.where(here, tl.where(p > 0.0, near, far), 0.0)
        plus += tl.where(here, tl.where(p > 0.0, far, near), 0.0)
    squared = kappa * tl.sum(minus, axis=0, keep_dims=True) * tl.sum(plus, axis=0, keep_dims=True)
    norm = tl.sqrt(squared)
    return s / norm, norm


@jit
def _forward(x_pointer, z_pointer, pixels, n, kappa_high, kappa_low, PIXELS: tl.constexpr, BLOCK: tl.constexpr):
    kappa = tl.full((1, 1), kappa_high, tl.float64) + tl.full((1, 1), kappa_low, tl.float64)
    c, _norm = _centroid(x_pointer, pixels, n, kappa, PIXELS, BLOCK)
    column = tl.arange(0, BLOCK)[None, :]
    tl.store(z_pointer + tl.program_id(0).to(tl.int64) * n + column, c.to(tl.float32), mask=column < n)


@jit
def _backward(
    g_pointer, x_pointer, gx_pointer, pixels, n, kappa_high, kappa_low, PIXELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    kappa = tl.full((1, 1), kappa_high, tl.float64) + tl.full((1, 1), kappa_low, tl.float64)
    c, norm = _centroid(x_pointer, pixels, n, kappa, PIXELS, BLOCK)
    column = tl.arange(0, BLOCK)[None, :]
    image = tl.program_id(0).to(tl.int64)
    g = tl.load(g_pointer + image * n + column, mask=column < n, other=0.0).to(tl.float64)
    time = tl.sqrt(tl.sum(c * c, axis=1, keep_dims=True) + 1.0 / kappa)
    along = kappa * tl.sum(g * c, axis=1, keep_dims=True)
    for begin in range(0, pixels, PIXELS):
        x, t, here = _pixels(x_pointer, begin, pixels, n, kappa, PIXELS, BLOCK)
        d = x - c
        tau = tl.sum(d * (x + c), axis=1, keep_dims=True) / (t + time)
        gx = (g - along * (d - tau / t * x)) / norm
        place = gx_pointer + image * pixels * n + (begin + tl.arange(0, PIXELS))[:, None] * n + column
        tl.store(place, gx.to(tl.float32).to(gx_pointer.dtype.element_ty), mask=here & (column < n))


# --- 2. Launch --------------------------------------------------------------------------------------------------------


def forward(x: Tensor, *, kappa: float) -> Tensor:
    """Return [B, C] in float32 for images [B, C, H, W] in channels_last memory."""
    z = x.new_empty(x.shape[:2], dtype=torch.float32)
    with torch.cuda.device_of(x):
        launch(_forward, (x.shape[0],), x, z, *image_sizes(x), *_split(kappa), **image_tile(x, _HELD))
    return z


def backward(g: Tensor, x: Tensor, *, kappa: float) -> tuple[Tensor]:
    """Return the gradient of x, in the memory format of x."""
    gx = torch.empty_like(x)
    with torch.cuda.device_of(x):
        arguments = g.contiguous(), x, gx, *image_sizes(x), *_split(kappa)
        launch(_backward, (x.shape[0],), *arguments, **image_tile(x, _HELD))
    return (gx,)


def _split(kappa: float) -> tuple[float, float]:
    """Return two float32 numbers with the sum kappa: Triton passes numbers in float32."""
    high = float(torch.tensor(kappa, dtype=torch.float32, device="cpu"))  # regardless of torch.set_default_device
    return high, kappa - high


# --- 3. The public function -------------------------------------------------------------------------------------------


def fused_centroid_pool(x: Tensor, kappa: float, formula: Callable[..., Tensor]) -> Tensor:
    """Return one point per image, [B, C], for channels_last images of at most ``LONGEST_ROW`` channels.

    ``formula(x, kappa)`` computes the same in torch operations, for second derivatives.
    """
    return apply_kernel(forward, backward, formula, x, kappa=kappa)
