r"""Vectors of queries, keys and values from one projection, with rotary positions, as one operator.

The projection [B, T, P] has H heads of queries, G heads of keys and G heads of values. Each takes ``width`` columns,
so that all reads and writes are aligned; the first n (queries and keys) or m (values) are coordinates.
:mod:`lresnet.nn.inner_product_vectors` derives the vectors. Those of a query are scaled by its factor f, and so is
their radius :math:`r = 1/\sqrt\kappa`.

Bytes moved: forward reads the projection and writes the vectors; backward reads the vectors and their gradients and
writes the gradient of the projection. The projection is not stored for the backward pass: attention stores the vectors.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from lresnet.kernels.math import jit
from lresnet.kernels.runtime import compile_ahead, launch
from lresnet.kernels.tiles import attention_vectors_tile

__all__ = ["Heads", "backward", "forward", "fused_attention_vectors"]

Vectors = tuple[Tensor, Tensor, Tensor]


class Heads(NamedTuple):
    """Numbers of heads and of their coordinates."""

    queries: int
    keys: int
    """Also of values."""
    n: int
    m: int
    width: int
    """Of the vectors, at least that of the coordinates and times."""

    @property
    def slots(self) -> int:
        """Number of heads of the three kinds together."""
        return self.queries + 2 * self.keys

    @property
    def columns(self) -> int:
        """Number of columns of the projection."""
        return self.slots * self.width


# --- 1. Kernels -------------------------------------------------------------------------------------------------------


@jit
def _rotation(cos_pointer, sin_pointer, time, column, HALF: tl.constexpr):
    """Return the column of each coordinate's partner, and c and s: the turned coordinate is ``c x + s partner``."""
    turns = column < 2 * HALF
    partner = tl.where(column < HALF, column + HALF, tl.where(turns, column - HALF, column))
    angle = time * HALF + tl.minimum(column, partner)
    c = tl.load(cos_pointer + angle, mask=turns, other=1.0).to(tl.float32)
    s = tl.load(sin_pointer + angle, mask=turns, other=0.0).to(tl.float32)
    return partner, c, tl.where(column < HALF, -s, s)


@jit
def _write_vectors(
    x_pointer, out_pointer, cos_pointer, sin_pointer, row, column, inside, place, time, n, factor, radius,
    width, out_step, ROLE: tl.constexpr, HALF: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Write the vectors of one head; ``place`` is where each row of x starts."""
    coordinate = column < n
    x = tl.load(x_pointer + place + column, mask=inside & coordinate, other=0.0).to(tl.float32)
    if HALF > 0 and ROLE != "value":
        partner, c, s = _rotation(cos_pointer, sin_pointer, time, column, HALF)
        other = tl.load(x_pointer + place + partner, mask=inside & (column < 2 * HALF), other=0.0).to(tl.float32)
        x = x * c + other * s
    kind = out_pointer.dtype.element_ty
    if ROLE == "query":
        x = x * factor
    x = x.to(kind).to(tl.float32)
    square = tl.sum(x * x, axis=1, keep_dims=True)
    t = tl.sqrt_rn(square + radius * radius)
    number = -t if ROLE == "query" else tl.div_rn(square, t + radius)
    high = number.to(kind).to(tl.float32)
    y = tl.where(column == n, number, x)
    if SPLIT and ROLE != "value":
        low = number - high
        y = tl.where(column == n + 1, high if ROLE == "query" else low, y)
        y = tl.where(column == n + 2, low if ROLE == "query" else high, y)
    tl.store(out_pointer + row * out_step + column, y.to(kind), mask=inside & (column < width))


@jit
def _forward(
    x_pointer, factor_pointer, radius_pointer, cos_pointer, sin_pointer, q_pointer, k_pointer, v_pointer,
    rows, length, x_batch, x_time, heads, kv_heads, n, m, width,
    HALF: tl.constexpr, SPLIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    slots = heads + 2 * kv_heads
    slot = tl.program_id(0) % slots  # adjacent programs read adjacent columns
    index = ((tl.program_id(0) // slots) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside, time, row = index < rows, index % length, index.to(tl.int64)
    place = (index // length).to(tl.int64) * x_batch + time.to(tl.int64) * x_time
    radius = tl.load(radius_pointer)
    if slot < heads:
        factor = tl.load(factor_pointer + slot)
        _write_vectors(
            x_pointer + slot * width, q_pointer + slot * width, cos_pointer, sin_pointer, row, column, inside, place,
            time, n, factor, radius * factor, width, heads * width, "query", HALF, SPLIT,
        )  # fmt: skip
    elif slot < heads + kv_heads:
        _write_vectors(
            x_pointer + slot * width, k_pointer + (slot - heads) * width, cos_pointer, sin_pointer, row, column, inside,
            place, time, n, 1.0, radius, width, kv_heads * width, "key", HALF, SPLIT,
        )  # fmt: skip
    else:
        head = slot - heads - kv_heads
        _write_vectors(
            x_pointer + slot * width, v_pointer + head * width, cos_pointer, sin_pointer, row,
            column, inside, place, time, m, 1.0, radius, width, kv_heads * width, "value", HALF, SPLIT,
        )  # fmt: skip


@jit
def _write_gradient(
    g_pointer, y_pointer, gx_pointer, line_pointer, cos_pointer, sin_pointer, row, column, inside, place, time,
    n, factor, radius, width, y_step, gx_step,
    ROLE: tl.constexpr, HALF: tl.constexpr, SPLIT: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of one head, and the sums for factor and radius; ``place`` is where each row of g starts."""
    coordinate = inside & (column < n)
    x = tl.load(y_pointer + row * y_step + column, mask=coordinate, other=0.0).to(tl.float32)
    g = tl.load(g_pointer + place + column, mask=coordinate, other=0.0).to(tl.float32)
    gt = tl.load(g_pointer + place + n, mask=inside, other=0.0).to(tl.float32)
    if SPLIT and ROLE != "value":
        gt += tl.load(g_pointer + place + (n + 1 if ROLE == "query" else n + 2), mask=inside, other=0.0).to(tl.float32)
    # The time of the rounded coordinates, as it was computed forward.
    square = tl.sum(x * x, axis=1, keep_dims=True)
    t = tl.sqrt_rn(square + radius * radius)
    share = tl.div_rn(-gt if ROLE == "query" else gt, t)
    gx = g + x * share
    if SUMS:
        slope = radius if ROLE == "query" else -tl.div_rn(square, t + radius)
        to_radius = tl.where(inside, share * slope, 0.0)
        tl.store(line_pointer, tl.sum(gx * x))
        tl.store(line_pointer + 1, tl.sum(to_radius))
    if HALF > 0 and ROLE != "value":
        partner, c, s = _rotation(cos_pointer, sin_pointer, time, column, HALF)
        turns = inside & (column < 2 * HALF)
        other = tl.load(g_pointer + place + partner, mask=turns, other=0.0).to(tl.float32)
        other += tl.load(y_pointer + row * y_step + partner, mask=turns, other=0.0).to(tl.float32) * share
        gx = gx * c - other * s
    if ROLE == "query":
        gx = gx * factor
    # The other columns come from rows of 0 of the projection's weight: their gradient must be finite.
    gx = tl.where(column < n, gx, 0.0).to(gx_pointer.dtype.element_ty)
    tl.store(gx_pointer + row * gx_step + column, gx, mask=inside & (column < width))


@jit
def _backward(
    gq_pointer, gk_pointer, gv_pointer, q_pointer, k_pointer, v_pointer, factor_pointer, radius_pointer,
    cos_pointer, sin_pointer, gx_pointer, lines_pointer, rows, length,
    gq_batch, gq_time, gq_head, gk_batch, gk_time, gk_head, gv_batch, gv_time, gv_head,
    heads, kv_heads, n, m, width,
    HALF: tl.constexpr, SPLIT: tl.constexpr, SUMS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    slots = heads + 2 * kv_heads
    slot, columns = tl.program_id(0) % slots, slots * width
    index = ((tl.program_id(0) // slots) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside, angle, row = index < rows, index % length, index.to(tl.int64)
    batch, time = (index // length).to(tl.int64), angle.to(tl.int64)
    line_pointer = lines_pointer + tl.program_id(0).to(tl.int64) * 2 if SUMS else lines_pointer
    radius = tl.load(radius_pointer)
    if slot < heads:
        factor = tl.load(factor_pointer + slot)
        _write_gradient(
            gq_pointer, q_pointer + slot * width, gx_pointer + slot * width, line_pointer, cos_pointer, sin_pointer,
            row, column, inside, batch * gq_batch + time * gq_time + slot * gq_head, angle, n, factor, radius * factor,
            width, heads * width, columns, "query", HALF, SPLIT, SUMS,
        )  # fmt: skip
    elif slot < heads + kv_heads:
        head = slot - heads
        _write_gradient(
            gk_pointer, k_pointer + head * width, gx_pointer + slot * width, line_pointer, cos_pointer, sin_pointer,
            row, column, inside, batch * gk_batch + time * gk_time + head * gk_head, angle, n, 1.0, radius,
            width, kv_heads * width, columns, "key", HALF, SPLIT, SUMS,
        )  # fmt: skip
    else:
        head = slot - heads - kv_heads
        _write_gradient(
            gv_pointer, v_pointer + head * width, gx_pointer + slot * width, line_pointer, cos_pointer,
            sin_pointer, row, column, inside, batch * gv_batch + time * gv_time + head * gv_head, angle, m, 1.0, radius,
            width, kv_heads * width, columns, "value", HALF, SPLIT, SUMS,
        )  # fmt: skip


# --- 2. Launch --------------------------------------------------------------------------------------------------------


def forward(
    x: Tensor, factor: Tensor, radius: Tensor, cos: Tensor | None, sin: Tensor | None, dtype: torch.dtype, heads: Heads
) -> Vectors:
    """Return the vectors of queries [B, T, H, width], keys and values [B, T, G, width], in ``dtype``.

    Args:
        x: The projection, [B, T, P].
        factor: Factor of the queries by head, float32 [H].
        radius: :math:`1/\\sqrt\\kappa`, float32 [].
        cos, sin: Angles [T, half], contiguous, or None.
        dtype: float32, or a half precision, in which times are split.
        heads: Numbers of heads.
    """
    x = x if x.stride(-1) == 1 else x.contiguous()
    batch, length = x.shape[:2]
    q, k, v = (x.new_empty((batch, length, count, heads.width), dtype=dtype) for count in _counts(heads))
    rows, tile = batch * length, attention_vectors_tile(heads.width)
    with torch.cuda.device_of(x):
        launch(
            _forward, (-(-rows // tile.rows) * heads.slots,), x, factor, radius, cos, sin, q, k, v, rows, length,
            x.stride(0), x.stride(1), *heads, HALF=0 if cos is None else cos.shape[-1], SPLIT=dtype != torch.float32,
            ROWS=tile.rows, BLOCK=tile.block, num_warps=tile.warps,
        )  # fmt: skip
    return q, k, v


def backward(
    gradients: Sequence[Tensor],
    vectors: Sequence[Tensor],
    factor: Tensor,
    radius: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    dtype: torch.dtype,
    heads: Heads,
    needs_sums: bool,
) -> tuple[Tensor, Tensor]:
    """Return the gradient of the x of :func:`forward`, in ``dtype``, and lines of sums for :func:`number_gradients`.

    There is no line unless ``needs_sums``.
    """
    q, k, v = vectors
    gq, gk, gv = (g if g.stride(-1) == 1 else g.contiguous() for g in gradients)
    batch, length = q.shape[:2]
    gx = q.new_empty((batch, length, heads.columns), dtype=dtype)
    rows, tile = batch * length, attention_vectors_tile(heads.width)
    tiles = -(-rows // tile.rows)
    lines = factor.new_empty(_lines_shape(rows, heads, needs_sums))
    with torch.cuda.device_of(q):
        launch(
            _backward, (tiles * heads.slots,), gq, gk, gv, q, k, v, factor, radius, cos, sin, gx,
            lines if needs_sums else None, rows, length, *gq.stride()[:3], *gk.stride()[:3], *gv.stride()[:3],
            *heads, HALF=0 if cos is None else cos.shape[-1], SPLIT=q.dtype != torch.float32, SUMS=needs_sums,
            ROWS=tile.rows, BLOCK=tile.block, num_warps=tile.warps,
        )  # fmt: skip
    return gx, lines


def number_gradients(lines: Tensor, factor: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of factor and radius from the lines of :func:`backward`."""
    to_factor, to_radius = lines.sum(0).unbind(-1)  # by slot; the radius of a query is that times its factor
    heads = factor.shape[0]
    own = to_radius[:heads]
    return to_factor[:heads] / factor + radius * own, (own * factor).sum() + to_radius[heads:].sum()


def _lines_shape(rows: int, heads: Heads, needs_sums: bool) -> tuple[int, int, int]:
    tile = attention_vectors_tile(heads.width)
    return (-(-rows // tile.rows) if needs_sums else 0, heads.slots, 2)


def _counts(heads: Heads) -> tuple[int, int, int]:
    return heads.queries, heads.keys, heads.keys


# --- 3. The torch operators and their derivative ----------------------------------------------------------------------
# torch.compile, torch.export and CUDA graphs see one node per operator.


@torch.library.custom_op("lresnet::attention_vectors", mutates_args=())
def attention_vectors(
    x: Tensor,
    factor: Tensor,
    radius: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    dtype: torch.dtype,
    queries: int,
    keys: int,
    n: int,
    m: int,
    width: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run :func:`forward`, with the fields of :class:`Heads` as separate arguments."""
    return forward(x, factor, radius, cos, sin, dtype, Heads(queries, keys, n, m, width))


@attention_vectors.register_fake
def _(x: Tensor, factor: Tensor, radius: Tensor, cos: Tensor | None, sin: Tensor | None, *rest: Any) -> Vectors:
    dtype, heads = rest[0], Heads(*rest[1:])
    compile_ahead(forward, x, factor, radius, cos, sin, dtype, heads)
    q, k, v = (x.new_empty((*x.shape[:2], count, heads.width), dtype=dtype) for count in _counts(heads))
    return q, k, v


@torch.library.custom_op("lresnet::attention_vectors_backward", mutates_args=())
def attention_vectors_backward(
    gq: Tensor,
    gk: Tensor,
    gv: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    factor: Tensor,
    radius: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    dtype: torch.dtype,
    n: int,
    m: int,
    needs_sums: bool,
) -> tuple[Tensor, Tensor]:
    """Run :func:`backward`. This operator has no derivative."""
    heads = Heads(q.shape[2], k.shape[2], n, m, q.shape[3])
    return backward((gq, gk, gv), (q, k, v), factor, radius, cos, sin, dtype, heads, needs_sums)


@attention_vectors_backward.register_fake
def _(
    gq: Tensor, gk: Tensor, gv: Tensor, q: Tensor, k: Tensor, v: Tensor, factor: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    _, _, _, dtype, n, m, needs_sums = rest
    heads = Heads(q.shape[2], k.shape[2], n, m, q.shape[3])
    gx = q.new_empty((*q.shape[:2], heads.columns), dtype=dtype)
    return gx, factor.new_empty(_lines_shape(q.shape[0] * q.shape[1], heads, needs_sums))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Vectors) -> None:
    x, factor, radius, cos, sin, _, _, _, ctx.n, ctx.m, _ = inputs
    ctx.dtype = x.dtype
    ctx.save_for_backward(*output, factor, radius, cos, sin)


def _backward_of_operator(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    tensors, needs_sums = ctx.saved_tensors, any(ctx.needs_input_grad[1:3])
    gx, lines = attention_vectors_backward(*gradients, *tensors, ctx.dtype, ctx.n, ctx.m, needs_sums)
    numbers = number_gradients(lines, *tensors[3:5]) if needs_sums else (None, None)
    return gx, *numbers, *[None] * 8


attention_vectors.register_autograd(_backward_of_operator, setup_context=_setup_context)


# --- 4. The public function -------------------------------------------------------------------------------------------


class _EagerVectors(torch.autograd.Function):
    """(x, factor, radius, cos, sin, dtype, heads, formula) -> the vectors, in eager calls."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Vectors:
        *arguments, ctx.formula = inputs
        x, factor, radius, cos, sin, _, ctx.heads = arguments
        found = forward(*arguments)
        ctx.dtype = x.dtype
        ctx.save_for_backward(*found, factor, radius, cos, sin)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, factor, radius, cos, sin = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is needed
            found = ctx.formula(gradients, (q, k, v), factor, radius, cos, sin, ctx.dtype, ctx.heads)
            return *found, *[None] * 5
        needs_sums = any(ctx.needs_input_grad[1:3])
        gx, lines = backward(gradients, (q, k, v), factor, radius, cos, sin, ctx.dtype, ctx.heads, needs_sums)
        numbers = number_gradients(lines, factor, radius) if needs_sums else (None, None)
        return gx, *numbers, *[None] * 5


def fused_attention_vectors(
    x: Tensor,
    factor: Tensor,
    radius: Tensor,
    rotary: tuple[Tensor, Tensor] | None,
    dtype: torch.dtype,
    heads: Heads,
    formula: Callable[..., Vectors],
) -> Vectors:
    """Return the vectors of :func:`forward`, differentiable in x, factor and radius.

    ``formula(gradients, vectors, factor, radius, cos, sin, dtype, heads)`` returns the gradients in torch
    operations, for second derivatives in eager calls. (torch.compile supports no second derivatives.)
    """
    cos, sin = (None, None) if rotary is None else rotary
    if torch.compiler.is_compiling():
        found: Vectors = attention_vectors(x, factor, radius, cos, sin, dtype, *heads)
        return found
    q, k, v = _EagerVectors.apply(x, factor, radius, cos, sin, dtype, heads, formula)  # type: ignore[no-untyped-call]
    return q, k, v
