"""HNN++'s linear layer in Lorentz coordinates: new coordinates are distances to hyperplanes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import full_precision, prepare, require_features
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.geometry.distance import unit, unitless_time
from lresnet.geometry.stack import times_rows
from lresnet.nn.input_map import MAX_RADIUS
from lresnet.nn.mlr import hyperplane_sines
from lresnet.nn.sparse import SparseMatrix

__all__ = ["HyperplaneLinear"]


class HyperplaneLinear(ManifoldModule):
    r"""Point to hyperplane (Shimizu et al., ICLR 2021): the point whose coordinates have the distances v_k from axes.

    .. math:: y_k = \frac{\sinh(\sqrt\kappa v_k)}{\sqrt\kappa}, \qquad
        \sqrt\kappa v_k = 2 |z_k| \operatorname{asinh}\Big(\sqrt\kappa \frac{x \cdot z_k}{|z_k|}
        \cosh(2 \sqrt\kappa r_k) - \sqrt\kappa x_t \sinh(2 \sqrt\kappa r_k)\Big)

    (v is :func:`~lresnet.nn.mlr.lorentz_mlr`; what HNN++ divides by to come back to the Poincare ball is the map
    between the two models, so nothing of it is left here.) Near the origin y is :math:`2 z \cdot x`. Far from it y
    grows as the power 2 \|z\| of x: the length of a row of weights is a power of the distance, where a linear map of
    space coordinates has it as a factor. So that float32 can hold what follows, :math:`\sqrt\kappa v_k` stops at
    ``max_radius`` on either side.

    Args:
        in_features, out_features: dimensions n and m of the spaces.
        manifold: owner of the curvature; referred to, not registered.
        max_radius: largest distance from an axis, in radii of curvature.

    Shapes:
        [..., n] -> [..., m]; the input may be a :class:`~lresnet.nn.sparse.SparseMatrix` [N, n]. With parameters that
        are stacks (:mod:`lresnet.geometry.stack`): [N, S, n] -> [N, S, m].

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
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features, **factory))
        self.bias = torch.nn.Parameter(torch.empty(out_features, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Half of Glorot's start: near the origin the layer is then the twin's."""
        torch.nn.init.xavier_uniform_(self.weight, gain=0.5)
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """``time``: [N, 1], of a sparse x."""
        y = self._map(x, time)
        return y.to(x.dtype) if isinstance(x, Tensor) else y

    def with_time(self, x: Tensor | SparseMatrix, time: Tensor | None = None) -> Tensor:
        """[..., m+1], float32 or wider: the points and, last, sqrt(kappa) times their time."""
        y = self._map(x, time)
        return torch.cat([y, unitless_time(y, kappa_of(self.manifold.curvature, y.dtype), -1)], dim=-1)

    def _map(self, x: Tensor | SparseMatrix, time: Tensor | None) -> Tensor:
        """In float32 or wider."""
        if isinstance(x, SparseMatrix):
            if time is None:
                raise ValueError("a sparse x needs its time, [N, 1] (lresnet.nn.input_map.features_to_points gives it)")
            direction, norm = unit(self.weight, -1)
            along = x @ direction.movedim(-1, 0)
            kappa = kappa_of(self.manifold.curvature, along.dtype)
            return self._across(along, root(kappa) * time, norm.squeeze(-1), self.bias, root(kappa))
        (x,), _ = prepare(x)
        require_features(x, self.in_features, "HyperplaneLinear")
        with full_precision(x):
            kappa = kappa_of(self.manifold.curvature, x.dtype)
            direction, norm = unit(self.weight.to(x.dtype), -1)
            along, T = times_rows(direction, x), unitless_time(x, kappa, -1)
            return self._across(along, T, norm.squeeze(-1), self.bias.to(x.dtype), root(kappa))

    def _across(self, along: Tensor, T: Tensor, norm: Tensor, bias: Tensor, k: Curvature) -> Tensor:
        """y from x . z/|z|, T = sqrt(kappa) times the time of x, |z|, r and k = sqrt(kappa)."""
        distance = 2 * norm * hyperplane_sines(along, T, bias, k).asinh()
        return distance.clamp(-self.max_radius, self.max_radius).sinh() / k

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {super().extra_repr()}"
