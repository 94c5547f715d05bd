"""Matrix products for stacks: S sets of N points as one tensor [N, S, n], so that S equal networks run as one.

The axis before the coordinates counts the members of a stack; it has size 1 if all members have the same points.
Parameters of the members have the member axis in front: a matrix [S, m, n], a bias [S, m], a weight [S]. Formulas that
work row by row broadcast without change; products with a matrix use the two functions below.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import traced

__all__ = ["outer_rows", "sum_to", "times_rows"]

# A GPU splits one long product of thousands of rows among its processors, but not each of S short products. With few
# columns, one product of S times the work is therefore faster.
_FEW_COLUMNS = 256


def times_rows(matrix: Tensor, x: Tensor) -> Tensor:
    """Return ``matrix`` times each row of x.

    Shapes:
        [m, n] and [..., n] -> [..., m]; for stacks [S, m, n] and [N, S, n] -> [N, S, m].

    Example:
        >>> times_rows(torch.randn(10, 4, 3), torch.randn(50, 10, 3)).shape
        torch.Size([50, 10, 4])
    """
    if matrix.dim() == 2:
        return x @ matrix.mT
    if x.shape[-2] == 1:  # the same rows for every member: one product with all matrices
        return (x.squeeze(-2) @ matrix.flatten(0, 1).mT).unflatten(-1, matrix.shape[:2])  # type: ignore[no-any-return]
    if traced():
        return _members_rows(matrix, x)
    product: Tensor = _StackedProduct.apply(matrix, x)  # type: ignore[no-untyped-call]
    return product


def _members_rows(matrix: Tensor, x: Tensor) -> Tensor:
    return (x.transpose(0, 1) @ matrix.mT).transpose(0, 1)


class _StackedProduct(torch.autograd.Function):
    """Each member's rows times its matrix; :func:`outer_rows` is the gradient in the matrices."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(matrix, x)
        return _members_rows(matrix, x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        matrix, x = ctx.saved_tensors
        of_matrix, of_x = ctx.needs_input_grad
        return outer_rows(g, x) if of_matrix else None, times_rows(matrix.mT, g) if of_x else None


def outer_rows(g: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of :func:`times_rows` in the matrices of a stack: [N, S, m] and [N, S, n] -> [S, m, n]."""
    if x.shape[-2] == 1:
        return (g.flatten(1).mT @ x.squeeze(-2)).unflatten(0, g.shape[1:])  # type: ignore[no-any-return]
    if g.device.type == "cuda" and max(g[0].numel(), x[0].numel()) <= _FEW_COLUMNS:
        return _outer_in_one_product(g, x)
    return torch.bmm(g.permute(1, 2, 0), x.transpose(0, 1))


def _outer_in_one_product(g: Tensor, x: Tensor) -> Tensor:
    """Compute all S^2 blocks in one product and return the S blocks on the diagonal."""
    members = g.shape[1]
    blocks = (g.flatten(1).mT @ x.flatten(1)).unflatten(0, (members, -1)).unflatten(-1, (members, -1))
    return blocks.diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # type: ignore[no-any-return]


def sum_to(shape: torch.Size, g: Tensor) -> Tensor:
    """Return the gradient of a tensor that was broadcast from ``shape``: one number, or one per member of a stack."""
    return g.sum().reshape(shape) if shape.numel() == 1 else g.sum_to_size(shape)
