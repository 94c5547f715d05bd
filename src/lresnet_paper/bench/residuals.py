"""One residual connection: every way to compute it, forward and backward, against the bytes that must move."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from lresnet.residual.registry import METHODS
from lresnet_paper.bench.clock import Clock, Task
from lresnet_paper.bench.contenders import Contender, Function
from lresnet_paper.bench.entry import Entry, admit, lacking_memory
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.replay import replayed
from lresnet_paper.bench.rounds import Batch, interleave, ratios, spread
from lresnet_paper.bench.sizes import PointSet, Size, point_sets

__all__ = ["PARTS", "PASSES", "measure_residuals"]

PARTS = ("forward", "forward + backward")

# Forward: read x and y, write z. Backward: read x, y and the gradient, write two gradients.
PASSES = {"forward": 3, "forward + backward": 8, "backward": 5}

# x + y: its gradient goes on to both sides as it is, and nothing moves.
_FLAT = tuple(method.name for method in METHODS.values() if not method.curved)

# Tensors of the size of x that the hungriest way, a textbook form, holds at once.
_HELD = {"forward": 12, "forward + backward": 30}
_TRAFFIC = 8e9  # bytes moved by what is timed at once on a GPU: milliseconds, where a launch takes microseconds
_LAUNCH_BOUND = 2**28  # below so many bytes a tensor, launching a kernel may take longer than the kernel

Kept = deque[Tensor]
Key = tuple[str, str]  # a contender's name, and a part


def measure_residuals(
    size: Size,
    field: Sequence[Contender],
    device: torch.device,
    clock: Clock,
    *,
    rounds: int,
    copy_rate: float,
    parts: Sequence[str] = PARTS,
) -> list[Measurement]:
    """Time all contenders of ``field`` in turn; the backward pass is the difference of the two, round by round.

    Args:
        copy_rate: bytes per second, see :func:`~lresnet_paper.bench.copy_rate.copy_rate`.
    """
    lacking = {part: lacking_memory(_HELD[part] * size.bytes, device) for part in parts}
    sets = [] if all(lacking.values()) else point_sets(size, device)
    # One call after the other would write its result to the same memory, on a CPU in its cache: some are kept a while.
    kept = deque[Tensor](maxlen=len(sets) if device.type == "cpu" else 0)
    found: dict[Key, Entry | str] = {}
    for contender in field:
        for part in parts:
            reason = contender.missing or lacking[part]
            found[contender.name, part] = reason or admit(_entry, contender, sets, kept, part, size, device)
    entries = {key: entry for key, entry in found.items() if isinstance(entry, Entry)}
    times = interleave({str(key): entry.batches for key, entry in entries.items()}, clock, rounds)
    seconds = {key: times[str(key)] for key in entries}
    seconds |= _backward(seconds)
    facts = {"clock": clock.name, "sets": len(sets), "dtype": "float32", "curvature": -1.0}
    measured = []
    for part in dict.fromkeys([*parts, "backward"]):
        for contender in field:
            key = contender.name, part
            case = "residual", str(size), contender.method, contender.form, part
            if key in seconds:
                spent = spread(seconds[key])
                entry = entries[contender.name, "forward" if part == "backward" else part]
                rates = _rates(_passes(contender, part) * size.bytes, spent.median, copy_rate)
                faster = _faster_than(contender, part, seconds, field)
                measured.append(Measurement(*case, spent, rates, faster, facts | {"replayed": entry.replayed}))
            elif isinstance(why := found.get(key), str):
                measured.append(Measurement(*case, missing=why))
    return measured


def _entry(
    contender: Contender, sets: Sequence[PointSet], kept: Kept, part: str, size: Size, device: torch.device
) -> Entry:
    function = contender.function
    assert function is not None
    if device.type != "cuda":
        batches = [Batch(_task(function, [one], kept, part, 1)) for one in sets]
        batches[0].task()  # compiles
        return Entry(batches, False)
    repeats = max(1, round(_TRAFFIC / (PASSES[part] * size.bytes * len(sets))))
    task, count = _task(function, sets, kept, part, repeats), repeats * len(sets)
    task()
    torch.cuda.synchronize()
    if size.bytes < _LAUNCH_BOUND and contender.recordable:
        try:
            return Entry([Batch(replayed(task), count)], True)
        except RuntimeError:  # it waits for the GPU and cannot be recorded: timed as it is
            torch.cuda.synchronize()
    return Entry([Batch(task, count)], False)


def _task(function: Function, sets: Sequence[PointSet], kept: Kept, part: str, repeats: int) -> Task:
    """All sets forward, then all sets backward: with several sets, the forward's data have left the cache by then."""

    @torch.no_grad()
    def forward() -> None:
        for _ in range(repeats):
            results = [function(one.x, one.y) for one in sets]
            kept.extend(results)

    def both() -> None:
        for _ in range(repeats):
            results = [function(one.x, one.y) for one in sets]
            for one, z in zip(sets, results, strict=True):
                kept.extend(torch.autograd.grad(z, (one.x, one.y), one.g))

    return forward if part == "forward" else both


def _backward(seconds: dict[Key, list[float]]) -> dict[Key, list[float]]:
    """Forward + backward minus forward; where the backward pass moves nothing, there is none."""
    found = {}
    for name, part in seconds:
        both = seconds.get((name, "forward + backward"))
        if part == "forward" and both is not None and not name.startswith(_FLAT):
            found[name, "backward"] = [b - f for f, b in zip(seconds[name, part], both, strict=True)]
    return found


def _passes(contender: Contender, part: str) -> int:
    return PASSES["forward" if contender.method in _FLAT else part]


def _rates(moved: float, seconds: float, copy_rate: float) -> dict[str, float]:
    if seconds <= 0:  # a difference of two times too short to tell apart
        return {}
    return {"gigabytes_per_second": moved / seconds / 1e9, "share_of_copy_rate": moved / seconds / copy_rate}


def _faster_than(
    contender: Contender, part: str, seconds: dict[Key, list[float]], field: Sequence[Contender]
) -> dict[str, float]:
    """Against x + y, the other forms of the same method, and the textbook's parallel transport."""
    others = {c.form: c.name for c in field if c.form == "x + y" or c.method == contender.method}
    others |= {c.name: c.name for c in field if c.method == "parallel_transport" and c.form.startswith("textbook")}
    own = seconds[contender.name, part]
    found = {}
    for label, name in others.items():
        theirs = seconds.get((name, part))
        if theirs is not None and name != contender.name and min(own) > 0:
            found[label] = ratios(theirs, own).median
    return found
