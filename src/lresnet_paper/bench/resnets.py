"""A training step of a ResNet beside its Euclidean twin's: time, an epoch's wall clock, memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lresnet.kernels import is_available
from lresnet_paper.bench.clock import Clock
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.memory import Network
from lresnet_paper.bench.rounds import Batch, interleave, ratios, spread
from lresnet_paper.bench.runs import image_training, tried_convolutions

__all__ = ["TWIN", "measure_resnets"]

TWIN = "euclidean"

_STEPS = {"cuda": 20}  # timed at once; elsewhere one: a step takes long enough
_EPOCHS = 3


def measure_resnets(
    networks: Sequence[Network],
    device: torch.device,
    clock: Clock,
    *,
    rounds: int,
    images: int,
    peaks: Mapping[Network, int | str],
) -> list[Measurement]:
    """Steps of all networks in turn, on random images.

    Args:
        networks: of one model and one batch size, the twin among them.
        images: of an epoch; on CUDA epochs are timed too, and held against their steps.
        peaks: see :func:`~lresnet_paper.bench.memory.peaks_in_fresh_processes`.
    """
    count = _STEPS.get(device.type, 1)
    with tried_convolutions():
        runs = {network: image_training(*network, images, device) for network in networks}
        for run in runs.values():
            run.train_epoch() if device.type == "cuda" else _put_a_batch_in_place(run)
        batches = {network.method: [Batch(_steps(run, count), count)] for network, run in runs.items()}
        seconds = interleave(batches, clock, rounds, warm_up=2)
        epochs = {network: _epoch_seconds(run) for network, run in runs.items()} if device.type == "cuda" else {}
    facts = {"clock": clock.name, "images": images, "threads": torch.get_num_threads(), "execution": "compiled"}
    facts["kernels"] = is_available(device).reason
    twin = next(network for network in networks if network.method == TWIN)
    measured = []
    for network, run in runs.items():
        own = spread(seconds[network.method])
        figures = _epoch(run, own.median, epochs.get(network)) | _memory(peaks[network], peaks[twin])
        faster = {} if network == twin else {TWIN: ratios(seconds[TWIN], seconds[network.method]).median}
        case = "resnet", f"{network.model}/{network.batch}", network.method, "engine", "training step"
        measured.append(Measurement(*case, own, figures, faster, facts | _no_memory(peaks[network])))
    return measured


def _put_a_batch_in_place(run: Any) -> None:
    run.model.train()
    run.objective.start_epoch()
    run.objective.advance(0)


def _steps(run: Any, count: int) -> Any:
    def task() -> None:
        for _ in range(count):
            run.step()

    return task


def _epoch_seconds(run: Any) -> float:
    """Wall clock of an epoch with everything in it: shuffling, augmentation, the learning rate, every step."""
    spent = []
    for _ in range(_EPOCHS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run.train_epoch()
        torch.cuda.synchronize()
        spent.append(time.perf_counter() - start)
    return sorted(spent)[_EPOCHS // 2]


def _epoch(run: Any, step: float, epoch: float | None) -> dict[str, float]:
    if epoch is None:
        return {}
    steps = run.objective.steps_per_epoch
    return {"epoch_seconds": epoch, "steps_per_epoch": steps, "epoch_over_its_steps": epoch / (steps * step)}


def _memory(own: int | str, twin: int | str) -> dict[str, float]:
    if isinstance(own, str):
        return {}
    relative = {"peak_over_twin": own / twin} if isinstance(twin, int) and twin > 0 else {}
    return {"peak_gibibytes": own / 2**30, **relative}


def _no_memory(peak: int | str) -> dict[str, str]:
    return {"memory": f"not measured: {peak}"} if isinstance(peak, str) else {}
