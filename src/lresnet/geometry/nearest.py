r"""Nearest neighbours by geodesic distance, found by a plain dot product and exact.

The distance grows with minus the Lorentzian inner product,
:math:`\cosh(\sqrt\kappa d) = \kappa (x_t y_t - x \cdot y)`. With the excess of the time,
:math:`e_y = y_t - 1/\sqrt\kappa = |y|^2 / (y_t + 1/\sqrt\kappa)`, the order of the points y by their distance to x is
the order by a dot product of vectors with n + 1 coordinates, the largest first:

.. math:: s(x, y) = x \cdot y - x_t e_y = [x, -x_t] \cdot [y, e_y] .

So every library for maximum inner product search finds hyperbolic neighbours. The time itself would work too, but it is
at least :math:`1/\sqrt\kappa`, and near the origin the dot product would lose the digits of the squared distance.

A rounded dot product alone would confuse points that are nearly equally far from x. The search is exact in three steps:

1. In float64, the computed s differs from the exact one by less than
   :math:`b(x, y) = c\,\epsilon\,(|x| |y| + x_t e_y)`, with c linear in n. The upper bound s + b is a dot product as
   well, with one coordinate more. The largest upper bounds give the candidates.
2. The candidates contain the k nearest points if k of them have a lower bound s - b above the upper bound of all other
   points. Otherwise, the number of candidates of this query grows: among very many equal or nearly equal points, or far
   from the origin, where b is large.
3. The distances of the candidates are computed by :func:`lresnet.geometry.distance.dist`, and sorted. Equally near
   points are in the order of their indices.

The result is that of sorting all float64 distances. Flat space (K = None) has
:math:`s = x \cdot y - \tfrac12 |y|^2`.
"""

from __future__ import annotations

import importlib
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from lresnet.geometry import distance
from lresnet.geometry.checks import full_precision, require_points
from lresnet.geometry.curvature import Curvature, constant, kappa_of, root
from lresnet.geometry.pairwise import working_dtype

__all__ = ["Nearest", "NearestNeighbours", "inner_product_points", "inner_product_queries"]

_MORE = 16  # candidates beyond k at first
_GROWTH = 8  # of the number of candidates
# Numbers in a block of dot products, and in the coordinates of candidates.
_BLOCK = {"cpu": 2**22}
_LARGE_BLOCK = 2**25


class Nearest(NamedTuple):
    """Nearest points of each query, the nearest first."""

    distances: Tensor
    """Geodesic distances, [..., k], float64."""
    indices: Tensor
    """Indices of the points, [..., k], int64."""


def inner_product_points(points: Tensor, *, K: Curvature | None = -1.0) -> Tensor:
    r"""Return vectors whose dot products with :func:`inner_product_queries` order the points by distance.

    Give both to a library for maximum inner product search: the nearest points have the largest products. They are
    computed in the dtype of the points; float32 products confuse points that are nearly equally far from the query.

    Args:
        points: Points in space coordinates.
        K: Curvature K < 0. None: Euclidean distances.

    Shapes:
        [..., n] -> [..., n + 1], the space coordinates and the excess of the time

    Example:
        >>> points, x = torch.randn(100, 3), torch.randn(5, 3)
        >>> products = inner_product_queries(x) @ inner_product_points(points).T
        >>> bool((products.argmax(1) == NearestNeighbours(points).query(x, 1).indices[:, 0]).all())
        True
    """
    return torch.cat([require_points(points), _excess(points, K)], -1)


def inner_product_queries(x: Tensor, *, K: Curvature | None = -1.0) -> Tensor:
    """Return the query vectors that belong to :func:`inner_product_points`.

    Args:
        x: Queries in space coordinates.
        K: Curvature K < 0. None: Euclidean distances.

    Shapes:
        [..., n] -> [..., n + 1], the space coordinates and minus the time

    Example:
        >>> inner_product_queries(torch.tensor([2.0, 2.0]))
        tensor([ 2.,  2., -3.])
    """
    return torch.cat([require_points(x), -_time(x, K)], -1)


def _time(x: Tensor, K: Curvature | None) -> Tensor:
    if K is None:
        return torch.ones_like(x[..., :1])
    return distance.time_of(x, constant(kappa_of(K, x.dtype)), -1)


def _excess(x: Tensor, K: Curvature | None) -> Tensor:
    square = distance.dot(x, x, -1)
    if K is None:
        return 0.5 * square
    return square / (_time(x, K) + 1 / root(constant(kappa_of(K, x.dtype))))


class NearestNeighbours:
    r"""Index of points that finds the nearest ones by geodesic distance; see the module's docstring.

    By default the search is exact: it returns what sorting all float64 distances would, equally near points in the
    order of their indices. It compares each query with all points by one matrix product, in blocks. For millions of
    points, FAISS (``pip install "lresnet[faiss]"``) can propose the candidates. The result is then approximate: points
    that the FAISS index does not propose are not found. The returned distances are exact in both cases.

    Args:
        points: The points to search, on any device. They are not copied if they have float64.
        K: Curvature K < 0, of a manifold ``M.curvature``. None: Euclidean distances.
        index: ``"exact"``; ``"faiss"`` for an ``IndexFlatIP``, which compares all points in float32; or an empty FAISS
            index for n + 1 coordinates and inner products, which may be approximate, e.g.
            ``faiss.IndexHNSWFlat(n + 1, 32, faiss.METRIC_INNER_PRODUCT)``. The points are added to it. Measure the
            recall of an approximate index: graphs are made for other metrics (docs/howto/nearest_neighbours.md).
        candidates: For FAISS, the number of candidates for each neighbour that is asked for.

    Example:
        >>> points = torch.tensor([[0.0, 0.0], [3.0, 0.0], [3.0, 0.1]])
        >>> NearestNeighbours(points, K=-1.0).query(torch.tensor([2.0, 0.0]), k=2).indices
        tensor([1, 2])
        >>> NearestNeighbours(points, K=-1.0).query(k=1).indices  # of every point, without itself
        tensor([[1],
                [2],
                [1]])
    """

    def __init__(
        self,
        points: Tensor,
        *,
        K: Curvature | None = -1.0,
        index: Literal["exact", "faiss"] | Any = "exact",
        candidates: int = 4,
    ) -> None:
        if require_points(points, name="points").dim() != 2:
            raise ValueError(f"points must be [N, n], got shape {tuple(points.shape)}")
        if isinstance(K, Tensor) and K.numel() != 1:
            raise ValueError(f"K must be one curvature, got shape {tuple(K.shape)}")
        if candidates < 1:
            raise ValueError(f"candidates must be 1 or more, got {candidates}")
        wide = points.detach().to(working_dtype(points))
        _require_finite(wide, "points")
        self.points = wide
        self.K = K.detach().reshape(()) if isinstance(K, Tensor) else K
        with full_precision(wide):
            self._vectors = inner_product_points(wide, K=self.K)
            self._radius = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        self._candidates = candidates
        self._faiss: Any = None if isinstance(index, str) and index == "exact" else _faiss_index(index, self._vectors)

    def __len__(self) -> int:
        return len(self.points)

    @torch.no_grad()
    def query(self, x: Tensor | None = None, k: int = 10) -> Nearest:
        """Return distances and indices of the k nearest points, the nearest first.

        Args:
            x: Queries, on the device of the points. None: all points, each without itself among its neighbours.
            k: Number of neighbours, at most the number of points (without the point itself).

        Shapes:
            x [..., n] -> distances [..., k], float64, and indices [..., k], int64. Devices without float64 compute in
            float32.

        Example:
            >>> index = NearestNeighbours(torch.randn(50, 4), K=-0.5)
            >>> index.query(torch.randn(2, 3, 4), k=5).distances.shape
            torch.Size([2, 3, 5])
        """
        most = len(self) - (x is None)
        if not 1 <= k <= most:
            raise ValueError(f"k must be 1 to {most} (the number of points to find), got {k}")
        if x is None:
            found = self._search(self.points, k + 1)
            others = found.indices != torch.arange(len(self), device=self.points.device).unsqueeze(1)
            # Where k + 1 equal points with lower indices come first, the point itself is not among them.
            kept = (~others).byte().argsort(dim=-1, stable=True)[:, :k]
            return Nearest(found.distances.gather(1, kept), found.indices.gather(1, kept))
        if require_points(x).shape[-1] != self.points.shape[1]:
            raise ValueError(f"x must have {self.points.shape[1]} coordinates, got shape {tuple(x.shape)}")
        rows = x.detach().to(self.points.dtype).reshape(-1, x.shape[-1])
        _require_finite(rows, "x")
        found = self._search(rows, k)
        return Nearest(*(t.reshape(*x.shape[:-1], k) for t in found))

    def _search(self, x: Tensor, k: int) -> Nearest:
        with full_precision(x):
            step = max(1, _block(x) // len(self))
            parts = [
                self._nearest(rows, k) if self._faiss is None else self._proposed(rows, k) for rows in x.split(step)
            ]
        if not parts:
            return Nearest(x.new_empty(0, k), torch.empty(0, k, dtype=torch.int64, device=x.device))
        return Nearest(*(torch.cat(each) for each in zip(*parts, strict=True)))

    def _nearest(self, x: Tensor, k: int) -> Nearest:
        """Return the exact neighbours of a block of queries."""
        n, excess, r_x, t_x = x.shape[1], self._vectors[:, -1:], torch.linalg.vector_norm(x, dim=-1), _time(x, self.K)
        # n + 10 roundings of the product and its factors; the rest is the rounding of the distances that are sorted.
        bound = (4 * n + 128) * torch.finfo(x.dtype).eps
        upper = (
            torch.cat([x, (bound - 1) * t_x, bound * r_x.unsqueeze(1)], 1)
            @ torch.cat([self._vectors, self._radius], 1).mT
        )
        distances, indices = x.new_empty(len(x), k), torch.empty(len(x), k, dtype=torch.int64, device=x.device)
        rows, count = torch.arange(len(x), device=x.device), min(len(self), k + _MORE)
        while len(rows):
            top = upper[rows].topk(count)
            doubt = 2 * bound * (r_x[rows, None] * self._radius[top.indices, 0] + t_x[rows] * excess[top.indices, 0])
            least = (top.values - doubt).topk(k).values[:, -1]
            settled = (top.values[:, -1] < least) | (count == len(self))
            done = rows[settled]
            distances[done], indices[done] = self._sorted(x[done], top.indices[settled], k)
            rows, count = rows[~settled], min(len(self), _GROWTH * count)
        return Nearest(distances, indices)

    def _proposed(self, x: Tensor, k: int) -> Nearest:
        """Return the nearest of the candidates that FAISS finds."""
        queries = inner_product_queries(x, K=self.K).float().cpu().numpy()
        _products, found = self._faiss.search(queries, min(len(self), self._candidates * k))
        if (found < 0).any():
            raise ValueError(
                f"the FAISS index found fewer than {found.shape[1]} points for a query; search more of it, e.g. with a "
                "larger nprobe or efSearch"
            )
        return Nearest(*self._sorted(x, torch.from_numpy(found).to(x.device), k))

    def _sorted(self, x: Tensor, candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Return distances and indices of the k nearest candidates, [B, k] each, of queries [B, n]."""
        found = []
        step = max(1, _block(x) // (candidates.shape[1] * x.shape[1]))
        for rows, some in zip(x.split(step), candidates.sort(-1).values.split(step), strict=True):
            points = self.points[some]
            if self.K is None:
                d = torch.linalg.vector_norm(points - rows.unsqueeze(1), dim=-1)
            else:
                d = distance.dist(rows.unsqueeze(1), points, kappa_of(self.K, rows.dtype), -1).squeeze(-1)
            d, order = d.sort(dim=-1, stable=True)
            found.append((d[:, :k], some.gather(1, order[:, :k])))
        distances, indices = zip(*found, strict=True) if found else ([x.new_empty(0, k)], [candidates[:, :k]])
        return torch.cat(distances), torch.cat(indices)


def _block(x: Tensor) -> int:
    return _BLOCK.get(x.device.type, _LARGE_BLOCK)


def _require_finite(points: Tensor, name: str) -> None:
    wrong = int((~points.isfinite().all(-1)).sum())
    if wrong:
        raise ValueError(f"{wrong} of {len(points)} {name} are not finite")


def _faiss_index(index: Any, vectors: Tensor) -> Any:
    """Return the FAISS index with the vectors added."""
    if isinstance(index, str):
        if index != "faiss":
            raise ValueError(f"index must be 'exact', 'faiss' or an empty FAISS index, got {index!r}")
        try:
            index = importlib.import_module("faiss").IndexFlatIP(vectors.shape[1])
        except ImportError as error:
            raise ImportError('index="faiss" needs FAISS: pip install "lresnet[faiss]"') from error
    if index.d != vectors.shape[1] or index.ntotal:
        raise ValueError(
            f"the FAISS index must be empty and have n + 1 = {vectors.shape[1]} coordinates; it has {index.ntotal} "
            f"points of {index.d}"
        )
    index.add(vectors.float().cpu().numpy())
    return index
