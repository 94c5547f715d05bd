"""Global pooling of images whose pixels are points, [B, C, H, W], to one point per image, [B, C]."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry import ManifoldModule
from lresnet.geometry.centroid import centroid
from lresnet.geometry.checks import prepare, traced
from lresnet.geometry.curvature import Curvature, kappa_of
from lresnet.geometry.distance import unitless_time
from lresnet.kernels import supports_pair
from lresnet.kernels.tiles import LONGEST_ROW

__all__ = ["CentroidPool", "PoincareMean", "SpaceMean", "centroid_pool", "poincare_mean", "space_mean"]


def poincare_mean(x: Tensor, *, K: Curvature = -1.0) -> Tensor:
    r"""Return the Euclidean mean of the pixels in the Poincare ball, mapped to the hyperboloid (the paper's pooling).

    With :math:`T_i = \sqrt{1 + \kappa |x_i|^2}`, the pixels :math:`p_i = x_i/(1 + T_i)` in the ball and their mean
    :math:`\bar p`,

    .. math:: z = \frac{2 \bar p}{1 - \kappa |\bar p|^2}, \qquad
        1 - \kappa |\bar p|^2 = \frac1N \sum_i \Big(\frac{2}{1 + T_i} + \kappa |p_i - \bar p|^2\Big).

    The left side vanishes at the boundary of the ball, where it is a difference of nearly equal numbers. The right
    side, the mean of :math:`1 - \kappa |p_i|^2` plus :math:`\kappa` times the variance, has only non-negative terms.

    Args:
        x: Points, [B, C, H, W]; axis 1 holds the C space coordinates of a pixel. There may be one or more pixel axes.
        K: Curvature, a negative float or tensor (gradients flow into a tensor).

    Returns:
        [B, C], in float32 or wider: heads compute in float32, and one point per image takes little memory.

    Example:
        >>> poincare_mean(torch.tensor([2.0, -2.0]).reshape(1, 2, 1, 1))
        tensor([[ 2., -2.]])
    """
    if _has_kernel(x, K):
        from lresnet.kernels.pooling import fused_poincare_mean

        return fused_poincare_mean(x, kappa_of(K, torch.float32), _plain_mean)
    points = _pixels(x)
    return _ball_mean(points, kappa_of(K, points.dtype))


def _plain_mean(x: Tensor, kappa: Curvature) -> Tensor:
    return _ball_mean(_pixels(x), kappa)


def _ball_mean(points: Tensor, kappa: Curvature) -> Tensor:
    width = 1 + unitless_time(points, kappa, -1)
    p = points / width
    mean = p.mean(-2, keepdim=True)
    gap = (2 / width + kappa * (p - mean).square().sum(-1, keepdim=True)).mean(-2)
    return 2 * mean.squeeze(-2) / gap


def centroid_pool(x: Tensor, *, K: Curvature = -1.0) -> Tensor:
    r"""Return the Lorentzian centroid of the pixels, :math:`\sum_i x_i / (\sqrt\kappa |\sum_i x_i|)`.

    The norm is the Lorentzian one. Arguments and result are those of :func:`poincare_mean`.

    Example:
        >>> centroid_pool(torch.tensor([[2.0, 2.0], [-2.0, 2.0]]).reshape(1, 2, 1, 2))
        tensor([[0.8944, 0.0000]])
    """
    points = _pixels(x)
    weight = torch.ones_like(points[..., :1])
    return centroid(points, weight, kappa_of(K, points.dtype))


def space_mean(x: Tensor) -> Tensor:
    """Return the mean of the space coordinates in float32 or wider, the pooling of the Euclidean baseline.

    It does not commute with isometries.
    """
    return _pixels(x).mean(-2)


class PoincareMean(ManifoldModule):
    r"""Global pooling by the mean in the Poincare ball, as in the paper (:func:`poincare_mean`).

    .. math:: z = \frac{2 \bar p}{1 - \kappa |\bar p|^2}, \qquad \bar p = \frac1N \sum_i \frac{x_i}{1 + T_i}

    Args:
        manifold: Owner of the curvature. It is not registered as a submodule.

    Shapes:
        [B, C, H, W] -> [B, C]

    Example:
        >>> from lresnet import Lorentz
        >>> PoincareMean(Lorentz(-1.0))(torch.randn(4, 16, 8, 8)).shape
        torch.Size([4, 16])
    """

    def forward(self, x: Tensor) -> Tensor:
        return poincare_mean(x, K=self.manifold.curvature)


class CentroidPool(ManifoldModule):
    r"""Global pooling by the Lorentzian centroid (:func:`centroid_pool`), which commutes with isometries.

    .. math:: z = \frac{\sum_i x_i}{\sqrt\kappa |\sum_i x_i|}

    Args:
        manifold: Owner of the curvature. It is not registered as a submodule.

    Shapes:
        [B, C, H, W] -> [B, C]

    Example:
        >>> from lresnet import Lorentz
        >>> CentroidPool(Lorentz(-1.0))(torch.randn(4, 16, 8, 8)).shape
        torch.Size([4, 16])
    """

    def forward(self, x: Tensor) -> Tensor:
        return centroid_pool(x, K=self.manifold.curvature)


class SpaceMean(ManifoldModule):
    r"""Global pooling by the mean of the space coordinates (:func:`space_mean`), independent of the curvature.

    .. math:: z = \frac1N \sum_i x_i

    Args:
        manifold: Accepted like those of the other poolings, but not used.

    Shapes:
        [B, C, H, W] -> [B, C]

    Example:
        >>> from lresnet import Lorentz
        >>> SpaceMean(Lorentz(-1.0))(torch.randn(4, 16, 8, 8)).shape
        torch.Size([4, 16])
    """

    def forward(self, x: Tensor) -> Tensor:
        return space_mean(x)


def _has_kernel(x: Tensor, K: Curvature) -> bool:
    """Return whether :mod:`lresnet.kernels.pooling` supports these images. Compilers fuse the formula themselves."""
    if traced() or isinstance(K, Tensor) or not supports_pair(x, x, dim=1) or x.dim() != 4 or x.numel() == 0:
        return False
    return x.shape[1] <= LONGEST_ROW and x.is_contiguous(memory_format=torch.channels_last)


def _pixels(x: Tensor) -> Tensor:
    """Return [B, C, H, W] as [B, H W, C] in float32 or wider; a view for channels_last images in float32."""
    (points,), _ = prepare(x, dim=1)
    if points.dim() < 3 or 0 in points.shape[2:]:
        raise ValueError(f"pooling needs images [B, C, H, W] with at least one pixel, got shape {tuple(x.shape)}")
    return points.flatten(2).mT
