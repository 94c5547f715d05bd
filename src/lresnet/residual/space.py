"""Residuals that do not depend on the curvature: space addition, Euclidean addition, and no residual."""

from __future__ import annotations

from torch import Tensor

from lresnet.geometry.checks import checked_points
from lresnet.kernels.formulas import register_formula
from lresnet.residual.base import Residual

__all__ = ["EuclideanResidual", "NoResidual", "SpaceResidual", "space_residual"]


def space_residual(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    r"""Add space coordinates: :math:`x \oplus_S y = [\sqrt{|x_s + y_s|^2 - 1/K}, x_s + y_s]`, which is ``x + y``.

    Args:
        x, y: Points; axis ``dim`` holds the n space coordinates. They broadcast against each other.
        dim: The coordinate axis. The sum does not need it; the check that x and y have equally many coordinates does.

    Example:
        >>> import torch
        >>> space_residual(torch.tensor([2.0, -2.0]), torch.tensor([2.0, 2.0]))
        tensor([4., 0.])
    """
    checked_points(x, y, dim=dim)
    return x + y


@register_formula("space")
def _formula(x: Tensor, y: Tensor, weight: float | Tensor, scale: Tensor | None, K: Tensor, dim: int) -> Tensor:
    z = x + y
    return z if scale is None else z * scale


class SpaceResidual(Residual):
    """Space addition, x + y in space coordinates (:func:`lresnet.functional.space_residual`)."""

    saves_curvature = False

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return space_residual(x, y, dim=self.dim)


class EuclideanResidual(SpaceResidual):
    """The residual x + y of the Euclidean baseline: the arithmetic of space addition under its own name."""


class NoResidual(Residual):
    """No skip branch: returns y."""

    saves_curvature = False

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return y
