"""The paper's hyperbolic layer HL for matrices: a linear map of the space coordinates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import full_precision, prepare, require_features
from lresnet.geometry.curvature import kappa_of
from lresnet.geometry.distance import unitless_time
from lresnet.geometry.stack import times_rows
from lresnet.nn.sparse import SparseMatrix

__all__ = ["SpaceLinear"]


class SpaceLinear(ManifoldModule):
    r"""A linear map of the space part, after which time follows: :math:`y_s = W x_s + b`.

    .. math:: [t, x] \mapsto \big[\sqrt{|W x + b|^2 + 1/\kappa},\; W x + b\big]

    (LResNet's HL, section 4.3; Bdeir et al., ICLR 2024.) Where :class:`~lresnet.nn.LorentzLinear` fixes the distance
    from the origin by a gate and keeps a direction only, this keeps lengths: features near the origin stay there, and
    weight decay draws the results to it. Nothing bounds them, so a centroid in float32, which loses about T^2 rounding
    units (:func:`~lresnet.nn.graph_conv.aggregate_with_time`), wants times T of a few hundred at most.

    Args:
        in_features, out_features: dimensions n and m of the spaces.
        manifold: owner of the curvature; referred to, not registered.

    Shapes:
        [..., n] -> [..., m]; the input may be a :class:`~lresnet.nn.sparse.SparseMatrix` [N, n]. With parameters that
        are stacks (:mod:`lresnet.geometry.stack`): [N, S, n] -> [N, S, m].

    Example:
        >>> layer = SpaceLinear(8, 4, manifold=Lorentz(-1.0))
        >>> layer(torch.randn(5, 8)).shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        manifold: Lorentz,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.in_features, self.out_features = in_features, out_features
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, **factory))
        self.bias = torch.nn.Parameter(torch.empty(out_features, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot's start, as in the Euclidean twin."""
        torch.nn.init.xavier_uniform_(self.weight)
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """``time``, which :class:`~lresnet.nn.LorentzLinear` needs of a sparse x, is of no account here."""
        y = self._map(x)
        return y.to(x.dtype) if isinstance(x, Tensor) else y

    def with_time(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """[..., m+1], float32 or wider: the points and, last, sqrt(kappa) times their time."""
        y = self._map(x)
        return torch.cat([y, unitless_time(y, kappa_of(self.manifold.curvature, y.dtype), -1)], dim=-1)

    def _map(self, x: Tensor | SparseMatrix) -> Tensor:
        """W x + b in float32 or wider."""
        if isinstance(x, SparseMatrix):
            return x @ self.weight.movedim(-1, 0) + self.bias
        (x,), _ = prepare(x)
        require_features(x, self.in_features, "SpaceLinear")
        with full_precision(x):
            return times_rows(self.weight.to(x.dtype), x) + self.bias.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {super().extra_repr()}"
