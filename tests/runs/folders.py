"""Runs in folders, for the tests: train one on the CPU, and open it."""

from pathlib import Path
from typing import Any

from lresnet.runs import Run, RunConfig, fit


def trained(folder: Path, config: RunConfig, **options: Any) -> Run:
    return fit(config.task, config.model, config.train, out=folder, **{"device": "cpu"} | options)


def opened(folder: Path) -> Run:
    return Run.open(folder, device="cpu")
