"""Block of a transformer: attention and a perceptron, each with a residual connection."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.nn.gated_mlp import Activation, LorentzGatedMLP
from lresnet.nn.point_norm import LorentzLayerNorm, LorentzRMSNorm
from lresnet.nn.residual_norm import ResidualCall, autocast_dtype, residual_and_norm
from lresnet.nn.rotary import Rotary
from lresnet.nn.softmax_attention import KeyValueCache, LorentzAttention, Scores
from lresnet.residual import LorentzResidual, make_residual

__all__ = ["LorentzTransformerBlock", "Norm", "scores_of"]

Norm: TypeAlias = Literal["rms", "layer"]

_LONGEST_JOINED = 2048  # coordinates: measured on an H200, results/benchmarks.jsonl, "reference compiled"
_NORMS = {"rms": LorentzRMSNorm, "layer": LorentzLayerNorm}


class LorentzTransformerBlock(torch.nn.Module):
    r"""Block of a transformer on points; with ``residual="euclidean"`` its Euclidean baseline.

    .. math:: x' = x \oplus \mathrm{attention}(\nu(x)), \qquad y = x' \oplus \mathrm{mlp}(\nu'(x'))

    The Lorentz residual has the scale 1 + w by default: without a scale it is an average, in which every block halves
    the share of all earlier ones; with it the block becomes the usual sum as the curvature goes to 0.

    Args:
        features: Dimension n of the space.
        num_heads, num_kv_heads: As for :class:`LorentzAttention`.
        hidden, activation, gated: As for :class:`LorentzGatedMLP`.
        residual: A name of :data:`lresnet.residual.METHODS`.
        residual_options: Options of the residual. Default of the Lorentz residual: a learned weight, initially 1, and
            ``scale="1+w"``.
        scores: As for :class:`LorentzAttention`. None: "dot" for ``residual="euclidean"``, otherwise "lorentz".
        norm: :math:`\nu`, "rms" or "layer".
        norm_first: Norms before attention and perceptron. False: after the residuals, as in the first transformers.
        bias: Whether the linear maps have biases.
        dropout: Dropout rate of the space coordinates of both branches; a dropped branch is at the origin.
        precise: As for :func:`lorentz_attention`.
        manifold: Owner of the curvature. It is not registered as a submodule.

    Shapes:
        [B, T, n] -> [B, T, n]

    Example:
        >>> block = LorentzTransformerBlock(64, num_heads=4, manifold=Lorentz(-0.02))
        >>> block(torch.randn(2, 10, 64), is_causal=True).shape
        torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        hidden: int | None = None,
        residual: str = "lorentz",
        residual_options: dict[str, Any] | None = None,
        scores: Scores | None = None,
        norm: Norm = "rms",
        norm_first: bool = True,
        activation: Activation = "silu",
        gated: bool = True,
        bias: bool = False,
        dropout: float = 0.0,
        precise: bool = False,
        manifold: Lorentz,
    ) -> None:
        super().__init__()
        if norm not in _NORMS:
            raise ValueError(f"norm must be one of {', '.join(_NORMS)}, got {norm!r}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
        self.norm_first, self.dropout = norm_first, dropout
        options: dict[str, Any] = {} if residual_options is None else residual_options
        if residual == "lorentz":
            options = {"weight": "learned", "scale": "1+w"} | options
        self.attention_norm, self.mlp_norm = (_NORMS[norm](features, manifold=manifold) for _ in range(2))
        self.attention = LorentzAttention(
            features,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            scores=scores_of(residual, scores),
            bias=bias,
            precise=precise,
            manifold=manifold,
        )
        self.mlp = LorentzGatedMLP(features, hidden, activation=activation, gated=gated, bias=bias, manifold=manifold)
        self.attention_residual, self.mlp_residual = (make_residual(residual, manifold, **options) for _ in range(2))
        for each in (self.attention_residual, self.mlp_residual):
            if isinstance(each, LorentzResidual):
                each.joined_by_compiler = features <= _LONGEST_JOINED
                each.recomputed_by_compiler = each is self.attention_residual

    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        rotary: Rotary | None = None,
        cache: KeyValueCache | None = None,
        normed: Tensor | None = None,
        next_norm: torch.nn.Module | None = None,
        next_dtype: torch.dtype | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the points after the block.

        Blocks that are compiled one by one may compute the norm that follows them: the compiler then joins it with the
        last residual, in both passes.

        Args:
            x: Points [B, T, n].
            attn_mask, is_causal, rotary, cache: As for :meth:`LorentzAttention.forward`.
            normed: The result of ``attention_norm(x)``, if it is known. Requires ``norm_first``.
            next_norm: The norm that follows the block. If it is given, the block returns its points and their norm.
                Requires ``norm_first``.
            next_dtype: Dtype of that norm. None: that of the points.
        """
        if not self.norm_first:
            if normed is not None or next_norm is not None:
                raise ValueError("normed and next_norm require norm_first=True, but this block has norm_first=False")
            return self._norm_last(x, attn_mask, is_causal, rotary, cache)
        rows = self.attention_norm(x) if normed is None else normed
        branch = self._dropped(self.attention(rows, None, None, attn_mask, is_causal, rotary=rotary, cache=cache))
        dtype = autocast_dtype(self.mlp, x) if torch.compiler.is_compiling() else None
        middle, rows = residual_and_norm(self.attention_residual, self.mlp_norm, x, branch, dtype)
        inner = self._dropped(self.mlp(rows))
        if next_norm is None:
            result: Tensor = self.mlp_residual(middle, inner)
            return result
        source = ResidualCall(self.attention_residual, x, branch)
        return residual_and_norm(self.mlp_residual, next_norm, middle, inner, next_dtype, source)

    def _norm_last(
        self,
        x: Tensor,
        attn_mask: Tensor | None,
        is_causal: bool,
        rotary: Rotary | None,
        cache: KeyValueCache | None,
    ) -> Tensor:
        branch = self._dropped(self.attention(x, None, None, attn_mask, is_causal, rotary=rotary, cache=cache))
        x = self.attention_norm(self.attention_residual(x, branch))
        result: Tensor = self.mlp_norm(self.mlp_residual(x, self._dropped(self.mlp(x))))
        return result

    def _dropped(self, x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, self.dropout, self.training) if self.dropout else x

    def extra_repr(self) -> str:
        return f"norm_first={self.norm_first}, dropout={self.dropout:g}"


def scores_of(residual: str, scores: Scores | None) -> Scores:
    """Return the scores of attention in a block with this residual.

    Example:
        >>> scores_of("euclidean", None), scores_of("tangent", None), scores_of("euclidean", "l2")
        ('dot', 'lorentz', 'l2')
    """
    if scores is not None:
        return scores
    return "dot" if residual == "euclidean" else "lorentz"
