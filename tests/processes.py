"""Two processes with torchrun's environment variables, whose store is in the test's process."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.distributed import TCPStore

SIZE = 2
KILLED = "killed"
_HANG_SECONDS = 600  # only ends a test that hangs
# The fork server imports everything once; its forks need not import torch again, which takes seconds.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["lresnet.runs.record", "lresnet.cli", "torch._dynamo", "pytest"])


def run_in_two_processes(job: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run ``job(*arguments)`` in two processes and return their results by rank, as plain values and NumPy arrays.

    The result of a process that was killed is :data:`KILLED`.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ends, members = [], []
    for rank in range(SIZE):
        here, there = _CONTEXT.Pipe(duplex=False)
        members.append(_CONTEXT.Process(target=_member, args=(rank, store.port, there, job, arguments), daemon=True))
        members[-1].start()
        there.close()
        ends.append(here)
    try:
        return [_received(end) for end in ends]
    finally:
        for member in members:
            member.join(5)
            member.kill()


def _received(end: Connection) -> Any:
    assert end.poll(_HANG_SECONDS), f"no answer in {_HANG_SECONDS} seconds: the processes hang"
    try:
        return end.recv()
    except EOFError:
        return KILLED


def _member(rank: int, port: int, end: Connection, job: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": SIZE, "LOCAL_WORLD_SIZE": SIZE}
    os.environ |= {name: str(value) for name, value in (address | ranks).items()}
    torch.set_num_threads(1)
    end.send(job(*arguments))
