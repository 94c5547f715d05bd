"""Graph convolution on the hyperboloid: a Lorentz linear layer, then the centroid of each node's neighbours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.curvature import Curvature, kappa_of
from lresnet.geometry.pair import dot, unitless_time
from lresnet.nn.linear import LorentzLinear
from lresnet.nn.sparse import SparseMatrix, adjacency

__all__ = ["LorentzGraphConv", "aggregate"]


def aggregate(x: Tensor, A: SparseMatrix, kappa: Curvature) -> Tensor:
    r"""Weighted Lorentzian centroid of each row's neighbours: :math:`y_i = s_i / n_i`, [N, n] -> [N, n].

    .. math:: s_i = \sum_j A_{ij} x_j, \qquad
        n_i^2 = \Big(\sum_j A_{ij} T_j\Big)^2 - \kappa |s_i|^2 \ge \Big(\sum_j A_{ij}\Big)^2

    One sparse product over n+1 columns. The difference loses about T^2 rounding units (layers bound T to about
    ten; :meth:`lresnet.Lorentz.centroid` loses none), and its lower bound holds by construction, so it cannot vanish.
    Rows without neighbours give the origin; scaling a row of A changes nothing.
    """
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    result: Tensor = _Aggregate.apply(x, A.values, kappa_tensor, kappa, A)  # type: ignore[no-untyped-call]
    return result


def _aggregate(x: Tensor, values: Tensor, kappa: Curvature, A: SparseMatrix) -> tuple[Tensor, Tensor, Tensor]:
    """(y, 1/n, T of x); plain torch, differentiable."""
    T = unitless_time(x, kappa, -1)
    product = A.matmul(torch.cat([x, T], dim=-1), values)
    s, S_T = product[..., :-1], product[..., -1:]
    n = torch.maximum(S_T.square() - kappa * dot(s, s, -1), A.row_sums().to(x.dtype).square()).sqrt()
    inverse = torch.where(n > 0, 1.0, 0.0) / torch.where(n > 0, n, 1.0)
    return s * inverse, inverse, T


class _Aggregate(torch.autograd.Function):
    r"""Backward with :math:`a = g \cdot y`: :math:`\partial s = (g + \kappa a y)/n`, :math:`\partial S_T = -a T_y/n`, then
    one product with the transpose and the chain through :math:`T_x`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, values: Tensor, kappa_tensor: Tensor | None, kappa: Curvature, A: SparseMatrix
    ) -> Tensor:
        y, inverse, T = _aggregate(x, values, kappa, A)
        ctx.kappa, ctx.A = None if kappa_tensor is not None else kappa, A
        ctx.save_for_backward(x, y, inverse, T, values, kappa_tensor)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y, inverse, T, values, kappa_tensor = ctx.saved_tensors
        kappa, A = kappa_tensor if kappa_tensor is not None else ctx.kappa, ctx.A
        if torch.is_grad_enabled() or ctx.needs_input_grad[1]:  # second derivatives, or learned edge weights
            return _by_autograd(
                g, x, A.values if values is None else values, kappa_tensor, kappa, A, ctx.needs_input_grad
            )
        a = dot(g, y, -1)
        T_y = unitless_time(y, kappa, -1)
        ambient = torch.cat([torch.addcmul(g, kappa * a, y) * inverse, -a * T_y * inverse], dim=-1)
        back = A.transposed_times(ambient, A.values)
        gs, gT = back[..., :-1], back[..., -1:]
        gx = torch.addcmul(gs, x, kappa * gT / T)
        gk = None
        if kappa_tensor is not None:
            # kappa enters through -kappa |s|^2 = -(kappa |y|^2) n^2 and through T of every neighbour.
            direct = 0.5 * (a * dot(y, y, -1)).sum()
            gk = (direct + (0.5 * gT * dot(x, x, -1) / T).sum()).reshape(kappa_tensor.shape)
        return gx, None, gk, None, None


def _by_autograd(
    g: Tensor, x: Tensor, values: Tensor, kappa_tensor: Tensor | None, kappa: Curvature, A: SparseMatrix, needed: Any
) -> tuple[Tensor | None, ...]:
    with torch.enable_grad():
        candidates = (x, values, kappa_tensor)
        inputs = [t for t, need in zip(candidates, needed, strict=False) if need and t is not None]
        y = _aggregate(x, values, kappa, A)[0]
        grads = iter(torch.autograd.grad(y, inputs, g, create_graph=torch.is_grad_enabled()))
    return (
        *(next(grads) if need and t is not None else None for t, need in zip(candidates, needed, strict=False)),
        None,
        None,
    )


class LorentzGraphConv(ManifoldModule):
    r"""Fully hyperbolic graph convolution (HyboNet): :class:`LorentzLinear`, then :func:`aggregate`.

    Args:
        in_channels, out_channels: dimensions of the spaces.
        manifold: owner of the curvature; referred to, not registered.
        self_loops: add self loops to ``edge_index`` (an adjacency that is passed in is taken as it is).

    Shapes:
        x [N, in], edge_index [2, E], edge_weight [E] not negative -> [N, out]

    Example:
        >>> conv = LorentzGraphConv(8, 4, manifold=Lorentz(-1.0))
        >>> conv(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 4])
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, manifold: Lorentz, self_loops: bool = True, **linear: Any
    ) -> None:
        super().__init__(manifold)
        self.linear = LorentzLinear(in_channels, out_channels, manifold=manifold, **linear)
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
        h = self.linear(x, time)
        return aggregate(h, edge_index, kappa_of(self.manifold.curvature, h.dtype))
