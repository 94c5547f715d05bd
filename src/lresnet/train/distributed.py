"""Training of one model by several processes with DistributedDataParallel; torchrun starts the processes."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

__all__ = [
    "ONE_PROCESS",
    "Processes",
    "data_parallel_loss",
    "first_to_fail",
    "join_processes",
    "report_lost_processes",
]

Value = TypeVar("Value")

_STORE_TIMEOUT = timedelta(seconds=10)
# Since torch 2.13, `broadcast_buffers` is deprecated in favour of a second name.
_SYNC_BUFFERS = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
    else "broadcast_buffers"
)
# What gloo and NCCL write into a plain RuntimeError when a peer is gone.
_CONNECTION = re.compile("gloo|nccl|connection", re.IGNORECASE)
# Groups that have lost a process, kept until the interpreter ends. The destructor of a gloo group joins its threads
# while it holds Python's global lock. A thread whose collective has just failed still needs that lock, and both would
# wait for each other: a run that should end with one line would hang.
_lost_groups: list[Any] = []


@dataclasses.dataclass(frozen=True)
class Processes:
    r"""The processes that train one model: this one has number ``rank`` of ``size``.

    Each process takes one of ``size`` equal shares :math:`B_r` of a batch :math:`B`. (The shares of a sampled graph may
    be unequal; their losses have factors that make up for it.) The loss is a mean over images, seed nodes or edges, so

    .. math:: \nabla L(B) = \frac1N \sum_{r < N} \nabla L(B_r)

    and a step on averaged gradients equals the step of one process on the whole batch. Batch norms are the exception:
    they normalise by the statistics of their share.

    All processes must call the same methods in the same order. With one process, every method returns its argument.

    Args:
        rank: number of this process, from 0.
        size: number of processes.

    Example:
        >>> Processes(rank=1, size=4).share(512, images=50_000)
        slice(128, 256, None)
    """

    rank: int
    size: int

    @property
    def is_main(self) -> bool:
        """Whether this is process 0, the only one that writes files and prints."""
        return self.rank == 0

    def share(self, batch_size: int, images: int) -> slice:
        """Return the rows of a batch that belong to this process.

        Args:
            batch_size: size of the whole batch.
            images: number of training images, for the error message.

        Raises:
            ValueError: the batch size is not a multiple of the number of processes; the nearest ones are suggested.
        """
        if rest := batch_size % self.size:
            near = (batch_size - rest, batch_size - rest + self.size)
            sizes = " or ".join(str(size) for size in near if 0 < size <= images)
            whole = " (all images)" if batch_size == images else ""
            raise ValueError(
                f"batch_size {batch_size}{whole} is not a multiple of the number of processes, {self.size}; "
                f"use {sizes or 'fewer processes, or more images'}"
            )
        own = batch_size // self.size
        return slice(self.rank * own, (self.rank + 1) * own)

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean of ``value`` over all processes, detached."""
        mean = value.detach()
        if self.size > 1:
            mean = mean.clone()
            self.average_([mean])
        return mean

    @torch.no_grad()
    def average_(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over all processes."""
        if self.size > 1:
            with report_lost_processes():
                for tensor in tensors:
                    dist.all_reduce(tensor)
                    tensor.div_(self.size)

    @torch.no_grad()
    def broadcast_(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by that of process 0."""
        if self.size > 1:
            with report_lost_processes():
                for tensor in tensors:
                    dist.broadcast(tensor, src=0)

    def broadcast(self, value: Value) -> Value:
        """Return the value that process 0 passes: numbers, strings, CPU tensors, lists and dicts of them."""
        if self.size == 1:
            return value
        values: list[Any] = [value]
        with report_lost_processes():
            dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[no-any-return]

    def gather(self, value: Value) -> list[Value]:
        """Return the values that the processes pass, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with report_lost_processes():
            dist.all_gather_object(values, value)
        return values


ONE_PROCESS = Processes(0, 1)


class _Loss(torch.nn.Module):
    """A module whose forward pass is the whole loss."""

    def __init__(self, network: torch.nn.Module, loss: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.network, self._loss = network, loss

    def forward(self) -> Tensor:
        return self._loss(self.network)


def data_parallel_loss(
    network: torch.nn.Module, loss: Callable[[Any], Tensor], processes: Processes
) -> Callable[[], Tensor]:
    """Return a function that computes ``loss(network)``; its backward pass averages gradients over all processes.

    The whole loss is the forward pass of DistributedDataParallel, because losses may read parameters outside the
    network's forward pass, such as a learned curvature in ``model.manifold``. The graph is static: every step uses the
    same parameters. Parameters that no step uses keep a gradient of None, as with one process.
    """
    if processes.size == 1:
        return lambda: loss(network)
    options: dict[str, Any] = {_SYNC_BUFFERS: False, "static_graph": True}
    return DistributedDataParallel(_Loss(network, loss), **options)


@contextlib.contextmanager
def join_processes(device: str) -> Iterator[tuple[Processes, str]]:
    """Join the processes that torchrun has started, and leave them at the end. Without torchrun: one process.

    Args:
        device: ``"cpu"``, ``"cuda"`` (the GPU with this process's number on its machine), or ``"auto"`` (a GPU if
            there is one).

    Yields:
        The processes, and the device of this one.

    Raises:
        ValueError: several processes cannot use the device, or a machine has fewer GPUs than processes.
        ConnectionError: the other processes were not found.
    """
    size = int(os.environ.get("WORLD_SIZE") or "1")
    if size == 1:
        yield ONE_PROCESS, device
        return
    missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ValueError(
            f"WORLD_SIZE is {size}, but {', '.join(missing)} is not set; start all processes with torchrun"
        )
    own = _own_device(device)
    gpu = torch.device(own) if own != "cpu" else None
    if gpu is not None:
        torch.cuda.set_device(gpu)
    processes = Processes(int(os.environ["RANK"]), size)
    with report_lost_processes():
        _init_process_group(processes, gpu)
    try:
        yield processes, own
    except BaseException as error:
        if processes.is_main or not isinstance(error, KeyboardInterrupt):
            first_to_fail()  # before the other processes notice that this one is gone, and fail because of it
        _abort(gpu)
        raise
    dist.destroy_process_group()


def _init_process_group(processes: Processes, gpu: torch.device | None) -> None:
    store = dist.PrefixStore(_store_prefix(), next(rendezvous("env://"))[0])  # type: ignore[attr-defined]
    backend = "gloo" if gpu is None else "nccl"
    dist.init_process_group(backend, store=store, rank=processes.rank, world_size=processes.size, device_id=gpu)


def _abort(gpu: torch.device | None) -> None:
    """Leave after a failure. NCCL's orderly exit needs all processes, and the others may be waiting in a step."""
    if gpu is None:
        dist.destroy_process_group()
    else:
        dist.distributed_c10d._abort_process_group()


def _store_prefix() -> str:
    """The prefix of this start's keys in torchrun's store.

    After a failure torchrun may restart all processes (``--max-restarts``), and the store still holds the addresses of
    the previous ones. Each machine counts restarts on its own, so several machines share one prefix, as in torch.
    """
    one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
    return f"lresnet/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}" if one_machine else "lresnet"


def first_to_fail() -> bool:
    """Whether this process is the first one to call this function; a second call returns the same answer.

    One failure ends all processes and must be reported once. The function does not wait for other processes, which may
    be waiting for this one. Without torchrun's store, every process is the first and reports its own failure.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    address, port, rank = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), os.environ["RANK"]
    try:
        store = dist.TCPStore(  # type: ignore[attr-defined]
            address, port, is_master=False, timeout=_STORE_TIMEOUT, wait_for_workers=False
        )
        return bool(store.compare_set(f"{_store_prefix()}/first_to_fail", "", rank) == rank.encode())
    except RuntimeError:  # torchrun has ended: two reports are better than none
        return True


def _own_device(name: str) -> str:
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if name not in ("auto", "cuda"):
        raise ValueError(
            f"device {name!r} is not supported with several processes; use cuda, which gives each process its own GPU "
            "(CUDA_VISIBLE_DEVICES selects them), or cpu"
        )
    rank, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if (processes := int(os.environ.get("LOCAL_WORLD_SIZE", rank + 1))) > gpus:
        raise ValueError(
            f"{processes} processes need one GPU each, but this machine has {gpus}; "
            "start fewer processes (--nproc-per-node), or use --device cpu"
        )
    return f"cuda:{rank}"


@contextlib.contextmanager
def report_lost_processes() -> Iterator[None]:
    """Turn torch's errors about a lost connection into one ``ConnectionError``; other errors pass."""
    try:
        yield
    except RuntimeError as error:
        line = str(error).strip().partition("\n")[0]
        lost = isinstance(error, dist.DistError) or (type(error) is RuntimeError and _CONNECTION.search(line))
        if not lost:
            raise
        if dist.is_initialized():
            _lost_groups.append(dist.group.WORLD)
        reason = re.sub(r"^\[[^]]*\] ", "", line).partition(". ")[0]  # without torch's file and line number
        raise ConnectionError(
            f"no connection to the other processes of this run: {reason}; the same command resumes from its checkpoint"
        ) from error
