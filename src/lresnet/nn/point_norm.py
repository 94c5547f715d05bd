"""RMS norm and layer norm of the space coordinates of points."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import require_features, require_points

__all__ = ["LorentzLayerNorm", "LorentzRMSNorm"]


class LorentzRMSNorm(ManifoldModule):
    r"""RMS norm of the space coordinates: every point moves along the geodesic through the origin to a learned radius.

    .. math:: y_s = g \odot \sqrt n\, x_s / |x_s|

    With g = 1 all points have the distance :math:`\operatorname{asinh}(\sqrt{\kappa n})/\sqrt\kappa` from the origin.
    The norm commutes with rotations about the origin if all g are equal, not with boosts. It is computed in float32 or
    wider; a point at the origin stays there.

    Args:
        features: Dimension n of the space.
        eps: Added to the mean square of the coordinates.
        manifold: Owner of the curvature, on which the space coordinates do not depend.

    Shapes:
        [..., n] -> [..., n]

    Example:
        >>> norm = LorentzRMSNorm(2, manifold=Lorentz(-1.0))
        >>> norm(torch.tensor([3.0, 4.0])).detach()
        tensor([0.8485, 1.1314])
    """

    saves_curvature = False

    def __init__(
        self,
        features: int,
        eps: float = 1e-6,
        *,
        manifold: Lorentz,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        _require_norm(features, eps)
        self.features, self.eps = features, eps
        self.weight = torch.nn.Parameter(torch.ones(features, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        require_features(require_points(x), self.features, type(self).__name__)
        wide = torch.promote_types(x.dtype, torch.float32)
        rows = torch.nn.functional.rms_norm(x.to(wide), (self.features,), self.weight.to(wide), self.eps)
        return rows.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.features}, eps={self.eps:g}"


class LorentzLayerNorm(ManifoldModule):
    r"""Layer norm of the space coordinates, :math:`y_s = g \odot (x_s - \bar x)/\sigma + b`.

    The mean over the coordinates of a point has no meaning on the hyperboloid; :class:`LorentzRMSNorm` needs none. Use
    this one to convert networks that have layer norms.

    Args:
        features: Dimension n of the space.
        eps: Added to the variance.
        bias: Whether there is a b.
        manifold: Owner of the curvature, on which the space coordinates do not depend.

    Shapes:
        [..., n] -> [..., n]

    Example:
        >>> LorentzLayerNorm(8, manifold=Lorentz(-1.0))(torch.randn(5, 8)).shape
        torch.Size([5, 8])
    """

    saves_curvature = False

    def __init__(
        self,
        features: int,
        eps: float = 1e-5,
        bias: bool = True,
        *,
        manifold: Lorentz,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        _require_norm(features, eps)
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.features, self.eps = features, eps
        self.weight = torch.nn.Parameter(torch.ones(features, **place))
        self.bias = torch.nn.Parameter(torch.zeros(features, **place)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        require_features(require_points(x), self.features, type(self).__name__)
        wide = torch.promote_types(x.dtype, torch.float32)
        bias = None if self.bias is None else self.bias.to(wide)
        rows = torch.nn.functional.layer_norm(x.to(wide), (self.features,), self.weight.to(wide), bias, self.eps)
        return rows.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.features}, eps={self.eps:g}, bias={self.bias is not None}"


def _require_norm(features: int, eps: float) -> None:
    if features < 1 or not eps > 0:
        raise ValueError(f"features must be at least 1 and eps above 0, got {features} and {eps}")
