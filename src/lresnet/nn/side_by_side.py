r"""Images side by side: a convolution of few channels as one of many, which a GPU's matrix units are made for.

With channels last in memory, the pixels (h, w) of G images next to each other are both: G pixels of C channels in an
image of width W G, and one pixel of G C channels. Seen the first way, batch norms, ReLUs and residuals do to every
pixel what they did before; seen the second way, a convolution with the block-diagonal kernel

.. math:: \begin{pmatrix} w & & \\ & \ddots & \\ & & w \end{pmatrix}

does to each of the G images what w does. The zeros cost nothing where matrix units would multiply padding anyway: on
an H200 in bfloat16, 512 images of 32 x 32, a 3 x 3 convolution of 8 channels takes 57 us (gradients of input and
weight: 67 and 87), one of 64 channels 87 us (86 and 88), that is 11 us for as many numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.nn.patches import conv2d_by_patches

__all__ = ["Conv2d", "conv2d_side_by_side", "separate", "side_by_side"]

_FEW = 8  # channels that cuDNN's kernels for half precision ask for


def side_by_side(x: Tensor, images: int) -> Tensor:
    """[B, C, H, W] -> [B / G, C, H, W G], channels last in memory, for G = ``images`` that divides B.

    Example:
        >>> side_by_side(torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1), 2)
        tensor([[[[1., 2.]]]])
    """
    pixels = x.reshape(-1, images, *x.shape[1:]).permute(0, 3, 4, 1, 2)  # [B / G, H, W, G, C]
    return pixels.contiguous().flatten(2, 3).permute(0, 3, 1, 2)


def separate(x: Tensor, images: int) -> Tensor:
    """The way back: [B / G, C, H, W G] -> [B, C, H, W], channels last in memory.

    Example:
        >>> x = torch.randn(6, 3, 4, 5)
        >>> torch.equal(separate(side_by_side(x, 2), 2), x)
        True
    """
    groups, channels, height, _ = x.shape
    pixels = x.permute(0, 2, 3, 1).reshape(groups, height, -1, images, channels).permute(0, 3, 1, 2, 4)
    return pixels.contiguous().flatten(0, 1).permute(0, 3, 1, 2)


def conv2d_side_by_side(
    x: Tensor, weight: Tensor, images: int, stride: tuple[int, int] = (1, 1), padding: tuple[int, int] = (0, 0)
) -> Tensor:
    """The convolution of each of ``images`` images that lie side by side.

    What is not finite in one of them spreads to all: 0 times infinity is not a number.

    Shapes:
        x [B / G, C, H, W G] with channels last in memory, weight [D, C, h, w] -> [B / G, D, H', W' G]
    """
    groups, channels, height, _ = x.shape
    pixels = x.permute(0, 2, 3, 1)
    wide = pixels.reshape(groups, height, -1, images * channels).permute(0, 3, 1, 2)  # the same memory
    dense = _block_diagonal(weight, images)
    y = torch.nn.functional.conv2d(wide, dense, stride=stride, padding=padding)
    return y.permute(0, 2, 3, 1).reshape(groups, y.shape[2], -1, weight.shape[0]).permute(0, 3, 1, 2)


def _block_diagonal(weight: Tensor, images: int) -> Tensor:
    """[D, C, h, w] -> [G D, G C, h, w], channels last in memory: two kernels, and one for the gradient."""
    copies = weight.permute(0, 2, 3, 1)[..., None].expand(-1, -1, -1, -1, images)
    blocks = torch.diag_embed(copies, dim1=0, dim2=4)  # [G, D, h, w, G, C]
    return blocks.flatten(4, 5).flatten(0, 1).permute(0, 3, 1, 2)


class Conv2d(torch.nn.Conv2d):
    """A convolution, without a bias, that may be told that several images lie side by side.

    In half precision on a GPU one of few input channels is a product of matrices (:mod:`lresnet.nn.patches`).

    Example:
        >>> conv, x = Conv2d(2, 4, 3, padding=1), torch.randn(6, 2, 5, 5)
        >>> torch.allclose(separate(conv(side_by_side(x, 3), images=3), 3), conv(x), atol=1e-5)
        True
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, bias=False)

    def forward(self, x: Tensor, images: int = 1) -> Tensor:
        if images > 1:
            return conv2d_side_by_side(x, self.weight, images, self.stride, self.padding)  # type: ignore[arg-type]
        if not self.few_channels(x):
            return super().forward(x)
        if torch.is_autocast_enabled("cuda"):  # before the patches are made, which are nine times as many numbers
            x = x.to(torch.get_autocast_dtype("cuda"))
        return conv2d_by_patches(x, self.weight, self.stride, self.padding)  # type: ignore[arg-type]

    def few_channels(self, x: Tensor) -> bool:
        """Whether this is a convolution that cuDNN has no good kernels for: a stem's, whose input needs no gradient."""
        if x.dim() != 4 or x.requires_grad or x.shape[1] != self.in_channels:  # torch's own says what is wrong, if any
            return False
        half = x.dtype in (torch.bfloat16, torch.float16)
        cast = x.dtype == torch.float32 and torch.is_autocast_enabled("cuda")  # float64 stays what it is
        return self.in_channels < _FEW and self.bias is None and (half or cast) and x.device.type == "cuda"
