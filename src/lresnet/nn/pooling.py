"""Global pooling: images whose pixels are points, [B, C, H, W], to one point an image, [B, C]."""

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
    r"""Euclidean mean of the pixels in the Poincare ball, taken back to the hyperboloid (the paper's pooling).

    With :math:`T_i = \sqrt{1 + \kappa |x_i|^2}`, the pixels' points :math:`p_i = x_i/(1 + T_i)` of the ball and
    their mean :math:`\bar p`,

    .. math:: z = \frac{2 \bar p}{1 - \kappa |\bar p|^2}, \qquad
        1 - \kappa |\bar p|^2 = \frac1N \sum_i \Big(\frac{2}{1 + T_i} + \kappa |p_i - \bar p|^2\Big).

    The left side vanishes at the boundary of the ball and would be a difference of nearly equal numbers. The right
    side, the mean of :math:`1 - \kappa |p_i|^2` plus :math:`\kappa` times the variance, has non-negative terms only.

    Args:
        x: points, [B, C, H, W]: axis 1 holds the C space coordinates of a pixel. One or more axes of pixels.
        K: curvature, a negative float or a tensor of one (gradients flow into a tensor).

    Returns:
        [B, C], in float32 at least: heads compute in float32, and one point an image is small.

    Example:
        >>> poincare_mean(torch.tensor([2.0, -2.0]).reshape(1, 2, 1, 1))
        tensor([[ 2., -2.]])
    """
    if _has_kernel(x, K):
        from lresnet.kernels.pooling import fused_poincare_mean

        return fused_poincare_mean(x, kappa_of(K, torch.float32), _images_mean)
    points = _pixels(x)
    return _ball_mean(points, kappa_of(K, points.dtype))


def _images_mean(x: Tensor, kappa: Curvature) -> Tensor:
    return _ball_mean(_pixels(x), kappa)


def _ball_mean(points: Tensor, kappa: Curvature) -> Tensor:
    width = 1 + unitless_time(points, kappa, -1)
    p = points / width
    mean = p.mean(-2, keepdim=True)
    gap = (2 / width + kappa * (p - mean).square().sum(-1, keepdim=True)).mean(-2)
    return 2 * mean.squeeze(-2) / gap


def centroid_pool(x: Tensor, *, K: Curvature = -1.0) -> Tensor:
    r"""Lorentzian centroid of the pixels, :math:`\sum_i x_i / (\sqrt\kappa |\sum_i x_i|)`; arguments as above.

    Example:
        >>> centroid_pool(torch.tensor([[2.0, 2.0], [-2.0, 2.0]]).reshape(1, 2, 1, 2))
        tensor([[0.8944, 0.0000]])
    """
    points = _pixels(x)
    weight = torch.ones_like(points[..., :1])
    return centroid(points, weight, kappa_of(K, points.dtype))


def space_mean(x: Tensor) -> Tensor:
    """Mean of the space parts, float32 at least: the Euclidean twin's pooling. It does not commute with isometries."""
    return _pixels(x).mean(-2)


class PoincareMean(ManifoldModule):
    """Global :func:`poincare_mean`.

    Args:
        manifold: owner of the curvature; referred to, not registered.

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
    """Global :func:`centroid_pool`: commutes with isometries. Arguments and shapes as in :class:`PoincareMean`."""

    def forward(self, x: Tensor) -> Tensor:
        return centroid_pool(x, K=self.manifold.curvature)


class SpaceMean(ManifoldModule):
    """Global :func:`space_mean`, whatever the curvature. Arguments and shapes as in :class:`PoincareMean`."""

    def forward(self, x: Tensor) -> Tensor:
        return space_mean(x)


def _has_kernel(x: Tensor, K: Curvature) -> bool:
    """Return whether :mod:`lresnet.kernels.pooling` supports these images. Compilers fuse the formula themselves."""
    if traced() or isinstance(K, Tensor) or not supports_pair(x, x, dim=1) or x.dim() != 4 or x.numel() == 0:
        return False
    return x.shape[1] <= LONGEST_ROW and x.is_contiguous(memory_format=torch.channels_last)


def _pixels(x: Tensor) -> Tensor:
    """[B, C, H, W] -> [B, H W, C], float32 at least; a view of an image in channels_last."""
    (points,), _ = prepare(x, dim=1)
    if points.dim() < 3 or 0 in points.shape[2:]:
        raise ValueError(f"pooling takes images [B, C, H, W] of at least one pixel, got shape {tuple(x.shape)}")
    return points.flatten(2).mT
