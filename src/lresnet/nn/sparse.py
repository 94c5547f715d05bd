"""Sparse matrices stored in CSR together with their transpose, and adjacency matrices of graphs.

Products go one of three ways. Eager code uses torch's sparse tensors, which a matrix keeps between calls. Compiled code
calls the operators ``lresnet::csr_product`` (A x) and ``lresnet::csr_product_transposed`` (A^T x), since torch cannot
trace the construction of a sparse tensor; each is the derivative of the other. Transforms of torch.func support
neither and use :func:`entrywise_times`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from lresnet.geometry.checks import checks_values, require_nonnegative, traced, transformed

__all__ = [
    "BlockDiagonal",
    "Indices",
    "SparseMatrix",
    "adjacency",
    "check_edges",
    "csr_product",
    "csr_product_transposed",
    "edges_of",
    "entrywise_times",
    "mean_normalisation",
    "symmetric_normalisation",
]


class Indices(NamedTuple):
    """Positions of the entries of a sparse matrix, sorted by row and also by column."""

    row: Tensor
    col: Tensor
    """Row and column of each entry, [E], int64, sorted by row."""
    permutation: Tensor
    """Order of the entries sorted by column."""
    crow: Tensor
    col_csr: Tensor
    """CSR: start of each row, and the columns."""
    crow_t: Tensor
    col_t: Tensor
    """CSR of the transpose."""


class SparseMatrix:
    """Constant sparse matrix [rows, columns] whose product ``A @ x`` is differentiable in x and in the values.

    Entries are in the order of CSR. ``permutation`` lists them in the order of the transpose, so that new values
    (dropout of features, edge weights) need no second sort.

    Args:
        row: Row of each entry, [E], int64, sorted by row and then by column. Use :meth:`from_coo` for any other order.
        col: Column of each entry, [E].
        values: Value of each entry, [E].
        shape: Numbers of rows and columns.

    Shapes:
        ``A @ x``: [columns, ...] -> [rows, ...]

    Example:
        >>> A = SparseMatrix.from_coo(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 3.0]), (2, 2))
        >>> A @ torch.tensor([[1.0], [10.0]])
        tensor([[20.],
                [ 3.]])
    """

    def __init__(self, row: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        self.row, self.col, self.values, self.shape = row, col, values, shape
        numbers_t, self.permutation = torch.sort(col * shape[0] + row)
        # 32-bit indices where they suffice: a product reads hardly anything but indices.
        narrow = torch.int32 if max(row.numel(), *shape) < 2**31 else torch.int64
        self.crow, self.crow_t = _pointers(row, shape[0]).to(narrow), _pointers(col, shape[1]).to(narrow)
        self.col_csr, self.col_t = col.to(narrow), (numbers_t % shape[0]).to(narrow)
        # Derived from the values on first use and kept, unless the values are a parameter.
        self._forward: Tensor | None = None
        self._backward: Tensor | None = None
        self._row_sums: Tensor | None = None
        self._has_empty_rows: bool | None = None

    @classmethod
    def from_coo(cls, index: Tensor | Sequence[Tensor], values: Tensor, shape: tuple[int, int]) -> Self:
        """Build from entries (row, column) = ``index`` [2, E] in any order; values of equal entries are added."""
        row, col = (part.long() for part in index)  # entries are numbered row by row, which overflows narrower integers
        numbers, order = torch.sort(row * shape[1] + col, stable=True)
        values = values[order]
        if bool((numbers[1:] == numbers[:-1]).any()):
            numbers, inverse = torch.unique_consecutive(numbers, return_inverse=True)
            values = values.new_zeros(numbers.numel()).index_add(0, inverse, values)
        return cls(numbers // shape[1], numbers % shape[1], values, shape)

    @classmethod
    def from_dense(cls, x: Tensor) -> Self:
        """Build from the non-zero entries of a dense matrix."""
        index = x.nonzero().T
        return cls(index[0], index[1], x[index[0], index[1]], (x.shape[0], x.shape[1]))

    @classmethod
    def from_torch(cls, x: Tensor) -> Self:
        """Build from a sparse tensor of torch (COO, CSR or CSC), differentiable in its values.

        Example:
            >>> SparseMatrix.from_torch(torch.eye(3).to_sparse())
            SparseMatrix(3 x 3, 3 entries, cpu)
        """
        coo = x.to_sparse_coo().coalesce()
        return cls.from_coo(coo.indices(), coo.values(), (x.shape[0], x.shape[1]))

    @property
    def device(self) -> torch.device:
        return self.values.device

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> SparseMatrix:
        """Return the same matrix on another device or in another dtype."""
        other = self.with_values(self.values.to(device, dtype))
        for name in ("row", "col", "permutation", "crow", "col_csr", "crow_t", "col_t"):
            setattr(other, name, getattr(self, name).to(device))
        return other

    def with_values(self, values: Tensor) -> SparseMatrix:
        """Return a matrix with other values at the same positions; it shares all index tensors."""
        other = copy.copy(self)
        other.values, other._forward, other._backward = values, None, None
        other._row_sums, other._has_empty_rows = None, None
        return other

    @property
    def indices(self) -> Indices:
        """All index tensors."""
        return Indices(self.row, self.col, self.permutation, self.crow, self.col_csr, self.crow_t, self.col_t)

    @property
    def is_constant(self) -> bool:
        """Whether tensors derived from the values may be kept. An optimiser changes a parameter in place."""
        return not (self.values.requires_grad and self.values.is_leaf)

    def row_sums(self) -> Tensor:
        """Return the sum of each row, [rows, 1], without a gradient."""
        if self._row_sums is not None and self.is_constant:
            return self._row_sums
        sums = self.values.new_zeros(self.shape[0]).index_add(0, self.row, self.values.detach()).unsqueeze(-1)
        if not transformed():  # a tensor that torch.func has wrapped is invalid after the transform
            self._row_sums = sums
        return sums

    def has_empty_rows(self) -> bool:
        """Return whether a row has no entry, or only zeros. Evaluated once, which synchronises CUDA.

        Compiled code cannot evaluate it and assumes True unless eager code has found False.
        """
        if traced():
            return self._has_empty_rows is not False
        if self._has_empty_rows is None or not self.is_constant:
            self._has_empty_rows = bool((self.row_sums() <= 0).any())
        return self._has_empty_rows

    def __matmul__(self, x: Tensor) -> Tensor:
        return self.matmul(x, self.values)

    def product(self, x: Tensor) -> Tensor:
        """Return ``A @ x``, as a method: a compiler cannot trace an operator of an object that is not a tensor."""
        return self.matmul(x, self.values)

    def matmul(self, x: Tensor, values: Tensor) -> Tensor:
        """Return the product with other ``values`` at the same positions."""
        if not x.is_floating_point():
            raise TypeError(f"x must be a floating point tensor, got {x.dtype}; convert it, e.g. x.float()")
        if x.dim() == 1:  # a vector is one column
            return self.matmul(x.unsqueeze(-1), values).squeeze(-1)
        if x.dim() > 2:  # e.g. a stack of points [columns, S, d]: one product over S d columns
            return self.matmul(x.flatten(1), values).unflatten(1, x.shape[1:])  # type: ignore[no-any-return]
        return _differentiable_product(x, values, self)

    def sum_rows(self, values: Tensor) -> Tensor:
        """Return the row sums of other ``values`` at the same positions, [rows, 1], differentiable in the values."""
        return _differentiable_product(values.new_ones(self.shape[1], 1), values, self)

    def gather_rows(self, x: Tensor) -> Tensor:
        """Return, for each entry, the value of x [rows, 1] in its row, [E]."""
        return x.squeeze(-1)[self.row]

    def times(self, x: Tensor, values: Tensor) -> Tensor:
        """Return A x without a gradient."""
        dtype = _product_dtype(x.dtype)
        if values is not self.values or not self.is_constant:
            return _csr_times(_csr_tensor(self.crow, self.col_csr, values.to(dtype), self.shape), x)
        if self._forward is None or self._forward.dtype != dtype:
            self._forward = _csr_tensor(self.crow, self.col_csr, values.detach().to(dtype), self.shape)
        return _csr_times(self._forward, x)

    def transposed_times(self, x: Tensor, values: Tensor) -> Tensor:
        """Return A^T x without a gradient."""
        dtype, shape = _product_dtype(x.dtype), (self.shape[1], self.shape[0])
        if values is not self.values or not self.is_constant:
            return _csr_times(_csr_tensor(self.crow_t, self.col_t, values[self.permutation].to(dtype), shape), x)
        if self._backward is None or self._backward.dtype != dtype:
            self._backward = _csr_tensor(self.crow_t, self.col_t, values.detach()[self.permutation].to(dtype), shape)
        return _csr_times(self._backward, x)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without sparse tensors, which torch can neither copy nor store; a copy builds its own."""
        return self.__dict__ | {"_forward": None, "_backward": None}

    def __repr__(self) -> str:
        return f"SparseMatrix({self.shape[0]} x {self.shape[1]}, {self.values.numel()} entries, {self.device})"


class BlockDiagonal(SparseMatrix):
    """Block-diagonal matrix of S sparse matrices of equal shape, one for each member of a stack. Built by :meth:`of`.

    One product computes all members. (If all members share one matrix, :class:`SparseMatrix` multiplies
    [columns, S, d] directly.)

    Shapes:
        ``A @ x``: [columns, S, d] -> [rows, S, d]

    Example:
        >>> A = SparseMatrix.from_coo(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 3.0]), (2, 2))
        >>> BlockDiagonal.of([A, A.with_values(10 * A.values)]) @ torch.ones(2, 2, 1)
        tensor([[[ 2.],
                 [20.]],
        <BLANKLINE>
                [[ 3.],
                 [30.]]])
    """

    counts: list[int]
    """Number of entries of each member; the values are stored member after member."""

    @property
    def member_shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of one member."""
        return self.shape[0] // len(self.counts), self.shape[1] // len(self.counts)

    @classmethod
    def of(cls, matrices: Sequence[SparseMatrix]) -> Self:
        """Build from one matrix for each member. Their shapes are equal; their entries may differ."""
        shapes = {matrix.shape for matrix in matrices}
        if len(shapes) != 1:
            raise ValueError(f"the matrices must have the same shape, got {', '.join(map(str, sorted(shapes)))}")
        (rows, columns), members = shapes.pop(), len(matrices)
        row = torch.cat([matrix.row + i * rows for i, matrix in enumerate(matrices)])
        col = torch.cat([matrix.col + i * columns for i, matrix in enumerate(matrices)])
        values = torch.cat([matrix.values for matrix in matrices])
        block = cls(row, col, values, (members * rows, members * columns))
        block.counts = [matrix.values.numel() for matrix in matrices]
        return block

    def matmul(self, x: Tensor, values: Tensor) -> Tensor:
        members = len(self.counts)
        if x.dim() != 3 or x.shape[1] not in (1, members):
            raise ValueError(f"x must be a stack [columns, {members}, d], got shape {tuple(x.shape)}")
        rows = x.expand(-1, members, -1).transpose(0, 1).flatten(0, 1)
        return self._stack(super().matmul(rows, values))

    def row_sums(self) -> Tensor:
        return self._stack(super().row_sums())

    def sum_rows(self, values: Tensor) -> Tensor:
        return self._stack(super().sum_rows(values))

    def gather_rows(self, x: Tensor) -> Tensor:
        return super().gather_rows(x.transpose(0, 1).flatten(0, 1))

    def _stack(self, rows: Tensor) -> Tensor:
        """Return rows that are stored member after member as a stack [rows, S, d]."""
        return rows.unflatten(0, (len(self.counts), -1)).transpose(0, 1)  # type: ignore[no-any-return]


# --- Adjacency matrices of graphs -------------------------------------------------------------------------------------


def adjacency(
    edge_index: Tensor, num_nodes: int | tuple[int, int], edge_weight: Tensor | None = None, *, self_loops: bool = True
) -> SparseMatrix:
    """Return the adjacency matrix for aggregation: rows are targets, columns are sources.

    Args:
        edge_index: Edges (source, target) as in PyG, [2, E]; or the transposed adjacency matrix ``adj_t`` as a sparse
            tensor of torch, whose rows are targets, also as in PyG.
        num_nodes: Number of nodes N; in a bipartite graph the numbers of sources and of targets.
        edge_weight: Weights >= 0, [E]. Default: 1, or the values of ``adj_t``.
        self_loops: Add a self loop of weight 1 to every node that has none. A bipartite graph has no self loops.

    Example:
        >>> adjacency(torch.tensor([[0, 1], [1, 0]]), 3)
        SparseMatrix(3 x 3, 5 entries, cpu)
    """
    sources, targets = num_nodes if isinstance(num_nodes, tuple) else (num_nodes, num_nodes)
    if edge_index.layout != torch.strided:
        edge_index, edge_weight = edges_of(edge_index, (sources, targets), edge_weight)
    check_edges(edge_index, (sources, targets), edge_weight)
    source, target = edge_index.long()
    if edge_weight is None:
        edge_weight = torch.ones(source.numel(), device=source.device)
    require_nonnegative(edge_weight, "edge weights")
    if self_loops:
        if sources != targets:
            raise ValueError(
                f"self loops need the same nodes as sources and targets, got {sources} sources and {targets} targets; "
                "use self_loops=False"
            )
        has_loop = torch.zeros(sources, dtype=torch.bool, device=source.device)
        has_loop[source[source == target]] = True
        loops = (~has_loop).nonzero().squeeze(-1)
        source, target = torch.cat([source, loops]), torch.cat([target, loops])
        edge_weight = torch.cat([edge_weight, edge_weight.new_ones(loops.numel())])
    return SparseMatrix.from_coo((target, source), edge_weight, (targets, sources))


def edges_of(
    adj_t: SparseMatrix | Tensor, num_nodes: tuple[int, int], edge_weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the edges (source, target) [2, E] and their weights [E] of a matrix whose rows are targets.

    Args:
        adj_t: A matrix of this library or a sparse tensor of torch, [targets, sources].
        num_nodes: Numbers of sources and targets, which the shape of the matrix must match.
        edge_weight: Must be None: the weights are the values of the matrix.

    Example:
        >>> edges_of(torch.tensor([[0.0, 0.0], [2.0, 0.0]]).to_sparse(), (2, 2))
        (tensor([[0],
                [1]]), tensor([2.]))
    """
    if edge_weight is not None:
        raise ValueError("edge_weight must be None with an adjacency matrix, whose values are the weights")
    sources, targets = num_nodes
    if tuple(adj_t.shape) != (targets, sources):
        raise ValueError(
            f"the adjacency matrix must have shape [targets, sources] = [{targets}, {sources}] (adj_t as in PyG), "
            f"got {tuple(adj_t.shape)}"
        )
    A = adj_t if isinstance(adj_t, SparseMatrix) else SparseMatrix.from_torch(adj_t)
    values = A.values if A.values.is_floating_point() else A.values.to(torch.get_default_dtype())
    return torch.stack([A.col, A.row]), values


def mean_normalisation(A: SparseMatrix) -> SparseMatrix:
    r"""Return :math:`D^{-1} A` with the row sums D, differentiable in the values: products are means over neighbours.

    The mean is the limit of the Lorentzian centroid as the curvature goes to 0. With the symmetric
    :math:`D^{-1/2} A D^{-1/2}` the norm of an embedding depends on the node's degree. On trees this separates the ends
    of an edge: link prediction on disease ranked pairs worse than chance. Rows without entries stay 0.

    Example:
        >>> mean_normalisation(adjacency(torch.tensor([[0, 1], [1, 0]]), 2)).values
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    degree = A.sum_rows(A.values).squeeze(-1)
    return A.with_values(A.values / torch.where(degree > 0, degree, 1.0)[A.row])


def symmetric_normalisation(A: SparseMatrix) -> SparseMatrix:
    r"""Return :math:`D^{-1/2} A D^{-1/2}` with the row sums D (Kipf and Welling, ICLR 2017).

    It is differentiable in the values. Rows without entries stay 0. In a directed graph rows are targets, as in PyG's
    GCNConv.

    Example:
        >>> symmetric_normalisation(adjacency(torch.tensor([[0, 1], [1, 0]]), 2)).values
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    degree = A.sum_rows(A.values).squeeze(-1)
    root = torch.where(degree > 0, degree, 1.0).rsqrt()
    return A.with_values(A.values * root[A.row] * root[A.col])


def check_edges(edge_index: Tensor, num_nodes: tuple[int, int], edge_weight: Tensor | None) -> None:
    """Raise ``ValueError`` unless these are edges between (sources, targets) nodes with one weight per edge."""
    is_integer = not (edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or not is_integer:
        raise ValueError(
            "edge_index must be an integer tensor of shape [2, E] as in PyG, "
            f"got {edge_index.dtype} of shape {tuple(edge_index.shape)}"
        )
    if edge_weight is not None and edge_weight.shape != edge_index.shape[1:]:
        raise ValueError(
            f"edge_weight has shape {tuple(edge_weight.shape)}, expected one per edge ({edge_index.shape[1]},)"
        )
    if checks_values(edge_index) and edge_index.numel():
        same = num_nodes[0] == num_nodes[1]
        parts = [("nodes", edge_index)] if same else zip(("sources", "targets"), edge_index, strict=True)
        for (name, part), count in zip(parts, num_nodes, strict=False):
            low, high = int(part.min()), int(part.max())
            if low < 0 or high >= count:
                raise ValueError(f"edge_index has node {low if low < 0 else high}, but {name} are 0 to {count - 1}")


def _pointers(index: Tensor, size: int) -> Tensor:
    """Return the start of each row among entries sorted by row, given their rows in any order."""
    counts = torch.bincount(index, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


# --- Products ---------------------------------------------------------------------------------------------------------


def _differentiable_product(x: Tensor, values: Tensor, matrix: SparseMatrix) -> Tensor:
    if transformed():
        return entrywise_times(x, values, matrix.row, matrix.col, matrix.shape[0])
    if torch.compiler.is_compiling():
        return csr_product(x, values, *matrix.indices)  # type: ignore[no-any-return]
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
    """Backward pass of the product, itself differentiable for second derivatives."""

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


def entrywise_times(x: Tensor, values: Tensor, row: Tensor, col: Tensor, rows: int) -> Tensor:
    """Return A x, [columns, d] -> [rows, d], by operations that all transforms support. Uses d numbers per entry."""
    dtype = _product_dtype(x.dtype)
    terms = values.to(dtype).unsqueeze(-1) * x[col].to(dtype)
    return terms.new_zeros(rows, x.shape[1]).index_add(0, row, terms).to(x.dtype)


def _product_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return float32 or wider: CPUs have no narrower sparse product, and long sums need the precision."""
    return torch.promote_types(dtype, torch.float32)


def _csr_tensor(crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return torch's sparse tensor, without its checks and without its warnings."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        # torch 2.11 warns even if the check is disabled explicitly, as below.
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        return torch.sparse_csr_tensor(crow, col, values, shape, check_invariants=False)


def _csr_times(csr: Tensor, x: Tensor) -> Tensor:
    """Return ``csr @ x``, computed in the dtype of csr and returned in that of x. Autocast would narrow csr."""
    if torch.is_autocast_enabled(x.device.type):
        with torch.autocast(x.device.type, enabled=False):
            return _csr_times(csr, x)
    if x.device.type not in ("cpu", "cuda"):
        return (csr @ x.to(csr.dtype)).to(x.dtype)
    # In place: "csr @ x" allocates zeros and a result and copies one to the other. With beta=0 the result is not read.
    result = x.new_empty(csr.shape[0], x.shape[1], dtype=csr.dtype)
    return result.addmm_(csr, x.to(csr.dtype), beta=0).to(x.dtype)


# --- Products as torch operators, for compiled code -------------------------------------------------------------------


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
    """Return A x, [columns, d] -> [rows, d]. The arguments after ``values`` are the fields of :class:`Indices`."""
    shape = crow.numel() - 1, crow_t.numel() - 1
    return _csr_times(_csr_tensor(crow, col_csr, values.to(_product_dtype(x.dtype)), shape), x)


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
    """Return A^T x, [rows, d] -> [columns, d]."""
    shape = crow_t.numel() - 1, crow.numel() - 1
    return _csr_times(_csr_tensor(crow_t, col_t, values[permutation].to(_product_dtype(x.dtype)), shape), x)


@csr_product.register_fake
def _(x: Tensor, values: Tensor, *indices: Tensor) -> Tensor:
    return x.new_empty(Indices(*indices).crow.shape[0] - 1, x.shape[1])


@csr_product_transposed.register_fake
def _(x: Tensor, values: Tensor, *indices: Tensor) -> Tensor:
    return x.new_empty(Indices(*indices).crow_t.shape[0] - 1, x.shape[1])


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    x, values, *indices = ctx.saved_tensors
    gx = csr_product_transposed(g, values, *indices) if ctx.needs_input_grad[0] else None
    gv = _values_gradient(g, x, indices[0], indices[1]) if ctx.needs_input_grad[1] else None
    return gx, gv, *[None] * len(indices)


def _backward_transposed(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    x, values, *indices = ctx.saved_tensors
    gx = csr_product(g, values, *indices) if ctx.needs_input_grad[0] else None
    gv = _values_gradient(x, g, indices[0], indices[1]) if ctx.needs_input_grad[1] else None
    return gx, gv, *[None] * len(indices)


def _values_gradient(of_rows: Tensor, of_columns: Tensor, row: Tensor, col: Tensor) -> Tensor:
    return (of_rows[row] * of_columns[col]).sum(-1)


csr_product.register_autograd(_backward, setup_context=_setup_context)
csr_product_transposed.register_autograd(_backward_transposed, setup_context=_setup_context)
