"""The block that a lorentz_resnet is built of, and whether a network is built of nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.kernels import supports_pair
from lresnet.nn.batch_norm import RunningUpdate, norm_relu, norm_tail
from lresnet.nn.side_by_side import Conv2d
from lresnet.residual.base import Residual
from lresnet.residual.space import NoResidual

__all__ = ["ResidualBlock", "is_as_built"]

_NORMS = (torch.nn.BatchNorm2d, torch.nn.SyncBatchNorm)


class ResidualBlock(torch.nn.Module):
    r"""The basic block of He et al. with the sum replaced: :math:`\mathrm{ReLU}(s(x) \oplus f(x))`.

    The branch f is conv3x3 (stride) - BN - ReLU - conv3x3 - BN; the shortcut s is the identity, or conv1x1 (stride) -
    BN where the shape changes. No convolution has a bias: a batch norm follows.

    Shapes:
        [B, in_channels, H, W] -> [B, out_channels, ceil(H / stride), ceil(W / stride)]
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, residual: Residual) -> None:
        super().__init__()
        self.conv1 = Conv2d(in_channels, out_channels, 3, stride, padding=1)
        self.bn1 = torch.nn.BatchNorm2d(out_channels)
        self.conv2 = Conv2d(out_channels, out_channels, 3, padding=1)
        self.bn2 = torch.nn.BatchNorm2d(out_channels)
        self.residual = residual
        self.shortcut = torch.nn.Sequential()
        if (stride != 1 or in_channels != out_channels) and not isinstance(residual, NoResidual):
            self.shortcut.append(_Pointwise(in_channels, out_channels, 1, stride))
            self.shortcut.append(torch.nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor, images: int = 1, updates: list[RunningUpdate] | None = None) -> Tensor:
        """``images`` of them lie side by side in x (:mod:`lresnet.nn.side_by_side`).

        ``updates``: see :func:`lresnet.nn.batch_norm.norm_relu`.
        """
        branch = self.conv2(norm_relu(self.conv1(x, images), self.bn1, updates), images)
        skip = self.shortcut[0](x, images) if len(self.shortcut) else x
        return self.join(skip, branch) if updates is None else self.join(skip, branch, updates)

    def join(self, skip: Tensor, branch: Tensor, updates: list[RunningUpdate] | None = None) -> Tensor:
        """All that comes after the block's convolutions: both batch norms, the residual with its scale, ReLU.

        One operator where there are kernels for this residual and these tensors.
        """
        kernel = self.residual.kernel()
        norm = self.shortcut[1] if len(self.shortcut) else None
        if kernel is not None and supports_pair(skip, branch, dim=1):
            return norm_tail(skip, branch, branch_norm=self.bn2, skip_norm=norm, updates=updates, **kernel)
        skip = skip if norm is None else norm(skip)
        return torch.relu(self.residual(skip, self.bn2(branch)))


class _Pointwise(Conv2d):
    """A 1 x 1 convolution with a stride; on a CPU the pixels it looks at are picked out first.

    oneDNN does so itself, but where pixels have fewer channels than a vector register (8 in the small ResNets), its
    gradient of the weight writes past the end of its memory: wrong numbers, or a crash (uxlfoundation/oneDNN, issue
    6035). Without a stride it does not.
    """

    def forward(self, x: Tensor, images: int = 1) -> Tensor:
        if x.device.type != "cpu" or images > 1:
            return super().forward(x, images)
        down, right = self.stride
        return torch.nn.functional.conv2d(x[:, :, ::down, ::right], self.weight, self.bias)  # a fused norm gives a bias


def is_as_built(stem: torch.nn.Module, blocks: torch.nn.Module) -> bool:
    """Whether these are the parts that a network is built of, in their order, and nobody looks over their shoulder.

    Another kind of module, a class derived from ours, a ``forward`` of its own, a hook or a compiled part is a reason
    to call stem and blocks as they are: they may do something else, or expect other arguments or shapes.
    """
    if type(stem) is not torch.nn.Sequential or type(blocks) is not torch.nn.Sequential:
        return False
    if (
        len(stem) != 3
        or type(stem[0]) is not Conv2d
        or type(stem[1]) not in _NORMS
        or type(stem[2]) is not torch.nn.ReLU
    ):
        return False
    parts = [module for part in (stem, blocks) for module in part.modules()]
    return all(type(block) is ResidualBlock for block in blocks) and all(map(_is_untouched, parts))


def _is_untouched(module: torch.nn.Module) -> bool:
    known = type(module) in (*_NORMS, torch.nn.Sequential, torch.nn.ReLU, Conv2d, _Pointwise, ResidualBlock)
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    own = "forward" in module.__dict__ or module._compiled_call_impl is not None
    return (known or isinstance(module, Residual)) and not hooks and not own
