r"""Sixty-four residual connections, one on top of the other, forward and backward: what depth costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lresnet.functional import lorentz_residual
from lresnet.kernels import disabled, is_available
from lresnet_paper.bench.clock import Clock, Task
from lresnet_paper.bench.contenders import Compiled, why_not_compiled
from lresnet_paper.bench.entry import Entry, admit, lacking_memory
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.replay import replayed
from lresnet_paper.bench.rounds import Batch, interleave, ratios, spread
from lresnet_paper.bench.sizes import Size

__all__ = ["DEPTH", "measure_stack"]

DEPTH = 64

Function = Callable[[Tensor, Tensor, Tensor], Tensor]

# Of each level: y, and for each of four contenders the activation and a gradient, kept where they are recorded.
_HELD_PER_LEVEL = 10
_PART = "forward + backward"


def measure_stack(
    size: Size, device: torch.device, clock: Clock, *, rounds: int, compiled: Compiled = "auto", depth: int = DEPTH
) -> list[Measurement]:
    r""":math:`x_{k+1} = x_k \oplus_{w_k} y_k`, k < depth, and the gradients of x_0, all y_k and all w_k.

    Each level is compiled by itself, as in a network, where a layer stands between two of them.
    """
    cell, lacking = f"{size} x {depth}", lacking_memory(_HELD_PER_LEVEL * depth * size.bytes, device)
    functions = {form: lacking or function for form, function in _functions(device, compiled).items()}
    leaves = [] if lacking else [_points(size, device).requires_grad_() for _ in range(depth + 1)]
    found: dict[str, Entry | str] = {}
    for form, function in functions.items():
        found[form] = function if isinstance(function, str) else admit(_entry, function, leaves, device)
    entries = {form: entry for form, entry in found.items() if isinstance(entry, Entry)}
    seconds = interleave({form: entry.batches for form, entry in entries.items()}, clock, rounds)
    measured = []
    for form, entry in found.items():
        method = "euclidean" if form == "x + y" else "lorentz"
        if isinstance(entry, str):
            measured.append(Measurement("stack", cell, method, form, _PART, missing=entry))
            continue
        faster = {other: ratios(seconds[other], seconds[form]).median for other in seconds if other != form}
        facts = {"clock": clock.name, "replayed": entry.replayed, "dtype": "float32", "curvature": -1.0}
        spent = spread(seconds[form])
        measured.append(Measurement("stack", cell, method, form, _PART, spent, faster_than=faster, facts=facts))
    return measured


def _functions(device: torch.device, compiled: Compiled) -> dict[str, Function | str]:
    """The ways to compute one level, or why there is none."""
    available, uncompiled = is_available(device), why_not_compiled(device, compiled)
    return {
        "x + y": lambda x, y, w: x + y,
        "kernels": lorentz_residual if available else available.reason,
        "reference": _by_formulas(lorentz_residual),
        "reference compiled": uncompiled or _by_formulas(torch.compile(lorentz_residual, dynamic=False)),
    }


def _by_formulas(function: Function) -> Function:
    def call(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        with disabled():
            return function(x, y, w)

    return call


def _entry(function: Function, leaves: Sequence[Tensor], device: torch.device) -> Entry:
    weights = [torch.ones((), device=device, requires_grad=True) for _ in leaves[1:]]
    task = _task(function, leaves, weights, torch.randn_like(leaves[0]))
    task()
    if device.type == "cuda":
        torch.cuda.synchronize()
        return Entry([Batch(replayed(task))], True)
    return Entry([Batch(task)], False)


def _task(function: Function, leaves: Sequence[Tensor], weights: Sequence[Tensor], g: Tensor) -> Task:
    def task() -> None:
        z = leaves[0]
        for y, w in zip(leaves[1:], weights, strict=True):
            z = function(z, y, w)
        torch.autograd.grad(z, [*leaves, *weights], g, allow_unused=True)  # x + y has no use for the weights

    return task


def _points(size: Size, device: torch.device) -> Tensor:
    return torch.randn(size.points, size.dimension, device=device)
