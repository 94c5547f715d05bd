"""Worker processes of one thread each, for many small trainings side by side."""

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
    """A pool of ``workers`` processes.

    They end at once, and quietly, when an error or an interruption leaves the block: nobody would take what they are
    still at. And they end when this process does, also where it is killed and cannot tell them.
    """
    require_workers(workers)
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")  # a fork of a process with torch's threads may hang
    pool = _Pool(workers, mp_context=context, initializer=_start)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise OSError(
            "a worker process ended before its run did (was memory short?); run the same command again"
        ) from error
    except BaseException:  # a terminal interrupts the workers too, but `kill -INT` this process alone
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def require_workers(workers: int) -> None:
    """Refuse a number of processes below 1."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")


class _Pool(ProcessPoolExecutor):
    """Starts its processes, as work comes in, with interruptions held back until :func:`_start`."""

    def submit(
        self, fn: Callable[_Arguments, _Result], /, *args: _Arguments.args, **options: _Arguments.kwargs
    ) -> Future[_Result]:
        if not hasattr(signal, "pthread_sigmask"):  # Windows
            return super().submit(fn, *args, **options)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # a new process inherits it
        try:
            return super().submit(fn, *args, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # control-C ends a worker without a traceback of its own
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    """A worker would wait for work for ever: it holds the queue's other end itself, so no end of file comes."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    parent.join()
    os._exit(1)
