"""Graph convolution on the hyperboloid: a linear layer, then the centroid of each node's neighbours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import traced, transformed
from lresnet.geometry.curvature import Curvature, kappa_of
from lresnet.geometry.distance import dot, unitless_time
from lresnet.geometry.smooth import with_derivatives_of
from lresnet.geometry.stack import sum_to
from lresnet.kernels import supports_rows
from lresnet.nn.hyperplane_linear import HyperplaneLinear
from lresnet.nn.linear import LorentzLinear
from lresnet.nn.space_linear import SpaceLinear
from lresnet.nn.sparse import SparseMatrix, adjacency

__all__ = ["LAYERS", "LorentzGraphConv", "aggregate", "aggregate_with_time", "centroid_of_sums", "least_times"]

LAYERS: dict[str, type[LorentzLinear] | type[SpaceLinear] | type[HyperplaneLinear]] = {
    "hybonet": LorentzLinear,
    "space": SpaceLinear,
    "hyperplane": HyperplaneLinear,
}
"""What a convolution may do to each point before it takes centroids, by name."""


def aggregate(x: Tensor, A: SparseMatrix, kappa: Curvature) -> Tensor:
    """Weighted Lorentzian centroid of each row's neighbours, [N, n] -> [N, n]: see :func:`aggregate_with_time`."""
    return aggregate_with_time(torch.cat([x, unitless_time(x, kappa, -1)], dim=-1), A, kappa)


def aggregate_with_time(x: Tensor, A: SparseMatrix, kappa: Curvature) -> Tensor:
    r"""Weighted Lorentzian centroid of each row's neighbours: :math:`y_i = s_i / n_i`, [N, n+1] -> [N, n].

    .. math:: s_i = \sum_j A_{ij} x_j, \qquad
        n_i^2 = \Big(\sum_j A_{ij} T_j\Big)^2 - \kappa |s_i|^2 \ge \Big(\sum_j A_{ij}\Big)^2

    One sparse product over n+1 columns. The difference loses about T^2 rounding units (layers bound T to about
    ten; :meth:`lresnet.Lorentz.centroid` loses none), and its lower bound holds by construction, so it cannot vanish.
    Rows without neighbours give the origin; scaling a row of A changes nothing.

    Args:
        x: the points, and last :math:`T = \sqrt\kappa` times their time.
    """
    return centroid_of_sums(A.product(x), least_times(A, x), kappa, some_empty=A.has_empty_rows())


def least_times(A: SparseMatrix, x: Tensor) -> Tensor:
    """``least`` of :func:`centroid_of_sums`, in the dtype of x and with as many axes."""
    sums = A.row_sums().to(x.dtype)
    return sums if sums.dim() == x.dim() else sums.unsqueeze(1)


def centroid_of_sums(sums: Tensor, least: Tensor, kappa: Curvature, *, some_empty: bool) -> Tensor:
    """The second half of :func:`aggregate_with_time`, row by row.

    Args:
        sums: :math:`[s_i, \\sum_j A_{ij} T_j]`, [N, n+1].
        least: :math:`\\sum_j A_{ij}`, [N, 1], a constant.
        some_empty: whether one of them is 0.
    """
    if traced():
        return _centroid(sums, least, kappa, some_empty)[0]
    if supports_rows(sums, kappa):
        from lresnet.kernels.centroid import fused_centroid

        return fused_centroid(sums, least, float(kappa), _plain_centroid)
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    result: Tensor = _Centroid.apply(sums, least, kappa_tensor, kappa, some_empty)  # type: ignore[no-untyped-call]
    return result


def _centroid(sums: Tensor, least: Tensor, kappa: Curvature, some_empty: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(y, 1/n, T of y); plain torch, differentiable."""
    s, S_T = sums[..., :-1], sums[..., -1:]
    n2 = S_T.square() - kappa * dot(s, s, -1)
    bounded = torch.maximum(n2.detach(), least.square())
    # A single neighbour attains the bound, where the derivative of a maximum is not that of n2.
    # (Within a transform requires_grad says nothing: a tensor of vmap has none, whatever is differentiated outside.)
    n2 = with_derivatives_of(bounded, n2) if n2.requires_grad or transformed() else bounded
    if some_empty:  # 1 / infinity, so that neither the value nor a derivative is 0 / 0
        n2 = n2.masked_fill(least <= 0, float("inf"))
    inverse = n2.rsqrt()
    return s * inverse, inverse, S_T * inverse


def _plain_centroid(sums: Tensor, least: Tensor, kappa: Curvature) -> Tensor:
    return _centroid(sums, least, kappa, some_empty=True)[0]


class _Centroid(torch.autograd.Function):
    r"""With :math:`a = g \cdot y`: :math:`\partial s = (g + \kappa a y)/n`, :math:`\partial S_T = -a T_y/n`."""

    @staticmethod
    def forward(
        ctx: Any, sums: Tensor, least: Tensor, kappa_tensor: Tensor | None, kappa: Curvature, some_empty: bool
    ) -> Tensor:
        y, inverse, T_y = _centroid(sums, least, kappa, some_empty)
        ctx.kappa, ctx.some_empty = None if kappa_tensor is not None else kappa, some_empty
        ctx.save_for_backward(sums, least, y, inverse, T_y, kappa_tensor)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        sums, least, y, inverse, T_y, kappa_tensor = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        if torch.is_grad_enabled():  # a second derivative is wanted: let autograd do both
            # Aliases, so that derivatives stop here: the sums themselves may depend on kappa.
            sums, alias = sums.view_as(sums), None if kappa_tensor is None else kappa_tensor.view_as(kappa_tensor)
            y = _centroid(sums, least, kappa if alias is None else alias, ctx.some_empty)[0]
            inputs = [sums] if alias is None else [sums, alias]
            g_sums, *rest = torch.autograd.grad(y, inputs, g, create_graph=True)
            return g_sums, None, rest[0] if rest else None, None, None
        a = dot(g, y, -1)
        back = torch.cat([torch.addcmul(g, kappa * a, y), -a * T_y], dim=-1) * inverse
        gk = None if kappa_tensor is None else 0.5 * sum_to(kappa_tensor.shape, a * dot(y, y, -1))
        return back, None, gk, None, None


class LorentzGraphConv(ManifoldModule):
    r"""Fully hyperbolic graph convolution: a linear layer on the hyperboloid, then :func:`aggregate`.

    Args:
        in_channels, out_channels: dimensions of the spaces.
        manifold: owner of the curvature; referred to, not registered.
        layer: a name of :data:`LAYERS`: "hybonet" (:class:`LorentzLinear`), "space" (:class:`SpaceLinear`) or
            "hyperplane" (:class:`HyperplaneLinear`).
        self_loops: add self loops to ``edge_index`` (an adjacency that is passed in is taken as it is).

    Shapes:
        x [N, in], edge_index [2, E], edge_weight [E] not negative -> [N, out]

    Example:
        >>> conv = LorentzGraphConv(8, 4, manifold=Lorentz(-1.0))
        >>> conv(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        manifold: Lorentz,
        layer: str = "hybonet",
        self_loops: bool = True,
        **linear: Any,
    ) -> None:
        super().__init__(manifold)
        if layer not in LAYERS:
            raise ValueError(f"layer must be one of {', '.join(LAYERS)}, got {layer!r}")
        self.linear = LAYERS[layer](in_channels, out_channels, manifold=manifold, **linear)
        self.self_loops = self_loops

    def forward(
        self,
        x: Tensor | SparseMatrix,
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
        time: Tensor | None = None,
    ) -> Tensor:
        """``edge_index`` may be the :class:`SparseMatrix` of :func:`~lresnet.nn.sparse.adjacency`, made once."""
        if not isinstance(edge_index, SparseMatrix):
            edge_index = adjacency(edge_index, x.shape[0], edge_weight, self_loops=self.self_loops)
        h = self.linear.with_time(x, time)
        y = aggregate_with_time(h, edge_index, kappa_of(self.manifold.curvature, h.dtype))
        return y.to(x.dtype) if isinstance(x, Tensor) else y
