"""The paper's table of runtimes, measured again: seconds for 100 additions, by a clock that waits."""

from __future__ import annotations

from typing import Any

import torch

from lresnet.train.results import environment
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.unsynchronised import ADDITIONS

__all__ = ["runtime_line"]


def runtime_line(measurement: Measurement, command: str, device: torch.device) -> dict[str, Any]:
    """A line of ``results/runtime.jsonl``: like every table's, with ``value`` in seconds for 100 additions.

    Of a residual it is 100 times the median of one addition; of the clock that does not wait, what it said.
    """
    waits = measurement.study != "clock"
    spent, times = measurement.seconds, ADDITIONS if waits else 1
    seconds = None if spent is None else {name: times * getattr(spent, name) for name in ("median", "low", "high")}
    return {
        "table": "runtime",
        "cell": measurement.cell,
        "method": measurement.method,
        "protocol": measurement.form if waits else f"{measurement.form}, not synchronised",
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
