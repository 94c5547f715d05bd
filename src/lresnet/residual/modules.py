"""Residual connections as modules: ``residual(x, y)`` with x the skip branch and y the layer's output."""

from __future__ import annotations

import abc
import math
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.residual.fixed_numbers import FixedNumbers
from lresnet.residual.lorentz import lorentz_residual
from lresnet.residual.parallel_transport import parallel_transport_residual
from lresnet.residual.space import space_residual
from lresnet.residual.tangent import tangent_residual
from lresnet.residual.textbook import parallel_transport_textbook, tangent_textbook

__all__ = [
    "EuclideanResidual",
    "LorentzResidual",
    "NoResidual",
    "ParallelTransportResidual",
    "Residual",
    "ReversedParallelTransportResidual",
    "SpaceResidual",
    "TangentResidual",
    "TextbookParallelTransportResidual",
    "TextbookTangentResidual",
]


class Residual(ManifoldModule, abc.ABC):
    """What all residuals share: a manifold they refer to and the axis of the coordinates."""

    def __init__(self, manifold: Lorentz, dim: int = -1) -> None:
        super().__init__(manifold)
        self.dim = dim

    @abc.abstractmethod
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Join the skip branch x and the layer's output y."""

    def kernel(self) -> dict[str, Any] | None:
        """Arguments for :func:`lresnet.kernels.fused_tail`; None where no kernel computes this residual."""
        return None

    def extra_repr(self) -> str:
        return f"{self.manifold.extra_repr()}, dim={self.dim}"


class _Weighted(Residual, FixedNumbers):
    """A residual with a weight w_y = \\|raw_weight\\|: learned, fixed, or one per point."""

    raw_weight: Tensor

    def __init__(
        self,
        manifold: Lorentz,
        weight: str | float | Tensor = "learned",
        dim: int = -1,
        *,
        initial_weight: float = 1.0,
        **factory: Any,
    ) -> None:
        super().__init__(manifold, dim)
        if isinstance(weight, str):
            _require_learned("weight", weight)
            self.raw_weight = torch.nn.Parameter(torch.tensor(_positive("initial_weight", initial_weight), **factory))
        elif isinstance(weight, torch.nn.Parameter):
            self.raw_weight = weight
        elif isinstance(weight, Tensor):
            self.register_buffer("raw_weight", weight)
        else:
            self.fix("raw_weight", _finite("weight", weight), **factory)

    @property
    def weight(self) -> Tensor:
        """The effective weight w_y >= 0; w_x is 1."""
        return self.raw_weight.abs()

    def extra_repr(self) -> str:
        kind = "learned" if isinstance(self.raw_weight, torch.nn.Parameter) else "fixed"
        shape = "" if self.raw_weight.dim() == 0 else f", one per point {tuple(self.raw_weight.shape)}"
        return f"{super().extra_repr()}, weight={kind}{shape}"


class LorentzResidual(_Weighted):
    r"""Lorentzian residual connection, :math:`\gamma (x + |w| y)/n` (:func:`lresnet.functional.lorentz_residual`).

    Args:
        manifold: owner of the curvature; referred to, not registered.
        weight: ``"learned"`` (one parameter), a number, or a tensor with one weight per point; a Parameter is trained.
        scale: gamma: None, a positive number, or ``"learned"`` (its logarithm is the parameter, so it stays positive).
        dim: the coordinate axis; 1 for images.
        initial_weight, initial_scale: where learned values start.

    Shapes:
        x, y: [..., n] (coordinates along ``dim``) -> the same.

    Example:
        >>> residual = LorentzResidual(Lorentz(-1.0), scale=2.0)
        >>> residual(torch.randn(4, 8), torch.randn(4, 8)).shape
        torch.Size([4, 8])
    """

    log_scale: Tensor | None
    fixed_scale: Tensor | None

    def __init__(
        self,
        manifold: Lorentz,
        weight: str | float | Tensor = "learned",
        scale: str | float | None = None,
        dim: int = -1,
        *,
        initial_weight: float = 1.0,
        initial_scale: float = 1.0,
        **factory: Any,
    ) -> None:
        super().__init__(manifold, weight, dim, initial_weight=initial_weight, **factory)
        if isinstance(scale, str):
            _require_learned("scale", scale)
            start = math.log(_positive("initial_scale", initial_scale))
            self.log_scale = torch.nn.Parameter(torch.tensor(start, **factory))
        elif scale is None:
            self.register_buffer("log_scale", None)
        else:
            # Saved as its logarithm, as a learned one is; but the exponential of that would not be the number given.
            self.fix("log_scale", math.log(_positive("scale", scale)), **factory)
            self.fix("fixed_scale", float(scale), persistent=False, **factory)

    @property
    def scale(self) -> Tensor | None:
        """The effective gamma > 0, or None."""
        if "fixed_scale" in self._buffers:
            return self.fixed_scale
        return None if self.log_scale is None else self.log_scale.exp()

    def restore(self) -> None:
        super().restore()
        if "fixed_scale" in self._buffers:
            same = self.holds("log_scale")  # else it was loaded
            log = self.get_buffer("log_scale")
            self.fixed_scale = torch.full_like(log, self._numbers["fixed_scale"]) if same else log.exp()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return lorentz_residual(x, y, self.raw_weight, self.scale, K=self.manifold.curvature, dim=self.dim)

    def kernel(self) -> dict[str, Any] | None:
        arguments = {"kind": "lorentz", "weight": self.raw_weight, "scale": self.scale}
        return arguments | {"kappa": -self.manifold.curvature}

    def extra_repr(self) -> str:
        kind = "learned" if isinstance(self.log_scale, torch.nn.Parameter) else self.scale and f"{float(self.scale):g}"
        return f"{super().extra_repr()}, scale={kind}"


class TangentResidual(_Weighted):
    """Sum of logarithms at the origin (:func:`lresnet.functional.tangent_residual`)."""

    def __init__(self, manifold: Lorentz, weight: str | float | Tensor = 1.0, dim: int = -1, **options: Any) -> None:
        super().__init__(manifold, weight, dim, **options)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return tangent_residual(x, y, self.raw_weight, K=self.manifold.curvature, dim=self.dim)

    def kernel(self) -> dict[str, Any] | None:
        return {"kind": "tangent", "weight": self.raw_weight, "kappa": -self.manifold.curvature}


class TextbookTangentResidual(TangentResidual):
    """The published exp/log form of the tangent residual, for comparison: NaN at the origin."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return tangent_textbook(x, y, self.raw_weight, K=self.manifold.curvature, dim=self.dim)

    def kernel(self) -> dict[str, Any] | None:
        return None


class ParallelTransportResidual(Residual):
    """Lorentz boost of y by x (:func:`lresnet.functional.parallel_transport_residual`)."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return parallel_transport_residual(x, y, K=self.manifold.curvature, dim=self.dim)

    def kernel(self) -> dict[str, Any] | None:
        return {"kind": "parallel_transport", "kappa": -self.manifold.curvature}


class ReversedParallelTransportResidual(Residual):
    """Lorentz boost of x by y: parallel transport in the other direction."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return parallel_transport_residual(y, x, K=self.manifold.curvature, dim=self.dim)


class TextbookParallelTransportResidual(Residual):
    """The published exp/log form of parallel transport, for comparison: NaN at y = 0."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return parallel_transport_textbook(x, y, K=self.manifold.curvature, dim=self.dim)


class SpaceResidual(Residual):
    """Space addition, x + y in space coordinates (:func:`lresnet.functional.space_residual`)."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return space_residual(x, y, dim=self.dim)


class EuclideanResidual(SpaceResidual):
    """x + y of the Euclidean twin: the same arithmetic as space addition, under the name the results use."""


class NoResidual(Residual):
    """No skip branch: returns y."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return y


def _require_learned(name: str, value: str) -> None:
    if value != "learned":
        raise ValueError(f"{name} must be 'learned', a number or, for weights, a tensor; got {value!r}")


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return float(value)


def _positive(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}")
    return float(value)
