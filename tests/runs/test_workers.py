"""Worker processes: as many as asked for, and none left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from lresnet.runs.workers import require_workers, worker_pool

SCRIPT = """
import os, time
from lresnet.runs.workers import worker_pool

if __name__ == "__main__":
    with worker_pool(1) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        time.sleep(600)
"""


def test_a_worker_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(SCRIPT)
    with subprocess.Popen([sys.executable, tmp_path / "parent.py"], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert _runs(worker)
        parent.kill()
        parent.wait()
        for _ in range(12_000):  # ten minutes, which only end a test that hangs
            if not _runs(worker):
                break
            time.sleep(0.05)
    assert not _runs(worker)


def test_a_worker_that_is_interrupted_while_it_starts_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """Also where the interruption is this process's alone, as here: the worker would sleep for ten minutes."""

    def interrupt(pool: Executor) -> None:
        pool.submit(time.sleep, 600)
        (worker,) = multiprocessing.active_children()
        assert worker.pid is not None
        time.sleep(0.3)  # by now Python runs there, and a signal that is not held back would be a traceback
        os.kill(worker.pid, signal.SIGINT)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), worker_pool(1) as pool:
        interrupt(pool)
    assert capfd.readouterr().err == ""


def test_an_error_ends_what_is_under_way(capfd: pytest.CaptureFixture[str]) -> None:
    """It would sleep for a minute, and nobody would take what came of it."""
    futures = list[Future[None]]()

    def fail(pool: Executor) -> None:
        pool.submit(os.getpid).result()
        futures.append(pool.submit(time.sleep, 60))
        while not futures[0].running():
            time.sleep(0.05)
        raise LookupError("of the caller")

    with pytest.raises(LookupError, match="of the caller"), worker_pool(1) as pool:
        fail(pool)
    assert isinstance(futures[0].exception(), BrokenProcessPool)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("workers", [0, -1])
def test_too_few(workers: int) -> None:
    with pytest.raises(ValueError, match=f"workers must be at least 1, got {workers}"):
        require_workers(workers)


def _runs(process: int) -> bool:
    """Whether it is there and no zombie, which nobody may be left to bury."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.is_file() or status.read_text().rpartition(")")[2].split()[0] != "Z"
