"""A training step of lorentz_resnet18 beside its Euclidean twin's: float32, eager, one CPU thread, process time.

    python benchmarks/vision_cpu.py            # the bar: at most 1.2 times the twin

A step is forward, cross-entropy, backward and SGD on random images. The two take turns in every round, in changing
order; the medians are reported, and the ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

import lresnet

METHODS = ("lorentz", "euclidean")


def stepper(name: str, method: str, batch: int) -> Callable[[], None]:
    """One training step of the model ``name`` with the residual ``method``."""
    torch.manual_seed(0)
    model = lresnet.create_model(name, method)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def measure(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Process seconds of every round, after two to warm up."""
    times: dict[str, list[float]] = {method: [] for method in steps}
    for round_ in range(rounds + 2):
        for method in sorted(steps, reverse=round_ % 2 == 1):
            start = time.process_time()
            steps[method]()
            if round_ >= 2:
                times[method].append(time.process_time() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lorentz_resnet18")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    times = measure({m: stepper(options.model, m, options.batch) for m in METHODS}, options.rounds)
    table = Table(title=f"Training step of {options.model}, batch {options.batch}, float32, one CPU thread")
    for column in ("residual", "seconds", "ratio to the twin", "quartiles"):
        table.add_column(column, justify="left" if column == "residual" else "right")
    for method, spent in times.items():
        ratios = [a / b for a, b in zip(spent, times["euclidean"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        table.add_row(method, f"{statistics.median(spent):.3f}", f"{middle:.3f}", f"{low:.3f} - {high:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
