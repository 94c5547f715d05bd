"""The tail of a residual block of images as one kernel: batch norms' affine maps, residual, scale, ReLU."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lresnet.residual.kernels.dispatch import fused_residual
from lresnet.residual.kernels.factors import Factors
from lresnet.residual.kernels.reference import reference
from lresnet.residual.kernels.switch import serves

__all__ = ["Affine", "fused_tail"]

Affine = tuple[Tensor, Tensor]
Kind = Literal["lorentz", "parallel_transport", "tangent", "space"]

# Channels up to which a pixel fits into registers.
_MOST_CHANNELS = 8192


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
    _require_affine("y_affine", y_affine, y)
    _require_affine("x_affine", x_affine, x)
    if serves(x, y, kappa, dim=1) and x.shape[1] <= _MOST_CHANNELS:
        w = weight if kind in ("lorentz", "tangent") else None
        return fused_residual(kind, x, y, w, scale, -kappa, 1, x_affine, y_affine, relu)
    wide = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32)
    w, gamma, k = (
        None if t is None else torch.as_tensor(t, dtype=wide, device=x.device) for t in (weight, scale, kappa)
    )
    affines = *(x_affine or (None, None)), *(y_affine or (None, None))
    return reference(x, y, Factors(w, gamma, k, *affines), kind, relu, dim=1)  # type: ignore[arg-type]


def _require_affine(name: str, affine: Affine | None, x: Tensor) -> None:
    if affine is None:
        return
    for part in affine:
        if part.dim() != 1 or part.shape[0] != x.shape[1] or part.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"{name} has shape {tuple(part.shape)} and dtype {part.dtype}, but needs float32 [{x.shape[1]}], "
                "one number per channel; convert it, e.g. .float()"
            )
