"""Rotary positions of space coordinates (Su et al., RoFormer, 2021): they keep norms, so they keep times."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.geometry.checks import stored

__all__ = ["Rotary", "RotaryPositions", "apply_rotary", "tables_fit"]

Rotary = tuple[Tensor, Tensor]
"""Cosines and sines of the angles, [..., T, half] each.

Coordinates i and i + half of a point with n coordinates are a pair and turn, for i + half < n. Coordinates without a
partner do not turn; there are at most 3 among the first half. The columns of the tables for them are not used. So the
tables of up to n + 3 coordinates are accepted, although their frequencies are those of more pairs.
"""

_ALIGNMENT = 8  # numbers that one instruction of a GPU moves in half precision
_MOST_UNPAIRED = 3


class RotaryPositions(torch.nn.Module):
    r"""Angles of rotary positions: pair i of m pairs of coordinates turns by :math:`p\, b^{-i/m}` at position p.

    A rotation of the space coordinates is an isometry that fixes the origin. The Lorentzian inner product of a query
    and a key therefore depends on the difference of their positions only, as a dot product does.

    Positions with a axes, such as the rows and columns of an image, share the pairs evenly: the first m pairs turn with
    the first axis, the next m with the second. Pairs that are left over, and coordinates without a partner, do not
    turn.

    A pair consists of coordinates i and i + half, where half is n // 2. If n is odd and at most 3 numbers are missing
    to twice a multiple of 8, half is that multiple, and there are n - half pairs: a kernel then reads both parts of a
    head at aligned addresses. So it is for n = 61, the queries and keys of a head of width 64 (half = 32, 29 pairs).

    The module has no buffer, so a network in half precision has exact angles: bfloat16 could not tell position 257
    from 256.

    Args:
        features: Number n of coordinates of a head.
        base: b, which sets the longest wavelength.
        axes: a, the number of axes of a position.

    Shapes:
        positions [..., T], or [..., T, a] for several axes -> cosines and sines, [..., T, half] each, in float32,
        or in float64 if the positions are

    Example:
        >>> rotary = RotaryPositions(8)(torch.arange(5))
        >>> apply_rotary(torch.randn(2, 5, 8), *rotary).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, features: int, base: float = 10000.0, axes: int = 1) -> None:
        super().__init__()
        if features < 1 or axes < 1:
            raise ValueError(f"features and axes must be at least 1, got {features} and {axes}")
        if not base > 0:
            raise ValueError(f"base must be positive, got {base}")
        self.features, self.base, self.axes = features, base, axes
        aligned = -(-(features // 2) // _ALIGNMENT) * _ALIGNMENT
        is_aligned = features % 2 == 1 and 2 * aligned - features <= _MOST_UNPAIRED
        self.pair_offset = aligned if is_aligned else features // 2

    def forward(self, positions: Tensor) -> Rotary:
        if self.axes > 1 and positions.shape[-1] != self.axes:
            raise ValueError(f"positions must have shape [..., T, {self.axes}], got {tuple(positions.shape)}")
        dtype = torch.promote_types(positions.dtype, torch.float32)
        places = (positions.unsqueeze(-1) if self.axes == 1 else positions).to(dtype)
        turning = _pairs(self.pair_offset, self.features) // self.axes
        steps = torch.arange(turning, device=positions.device, dtype=dtype) / max(turning, 1)
        angles = (places.unsqueeze(-1) * self.base**-steps).flatten(-2)
        angles = torch.nn.functional.pad(angles, (0, self.pair_offset - angles.shape[-1]))
        return stored(angles.cos()), stored(angles.sin())

    def extra_repr(self) -> str:
        return f"{self.features}, base={self.base:g}, axes={self.axes}"


def tables_fit(half: int, features: int) -> bool:
    """Return whether tables with ``half`` columns turn points with ``features`` coordinates.

    Example:
        >>> tables_fit(30, 61), tables_fit(32, 61), tables_fit(32, 60)
        (True, True, False)
    """
    return half <= features and 2 * half - features <= _MOST_UNPAIRED


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x [..., T, n] with coordinates i and i + half turned, for tables [..., T, half]; see :data:`Rotary`.

    It is computed in float32 or wider.

    Example:
        >>> apply_rotary(torch.tensor([[1.0, 0.0, 5.0]]), torch.zeros(1, 1), torch.ones(1, 1))
        tensor([[0., 1., 5.]])
    """
    half, n = cos.shape[-1], x.shape[-1]
    if not tables_fit(half, n):
        raise ValueError(
            f"these rotary positions have tables of {half} columns, but a head of {n} coordinates has at most "
            f"{min(n, (n + _MOST_UNPAIRED) // 2)}; build RotaryPositions with the query_features of the attention"
        )
    wide = x.to(torch.promote_types(x.dtype, cos.dtype))
    pairs = _pairs(half, n)
    cos, sin = cos[..., :pairs], sin[..., :pairs]
    first, unpaired, second, rest = wide.split([pairs, half - pairs, pairs, n - half - pairs], dim=-1)
    return torch.cat([first * cos - second * sin, unpaired, first * sin + second * cos, rest], dim=-1)


def _pairs(half: int, features: int) -> int:
    """Return the number of pairs that turn."""
    return min(half, features - half)
