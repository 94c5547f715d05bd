"""Weighted Lorentzian centroids of each node's neighbours, by one sparse product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import traced, transformed
from lresnet.geometry.curvature import Curvature
from lresnet.geometry.distance import dot, unitless_time
from lresnet.geometry.smooth import with_derivatives_of
from lresnet.geometry.stack import sum_to
from lresnet.kernels import supports_rows
from lresnet.nn.sparse import SparseMatrix

__all__ = [
    "aggregate",
    "aggregate_with_time",
    "centroid_of_sums",
    "least_times",
    "rescaled_aggregate",
    "with_unitless_time",
]


def aggregate(x: Tensor, A: SparseMatrix, kappa: Curvature) -> Tensor:
    """Return the weighted Lorentzian centroid of each row's neighbours, [N, n] -> [N, n].

    See :func:`aggregate_with_time`.
    """
    return aggregate_with_time(with_unitless_time(x, kappa), A, kappa)


def rescaled_aggregate(x: Tensor, A: SparseMatrix, kappa: Curvature) -> Tensor:
    r"""Return :func:`aggregate` times the sum of each row of A, which tends to ``A x`` as kappa goes to 0.

    .. math:: y_i = \rho_i\, s_i / n_i, \qquad \rho_i = \sum_j A_{ij}

    The factor moves a point along the geodesic through the origin. It commutes with rotations about the origin, not
    with boosts. The result is differentiable in the values of A, too.
    """
    if A.values.requires_grad or transformed():  # then the factor has a derivative as well
        factor = A.sum_rows(A.values).to(x.dtype)
        return aggregate(x, A, kappa) * (factor if factor.dim() == x.dim() else factor.unsqueeze(1))
    h = with_unitless_time(x, kappa)
    sums, least = A.product(h), least_times(A, h)
    return _centroid_of_sums(sums, least, kappa, A.has_empty_rows(), rescaled=True)


def aggregate_with_time(x: Tensor, A: SparseMatrix, kappa: Curvature) -> Tensor:
    r"""Return the weighted Lorentzian centroid of each row's neighbours, :math:`y_i = s_i / n_i`.

    .. math:: s_i = \sum_j A_{ij} x_j, \qquad
        n_i^2 = \Big(\sum_j A_{ij} T_j\Big)^2 - \kappa |s_i|^2 \ge \Big(\sum_j A_{ij}\Big)^2

    This is one sparse product over n+1 columns. The difference loses about T^2 rounding units, where layers bound T to
    about ten. (:meth:`lresnet.Lorentz.centroid` loses none.) The lower bound is enforced, so n_i cannot vanish. Rows
    without neighbours give the origin. Scaling a row of A does not change the result.

    Args:
        x: The points, then :math:`T = \sqrt\kappa` times their time.
        A: Weights >= 0, rows are targets.
        kappa: -K > 0.

    Shapes:
        x [N, n+1] -> [N, n]
    """
    return centroid_of_sums(A.product(x), least_times(A, x), kappa, some_empty=A.has_empty_rows())


def least_times(A: SparseMatrix, x: Tensor) -> Tensor:
    """Return ``least`` of :func:`centroid_of_sums`, in the dtype of x and with as many axes."""
    sums = A.row_sums().to(x.dtype)
    return sums if sums.dim() == x.dim() else sums.unsqueeze(1)


def centroid_of_sums(sums: Tensor, least: Tensor, kappa: Curvature, *, some_empty: bool) -> Tensor:
    r"""Return the centroids :math:`s_i / n_i` of :func:`aggregate_with_time`, given the sums.

    Args:
        sums: :math:`[s_i, \sum_j A_{ij} T_j]`, [N, n+1].
        least: :math:`\sum_j A_{ij}`, the lower bound of n_i, [N, 1], a constant.
        kappa: -K > 0.
        some_empty: Whether a bound is 0, that is, whether a row has no neighbours.
    """
    return _centroid_of_sums(sums, least, kappa, some_empty, rescaled=False)


def _centroid_of_sums(sums: Tensor, least: Tensor, kappa: Curvature, some_empty: bool, *, rescaled: bool) -> Tensor:
    if traced():
        y = _centroid(sums, least, kappa, some_empty)[0]
        return y * least if rescaled else y
    if supports_rows(sums, kappa):
        from lresnet.kernels.centroid import fused_centroid

        return fused_centroid(sums, least, float(kappa), _plain_centroid, rescaled=rescaled)
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    result: Tensor = _Centroid.apply(sums, least, kappa_tensor, kappa, some_empty, rescaled)  # type: ignore[no-untyped-call]
    return result


def _centroid(sums: Tensor, least: Tensor, kappa: Curvature, some_empty: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return y, 1/n and T of y by differentiable torch operations."""
    s, S_T = sums[..., :-1], sums[..., -1:]
    n2 = S_T.square() - kappa * dot(s, s, -1)
    bounded = torch.maximum(n2.detach(), least.square())
    # A single neighbour attains the bound, where the derivative of the maximum differs from that of n2.
    # (Within a transform requires_grad does not tell: a tensor of vmap has none, even if it is differentiated outside.)
    n2 = with_derivatives_of(bounded, n2) if n2.requires_grad or transformed() else bounded
    if some_empty:  # 1 / infinity, so that neither the value nor a derivative is 0 / 0
        n2 = n2.masked_fill(least <= 0, float("inf"))
    inverse = n2.rsqrt()
    return s * inverse, inverse, S_T * inverse


def _plain_centroid(sums: Tensor, least: Tensor, kappa: Curvature, rescaled: bool) -> Tensor:
    y = _centroid(sums, least, kappa, some_empty=True)[0]
    return y * least if rescaled else y


class _Centroid(torch.autograd.Function):
    r"""With :math:`a = g \cdot y`: :math:`\partial s = (g + \kappa a y)/n`, :math:`\partial S_T = -a T_y/n`."""

    @staticmethod
    def forward(
        ctx: Any,
        sums: Tensor,
        least: Tensor,
        kappa_tensor: Tensor | None,
        kappa: Curvature,
        some_empty: bool,
        rescaled: bool,
    ) -> Tensor:
        y, inverse, T_y = _centroid(sums, least, kappa, some_empty)
        ctx.kappa, ctx.some_empty, ctx.rescaled = None if kappa_tensor is not None else kappa, some_empty, rescaled
        ctx.save_for_backward(sums, least, y, inverse, T_y, kappa_tensor)
        return y * least if rescaled else y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        sums, least, y, inverse, T_y, kappa_tensor = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        g = g * least if ctx.rescaled else g
        if torch.is_grad_enabled():  # a second derivative is needed: autograd computes both
            # Differentiate with respect to aliases, so that gradients stop here: the sums may depend on kappa.
            sums, alias = sums.view_as(sums), None if kappa_tensor is None else kappa_tensor.view_as(kappa_tensor)
            y = _centroid(sums, least, kappa if alias is None else alias, ctx.some_empty)[0]
            inputs = [sums] if alias is None else [sums, alias]
            g_sums, *rest = torch.autograd.grad(y, inputs, g, create_graph=True)
            return g_sums, None, rest[0] if rest else None, None, None, None
        a = dot(g, y, -1)
        back = sums.new_empty(sums.shape)
        torch.addcmul(g, kappa * a, y, out=back[..., :-1]).mul_(inverse)
        torch.mul(a * T_y, -inverse, out=back[..., -1:])
        gk = None if kappa_tensor is None else 0.5 * sum_to(kappa_tensor.shape, a * dot(y, y, -1))
        return back, None, gk, None, None, None


# --- Points with their time -------------------------------------------------------------------------------------------


def with_unitless_time(x: Tensor, kappa: Curvature) -> Tensor:
    r"""Return the points, then :math:`T = \sqrt\kappa` times their time, [..., n] -> [..., n+1].

    Example:
        >>> with_unitless_time(torch.tensor([[3.0, 4.0]]), 1.0)
        tensor([[3.0000, 4.0000, 5.0990]])
    """
    if traced() or isinstance(kappa, Tensor):
        return _plain_with_time(x, kappa)
    if supports_rows(x, kappa):
        from lresnet.kernels.ambient import fused_unitless

        return fused_unitless(x, float(kappa), _plain_with_time)
    result: Tensor = _WithTime.apply(x, kappa)  # type: ignore[no-untyped-call]
    return result


def _plain_with_time(x: Tensor, kappa: Curvature) -> Tensor:
    T = unitless_time(x, kappa, -1)
    if T.shape[:-1] != x.shape[:-1]:  # points that all members of a stack share, each with its own curvature
        x = x.expand(*T.shape[:-1], -1)
    return torch.cat([x, T], dim=-1)


class _WithTime(torch.autograd.Function):
    r"""Derivative :math:`\partial x = g_x + \kappa (g_T / T)\, x`, in one pass over x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kappa: float) -> Tensor:
        h = _plain_with_time(x, kappa)
        ctx.kappa = kappa
        ctx.save_for_backward(x, h)
        return h

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        x, h = ctx.saved_tensors
        T = unitless_time(x, ctx.kappa, -1) if torch.is_grad_enabled() else h[..., -1:]
        return torch.addcmul(g[..., :-1], x, g[..., -1:] / T, value=ctx.kappa), None
