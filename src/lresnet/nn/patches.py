"""A convolution of few input channels as one product of matrices: what a GPU is fast at, and cuDNN is not there.

A stem reads three channels. cuDNN's kernels for half precision want eight or more, and those that it falls back on
spend their time on padding: on an H200 in bfloat16, 512 images of 32 x 32, 3 -> 64 channels, 229 us forward and 228 us
for the gradient of the weight, where the memory they move takes 17 us. With the neighbourhood of a pixel written out,
c h w numbers that are padded to a multiple of 8 (27 to 32), both are products of matrices. These numbers are kept for
the gradient of the weight, ten times as many as the images have: half of what a stem of 64 channels puts out.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["conv2d_by_patches", "patches"]

_ALIGNED = 8  # numbers of 2 bytes that one load of 16 bytes takes: rows of a matrix have to begin at such places


def patches(x: Tensor, size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """The neighbourhood of every pixel, [B, C, H, W] -> [B, H', W', C h w], in the order of a kernel's numbers.

    Example:
        >>> patches(torch.arange(4.0).reshape(1, 1, 2, 2), (2, 2), (1, 1), (0, 0))
        tensor([[[[0., 1., 2., 3.]]]])
    """
    around = pad(x, (padding[1], padding[1], padding[0], padding[0])).permute(0, 2, 3, 1)
    return around.unfold(1, size[0], stride[0]).unfold(2, size[1], stride[1]).flatten(3)


def conv2d_by_patches(x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """``conv2d(x, weight)``, channels last in memory.

    A product for each image, so that the weight's gradient is a sum over images of products, not one product whose
    inner side is all pixels: that has a result too small to keep a GPU busy, and may be added up in half precision.

    Shapes:
        x [B, C, H, W], weight [D, C, h, w] -> [B, D, H', W']
    """
    matrix = weight.flatten(1)
    missing = -matrix.shape[1] % _ALIGNED
    rows = pad(patches(x, (weight.shape[2], weight.shape[3]), stride, padding), (0, missing))
    columns = pad(matrix, (0, missing)).mT.expand(len(x), -1, -1)
    z = torch.bmm(rows.flatten(1, 2), columns)
    return z.reshape(*rows.shape[:3], len(weight)).permute(0, 3, 1, 2)
