"""Results as JSON lines: one line per finished run, with everything needed to run it again."""

from __future__ import annotations

import functools
import json
import os
import platform
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lresnet
from lresnet._json import parse_json
from lresnet._limits import LINE_BYTES

__all__ = ["append_result", "environment", "read_results"]


@functools.cache
def environment(device: str = "cpu") -> dict[str, Any]:
    """Return the versions and the hardware of ``device`` that every result line records."""
    import torch

    hardware = torch.cuda.get_device_name(device) if device.startswith("cuda") else f"CPU, {platform.machine()}"
    versions = {"lresnet": lresnet.__version__, "torch": torch.__version__, "python": platform.python_version()}
    return {"versions": versions, "hardware": hardware}


def append_result(path: Path, record: dict[str, Any]) -> None:
    """Append one line, complete or not at all: one write, then a flush to disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record, allow_nan=False) + "\n"
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        end = os.lseek(handle, 0, os.SEEK_END)
        incomplete = end > 0 and os.pread(handle, 1, end - 1) != b"\n"  # do not append to a line that was cut off
        os.write(handle, (b"\n" if incomplete else b"") + line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def read_results(path: Path) -> Iterator[dict[str, Any]]:
    """Yield every line of ``path``; none if the file does not exist. A warning names damaged lines."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        lines = iter(lambda: file.readline(LINE_BYTES), b"")  # a longer line becomes several, none of them a result
        number = 1
        for line in lines:
            problem, record = "", None
            try:
                record = parse_json(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                problem = f": byte {error.start + 1} of the line is not UTF-8"
            except json.JSONDecodeError:
                pass
            except ValueError as error:
                problem = f": {error}"
            if isinstance(record, dict):
                yield record
            else:
                warnings.warn(f"{path}:{number} is not a result and was skipped{problem}", stacklevel=2)
            number += line.endswith(b"\n")
