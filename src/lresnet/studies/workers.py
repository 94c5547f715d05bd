"""Worker processes of one thread each, for many small trainings side by side."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import torch

__all__ = ["require_workers", "worker_pool"]


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of ``workers`` processes. What has not begun when an error leaves the block is not begun any more.

    The workers end when this process does, also where it is killed and cannot tell them.
    """
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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    """A worker would wait for work for ever: it holds the queue's other end itself, so no end of file comes."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this is a worker
    parent.join()
    os._exit(1)
