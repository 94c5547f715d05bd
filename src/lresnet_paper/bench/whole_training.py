"""A whole training by the clock on the wall: from the command to the test figure, in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.rounds import spread

__all__ = ["PART", "measure_trainings"]

PART = "training and test"


def measure_trainings(
    images: str, recipes: Sequence[str], methods: Sequence[str], epochs: int, model: str, device: torch.device
) -> list[Measurement]:
    """``lresnet train --test`` on all training images, for each recipe and method, one after the other.

    What is compiled is compiled anew each time, as on a machine that has never run it.

    Raises:
        ValueError: a training ended with an error; its last words are said.
    """
    return [_measure(images, recipe, method, epochs, model, device) for recipe in recipes for method in methods]


def _measure(images: str, recipe: str, method: str, epochs: int, model: str, device: torch.device) -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = ["train", images, "--recipe", recipe, "--method", method, "--epochs", str(epochs), "--model", model]
        words += ["--holdout", "0", "--test", "--device", str(device), "--out", str(run)]
        # The caches of torch's compiler and of Triton's; neither holds anything yet.
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "lresnet", *words], env=os.environ | caches, capture_output=True, text=True
        )
        seconds = time.perf_counter() - started
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise ValueError(f"`lresnet {' '.join(words)}` ended with an error: {said[-1] if said else 'no word'}")
        record: dict[str, Any] = json.loads((run / "evaluation.json").read_text())
    figures = {"accuracy": record["value"], "training_seconds": record["seconds"], "epochs": epochs}
    form = f"{recipe}, batch {record['config']['batch_size']}"
    facts = {"clock": "wall", "model": model, "seed": record["seed"], "caches": "empty"}
    return Measurement(
        "training", f"{images}, {epochs} epochs", method, form, PART, spread([seconds]), figures, {}, facts
    )
