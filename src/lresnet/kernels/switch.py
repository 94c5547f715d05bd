"""Whether the fused kernels run: what this machine can do, what the caller allows, which tensors they serve."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

from lresnet.geometry.checks import transformed

__all__ = ["Availability", "disabled", "enabled", "is_available", "serves"]

_allowed: ContextVar[bool | None] = ContextVar("lresnet_kernels", default=None)

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class Availability(NamedTuple):
    """True or false, with the reason."""

    available: bool
    reason: str

    def __bool__(self) -> bool:
        return self.available


def is_available(device: str | torch.device = "cuda") -> Availability:
    """Whether the fused kernels serve tensors on ``device`` here and now, and why not.

    Example:
        >>> with disabled():
        ...     bool(is_available())
        False
    """
    kind, allowed = torch.device(device).type, _allowed.get()
    if allowed is False:
        return Availability(False, "switched off by lresnet.kernels.disabled()")
    if allowed is None and os.environ.get("LRESNET_KERNELS", "").lower() in ("off", "0", "false"):
        return Availability(False, "switched off by LRESNET_KERNELS in the environment")
    if not _triton_is_installed():
        return Availability(False, "triton is not installed; pip install 'lresnet[triton]'")
    if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y"):
        if allowed:
            return Availability(True, "interpreted (TRITON_INTERPRET=1)")
        return Availability(False, "TRITON_INTERPRET=1 is for tests: only within lresnet.kernels.enabled()")
    if kind != "cuda":
        return Availability(False, f"the kernels are written for CUDA devices, not for {kind!r}")
    if not torch.cuda.is_available():
        return Availability(False, "no CUDA device is visible")
    return Availability(True, "triton on CUDA")


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """The reference formulas while the context is open, on every device, in this thread.

    A compiled or exported function keeps what was chosen when it was traced. ``LRESNET_KERNELS=off`` in the
    environment is for whole programs.

    Example:
        >>> with disabled():
        ...     pass
    """
    with _set(False):
        yield


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    """The kernels while the context is open, whatever LRESNET_KERNELS says; on the CPU through Triton's interpreter.

    The interpreter is chosen by TRITON_INTERPRET=1 in the environment before triton is imported; it is slow and
    meant for tests.
    """
    with _set(True):
        yield


def serves(x: object, y: object, *others: object, dim: int) -> bool:
    """Whether the kernels compute the residual of x and y; ``others`` are scalars such as the curvature.

    They do for tensors of one shape on one device in float32 or narrower. What they do not serve goes to the
    reference, whose checks say what is wrong with arguments that nobody can serve. Under torch.func transforms and
    in forward mode the reference runs too: it has rules for them.
    """
    if not (isinstance(x, Tensor) and isinstance(y, Tensor) and _available(x.device.type)):
        return False
    if x.shape != y.shape or x.device != y.device or x.dtype not in _DTYPES or y.dtype not in _DTYPES:
        return False
    if not -x.dim() <= dim < x.dim() or x.shape[dim] == 0:
        return False
    if any(isinstance(other, Tensor) and other.numel() != 1 for other in others):
        return False
    return not transformed()


def _available(device: str) -> bool:
    # Asked first is what answers for ordinary tensors on the CPU, where a longer look would cost as much as the sums.
    return (device == "cuda" or (device == "cpu" and _allowed.get() is True)) and is_available(device).available


# The compiler takes the answer it finds while tracing as a constant. This is all that
# torch.compiler.assume_constant_result does, but for importing the compiler, which takes a second.
_available._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _triton_is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@contextlib.contextmanager
def _set(value: bool) -> Iterator[None]:
    token = _allowed.set(value)
    try:
        yield
    finally:
        _allowed.reset(token)
