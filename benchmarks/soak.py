"""Train for a long time and run many tiny runs; watch memory, step time and the file of results.

    python benchmarks/soak.py train --minutes 30                  # memory and step time of three networks
    python benchmarks/soak.py train --minutes 8 --device cuda     # the same on a GPU, with captured steps
    python benchmarks/soak.py runs --count 10000 --workers 4      # one epoch each, in one sweep

`train` takes steps of lorentz_gcn, lorentz_gcnii (batch norm, dropout, activation checkpointing) and lorentz_resnet20
in turn, in one process, with a validation pass and a checkpoint every hundred rounds. Memory is the resident memory of
the process, on a GPU with what torch has reserved there. Step times are process time; on a GPU they are wall-clock time
with synchronisation. Other programs slow the steps down, so a second process, started anew in every tenth of the time,
takes the same steps in turn with the first: a ratio that grows means that the old process has become slower. All are
medians of tenths of the time after the first tenth, in which caches fill. Each new process starts while the one before
is still in use, and the time spent waiting for it is not counted.

`runs` is a sweep as `lresnet reproduce` runs it. Every run has a seed of its own; afterwards each seed must have
exactly one line.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import tempfile
import time
from array import array
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from lresnet.data import load_task
from lresnet.models import create_model
from lresnet.train import NodeClassification, TrainConfig, TrainingState
from lresnet.train.checkpoint import save_checkpoint
from lresnet.train.results import read_results
from lresnet_paper.bench.memory import resident
from lresnet_paper.bench.training import image_training
from lresnet_paper.run import Run
from lresnet_paper.sweep import run_all

ROUNDS_PER_CHECKPOINT = 100
ROUNDS_PER_COMPARISON = 4
ROUNDS_OF_WARM_UP = 50
TENTHS = 10


def reserved_bytes(device: torch.device) -> int:
    return torch.cuda.memory_reserved() if device.type == "cuda" else 0


def graph_training(name: str, device: torch.device, **options: object) -> TrainingState:
    task = load_task("disease_tree/nc", "disjoint", features="standardised")
    torch.manual_seed(0)
    model = create_model(name, in_features=task.x.shape[1], num_classes=2, dropout=0.3, **options)
    objective = NodeClassification(task, device=device)
    return TrainingState(model.to(device), objective, TrainConfig(epochs=10**9, lr=1e-3))


def trainings(device: torch.device) -> dict[str, TrainingState]:
    torch.set_num_threads(1)
    deep = {"num_layers": 16, "hidden": 16, "norm": "batch", "activation_checkpointing": True}
    return {
        "lorentz_gcn": graph_training("lorentz_gcn", device),
        "lorentz_gcnii": graph_training("lorentz_gcnii", device, **deep),
        "lorentz_resnet20": image_training("lorentz_resnet20", "lorentz", 8, 8, device),
    }


def seconds_of_an_epoch(state: TrainingState, device: torch.device) -> float:
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    before = clock()
    state.train_epoch()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - before


def take_steps_on_request(requests: Connection, device: torch.device) -> None:
    """Take the same steps in a new process: answer each message with their seconds, until the connection closes."""
    states = trainings(device)
    for _ in range(ROUNDS_OF_WARM_UP):
        for state in states.values():
            state.train_epoch()
    requests.send(None)  # ready
    with contextlib.suppress(EOFError):
        while requests.recv():
            requests.send([seconds_of_an_epoch(state, device) for state in states.values()])


class NewProcess:
    """A process that takes the same steps on request. It starts at once and is ready later."""

    def __init__(self, device: torch.device) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=take_steps_on_request, args=(there, device), daemon=True)
        self._process.start()
        there.close()

    def wait_until_ready(self) -> None:
        self._here.recv()

    def step_seconds(self) -> list[float]:
        self._here.send(True)
        return self._here.recv()

    def end(self) -> None:
        self._here.close()
        self._process.join()


def train(minutes: float, device: torch.device) -> None:
    states = trainings(device)
    # Arrays of numbers: a list of pairs would take 5 MB in half an hour, 1 % of the memory that is measured.
    memory = [array("d") for _ in range(TENTHS)]
    own = {name: [array("d") for _ in range(TENTHS)] for name in states}
    new = {name: [array("d") for _ in range(TENTHS)] for name in states}
    rounds, other, duration = 0, NewProcess(device), 60 * minutes / TENTHS
    with tempfile.TemporaryDirectory() as folder:
        for tenth in range(TENTHS):
            other.wait_until_ready()
            begin, before, following = time.monotonic(), rounds, None
            while rounds == before or time.monotonic() < begin + duration:
                if following is None and time.monotonic() > begin + duration / 2 and tenth + 1 < TENTHS:
                    following = NewProcess(device)
                seconds = [seconds_of_an_epoch(state, device) for state in states.values()]
                if (rounds - before) % ROUNDS_PER_COMPARISON == 0:
                    for name, here, there in zip(states, seconds, other.step_seconds(), strict=True):
                        own[name][tenth].append(here)
                        new[name][tenth].append(there)
                rounds += 1
                if rounds % ROUNDS_PER_CHECKPOINT == 0:
                    for name, state in states.items():
                        state.validate()
                        state.curve.clear()  # grows by design: one number per validation pass
                        save_checkpoint(Path(folder) / f"{name}.pt", state.state_dict())
                memory[tenth].append(resident() + reserved_bytes(device))
            other.end()
            if tenth + 1 < TENTHS:
                other = following or NewProcess(device)
            print(f"part {tenth + 1} of {TENTHS}: {statistics.median(memory[tenth]) / 2**20:.1f} MB", flush=True)
    print(f"{rounds} rounds in {minutes:g} minutes")
    report("resident memory", [statistics.median(part) / 2**20 for part in memory[1:]], "MB")
    for name in states:
        here, there = ([1e3 * statistics.median(part) for part in side[name]][1:] for side in (own, new))
        report(f"{name}, this process", here, "ms")
        report(f"{name}, a new process", there, "ms")
        report(f"{name}, ratio", [a / b for a, b in zip(here, there, strict=True)], "")


def report(name: str, tenths: list[float], unit: str) -> None:
    drift, spread = 100 * (tenths[-1] / tenths[0] - 1), 100 * (max(tenths) / min(tenths) - 1)
    slope = 100 * statistics.linear_regression(range(len(tenths)), tenths).slope * (len(tenths) - 1) / tenths[0]
    print(
        f"{name:32} {tenths[0]:8.3f} {unit:2} in the second tenth, {drift:+6.2f} % in the last one, "
        f"fitted {slope:+6.2f} %, range {spread:6.2f} %"
    )


def runs(count: int, workers: int) -> None:
    config = {"hidden": 2, "num_layers": 1, "epochs": 1}
    planned = [Run("gnn", "disease_tree/lp", "lorentz", "disjoint", seed, config) for seed in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gnn.jsonl"
        started = time.monotonic()
        missing = run_all(planned, file, command="soak", workers=workers)
        seconds = time.monotonic() - started
        found = Counter(line["seed"] for line in read_results(file))
        text = file.read_text().count("\n")
    doubled, lost = sum(n > 1 for n in found.values()), count - len(found)
    print(
        f"{count} runs with {workers} workers in {seconds:.0f} s: {text} lines, {lost} lost, {doubled} doubled, "
        f"{missing} missing"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    training = verbs.add_parser("train")
    training.add_argument("--minutes", type=float, default=30.0)
    training.add_argument("--device", default="cpu")
    sweep = verbs.add_parser("runs")
    sweep.add_argument("--count", type=int, default=10_000)
    sweep.add_argument("--workers", type=int, default=4)
    arguments = parser.parse_args()
    if arguments.verb == "train":
        train(arguments.minutes, torch.device(arguments.device))
    else:
        runs(arguments.count, arguments.workers)


if __name__ == "__main__":
    main()
