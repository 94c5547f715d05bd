"""One residual connection and a stack of 64: every implementation, forward and backward, against the bytes to move."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Literal, NamedTuple, ParamSpec

import torch
from torch import Tensor

from lresnet import functional
from lresnet.functional import lorentz_residual
from lresnet.geometry import Lorentz
from lresnet.kernels import disabled, is_available
from lresnet.residual import registry
from lresnet_paper.bench.measurement import ADDITIONS, Measurement
from lresnet_paper.bench.memory import lacking_memory
from lresnet_paper.bench.timing import (
    Batch,
    Candidate,
    Clock,
    SyncTimes,
    Task,
    as_cuda_graph,
    interleave,
    ratios,
    spread,
    sync_times,
    try_prepare,
)

__all__ = [
    "DEPTH",
    "FORMS",
    "METHODS",
    "PAPER_SIZES",
    "PARTS",
    "PASSES",
    "Compiled",
    "Form",
    "Implementation",
    "PointSet",
    "Size",
    "implementations",
    "measure_residuals",
    "measure_stack",
    "measure_without_sync",
    "parse_size",
    "point_sets",
    "why_not_compiled",
]

P = ParamSpec("P")
Function = Callable[[Tensor, Tensor], Tensor]
LevelFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
Form = Literal["kernels", "reference", "reference compiled", "textbook", "textbook compiled", "geoopt"]
Compiled = Literal["auto", "yes", "no"]

FORMS: tuple[Form, ...] = ("kernels", "reference", "reference compiled", "textbook", "textbook compiled", "geoopt")
PAPER_SIZES = ("2048/10000", "4096/100000")
PARTS = ("forward", "forward + backward")
PASSES = {"forward": 3, "forward + backward": 8, "backward": 5}
"""Passes over memory. Forward: read x and y, write z. Backward: read x, y and the gradient, write two gradients."""
DEPTH = 64

_METHODS = [method for method in registry.METHODS.values() if method.function and method.textbook_function]
_REFERENCE: dict[str, Callable[..., Tensor]] = {m.name: resolve_name(m.function) for m in _METHODS if m.function}
_TEXTBOOK: dict[str, Callable[..., Tensor]] = {
    m.name: resolve_name(m.textbook_function) for m in _METHODS if m.textbook_function
}
METHODS = ("euclidean", "space", *_REFERENCE)

# Methods that compute x + y. Its backward pass moves no data: both gradients are the incoming one.
_SUMS = tuple(method.name for method in registry.METHODS.values() if not method.curved)

# Number of tensors of the size of x that the textbook forms, which need the most memory, hold at once.
_HELD = {"forward": 12, "forward + backward": 30}
# The same for one level of a stack: y, and an activation and a gradient for each of four implementations.
_HELD_PER_LEVEL = 10

_CPU_CACHE = 2**26  # a share of a server's last-level cache; there is no portable way to read a CPU's cache size
_MOST_SETS = 256
_SEED = 0
_TRAFFIC = 8e9  # bytes moved by one timed task on a GPU: it takes milliseconds, and a launch takes microseconds
_LAUNCH_BOUND = 2**28  # below this number of bytes per tensor, a launch may take longer than the kernel

_FORMS_WITHOUT_SYNC = ("x + y", "kernels", "textbook")
_STACK_PART = "forward + backward"

Kept = deque[Tensor]
Key = tuple[str, str]  # name of an implementation, part


# --- sizes and points -------------------------------------------------------------------------------------------------


class Size(NamedTuple):
    """``points`` points with ``dimension`` coordinates in float32."""

    dimension: int
    points: int

    def __str__(self) -> str:
        return f"{self.dimension}/{self.points}"

    @property
    def bytes(self) -> int:
        """Bytes of one tensor: the traffic of one pass over memory."""
        return 4 * self.dimension * self.points


def parse_size(text: str) -> Size:
    """Parse ``DIMENSION/POINTS``.

    Raises:
        ValueError: ``text`` is not of that form.

    Example:
        >>> parse_size("2048/10000")
        Size(dimension=2048, points=10000)
    """
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"a size is DIMENSION/POINTS, two positive integers such as 2048/10000; got {text!r}")
    return Size(*map(int, parts))


class PointSet(NamedTuple):
    """Two tensors of points [points, dimension] that require gradients, and a gradient of their residual."""

    x: Tensor
    y: Tensor
    g: Tensor


def point_sets(size: Size, device: torch.device) -> list[PointSet]:
    """Return random points, in enough sets to exceed four times the cache, so that no set is still in it on reuse.

    There are at most 256 sets: points as few as that fit into the cache in a network, too. Coordinates have standard
    deviation 1, as after a batch norm, so that the points are about sqrt(dimension) from the origin.
    """
    generator = torch.Generator(device).manual_seed(_SEED)
    count = min(_MOST_SETS, max(1, math.ceil(4 * _cache_bytes(device) / (2 * size.bytes))))

    def points() -> Tensor:
        return torch.randn(size.points, size.dimension, device=device, generator=generator)

    return [PointSet(points().requires_grad_(), points().requires_grad_(), points()) for _ in range(count)]


def _cache_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    return _CPU_CACHE


# --- implementations --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Implementation:
    """A method in one form, or the reason why it is not available here."""

    method: str
    form: str
    function: Function | None
    missing: str = ""

    @property
    def name(self) -> str:
        return f"{self.method}, {self.form}"

    @property
    def capturable(self) -> bool:
        """Whether it may become a CUDA graph. geoopt's functions are TorchScript, which compiles itself as it runs."""
        return self.form != "geoopt"


def implementations(device: torch.device, compiled: Compiled = "auto") -> list[Implementation]:
    """Return all implementations for curvature -1 and weight 1 on ``device``, ``x + y`` first.

    Args:
        device: where they run.
        compiled: whether to include torch.compile; "auto": on CUDA only.

    Example:
        >>> [c.name for c in implementations(torch.device("cpu")) if c.method == "tangent" and c.function]
        ['tangent, reference', 'tangent, textbook', 'tangent, geoopt']
    """
    found = [
        Implementation("euclidean", "x + y", torch.add),
        Implementation("space", "reference", functional.space_residual),
    ]
    for method in _REFERENCE:
        for form in FORMS:
            function = _function(method, form, device, compiled)
            if isinstance(function, str):
                found.append(Implementation(method, form, None, missing=function))
            else:
                found.append(Implementation(method, form, function))
    return found


def why_not_compiled(device: torch.device, compiled: Compiled) -> str:
    """Return "" if torch.compile is included, else the reason why it is not."""
    if compiled == "auto" and device.type != "cuda":
        return "on a CPU only with lresnet bench residual --compiled yes, which takes one more minute"
    return "not requested" if compiled == "no" else ""


def _function(method: str, form: Form, device: torch.device, compiled: Compiled) -> Function | str:
    """Return the function, or the reason why there is none."""
    if form == "geoopt":
        return _geoopt_function(method, device)
    if form == "kernels":
        available = is_available(device)
        return _with_weight(_REFERENCE[method], method, device) if available else available.reason
    function = (_REFERENCE if form.startswith("reference") else _TEXTBOOK)[method]
    if "compiled" in form:
        if reason := why_not_compiled(device, compiled):
            return reason
        function = torch.compile(function, dynamic=False)
    return _without_kernels(_with_weight(function, method, device))


def _with_weight(function: Callable[..., Tensor], method: str, device: torch.device) -> Function:
    """Pass weight 1 as a tensor on the device, like a learned weight; a number would be copied there at every call."""
    if "weight" not in registry.METHODS[method].options:
        return function
    weight = torch.ones((), device=device)
    return lambda x, y: function(x, y, weight)


def _without_kernels(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    def call(*args: P.args, **options: P.kwargs) -> Tensor:
        with disabled():
            return function(*args, **options)

    return call


def _geoopt_function(method: str, device: torch.device) -> Function | str:
    """Return what a user of geoopt would write with time-first vectors, including lifting and dropping."""
    M = Lorentz(-1.0)
    G = M.to_geoopt().float().to(device)

    def parallel_transport(x: Tensor, y: Tensor) -> Tensor:
        p, q = M.lift(x), M.lift(y)
        return G.expmap(p, G.transp0(p, G.logmap0(q)))[..., 1:]  # type: ignore[no-any-return]

    def tangent(x: Tensor, y: Tensor) -> Tensor:
        return G.expmap0(G.logmap0(M.lift(x)) + G.logmap0(M.lift(y)))[..., 1:]  # type: ignore[no-any-return]

    found = {"parallel_transport": parallel_transport, "tangent": tangent}
    return found.get(method, "geoopt has no such operation")


# --- one residual -----------------------------------------------------------------------------------------------------


def measure_residuals(
    size: Size,
    field: Sequence[Implementation],
    device: torch.device,
    clock: Clock,
    *,
    rounds: int,
    copy_rate: float,
    parts: Sequence[str] = PARTS,
) -> list[Measurement]:
    """Time all implementations in interleaved rounds.

    The time of the backward pass is forward + backward minus forward, round by round.

    Args:
        size: of the points.
        field: the implementations.
        device: where they run.
        clock: times one task.
        rounds: the number of measured rounds.
        copy_rate: bytes per second, from :func:`~lresnet_paper.bench.timing.copy_rate`.
        parts: the passes to measure.
    """
    lacking = {part: lacking_memory(_HELD[part] * size.bytes, device) for part in parts}
    sets = [] if all(lacking.values()) else point_sets(size, device)
    # Consecutive calls would write their results to the same memory, which a CPU keeps in its cache. Holding some of
    # the results prevents this.
    kept = deque[Tensor](maxlen=len(sets) if device.type == "cpu" else 0)
    found: dict[Key, Candidate | str] = {}
    for one in field:
        for part in parts:
            reason = one.missing or lacking[part]
            found[one.name, part] = reason or try_prepare(_candidate, one, sets, kept, part, size, device)
    candidates = {key: candidate for key, candidate in found.items() if isinstance(candidate, Candidate)}
    times = interleave({str(key): candidate.batches for key, candidate in candidates.items()}, clock, rounds)
    seconds = {key: times[str(key)] for key in candidates}
    seconds |= _backward_seconds(seconds)
    facts = {"clock": clock.name, "sets": len(sets), "dtype": "float32", "curvature": -1.0}
    measured = []
    for part in dict.fromkeys([*parts, "backward"]):
        for one in field:
            key = one.name, part
            case = "residual", str(size), one.method, one.form, part
            if key in seconds:
                spent = spread(seconds[key])
                candidate = candidates[one.name, "forward" if part == "backward" else part]
                rates = _rates(_passes(one, part) * size.bytes, spent.median, copy_rate)
                faster = _faster_than(one, part, seconds, field)
                measured.append(Measurement(*case, spent, rates, faster, facts | {"replayed": candidate.replayed}))
            elif isinstance(why := found.get(key), str):
                measured.append(Measurement(*case, missing=why))
    return measured


def _candidate(
    implementation: Implementation, sets: Sequence[PointSet], kept: Kept, part: str, size: Size, device: torch.device
) -> Candidate:
    function = implementation.function
    assert function is not None
    if device.type != "cuda":
        batches = [Batch(_task(function, [one], kept, part, 1)) for one in sets]
        batches[0].task()  # compiles
        return Candidate(batches, False)
    repeats = max(1, round(_TRAFFIC / (PASSES[part] * size.bytes * len(sets))))
    task, count = _task(function, sets, kept, part, repeats), repeats * len(sets)
    task()
    torch.cuda.synchronize()
    if size.bytes < _LAUNCH_BOUND and implementation.capturable:
        try:
            return Candidate([Batch(as_cuda_graph(task), count)], True)
        except RuntimeError:  # it synchronises with the GPU and cannot be captured: timed without a graph
            torch.cuda.synchronize()
    return Candidate([Batch(task, count)], False)


def _task(function: Function, sets: Sequence[PointSet], kept: Kept, part: str, repeats: int) -> Task:
    """All sets forward, then all sets backward: with several sets, the forward's data are not in the cache by then."""

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


def _backward_seconds(seconds: dict[Key, list[float]]) -> dict[Key, list[float]]:
    """Return forward + backward minus forward, for the methods whose backward pass moves data."""
    found = {}
    for name, part in seconds:
        both = seconds.get((name, "forward + backward"))
        if part == "forward" and both is not None and not name.startswith(_SUMS):
            found[name, "backward"] = [b - f for f, b in zip(seconds[name, part], both, strict=True)]
    return found


def _passes(implementation: Implementation, part: str) -> int:
    return PASSES["forward" if implementation.method in _SUMS else part]


def _rates(moved: float, seconds: float, copy_rate: float) -> dict[str, float]:
    if seconds <= 0:  # the difference of two times that are too short to tell apart
        return {}
    return {"gigabytes_per_second": moved / seconds / 1e9, "share_of_copy_rate": moved / seconds / copy_rate}


def _faster_than(
    implementation: Implementation, part: str, seconds: dict[Key, list[float]], field: Sequence[Implementation]
) -> dict[str, float]:
    """Compare with x + y, the other forms of the same method, and the textbook's parallel transport."""
    others = {c.form: c.name for c in field if c.form == "x + y" or c.method == implementation.method}
    others |= {c.name: c.name for c in field if c.method == "parallel_transport" and c.form.startswith("textbook")}
    own = seconds[implementation.name, part]
    found = {}
    for label, name in others.items():
        theirs = seconds.get((name, part))
        if theirs is not None and name != implementation.name and min(own) > 0:
            found[label] = ratios(theirs, own).median
    return found


def measure_without_sync(
    size: Size, field: Sequence[Implementation], device: torch.device, *, rounds: int, additions: int = ADDITIONS
) -> list[Measurement]:
    """Time 100 additions without and with GPU synchronisation: until the loop returns, and until its work is done.

    On a CPU both times are the same, and nothing is measured.
    """
    if device.type != "cuda":
        return []
    one = point_sets(size, device)[0]
    measured = []
    for implementation in field:
        function = implementation.function
        if function is None or implementation.form not in _FORMS_WITHOUT_SYNC:
            continue
        times = [_loop_times(function, one.x.detach(), one.y.detach(), additions) for _ in range(rounds + 1)][1:]
        moved = additions * PASSES["forward"] * size.bytes
        returned, finished = spread([t.returned for t in times]), spread([t.finished for t in times])
        figures = {
            "true_seconds": finished.median,
            "gigabytes": moved / 1e9,
            "implied_gigabytes_per_second": moved / returned.median / 1e9,
            "true_gigabytes_per_second": moved / finished.median / 1e9,
        }
        facts = {"additions": additions, "clock": "wall clock, not synchronised", "dtype": "float32"}
        case = "clock", str(size), implementation.method, implementation.form, "forward"
        measured.append(Measurement(*case, returned, figures, facts=facts))
    return measured


@torch.no_grad()
def _loop_times(function: Function, x: Tensor, y: Tensor, additions: int) -> SyncTimes:
    def task() -> None:
        for _ in range(additions):
            function(x, y)

    return sync_times(task, torch.cuda.synchronize)


# --- a stack of residuals ---------------------------------------------------------------------------------------------


def measure_stack(
    size: Size, device: torch.device, clock: Clock, *, rounds: int, compiled: Compiled = "auto", depth: int = DEPTH
) -> list[Measurement]:
    r"""Time :math:`x_{k+1} = x_k \oplus_{w_k} y_k`, k < depth, with the gradients of x_0, all y_k and all w_k.

    Each level is compiled separately, as in a network, where a layer stands between two levels.
    """
    cell, lacking = f"{size} x {depth}", lacking_memory(_HELD_PER_LEVEL * depth * size.bytes, device)
    functions = {form: lacking or function for form, function in _level_functions(device, compiled).items()}
    leaves = [] if lacking else [_random_points(size, device).requires_grad_() for _ in range(depth + 1)]
    found: dict[str, Candidate | str] = {}
    for form, function in functions.items():
        found[form] = function if isinstance(function, str) else try_prepare(_stack_candidate, function, leaves, device)
    candidates = {form: candidate for form, candidate in found.items() if isinstance(candidate, Candidate)}
    seconds = interleave({form: candidate.batches for form, candidate in candidates.items()}, clock, rounds)
    measured = []
    for form, candidate in found.items():
        method = "euclidean" if form == "x + y" else "lorentz"
        if isinstance(candidate, str):
            measured.append(Measurement("stack", cell, method, form, _STACK_PART, missing=candidate))
            continue
        faster = {other: ratios(seconds[other], seconds[form]).median for other in seconds if other != form}
        facts = {"clock": clock.name, "replayed": candidate.replayed, "dtype": "float32", "curvature": -1.0}
        spent = spread(seconds[form])
        measured.append(Measurement("stack", cell, method, form, _STACK_PART, spent, faster_than=faster, facts=facts))
    return measured


def _level_functions(device: torch.device, compiled: Compiled) -> dict[str, LevelFunction | str]:
    """Return the implementations of one level, or the reason why there is none."""
    available, uncompiled = is_available(device), why_not_compiled(device, compiled)
    return {
        "x + y": lambda x, y, w: x + y,
        "kernels": lorentz_residual if available else available.reason,
        "reference": _without_kernels(lorentz_residual),
        "reference compiled": uncompiled or _without_kernels(torch.compile(lorentz_residual, dynamic=False)),
    }


def _stack_candidate(function: LevelFunction, leaves: Sequence[Tensor], device: torch.device) -> Candidate:
    weights = [torch.ones((), device=device, requires_grad=True) for _ in leaves[1:]]
    task = _stack_task(function, leaves, weights, torch.randn_like(leaves[0]))
    task()
    if device.type == "cuda":
        torch.cuda.synchronize()
        return Candidate([Batch(as_cuda_graph(task))], True)
    return Candidate([Batch(task)], False)


def _stack_task(function: LevelFunction, leaves: Sequence[Tensor], weights: Sequence[Tensor], g: Tensor) -> Task:
    def task() -> None:
        z = leaves[0]
        for y, w in zip(leaves[1:], weights, strict=True):
            z = function(z, y, w)
        torch.autograd.grad(z, [*leaves, *weights], g, allow_unused=True)  # x + y does not use the weights

    return task


def _random_points(size: Size, device: torch.device) -> Tensor:
    return torch.randn(size.points, size.dimension, device=device)
