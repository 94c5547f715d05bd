"""Blocks of lorentz_resnet: two 3 x 3 convolutions or a bottleneck, with a residual connection instead of a sum."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import BatchNorm2d, MaxPool2d, Module, ReLU, Sequential, SyncBatchNorm

from lresnet.kernels import supports_pair
from lresnet.kernels.cpu_tail import cpu_tail, supports_cpu_tail
from lresnet.nn.batch_norm import RunningUpdate, is_plain_norm, norm_relu, norm_tail
from lresnet.nn.conv2d import Conv2d
from lresnet.nn.plain_modules import is_plain
from lresnet.residual.base import Residual
from lresnet.residual.space import NoResidual

__all__ = ["Block", "BottleneckBlock", "Pointwise", "ResidualBlock", "is_unmodified"]

_NORMS = (BatchNorm2d, SyncBatchNorm)
_VECTOR = 16  # float32 numbers in the widest vector register


class Block(Module):
    r"""What all blocks have in common: the shortcut s, and the join of shortcut and branch f.

    .. math:: y = \mathrm{relu}(s(x) \oplus f(x))

    The shortcut is the identity, or if the shape changes conv1x1 (stride) - BN.
    """

    expansion: ClassVar[int]
    """Output channels of a block of width 1."""
    residual: Residual
    shortcut: Sequential

    @property
    def last_norm(self) -> Module:
        """The norm at the end of the branch."""
        raise NotImplementedError

    def branch(self, x: Tensor, interleaved: int, updates: list[RunningUpdate] | None) -> Tensor:
        """Return the output of the branch's last convolution; the arguments are those of :meth:`forward`."""
        raise NotImplementedError

    def forward(self, x: Tensor, interleaved: int = 1, updates: list[RunningUpdate] | None = None) -> Tensor:
        """Return the block's output.

        Args:
            x: Images, of which ``interleaved`` are interleaved (:mod:`lresnet.nn.conv2d`).
            interleaved: Number of interleaved images.
            updates: See :func:`lresnet.nn.batch_norm.norm_relu`.
        """
        branch = self.branch(x, interleaved, updates)
        skip = self.shortcut[0](x, interleaved) if len(self.shortcut) else x
        return self.join(skip, branch) if updates is None else self.join(skip, branch, updates)

    def join(self, skip: Tensor, branch: Tensor, updates: list[RunningUpdate] | None = None) -> Tensor:
        """Apply all operations after the convolutions: both batch norms, the residual with its scale, and the ReLU.

        They are one operator if there is a kernel for this residual and these tensors.
        """
        kernel = self.residual.kernel()
        norm = self.shortcut[1] if len(self.shortcut) else None
        if kernel is not None and supports_pair(skip, branch, dim=1):
            return norm_tail(skip, branch, branch_norm=self.last_norm, skip_norm=norm, updates=updates, **kernel)
        skip = skip if norm is None else norm(skip)
        branch = self.last_norm(branch)
        is_lorentz = kernel is not None and kernel.pop("kind") == "lorentz" and is_plain(self.residual)
        if kernel is not None and is_lorentz and supports_cpu_tail(skip, branch, *kernel.values()):
            return cpu_tail(skip, branch, overwrite=is_plain_norm(self.last_norm), **kernel)
        return torch.relu(self.residual(skip, branch))

    def _add_shortcut(self, in_channels: int, out_channels: int, stride: int) -> None:
        self.shortcut = Sequential()
        if (stride != 1 or in_channels != out_channels) and not isinstance(self.residual, NoResidual):
            self.shortcut.append(Pointwise(in_channels, out_channels, 1, stride))
            self.shortcut.append(BatchNorm2d(out_channels))


class ResidualBlock(Block):
    r"""Basic block of He et al. (CVPR 2016) with a residual connection in place of the sum.

    .. math:: y = \mathrm{relu}(s(x) \oplus f(x))

    The branch f is conv3x3 (stride) - BN - ReLU - conv3x3 - BN. The shortcut s is the identity, or if the shape changes
    conv1x1 (stride) - BN. The convolutions have no bias, since a batch norm follows.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        stride: Stride of the first convolution and of the shortcut.
        residual: Residual connection with ``dim=1``.

    Shapes:
        [B, in_channels, H, W] -> [B, out_channels, ceil(H / stride), ceil(W / stride)]

    Example:
        >>> from lresnet import Lorentz, make_residual
        >>> block = ResidualBlock(8, 16, 2, make_residual("lorentz", Lorentz(-1.0), dim=1))
        >>> block(torch.randn(2, 8, 32, 32)).shape
        torch.Size([2, 16, 16, 16])
    """

    expansion = 1

    def __init__(self, in_channels: int, out_channels: int, stride: int, residual: Residual) -> None:
        super().__init__()
        self.conv1 = Conv2d(in_channels, out_channels, 3, stride, padding=1)
        self.bn1 = BatchNorm2d(out_channels)
        self.conv2 = Conv2d(out_channels, out_channels, 3, padding=1)
        self.bn2 = BatchNorm2d(out_channels)
        self.residual = residual
        self._add_shortcut(in_channels, out_channels, stride)

    @property
    def last_norm(self) -> Module:
        return self.bn2

    def branch(self, x: Tensor, interleaved: int, updates: list[RunningUpdate] | None) -> Tensor:
        y: Tensor = norm_relu(self.conv1(x, interleaved), self.bn1, updates)
        return self.conv2(y, interleaved)  # type: ignore[no-any-return]


class BottleneckBlock(Block):
    r"""Bottleneck block of He et al. (CVPR 2016) with a residual connection in place of the sum.

    .. math:: y = \mathrm{relu}(s(x) \oplus f(x))

    The branch f is conv1x1 - BN - ReLU - conv3x3 (stride) - BN - ReLU - conv1x1 - BN. The stride is in the 3 x 3
    convolution ("v1.5", as in torchvision and timm); the paper has it in the first one, which then skips three of four
    pixels. The shortcut s is that of :class:`ResidualBlock`. The weight of the last norm is 0 at first, as in timm: the
    branch starts at the origin (why: the docstring of lresnet.models.resnet).

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output, a multiple of 4. The 3 x 3 convolution has a quarter of them.
        stride: Stride of the 3 x 3 convolution and of the shortcut.
        residual: Residual connection with ``dim=1``.

    Shapes:
        [B, in_channels, H, W] -> [B, out_channels, ceil(H / stride), ceil(W / stride)]

    Example:
        >>> from lresnet import Lorentz, make_residual
        >>> block = BottleneckBlock(8, 32, 2, make_residual("lorentz", Lorentz(-1.0), dim=1))
        >>> block(torch.randn(2, 8, 14, 14)).shape
        torch.Size([2, 32, 7, 7])
    """

    expansion = 4

    def __init__(self, in_channels: int, out_channels: int, stride: int, residual: Residual) -> None:
        super().__init__()
        width = out_channels // self.expansion
        self.conv1 = Conv2d(in_channels, width, 1)
        self.bn1 = BatchNorm2d(width)
        self.conv2 = Conv2d(width, width, 3, stride, padding=1)
        self.bn2 = BatchNorm2d(width)
        self.conv3 = Conv2d(width, out_channels, 1)
        self.bn3 = BatchNorm2d(out_channels)
        if not isinstance(residual, NoResidual):  # without a skip branch all pixels would be 0, for ever
            torch.nn.init.zeros_(self.bn3.weight)
        self.residual = residual
        self._add_shortcut(in_channels, out_channels, stride)

    @property
    def last_norm(self) -> Module:
        return self.bn3

    def branch(self, x: Tensor, interleaved: int, updates: list[RunningUpdate] | None) -> Tensor:
        y: Tensor = norm_relu(self.conv1(x, interleaved), self.bn1, updates)
        y = norm_relu(self.conv2(y, interleaved), self.bn2, updates)
        return self.conv3(y, interleaved)  # type: ignore[no-any-return]


class Pointwise(Conv2d):
    """1 x 1 convolution with a stride, which on a CPU selects the pixels before the convolution.

    oneDNN would select them itself. But where pixels have fewer channels than a vector register (8 in the small
    ResNets), its gradient of the weight writes past the end of its memory, with wrong numbers or a crash
    (uxlfoundation/oneDNN, issue 6035). Without a stride it does not. Where the channels fill whole registers, oneDNN
    selects the pixels.
    """

    def forward(self, x: Tensor, interleaved: int = 1) -> Tensor:
        if x.device.type != "cpu" or interleaved > 1:
            return super().forward(x, interleaved)
        down, right = self.stride
        if self.in_channels % _VECTOR == 0:
            return super().forward(x)
        # The bias is not None if a norm has been fused into the convolution.
        return torch.nn.functional.conv2d(x[:, :, ::down, ::right], self.weight, self.bias)


_BLOCKS = (ResidualBlock, BottleneckBlock)
_AFTER_THE_NORM = ([ReLU], [ReLU, MaxPool2d])  # in the stem


def is_unmodified(stem: Module, blocks: Module) -> bool:
    """Return whether stem and blocks are unmodified: our classes in order, no hook, replaced forward or compiled part.

    Any other part may compute something else, or expect other arguments or shapes, so it has to be called as usual.
    """
    if type(stem) is not Sequential or type(blocks) is not Sequential:
        return False
    kinds: list[type[Module]] = [type(part) for part in stem]
    if kinds[:1] != [Conv2d] or kinds[1] not in _NORMS or kinds[2:] not in _AFTER_THE_NORM:
        return False
    parts = [module for part in (stem, blocks) for module in part.modules()]
    return all(type(block) in _BLOCKS for block in blocks) and all(map(_is_unmodified, parts))


def _is_unmodified(module: Module) -> bool:
    known = type(module) in (*_NORMS, *_BLOCKS, Sequential, ReLU, MaxPool2d, Conv2d, Pointwise)
    return (known or isinstance(module, Residual)) and is_plain(module)
