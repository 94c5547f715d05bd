"""Batch norms of a residual block, fused with the operations that follow: ReLU, or residual, scale and ReLU.

On CUDA each function is one operator of :mod:`lresnet.kernels`. Elsewhere torch's modules and the formulas of the
residuals run, with the same results.
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor
from torch.nn import BatchNorm2d, Module

from lresnet.kernels import supports_pair
from lresnet.kernels.formulas import require_kind, tail_formula, takes_weight
from lresnet.kernels.runtime import is_eager
from lresnet.kernels.tiles import LONGEST_RESIDUAL_ROW, MEAN, VARIANCE, Affine, one_per_row
from lresnet.nn.plain_modules import is_plain
from lresnet.residual.registry import RESIDUALS

__all__ = ["RunningUpdate", "is_plain_norm", "norm_relu", "norm_tail", "residual_tail", "update_running_statistics"]

# Import every residual: its file registers the formula of its kernel.
_RESIDUALS = tuple(RESIDUALS.values())


def norm_relu(x: Tensor, norm: Module, updates: list[RunningUpdate] | None = None) -> Tensor:
    """Return ``relu(norm(x))`` of images [B, C, H, W].

    A BatchNorm2d in training runs as one kernel; otherwise torch's modules run. The kernel reads x twice and writes z;
    backward reads x and the gradient twice and writes one. It saves x and five numbers per channel.

    Args:
        x: Images.
        norm: Any norm of images.
        updates: List to append the update of the running statistics to, so that :func:`update_running_statistics` can
            perform those of a whole network at once. None: update immediately.

    Example:
        >>> norm_relu(torch.tensor([3.0, 5.0]).view(1, 1, 1, 2), torch.nn.BatchNorm2d(1)).detach().flatten()
        tensor([0.0000, 1.0000])
    """
    if x.dim() != 4 or not (is_plain_norm(norm) and _uses_batch_statistics(norm) and supports_pair(x, x, dim=1)):
        z: Tensor = norm(x)
        # A batch norm of torch returns new memory, and its backward pass does not read its result.
        return z.relu_() if is_plain_norm(norm) and is_eager(z) else z.relu()
    from lresnet.kernels.norm_relu import fused_norm_relu

    _require_channels(norm, x.shape[1])
    _require_pixels(x)
    z, statistics = fused_norm_relu(x, norm.weight, norm.bias, norm.eps)
    update = RunningUpdate(norm, statistics)
    if updates is None:
        update_running_statistics([update])
    else:
        updates.append(update)
    return z


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
    kind: str = "lorentz",
    updates: list[RunningUpdate] | None = None,
) -> Tensor:
    r"""Return :math:`z = \mathrm{relu}(\gamma\, \mathrm{norm}_x(x) \oplus \mathrm{norm}_y(y))`, pixel by pixel.

    In training the norms use the statistics of x and y, gradients flow through them, and the running statistics are
    updated as by the modules. In evaluation the norms use the running statistics. The kernel reads each normalised
    tensor once for its statistics, then x and y, and writes z; backward reads x, y and the gradient and writes two,
    then reads two and writes one for each norm. It saves x, y and five numbers per channel.

    Where :func:`~lresnet.kernels.supports_pair` returns False, the modules run one by one. So does a norm that is not a
    BatchNorm2d with weight and bias, and a norm in evaluation if the other one is in training.

    Args:
        x: Skip branch [B, C, H, W], the output of the shortcut's convolution if it has one.
        y: Output of the branch's last convolution. channels_last memory is read without a copy.
        branch_norm, skip_norm: The norms of y and of x, or None.
        weight, scale, kappa, relu, kind: As in :func:`residual_tail`.
        updates: As in :func:`norm_relu`.

    Returns:
        [B, C, H, W] in the promoted dtype of x and y.

    Example:
        >>> x, y = torch.zeros(1, 1, 1, 2), torch.tensor([3.0, 5.0]).view(1, 1, 1, 2)
        >>> norm_tail(x, y, branch_norm=torch.nn.BatchNorm2d(1), kind="space").detach().flatten()
        tensor([0.0000, 1.0000])
    """
    require_kind(kind, kappa)
    supported = supports_pair(x, y, kappa, dim=1) and x.shape[1] <= LONGEST_RESIDUAL_ROW
    known = [norm for norm in (skip_norm, branch_norm) if supported and is_plain_norm(norm)]
    training = [norm for norm in known if _uses_batch_statistics(norm)]
    x, skip = _run_unless_fused(training or known, skip_norm, x)
    y, branch = _run_unless_fused(training or known, branch_norm, y)
    if training:
        z, found = _tail_in_training(x, y, skip, branch, weight, scale, kappa, relu, kind)
        if updates is None:
            update_running_statistics(found)
        else:
            updates += found
        return z
    affine = {"x_affine": _running_affine(skip), "y_affine": _running_affine(branch)}
    return residual_tail(x, y, weight, scale, kappa, relu=relu, kind=kind, **affine)


def residual_tail(
    x: Tensor,
    y: Tensor,
    weight: float | Tensor = 1.0,
    scale: float | Tensor | None = None,
    kappa: float | Tensor = 1.0,
    y_affine: Affine | None = None,
    x_affine: Affine | None = None,
    relu: bool = True,
    kind: str = "lorentz",
) -> Tensor:
    r"""Return :math:`z = \mathrm{relu}(\gamma\, (x a_x + b_x) \oplus (y a_y + b_y))`, pixel by pixel.

    A batch norm is :math:`a = w / \sqrt{\sigma^2 + \epsilon}`, :math:`b = bias - \mu a`. The caller computes its
    statistics, and gradients flow into a and b. The kernel reads x and y and writes z; backward reads x, y and the
    gradient and writes two. It saves x and y only.

    Args:
        x: Skip branch [B, C, H, W].
        y: Output of the branch's last convolution. channels_last memory is read without a copy.
        weight, scale: As in :func:`lresnet.functional.lorentz_residual`; ``scale`` multiplies every kind.
        kappa: -K > 0, a number or a 0-dimensional tensor.
        y_affine, x_affine: (a, b), float32 [C] each, or None.
        relu: Whether to apply a ReLU.
        kind: "lorentz", "parallel_transport", "tangent" or "space"; only the first and the third use the weight.

    Returns:
        [B, C, H, W] in the promoted dtype of x and y.

    Example:
        >>> x, y = torch.tensor([2.0, -2.0]).view(1, 2, 1, 1), torch.tensor([2.0, 2.0]).view(1, 2, 1, 1)
        >>> residual_tail(x, y).flatten()
        tensor([0.8944, 0.0000])
    """
    for name, affine in (("y_affine", y_affine), ("x_affine", x_affine)):
        _require_affine(name, affine, x.shape[1])
    require_kind(kind, kappa)
    if supports_pair(x, y, kappa, dim=1) and x.shape[1] <= LONGEST_RESIDUAL_ROW:
        from lresnet.kernels.residual import fused_residual

        w = weight if takes_weight(kind) else None
        return fused_residual(kind, x, y, w, scale, kappa, 1, x_affine, y_affine, relu)
    wide = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    w, gamma = (one_per_row(t, x, 1, name, wide) for t, name in ((weight, "weight"), (scale, "scale")))
    k = torch.as_tensor(kappa, dtype=wide, device=x.device)
    (a_x, b_x), (a_y, b_y) = x_affine or (None, None), y_affine or (None, None)
    return tail_formula(x, y, w, gamma, k, a_x, b_x, a_y, b_y, kind, relu, dim=1)


# --- Running statistics -----------------------------------------------------------------------------------------------


class RunningUpdate(NamedTuple):
    """A norm and the statistics of a batch, with which its running statistics are updated."""

    norm: BatchNorm2d
    statistics: Tensor
    """[5, n]; :mod:`lresnet.kernels.tiles` lists the rows."""


@torch.no_grad()
def update_running_statistics(updates: list[RunningUpdate]) -> None:
    """Update mean, unbiased variance and number of batches of the norms, as the modules would do themselves.

    A network updates all its norms in one call: the compiler makes one or two kernels of it, instead of two per norm.
    """
    wanted = [update for update in updates if update.norm.training and update.norm.track_running_stats]
    first, again = _first_of_each(wanted)
    if not first:
        return
    torch._foreach_add_([norm.num_batches_tracked for norm, _ in first], 1)  # type: ignore[misc]
    for momentum in dict.fromkeys(norm.momentum for norm, _ in first):
        some = [update for update in first if update.norm.momentum == momentum]
        if momentum is None:
            for update in some:
                _average(*update)
            continue
        running = [buffer for norm, _ in some for buffer in (norm.running_mean, norm.running_var)]
        found = [row for _, statistics in some for row in (statistics[MEAN], statistics[VARIANCE])]
        torch._foreach_mul_(running, 1 - momentum)  # type: ignore[arg-type]
        torch._foreach_add_(running, found, alpha=momentum)  # type: ignore[arg-type]
    update_running_statistics(again)


def _first_of_each(updates: list[RunningUpdate]) -> tuple[list[RunningUpdate], list[RunningUpdate]]:
    """Split into the first update of each norm and the rest: a norm that is used twice needs them in sequence."""
    norms: list[BatchNorm2d] = []
    first: list[RunningUpdate] = []
    again: list[RunningUpdate] = []
    for update in updates:
        seen = any(update.norm is norm for norm in norms)
        (again if seen else first).append(update)
        norms.append(update.norm)
    return first, again


def _average(norm: BatchNorm2d, statistics: Tensor) -> None:
    """Update a norm without momentum: its running statistics are means over all batches."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    share = 1 / norm.num_batches_tracked
    # Products and sums instead of lerp_: Triton 3.6 cannot always compile what inductor (torch 2.11) makes of lerp_.
    norm.running_mean.mul_(1 - share).add_(share * statistics[MEAN])
    norm.running_var.mul_(1 - share).add_(share * statistics[VARIANCE])


# --- Norms that the kernels support -----------------------------------------------------------------------------------


def is_plain_norm(norm: Module | None) -> TypeGuard[BatchNorm2d]:
    """Return whether the kernels compute this norm: a BatchNorm2d with weight and bias and without hooks.

    A subclass may compute something else, and a norm with hooks or a replaced ``forward`` must be called.
    """
    if type(norm) is not BatchNorm2d or any(getattr(norm, name) is None for name in ("weight", "bias")):
        return False
    if norm.track_running_stats and (norm.running_mean is None or norm.num_batches_tracked is None):
        return False  # a removed buffer: torch's own code handles it
    return is_plain(norm)


def _uses_batch_statistics(norm: BatchNorm2d) -> bool:
    """Return whether the norm uses the statistics of the batch, as in training, instead of running ones."""
    return norm.training or norm.running_mean is None


def _run_unless_fused(
    fused: list[BatchNorm2d], norm: Module | None, points: Tensor
) -> tuple[Tensor, BatchNorm2d | None]:
    """Return the points and the norm if the kernel computes it; otherwise the normalised points and None."""
    for one in fused:
        if one is norm:
            _require_channels(one, points.shape[1])
            return points, one
    return points if norm is None else norm(points), None


def _tail_in_training(
    x: Tensor,
    y: Tensor,
    skip: BatchNorm2d | None,
    branch: BatchNorm2d | None,
    weight: float | Tensor,
    scale: float | Tensor | None,
    kappa: float | Tensor,
    relu: bool,
    kind: str,
) -> tuple[Tensor, list[RunningUpdate]]:
    """Run the operator with norms that use the statistics of the batch; return z and the running updates."""
    from lresnet.kernels.norm_tail import fused_norm_tail

    _require_pixels(x)
    w = weight if takes_weight(kind) else None
    eps = 0.0 if skip is None else skip.eps, 0.0 if branch is None else branch.eps
    z, statistics = fused_norm_tail(x, y, w, scale, kappa, _parameters(skip), _parameters(branch), eps, kind, relu)
    norms = [norm for norm in (branch, skip) if norm is not None]
    return z, [RunningUpdate(*both) for both in zip(norms, statistics.unbind(0), strict=True)]


def _parameters(norm: BatchNorm2d | None) -> Affine | None:
    return None if norm is None else (norm.weight, norm.bias)


def _running_affine(norm: BatchNorm2d | None) -> Affine | None:
    """Return (a, b), float32, with ``norm(x) = x a + b`` by the running statistics."""
    if norm is None:
        return None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    a = norm.weight.float() * torch.rsqrt(norm.running_var.float() + norm.eps)
    return a, norm.bias.float() - norm.running_mean.float() * a


def _require_channels(norm: BatchNorm2d, channels: int) -> None:
    """Raise if the images have another number of channels than the norm."""
    if norm.num_features != channels:
        raise ValueError(
            f"a batch norm of {norm.num_features} channels got {channels}; make it BatchNorm2d({channels})"
        )


def _require_pixels(x: Tensor) -> None:
    """Raise if there is a single pixel, which has no variance."""
    count = x.numel() // x.shape[1]
    if count < 2:
        raise ValueError(f"batch norm in training needs more than one pixel per channel, got {count}; use eval()")


def _require_affine(name: str, affine: Affine | None, channels: int) -> None:
    for part in affine or ():
        if part.shape != (channels,) or part.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"{name} holds {part.dtype} of shape {tuple(part.shape)}, but needs float32 [{channels}], one number "
                "per channel; convert it, e.g. .float()"
            )
