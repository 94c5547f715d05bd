"""Global pooling: the pixels of an image [B, C, H, W], or the nodes of a graph [N, C], become one point, [B, C]."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry import ManifoldModule
from lresnet.geometry.centroid import centroid
from lresnet.geometry.checks import checked_points, checks_values, traced
from lresnet.geometry.curvature import Curvature, kappa_of, parse_curvature
from lresnet.geometry.distance import dot, time_of, unit, unitless_time
from lresnet.geometry.smooth import with_derivatives_of
from lresnet.kernels import supports_pair
from lresnet.kernels.tiles import LONGEST_ROW

__all__ = [
    "CentroidPool",
    "PoincareMean",
    "SpaceMean",
    "centroid_pool",
    "graph_centroid_pool",
    "graph_space_mean",
    "poincare_mean",
    "space_mean",
]


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
    if _has_kernel(x, K):
        from lresnet.kernels.centroid_pooling import fused_centroid_pool

        return fused_centroid_pool(x, -parse_curvature(K), _plain_centroid)
    return _plain_centroid(x, kappa_of(K, torch.promote_types(x.dtype, torch.float32)))


def _plain_centroid(x: Tensor, kappa: Curvature) -> Tensor:
    points = _pixels(x)
    return centroid(points, torch.ones_like(points[..., :1]), kappa)


def space_mean(x: Tensor) -> Tensor:
    """Return the mean of the space coordinates in float32 or wider, the pooling of the Euclidean baseline.

    It does not commute with isometries.
    """
    return _pixels(x).mean(-2)


# --- Graphs -----------------------------------------------------------------------------------------------------------


def graph_centroid_pool(x: Tensor, batch: Tensor, size: int | None = None, *, K: Curvature = -1.0) -> Tensor:
    r"""Return the Lorentzian centroid of each graph's nodes, [N, n] -> [B, n].

    The formulas are those of :mod:`lresnet.geometry.centroid`, computed in float64 over nodes that are grouped by
    ``batch``: with the direction u of a graph's sum of space coordinates and :math:`p_i = x_i \cdot u`, the squared
    norm of the sum is :math:`\sum_i (t_i - p_i) \sum_i (t_i + p_i)`, a product of sums of positive terms. Memory is
    that of the nodes: no graph is padded.

    Args:
        x: Points of all graphs, [N, n].
        batch: Graph of each node, [N], as in PyG; in any order.
        size: Number of graphs B. Default: one more than the largest number in ``batch``.
        K: Curvature, a negative float or tensor (gradients flow into a tensor).

    Returns:
        [B, n], in float32 or wider. A graph without nodes gives the origin.

    Example:
        >>> x = torch.tensor([[2.0, 2.0], [-2.0, 2.0], [1.0, 0.0]])
        >>> graph_centroid_pool(x, torch.tensor([0, 0, 2]))
        tensor([[0.0000, 0.8944],
                [0.0000, 0.0000],
                [1.0000, 0.0000]])
    """
    (points,), _ = checked_points(x)
    graphs = _number_of_graphs(points, batch, size)
    wide, kappa = points.double(), kappa_of(K, torch.float64)
    fixed = kappa.detach() if isinstance(kappa, Tensor) else kappa
    n = _graph_normaliser(wide.detach(), batch, graphs, fixed)
    length = torch.where(n > 0, n, 1.0)
    # The value is sum / n. Its derivatives, of any order, are those of a sum divided by the root of a ratio that is 1.
    share = 1 / length[batch]
    s, s_t = _graph_sums(share * wide, batch, graphs), _graph_sums(share * time_of(wide, kappa, -1), batch, graphs)
    squared = kappa * (s_t.square() - dot(s, s, -1))
    ratio = with_derivatives_of(torch.ones_like(n), torch.where(n > 0, squared, 1.0)).sqrt()
    return (s / ratio).to(points.dtype)


def graph_space_mean(x: Tensor, batch: Tensor, size: int | None = None) -> Tensor:
    """Return the mean of each graph's space coordinates, [N, n] -> [B, n]; 0 for a graph without nodes.

    The arguments are those of :func:`graph_centroid_pool`.
    """
    (points,), _ = checked_points(x)
    graphs = _number_of_graphs(points, batch, size)
    counts = _graph_sums(torch.ones_like(points[:, :1]), batch, graphs)
    return _graph_sums(points, batch, graphs) / counts.clamp(min=1.0)


def _graph_sums(x: Tensor, batch: Tensor, graphs: int) -> Tensor:
    return x.new_zeros(graphs, x.shape[1]).index_add(0, batch, x)


def _graph_normaliser(x: Tensor, batch: Tensor, graphs: int, kappa: Curvature) -> Tensor:
    """Return sqrt(kappa) times the Lorentzian norm of each graph's sum, [B, 1]; 0 for a graph without nodes."""
    u = unit(_graph_sums(x, batch, graphs), -1)[0][batch]
    p = dot(x, u, -1)
    far = time_of(x, kappa, -1) + p.abs()
    near = ((x - p * u).square().sum(-1, keepdim=True) + 1 / kappa) / far
    minus = _graph_sums(torch.where(p > 0, near, far), batch, graphs)
    plus = _graph_sums(torch.where(p > 0, far, near), batch, graphs)
    return (kappa * minus * plus).sqrt()


def _number_of_graphs(x: Tensor, batch: Tensor, size: int | None) -> int:
    """Return B; raise ``ValueError`` unless ``batch`` holds one graph number below B for each point."""
    is_integer = not (batch.is_floating_point() or batch.is_complex() or batch.dtype == torch.bool)
    if x.dim() != 2 or batch.shape != x.shape[:1] or not is_integer:
        raise ValueError(
            "pooling of graphs needs points [N, n] and an integer batch [N] as in PyG, "
            f"got x {tuple(x.shape)} and batch {tuple(batch.shape)} of {batch.dtype}"
        )
    if size is None:
        size = int(batch.max()) + 1 if batch.numel() else 0
    if checks_values(batch) and batch.numel():
        low, high = int(batch.min()), int(batch.max())
        if low < 0 or high >= size:
            raise ValueError(f"batch has graph {low if low < 0 else high}, but graphs are 0 to {size - 1}")
    return size


# --- Modules ----------------------------------------------------------------------------------------------------------


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
    r"""Global pooling by the Lorentzian centroid, which commutes with isometries.

    It pools images (:func:`centroid_pool`) and graphs (:func:`graph_centroid_pool`).

    .. math:: z = \frac{\sum_i x_i}{\sqrt\kappa |\sum_i x_i|}

    Args:
        manifold: Owner of the curvature. It is not registered as a submodule.

    Shapes:
        images [B, C, H, W] -> [B, C]; graphs: x [N, C], batch [N] -> [B, C], where a graph without nodes gives the
        origin

    Example:
        >>> from lresnet import Lorentz
        >>> CentroidPool(Lorentz(-1.0))(torch.randn(4, 16, 8, 8)).shape
        torch.Size([4, 16])
        >>> CentroidPool(Lorentz(-1.0))(torch.randn(5, 16), torch.tensor([0, 0, 1, 1, 1])).shape
        torch.Size([2, 16])
    """

    def forward(self, x: Tensor, batch: Tensor | None = None, size: int | None = None) -> Tensor:
        """Return one point per image or, with ``batch`` [N], per graph; ``size`` is the number of graphs."""
        if batch is None:
            return centroid_pool(x, K=self.manifold.curvature)
        return graph_centroid_pool(x, batch, size, K=self.manifold.curvature)


class SpaceMean(ManifoldModule):
    r"""Global pooling by the mean of the space coordinates (:func:`space_mean`), independent of the curvature.

    .. math:: z = \frac1N \sum_i x_i

    Args:
        manifold: Accepted like those of the other poolings, but not used.

    Shapes:
        images [B, C, H, W] -> [B, C]; graphs: x [N, C], batch [N] -> [B, C], where a graph without nodes gives the
        origin

    Example:
        >>> from lresnet import Lorentz
        >>> SpaceMean(Lorentz(-1.0))(torch.randn(4, 16, 8, 8)).shape
        torch.Size([4, 16])
    """

    saves_curvature = False

    def forward(self, x: Tensor, batch: Tensor | None = None, size: int | None = None) -> Tensor:
        """Return one point per image or, with ``batch`` [N], per graph; ``size`` is the number of graphs."""
        if batch is None:
            return space_mean(x)
        return graph_space_mean(x, batch, size)


def _has_kernel(x: Tensor, K: Curvature) -> bool:
    """Return whether the kernels of poolings support these images. Compilers fuse the formula themselves."""
    if traced() or isinstance(K, Tensor) or not supports_pair(x, x, dim=1) or x.dim() != 4 or x.numel() == 0:
        return False
    return x.shape[1] <= LONGEST_ROW and x.is_contiguous(memory_format=torch.channels_last)


def _pixels(x: Tensor) -> Tensor:
    """Return [B, C, H, W] as [B, H W, C] in float32 or wider; a view for channels_last images in float32."""
    (points,), _ = checked_points(x, dim=1)
    if points.dim() < 3 or 0 in points.shape[2:]:
        raise ValueError(f"pooling needs images [B, C, H, W] with at least one pixel, got shape {tuple(x.shape)}")
    return points.flatten(2).mT
