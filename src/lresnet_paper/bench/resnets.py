"""A training step of a ResNet against the same step of its Euclidean baseline: time, time of an epoch, peak memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from lresnet.kernels import is_available
from lresnet.train import TrainingState
from lresnet.train.engine import cudnn_benchmark
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.memory import peak_resident, print_json, process_result, start_process
from lresnet_paper.bench.timing import Batch, Clock, Task, interleave, ratios, spread
from lresnet_paper.bench.training import image_training

__all__ = ["BASELINE", "Network", "measure_resnets", "peak_bytes", "peaks_in_fresh_processes", "print_peak"]

BASELINE = "euclidean"

_STEPS = {"cuda": 20}  # timed as one task; on a CPU one step, which takes long enough
_EPOCHS = 3

# Steps before the peak is measured, so that the autotuners have finished. The engine captures its step as a CUDA graph
# at the fourth call, after which torch does not count its allocations.
_STEADY = 2


class Network(NamedTuple):
    """The network of one measurement."""

    model: str
    method: str
    batch: int


def measure_resnets(
    networks: Sequence[Network],
    device: torch.device,
    clock: Clock,
    *,
    rounds: int,
    images: int,
    peaks: Mapping[Network, int | str],
) -> list[Measurement]:
    """Time training steps of all networks in interleaved rounds, on random images.

    Args:
        networks: networks of one model and one batch size, the Euclidean baseline among them.
        device: where they run.
        clock: times the steps.
        rounds: the number of measured rounds.
        images: the number of images of an epoch. On CUDA epochs are timed, too, and compared with their steps.
        peaks: the result of :func:`peaks_in_fresh_processes`.
    """
    count = _STEPS.get(device.type, 1)
    with cudnn_benchmark():
        runs = {network: image_training(*network, images, device) for network in networks}
        for run in runs.values():
            run.train_epoch() if device.type == "cuda" else _load_first_batch(run)
        batches = {network.method: [Batch(_steps(run, count), count)] for network, run in runs.items()}
        seconds = interleave(batches, clock, rounds, warm_up=2)
        epochs = {network: _epoch_seconds(run) for network, run in runs.items()} if device.type == "cuda" else {}
    facts = {"clock": clock.name, "images": images, "threads": torch.get_num_threads(), "execution": "compiled"}
    facts["kernels"] = is_available(device).reason
    baseline = next(network for network in networks if network.method == BASELINE)
    measured = []
    for network, run in runs.items():
        own = spread(seconds[network.method])
        figures = _epoch_figures(run, own.median, epochs.get(network))
        figures |= _memory_figures(peaks[network], peaks[baseline])
        faster = {} if network == baseline else {BASELINE: ratios(seconds[BASELINE], seconds[network.method]).median}
        case = "resnet", f"{network.model}/{network.batch}", network.method, "engine", "training step"
        measured.append(Measurement(*case, own, figures, faster, facts | _missing_memory(peaks[network])))
    return measured


def _load_first_batch(run: TrainingState[Any]) -> None:
    run.model.train()
    run.objective.start_epoch()
    run.objective.advance(0)


def _steps(run: TrainingState[Any], count: int) -> Task:
    def task() -> None:
        for _ in range(count):
            run.step()

    return task


def _epoch_seconds(run: TrainingState[Any]) -> float:
    """Return the wall-clock time of an epoch with shuffling, augmentation, learning-rate schedule and every step."""
    spent = []
    for _ in range(_EPOCHS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run.train_epoch()
        torch.cuda.synchronize()
        spent.append(time.perf_counter() - start)
    return sorted(spent)[_EPOCHS // 2]


def _epoch_figures(run: TrainingState[Any], step: float, epoch: float | None) -> dict[str, float]:
    if epoch is None:
        return {}
    steps = run.objective.steps_per_epoch
    return {"epoch_seconds": epoch, "steps_per_epoch": steps, "epoch_over_its_steps": epoch / (steps * step)}


def _memory_figures(own: int | str, baseline: int | str) -> dict[str, float]:
    if isinstance(own, str):
        return {}
    relative = {"peak_over_twin": own / baseline} if isinstance(baseline, int) and baseline > 0 else {}
    return {"peak_gibibytes": own / 2**30, **relative}


def _missing_memory(peak: int | str) -> dict[str, str]:
    return {"memory": f"not measured: {peak}"} if isinstance(peak, str) else {}


# --- peak memory ------------------------------------------------------------------------------------------------------


def peaks_in_fresh_processes(networks: Iterable[Network], device: torch.device) -> dict[Network, int | str]:
    """Return the peak memory in bytes of a training step of each network, or the reason why it was not measured.

    Each network runs in a process of its own. On CUDA all processes run at the same time, because they compile most of
    the time, and they fill the compiler's cache for the measurements after them.
    """
    if device.type == "cuda":
        started = {network: _start(network, device) for network in networks}
        return {network: _peak(process_result(process)) for network, process in started.items()}
    return {network: _peak(process_result(_start(network, device))) for network in networks}


def _start(network: Network, device: torch.device) -> Any:
    return start_process(__name__, print_peak.__name__, *network, device)


def _peak(result: Mapping[str, Any]) -> int | str:
    return str(result["missing"]) if "missing" in result else int(result["peak_bytes"])


def print_peak(model: str, method: str, batch: str, device: str) -> None:
    """Print the peak memory of a training step in this process as JSON."""
    network = Network(model, method, int(batch))
    print_json(lambda: {"peak_bytes": peak_bytes(network, torch.device(device))})


def peak_bytes(network: Network, device: torch.device) -> int:
    """Return the peak memory of one training step in this process.

    On CUDA it is the largest allocation during one step, after the autotuners have finished. On a CPU it is the growth
    of the process's peak since before the network was made.
    """
    before = peak_resident()
    run = image_training(*network, network.batch, device)
    _load_first_batch(run)
    with cudnn_benchmark():
        for _ in range(_STEADY):
            run.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            run.step()
            torch.cuda.synchronize()
            return torch.cuda.max_memory_allocated()
        run.step()
    return peak_resident() - before
