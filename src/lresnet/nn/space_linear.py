"""Linear map of the space coordinates: the paper's hyperbolic layer HL for matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.checks import checked_points, full_precision, require_features
from lresnet.geometry.curvature import kappa_of
from lresnet.geometry.distance import unitless_time
from lresnet.geometry.stack import times_rows
from lresnet.nn.lazy import LazyInput
from lresnet.nn.sparse import SparseMatrix

__all__ = ["SpaceLinear"]


class SpaceLinear(LazyInput):
    r"""Linear map of the space coordinates, :math:`y_s = W x_s + b`; the time follows from them.

    .. math:: [t, x] \mapsto \big[\sqrt{|W x + b|^2 + 1/\kappa},\; W x + b\big]

    This is HL of LResNet, section 4.3 (see also Bdeir et al., ICLR 2024). :class:`~lresnet.nn.LorentzLinear` keeps only
    the direction of its result and sets the distance from the origin by a gate. SpaceLinear keeps lengths: features
    near the origin stay there, and weight decay pulls the results towards it. The results are not bounded. A centroid
    in float32 loses about T^2 rounding units (:func:`~lresnet.nn.aggregation.aggregate_with_time`), so times T should
    not exceed a few hundred.

    Args:
        in_features: Dimension n of the input space; -1 takes it from the first input.
        out_features: Dimension m of the output space.
        manifold: Owner of the curvature. It is not registered as a submodule.

    Shapes:
        [..., n] -> [..., m]; the input may be a :class:`~lresnet.nn.SparseMatrix` [N, n]. With the parameters of a
        stack (:mod:`lresnet.geometry.stack`): [N, S, n] -> [N, S, m].

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
        self.make_weight(out_features, **factory)
        self.bias = torch.nn.Parameter(torch.empty(out_features, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as Glorot and Bengio do, like the Euclidean baseline."""
        if self.is_lazy():
            return
        torch.nn.init.xavier_uniform_(self.weight)
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """Return the mapped points, [..., m]. ``time`` is ignored; the other linear layers need it for a sparse x."""
        y = self._map(x)
        return y.to(x.dtype) if isinstance(x, Tensor) else y

    def with_time(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """Return [..., m+1] in float32 or wider: the mapped points, then sqrt(kappa) times their time."""
        y = self._map(x)
        return torch.cat([y, unitless_time(y, kappa_of(self.manifold.curvature, y.dtype), -1)], dim=-1)

    def _map(self, x: Tensor | SparseMatrix) -> Tensor:
        """Return W x + b in float32 or wider."""
        if self.is_lazy():
            self.materialise(x.shape[-1])
        if isinstance(x, SparseMatrix):
            return x @ self.weight.movedim(-1, 0) + self.bias
        (x,), _ = checked_points(x)
        require_features(x, self.in_features, "SpaceLinear")
        with full_precision(x):
            return times_rows(self.weight.to(x.dtype), x) + self.bias.to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {super().extra_repr()}"
