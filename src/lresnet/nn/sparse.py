"""A sparse matrix kept in CSR both ways, so that its product and the gradient of its product are both fast."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from lresnet.geometry.checks import checks_values, require_nonnegative, traced, transformed
from lresnet.nn.csr import Places, csr_product, csr_tensor, csr_times, entrywise_times, widened

__all__ = ["SparseMatrix", "adjacency"]


class SparseMatrix:
    """A constant sparse matrix [rows, columns] with products ``A @ x`` that are differentiable in x and the values.

    The order of the entries is that of CSR. ``permutation`` lists them in the order of the transpose, so that new
    values (dropout of features, edge weights) serve both directions without sorting again.

    Example:
        >>> A = SparseMatrix.from_coo(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 3.0]), (2, 2))
        >>> A @ torch.tensor([[1.0], [10.0]])
        tensor([[20.],
                [ 3.]])
    """

    def __init__(self, row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        """``row``, ``col``: sorted by row, then column; use :meth:`from_coo` for entries in any order."""
        self.row, self.col, self.values, self.shape = row, col, values, shape
        places_t, self.permutation = torch.sort(col * shape[0] + row)
        # Both ways in CSR. In 32 bits where they suffice: a product reads little else than indices.
        narrow = torch.int32 if max(row.numel(), *shape) < 2**31 else torch.int64
        self.crow, self.crow_t = _pointers(row, shape[0]).to(narrow), _pointers(col, shape[1]).to(narrow)
        self.col_csr, self.col_t = col.to(narrow), (places_t % shape[0]).to(narrow)
        # Two forms that do not change while the values do not: made on first use, not with every product.
        self._forward: Tensor | None = None
        self._backward: Tensor | None = None
        self._row_sums: Tensor | None = None
        self._has_empty_rows: bool | None = None

    @classmethod
    def from_coo(cls, index: Tensor | Sequence[Tensor], values: Tensor, shape: tuple[int, int]) -> Self:
        """From entries (row, column) = ``index`` [2, E] in any order; values at the same place are added."""
        row, col = (part.long() for part in index)  # places are numbered row by row, which leaves narrower integers
        places, order = torch.sort(row * shape[1] + col, stable=True)
        values = values[order]
        if bool((places[1:] == places[:-1]).any()):
            places, inverse = torch.unique_consecutive(places, return_inverse=True)
            values = values.new_zeros(places.numel()).index_add(0, inverse, values)
        return cls(places // shape[1], places % shape[1], values, shape)

    @classmethod
    def from_dense(cls, x: Tensor) -> Self:
        """The non-zero entries of a dense matrix."""
        index = x.nonzero().T
        return cls(index[0], index[1], x[index[0], index[1]], (x.shape[0], x.shape[1]))

    @property
    def device(self) -> torch.device:
        return self.values.device

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> SparseMatrix:
        """The same matrix elsewhere, or in another dtype."""
        other = self.with_values(self.values.to(device, dtype))
        for name in ("row", "col", "permutation", "crow", "col_csr", "crow_t", "col_t"):
            setattr(other, name, getattr(self, name).to(device))
        return other

    def with_values(self, values: Tensor) -> SparseMatrix:
        """The same places with other values; shares all index tensors."""
        other = copy.copy(self)
        other.values, other._forward, other._backward = values, None, None
        other._row_sums, other._has_empty_rows = None, None
        return other

    @property
    def places(self) -> Places:
        """All index tensors."""
        return Places(self.row, self.col, self.permutation, self.crow, self.col_csr, self.crow_t, self.col_t)

    @property
    def constant(self) -> bool:
        """Whether what is derived from the values may be kept: an optimiser changes a parameter in place."""
        return not (self.values.requires_grad and self.values.is_leaf)

    def row_sums(self) -> Tensor:
        """[rows, 1], without a gradient."""
        if self._row_sums is not None and self.constant:
            return self._row_sums
        sums = self.values.new_zeros(self.shape[0]).index_add(0, self.row, self.values.detach()).unsqueeze(-1)
        if not transformed():  # what a transform of torch.func has wrapped means nothing after it
            self._row_sums = sums
        return sums

    def has_empty_rows(self) -> bool:
        """Whether a row has no entry, or only zeros. Looked up once (synchronises once on CUDA).

        Compiled code, which cannot look, takes it for granted.
        """
        if traced():
            return self._has_empty_rows is not False
        if self._has_empty_rows is None or not self.constant:
            self._has_empty_rows = bool((self.row_sums() <= 0).any())
        return self._has_empty_rows

    def __matmul__(self, x: Tensor) -> Tensor:
        """[columns, ...] -> [rows, ...]."""
        return self.matmul(x, self.values)

    def product(self, x: Tensor) -> Tensor:
        """``A @ x`` by name: a compiler cannot follow the operator of an object that is no tensor."""
        return self.matmul(x, self.values)

    def matmul(self, x: Tensor, values: Tensor) -> Tensor:
        """The product with other ``values`` at the same places."""
        if not x.is_floating_point():
            raise TypeError(f"x must be a floating point tensor, got {x.dtype}; convert it, e.g. x.float()")
        if x.dim() == 1:  # a vector: one column
            return self.matmul(x.unsqueeze(-1), values).squeeze(-1)
        if x.dim() > 2:  # e.g. a stack of points [columns, S, d]: one product over S d columns
            return self.matmul(x.flatten(1), values).unflatten(1, x.shape[1:])  # type: ignore[no-any-return]
        return _product_of(x, values, self)

    def sum_rows(self, values: Tensor) -> Tensor:
        """[rows, 1]: the sum of other ``values`` at the same places, differentiable in them."""
        return _product_of(values.new_ones(self.shape[1], 1), values, self)

    def spread_rows(self, x: Tensor) -> Tensor:
        """For each entry, what x [rows, 1] holds for its row."""
        return x.squeeze(-1)[self.row]

    def times(self, x: Tensor, values: Tensor) -> Tensor:
        """Plain product, no gradient."""
        dtype = widened(x.dtype)
        if values is not self.values or not self.constant:
            return csr_times(csr_tensor(self.crow, self.col_csr, values.to(dtype), self.shape), x)
        if self._forward is None or self._forward.dtype != dtype:
            self._forward = csr_tensor(self.crow, self.col_csr, values.detach().to(dtype), self.shape)
        return csr_times(self._forward, x)

    def transposed_times(self, x: Tensor, values: Tensor) -> Tensor:
        """Plain product of the transpose, no gradient."""
        dtype, shape = widened(x.dtype), (self.shape[1], self.shape[0])
        if values is not self.values or not self.constant:
            return csr_times(csr_tensor(self.crow_t, self.col_t, values[self.permutation].to(dtype), shape), x)
        if self._backward is None or self._backward.dtype != dtype:
            self._backward = csr_tensor(self.crow_t, self.col_t, values.detach()[self.permutation].to(dtype), shape)
        return csr_times(self._backward, x)

    def __getstate__(self) -> dict[str, Any]:
        """Without the sparse tensors, which torch can neither copy nor store: a copy makes its own on first use."""
        return self.__dict__ | {"_forward": None, "_backward": None}

    def __repr__(self) -> str:
        return f"SparseMatrix({self.shape[0]} x {self.shape[1]}, {self.values.numel()} entries, {self.device})"


def _product_of(x: Tensor, values: Tensor, matrix: SparseMatrix) -> Tensor:
    if transformed():
        return entrywise_times(x, values, matrix.row, matrix.col, matrix.shape[0])
    if torch.compiler.is_compiling():
        return csr_product(x, values, *matrix.places)  # type: ignore[no-any-return]
    result: Tensor = _Product.apply(x, values, matrix)  # type: ignore[no-untyped-call]
    return result


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        ctx.same = values is matrix.values
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, values)
        return matrix.times(x, values)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, values = ctx.saved_tensors
        matrix: SparseMatrix = ctx.matrix
        values = matrix.values if ctx.same else values
        gx = _TransposedProduct.apply(g, values, matrix) if ctx.needs_input_grad[0] else None  # type: ignore[no-untyped-call]
        gv = (g[matrix.row] * x[matrix.col]).sum(-1) if ctx.needs_input_grad[1] else None
        return gx, gv, None


class _TransposedProduct(torch.autograd.Function):
    """Backward of the product, itself differentiable so that second derivatives exist."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, values: Tensor, matrix: SparseMatrix) -> Tensor:
        ctx.matrix = matrix
        ctx.same = values is matrix.values
        ctx.save_for_backward(g if ctx.needs_input_grad[1] else None, values)
        return matrix.transposed_times(g, values)

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        g, values = ctx.saved_tensors
        matrix: SparseMatrix = ctx.matrix
        values = matrix.values if ctx.same else values
        gg = _Product.apply(h, values, matrix) if ctx.needs_input_grad[0] else None  # type: ignore[no-untyped-call]
        gv = (g[matrix.row] * h[matrix.col]).sum(-1) if ctx.needs_input_grad[1] else None
        return gg, gv, None


def adjacency(
    edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None, *, self_loops: bool = True
) -> SparseMatrix:
    """Adjacency for aggregation, row = target, column = source, with PyG's ``edge_index`` [2, E] of (source, target).

    Self loops of weight 1 are added to nodes that have none if ``self_loops``.

    Example:
        >>> adjacency(torch.tensor([[0, 1], [1, 0]]), 3)
        SparseMatrix(3 x 3, 5 entries, cpu)
    """
    _check_edges(edge_index, num_nodes, edge_weight)
    source, target = edge_index.long()
    if edge_weight is None:
        edge_weight = torch.ones(source.numel(), device=source.device)
    require_nonnegative(edge_weight, "edge weights")
    if self_loops:
        has_loop = torch.zeros(num_nodes, dtype=torch.bool, device=source.device)
        has_loop[source[source == target]] = True
        loops = (~has_loop).nonzero().squeeze(-1)
        source, target = torch.cat([source, loops]), torch.cat([target, loops])
        edge_weight = torch.cat([edge_weight, edge_weight.new_ones(loops.numel())])
    return SparseMatrix.from_coo((target, source), edge_weight, (num_nodes, num_nodes))


def _check_edges(edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None) -> None:
    whole = not (edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or not whole:
        raise ValueError(
            "edge_index must be an integer tensor of shape [2, E] as in PyG, "
            f"got {edge_index.dtype} of shape {tuple(edge_index.shape)}"
        )
    if edge_weight is not None and edge_weight.shape != edge_index.shape[1:]:
        raise ValueError(
            f"edge_weight has shape {tuple(edge_weight.shape)}, expected one per edge ({edge_index.shape[1]},)"
        )
    if checks_values(edge_index) and edge_index.numel():
        low, high = int(edge_index.min()), int(edge_index.max())
        if low < 0 or high >= num_nodes:
            raise ValueError(f"edge_index has node {low if low < 0 else high}, but nodes are 0 to {num_nodes - 1}")


def _pointers(index: Tensor, size: int) -> Tensor:
    """Where each row begins among entries sorted by row, from their rows in any order."""
    counts = torch.bincount(index, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
