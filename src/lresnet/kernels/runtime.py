"""Runtime of the kernels: whether they run, for which tensors, how they are launched and differentiated.

A kernel that meets the tensors of a trace (``FakeTensor``) is compiled in the background instead of run. Tracing a
network takes seconds, and Triton needs about a third of a second for each of the forty kernels of a ResNet. A traced
operator has all the information that Triton needs, so the kernels compile on other cores while tracing continues.

An operator that is :func:`inlined` is different: torch.compile sees its kernels, compiles them with its own ones and
launches them from the code that it generates. Python's dispatch of an operator and its launch cost ten times as much.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from lresnet.geometry.checks import traced, transformed
from lresnet.geometry.curvature import Curvature
from lresnet.kernels.tiles import LONGEST_ROW

if TYPE_CHECKING:
    from torch._library.custom_ops import CustomOpDef

_functional: Any = None
_kernels_of_operators: dict[str, list[Any]] = {}
with contextlib.suppress(ImportError):  # private to torch 2.11 to 2.13; without them, operators are not inlined
    from torch._library.triton import triton_ops_to_kernels as _kernels_of_operators
    from torch._subclasses import functional_tensor as _functional

__all__ = [
    "Availability",
    "apply_kernel",
    "compile_ahead",
    "disabled",
    "enabled",
    "inlined",
    "is_available",
    "is_eager",
    "launch",
    "supports_pair",
    "supports_rows",
    "switched_off",
]

_logger = logging.getLogger(__name__)


# --- Availability -----------------------------------------------------------------------------------------------------

_allowed: ContextVar[bool | None] = ContextVar("lresnet_kernels", default=None)
_OFF = ("off", "0", "false")


class Availability(NamedTuple):
    """Whether the kernels are available, with the reason."""

    available: bool
    reason: str

    def __bool__(self) -> bool:
        return self.available


def is_available(device: str | torch.device = "cuda") -> Availability:
    """Return whether the kernels run for tensors on ``device`` at this point, and the reason.

    Example:
        >>> with disabled():
        ...     bool(is_available())
        False
    """
    kind, allowed = torch.device(device).type, _allowed.get()
    if allowed is False:
        return Availability(False, "switched off by lresnet.kernels.disabled()")
    if switched_off():
        return Availability(False, "switched off by LRESNET_KERNELS in the environment")
    if not _triton_is_installed():
        return Availability(False, "triton is not installed; pip install triton")
    if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y"):
        if allowed:
            return Availability(True, "interpreted (TRITON_INTERPRET=1)")
        return Availability(False, "TRITON_INTERPRET=1 is for tests: only within lresnet.kernels.enabled()")
    if kind != "cuda":
        return Availability(False, f"the kernels are written for CUDA devices, not for {kind!r}")
    if not torch.cuda.is_available():
        return Availability(False, "no CUDA device is visible")
    return Availability(True, "triton on CUDA")


def switched_off() -> bool:
    """Return whether :func:`disabled` or the environment switches the kernels off, on every device."""
    allowed = _allowed.get()
    return allowed is False or (allowed is None and os.environ.get("LRESNET_KERNELS", "").lower() in _OFF)


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Use the formulas instead of the kernels, on every device, while the context is open in this thread.

    A compiled or exported function keeps the choice that was made when it was traced. To switch the kernels off for a
    whole program, set ``LRESNET_KERNELS=off`` in the environment.

    Example:
        >>> with disabled():
        ...     pass
    """
    with _set(False):
        yield


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    """Use the kernels while the context is open, regardless of ``LRESNET_KERNELS``; on a CPU they are interpreted.

    The interpreter needs ``TRITON_INTERPRET=1`` in the environment before Triton is imported. It is slow and meant
    for tests.
    """
    with _set(True):
        yield


@contextlib.contextmanager
def _set(value: bool) -> Iterator[None]:
    token = _allowed.set(value)
    try:
        yield
    finally:
        _allowed.reset(token)


@functools.cache
def _triton_is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


# --- Supported tensors ------------------------------------------------------------------------------------------------

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def supports_pair(x: object, y: object, *scalars: object, dim: int) -> bool:
    """Return whether the kernels compute on points x and y with coordinates along ``dim``.

    They support tensors of one shape on one device, in float32 or half precision, and ``scalars`` (the curvature) of
    one number each. All other arguments go to the formulas, which also raise the errors for invalid ones. So do calls
    under torch.func transforms and in forward mode, because the formulas have rules for them.
    """
    if not (isinstance(x, Tensor) and isinstance(y, Tensor) and _available(x.device.type)):
        return False
    if x.shape != y.shape or x.device != y.device or x.dtype not in _DTYPES or y.dtype not in _DTYPES:
        return False
    if not -x.dim() <= dim < x.dim() or x.shape[dim] == 0:
        return False
    if any(isinstance(scalar, Tensor) and scalar.numel() != 1 for scalar in scalars):
        return False
    return not transformed()


def supports_rows(x: Tensor, kappa: Curvature | None) -> bool:
    """Return whether the kernels of layers and optimisers compute on the float32 rows of x [..., n].

    A learned curvature (a tensor) is not supported: those kernels have no gradient for it.
    """
    if not supports_pair(x, x, dim=-1):
        return False
    return x.dtype == torch.float32 and x.shape[-1] <= LONGEST_ROW and x.numel() > 0 and not isinstance(kappa, Tensor)


def is_eager(x: Tensor) -> bool:
    """Return whether x is a plain tensor in an eager call: no tracing, no subclass, no dispatch mode."""
    return not traced() and type(x) in (Tensor, torch.nn.Parameter) and torch._C._len_torch_dispatch_stack() == 0


def _available(device: str) -> bool:
    # The device is compared first: for ordinary CPU tensors the full check would cost as much as the computation.
    return (device == "cuda" or (device == "cpu" and _allowed.get() is True)) and is_available(device).available


# The compiler treats the value at tracing time as a constant. torch.compiler.assume_constant_result does the same, but
# imports the compiler, which takes a second.
_available._dynamo_marked_constant = True  # type: ignore[attr-defined]


# --- Launch and background compilation --------------------------------------------------------------------------------

_ALIGNED = 16  # bytes; Triton compiles separate code for addresses and integers that are not multiples of it
_PLAIN = (int, float, bool, str, type(None))

_lock = threading.Lock()
_requested: set[Any] = set()
"""Compilations requested so far: tracing visits an operator several times."""
_compiling: dict[int, list[Future[None]]] = {}
"""Compilations in progress, by the ``id`` of the kernel. Its first run waits for them instead of repeating them."""


def launch(kernel: Any, grid: Sequence[int], *arguments: Any, **options: Any) -> None:
    """Run ``kernel[grid](*arguments, **options)`` on the device of the first argument, a tensor.

    If the tensors are of a trace, add the launch to the graph (in an operator that is :func:`inlined`), or compile the
    kernel in the background.
    """
    if _only_shapes.get():
        return
    if type(arguments[0]) is FakeTensor:
        _request(kernel, tuple(grid), arguments, options)
        return
    if _functional is not None and type(arguments[0]) is _functional.FunctionalTensor:
        torch.library.wrap_triton(kernel)[tuple(grid)](*arguments, **options)
        return
    if futures := _compiling.get(id(kernel)):
        wait(futures)
        _compiling.pop(id(kernel), None)
    with torch.cuda.device_of(arguments[0]):
        kernel[grid](*arguments, **options)


def compile_ahead(launcher: Callable[..., object], x: Tensor, *arguments: Any) -> None:
    """Start compiling the kernels of ``launcher(x, *arguments)`` if x is of a trace for a GPU of this machine.

    A failure here is only logged: the kernels then compile at their first run, which reports the error.
    """
    if not _is_concrete(x):
        return
    try:
        launcher(x, *arguments)
    except Exception:
        _logger.debug("not compiled in advance: %s", launcher, exc_info=True)


def _is_concrete(x: Tensor) -> bool:
    """Return whether x is of a trace, has known sizes and belongs to a GPU of this machine."""
    sizes = all(type(size) is int and size > 0 for size in x.shape)
    if not (type(x) is FakeTensor and sizes and x.device.type == "cuda" and torch.cuda.is_available()):
        return False
    return (x.device.index or 0) < torch.cuda.device_count()


@dataclass(frozen=True)
class _Address:
    """The attributes of a tensor that Triton reads."""

    dtype: torch.dtype
    offset: int

    def data_ptr(self) -> int:
        """Return the address modulo 16; allocations start at multiples of 16."""
        return self.offset


def _request(kernel: Any, grid: tuple[int, ...], arguments: Sequence[Any], options: dict[str, Any]) -> None:
    """Queue the compilation, unless it was queued before or a number is still unknown (the stride of rows, say)."""
    given = [_address(argument) if isinstance(argument, Tensor) else argument for argument in arguments]
    if not all(type(argument) in (*_PLAIN, _Address) for argument in given):
        return
    device = arguments[0].device
    key = id(kernel), device, tuple(map(_specialisation, given)), tuple(options.items())
    with _lock:
        if key in _requested:
            return
        _requested.add(key)
        compilation = _workers().submit(_compile, kernel, device, grid, given, options)
        others = [other for other in _compiling.get(id(kernel), []) if not other.done()]
        _compiling[id(kernel)] = [*others, compilation]


def _address(tensor: Tensor) -> object:
    """Return the tensor's :class:`_Address`, or its symbolic offset if the offset is not known yet."""
    offset = tensor.storage_offset()
    return _Address(tensor.dtype, offset * tensor.itemsize % _ALIGNED) if type(offset) is int else offset


def _specialisation(argument: Any) -> Any:
    """Return the properties of an integer that Triton specialises on: 1 or not, a multiple of 16 or not, its width."""
    if type(argument) is not int:
        return argument
    return int, argument == 1, argument % _ALIGNED == 0, argument.bit_length() < 32


def _compile(
    kernel: Any, device: torch.device, grid: tuple[int, ...], arguments: Sequence[Any], options: dict[str, Any]
) -> None:
    try:
        with torch.cuda.device(device):
            kernel.warmup(*arguments, grid=grid, **options)
    except Exception:
        _logger.debug("not compiled in advance: %s", kernel, exc_info=True)


@functools.cache
def _workers() -> ThreadPoolExecutor:
    # Triton releases the GIL for most of its work; with more than about eight threads the GIL is the limit.
    cores = getattr(os, "process_cpu_count", os.cpu_count)() or 1
    pool = ThreadPoolExecutor(min(8, cores), thread_name_prefix="lresnet-kernels")
    # A program that ends early cancels the compilations that are still queued. (These hooks run in reverse order of
    # registration, before the pool is joined; an ordinary atexit hook would run after all work is done.)
    threading._register_atexit(lambda: pool.shutdown(wait=False, cancel_futures=True))  # type: ignore[attr-defined]
    return pool


def _reset_after_fork() -> None:
    """Drop the state of the parent's threads, which do not exist in a forked child."""
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    _compiling.clear()
    _requested.clear()
    _workers.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


# --- Operators that torch.compile inlines -----------------------------------------------------------------------------

_only_shapes: ContextVar[bool] = ContextVar("lresnet_only_shapes", default=False)
"""Whether an operator runs with the tensors of a trace for the shapes of its results only."""


def inlined(name: str, *kernels: Any) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """Define the decorated function as an operator that torch.compile replaces by the operations of the function.

    The function allocates its results and calls :func:`launch`; generated code then does the same. Under torch.export
    and in eager mode the operator is called. This is ``torch.library.triton_op``, which would import the compiler, for
    a second, where the operator is defined.

    Args:
        name: With its namespace.
        kernels: Those of the operator and of its derivative. Compiled graphs on disk are not used if their source has
            changed. (They are used if only the function has changed.) Generated code holds this source as a string:
            it has no backslashes, and no two functions of one name.
    """
    from triton.runtime.jit import JITFunction

    def define(function: Callable[..., Any]) -> CustomOpDef:
        operator = torch.library.custom_op(name, function, mutates_args=())
        operator.register_fake(partial(_shapes, function))
        compiled = all(isinstance(kernel, JITFunction) for kernel in kernels)  # and not interpreted
        if compiled and _functional is not None:
            operator.register_torch_dispatch(_functional.FunctionalTensorMode, partial(_inline, function))
            _kernels_of_operators[name] = list(kernels)
        return operator

    return define


def _shapes(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    token = _only_shapes.set(True)
    try:
        return function(*arguments, **keywords)
    finally:
        _only_shapes.reset(token)


def _inline(
    function: Callable[..., Any], mode: Any, operator: Any, types: Any, arguments: Any, keywords: dict[str, Any]
) -> Any:
    try:
        from torch.export._trace import custom_triton_ops_decomposition_disabled as is_exporting
    except ImportError:  # private, too
        return mode.__torch_dispatch__(operator, types, arguments, keywords)
    if is_exporting():  # it stores names of operators
        return mode.__torch_dispatch__(operator, types, arguments, keywords)
    if not all(kind is Tensor or issubclass(kind, (FakeTensor, _functional.FunctionalTensor)) for kind in types):
        return NotImplemented  # another subclass, which is unwrapped first
    with mode:
        return function(*arguments, **keywords)


# --- Differentiation --------------------------------------------------------------------------------------------------


def apply_kernel(
    forward: Callable[..., Tensor],
    backward: Callable[..., tuple[Tensor | None, ...]],
    formula: Callable[..., Tensor],
    *tensors: Tensor,
    **constants: Curvature | None,
) -> Tensor:
    """Return ``forward(*tensors, **constants)``, differentiable any number of times.

    Args:
        forward, backward: launch the kernels; ``backward(g, *tensors, **constants)`` returns one gradient per tensor.
        formula: the same function in torch operations, which second derivatives differentiate.
    """
    functions = [partial(function, **constants) for function in (forward, backward, formula)]
    result: Tensor = _KernelFunction.apply(*functions, *tensors)  # type: ignore[no-untyped-call]
    return result


class _KernelFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forward: Any, backward: Any, formula: Any, *tensors: Tensor) -> Tensor:
        ctx.kernel, ctx.formula = backward, formula
        ctx.save_for_backward(*tensors)
        result: Tensor = forward(*tensors)
        return result

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        tensors, needed = ctx.saved_tensors, ctx.needs_input_grad[3:]
        if not torch.is_grad_enabled():
            return None, None, None, *ctx.kernel(g, *tensors)
        # For a second derivative, autograd differentiates the formula on aliases of the inputs.
        aliases = [tensor.view_as(tensor) for tensor in tensors]
        wanted = [alias for alias, need in zip(aliases, needed, strict=True) if need]
        found = iter(torch.autograd.grad(ctx.formula(*aliases), wanted, g, create_graph=True))
        return None, None, None, *(next(found) if need else None for need in needed)
