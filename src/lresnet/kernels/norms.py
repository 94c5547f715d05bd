"""Which batch norms the kernels compute, and with which statistics."""

from __future__ import annotations

from typing import TypeGuard

from torch import Tensor
from torch.nn import BatchNorm2d, Module

__all__ = ["is_known", "require_channels", "require_pixels", "takes_batch_statistics"]


def is_known(norm: Module | None) -> TypeGuard[BatchNorm2d]:
    """Whether the kernels compute it. A class derived from BatchNorm2d may mean something else; a hook wants a call."""
    if type(norm) is not BatchNorm2d or any(getattr(norm, name) is None for name in ("weight", "bias")):
        return False
    if "forward" in norm.__dict__:  # somebody put another in its place
        return False
    if norm.track_running_stats and (norm.running_mean is None or norm.num_batches_tracked is None):
        return False  # somebody took them away; torch's own code knows what to do
    return not (norm._forward_hooks or norm._forward_pre_hooks or norm._backward_hooks or norm._backward_pre_hooks)


def takes_batch_statistics(norm: BatchNorm2d) -> bool:
    """Whether its statistics are those of the batch, as in training, and not running ones."""
    return norm.training or norm.running_mean is None


def require_channels(norm: BatchNorm2d, channels: int) -> None:
    """Refuse images with another number of channels than the norm has."""
    if norm.num_features != channels:
        raise ValueError(
            f"a batch norm of {norm.num_features} channels got {channels}; make it BatchNorm2d({channels})"
        )


def require_pixels(x: Tensor) -> None:
    """Refuse a single pixel: it has no variance."""
    count = x.numel() // x.shape[1]
    if count < 2:
        raise ValueError(f"batch norm in training needs more than one pixel a channel, got {count}; use eval()")
