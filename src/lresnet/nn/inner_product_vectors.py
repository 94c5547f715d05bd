r"""Vectors of points whose dot products are Lorentzian inner products, with derivatives in closed form.

With the time :math:`t = \sqrt{|x|^2 + r^2}`, :math:`r = 1/\sqrt\kappa`, and its excess over that of the origin,
:math:`e = t - r = |x|^2/(t + r)`,

.. math:: q' = [q_s, -q_t], \quad k' = [k_s, e_k], \quad v' = [v_s, e_v], \qquad
    q' \cdot k' = \langle q, k\rangle + q_t r .

In half precision times are split into a leading part and a remainder, and are those of the rounded space coordinates:
:math:`q' = [q_s, -q_{hi}, -q_{hi}, -q_{lo}]`, :math:`k' = [k_s, e_{hi}, e_{lo}, e_{hi}]`. The backward pass needs no
tensor but the vectors themselves, which attention stores anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from lresnet.geometry.checks import forward_mode, require_positive, stored, traced
from lresnet.geometry.curvature import Curvature, root
from lresnet.geometry.stack import sum_to
from lresnet.kernels import supports_pair
from lresnet.kernels.runtime import is_eager
from lresnet.kernels.tiles import LONGEST_ROW, Heads
from lresnet.nn.rotary import Rotary, apply_rotary, tables_fit

__all__ = [
    "APPENDED",
    "centroid_of_mean",
    "centroids",
    "fused_vectors",
    "head_width",
    "is_half",
    "key_vectors",
    "query_vectors",
    "supports_fused_vectors",
    "time_excess",
    "value_vectors",
    "wide_dtype",
]

APPENDED = 3
"""Number of coordinates that are appended to queries and keys in half precision."""

_HALF = (torch.bfloat16, torch.float16)
_ALIGNMENT = 8  # the kernels of torch need head widths that are multiples of 8, and would copy others

_Role: TypeAlias = Literal["query", "key", "value"]
_Number: TypeAlias = float | Tensor


def is_half(dtype: torch.dtype) -> bool:
    """Return whether times must be split into two numbers in this dtype."""
    return dtype in _HALF


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which times are computed: float32 or wider."""
    return torch.promote_types(dtype, torch.float32)


def head_width(query: int, value: int, dtype: torch.dtype) -> int:
    """Return the width of q', k' and v'.

    Args:
        query: Number of space coordinates of queries and keys.
        value: Number of space coordinates of values.
        dtype: That of the vectors.

    Example:
        >>> head_width(61, 63, torch.bfloat16), head_width(62, 62, torch.bfloat16), head_width(62, 62, torch.float32)
        (64, 72, 64)
    """
    needed = max(query + (APPENDED if is_half(dtype) else 1), value + 1)
    return -(-needed // _ALIGNMENT) * _ALIGNMENT


def query_vectors(
    q: Tensor,
    kappa: Curvature | None,
    temperature: _Number,
    dtype: torch.dtype,
    width: int,
    rotary: Rotary | None = None,
) -> Tensor:
    """Return q' divided by the temperature, [..., width]; without kappa that of L2 attention.

    Args:
        q: Points [..., n].
        kappa: -K > 0. None: the scores are :math:`-|q - k|^2/2` up to a term of q alone, the limit for kappa = 0.
        temperature: A number, or a tensor that broadcasts to [..., 1].
        dtype: That of the vectors.
        width: That of the vectors; zeros fill what the coordinates do not need.
        rotary: Positions, which turn the points first. One pass over memory does both, and so does its derivative.
    """
    if isinstance(temperature, Tensor):
        require_positive(temperature, "temperature")
        temperature = temperature.to(wide_dtype(dtype))
    elif not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive and finite, got {temperature}")
    factor = 1 / temperature
    return _vectors(q, factor, None if kappa is None else factor / root(kappa), "query", dtype, width, rotary)


def key_vectors(
    k: Tensor, kappa: Curvature | None, dtype: torch.dtype, width: int, rotary: Rotary | None = None
) -> Tensor:
    """Return k' [..., width]; arguments as for :func:`query_vectors`."""
    return _vectors(k, 1.0, None if kappa is None else 1 / root(kappa), "key", dtype, width, rotary)


def value_vectors(v: Tensor, kappa: Curvature, dtype: torch.dtype, width: int) -> Tensor:
    """Return v' [..., width]; arguments as for :func:`query_vectors`."""
    return _vectors(v, 1.0, 1 / root(kappa), "value", dtype, width)


def supports_fused_vectors(
    x: Tensor, kappa: Curvature | None, dtype: torch.dtype, rotary: Rotary | None, n: int, width: int
) -> bool:
    """Return whether :func:`fused_vectors` computes the vectors of a projection of x [B, T, E].

    Args:
        x: What is projected.
        kappa: -K > 0; None, for L2 attention, has no kernel.
        dtype: That of the vectors.
        rotary: Positions.
        n: Number of space coordinates of queries and keys.
        width: Width of a head.
    """
    if kappa is None or x.dim() != 3 or x.numel() == 0 or not supports_pair(x, x, kappa, dim=-1):
        return False
    if dtype == torch.float64 or width > LONGEST_ROW or not (torch.compiler.is_compiling() or is_eager(x)):
        return False
    if rotary is None:
        return True
    turns = (x.shape[1], rotary[0].shape[-1])
    if not tables_fit(turns[1], n) or 2 * turns[1] > width:  # the formula computes them or raises an error
        return False
    return all(
        t.shape == turns and t.dtype == torch.float32 and t.device == x.device and not t.requires_grad for t in rotary
    )


def fused_vectors(
    joint: Tensor,
    kappa: Curvature,
    temperature: Tensor,
    dtype: torch.dtype,
    rotary: Rotary | None,
    heads: Heads,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return q', k' and v' of one projection, [B, T, heads, width] each, by one kernel.

    Args:
        joint: The projection [B, T, P]: queries, keys and values, head after head, of ``width`` columns each.
        kappa: -K > 0.
        temperature: One for each head of the queries, [H].
        dtype: That of the vectors.
        rotary: Positions, [T, half] each.
        heads: Numbers of heads and of their coordinates.
    """
    from lresnet.kernels.attention_vectors import fused_attention_vectors

    require_positive(temperature, "temperature")
    factor = 1 / temperature.to(torch.float32)
    if isinstance(kappa, Tensor):
        radius = 1 / kappa.to(joint.device, torch.float32).reshape(()).sqrt()
    else:
        radius = torch.full((), 1 / math.sqrt(kappa), dtype=torch.float32, device=joint.device)
    turns = None if rotary is None else (rotary[0].contiguous(), rotary[1].contiguous())
    return fused_attention_vectors(joint, factor, radius, turns, dtype, heads, _joint_gradients)


def _joint_gradients(
    gradients: Sequence[Tensor],
    vectors: Sequence[Tensor],
    factor: Tensor,
    radius: Tensor,
    cos: Tensor | None,
    sin: Tensor | None,
    dtype: torch.dtype,
    heads: Heads,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the projection, the factors and the radius, which autograd can differentiate again."""
    turns = (None, None) if cos is None or sin is None else (cos.unsqueeze(-2), sin.unsqueeze(-2))
    scales: list[tuple[_Role, int, _Number, Tensor]] = [
        ("query", heads.n, factor.unsqueeze(-1), radius * factor.unsqueeze(-1)),
        ("key", heads.n, 1.0, radius),
        ("value", heads.m, 1.0, radius),
    ]
    parts, to_radius, to_factor = [], torch.zeros_like(radius), torch.zeros_like(factor)
    for g, output, (role, n, own, r) in zip(gradients, vectors, scales, strict=True):
        turned_cos, turned_sin = (None, None) if role == "value" else turns
        gx, gf, gr = _gradients(g, output, own, r, role, n, dtype, turned_cos, turned_sin, (True, True))
        assert gr is not None
        if role == "query":
            assert gf is not None
            to_factor = gf.squeeze(-1) + radius * gr.squeeze(-1)
            gr = (gr.squeeze(-1) * factor).sum()
        parts.append(torch.nn.functional.pad(gx, (0, heads.width - n)).flatten(-2))
        to_radius = to_radius + gr
    return torch.cat(parts, dim=-1), to_factor, to_radius


def time_excess(x: Tensor, kappa: Curvature) -> tuple[Tensor, Tensor]:
    r"""Return the time t and its excess :math:`e = t - 1/\sqrt\kappa` over that of the origin, [..., 1] each.

    Example:
        >>> time_excess(torch.tensor([3.0, 0.0]), 1 / 16)
        (tensor([5.]), tensor([1.]))
    """
    square = x.square().sum(-1, keepdim=True)
    t = (square + 1 / kappa).sqrt()
    return t, square / (t + 1 / root(kappa))


def centroid_of_mean(space: Tensor, excess: Tensor, kappa: Curvature) -> Tensor:
    r"""Return the centroid of points, given the weighted means of their space coordinates and time excesses.

    The centroid of no points, whose means are 0, is the origin. The result is in float32 or wider. The relative error
    of the normaliser is about :math:`\kappa |v|^2` times that of the means.

    Shapes:
        [..., m], [..., 1] -> [..., m]

    Example:
        >>> x = torch.tensor([[2.0, 2.0], [-2.0, 2.0]])
        >>> centroid_of_mean(x.mean(0), time_excess(x, 1.0)[1].mean(0), 1.0)
        tensor([0.0000, 0.8944])
    """
    dtype = wide_dtype(space.dtype)
    space, excess = space.to(dtype), excess.to(dtype)
    return space / _normaliser(space, excess, kappa)


def _normaliser(space: Tensor, excess: Tensor, kappa: Curvature) -> Tensor:
    t, shortest = time_excess(space, kappa)
    # The mean of one value has its excess, but kernels and torch sum squares in different orders: up to this difference
    # n is exactly 1. For long values n would be far from it.
    rounding = 4 * torch.finfo(shortest.dtype).eps * shortest
    gap = excess - shortest
    gap = torch.where(gap <= rounding, 0.0, gap)  # NaN stays NaN
    return (1 + kappa * gap * (excess + 1 / root(kappa) + t)).sqrt()


# --- Vectors ----------------------------------------------------------------------------------------------------------


def _vectors(
    x: Tensor,
    factor: _Number,
    radius: _Number | None,
    role: _Role,
    dtype: torch.dtype,
    width: int,
    rotary: Rotary | None = None,
) -> Tensor:
    if rotary is not None and any(t.requires_grad for t in rotary):
        x, rotary = apply_rotary(x, *rotary), None
    cos, sin = (None, None) if rotary is None else rotary
    if forward_mode():
        return _plain_vectors(x, factor, radius, role, dtype, width, cos, sin)
    function = _Vectors if traced() else _EagerVectors
    result: Tensor = function.apply(x, factor, radius, role, dtype, width, cos, sin)  # type: ignore[no-untyped-call]
    return result


def _plain_vectors(
    x: Tensor,
    factor: _Number,
    radius: _Number | None,
    role: _Role,
    dtype: torch.dtype,
    width: int,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
) -> Tensor:
    if cos is not None and sin is not None:
        x = apply_rotary(x, cos, sin)
    n = x.shape[-1]
    in_one_pass = x.is_cuda and torch.compiler.is_compiling()
    if in_one_pass:
        x = torch.nn.functional.pad(x, (0, width - n))
    wide = x.to(wide_dtype(dtype))
    rounded = (wide if isinstance(factor, float) and factor == 1.0 else wide * factor).to(dtype)
    wide = rounded.to(wide.dtype)
    time = _appended_number(wide, factor, radius, role)
    numbers = [time]
    if is_half(dtype) and role != "value":
        high = time.to(dtype)
        low = (time.detach() - high.detach()).to(dtype)  # the gradient flows through the leading part, as if it were t
        numbers = [high, high, low] if role == "query" else [high, low, high]
    return _with_numbers(rounded, numbers, n) if in_one_pass else _appended(rounded, numbers, width)


def _appended(x: Tensor, numbers: Sequence[Tensor], width: int) -> Tensor:
    """Return x [..., n] with the numbers [..., 1] appended, and zeros up to the width."""
    parts = [x, *(number.to(x.dtype) for number in numbers)]
    missing = width - x.shape[-1] - len(numbers)
    if missing > 0:
        parts.append(x.new_zeros(*x.shape[:-1], missing))
    return torch.cat(parts, dim=-1)


def _with_numbers(x: Tensor, numbers: Sequence[Tensor], n: int) -> Tensor:
    """Return x [..., width] with the numbers [..., 1] from column n on: :func:`_appended` for x padded with zeros.

    torch.compile stores the parts of a concatenation one by one, single numbers three times as slowly as whole rows.
    """
    column = torch.arange(x.shape[-1], device=x.device)
    for i, number in enumerate(numbers):
        x = torch.where(column == n + i, number.to(x.dtype), x)
    return x


def _appended_number(x: Tensor, factor: _Number, radius: _Number | None, role: _Role) -> Tensor:
    """Return -t of a query or e of a key or value, [..., 1]."""
    if radius is None and role == "query":
        return -x.new_ones(*x.shape[:-1], 1) * factor
    square = x.square().sum(-1, keepdim=True)
    if radius is None:
        return 0.5 * square
    t = (square + radius * radius).sqrt()
    return -t if role == "query" else square / (t + radius)


class _Vectors(torch.autograd.Function):
    """(x, factor, radius, role, dtype, width, cos, sin) -> the vectors of x, turned, times ``factor``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        factor: _Number,
        radius: _Number | None,
        role: _Role,
        dtype: torch.dtype,
        width: int,
        cos: Tensor | None,
        sin: Tensor | None,
    ) -> Tensor:
        return _plain_vectors(x, factor, radius, role, dtype, width, cos, sin)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, factor, radius, ctx.role, ctx.dtype, _, cos, sin = inputs
        ctx.n, ctx.x_dtype = x.shape[-1], x.dtype
        ctx.factor = None if isinstance(factor, Tensor) else factor
        ctx.radius = None if isinstance(radius, Tensor) else radius
        ctx.has_radius, ctx.turned = isinstance(radius, Tensor), cos is not None
        optional = (factor, radius, cos, sin)
        ctx.save_for_backward(output, *(t for t in optional if isinstance(t, Tensor)))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        cos, sin = saved[-2:] if ctx.turned else (None, None)
        factor = saved[1] if ctx.factor is None else ctx.factor
        radius = saved[2 if ctx.factor is None else 1] if ctx.has_radius else ctx.radius
        needed = ctx.needs_input_grad[1], ctx.needs_input_grad[2]
        gx, gf, gr = _gradients(g, saved[0], factor, radius, ctx.role, ctx.n, ctx.x_dtype, cos, sin, needed)
        return gx, gf, gr, None, None, None, None, None


def _gradients(
    g: Tensor,
    output: Tensor,
    factor: _Number,
    radius: _Number | None,
    role: _Role,
    n: int,
    x_dtype: torch.dtype,
    cos: Tensor | None,
    sin: Tensor | None,
    needed: tuple[bool, bool],
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    r"""Return the gradients along g of x and, as far as needed, of factor and radius.

    With g of the appended number, :math:`a = t` or e: :math:`\partial_x t = \partial_x e = x/t`,
    :math:`\partial_r t = r/t`, :math:`\partial_r e = -e/t`.
    """
    wide = wide_dtype(output.dtype)
    x, gx, appended = output[..., :n].to(wide), g[..., :n].to(wide), g[..., n : n + APPENDED].to(wide)
    is_split = is_half(output.dtype) and role != "value"
    gt = appended[..., :1]
    if is_split:
        gt = gt + (appended[..., 1:2] if role == "query" else appended[..., 2:3])
    if role == "query":
        gt = -gt
    gf = gr = None
    if radius is not None:
        t, slope = _time_and_slope(output, x, radius, role, is_split)
        share = stored(gt / t)
        gx = torch.addcmul(gx, x, share)
        if isinstance(radius, Tensor) and needed[1]:
            gr = sum_to(radius.shape, share * slope)
    elif role != "query":
        gx = torch.addcmul(gx, x, gt)
    if isinstance(factor, Tensor) and needed[0]:
        gf = (gx * x).sum(-1, keepdim=True) / factor
        is_time = radius is None and role == "query"  # the factor itself is the time of L2 attention
        gf = sum_to(factor.shape, gf + gt if is_time else gf)
    if cos is not None and sin is not None:
        gx = apply_rotary(gx, cos, -sin)
    if isinstance(factor, Tensor) or factor != 1.0:
        gx = gx * factor
    return stored(gx.to(x_dtype)), gf, gr


def _time_and_slope(
    output: Tensor, x: Tensor, radius: _Number, role: _Role, is_split: bool
) -> tuple[Tensor, Tensor | float]:
    r"""Return the time t of x and :math:`t\, \partial_r a`, [..., 1], from the appended numbers where they are exact.

    Two numbers in half precision give the time to a relative error of :math:`2^{-17}`.
    """
    n = x.shape[-1]
    if role == "value" and is_half(output.dtype):  # rounded to one number
        square = x.square().sum(-1, keepdim=True)
        t = (square + radius * radius).sqrt()
        return t, -square / (t + radius)
    number = output[..., n : n + 1].to(x.dtype)
    if is_split:
        low = n + 2 if role == "query" else n + 1
        number = number + output[..., low : low + 1].to(x.dtype)
    return (-number, radius) if role == "query" else (number + radius, -number)


class _EagerVectors(torch.autograd.Function):
    """The same for plain eager calls: functions with a vmap rule cost 80 microseconds more per call."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        output = _plain_vectors(*inputs)
        _Vectors.setup_context(ctx, inputs, output)
        return output

    backward = _Vectors.backward


# --- Centroids --------------------------------------------------------------------------------------------------------


def centroids(mean: Tensor, n: int, kappa: Curvature, with_excess: bool) -> Tensor:
    """Return the centroids of weighted means of v' [..., width] with n space coordinates, in the dtype of ``mean``.

    Args:
        mean: Weighted means of :func:`value_vectors`.
        n: Number of space coordinates.
        kappa: -K > 0.
        with_excess: Append the excess of the time of the centroid.

    Returns:
        [..., n], or [..., n + 1] with the excess.
    """
    if forward_mode():
        return _plain_centroids(mean, n, kappa, with_excess)
    function = _Centroids if traced() else _EagerCentroids
    result: Tensor = function.apply(mean, n, kappa, with_excess)  # type: ignore[no-untyped-call]
    return result


def _plain_centroids(mean: Tensor, n: int, kappa: Curvature, with_excess: bool) -> Tensor:
    if not with_excess:
        return _rounded(centroid_of_mean(mean[..., :n], mean[..., n : n + 1], kappa), mean.dtype)
    # All parts have the width of ``mean``, so that compiled code needs one pass over memory.
    wide, column = mean[..., : n + 1].to(wide_dtype(mean.dtype)), torch.arange(n + 1, device=mean.device)
    space = centroid_of_mean(torch.where(column < n, wide, 0.0), wide[..., n:], kappa)
    return _rounded(torch.where(column < n, space, time_excess(space, kappa)[1]), mean.dtype)


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x in this dtype. (torch 2.11 compiles gradients of 0 for a function whose last ``to`` does nothing.)"""
    return x if x.dtype == dtype else x.to(dtype)


class _Centroids(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, n: int, kappa: Curvature, with_excess: bool) -> Tensor:
        return _plain_centroids(mean, n, kappa, with_excess)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        mean, ctx.n, kappa, ctx.with_excess = inputs
        ctx.kappa = None if isinstance(kappa, Tensor) else kappa
        ctx.save_for_backward(mean, *([kappa] if ctx.kappa is None else []))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        r"""With y = s/N, :math:`t = (e + r)/N` and :math:`p = g_s \cdot y`, e the mean excess:

        .. math:: \partial s = \tfrac1N [g_s + \kappa (p + g_e t)\, y], \qquad
            \partial e = -\tfrac\kappa N (p\, t + g_e |y|^2), \qquad
            \partial_\kappa N = \tfrac1{2N} \big(\tfrac{N^2 - 1}\kappa - e r\big)
        """
        mean, *tensors = ctx.saved_tensors
        n, kappa, wide = ctx.n, tensors[0] if ctx.kappa is None else ctx.kappa, wide_dtype(mean.dtype)
        width, column = mean.shape[-1], torch.arange(mean.shape[-1], device=mean.device)
        space, excess = torch.where(column < n, mean, 0.0).to(wide), mean[..., n : n + 1].to(wide)
        norm, r = _normaliser(space, excess, kappa), 1 / root(kappa)
        # Where all values are equal, N = 1 may be the result of the clamp: its derivative there is 0 in all directions.
        y, t = space / norm, (excess + r) / norm
        g = torch.nn.functional.pad(g, (0, width - g.shape[-1])) if g.shape[-1] < width else g
        gs = torch.where(column < n, g, 0.0).to(wide)
        ge = g[..., n : n + 1].to(wide) if ctx.with_excess else torch.zeros_like(excess)
        p = (gs * y).sum(-1, keepdim=True)
        g_space = torch.addcmul(gs, y, kappa * (p + ge * t)) / norm
        g_excess = -kappa * (p * t + ge * y.square().sum(-1, keepdim=True)) / norm
        result = torch.where(column == n, g_excess, g_space)  # 0 beyond
        gk = None
        if ctx.kappa is None and ctx.needs_input_grad[2]:
            growth = ((norm * norm - 1) / kappa - excess * r) / (2 * norm)
            slope = -0.5 * r / kappa
            gk = -p / norm * growth + ge * (slope * (1 / norm - 1) - t / norm * growth)
            gk = sum_to(kappa.shape, gk)
        return result.to(mean.dtype), None, gk, None


class _EagerCentroids(torch.autograd.Function):
    """The same for plain eager calls."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        output = _plain_centroids(*inputs)
        _Centroids.setup_context(ctx, inputs, output)
        return output

    backward = _Centroids.backward
