"""Products of a matrix in CSR, and the same as operators of torch that a compiler takes as one node.

``lresnet::csr_product`` is A x, ``lresnet::csr_product_transposed`` is A^T x; each is the derivative of the other.
torch cannot trace the making of a sparse tensor, so compiled code goes through these; eager code, which keeps the
sparse tensors from call to call, does not. torch.func takes neither: for its transforms there is ``entrywise_times``.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Places", "csr_product", "csr_product_transposed", "csr_tensor", "csr_times", "entrywise_times", "widened"]


class Places(NamedTuple):
    """Where the entries of a sparse matrix are, sorted by row and once more by column."""

    row: Tensor
    col: Tensor
    """[E] each, int64, in the order of the rows."""
    permutation: Tensor
    """The entries in the order of the columns."""
    crow: Tensor
    col_csr: Tensor
    """CSR: where each row begins, and the columns."""
    crow_t: Tensor
    col_t: Tensor
    """CSR of the transpose."""


def csr_tensor(crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """torch's sparse tensor, not checked and without the words that it has to say about that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        # torch 2.11 says this even where the check is switched off by name, as below.
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        return torch.sparse_csr_tensor(crow, col, values, shape, check_invariants=False)


def widened(dtype: torch.dtype) -> torch.dtype:
    """CPUs have no sparse product below float32, and a sum over many neighbours should not be taken there."""
    return torch.promote_types(dtype, torch.float32)


def csr_times(csr: Tensor, x: Tensor) -> Tensor:
    """``csr @ x`` in csr's dtype, given back in x's; autocast, which would narrow csr, is kept out."""
    if torch.is_autocast_enabled(x.device.type):
        with torch.autocast(x.device.type, enabled=False):
            return csr_times(csr, x)
    if x.device.type not in ("cpu", "cuda"):
        return (csr @ x.to(csr.dtype)).to(x.dtype)
    # In place: "csr @ x" makes zeros, a result of the same size, and copies one to the other. beta=0: not read before.
    result = x.new_empty(csr.shape[0], x.shape[1], dtype=csr.dtype)
    return result.addmm_(csr, x.to(csr.dtype), beta=0).to(x.dtype)


def entrywise_times(x: Tensor, values: Tensor, row: Tensor, col: Tensor, rows: int) -> Tensor:
    """A x, [columns, d] -> [rows, d], by plain operations that every transform knows; d numbers in memory per entry."""
    dtype = widened(x.dtype)
    terms = values.to(dtype).unsqueeze(-1) * x[col].to(dtype)
    return terms.new_zeros(rows, x.shape[1]).index_add(0, row, terms).to(x.dtype)


@torch.library.custom_op("lresnet::csr_product", mutates_args=())
def csr_product(
    x: Tensor,
    values: Tensor,
    row: Tensor,
    col: Tensor,
    permutation: Tensor,
    crow: Tensor,
    col_csr: Tensor,
    crow_t: Tensor,
    col_t: Tensor,
) -> Tensor:
    """A x, [columns, d] -> [rows, d]; what follows the values is :class:`Places`, one by one."""
    shape = crow.numel() - 1, crow_t.numel() - 1
    return csr_times(csr_tensor(crow, col_csr, values.to(widened(x.dtype)), shape), x)


@torch.library.custom_op("lresnet::csr_product_transposed", mutates_args=())
def csr_product_transposed(
    x: Tensor,
    values: Tensor,
    row: Tensor,
    col: Tensor,
    permutation: Tensor,
    crow: Tensor,
    col_csr: Tensor,
    crow_t: Tensor,
    col_t: Tensor,
) -> Tensor:
    """A^T x, [rows, d] -> [columns, d]."""
    shape = crow_t.numel() - 1, crow.numel() - 1
    return csr_times(csr_tensor(crow_t, col_t, values[permutation].to(widened(x.dtype)), shape), x)


@csr_product.register_fake
def _(x: Tensor, values: Tensor, *places: Tensor) -> Tensor:
    return x.new_empty(Places(*places).crow.shape[0] - 1, x.shape[1])


@csr_product_transposed.register_fake
def _(x: Tensor, values: Tensor, *places: Tensor) -> Tensor:
    return x.new_empty(Places(*places).crow_t.shape[0] - 1, x.shape[1])


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    x, values, *places = ctx.saved_tensors
    gx = csr_product_transposed(g, values, *places) if ctx.needs_input_grad[0] else None
    gv = _of_values(g, x, places[0], places[1]) if ctx.needs_input_grad[1] else None
    return gx, gv, *[None] * len(places)


def _backward_transposed(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    x, values, *places = ctx.saved_tensors
    gx = csr_product(g, values, *places) if ctx.needs_input_grad[0] else None
    gv = _of_values(x, g, places[0], places[1]) if ctx.needs_input_grad[1] else None
    return gx, gv, *[None] * len(places)


def _of_values(of_rows: Tensor, of_columns: Tensor, row: Tensor, col: Tensor) -> Tensor:
    return (of_rows[row] * of_columns[col]).sum(-1)


csr_product.register_autograd(_backward, setup_context=_setup_context)
csr_product_transposed.register_autograd(_backward_transposed, setup_context=_setup_context)
