"""How a kernel starts: on real tensors it runs; on those of a trace it begins to compile, in the background.

The compiler traces a network for seconds before its first kernel runs, and Triton takes a quarter of a second for each
of the forty or so that a ResNet needs. Whoever traces an operator knows all that Triton has to know; so the kernels
compile on other cores while the tracing goes on, and are there when they are first called.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["can_begin", "start"]

_begun: set[Any] = set()
"""What was asked for: tracing visits an operator several times."""
_under_way: dict[int, list[Future[None]]] = {}
"""Compilations that a kernel's first run has to wait for, by its ``id``. Without this it would do them again."""


def start(kernel: Any, grid: Sequence[int], *arguments: Any, **options: Any) -> None:
    """``kernel[grid](*arguments, **options)``; with tensors of a trace, let Triton compile what that would run."""
    if type(arguments[0]) is FakeTensor:
        _begin(kernel, tuple(grid), arguments, options)
        return
    if id(kernel) in _under_way:
        wait(_under_way.pop(id(kernel)))
    kernel[grid](*arguments, **options)


def can_begin(x: Tensor) -> bool:
    """Whether kernels can be compiled for a tensor of a trace: its sizes are known, and so is the GPU."""
    known = all(type(size) is int and size > 0 for size in x.shape)
    return type(x) is FakeTensor and known and x.device.type == "cuda" and torch.cuda.is_available()


def _begin(kernel: Any, grid: tuple[int, ...], arguments: Sequence[Any], options: dict[str, Any]) -> None:
    device = arguments[0].device
    # Of a tensor Triton needs the dtype; that its address is a multiple of 16 it takes for granted, as it mostly is.
    kinds = tuple(argument.dtype if isinstance(argument, Tensor) else argument for argument in arguments)
    asked = id(kernel), device, kinds, tuple(options.items())
    if asked in _begun:
        return
    _begun.add(asked)
    compilation = _workers().submit(_compile, kernel, device, grid, kinds, options)
    _under_way.setdefault(id(kernel), []).append(compilation)


def _compile(
    kernel: Any, device: torch.device, grid: tuple[int, ...], kinds: Sequence[Any], options: dict[str, Any]
) -> None:
    """Where this fails nothing is lost: the kernel's first run says what is wrong."""
    with torch.cuda.device(device):
        kernel.warmup(*kinds, grid=grid, **options)


@functools.cache
def _workers() -> ThreadPoolExecutor:
    # Most of Triton's work is done without Python's lock; beyond some eight threads that lock is what they wait for.
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="lresnet-kernels")
