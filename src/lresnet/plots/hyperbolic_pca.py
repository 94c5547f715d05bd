r"""Hyperbolic principal component analysis: the geodesic submanifold nearest to a set of points, in closed form.

A geodesic submanifold of dimension d is the intersection of the hyperboloid with a subspace V of dimension d + 1 that
contains a time-like vector. Let :math:`u_1, \dots, u_{n-d}` be an orthonormal basis of the orthogonal complement of V
in the Lorentz product; all are space-like. The distance of a point p from the submanifold, in radii of curvature, is

.. math:: \sinh^2 d(p, V) = \sum_j \langle p, u_j\rangle^2, \qquad\text{so}\qquad
    \sum_i \sinh^2 d(p_i, V) = \sum_j u_j^T J C J u_j, \quad C = \sum_i p_i p_i^T, \quad
    J = \mathrm{diag}(-1, 1, \dots, 1).

**The minimum.** :math:`C J e = \lambda e` has one time-like eigenvector :math:`e_0` (with :math:`\lambda_0 < 0`), all
others are space-like, and they are orthogonal. In their basis :math:`u_j = \sum_k a_{jk} e_k` costs
:math:`\sum_k |\lambda_k| a_{jk}^2`. The space-like parts S of the :math:`u_j` satisfy
:math:`S S^T = 1 + a_0 a_0^T \ge 1`, so the cost is at least the sum of the n - d smallest positive eigenvalues, with
equality if the :math:`u_j` are their eigenvectors. V is then spanned by :math:`e_0` and the eigenvectors of the d
largest eigenvalues. This is the closed form of

    Tabaghi, Khanzadeh, Wang, Mirarab: Principal Component Analysis in Space Forms. IEEE Transactions on Signal
    Processing 72, 2024 (arXiv:2301.02750).

There is no base point and no tangent space. An isometry of the points therefore changes the result by an isometry, and
points of a geodesic plane keep all their distances.

**The computation.** With B such that :math:`B B^T = C`, the non-zero eigenvalues of :math:`C J` are those of the
symmetric :math:`B^T J B`: if :math:`B^T J B z = \lambda z`, then :math:`e = B z` and
:math:`\langle e, e\rangle = \lambda`. Points that do not span the space need no special case. The points are first
translated so that their centroid is the origin: coordinates grow exponentially with the distance from the origin, and
accuracy is lost with them.

**What is lost.** The projection to a geodesic submanifold lengthens no distance. The share of the squared distances
that a picture keeps is therefore a number from 0 to 1, and 1 means that every distance is exact:

.. math:: \sum_{i<j} d(q_i, q_j)^2 \Big/ \sum_{i<j} d(p_i, p_j)^2, \qquad q_i \text{ the projection of } p_i.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lresnet.geometry import Lorentz

__all__ = ["PrincipalPlane", "hyperbolic_pca", "squared_distance_kept"]

_SAMPLE = 2000  # with more points, the share of squared distances is that of a random sample


class PrincipalPlane(NamedTuple):
    """Projection of points to the geodesic submanifold nearest to them."""

    points: Tensor
    """[N, dims], space coordinates in the submanifold, float64; same curvature."""
    spread: Tensor
    """[n], per principal direction, in descending order: mean of sinh² of the distance from the hyperplane orthogonal
    to it, in radii of curvature."""

    @property
    def kept(self) -> float:
        """Share of the spread that lies along the submanifold, from 0 to 1.

        The farthest points dominate it, since sinh² grows exponentially; see :func:`squared_distance_kept`.
        """
        total = float(self.spread.sum())
        return float(self.spread[: self.points.shape[-1]].sum()) / total if total > 0 else 1.0


def hyperbolic_pca(x: Tensor, manifold: Lorentz, dims: int = 2) -> PrincipalPlane:
    """Project points to the geodesic submanifold of dimension ``dims`` that minimises the sum of sinh² of distances.

    Args:
        x: [N, n], space coordinates of points of ``manifold``, N >= 1 and n >= dims.
        manifold: The manifold of the points.
        dims: Dimension of the submanifold.

    Shapes:
        x [N, n] -> points [N, dims], spread [n]

    Example:
        >>> M = Lorentz(-1.0)
        >>> x = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [-1.0, -1.0, 0.0]])
        >>> flat = hyperbolic_pca(x, M)
        >>> flat.points.shape, round(flat.kept, 6)
        (torch.Size([3, 2]), 1.0)
    """
    if x.ndim != 2 or x.shape[0] < 1 or not 1 <= dims <= x.shape[1]:
        raise ValueError(f"x must have shape [N, n] with N >= 1 and n >= dims = {dims}, got {list(x.shape)}")
    if not bool(x.isfinite().all()):
        raise ValueError("x must be finite; some coordinates are NaN or infinite")
    with torch.no_grad():
        root = manifold.kappa.detach().double().to(x.device).sqrt()
        unit = Lorentz(-1.0)
        wide = x.double() * root
        centred = unit.boost(-unit.centroid(wide), wide)
        P = unit.lift(centred)
        time, directions, spread = _principal_directions(P)
        t, s = -_product(P, time), _product(P, directions[:, :dims])
        # The nearest point of the submanifold is the projection to V, scaled back to the hyperboloid.
        points = s / (t.square() - s.square().sum(-1, keepdim=True)).sqrt()
        longer_side = torch.where(points.pow(3).sum(0) < 0, -1.0, 1.0)  # the sign of an eigenvector is arbitrary
        return PrincipalPlane(points * longer_side / root, spread)


def squared_distance_kept(x: Tensor, projected: Tensor, manifold: Lorentz) -> float:
    """Return the sum of the squared distances of all pairs after the projection, divided by that before it.

    With more than 2,000 points the pairs are those of 2,000 points, drawn at random but always the same ones.

    Args:
        x: [N, n], space coordinates of points of ``manifold``.
        projected: [N, m], space coordinates of their projections, in a manifold of the same curvature.

    Example:
        >>> M = Lorentz(-1.0)
        >>> x = torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [-1.0, -1.0, 0.0]])
        >>> round(squared_distance_kept(x, hyperbolic_pca(x, M).points, M), 6)
        1.0
    """
    with torch.no_grad():
        x, projected = x.double(), projected.double()
        if x.shape[0] > _SAMPLE:
            chosen = torch.randperm(x.shape[0], generator=torch.Generator().manual_seed(0))[:_SAMPLE].to(x.device)
            x, projected = x[chosen], projected[chosen]
        before, after = (_sum_of_squared_distances(points, manifold) for points in (x, projected))
        return after / before if before > 0 else 1.0


def _sum_of_squared_distances(x: Tensor, manifold: Lorentz) -> float:
    """Return the sum over all ordered pairs, in parts that fit into memory."""
    return sum(float(manifold.dist(part[:, None], x).square().sum()) for part in x.split(64))


def _principal_directions(P: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the time-like eigenvector [n+1, 1], the space-like ones [n+1, n] by descending spread, and spread [n]."""
    _, S, Wh = torch.linalg.svd(P / P.shape[0] ** 0.5, full_matrices=False)
    B = Wh.T * S
    J = torch.ones(B.shape[0], 1, dtype=B.dtype, device=B.device)
    J[0] = -1
    values, Z = torch.linalg.eigh(B.T @ (J * B))
    time = B @ Z[:, :1] / (-values[0]).sqrt()
    # Values below this are rounding errors: the points have no extent in such a direction; its coordinates are 0.
    floor = torch.finfo(B.dtype).eps * B.shape[0] * S[0].square()
    real = values > floor
    scaled = torch.where(real, 1 / torch.where(real, values, 1.0).sqrt(), 0.0)
    directions = (B @ Z * scaled).flip(-1)
    n = B.shape[0] - 1
    missing = max(0, n - directions.shape[1])
    directions = torch.nn.functional.pad(directions, (0, missing))[:, :n]
    spread = torch.nn.functional.pad(torch.where(real, values, 0.0).flip(-1), (0, missing))[:n]
    return time, directions, spread


def _product(P: Tensor, E: Tensor) -> Tensor:
    """Return the Lorentz products of the rows of P with the columns of E."""
    return P[:, 1:] @ E[1:] - P[:, :1] * E[:1]
