"""Runs in folders, for the tests: train one on the CPU, and open it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lresnet.runs import Run, RunConfig, fit


def trained(folder: Path, config: RunConfig, **options: Any) -> Run:
    return fit(config.task, config.model, config.train, out=folder, **{"device": "cpu"} | options)


def opened(folder: Path) -> Run:
    return Run.open(folder, device="cpu")


def unverified(record: Mapping[str, Any]) -> str:
    """``run.json`` with these entries and without checksums, as a person or lresnet 0.2 writes it."""
    return json.dumps({name: value for name, value in record.items() if name not in ("checksum", "files")})


def forget_checksums(folder: Path) -> None:
    """Leave a run whose files may be replaced."""
    path = folder / "run.json"
    path.write_text(unverified(json.loads(path.read_text())))
