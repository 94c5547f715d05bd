"""Several processes that train one model: each takes its share of every batch, and gradients are averaged."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

__all__ = ["ALONE", "Team", "first_to_fail", "joined"]

Value = TypeVar("Value")

_PATIENCE = timedelta(seconds=10)


@dataclasses.dataclass(frozen=True)
class Team:
    r"""Process number ``rank`` of ``size``, which train one model. What one has to do, all have to do.

    Of a batch :math:`B` each process takes one of ``size`` equal shares :math:`B_r`. The loss is a mean over images, so

    .. math:: \nabla L(B) = \frac1N \sum_{r < N} \nabla L(B_r)

    and a step on averaged gradients is the step of one process on the whole batch, where images do not see each other.
    In batch norms they do: those take the statistics of a share.

    Alone every method gives back what it is given.

    Example:
        >>> Team(rank=1, size=4).share(512, images=50_000)
        slice(128, 256, None)
    """

    rank: int
    size: int

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0

    def share(self, batch_size: int, images: int) -> slice:
        """The rows of a batch that are this process's, where there are so many ``images``.

        Raises:
            ValueError: the batch cannot be shared evenly; the sizes next to it that can are named.
        """
        if rest := batch_size % self.size:
            near = (batch_size - rest, batch_size - rest + self.size)
            sizes = " or ".join(str(size) for size in near if 0 < size <= images) or "fewer processes, or more images"
            whole = ", all images that there are," if batch_size == images else ""
            raise ValueError(
                f"batch_size {batch_size}{whole} cannot be shared evenly among {self.size} processes; take {sizes}"
            )
        own = batch_size // self.size
        return slice(self.rank * own, (self.rank + 1) * own)

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Put the mean over all processes into each of ``tensors``; all of a dtype travel as one."""

        def mean(flat: Tensor) -> None:
            dist.all_reduce(flat)
            flat.div_(self.size)

        self._as_one(tensors, mean)

    def mean(self, value: Tensor) -> Tensor:
        """The mean of ``value`` over all processes, detached."""
        mean = value.detach()
        if self.size > 1:
            mean = mean.clone()
            self.average_([mean])
        return mean

    def align_(self, tensors: Sequence[Tensor]) -> None:
        """Put what process 0 has into each of ``tensors``."""
        self._as_one(tensors, lambda flat: dist.broadcast(flat, src=0))

    def same(self, value: Value) -> Value:
        """What process 0 calls this with: numbers, strings, tensors on the CPU, lists and dicts of them."""
        if self.size == 1:
            return value
        values: list[Any] = [value]
        with _in_contact():
            dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[no-any-return]

    def all(self, value: Value) -> list[Value]:
        """What the processes call this with, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with _in_contact():
            dist.all_gather_object(values, value)
        return values

    @torch.no_grad()
    def _as_one(self, tensors: Sequence[Tensor], operation: Callable[[Tensor], object]) -> None:
        """``operation``, in place, on a flat copy: a message for each tensor would cost more than what is in it."""
        if self.size == 1:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            own = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.reshape(-1) for tensor in own])
            with _in_contact():
                operation(flat)
            for tensor, part in zip(own, flat.split([tensor.numel() for tensor in own]), strict=True):
                tensor.copy_(part.view(tensor.shape))


ALONE = Team(0, 1)


@contextlib.contextmanager
def joined(device: str) -> Iterator[tuple[Team, str]]:
    """Join the processes that torchrun has started, and leave them at the end; without torchrun, :data:`ALONE`.

    Args:
        device: ``"cpu"``; ``"cuda"``: the GPU of this process, by its number on its machine; ``"auto"``: a GPU where
            there is one.

    Yields:
        The team, and the device of this process.

    Raises:
        ValueError: the device is none for a team, or a machine has fewer GPUs than processes.
        ConnectionError: the others were not found.
    """
    size = int(os.environ.get("WORLD_SIZE") or "1")
    if size == 1:
        yield ALONE, device
        return
    missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ValueError(f"WORLD_SIZE is {size}, but {', '.join(missing)} is not set; start all with torchrun")
    own = _own_device(device)
    gpu = torch.device(own) if own != "cpu" else None
    if gpu is not None:
        torch.cuda.set_device(gpu)
    team = Team(int(os.environ["RANK"]), size)
    with _in_contact():
        _meet(team, gpu)
    try:
        yield team, own
    except BaseException as error:
        if team.leads or not isinstance(error, KeyboardInterrupt):
            first_to_fail()  # before the others find this one gone, and fail for it
        _leave_at_once(gpu)
        raise
    dist.destroy_process_group()


def _meet(team: Team, gpu: torch.device | None) -> None:
    store = dist.PrefixStore(_attempt(), next(rendezvous("env://"))[0])  # type: ignore[attr-defined]
    backend = "gloo" if gpu is None else "nccl"
    dist.init_process_group(backend, store=store, rank=team.rank, world_size=team.size, device_id=gpu)


def _leave_at_once(gpu: torch.device | None) -> None:
    """After a failure. To leave NCCL in order takes all processes, and the others may be waiting for us in a step."""
    if gpu is None:
        dist.destroy_process_group()
    else:
        dist.distributed_c10d._abort_process_group()


def _attempt() -> str:
    """Where in torchrun's store the processes meet that were started together.

    After a failure it may start them anew (``--max-restarts``), and the addresses that are left in the store are those
    of the dead. Machines each count for themselves how often: several keep to one place, as torch does.
    """
    one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
    return f"lresnet/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}" if one_machine else "lresnet"


def first_to_fail() -> bool:
    """Whether this is the first to ask, of the processes that torchrun has started; asked again, it answers the same.

    One failure ends all of them, and is to be told once. This waits for nobody: the others may be waiting for us. Of
    processes started by anything else each is the first, and tells its own: what torchrun keeps for them is not there.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    address, port, rank = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), os.environ["RANK"]
    try:
        store = dist.TCPStore(  # type: ignore[attr-defined]
            address, port, is_master=False, timeout=_PATIENCE, wait_for_workers=False
        )
        return bool(store.compare_set(f"{_attempt()}/first_to_fail", "", rank) == rank.encode())
    except RuntimeError:  # torchrun has gone: rather told twice than not at all
        return True


def _own_device(name: str) -> str:
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if name not in ("auto", "cuda"):
        raise ValueError(
            f"device {name!r} is none for several processes; take cuda, where each has a GPU of its own "
            "(CUDA_VISIBLE_DEVICES says which there are), or cpu"
        )
    rank, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if (processes := int(os.environ.get("LOCAL_WORLD_SIZE", rank + 1))) > gpus:
        raise ValueError(
            f"{processes} processes need a GPU each, and {gpus} can be used here; "
            "start fewer (--nproc-per-node), or take --device cpu"
        )
    return f"cuda:{rank}"


@contextlib.contextmanager
def _in_contact() -> Iterator[None]:
    """Say plainly that another process is gone; torch raises what its transport says."""
    try:
        yield
    except RuntimeError as error:
        line = str(error).strip().partition("\n")[0]
        reason = re.sub(r"^\[[^]]*\] ", "", line).partition(". ")[0]  # without torch's file and line before it
        raise ConnectionError(f"lost the other processes of this training, or never found them: {reason}") from error
