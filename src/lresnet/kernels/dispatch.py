"""The one door to the kernels: the residual of points of any shape, in eager calls and under tracing."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.checks import require_positive, traced
from lresnet.geometry.curvature import Curvature
from lresnet.kernels.rows import from_rows, one_per_row, to_rows

__all__ = ["Affine", "columns", "fused_residual", "is_plain", "scalars"]

Affine = tuple[Tensor, Tensor]


def fused_residual(
    kind: str,
    x: Tensor,
    y: Tensor,
    weight: float | Tensor | None,
    scale: float | Tensor | None,
    kappa: Curvature,
    dim: int,
    x_affine: Affine | None = None,
    y_affine: Affine | None = None,
    relu: bool = False,
) -> Tensor:
    """The residual ``kind`` of points that :func:`~lresnet.kernels.switch.serves` accepts.

    Where the coordinates are contiguous (``dim=-1``, or ``dim=1`` of images in channels_last memory) nothing is
    copied; other layouts are copied into rows first. The result lies in memory like the rows: channels_last stays.
    """
    # Triton is imported with these, on first use: `import lresnet` stays light, and works without it.
    from lresnet.kernels import eager, ops

    factors = *scalars(x, weight, scale, kappa, dim), *columns(x_affine), *columns(y_affine)
    z: Tensor
    if is_plain(x):
        z = eager.EagerResidual.apply(x, y, *factors, kind, relu, dim)  # type: ignore[no-untyped-call]
        return z
    z = ops.residual(to_rows(x, dim), to_rows(y, dim), *factors, kind, relu)
    return from_rows(z, x.shape, dim)


def scalars(
    x: Tensor, weight: float | Tensor | None, scale: float | Tensor | None, kappa: Curvature, dim: int
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Weight, scale and kappa as the kernels take them: float32, one number or one per row."""
    w, gamma = one_per_row(weight, x, dim, "weight"), one_per_row(scale, x, dim, "scale")
    if gamma is not None:
        require_positive(gamma, "scale")
    if isinstance(kappa, Tensor):
        return w, gamma, kappa.to(x.device, torch.float32).reshape(())
    return w, gamma, torch.full((), kappa, dtype=torch.float32, device=x.device)


def columns(affine: Affine | None) -> tuple[Tensor | None, Tensor | None]:
    """Two numbers per channel as the kernels take them."""
    if affine is None:
        return None, None
    a, b = (t.to(torch.float32).contiguous() for t in affine)
    return a, b


def is_plain(x: Tensor) -> bool:
    """Whether nobody traces or counts what happens to x."""
    return not traced() and type(x) in (Tensor, torch.nn.Parameter) and torch._C._len_torch_dispatch_stack() == 0
