r"""Vectors of queries, keys and values from one projection, with rotary positions, as one operator.

The projection [B, T, P] has H heads of queries, G heads of keys and G heads of values. Each takes ``width`` columns,
so that all reads and writes are aligned; the first n (queries and keys) or m (values) are coordinates.
:mod:`lresnet.nn.inner_product_vectors` derives the vectors. Those of a query are scaled by its factor f, and so is
their radius :math:`r = 1/\sqrt\kappa`.

Bytes moved: forward reads the projection and writes the vectors; backward reads the vectors and their gradients and
writes the gradient of the projection. The projection is not stored for the backward pass: attention stores the vectors.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from lresnet.kernels.math import jit
from lresnet.kernels.runtime import compile_ahead, launch
from lresnet.kernels.tiles import Heads, attention_vectors_tile

__all__ = ["backward", "forward", "fused_attention_vectors"]

Vectors = tuple[Tensor, Tensor, Tensor]


# --- 1. Kernels -------------------------------------------------------------------------------------------------------
# A program computes the heads of one kind (queries, keys or values), one after the other, so that it reads the angles
# of its rows once. The row of a head has three parts: the first and the second coordinates of the pairs that turn, HALF
# each, and the rest: coordinates that do not turn, the appended numbers and zeros. REST is the block of the rest, and
# BLOCK that of a whole head, since values do not turn. A line of sums has two numbers for each head of all kinds.


@jit
def _angles(cos_pointer, sin_pointer, time, half, HALF: tl.constexpr):
    """Return cosines and sines [ROWS, block of HALF]."""
    c = tl.load(cos_pointer + time * HALF + half, mask=half < HALF, other=0.0).to(tl.float32)
    s = tl.load(sin_pointer + time * HALF + half, mask=half < HALF, other=0.0).to(tl.float32)
    return c, s


@jit
def _load(pointer, column, mask):
    return tl.load(pointer + column, mask=mask, other=0.0).to(tl.float32)


@jit
def _rounded(x, pointer):
    return x.to(pointer.dtype.element_ty).to(tl.float32)


@jit
def _write_vectors(
    x_pointer, out_pointer, factor_pointer, radius, cos_pointer, sin_pointer, index, rows, length, x_batch, x_time,
    heads, n, width, ROLE: tl.constexpr, HALF: tl.constexpr, SPLIT: tl.constexpr,
    ROWS: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Write the vectors of the heads of one kind; ``x_pointer`` is where the first of them starts."""
    inside, time, row = index < rows, index % length, index.to(tl.int64)
    place = (index // length).to(tl.int64) * x_batch + time.to(tl.int64) * x_time
    # Column of the rest in a head, and what is there: a coordinate before n, then the numbers.
    column = 2 * HALF + tl.arange(0, REST)[None, :]
    if HALF > 0:
        half = tl.arange(0, PAIRS)[None, :]
        turns = inside & (half < HALF)
        c, s = _angles(cos_pointer, sin_pointer, time, half, HALF)
    for head in range(heads):
        x = x_pointer + place + head * width
        out = out_pointer + row * (heads * width) + head * width
        factor = tl.load(factor_pointer + head) if ROLE == "query" else 1.0
        r = radius * factor
        rest = _rounded(_load(x, column, inside & (column < n)) * factor, out_pointer)
        square = tl.sum(rest * rest, axis=1, keep_dims=True)
        if HALF > 0:
            first, second = _load(x, half, turns), _load(x, half + HALF, turns)
            turned = _rounded((first * c - second * s) * factor, out_pointer)
            second = _rounded((first * s + second * c) * factor, out_pointer)
            square += tl.sum(turned * turned + second * second, axis=1, keep_dims=True)
            tl.store(out + half, turned.to(out_pointer.dtype.element_ty), mask=turns)
            tl.store(out + half + HALF, second.to(out_pointer.dtype.element_ty), mask=turns)
        t = tl.sqrt_rn(square + r * r)
        number = -t if ROLE == "query" else tl.div_rn(square, t + r)
        rest = tl.where(column == n, number, rest)
        if SPLIT and ROLE != "value":
            high = _rounded(number, out_pointer)
            low = number - high
            rest = tl.where(column == n + 1, high if ROLE == "query" else low, rest)
            rest = tl.where(column == n + 2, low if ROLE == "query" else high, rest)
        tl.store(out + column, rest.to(out_pointer.dtype.element_ty), mask=inside & (column < width))


@jit
def _forward(
    x_pointer, factor_pointer, radius_pointer, cos_pointer, sin_pointer, q_pointer, k_pointer, v_pointer,
    rows, length, x_batch, x_time, heads, kv_heads, n, m, width,
    HALF: tl.constexpr, SPLIT: tl.constexpr,
    ROWS: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    kind = tl.program_id(0) % 3  # adjacent programs read adjacent columns
    index = ((tl.program_id(0) // 3) * ROWS + tl.arange(0, ROWS))[:, None]
    radius = tl.load(radius_pointer)
    if kind == 0:
        _write_vectors(
            x_pointer, q_pointer, factor_pointer, radius, cos_pointer, sin_pointer, index, rows, length, x_batch,
            x_time, heads, n, width, "query", HALF, SPLIT, ROWS, PAIRS, REST,
        )  # fmt: skip
    elif kind == 1:
        _write_vectors(
            x_pointer + heads * width, k_pointer, factor_pointer, radius, cos_pointer, sin_pointer, index, rows,
            length, x_batch, x_time, kv_heads, n, width, "key", HALF, SPLIT, ROWS, PAIRS, REST,
        )  # fmt: skip
    else:
        _write_vectors(
            x_pointer + (heads + kv_heads) * width, v_pointer, factor_pointer, radius, cos_pointer, sin_pointer, index,
            rows, length, x_batch, x_time, kv_heads, m, width, "value", 0, SPLIT, ROWS, PAIRS, BLOCK,
        )  # fmt: skip


@jit
def _write_gradients(
    g_pointer, y_pointer, gx_pointer, lines_pointer, factor_pointer, radius, cos_pointer, sin_pointer, index, rows,
    length, g_batch, g_time, g_head, heads, n, width, columns,
    ROLE: tl.constexpr, HALF: tl.constexpr, SPLIT: tl.constexpr, SUMS: tl.constexpr,
    ROWS: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the heads of one kind, and their sums for factor and radius, two for each head."""
    inside, time, row = index < rows, index % length, index.to(tl.int64)
    place = (index // length).to(tl.int64) * g_batch + time.to(tl.int64) * g_time
    column = 2 * HALF + tl.arange(0, REST)[None, :]
    coordinate = inside & (column < n)
    g_head = tl.cast(g_head, tl.int64)  # gradients stored by head: the product below may exceed 32 bits
    if HALF > 0:
        half = tl.arange(0, PAIRS)[None, :]
        turns = inside & (half < HALF)
        c, s = _angles(cos_pointer, sin_pointer, time, half, HALF)
    for head in range(heads):
        g, y = g_pointer + place + head * g_head, y_pointer + row * (heads * width) + head * width
        gx = gx_pointer + row * columns + head * width
        factor = tl.load(factor_pointer + head) if ROLE == "query" else 1.0
        r = radius * factor
        x = _load(y, column, coordinate)
        g_rest = _load(g, column, inside & (column < width))
        square = tl.sum(x * x, axis=1, keep_dims=True)
        # The numbers' gradients: those of the leading part of a time, which stands at n and, of two parts, once more.
        leading = column == n
        if SPLIT and ROLE != "value":
            leading = leading | (column == (n + 1 if ROLE == "query" else n + 2))
        gt = tl.sum(tl.where(leading, g_rest, 0.0), axis=1, keep_dims=True)
        if HALF > 0:
            x1, x2 = _load(y, half, turns), _load(y, half + HALF, turns)
            g1, g2 = _load(g, half, turns), _load(g, half + HALF, turns)
            square += tl.sum(x1 * x1 + x2 * x2, axis=1, keep_dims=True)
        t = tl.sqrt_rn(square + r * r)
        share = tl.div_rn(-gt if ROLE == "query" else gt, t)
        g_rest = tl.where(column < n, g_rest + x * share, 0.0)
        if SUMS:
            total = tl.sum(g_rest * x, axis=1, keep_dims=True)
        # The columns beyond n come from rows of 0 of the projection's weight: their gradient must be finite.
        kind = gx_pointer.dtype.element_ty
        tl.store(gx + column, (g_rest * factor).to(kind), mask=inside & (column < width))
        if HALF > 0:
            g1, g2 = g1 + x1 * share, g2 + x2 * share
            if SUMS:
                total += tl.sum(g1 * x1 + g2 * x2, axis=1, keep_dims=True)
            tl.store(gx + half, ((g1 * c + g2 * s) * factor).to(kind), mask=turns)
            tl.store(gx + half + HALF, ((g2 * c - g1 * s) * factor).to(kind), mask=turns)
        if SUMS:
            slope = r if ROLE == "query" else -tl.div_rn(square, t + r)
            tl.store(lines_pointer + 2 * head, tl.sum(total))
            tl.store(lines_pointer + 2 * head + 1, tl.sum(tl.where(inside, share * slope, 0.0)))


@jit
def _backward(
    gq_pointer, gk_pointer, gv_pointer, q_pointer, k_pointer, v_pointer, factor_pointer, radius_pointer,
    cos_pointer, sin_pointer, gx_pointer, lines_pointer, rows, length,
    gq_batch, gq_time, gq_head, gk_batch, gk_time, gk_head, gv_batch, gv_time, gv_head,
    heads, kv_heads, n, m, width,
    HALF: tl.constexpr, SPLIT: tl.constexpr, SUMS: tl.constexpr,
    ROWS: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    kind, tile = tl.program_id(0) % 3, tl.program_id(0) // 3
    index = (tile * ROWS + tl.arange(0, ROWS))[:, None]
    slots = heads + 2 * kv_heads
    columns = slots * width
    lines_pointer = lines_pointer + tile.to(tl.int64) * 2 * slots if SUMS else lines_pointer
    radius = tl.load(radius_pointer)
    if kind == 0:
        _write_gradients(
            gq_pointer, q_pointer, gx_pointer, lines_pointer, factor_pointer, radius, cos_pointer, sin_pointer, index,
            rows, length, gq_batch, gq_time, gq_head, heads, n, width, columns,
            "query", HALF, SPLIT, SUMS, ROWS, PAIRS, REST,
        )  # fmt: skip
    elif kind == 1:
        _write_gradients(
            gk_pointer, k_pointer, gx_pointer + heads * width, lines_pointer + 2 * heads if SUMS else lines_pointer,
            factor_pointer, radius, cos_pointer, sin_pointer, index, rows, length, gk_batch, gk_time, gk_head,
            kv_heads, n, width, columns, "key", HALF, SPLIT, SUMS, ROWS, PAIRS, REST,
        )  # fmt: skip
    else:
        first = heads + kv_heads
        _write_gradients(
            gv_pointer, v_pointer, gx_pointer + first * width, lines_pointer + 2 * first if SUMS else lines_pointer,
            factor_pointer, radius, cos_pointer, sin_pointer, index, rows, length, gv_batch, gv_time, gv_head,
            kv_heads, m, width, columns, "value", 0, SPLIT, SUMS, ROWS, PAIRS, BLOCK,
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
            _forward, (3 * -(-rows // tile.rows),), x, factor, radius, cos, sin, q, k, v, rows, length,
            x.stride(0), x.stride(1), *heads, SPLIT=dtype != torch.float32, **_blocks(cos, heads),
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
            _backward, (3 * tiles,), gq, gk, gv, q, k, v, factor, radius, cos, sin, gx,
            lines if needs_sums else None, rows, length, *gq.stride()[:3], *gk.stride()[:3], *gv.stride()[:3],
            *heads, SPLIT=q.dtype != torch.float32, SUMS=needs_sums, **_blocks(cos, heads),
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


def _blocks(cos: Tensor | None, heads: Heads) -> dict[str, int]:
    """Return the sizes of a program's blocks: rows, pairs that turn, and the other columns of a head."""
    half, tile = 0 if cos is None else cos.shape[-1], attention_vectors_tile(heads.width)
    pairs, rest = (1 << max(0, size - 1).bit_length() for size in (half, heads.width - 2 * half))
    sizes = {"HALF": half, "ROWS": tile.rows, "PAIRS": pairs, "REST": rest, "BLOCK": tile.block}
    return sizes | {"num_warps": tile.warps}


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
