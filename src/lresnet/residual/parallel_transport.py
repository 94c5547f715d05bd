"""The parallel-transport residual, which is a Lorentz boost."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import maps
from lresnet.geometry.checks import checked_points, in_range
from lresnet.geometry.curvature import Curvature, kappa_among, kappa_of
from lresnet.kernels import supports_pair
from lresnet.kernels.formulas import register_formula
from lresnet.residual.base import Residual

__all__ = ["ParallelTransportResidual", "ReversedParallelTransportResidual", "parallel_transport_residual"]


def parallel_transport_residual(x: Tensor, y: Tensor, *, K: Curvature = -1.0, dim: int = -1) -> Tensor:
    r"""Return :math:`x \oplus_P y = \exp_x P_{o \to x} \log_o y` in closed form (:func:`lresnet.geometry.maps.boost`).

    It is not commutative: ``parallel_transport_residual(y, x)`` is the other direction.

    Args:
        x, y, K, dim: As for :func:`lresnet.functional.lorentz_residual`.

    Example:
        >>> import torch
        >>> parallel_transport_residual(torch.tensor([2.0, -2.0]), torch.tensor([2.0, 2.0]))
        tensor([ 8., -4.])
    """
    if supports_pair(x, y, K, dim=dim):
        from lresnet.kernels.residual import fused_residual

        return fused_residual("parallel_transport", x, y, None, None, kappa_of(K, torch.float32), dim)
    points, dtype = checked_points(x, y, dim=dim)
    (x, y), kappa = kappa_among(points, K, dim)
    return in_range(maps.boost, x, y, kappa, dim).to(dtype)


@register_formula("parallel_transport")
def _formula(x: Tensor, y: Tensor, weight: float | Tensor, scale: Tensor | None, K: Tensor, dim: int) -> Tensor:
    z = parallel_transport_residual(x, y, K=K, dim=dim)
    return z if scale is None else z * scale


class ParallelTransportResidual(Residual):
    """Lorentz boost of y by x (:func:`lresnet.functional.parallel_transport_residual`)."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return parallel_transport_residual(x, y, K=self.manifold.curvature, dim=self.dim)

    def kernel(self) -> dict[str, Any] | None:
        return {"kind": "parallel_transport", "kappa": -self.manifold.curvature}


class ReversedParallelTransportResidual(Residual):
    """Lorentz boost of x by y: parallel transport in the other direction."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return parallel_transport_residual(y, x, K=self.manifold.curvature, dim=self.dim)
