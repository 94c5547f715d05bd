"""Class prototypes: one point of the manifold per class, learned by Riemannian optimisation."""

from __future__ import annotations

import geoopt
import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import prepare, require_features
from lresnet.geometry.curvature import kappa_of
from lresnet.nn.prototype_distance import prototype_logits

__all__ = ["Prototypes"]


class Prototypes(ManifoldModule):
    r"""Logits :math:`-d_L^2(x, v_k) + \beta_k` with the squared Lorentzian distance
    :math:`d_L^2 = \langle x - v, x - v\rangle = \frac2\kappa (\cosh d - 1)` (Law et al. 2019; HyboNet's decoder).

    The prototypes are a :class:`geoopt.ManifoldParameter`: give them to a Riemannian optimiser.

    Args:
        in_features: n, the dimension of the space.
        num_classes: C.
        manifold: owner of the curvature; referred to, not registered.

    Shapes:
        [..., n] -> [..., C]

    Example:
        >>> head = Prototypes(16, 7, manifold=Lorentz(-1.0))
        >>> head(torch.randn(4, 16)).shape
        torch.Size([4, 7])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        manifold: Lorentz,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        self.in_features, self.num_classes = in_features, num_classes
        start = torch.zeros(num_classes, in_features, device=device, dtype=dtype)
        self.points = geoopt.ManifoldParameter(start, manifold=manifold)
        self.bias = torch.nn.Parameter(torch.zeros(num_classes, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Random directions at a distance of about one radius of curvature from the origin."""
        kappa = self.manifold.kappa.detach()
        # On the meta device there are no values, neither to read nor to write.
        std = 1.0 if kappa.is_meta else (self.in_features * float(kappa)) ** -0.5
        torch.nn.init.normal_(self.points, std=std)
        self.points.copy_(self.manifold.expmap0(self.points))
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        (points,), dtype = prepare(x)
        require_features(points, self.in_features, "Prototypes")
        kappa = kappa_of(self.manifold.curvature, points.dtype)
        prototypes, bias = self.points.to(points.dtype), self.bias.to(points.dtype)
        return prototype_logits(points, prototypes, bias, kappa).to(dtype)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.num_classes}, {super().extra_repr()}"
