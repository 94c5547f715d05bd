"""The tail of a residual block with its batch norms: statistics, affine maps, residual, scale, ReLU as one operator."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import BatchNorm2d, Module

from lresnet.kernels.dispatch import Affine, columns, is_plain, scalars
from lresnet.kernels.norms import is_known, require_channels, require_pixels, takes_batch_statistics
from lresnet.kernels.rows import from_rows, to_rows
from lresnet.kernels.running import Update, track
from lresnet.kernels.switch import serves
from lresnet.kernels.tail import Kind, fused_tail, require_kind
from lresnet.kernels.tiles import LONGEST_ROW

__all__ = ["norm_tail"]


def norm_tail(
    x: Tensor,
    y: Tensor,
    *,
    branch_norm: Module | None,
    skip_norm: Module | None = None,
    weight: float | Tensor = 1.0,
    scale: float | Tensor | None = None,
    kappa: float | Tensor = 1.0,
    relu: bool = True,
    kind: Kind = "lorentz",
    updates: list[Update] | None = None,
) -> Tensor:
    r""":math:`z = \mathrm{relu}(\gamma\, \mathrm{norm}_x(x) \oplus \mathrm{norm}_y(y))`, pixel by pixel.

    In training the norms' statistics are those of x and y, gradients flow through them, and the running ones are
    updated as the modules themselves would; in evaluation the running ones count. Forward reads each normalised
    tensor once for its statistics, then x and y, and writes z; backward reads x, y and the gradient and writes two,
    then reads two and writes one for each norm. Kept in between: x, y and five numbers per channel.

    Where :func:`~lresnet.kernels.switch.serves` says no, the modules run one by one; so does a norm that is
    no BatchNorm2d with weight and bias, or one in evaluation beside one in training.

    Args:
        x: skip branch [B, C, H, W], the shortcut's convolution if it has one; y: the branch's last convolution.
            channels_last memory is read as it lies.
        branch_norm: the norm of y, skip_norm: that of x; None where there is none.
        weight, scale, kappa, relu, kind: as in :func:`~lresnet.kernels.tail.fused_tail`.
        updates: where to note what :func:`~lresnet.kernels.running.track` is to do later, for a whole network
            at once; None: now.

    Returns:
        [B, C, H, W] in the promoted dtype of x and y.

    Example:
        >>> x, y = torch.zeros(1, 1, 1, 2), torch.tensor([3.0, 5.0]).view(1, 1, 1, 2)
        >>> norm_tail(x, y, branch_norm=torch.nn.BatchNorm2d(1), kind="space").detach().flatten()
        tensor([0.0000, 1.0000])
    """
    require_kind(kind, kappa)
    served = serves(x, y, kappa, dim=1) and x.shape[1] <= LONGEST_ROW
    known = [norm for norm in (skip_norm, branch_norm) if served and is_known(norm)]
    training = [norm for norm in known if takes_batch_statistics(norm)]
    x, skip = _run_unless(training or known, skip_norm, x)
    y, branch = _run_unless(training or known, branch_norm, y)
    if training:
        z, found = _in_training(x, y, skip, branch, weight, scale, kappa, relu, kind)
        if updates is None:
            track(found)
        else:
            updates += found
        return z
    affine = {"x_affine": _running_affine(skip), "y_affine": _running_affine(branch)}
    return fused_tail(x, y, weight, scale, kappa, relu=relu, kind=kind, **affine)


def _run_unless(fused: list[BatchNorm2d], norm: Module | None, points: Tensor) -> tuple[Tensor, BatchNorm2d | None]:
    """The points and the norm that waits for the kernels; or the points after their norm, and None."""
    for one in fused:
        if one is norm:
            require_channels(one, points.shape[1])
            return points, one
    return points if norm is None else norm(points), None


def _in_training(
    x: Tensor,
    y: Tensor,
    skip: BatchNorm2d | None,
    branch: BatchNorm2d | None,
    weight: float | Tensor,
    scale: float | Tensor | None,
    kappa: float | Tensor,
    relu: bool,
    kind: str,
) -> tuple[Tensor, list[Update]]:
    """The operator, with norms that take the batch's statistics, and how to bring their running ones up to date."""
    # Triton is imported with these, on first use: `import lresnet` stays light, and works without it.
    from lresnet.kernels import norm_eager, norm_ops

    require_pixels(x)
    w = weight if kind in ("lorentz", "tangent") else None
    factors = *scalars(x, w, scale, kappa, 1), *columns(_parameters(skip)), *columns(_parameters(branch))
    settings = *(0.0 if norm is None else norm.eps for norm in (skip, branch)), kind, relu
    if is_plain(x):
        z, statistics = norm_eager.EagerNormTail.apply(x, y, *factors, *settings)  # type: ignore[no-untyped-call]
    else:
        z, statistics = norm_ops.norm_tail(to_rows(x, 1), to_rows(y, 1), *factors, *settings)
        z = from_rows(z, x.shape, 1)
    norms = [norm for norm in (branch, skip) if norm is not None]
    return z, [Update(*both) for both in zip(norms, statistics.unbind(0), strict=True)]


def _parameters(norm: BatchNorm2d | None) -> Affine | None:
    return None if norm is None else (norm.weight, norm.bias)


def _running_affine(norm: BatchNorm2d | None) -> Affine | None:
    """(a, b), float32, with ``norm(x) = x a + b`` by the running statistics."""
    if norm is None:
        return None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    a = norm.weight.float() * torch.rsqrt(norm.running_var.float() + norm.eps)
    return a, norm.bias.float() - norm.running_mean.float() * a
