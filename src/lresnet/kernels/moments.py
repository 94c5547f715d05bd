"""Mean and variance of every channel of rows [R, n] in one pass over memory, and the affine map of a batch norm."""
# mypy: ignore-errors

import triton
import triton.language as tl

from lresnet.kernels.blocks import per_column

__all__ = ["merge_moments", "moments_blocks"]


@triton.jit
def merged(count, mean, squares, total):
    """One (mean, sum of squared deviations) a column out of one a slot: [SLOTS, n] -> [1, n] each.

    The deviations of the slots' means are squared, never a difference of squares formed. The mean is found in two
    steps: the second one finds what the first one rounded off. A slot of count 0 changes nothing.
    """
    share = count / total
    about = tl.sum(share * mean, axis=0, keep_dims=True)
    off = mean - about
    rest = tl.sum(share * off, axis=0, keep_dims=True)
    deviation = off - rest
    return about + rest, tl.sum(squares + count * deviation * deviation, axis=0, keep_dims=True)


@triton.jit
def moments_blocks(
    x_pointer,
    lines_pointer,
    rows,
    n,
    x_step,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    r"""Line p of ``lines`` [P, 2, n]: mean and sum of squared deviations of ``x - x[0]`` over the rows of program p.

    Less the first row, so that a mean far from 0 takes no digits from the deviations. Every place of the tile follows
    its own values down the rows (Welford):

    .. math:: \delta = x_k - m, \quad m \leftarrow m + \delta / k, \quad s \leftarrow s + \delta^2 (k - 1) / k .
    """
    columns = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    tiles = tl.cdiv(rows, ROWS)
    first = per_column(x_pointer, columns, n, ROWS).to(tl.float32)
    count = tl.zeros((ROWS, 1), tl.float32)
    mean, squares = tl.zeros((ROWS, BLOCK), tl.float32), tl.zeros((ROWS, BLOCK), tl.float32)
    for step in tl.range(tl.program_id(1), tiles, tl.num_programs(1), num_stages=STAGES):
        # From the end: what was written last is still in the cache, and what is read last is what the tail reads first.
        row = ((tiles - 1 - step) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        x = tl.load(x_pointer + row * x_step + columns, mask=(row < rows) & (columns < n), other=0.0).to(tl.float32)
        here = (row < rows).to(tl.float32)
        count += here
        rate = here / tl.maximum(count, 1.0)
        delta = (x - first) - mean
        mean += delta * rate
        squares += delta * (here - rate) * delta
    mean, squares = merged(count, mean, squares, tl.sum(count))
    line = lines_pointer + tl.program_id(1) * 2 * n + columns
    tl.store(line, mean, mask=columns < n)
    tl.store(line + n, squares, mask=columns < n)


@triton.jit
def merge_moments(
    x_pointer,
    lines_pointer,
    weight_pointer,
    bias_pointer,
    statistics_pointer,
    rows,
    n,
    programs,
    eps,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LINES: tl.constexpr,
):
    r"""The lines of ``moments_blocks`` as one: mean, unbiased variance, r, a and b.

    .. math:: r = 1/\sqrt{\sigma^2 + \epsilon}, \qquad a = w r, \qquad b = \beta - \mu a,

    with the biased variance :math:`\sigma^2`; the unbiased one is for the running statistics.

    ROWS is the tile's of those programs: how many rows each of them saw follows from it.
    """
    columns = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[None, :]
    line = tl.arange(0, LINES)[:, None]
    inside = (line < programs) & (columns < n)
    pointers = lines_pointer + line * 2 * n + columns
    mean, squares = tl.load(pointers, mask=inside, other=0.0), tl.load(pointers + n, mask=inside, other=0.0)
    tiles = tl.cdiv(rows, ROWS)
    seen = tl.cdiv(tiles - line, programs) * ROWS - tl.where(line == 0, tiles * ROWS - rows, 0)
    count = tl.where(line < programs, seen, 0).to(tl.float32)
    total = tl.cast(rows, tl.float32)  # a single row is a constant, which has no methods
    mean, squares = merged(count, mean, squares, total)
    mean += tl.load(x_pointer + columns, mask=columns < n, other=0.0).to(tl.float32)
    variance = tl.div_rn(squares, total)
    inverse = tl.div_rn(1.0, tl.sqrt_rn(variance + eps))
    weight = tl.load(weight_pointer + columns, mask=columns < n, other=0.0)
    bias = tl.load(bias_pointer + columns, mask=columns < n, other=0.0)
    a = weight * inverse
    out = statistics_pointer + columns
    tl.store(out, mean, mask=columns < n)
    tl.store(out + n, tl.div_rn(squares, total - 1.0), mask=columns < n)
    tl.store(out + 2 * n, inverse, mask=columns < n)
    tl.store(out + 3 * n, a, mask=columns < n)
    tl.store(out + 4 * n, bias - mean * a, mask=columns < n)
