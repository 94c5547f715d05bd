"""How a kernel starts: on real tensors it runs; on those of a trace it begins to compile, in the background.

The compiler traces a network for seconds before its first kernel runs, and Triton takes about a third of a second for
each of the forty or so that a ResNet needs. Whoever traces an operator knows all that Triton has to know; so the
kernels compile on other cores while the tracing goes on.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["begin", "start"]

_ALIGNED = 16  # bytes; Triton compiles other code for an address or a number that is no multiple of it
_PLAIN = (int, float, bool, str, type(None))

_lock = threading.Lock()
_begun: set[Any] = set()
"""What was asked for: tracing visits an operator several times."""
_under_way: dict[int, list[Future[None]]] = {}
"""Compilations that a kernel's first run has to wait for, by its ``id``. Without this it would do them again."""


def start(kernel: Any, grid: Sequence[int], *arguments: Any, **options: Any) -> None:
    """``kernel[grid](*arguments, **options)``; with tensors of a trace, let Triton compile what that would run."""
    if type(arguments[0]) is FakeTensor:
        _begin_one(kernel, tuple(grid), arguments, options)
        return
    if futures := _under_way.get(id(kernel)):
        wait(futures)
        _under_way.pop(id(kernel), None)
    kernel[grid](*arguments, **options)


def begin(launch: Callable[..., object], x: Tensor, *arguments: Any) -> None:
    """Begin to compile what ``launch(x, *arguments)`` would run, where they are of a trace for a GPU that is here.

    A head start and no more: where it is not to be had, the kernels compile at their first run, which says what is
    wrong with them.
    """
    if not _is_known(x):
        return
    try:
        launch(x, *arguments)
    except Exception:
        logging.getLogger(__name__).debug("no head start for %s", launch, exc_info=True)


def _is_known(x: Tensor) -> bool:
    """Whether x is of a trace, its sizes are numbers, and its GPU is one of this machine's."""
    sizes = all(type(size) is int and size > 0 for size in x.shape)
    if not (type(x) is FakeTensor and sizes and x.device.type == "cuda" and torch.cuda.is_available()):
        return False
    return (x.device.index or 0) < torch.cuda.device_count()


@dataclass(frozen=True)
class _Address:
    """What Triton asks of a tensor."""

    dtype: torch.dtype
    offset: int

    def data_ptr(self) -> int:
        """As far as it counts; memory as a whole begins at a multiple of 16."""
        return self.offset


def _begin_one(kernel: Any, grid: tuple[int, ...], arguments: Sequence[Any], options: dict[str, Any]) -> None:
    given = [_address(argument) if isinstance(argument, Tensor) else argument for argument in arguments]
    if not all(type(argument) in (*_PLAIN, _Address) for argument in given):
        return  # a number that is not known yet, a step between rows say
    device = arguments[0].device
    asked = id(kernel), device, tuple(map(_told_apart, given)), tuple(options.items())
    with _lock:
        if asked in _begun:
            return
        _begun.add(asked)
        compilation = _workers().submit(_compile, kernel, device, grid, given, options)
        others = [other for other in _under_way.get(id(kernel), []) if not other.done()]
        _under_way[id(kernel)] = [*others, compilation]


def _address(tensor: Tensor) -> object:
    """Or where it begins, if that is not known yet."""
    offset = tensor.storage_offset()
    return _Address(tensor.dtype, offset * tensor.itemsize % _ALIGNED) if type(offset) is int else offset


def _told_apart(argument: Any) -> Any:
    """Of an integer what Triton's code depends on: whether it is 1, a multiple of 16, and how long."""
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
        logging.getLogger(__name__).debug("no head start for %s", kernel, exc_info=True)


@functools.cache
def _workers() -> ThreadPoolExecutor:
    # Most of Triton's work is done without Python's lock; beyond some eight threads that lock is what they wait for.
    cores = getattr(os, "process_cpu_count", os.cpu_count)() or 1
    pool = ThreadPoolExecutor(min(8, cores), thread_name_prefix="lresnet-kernels")
    # A program that ends early does not wait for kernels that nobody will run. (The latest of these hooks runs first;
    # an ordinary atexit comes after the pool has done all its work.)
    threading._register_atexit(lambda: pool.shutdown(wait=False, cancel_futures=True))  # type: ignore[attr-defined]
    return pool


def _forget() -> None:
    """In a forked child, which has none of its parent's threads: nothing is under way, and new workers are needed."""
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    _under_way.clear()
    _begun.clear()
    _workers.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
