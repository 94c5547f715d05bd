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
from lresnet.kernels.runtime import inlined, launch
from lresnet.kernels.tiles import Heads, Tile, attention_vectors_backward_tile, attention_vectors_tile

__all__ = ["backward", "forward", "fused_attention_vectors"]

Vectors = tuple[Tensor, Tensor, Tensor]

_ALIGNMENT = 8  # 16 bytes in half precision


# --- 1. Kernels -------------------------------------------------------------------------------------------------------
# A row of a tile is one head of one token, and rows that are adjacent in a tile are adjacent in memory. A program
# computes one tile of one kind (queries, keys or values) for some of the sequences, one after the other: what belongs
# to a row, such as its angles, is read once, and the sums of a row stay in registers.
#
# A head has three parts: the first and the second coordinates of the pairs that turn, HALF columns each, and the rest.
# All three are blocks of BLOCK columns, so that a thread holds the same rows of each. Columns that are read but are no
# coordinates are replaced by 0. This is cheaper than a mask, which would divide the 16 bytes that one load moves.
# Values do not turn: their rest is the whole head. Strides are in units of UNIT numbers: the compiler then knows that
# the addresses are aligned.


@jit
def _work(length, sequences, ROWS: tl.constexpr, HEADS: tl.constexpr):
    """Return kind (queries, keys or values), tile and first sequence of this program."""
    third = tl.program_id(0) // 3
    tiles = tl.cdiv(length * HEADS, ROWS)
    # Adjacent programs read adjacent columns. The order of the kinds varies: each multiprocessor gets all three.
    return (tl.program_id(0) + third) % 3, third % tiles, third // tiles * sequences


@jit
def _rows(tile, length, ROWS: tl.constexpr, HEADS: tl.constexpr):
    """Return index, token and head of the rows of a tile, [ROWS, 1], and whether there are such rows."""
    row = tile * ROWS + tl.arange(0, ROWS)[:, None]
    return row.to(tl.int64), (row // HEADS).to(tl.int64), row % HEADS, row < length * HEADS


@jit
def _angles(cos_pointer, sin_pointer, time, pair, inside, factor, N: tl.constexpr, HALF: tl.constexpr):
    """Return cosines and sines times ``factor``, [ROWS, BLOCK], of angle 0 for coordinates without a partner."""
    mask = inside & (pair < HALF)
    c = tl.load(cos_pointer + time * HALF + pair, mask=mask, other=1.0).to(tl.float32)
    s = tl.load(sin_pointer + time * HALF + pair, mask=mask, other=0.0).to(tl.float32)
    turns = pair < N - HALF
    return tl.where(turns, c, 1.0) * factor, tl.where(turns, s, 0.0) * factor


@jit
def _zeros(ROWS: tl.constexpr, BLOCK: tl.constexpr):
    return tl.zeros((ROWS, BLOCK), tl.float32)


@jit
def _load(pointer, column, mask, end):
    """Return the numbers of the columns before ``end`` in float32, and 0 for the others."""
    x = tl.load(pointer + column, mask=mask, other=0.0).to(tl.float32)
    return tl.where(column < end, x, 0.0)


@jit
def _rounded(x, pointer):
    return x.to(pointer.dtype.element_ty).to(tl.float32)


@jit
def _store(pointer, column, x, mask):
    tl.store(pointer + column, x.to(pointer.dtype.element_ty), mask=mask)


@jit
def _with_numbers(x, column, number, high, low, N: tl.constexpr, ROLE: tl.constexpr, SPLIT: tl.constexpr):
    """Return x with the appended numbers in their columns."""
    if SPLIT and ROLE == "query":
        x = tl.where((column == N) | (column == N + 1), high, x)
        return tl.where(column == N + 2, low, x)
    elif SPLIT and ROLE == "key":
        x = tl.where((column == N) | (column == N + 2), high, x)
        return tl.where(column == N + 1, low, x)
    else:
        return tl.where(column == N, number, x)


@jit
def _of_numbers(g, column, N: tl.constexpr, ROLE: tl.constexpr, SPLIT: tl.constexpr):
    """Return what of g is the gradient of a leading part of a time, which stands at N and, of two parts, once more."""
    if SPLIT and ROLE == "query":
        return tl.where((column == N) | (column == N + 1), g, 0.0)
    elif SPLIT and ROLE == "key":
        return tl.where((column == N) | (column == N + 2), g, 0.0)
    else:
        return tl.where(column == N, g, 0.0)


@jit
def _write_vectors(
    x_pointer, out_pointer, factor_pointer, radius, cos_pointer, sin_pointer, tile, first, last, length,
    x_batch, x_time, ROLE: tl.constexpr, HEADS: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr,
    HALF: tl.constexpr, SPLIT: tl.constexpr, UNIT: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write the vectors of one tile of the sequences from ``first`` to ``last``; ``x_pointer`` is that of the kind."""
    row, time, head, inside = _rows(tile, length, ROWS, HEADS)
    x_row = time * x_time * UNIT + head * WIDTH
    factor = tl.load(factor_pointer + head, mask=inside, other=1.0) if ROLE == "query" else 1.0
    r = radius * factor
    pair = tl.arange(0, BLOCK)[None, :]
    column = 2 * HALF + pair
    paired, others = inside & (pair < HALF), inside & (column < WIDTH)
    if HALF > 0:
        c, s = _angles(cos_pointer, sin_pointer, time, pair, inside, factor, N, HALF)
    for sequence in tl.range(first, last, num_stages=STAGES):
        x = x_pointer + tl.cast(sequence, tl.int64) * x_batch * UNIT + x_row
        out = out_pointer + tl.cast(sequence, tl.int64) * length * HEADS * WIDTH + row * WIDTH
        squares = _zeros(ROWS, BLOCK)
        if HALF > 0:
            x1, x2 = _load(x, pair, paired, N), _load(x + HALF, pair, paired, N - HALF)
            y1, y2 = _rounded(x1 * c - x2 * s, out_pointer), _rounded(x1 * s + x2 * c, out_pointer)
            squares += y1 * y1 + y2 * y2
        if WIDTH > 2 * HALF:
            rest = _rounded(_load(x, column, others, N) * factor, out_pointer)
            squares += rest * rest
        square = tl.sum(squares, axis=1, keep_dims=True)
        t = tl.sqrt_rn(square + r * r)
        number = -t if ROLE == "query" else tl.div_rn(square, t + r)
        high = _rounded(number, out_pointer)
        if HALF > 0:
            if N < 2 * HALF:
                y2 = _with_numbers(y2, HALF + pair, number, high, number - high, N, ROLE, SPLIT)
            _store(out, pair, y1, paired)
            _store(out + HALF, pair, y2, paired)
        if WIDTH > 2 * HALF:
            rest = _with_numbers(rest, column, number, high, number - high, N, ROLE, SPLIT)
            _store(out, column, rest, others)


@jit
def _forward(
    x_pointer, factor_pointer, radius_pointer, cos_pointer, sin_pointer, q_pointer, k_pointer, v_pointer,
    batch, length, sequences, x_batch, x_time,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, N: tl.constexpr, M: tl.constexpr, WIDTH: tl.constexpr,
    HALF: tl.constexpr, SPLIT: tl.constexpr, UNIT: tl.constexpr,
    ROWS: tl.constexpr, TURNED: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    kind, tile, first = _work(length, sequences, ROWS, HEADS)
    last = tl.minimum(first + sequences, batch)
    radius = tl.load(radius_pointer)
    if kind == 0:
        _write_vectors(
            x_pointer, q_pointer, factor_pointer, radius, cos_pointer, sin_pointer, tile, first, last, length,
            x_batch, x_time, "query", HEADS, N, WIDTH, HALF, SPLIT, UNIT, ROWS, TURNED, STAGES,
        )  # fmt: skip
    elif tile * ROWS < length * KV_HEADS:
        if kind == 1:
            _write_vectors(
                x_pointer + HEADS * WIDTH, k_pointer, factor_pointer, radius, cos_pointer, sin_pointer, tile, first,
                last, length, x_batch, x_time, "key", KV_HEADS, N, WIDTH, HALF, SPLIT, UNIT, ROWS, TURNED, STAGES,
            )  # fmt: skip
        else:
            _write_vectors(
                x_pointer + (HEADS + KV_HEADS) * WIDTH, v_pointer, factor_pointer, radius, cos_pointer, sin_pointer,
                tile, first, last, length, x_batch, x_time, "value", KV_HEADS, M, WIDTH, 0, SPLIT, UNIT,
                ROWS, BLOCK, STAGES,
            )  # fmt: skip


@jit
def _write_gradients(
    g_pointer, y_pointer, gx_pointer, lines_pointer, factor_pointer, radius, cos_pointer, sin_pointer, tile, first,
    last, length, sequences, g_batch, g_time, g_head, slot,
    ROLE: tl.constexpr, HEADS: tl.constexpr, SLOTS: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr,
    HALF: tl.constexpr, SPLIT: tl.constexpr, UNIT: tl.constexpr, SUMS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one tile, and the sums over the sequences for factor and radius, two for each row."""
    row, time, head, inside = _rows(tile, length, ROWS, HEADS)
    g_row = (time * g_time + head.to(tl.int64) * g_head) * UNIT
    gx_row = time * (SLOTS * WIDTH) + head * WIDTH
    factor = tl.load(factor_pointer + head, mask=inside, other=1.0) if ROLE == "query" else 1.0
    r = radius * factor
    pair = tl.arange(0, BLOCK)[None, :]
    column = 2 * HALF + pair
    paired, others = inside & (pair < HALF), inside & (column < WIDTH)
    if HALF > 0:
        c, s = _angles(cos_pointer, sin_pointer, time, pair, inside, factor, N, HALF)
    to_factor, to_radius = _zeros(ROWS, 1), _zeros(ROWS, 1)
    for sequence in tl.range(first, last, num_stages=STAGES):
        g = g_pointer + tl.cast(sequence, tl.int64) * g_batch * UNIT + g_row
        y = y_pointer + tl.cast(sequence, tl.int64) * length * HEADS * WIDTH + row * WIDTH
        gx = gx_pointer + tl.cast(sequence, tl.int64) * length * SLOTS * WIDTH + gx_row
        squares, products, numbers = _zeros(ROWS, BLOCK), _zeros(ROWS, BLOCK), _zeros(ROWS, BLOCK)
        if HALF > 0:
            x1, x2 = _load(y, pair, paired, N), _load(y + HALF, pair, paired, N - HALF)
            g1, g2 = _load(g, pair, paired, WIDTH), _load(g + HALF, pair, paired, WIDTH)
            squares += x1 * x1 + x2 * x2
            products += g1 * x1 + g2 * x2
            if N < 2 * HALF:
                numbers += _of_numbers(g2, HALF + pair, N, ROLE, SPLIT)
        if WIDTH > 2 * HALF:
            x, g_rest = _load(y, column, others, N), _load(g, column, others, WIDTH)
            squares += x * x
            products += g_rest * x
            numbers += _of_numbers(g_rest, column, N, ROLE, SPLIT)
        square, gt = tl.sum(squares, axis=1, keep_dims=True), tl.sum(numbers, axis=1, keep_dims=True)
        t = tl.sqrt_rn(square + r * r)
        share = tl.div_rn(-gt if ROLE == "query" else gt, t)
        # The columns beyond N come from rows of 0 of the projection's weight: their gradient must be finite.
        if HALF > 0:
            g1, g2 = g1 + x1 * share, tl.where(pair < N - HALF, g2 + x2 * share, 0.0)
            _store(gx, pair, g1 * c + g2 * s, paired)
            _store(gx + HALF, pair, g2 * c - g1 * s, paired)
        if WIDTH > 2 * HALF:
            _store(gx, column, tl.where(column < N, g_rest + x * share, 0.0) * factor, others)
        if SUMS:
            to_factor += tl.sum(products, axis=1, keep_dims=True) + share * square
            to_radius += share * (r if ROLE == "query" else -tl.div_rn(square, t + r))
    if SUMS:
        line = (tl.cast(first // sequences, tl.int64) * length + time) * SLOTS + slot + head
        tl.store(lines_pointer + 2 * line, to_factor, mask=inside)
        tl.store(lines_pointer + 2 * line + 1, to_radius, mask=inside)


@jit
def _backward(
    gq_pointer, gk_pointer, gv_pointer, q_pointer, k_pointer, v_pointer, factor_pointer, radius_pointer,
    cos_pointer, sin_pointer, gx_pointer, lines_pointer, batch, length, sequences,
    gq_batch, gq_time, gq_head, gk_batch, gk_time, gk_head, gv_batch, gv_time, gv_head,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, N: tl.constexpr, M: tl.constexpr, WIDTH: tl.constexpr,
    HALF: tl.constexpr, SPLIT: tl.constexpr, UNIT: tl.constexpr, SUMS: tl.constexpr,
    ROWS: tl.constexpr, TURNED: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    kind, tile, first = _work(length, sequences, ROWS, HEADS)
    last = tl.minimum(first + sequences, batch)
    slots: tl.constexpr = HEADS + 2 * KV_HEADS
    radius = tl.load(radius_pointer)
    if kind == 0:
        _write_gradients(
            gq_pointer, q_pointer, gx_pointer, lines_pointer, factor_pointer, radius, cos_pointer, sin_pointer,
            tile, first, last, length, sequences, gq_batch, gq_time, gq_head, 0,
            "query", HEADS, slots, N, WIDTH, HALF, SPLIT, UNIT, SUMS, ROWS, TURNED, STAGES,
        )  # fmt: skip
    elif tile * ROWS < length * KV_HEADS:
        if kind == 1:
            _write_gradients(
                gk_pointer, k_pointer, gx_pointer + HEADS * WIDTH, lines_pointer, factor_pointer, radius, cos_pointer,
                sin_pointer, tile, first, last, length, sequences, gk_batch, gk_time, gk_head, HEADS,
                "key", KV_HEADS, slots, N, WIDTH, HALF, SPLIT, UNIT, SUMS, ROWS, TURNED, STAGES,
            )  # fmt: skip
        else:
            _write_gradients(
                gv_pointer, v_pointer, gx_pointer + (HEADS + KV_HEADS) * WIDTH, lines_pointer, factor_pointer, radius,
                cos_pointer, sin_pointer, tile, first, last, length, sequences, gv_batch, gv_time, gv_head,
                HEADS + KV_HEADS, "value", KV_HEADS, slots, M, WIDTH, 0, SPLIT, UNIT, SUMS, ROWS, BLOCK, STAGES,
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
        cos, sin: Angles [T, half], contiguous, with 2 half <= width, or None.
        dtype: float32, or a half precision, in which times are split.
        heads: Numbers of heads.
    """
    x = x if x.stride(-1) == 1 else x.contiguous()
    batch, length = x.shape[:2]
    q, k, v = (x.new_empty((batch, length, count, heads.width), dtype=dtype) for count in _counts(heads))
    tile = attention_vectors_tile(heads.width, _half(cos))
    programs, sequences = _division(batch, length, heads, tile)
    unit, strides = _in_units(x.stride()[:2])
    launch(
        _forward, (programs,), x, factor, radius, cos, sin, q, k, v, batch, length, sequences, *strides,
        SPLIT=dtype != torch.float32, UNIT=unit, **_constants(cos, heads, tile),
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
    tile = attention_vectors_backward_tile(heads.width, _half(cos))
    programs, sequences = _division(batch, length, heads, tile)
    lines = factor.new_empty(_lines_shape(batch, length, cos, heads, needs_sums))
    unit, strides = _in_units((*gq.stride()[:3], *gk.stride()[:3], *gv.stride()[:3]))
    launch(
        _backward, (programs,), gq, gk, gv, q, k, v, factor, radius, cos, sin, gx, lines if needs_sums else None,
        batch, length, sequences, *strides,
        SPLIT=q.dtype != torch.float32, UNIT=unit, SUMS=needs_sums, **_constants(cos, heads, tile),
    )  # fmt: skip
    return gx, lines


def number_gradients(lines: Tensor, factor: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of factor and radius from the lines of :func:`backward`."""
    to_factor, to_radius = lines.sum(0).unbind(-1)  # by slot; the radius of a query is that times its factor
    heads = factor.shape[0]
    own = to_radius[:heads]
    return to_factor[:heads] / factor + radius * own, (own * factor).sum() + to_radius[heads:].sum()


def _division(batch: int, length: int, heads: Heads, tile: Tile) -> tuple[int, int]:
    """Return the number of programs, and the number of sequences that one of them computes."""
    tiles = 3 * -(-length * heads.queries // tile.rows)
    parts = torch.sym_max(1, torch.sym_min(batch, tile.programs // torch.sym_max(1, tiles)))  # of the batch
    sequences = torch.sym_max(1, -(-batch // parts))  # also of an empty batch
    return tiles * -(-batch // sequences), sequences


def _lines_shape(batch: int, length: int, cos: Tensor | None, heads: Heads, needs_sums: bool) -> tuple[int, int, int]:
    """Return the shape of the sums: a line for each token of each part of the batch."""
    _, sequences = _division(batch, length, heads, attention_vectors_backward_tile(heads.width, _half(cos)))
    return (-(-batch // sequences) * length if needs_sums else 0, heads.slots, 2)


def _constants(cos: Tensor | None, heads: Heads, tile: Tile) -> dict[str, int]:
    """Return what the kernels are compiled for; TURNED is the block of queries and keys, BLOCK that of values."""
    half = _half(cos)
    turned = 1 << (max(half, heads.width - 2 * half) - 1).bit_length()
    sizes = dict(zip(("HEADS", "KV_HEADS", "N", "M", "WIDTH"), heads, strict=True))
    sizes |= {"HALF": half, "ROWS": tile.rows, "TURNED": turned, "BLOCK": tile.block, "STAGES": tile.stages}
    return sizes | {"num_warps": tile.warps}


def _half(cos: Tensor | None) -> int:
    return 0 if cos is None else int(cos.shape[-1])  # also of a trace with symbolic sizes: a constant of the kernels


def _in_units(strides: Sequence[int]) -> tuple[int, Sequence[int]]:
    """Return 8 and the strides divided by 8 if they are multiples of it, else 1 and the strides."""
    if all(type(stride) is int and stride % _ALIGNMENT == 0 for stride in strides):
        return _ALIGNMENT, [stride // _ALIGNMENT for stride in strides]
    return 1, strides


def _counts(heads: Heads) -> tuple[int, int, int]:
    return heads.queries, heads.keys, heads.keys


# --- 3. The torch operators and their derivative ----------------------------------------------------------------------
# torch.export sees one node per operator; torch.compile replaces it by what forward and backward do.


@inlined("lresnet::attention_vectors", _forward, _backward)
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


@inlined("lresnet::attention_vectors_backward", _backward)
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
