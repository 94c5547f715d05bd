r"""The mean of an image's pixels in the Poincare ball, as one operator with one program per image.

With the notation of :func:`lresnet.nn.pooling.poincare_mean`, :math:`w_i = 1 + T_i`, N pixels, and g the gradient of z,

.. math:: \dot m = \frac{2 g}{gap}, \quad \dot\gamma = -\frac{g \cdot z}{gap}, \quad
    \dot p_i = \frac{\dot m + 2 \kappa \dot\gamma (p_i - \bar p)}{N}, \quad
    \dot w_i = -\frac{2 \dot\gamma / N + \dot p_i \cdot x_i}{w_i^2}, \quad
    \partial x_i = \frac{\dot p_i}{w_i} + \dot w_i \frac{\kappa x_i}{T_i} .

The mean's own part in the variance is 0: deviations from a mean sum to zero.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from lresnet.geometry.curvature import Curvature
from lresnet.kernels.math import jit
from lresnet.kernels.runtime import apply_kernel, launch

__all__ = ["backward", "forward", "fused_poincare_mean", "image_sizes", "image_tile"]

_HELD = 8192  # numbers that a program holds in registers at a time


# --- 1. Kernels -------------------------------------------------------------------------------------------------------


@jit
def _pixels(x_pointer, begin, pixels, n, kappa, PIXELS: tl.constexpr, BLOCK: tl.constexpr):
    """Load PIXELS pixels of the program's image: x, its T, and whether the pixel exists (if not: 0 and 1)."""
    pixel = (begin + tl.arange(0, PIXELS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    first = tl.program_id(0).to(tl.int64) * pixels * n
    x = tl.load(x_pointer + first + pixel * n + column, mask=(pixel < pixels) & (column < n), other=0.0).to(tl.float32)
    return x, tl.sqrt_rn(1.0 + kappa * tl.sum(x * x, axis=1, keep_dims=True)), pixel < pixels


@jit
def _mean_and_gap(x_pointer, pixels, n, kappa, PIXELS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean in the ball [1, BLOCK], and 1 - kappa |mean|^2 as a sum of non-negative terms [1, 1]."""
    p_sum, gap = tl.zeros((PIXELS, BLOCK), tl.float32), tl.zeros((PIXELS, 1), tl.float32)
    for begin in range(0, pixels, PIXELS):
        x, T, here = _pixels(x_pointer, begin, pixels, n, kappa, PIXELS, BLOCK)
        p_sum += x / (1.0 + T)
        gap += tl.where(here, 2.0 / (1.0 + T), 0.0)
    mean = tl.sum(p_sum, axis=0, keep_dims=True) / pixels
    for begin in range(0, pixels, PIXELS):
        x, T, here = _pixels(x_pointer, begin, pixels, n, kappa, PIXELS, BLOCK)
        apart = x / (1.0 + T) - mean
        gap += tl.where(here, kappa * tl.sum(apart * apart, axis=1, keep_dims=True), 0.0)
    return mean, tl.sum(gap, axis=0, keep_dims=True) / pixels


@jit
def _forward(x_pointer, z_pointer, pixels, n, kappa, PIXELS: tl.constexpr, BLOCK: tl.constexpr):
    mean, gap = _mean_and_gap(x_pointer, pixels, n, kappa, PIXELS, BLOCK)
    column = tl.arange(0, BLOCK)[None, :]
    tl.store(z_pointer + tl.program_id(0).to(tl.int64) * n + column, 2.0 * mean / gap, mask=column < n)


@jit
def _backward(
    g_pointer, x_pointer, gx_pointer, pixels, n, kappa, PIXELS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    mean, gap = _mean_and_gap(x_pointer, pixels, n, kappa, PIXELS, BLOCK)
    column = tl.arange(0, BLOCK)[None, :]
    g = tl.load(g_pointer + tl.program_id(0).to(tl.int64) * n + column, mask=column < n, other=0.0)
    g_mean = 2.0 * g / gap
    g_gap = -tl.sum(g_mean * mean, axis=1, keep_dims=True) / gap
    first = tl.program_id(0).to(tl.int64) * pixels * n
    for begin in range(0, pixels, PIXELS):
        x, T, here = _pixels(x_pointer, begin, pixels, n, kappa, PIXELS, BLOCK)
        w = 1.0 + T
        g_p = (g_mean + 2.0 * kappa * g_gap * (x / w - mean)) / pixels
        g_w = -(2.0 * g_gap / pixels + tl.sum(g_p * x, axis=1, keep_dims=True)) / (w * w)
        gx = g_p / w + g_w * kappa * x / T
        place = gx_pointer + first + (begin + tl.arange(0, PIXELS))[:, None] * n + column
        tl.store(place, gx.to(gx_pointer.dtype.element_ty), mask=here & (column < n))


# --- 2. Launch --------------------------------------------------------------------------------------------------------


def forward(x: Tensor, *, kappa: float) -> Tensor:
    """Return [B, C] in float32 for images [B, C, H, W] in channels_last memory."""
    z = x.new_empty(x.shape[:2], dtype=torch.float32)
    with torch.cuda.device_of(x):
        launch(_forward, (x.shape[0],), x, z, *image_sizes(x), kappa, **image_tile(x, _HELD))
    return z


def backward(g: Tensor, x: Tensor, *, kappa: float) -> tuple[Tensor]:
    """Return the gradient of x, in the memory format of x."""
    gx = torch.empty_like(x)
    with torch.cuda.device_of(x):
        launch(_backward, (x.shape[0],), g.contiguous(), x, gx, *image_sizes(x), kappa, **image_tile(x, _HELD))
    return (gx,)


def image_sizes(x: Tensor) -> tuple[int, int]:
    """Return the numbers of pixels and of channels."""
    return x.shape[2] * x.shape[3], x.shape[1]


def image_tile(x: Tensor, held: int) -> dict[str, Any]:
    """Return the options of a kernel with one program per image, which holds ``held`` numbers at a time."""
    pixels, channels = (1 << (size - 1).bit_length() for size in image_sizes(x))
    pixels = min(pixels, max(1, held // channels))
    return {"PIXELS": pixels, "BLOCK": channels, "num_warps": 8 if pixels * channels >= 4096 else 4}


# --- 3. The public function -------------------------------------------------------------------------------------------


def fused_poincare_mean(x: Tensor, kappa: Curvature, formula: Callable[..., Tensor]) -> Tensor:
    """Return one point per image, [B, C], for channels_last images of at most ``LONGEST_ROW`` channels.

    ``formula(x, kappa)`` computes the same in torch operations, for second derivatives.
    """
    return apply_kernel(forward, backward, formula, x, kappa=kappa)
