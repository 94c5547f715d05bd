r"""Convolutions of few channels, rewritten so that they keep a GPU's matrix units busy.

**Interleaved images.** With channels_last memory, the pixels (h, w) of G images stored next to each other can be read
in two ways: as G pixels of C channels in an image of width W G, or as one pixel of G C channels. Batch norms, ReLUs and
residuals use the first reading and treat every pixel as before. A convolution uses the second, with the block-diagonal
kernel

.. math:: \begin{pmatrix} w & & \\ & \ddots & \\ & & w \end{pmatrix}

which applies w to each of the G images. The zeros cost nothing where matrix units would multiply padding anyway: on an
H200 in bfloat16, with 512 images of 32 x 32, a 3 x 3 convolution of 8 channels takes 57 us (gradients of input and
weight: 67 and 87). One of 64 channels takes 87 us (86 and 88), which is 11 us for the same amount of data.

**Patches.** The stem of a network reads three channels, but cuDNN's kernels for half precision need at least eight. Its
other kernels spend their time on padding: on an H200 in bfloat16, with 512 images of 32 x 32 and 3 -> 64 channels, the
forward pass takes 229 us and the gradient of the weight 228 us, where the memory traffic takes 17 us. Here the patch
around each pixel is written out, c h w numbers padded to a multiple of 8 (27 to 32), so that both are matrix products.
The patches are kept for the gradient of the weight. They take ten times the memory of the images, which is half of the
output of a stem with 64 channels.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["Conv2d", "deinterleave", "interleave", "interleaved_conv2d", "patch_conv2d", "patches"]

# Least number of channels for cuDNN's kernels for half precision.
_FEW = 8
# Side of the largest kernel whose patches are written out.
_LARGEST_PATCH = 3
# Numbers of 2 bytes in a load of 16 bytes. Rows of a matrix must start at multiples of it.
_ALIGNMENT = 8


class Conv2d(torch.nn.Conv2d):
    """Convolution without a bias, which also accepts interleaved images.

    In half precision on a GPU, a convolution of few input channels is computed as a matrix product of patches.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Side of the square kernel.
        stride: Stride in both directions.
        padding: Zeros added on all sides.

    Shapes:
        [B, in, H, W] -> [B, out, H', W']; with G interleaved images [B / G, in, H, W G] -> [B / G, out, H', W' G]

    Example:
        >>> conv, x = Conv2d(2, 4, 3, padding=1), torch.randn(6, 2, 5, 5)
        >>> torch.allclose(deinterleave(conv(interleave(x, 3), interleaved=3), 3), conv(x), atol=1e-5)
        True
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, bias=False)

    def forward(self, x: Tensor, interleaved: int = 1) -> Tensor:
        """Return the convolution of x, in which ``interleaved`` images are interleaved (:func:`interleave`)."""
        if interleaved > 1:
            return interleaved_conv2d(x, self.weight, interleaved, self.stride, self.padding)  # type: ignore[arg-type]
        if not self.uses_patches(x):
            return super().forward(x)
        if torch.is_autocast_enabled("cuda"):  # convert before the patches are made, which are nine times as large
            x = x.to(torch.get_autocast_dtype("cuda"))
        return patch_conv2d(x, self.weight, self.stride, self.padding)  # type: ignore[arg-type]

    def uses_patches(self, x: Tensor) -> bool:
        """Return whether cuDNN lacks a good kernel for x: few channels in half precision, and no gradient of x."""
        if x.dim() != 4 or x.requires_grad or x.shape[1] != self.in_channels:  # torch reports wrong shapes
            return False
        half = x.dtype in (torch.bfloat16, torch.float16)
        cast = x.dtype == torch.float32 and torch.is_autocast_enabled("cuda")  # autocast leaves float64 unchanged
        few = self.in_channels < _FEW and max(self.kernel_size) <= _LARGEST_PATCH
        return few and self.bias is None and (half or cast) and x.device.type == "cuda"


# --- Interleaved images -----------------------------------------------------------------------------------------------


def interleave(x: Tensor, images: int) -> Tensor:
    """Interleave groups of G = ``images`` images pixel by pixel along the width. G must divide B.

    Shapes:
        [B, C, H, W] -> [B / G, C, H, W G], channels_last

    Example:
        >>> interleave(torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1), 2)
        tensor([[[[1., 2.]]]])
    """
    pixels = x.reshape(-1, images, *x.shape[1:]).permute(0, 3, 4, 1, 2)  # [B / G, H, W, G, C]
    return pixels.contiguous().flatten(2, 3).permute(0, 3, 1, 2)


def deinterleave(x: Tensor, images: int) -> Tensor:
    """Invert :func:`interleave`.

    Shapes:
        [B / G, C, H, W G] -> [B, C, H, W], channels_last

    Example:
        >>> x = torch.randn(6, 3, 4, 5)
        >>> torch.equal(deinterleave(interleave(x, 2), 2), x)
        True
    """
    groups, channels, height, _ = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(groups, height, -1, images, channels).permute(0, 3, 1, 2, 4)
    return pixels.contiguous().flatten(0, 1).permute(0, 3, 1, 2)


def interleaved_conv2d(
    x: Tensor, weight: Tensor, images: int, stride: tuple[int, int] = (1, 1), padding: tuple[int, int] = (0, 0)
) -> Tensor:
    """Return the convolution of each of G = ``images`` interleaved images.

    A value that is not finite spreads to the whole group, because 0 times infinity is NaN.

    Shapes:
        x [B / G, C, H, W G] in channels_last memory, weight [D, C, h, w] -> [B / G, D, H', W' G]
    """
    groups, channels, height, _ = x.shape
    pixels = x.permute(0, 2, 3, 1)
    wide = pixels.reshape(groups, height, -1, images * channels).permute(0, 3, 1, 2)  # a view
    dense = _block_diagonal(weight, images)
    y = torch.nn.functional.conv2d(wide, dense, stride=stride, padding=padding)
    return y.permute(0, 2, 3, 1).reshape(groups, y.shape[2], -1, weight.shape[0]).permute(0, 3, 1, 2)


def _block_diagonal(weight: Tensor, images: int) -> Tensor:
    """Return the block-diagonal kernel [G D, G C, h, w], channels_last: two CUDA kernels, and one for the gradient."""
    copies = weight.permute(0, 2, 3, 1)[..., None].expand(-1, -1, -1, -1, images)
    blocks = torch.diag_embed(copies, dim1=0, dim2=4)  # [G, D, h, w, G, C]
    return blocks.flatten(4, 5).flatten(0, 1).permute(0, 3, 1, 2)


# --- Patches ----------------------------------------------------------------------------------------------------------


def patches(x: Tensor, size: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """Return the patch under the kernel at every position, in the order of a kernel's numbers.

    Shapes:
        [B, C, H, W] -> [B, H', W', C h w]

    Example:
        >>> patches(torch.arange(4.0).reshape(1, 1, 2, 2), (2, 2), (1, 1), (0, 0))
        tensor([[[[0., 1., 2., 3.]]]])
    """
    padded = pad(x, (padding[1], padding[1], padding[0], padding[0])).permute(0, 2, 3, 1)
    return padded.unfold(1, size[0], stride[0]).unfold(2, size[1], stride[1]).flatten(3)


def patch_conv2d(x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """Return ``conv2d(x, weight)`` as matrix products of patches.

    There is one product per image, so that the gradient of the weight is a sum of products over images. A single
    product with all pixels as its inner dimension has a result too small to keep a GPU busy, and may be accumulated in
    half precision.

    Shapes:
        x [B, C, H, W], weight [D, C, h, w] -> [B, D, H', W'], channels_last
    """
    matrix = weight.flatten(1)
    missing = -matrix.shape[1] % _ALIGNMENT
    rows = pad(patches(x, (weight.shape[2], weight.shape[3]), stride, padding), (0, missing))
    columns = pad(matrix, (0, missing)).mT.expand(len(x), -1, -1)
    z = torch.bmm(rows.flatten(1, 2), columns)
    return z.reshape(*rows.shape[:3], len(weight)).permute(0, 3, 1, 2)
