"""Linear layer of HNN++ in Lorentz coordinates: the new coordinates are given by distances to hyperplanes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.checks import checked_points, full_precision, require_features
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.geometry.distance import unit, unitless_time
from lresnet.geometry.stack import times_rows
from lresnet.nn.input_map import MAX_RADIUS
from lresnet.nn.lazy import LazyInput
from lresnet.nn.mlr import hyperplane_sines
from lresnet.nn.sparse import SparseMatrix

__all__ = ["HyperplaneLinear"]


class HyperplaneLinear(LazyInput):
    r"""Fully connected layer of HNN++ (Shimizu et al., ICLR 2021) in Lorentz coordinates.

    .. math:: y_k = \frac{\sinh(\sqrt\kappa v_k)}{\sqrt\kappa}, \qquad
        \sqrt\kappa v_k = 2 |z_k| \operatorname{asinh}\Big(\sqrt\kappa \frac{x \cdot z_k}{|z_k|}
        \cosh(2 \sqrt\kappa r_k) - \sqrt\kappa x_t \sinh(2 \sqrt\kappa r_k)\Big)

    The output point has the signed distances v_k from the coordinate hyperplanes; v is
    :func:`~lresnet.nn.mlr.lorentz_mlr`. The last step of HNN++, a map back to the Poincare ball, is not needed here.
    Near the origin y is :math:`2 z \cdot x`. Far from it y grows as a power of x with exponent 2 \|z\|: the norm of a
    row of weights is an exponent here, and a factor in a linear map of space coordinates. To stay within the range of
    float32, :math:`\sqrt\kappa v_k` is limited to ``max_radius`` in absolute value.

    Args:
        in_features: Dimension n of the input space; -1 takes it from the first input.
        out_features: Dimension m of the output space.
        manifold: Owner of the curvature. It is not registered as a submodule.
        max_radius: Largest distance from a coordinate hyperplane, in radii of curvature.

    Shapes:
        [..., n] -> [..., m]; the input may be a :class:`~lresnet.nn.SparseMatrix` [N, n]. With the parameters of a
        stack (:mod:`lresnet.geometry.stack`): [N, S, n] -> [N, S, m].

    Example:
        >>> layer = HyperplaneLinear(8, 4, manifold=Lorentz(-1.0))
        >>> layer(torch.randn(5, 8)).shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        manifold: Lorentz,
        max_radius: float = MAX_RADIUS,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        if not max_radius > 0:
            raise ValueError(f"max_radius must be positive, got {max_radius}")
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.in_features, self.out_features, self.max_radius = in_features, out_features, max_radius
        self.make_weight(out_features, **factory)
        self.bias = torch.nn.Parameter(torch.empty(out_features, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise with half of Glorot's range: near the origin the layer then equals the Euclidean baseline's."""
        if self.is_lazy():
            return
        torch.nn.init.xavier_uniform_(self.weight, gain=0.5)
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """Return the mapped points, [..., m]. A sparse x needs its ``time``, [N, 1]."""
        y = self._map(x, time)
        return y.to(x.dtype) if isinstance(x, Tensor) else y

    def with_time(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """Return [..., m+1] in float32 or wider: the mapped points, then sqrt(kappa) times their time."""
        y = self._map(x, time)
        return torch.cat([y, unitless_time(y, kappa_of(self.manifold.curvature, y.dtype), -1)], dim=-1)

    def _map(self, x: Tensor | SparseMatrix, time: Tensor | None) -> Tensor:
        """Return y in float32 or wider."""
        if self.is_lazy():
            self.materialise(x.shape[-1])
        if isinstance(x, SparseMatrix):
            if time is None:
                raise ValueError(
                    "a sparse x needs its time, [N, 1]; lresnet.nn.input_map.features_to_points returns both"
                )
            direction, norm = unit(self.weight, -1)
            along = x @ direction.movedim(-1, 0)
            kappa = kappa_of(self.manifold.curvature, along.dtype)
            return self._coordinates(along, root(kappa) * time, norm.squeeze(-1), self.bias, root(kappa))
        (x,), _ = checked_points(x)
        require_features(x, self.in_features, "HyperplaneLinear")
        with full_precision(x):
            kappa = kappa_of(self.manifold.curvature, x.dtype)
            direction, norm = unit(self.weight.to(x.dtype), -1)
            along, T = times_rows(direction, x), unitless_time(x, kappa, -1)
            return self._coordinates(along, T, norm.squeeze(-1), self.bias.to(x.dtype), root(kappa))

    def _coordinates(self, along: Tensor, T: Tensor, norm: Tensor, bias: Tensor, k: Curvature) -> Tensor:
        """Return y, given x . z/|z|, T = sqrt(kappa) times the time of x, |z|, r and k = sqrt(kappa)."""
        distance = 2 * norm * hyperplane_sines(along, T, bias, k).asinh()
        return distance.clamp(-self.max_radius, self.max_radius).sinh() / k

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {super().extra_repr()}"
