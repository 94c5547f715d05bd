"""Fermi-Dirac decoder: the probability of an edge, given the distance of its ends."""

from __future__ import annotations

import math

from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule

__all__ = ["FermiDirac"]


class FermiDirac(ManifoldModule):
    r"""Edge probability that falls with the geodesic distance (Krioukov et al. 2010; the decoder of HGCN).

    .. math:: p(x, y) = \frac1{\exp((d(x, y)^2 - r)/t) + 1}

    Args:
        manifold: Manifold of the distance. It is not registered as a submodule.
        radius: r, the squared distance at which the probability is one half. Link prediction with ``--loss
            cross_entropy`` uses the default.
        temperature: t > 0. The lower it is, the more sharply the probability falls.

    Shapes:
        x, y: [..., n] -> [...]

    Example:
        >>> import torch
        >>> decoder = FermiDirac(Lorentz(-1.0))
        >>> decoder(torch.zeros(3), torch.zeros(3))
        tensor(0.8808)
    """

    def __init__(self, manifold: Lorentz, radius: float = 2.0, temperature: float = 1.0) -> None:
        super().__init__(manifold)
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be positive and finite, got {temperature}")
        self.radius, self.temperature = float(radius), float(temperature)

    def logits(self, x: Tensor, y: Tensor) -> Tensor:
        """Return :math:`(r - d^2)/t`, for losses that take logits. It does not overflow for distant points."""
        return (self.radius - self.manifold.dist2(x, y)) / self.temperature

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.logits(x, y).sigmoid()

    def extra_repr(self) -> str:
        return f"radius={self.radius:g}, temperature={self.temperature:g}, {super().extra_repr()}"
