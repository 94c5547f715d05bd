"""Worker processes of one thread each, for many small trainings side by side."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import torch

__all__ = ["require_workers", "worker_pool"]


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of ``workers`` processes. What has not begun when an error leaves the block is not begun any more."""
    require_workers(workers)
    context = multiprocessing.get_context("spawn")  # a fork of a process with torch's threads may hang
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise OSError(
            "a worker process ended before its run did (was memory short?); run the same command again"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def require_workers(workers: int) -> None:
    """Refuse a number of processes below 1."""
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # control-C ends a worker without a traceback of its own
    torch.set_num_threads(1)
