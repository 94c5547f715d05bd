"""What was measured, as one object and as one line of results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from lresnet.train.results import environment
from lresnet_paper.bench.rounds import Spread

__all__ = ["Measurement", "line"]


@dataclass(frozen=True)
class Measurement:
    """One contender of one benchmark; where it could not take part, ``seconds`` is None and ``missing`` says why."""

    study: str
    """Which benchmark: ``"residual"``, ``"stack"``, ``"resnet"``, ``"gcn"``, ``"sgformer"``, ``"scale"``, ``"copy"``,
    ``"clock"`` or ``"training"``."""
    cell: str
    """What was computed: a size, a data set, a network and its batch."""
    method: str
    form: str
    """How it was computed, e.g. ``"kernels"`` or ``"textbook compiled"``."""
    part: str = ""
    """Of which pass: ``"forward"``, ``"backward"`` or ``"forward + backward"``."""
    seconds: Spread | None = None
    figures: dict[str, float] = field(default_factory=dict)
    """Rates and shares, by name."""
    faster_than: dict[str, float] = field(default_factory=dict)
    """How many times as long others took, by name: medians over the rounds' ratios."""
    facts: dict[str, Any] = field(default_factory=dict)
    """How it was timed."""
    missing: str = ""


def line(measurement: Measurement, command: str, device: torch.device) -> dict[str, Any]:
    """A line of ``results/benchmarks.jsonl``. It names no seed: no table of the paper counts it as a run."""
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
