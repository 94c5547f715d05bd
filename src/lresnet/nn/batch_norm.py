"""A batch norm as the affine map that it is, for kernels that apply it on their way."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["batch_norm_affine"]


def batch_norm_affine(norm: torch.nn.BatchNorm2d, x: Tensor) -> tuple[Tensor, Tensor]:
    r"""(a, b), float32 ``[C]``, with :math:`\mathrm{norm}(x) = x a + b` channel by channel.

    .. math:: a = \frac{w}{\sqrt{\sigma^2 + \epsilon}}, \qquad b = \beta - \mu a

    In training the mean and variance are those of ``x``, gradients flow through them, and the running statistics are
    updated as the module itself would; in evaluation they are the running ones.

    Args:
        norm: with weight, bias and running statistics.
        x: ``[B, C, H, W]``; half precision is summed in float32.

    Example:
        >>> norm, x = torch.nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4)
        >>> a, b = batch_norm_affine(norm, x)
        >>> torch.allclose(x * a.view(3, 1, 1) + b.view(3, 1, 1), torch.nn.BatchNorm2d(3)(x), atol=1e-6)
        True
    """
    assert norm.running_mean is not None
    assert norm.running_var is not None
    if norm.training:
        variance, mean = torch.var_mean(x.to(torch.promote_types(x.dtype, torch.float32)), (0, 2, 3), correction=0)
        _track(norm, mean.detach(), variance.detach(), x.numel() // x.shape[1])
    else:
        mean, variance = norm.running_mean, norm.running_var
    a = norm.weight * torch.rsqrt(variance + norm.eps)
    return a, norm.bias - mean * a


@torch.no_grad()
def _track(norm: torch.nn.BatchNorm2d, mean: Tensor, variance: Tensor, count: int) -> None:
    """The running variance is the unbiased one, as torch has it."""
    if count < 2:
        raise ValueError(f"batch norm in training needs more than one pixel a channel, got {count}; use eval()")
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    share = 1 / norm.num_batches_tracked if norm.momentum is None else norm.momentum
    # Not lerp_: what inductor (torch 2.11) makes of it in a reduction, Triton 3.6 does not compile.
    norm.running_mean.copy_((1 - share) * norm.running_mean + share * mean)
    norm.running_var.copy_((1 - share) * norm.running_var + share * (variance * (count / (count - 1))))
