"""Multinomial logistic regression on the hyperboloid: the head of HNN++ in Lorentz coordinates."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import checked_points, full_precision, require_features
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.geometry.distance import unit, unitless_time
from lresnet.geometry.stack import times_rows

__all__ = ["LorentzMLR", "hyperplane_sines", "lorentz_mlr"]


def lorentz_mlr(x: Tensor, weight: Tensor, bias: Tensor, *, K: Curvature = -1.0) -> Tensor:
    r"""Return scaled signed distances of x to one hyperplane per class (HNN++, Shimizu et al., ICLR 2021).

    .. math:: v_k = \frac{2 |z_k|}{\sqrt\kappa} \operatorname{asinh}\Big(\sqrt\kappa \frac{x \cdot z_k}{|z_k|}
        \cosh(2 \sqrt\kappa r_k) - \sqrt\kappa x_t \sinh(2 \sqrt\kappa r_k)\Big)

    The form in the Poincare ball divides by :math:`1 - \kappa |p|^2`, which vanishes at the boundary. This form is an
    asinh of a matrix product.

    Args:
        x: Points, [..., n].
        weight: z, one direction per class, [C, n]; of a stack [S, C, n].
        bias: r, one offset per class, [C]; of a stack [S, C].
        K: Curvature, a negative float or tensor.

    Returns:
        Logits, [..., C].
    """
    (points,), dtype = checked_points(x)
    with full_precision(points):
        z, r = weight.to(points.dtype), bias.to(points.dtype)
        kappa = kappa_of(K, points.dtype)
        k = root(kappa)
        direction, norm = unit(z, -1)
        along = times_rows(direction, points)
        sines = hyperplane_sines(along, unitless_time(points, kappa, -1), r, k)
        return (2 / k * norm.squeeze(-1) * sines.asinh()).to(dtype)


def hyperplane_sines(along: Tensor, T: Tensor, bias: Tensor, k: Curvature) -> Tensor:
    r"""Return sinh of the signed distances to hyperplanes, in radii of curvature, [..., C].

    Args:
        along: :math:`x \cdot z_k / |z_k|`, [..., C].
        T: :math:`\sqrt\kappa` times the time of x, [..., 1].
        bias: r, [C].
        k: :math:`\sqrt\kappa`.
    """
    angle = 2 * k * bias
    return k * along * angle.cosh() - T * angle.sinh()


class LorentzMLR(ManifoldModule):
    r"""Classification head: multinomial logistic regression with one trained hyperplane per class (HNN++).

    .. math:: v_k = \frac{2 |z_k|}{\sqrt\kappa} \operatorname{asinh}\Big(\sqrt\kappa \frac{x \cdot z_k}{|z_k|}
        \cosh(2 \sqrt\kappa r_k) - \sqrt\kappa x_t \sinh(2 \sqrt\kappa r_k)\Big)

    Args:
        in_features: Dimension n of the space.
        num_classes: Number of classes C.
        manifold: Owner of the curvature. It is not registered as a submodule.

    Shapes:
        [..., n] -> [..., C]; with the parameters of a stack [N, S, n] -> [N, S, C]

    Example:
        >>> head = LorentzMLR(16, 10, manifold=Lorentz(-1.0))
        >>> head(torch.randn(4, 16)).shape
        torch.Size([4, 10])
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
        self.weight = torch.nn.Parameter(torch.empty(num_classes, in_features, device=device, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.empty(num_classes, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise with half the standard deviation of a linear layer: near the origin the logits are 2 x.z."""
        torch.nn.init.normal_(self.weight, std=0.5 * self.in_features**-0.5)
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        require_features(x, self.in_features, "LorentzMLR")
        return lorentz_mlr(x, self.weight, self.bias, K=self.manifold.curvature)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.num_classes}, {super().extra_repr()}"
