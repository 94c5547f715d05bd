"""Space addition: the time of the sum follows from its space part, so it is x + y."""

from __future__ import annotations

from torch import Tensor

from lresnet.geometry.checks import prepare

__all__ = ["space_residual"]


def space_residual(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    r""":math:`x \oplus_S y = [\sqrt{|x_s + y_s|^2 - 1/K}, x_s + y_s]`, i.e. ``x + y`` in space coordinates.

    ``dim`` is the coordinate axis; the sum does not need it, the check that x and y have as many coordinates does.

    Example:
        >>> import torch
        >>> space_residual(torch.tensor([2.0, -2.0]), torch.tensor([2.0, 2.0]))
        tensor([4., 0.])
    """
    prepare(x, y, dim=dim)
    return x + y
