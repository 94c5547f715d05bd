"""Worker processes with one thread each, for many small trainings in parallel."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch

__all__ = ["require_workers", "worker_pool"]

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of ``workers`` processes.

    The workers stop at once, without output, when an error or an interruption leaves the block. They also stop when
    this process ends, even if it is killed.
    """
    require_workers(workers)
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")  # a forked process with torch's threads may hang
    pool = _Pool(workers, mp_context=context, initializer=_start)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise OSError(
            "a worker process ended during its run, possibly for lack of memory; repeat the same command"
        ) from error
    except BaseException:  # control-C interrupts the workers too, `kill -INT` only this process
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def require_workers(workers: int) -> None:
    """Raise an error for a number of processes below 1."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")


class _Pool(ProcessPoolExecutor):
    """Pool that starts its processes with SIGINT blocked; :func:`_start` unblocks it in the worker."""

    def submit(
        self, fn: Callable[_Arguments, _Result], /, *args: _Arguments.args, **options: _Arguments.kwargs
    ) -> Future[_Result]:
        if not hasattr(signal, "pthread_sigmask"):  # Windows
            return super().submit(fn, *args, **options)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # inherited by a new process
        try:
            return super().submit(fn, *args, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # control-C ends a worker without a traceback
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    """End this worker when its parent ends; it would wait forever, because it holds both ends of the queue."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    parent.join()
    os._exit(1)
