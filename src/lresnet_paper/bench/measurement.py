"""Measurements, and their lines in ``results/benchmarks.jsonl`` and ``results/runtime.jsonl``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from lresnet.train.results import environment
from lresnet_paper.bench.timing import Spread

__all__ = ["ADDITIONS", "Measurement", "line", "runtime_line"]

ADDITIONS = 100  # the paper: "average runtime to perform 100 additions"


@dataclass(frozen=True)
class Measurement:
    """One row of a benchmark. If it could not be measured, ``seconds`` is None and ``missing`` is the reason."""

    study: str
    """The benchmark: ``"residual"``, ``"stack"``, ``"resnet"``, ``"gcn"``, ``"sgformer"``, ``"scale"``, ``"copy"``,
    ``"clock"`` or ``"training"``."""
    cell: str
    """The problem: a size, a data set, or a network and its batch size."""
    method: str
    form: str
    """The implementation, e.g. ``"kernels"`` or ``"textbook compiled"``."""
    part: str = ""
    """The pass or step, e.g. ``"forward"``, ``"forward + backward"`` or ``"training epoch"``."""
    seconds: Spread | None = None
    figures: dict[str, float] = field(default_factory=dict)
    """Rates, shares and memory, by name."""
    faster_than: dict[str, float] = field(default_factory=dict)
    """The time of other rows divided by this one's, by name: medians of the rounds' ratios."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The clock, the number of threads and other settings."""
    missing: str = ""


def line(measurement: Measurement, command: str, device: torch.device) -> dict[str, Any]:
    """Return a line of ``results/benchmarks.jsonl``. It has no seed, so that no table counts it as a run."""
    spent = measurement.seconds
    return {
        "table": "benchmarks",
        "study": measurement.study,
        "cell": measurement.cell,
        "method": measurement.method,
        "protocol": measurement.form,
        "part": measurement.part,
        "value": None if spent is None else spent.median,
        "quartiles": None if spent is None else [spent.low, spent.high],
        "rounds": 0 if spent is None else spent.n,
        "metrics": measurement.figures,
        "faster_than": measurement.faster_than,
        "missing": measurement.missing,
        "config": measurement.facts,
        "command": command,
        **environment(str(device)),
    }


def runtime_line(measurement: Measurement, command: str, device: torch.device) -> dict[str, Any]:
    """Return a line of ``results/runtime.jsonl``, with ``value`` in seconds for 100 additions.

    A residual's value is 100 times the median of one addition. A measurement without GPU synchronisation (study
    ``"clock"``) already covers 100 additions.
    """
    synchronised = measurement.study != "clock"
    spent, times = measurement.seconds, ADDITIONS if synchronised else 1
    seconds = None if spent is None else {name: times * getattr(spent, name) for name in ("median", "low", "high")}
    return {
        "table": "runtime",
        "cell": measurement.cell,
        "method": measurement.method,
        "protocol": measurement.form if synchronised else f"{measurement.form}, not synchronised",
        "seed": 0,
        "split": None,
        "stage": "final",
        "value": None if seconds is None else seconds["median"],
        "validation": None,
        "metrics": (seconds or {}) | measurement.figures,
        "faster_than": measurement.faster_than,
        "missing": measurement.missing,
        "config": measurement.facts | {"additions": ADDITIONS, "rounds": 0 if spent is None else spent.n},
        "seconds": 0.0 if spent is None or seconds is None else spent.n * spent.median,
        "command": command,
        **environment(str(device)),
    }
