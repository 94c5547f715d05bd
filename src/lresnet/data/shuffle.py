"""The first entries of a list shuffled by NumPy's old generator, without the list.

The published link splits shuffle the list of all pairs without an edge (194 million for PubMed) and use the first few
thousand. The shuffle goes through the places i = n - 1, ..., 1 and swaps i with a random place j <= i. Which entries
end up in front is found by going through the same swaps backwards, with nothing but the places of these few in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["front_of_shuffle"]

_DRAWS = 2**16  # random numbers looked at together: they fit the cache
_MARKS = 2**20  # size of the table that says which places are surely not tracked


def front_of_shuffle(rng: np.random.RandomState, n: int, k: int) -> NDArray[np.int64]:
    """The first ``k`` entries of ``np.arange(n)`` after ``rng.shuffle``, bit for bit.

    Args:
        rng: NumPy's old generator; it is left somewhere behind the shuffle.
        n: length of the list, at most 2^32.
        k: at most n.

    Returns:
        ``[k]``. It takes about 30 ns per entry of the list and memory for k.

    Example:
        >>> front_of_shuffle(np.random.RandomState(0), 10, 3)
        array([2, 8, 4])
    """
    if n > 2**32:
        raise ValueError(f"a list of {n:,} entries is beyond the 2^32 this shuffle can be traced through")
    chunks = list(_chunk_starts(rng, n))
    slot_of = {place: place for place in range(k)}  # a tracked place, and which slot of the front its entry reaches
    maybe_tracked = np.zeros(_MARKS, dtype=np.bool_)
    maybe_tracked[:k] = True
    last_swaps: list[tuple[int, int]] = []  # those inside the front, i < k
    for high, state in reversed(chunks):
        rng.set_state(state)
        partners = _partners(rng, high)[::-1]  # backwards in time is upwards in i
        low = high - partners.size + 1
        # Only places that are tracked already, or become so within this chunk, matter.
        for step in np.flatnonzero(maybe_tracked[partners % _MARKS] | (partners >= low)).tolist():
            i, j = low + step, int(partners[step])
            if i < k:
                last_swaps.append((i, j))
            elif j < i and j in slot_of:
                slot_of[i] = slot_of.pop(j)
                maybe_tracked[i % _MARKS] = True
    front = np.empty(k, dtype=np.int64)
    for place, slot in slot_of.items():
        front[slot] = place
    for i, j in reversed(last_swaps):
        front[i], front[j] = front[j], front[i]
    return front


def _chunk_starts(rng: np.random.RandomState, n: int) -> Iterator[tuple[int, Any]]:
    """The place i and the generator's state at the beginning of each chunk of draws."""
    high = n - 1
    while high > 0:
        yield high, rng.get_state()
        high -= _partners(rng, high).size


def _partners(rng: np.random.RandomState, high: int) -> NDArray[np.int64]:
    """The places that i = ``high``, ``high`` - 1, ... are swapped with, as far as one chunk of draws goes.

    A draw is cut to the bits of i and thrown away when it exceeds i, as NumPy does.
    """
    draws = rng.randint(0, 2**32, size=_DRAWS, dtype=np.uint32)
    found: list[NDArray[np.uint32]] = []
    start = 0
    while high > 0 and start < draws.size:
        mask = (1 << high.bit_length()) - 1
        values = draws[start:] & np.uint32(mask)
        same_mask = high - (mask >> 1)  # so many i have this mask
        taken = np.flatnonzero(_taken(values, high))[:same_mask]
        found.append(values[taken])
        start = start + int(taken[-1]) + 1 if taken.size == same_mask else draws.size
        high -= taken.size
    return np.concatenate(found).astype(np.int64)


def _taken(values: NDArray[np.uint32], high: int) -> NDArray[np.bool_]:
    """Which ``values`` do not exceed i, where i is ``high`` less the number of those taken before."""
    taken = values.astype(np.int64) <= high - values.size
    doubtful = np.flatnonzero(~taken & (values <= high))
    if doubtful.size == 0:
        return taken
    room = high - np.cumsum(taken, dtype=np.int32)[doubtful] - values[doubtful].astype(np.int64)
    fits = room >= 0
    # Whether one fits depends on those before it: each round is right at least one further from the front.
    while not np.array_equal(again := room >= np.cumsum(fits) - fits, fits):
        fits = again
    taken[doubtful] = fits
    return taken
