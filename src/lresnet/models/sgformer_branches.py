"""The two branches of SGFormer, attention and graph convolutions, in vectors and on the hyperboloid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.curvature import kappa_of
from lresnet.geometry.stack import times_rows
from lresnet.nn.attention import LinearAttention, LorentzAttention
from lresnet.nn.euclidean import EuclideanGraphConv, EuclideanLinear
from lresnet.nn.graph_conv import LorentzGraphConv, centroid_of_sums, least_times
from lresnet.nn.input_map import Points
from lresnet.nn.linear import LorentzLinear
from lresnet.nn.sparse import SparseMatrix
from lresnet.nn.weighted_join import WeightedJoin
from lresnet.residual import make_residual

__all__ = ["NORMS", "EuclideanBranches", "LorentzBranches", "RowNorm"]

Drop = Callable[[Tensor], Tensor]


class RowNorm(torch.nn.LayerNorm):
    """torch's layer norm of the coordinates, whose parameters may also be those of a stack, [S, n].

    Example:
        >>> RowNorm(4)(torch.randn(5, 4)).shape
        torch.Size([5, 4])
    """

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.nn.functional.layer_norm(x, self.normalized_shape, eps=self.eps)
        return torch.addcmul(self.bias, rows, self.weight)


NORMS: dict[str, Callable[[int], torch.nn.Module]] = {"none": torch.nn.Identity, "layer": RowNorm}


class EuclideanBranches(torch.nn.Module):
    r"""SGFormer's branches: vectors, ReLUs, sums. With dropout after every step but the last convolution:

    .. math:: z^{(0)} = \mathrm{relu}(\nu(X W + b)), \qquad
        z^{(l)} = \nu\big((1 - \beta) z^{(l-1)} + \beta\, \mathrm{Att}_l(z^{(l-1)})\big)

        g^{(1)} = \hat A z^{(0)} W_1 + b_1, \qquad g^{(l)} = \hat A\, \mathrm{relu}(\nu(g^{(l-1)})) W_l + b_l

    :math:`\nu` is the norm or nothing, :math:`\hat A` the normalised adjacency. The bias comes after it: rows of
    :math:`\hat A` do not sum to 1, so that a bias before it would be as large as the degrees have it.

    Args:
        in_features, hidden: widths. num_layers: convolutions. attention_layers, heads: of the attention.
        attention_weight: beta. norm: a name of :data:`NORMS`. manifold: of no account here.
        graph_input: "embedding"; with "features" the first convolution takes X in place of z^(0).
        values: of :class:`LinearAttention`.
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        num_layers: int,
        attention_layers: int,
        heads: int,
        attention_weight: float,
        norm: str,
        manifold: Lorentz,
        graph_input: str = "embedding",
        values: str = "matrix",
    ) -> None:
        super().__init__()
        self.input, self.input_norm = EuclideanLinear(in_features, hidden), NORMS[norm](hidden)
        attentions = range(attention_layers)
        self.attentions = torch.nn.ModuleList(LinearAttention(hidden, hidden, heads, values) for _ in attentions)
        self.joins = torch.nn.ModuleList(WeightedJoin("euclidean", manifold, attention_weight) for _ in attentions)
        self.attention_norms = torch.nn.ModuleList(NORMS[norm](hidden) for _ in attentions)
        widths = [in_features if graph_input == "features" else hidden] + [hidden] * (num_layers - 1)
        self.convs = torch.nn.ModuleList(EuclideanGraphConv(width, hidden) for width in widths)
        self.conv_norms = torch.nn.ModuleList(NORMS[norm](hidden) for _ in range(num_layers - 1))

    def start(self, points: Points, drop: Drop) -> Tensor:
        """Features to z^(0)."""
        z = _times(points.x, self.input.weight) + self.input.bias
        return drop(torch.relu(self.input_norm(z)))

    def attend(self, z: Tensor, drop: Drop, layers: int | None = None) -> Tensor:
        """The attention branch, or its first ``layers``."""
        steps = zip(self.attentions, self.joins, self.attention_norms, strict=True)
        for attention, join, norm in list(steps)[:layers]:
            z = drop(norm(join(z, attention(z))))
        return z

    def convolve(self, z: Tensor | SparseMatrix, A: SparseMatrix, drop: Drop) -> Tensor:
        """The graph branch, from z^(0) or from the features."""
        g = _convolved(self.convs[0], z, A)
        for norm, conv in zip(self.conv_norms, self.convs[1:], strict=True):
            g = _convolved(conv, drop(torch.relu(norm(g))), A)
        return g

    def rows(self, z: Tensor, nodes: Tensor, layer: int, drop: Drop) -> Tensor:
        """What ``nodes`` attend to in attention layer number ``layer``."""
        return self.attentions[layer].rows(self.attend(z, drop, layer), nodes)  # type: ignore[operator, no-any-return]


def _times(x: Tensor | SparseMatrix, weight: Tensor) -> Tensor:
    return x.product(weight.movedim(-1, 0)) if isinstance(x, SparseMatrix) else times_rows(weight, x)


def _convolved(conv: torch.nn.Module, x: Tensor | SparseMatrix, A: SparseMatrix) -> Tensor:
    linear: EuclideanLinear = conv.linear  # type: ignore[assignment]
    return A.product(_times(x, linear.weight)) + linear.bias


class LorentzBranches(torch.nn.Module):
    r"""Both branches on the hyperboloid, every skip in them a residual connection of the same kind:

    .. math:: z^{(0)} = L(\exp_o x), \qquad
        z^{(l)} = (1 - \beta) z^{(l-1)} \oplus \beta\, \mathrm{Att}_l(z^{(l-1)})

        g^{(1)} = G_1(z^{(0)}), \qquad g^{(l)} = g^{(l-1)} \oplus G_l(g^{(l-1)})

    with :class:`LorentzLinear` L, :class:`LorentzAttention` Att and :class:`LorentzGraphConv` G. What enters Att and G
    goes through a ReLU and dropout of the space coordinates, after which it is a point again. There is no norm.

    Args:
        residual: the skips'. The others as in :class:`EuclideanBranches`.
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        num_layers: int,
        attention_layers: int,
        heads: int,
        attention_weight: float,
        residual: str,
        manifold: Lorentz,
    ) -> None:
        super().__init__()
        self.input = LorentzLinear(in_features, hidden, manifold=manifold)
        attentions, convs = range(attention_layers), range(num_layers)
        self.attentions = torch.nn.ModuleList(
            LorentzAttention(hidden, hidden, heads, manifold=manifold) for _ in attentions
        )
        self.joins = torch.nn.ModuleList(WeightedJoin(residual, manifold, attention_weight) for _ in attentions)
        self.convs = torch.nn.ModuleList(LorentzGraphConv(hidden, hidden, manifold=manifold) for _ in convs)
        options: dict[str, Any] = {"weight": 1.0} if residual == "lorentz" else {}
        self.residuals = torch.nn.ModuleList(make_residual(residual, manifold, **options) for _ in convs[1:])

    def start(self, points: Points, drop: Drop) -> Tensor:
        """Points of the features to z^(0)."""
        time = points.time if isinstance(points.x, SparseMatrix) else None
        return self.input(points.x, time)  # type: ignore[no-any-return]

    def attend(self, z: Tensor, drop: Drop, layers: int | None = None) -> Tensor:
        """The attention branch, or its first ``layers``."""
        for attention, join in list(zip(self.attentions, self.joins, strict=True))[:layers]:
            z = join(z, attention(drop(torch.relu(z))))
        return z

    def convolve(self, z: Tensor, A: SparseMatrix, drop: Drop) -> Tensor:
        """The graph branch."""
        g = _centroids(self.convs[0], drop(torch.relu(z)), A)
        for conv, residual in zip(self.convs[1:], self.residuals, strict=True):
            g = residual(g, _centroids(conv, drop(torch.relu(g)), A))
        return g

    def rows(self, z: Tensor, nodes: Tensor, layer: int, drop: Drop) -> Tensor:
        """What ``nodes`` attend to in attention layer number ``layer``."""
        entering = drop(torch.relu(self.attend(z, drop, layer)))
        return self.attentions[layer].rows(entering, nodes)  # type: ignore[operator, no-any-return]


def _centroids(conv: torch.nn.Module, x: Tensor, A: SparseMatrix) -> Tensor:
    """What a :class:`LorentzGraphConv` gives, by the product that a compiler can follow."""
    h = conv.linear.with_time(x)  # type: ignore[union-attr, operator]
    kappa = kappa_of(conv.manifold.curvature, h.dtype)  # type: ignore[union-attr, arg-type]
    y = centroid_of_sums(A.product(h), least_times(A, h), kappa, some_empty=A.has_empty_rows())
    return y.to(x.dtype)
