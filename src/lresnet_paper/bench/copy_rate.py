"""How fast this device moves memory: the rate that the residuals are held against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from lresnet_paper.bench.clock import Clock
from lresnet_paper.bench.rounds import Batch, interleave

__all__ = ["CopyRate", "copy_rate"]

_BYTES = {"cuda": (2**30, 2**31, 2**32), "cpu": (2**27,)}


class CopyRate(NamedTuple):
    """The best rate found, and all that were."""

    bytes_per_second: float
    tried: dict[str, float]
    """Bytes per second of each way and size; the median over rounds."""


def copy_rate(device: torch.device, clock: Clock, rounds: int = 9, sizes: Sequence[int] | None = None) -> CopyRate:
    """Bytes read and written per second by the fastest simple copy.

    On a GPU ``b.copy_(a)`` is the driver's copy engine, which need not be the fastest way; an elementwise kernel that
    reads a and writes -a moves the same bytes. The better of both over all sizes is the rate.

    Args:
        sizes: bytes moved by one copy, read and written; None: 1, 2 and 4 GiB on CUDA, 128 MiB on a CPU.
    """
    tried: dict[str, float] = {}
    for moved in sizes or _BYTES.get(device.type, _BYTES["cpu"]):
        a = torch.ones(moved // 8, device=device)
        b = torch.empty_like(a)
        ways = {"copy_": [Batch(lambda a=a, b=b: b.copy_(a))], "-x": [Batch(lambda a=a, b=b: torch.neg(a, out=b))]}  # type: ignore[misc]
        for way, seconds in interleave(ways, clock, rounds).items():
            tried[f"{way}, {moved / 2**30:g} GiB"] = 8 * a.numel() / sorted(seconds)[rounds // 2]
    return CopyRate(max(tried.values()), tried)
