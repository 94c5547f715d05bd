"""The tail of a residual block of images as one kernel: batch norms' affine maps, residual, scale, ReLU."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from lresnet.kernels.dispatch import Affine, fused_residual
from lresnet.kernels.factors import Factors
from lresnet.kernels.reference import reference
from lresnet.kernels.rows import one_per_row
from lresnet.kernels.switch import serves
from lresnet.kernels.tiles import LONGEST_ROW

__all__ = ["Kind", "fused_tail", "require_kind"]

Kind = Literal["lorentz", "parallel_transport", "tangent", "space"]


def fused_tail(
    x: Tensor,
    y: Tensor,
    weight: float | Tensor = 1.0,
    scale: float | Tensor | None = None,
    kappa: float | Tensor = 1.0,
    y_affine: Affine | None = None,
    x_affine: Affine | None = None,
    relu: bool = True,
    kind: Kind = "lorentz",
) -> Tensor:
    r""":math:`z = \mathrm{relu}(\gamma\, (x a_x + b_x) \oplus (y a_y + b_y))`, pixel by pixel.

    A batch norm is :math:`a = w / \sqrt{\sigma^2 + \epsilon}`, :math:`b = bias - \mu a`; its statistics are computed
    outside, and gradients flow into a and b. Forward reads x and y and writes z; backward reads x, y and the
    gradient and writes two; nothing else is kept.

    Args:
        x: skip branch [B, C, H, W]; y: the branch's last convolution. channels_last memory is read as it lies.
        weight, scale: as in :func:`lresnet.functional.lorentz_residual`; ``scale`` multiplies every kind.
        kappa: -K > 0, a number or a 0-dimensional tensor.
        y_affine, x_affine: (a, b), float32 [C] each, or None.
        relu: whether negative results become 0.
        kind: "lorentz", "parallel_transport", "tangent" or "space"; the weight counts for the first and the third.

    Returns:
        [B, C, H, W] in the promoted dtype of x and y.

    Example:
        >>> x, y = torch.tensor([2.0, -2.0]).view(1, 2, 1, 1), torch.tensor([2.0, 2.0]).view(1, 2, 1, 1)
        >>> fused_tail(x, y).flatten()
        tensor([0.8944, 0.0000])
    """
    for name, affine in (("y_affine", y_affine), ("x_affine", x_affine)):
        _require_affine(name, affine, x.shape[1])
    require_kind(kind, kappa)
    if serves(x, y, kappa, dim=1) and x.shape[1] <= LONGEST_ROW:
        w = weight if kind in ("lorentz", "tangent") else None
        return fused_residual(kind, x, y, w, scale, kappa, 1, x_affine, y_affine, relu)
    wide = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    w, gamma = (one_per_row(t, x, 1, name, wide) for t, name in ((weight, "weight"), (scale, "scale")))
    k = torch.as_tensor(kappa, dtype=wide, device=x.device)
    affines = *(x_affine or (None, None)), *(y_affine or (None, None))
    return reference(x, y, Factors(w, gamma, k, *affines), kind, relu, dim=1)


def require_kind(kind: str, kappa: float | Tensor) -> None:
    """Raise unless there are kernels of this residual and the curvature is one."""
    if kind not in get_args(Kind):
        raise ValueError(f"unknown residual {kind!r}; the kernels know {', '.join(map(repr, get_args(Kind)))}")
    if not isinstance(kappa, Tensor) and not 0 < kappa < math.inf:
        raise ValueError(f"kappa must be positive and finite, got {kappa}: it is -K, minus the curvature")


def _require_affine(name: str, affine: Affine | None, channels: int) -> None:
    for part in affine or ():
        if part.shape != (channels,) or part.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"{name} holds {part.dtype} of shape {tuple(part.shape)}, but needs float32 [{channels}], one number "
                "per channel; convert it, e.g. .float()"
            )
