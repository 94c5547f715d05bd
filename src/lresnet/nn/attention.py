"""Linear attention of all nodes (SGFormer, Wu et al., NeurIPS 2023), in vectors and in points.

Softmax attention, as transformers have it, is in :mod:`lresnet.nn.softmax_attention`. This module keeps the name that
pickles of version 0.2 have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lresnet._lazy import Deprecated, lazy_names
from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import checked_points, full_precision
from lresnet.geometry.curvature import kappa_of
from lresnet.nn.aggregation import centroid_of_sums
from lresnet.nn.euclidean import EuclideanLinear
from lresnet.nn.linear import LorentzLinear

__all__ = ["VALUES", "LinearAttention", "LorentzLinearAttention", "attention_rows", "linear_attention"]

VALUES = ("matrix", "identity")
"""Values of :class:`LinearAttention`, by name."""


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    r"""Return SGFormer's attention of all N nodes to all nodes, without the N x N matrix.

    .. math:: A v = D^{-1} \Big(v + \tfrac1N \tilde q (\tilde k^T v)\Big), \qquad
        D_i = 1 + \tfrac1N \tilde q_i \cdot \sum_j \tilde k_j, \qquad \tilde q = q/\|q\|_F, \quad \tilde k = k/\|k\|_F

    Rows of A sum to 1. By the Cauchy-Schwarz inequality :math:`D_i \ge 1 - 1/\sqrt N`. For a single node, where this
    bound is 0, A is 1. If q or k is 0, A is the identity.

    Args:
        q: Queries, [N, ..., d]. The axes in the middle count heads or members of a stack; each has its own norms.
        k: Keys, [N, ..., d].
        v: Values, [N, ..., m].

    Shapes:
        [N, ..., d], [N, ..., d], [N, ..., m] -> [N, ..., m]

    Example:
        >>> q, k, v = torch.randn(3, 100, 8).unbind()
        >>> linear_attention(q, k, v).shape
        torch.Size([100, 8])
    """
    # The norms divide tensors without a node axis: with a million nodes each pass over them takes a second.
    scale = _scale(q, k)
    summary = torch.einsum("n...d,n...m->...dm", k, v) * scale.unsqueeze(-1)
    inverse = _row_sums(q, k.sum(0) * scale).reciprocal()
    return (v + torch.einsum("n...d,...dm->n...m", q, summary)) * inverse


def attention_rows(q: Tensor, k: Tensor, nodes: Tensor) -> Tensor:
    """Return the rows ``nodes`` [R] of the matrix A of :func:`linear_attention`, [R, ..., N]; each sums to 1.

    Example:
        >>> q, k = torch.randn(2, 100, 8).unbind()
        >>> attention_rows(q, k, torch.tensor([4, 2])).shape
        torch.Size([2, 100])
    """
    count, scale = q.shape[0], _scale(q, k)
    own = torch.nn.functional.one_hot(nodes.long(), count).to(q.dtype)
    own = own.view(-1, *[1] * (q.dim() - 2), count)
    q = q.index_select(0, nodes)
    others = torch.einsum("r...d,n...d->r...n", q, k) * scale
    return (own + others) / _row_sums(q, k.sum(0) * scale)


def _scale(q: Tensor, k: Tensor) -> Tensor:
    """Return 1 / (N |q|_F |k|_F), [..., 1]; 0 for fewer than two nodes. Norms that are 0 count as 1."""
    norms = [torch.linalg.vector_norm(part, dim=(0, -1)).unsqueeze(-1) for part in (q, k)]
    of_q, of_k = (torch.where(norm > 0, norm, 1.0) for norm in norms)
    return (0.0 if q.shape[0] < 2 else 1 / q.shape[0]) / of_q / of_k


def _row_sums(q: Tensor, k: Tensor) -> Tensor:
    """Return D, [N, ..., 1], given the scaled sum of the keys."""
    return 1 + torch.einsum("n...d,...d->n...", q, k).unsqueeze(-1)


class LinearAttention(torch.nn.Module):
    r"""Linear-time attention of SGFormer: :func:`linear_attention` of linear maps of x, averaged over the heads.

    .. math:: y = \tfrac1H \sum_h A^h v^h, \qquad q^h, k^h, v^h \text{ linear in } x

    Every head has the full width. The released SGFormer divides q and k by a norm over all heads together; here each
    head is the single head of the publication.

    The layer attends over the first axis, the nodes of one graph. Sequences [B, T, C] are an error: attention would mix
    the B sequences. ``torch.vmap(layer)(x)`` attends within each.

    Args:
        in_features: Width of the input.
        out_features: Width of the output.
        heads: Number of heads H.
        values: "matrix": the values are a linear map of x, as in the SGFormer paper. "identity": the values are x, as
            in the released scripts; this needs equal widths.

    Shapes:
        [N, in] -> [N, out]; with the parameters of a stack (:mod:`lresnet.geometry.stack`) [N, S, in] -> [N, S, out].

    Example:
        >>> LinearAttention(8, 4, heads=2)(torch.randn(100, 8)).shape
        torch.Size([100, 4])
    """

    def __init__(self, in_features: int, out_features: int, heads: int = 1, values: str = "matrix") -> None:
        super().__init__()
        if values not in VALUES:
            raise ValueError(f"values must be one of {', '.join(VALUES)}, got {values!r}")
        if values == "identity" and in_features != out_features:
            raise ValueError(
                "values='identity' needs in_features equal to out_features, "
                f"got {in_features} and {out_features}; use values='matrix'"
            )
        self.heads = heads
        self.query, self.key = (EuclideanLinear(in_features, heads * out_features) for _ in range(2))
        self.value = EuclideanLinear(in_features, heads * out_features) if values == "matrix" else None

    def forward(self, x: Tensor) -> Tensor:
        _require_nodes(x, self.query, self)
        q, k = (_split(layer(x), self.heads) for layer in (self.query, self.key))
        v = x.unsqueeze(-2) if self.value is None else _split(self.value(x), self.heads)
        return _mean(linear_attention(q, k, v))

    def rows(self, x: Tensor, nodes: Tensor) -> Tensor:
        """Return the attention weights of ``nodes`` [R], [R, N], averaged over the heads; each row sums to 1."""
        _require_nodes(x, self.query, self)
        q, k = (_split(layer(x), self.heads) for layer in (self.query, self.key))
        return attention_rows(q, k, nodes).mean(-2)

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


class LorentzLinearAttention(ManifoldModule):
    r"""Linear-time attention whose output is the Lorentzian centroid of all points, :math:`y_i = s_i / n_i`.

    .. math:: [s_i, t_i] = \tfrac1H \sum_h \sum_j A^h_{ij} [v^h_j, T^h_j], \qquad n_i^2 = t_i^2 - \kappa |s_i|^2 \ge 1

    A is that of :func:`linear_attention`, the values v come from :class:`LorentzLinear`, and T is :math:`\sqrt\kappa`
    times the time of a value. A centroid needs non-negative weights, otherwise the sum may leave the cone of time-like
    vectors. So q and k are ReLUs of linear maps of the space coordinates. As in :class:`LinearAttention`, sequences
    [B, T, C] are an error. This layer was called ``LorentzAttention`` up to lresnet 0.2.

    Args:
        in_features: Dimension of the input space.
        out_features: Dimension of the output space.
        heads: Number of heads H.
        manifold: Owner of the curvature. It is not registered as a submodule.

    Shapes:
        [N, in] -> [N, out]; with the parameters of a stack [N, S, in] -> [N, S, out].

    Example:
        >>> LorentzLinearAttention(8, 4, manifold=Lorentz(-1.0))(torch.randn(100, 8)).shape
        torch.Size([100, 4])
    """

    def __init__(self, in_features: int, out_features: int, heads: int = 1, *, manifold: Lorentz) -> None:
        super().__init__(manifold)
        self.heads = heads
        self.query, self.key = (EuclideanLinear(in_features, heads * out_features) for _ in range(2))
        self.values = torch.nn.ModuleList(
            LorentzLinear(in_features, out_features, manifold=manifold) for _ in range(heads)
        )

    def forward(self, x: Tensor) -> Tensor:
        _require_nodes(x, self.query, self)
        with full_precision(x):
            v = torch.stack([value.with_time(x) for value in self.values], dim=-2)  # type: ignore[operator]
            q, k = self._query_and_key(x)
            sums = _mean(linear_attention(q, k, v))
            kappa = kappa_of(self.manifold.curvature, sums.dtype)
            least = torch.ones_like(sums[..., :1])  # the sum of a row's weights, the lower bound of n
            return centroid_of_sums(sums, least, kappa, some_empty=False).to(x.dtype)

    def rows(self, x: Tensor, nodes: Tensor) -> Tensor:
        """Return the weights of the points in the centroids of ``nodes`` [R], [R, N], averaged over the heads."""
        _require_nodes(x, self.query, self)
        with full_precision(x):
            return attention_rows(*self._query_and_key(x), nodes).mean(-2).to(x.dtype)

    def _query_and_key(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return q and k in float32 or wider, like the values, whatever the dtypes of x and of the weights."""
        (x,), _ = checked_points(x)
        q, k = (_split(torch.relu(_linear(layer, x)), self.heads) for layer in (self.query, self.key))
        return q, k

    def extra_repr(self) -> str:
        return f"heads={self.heads}, {super().extra_repr()}"


def _linear(layer: EuclideanLinear, x: Tensor) -> Tensor:
    """Apply a layer in the dtype of x, as :class:`LorentzLinear` does."""
    if layer.weight.dtype == x.dtype:
        return layer(x)  # type: ignore[no-any-return]
    parameters = {name: parameter.to(x.dtype) for name, parameter in layer.named_parameters()}
    return torch.func.functional_call(layer, parameters, (x,))  # type: ignore[no-any-return]


def _require_nodes(x: Tensor, query: EuclideanLinear, layer: torch.nn.Module) -> None:
    """Raise ``ValueError`` for sequences [B, T, C]; only a stack of parameters [S, m, n] takes three axes."""
    if x.dim() != query.weight.dim():
        name, axes = type(layer).__name__, "[N, C]" if query.weight.dim() == 2 else "[N, S, C]"
        hint = ""
        if x.dim() == 3:
            hint = "; the batch would attend across its sequences: use torch.vmap(layer)(x) to attend within each"
        raise ValueError(f"{name} needs the nodes of one graph, {axes}, got shape {tuple(x.shape)}{hint}")


def _split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1))  # type: ignore[no-any-return]


def _mean(x: Tensor) -> Tensor:
    """Return the mean over the heads, without a copy if there is only one."""
    return x.squeeze(-2) if x.shape[-2] == 1 else x.mean(-2)


if not TYPE_CHECKING:
    _FORMER = {"LorentzAttention": Deprecated("lresnet.nn.LorentzLinearAttention", "0.4")}  # old pickles name it
    __getattr__, _ = lazy_names(__name__, {}, _FORMER)
