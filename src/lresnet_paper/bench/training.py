"""Trainings to be timed: prepared for single steps and epochs, and whole runs of ``lresnet train``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lresnet.data import ImageData, ImageSet, ImageTask
from lresnet.models import LorentzGCN, LorentzResNet, create_model
from lresnet.runs.config import RunConfig
from lresnet.runs.networks import build
from lresnet.runs.presets import run_config
from lresnet.runs.record import read_evaluation
from lresnet.train import (
    Augment,
    ImageClassification,
    StackedTrainingState,
    TrainConfig,
    TrainingState,
    fork_generator,
    seed_everything,
)
from lresnet_paper.bench.measurement import Measurement
from lresnet_paper.bench.timing import spread

__all__ = [
    "PART",
    "graph_run",
    "graph_training",
    "image_training",
    "measure_trainings",
    "stacked_trainings",
]

PART = "training and test"


def image_training(model: str, method: str, batch: int, images: int, device: torch.device) -> TrainingState[Any]:
    """Return the training of a ResNet with our recipe on ``images`` random images of 32 x 32."""
    seed_everything(0)
    network = create_model(model, residual=method, num_classes=10)
    if not isinstance(network, LorentzResNet):
        raise ValueError(f"{model} is not an image network; use lorentz_resnet18, lorentz_resnet20 or lorentz_resnet32")
    data = ImageData("random", _random_images(images), _random_images(10), tuple("0123456789"), (0.5,) * 3, (0.25,) * 3)
    augment = Augment(label_smoothing=0.1, cutout=8)
    objective = ImageClassification(ImageTask("random", data), batch_size=batch, augment=augment, device=device)
    config = TrainConfig(epochs=100, lr=0.05, optimizer="sgd", weight_decay=5e-4, decay="all", warmup=5, keep="last")
    return TrainingState(network.to(device), objective, config, "compiled")


def graph_run(cell: str, method: str, seed: int = 0) -> RunConfig:
    """Return a run with the settings chosen for the Lorentz residual, so that all networks have one depth and width."""
    run = run_config(cell, "lorentz")
    return replace(run, model=replace(run.model, residual=method), train=replace(run.train, seed=seed))


def graph_training(cell: str, method: str, device: torch.device) -> TrainingState[Any]:
    """Return the training of ``lorentz_gcn`` on the task ``cell``."""
    run = graph_run(cell, method)
    return TrainingState(*build(run, device), run.train, "compiled")


def stacked_trainings(cell: str, method: str, seeds: Sequence[int], device: torch.device) -> StackedTrainingState:
    """Return the trainings of several seeds of :func:`graph_training` as one computation."""
    models, objectives, generators = [], [], []
    config = TrainConfig()
    for seed in seeds:
        run = graph_run(cell, method, seed)
        config = run.train
        model, objective = build(run, device)
        if not isinstance(model, LorentzGCN):
            raise ValueError(f"{cell} is not a graph task; use e.g. disease/lp")
        models.append(model)
        objectives.append(objective)
        generators.append(fork_generator(device))
    return StackedTrainingState(models, objectives, config, generators, "fast")


def measure_trainings(
    images: str, recipes: Sequence[str], methods: Sequence[str], epochs: int, model: str, device: torch.device
) -> list[Measurement]:
    """Time ``lresnet train --test`` on all training images for each recipe and method, one after the other.

    The time is wall-clock time, from the command to the test accuracy. Each training runs in a fresh process with
    empty compiler caches, as on a new machine.

    Raises:
        ValueError: a training failed; the message is its last line.
    """
    return [_measure(images, recipe, method, epochs, model, device) for recipe in recipes for method in methods]


def _measure(images: str, recipe: str, method: str, epochs: int, model: str, device: torch.device) -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        words = ["train", images, "--recipe", recipe, "--method", method, "--epochs", str(epochs), "--model", model]
        words += ["--holdout", "0", "--test", "--device", str(device), "--out", str(run)]
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "lresnet", *words], env=os.environ | caches, capture_output=True, text=True
        )
        seconds = time.perf_counter() - started
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.strip()]
            reason = errors[-1] if errors else f"exit code {done.returncode} without a message"
            raise ValueError(f"`lresnet {' '.join(words)}` failed: {reason}")
        record = read_evaluation(run)
    if record is None or record.value is None or record.seconds is None:
        raise ValueError(f"`lresnet {' '.join(words)}` wrote no test accuracy")
    figures = {"accuracy": record.value, "training_seconds": record.seconds, "epochs": epochs}
    form = f"{recipe}, batch {record.train['batch_size']}"
    facts = {"clock": "wall", "model": model, "seed": record.seed, "caches": "empty"}
    return Measurement(
        "training", f"{images}, {epochs} epochs", method, form, PART, spread([seconds]), figures, {}, facts
    )


def _random_images(count: int) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8, generator=generator)
    return ImageSet(pixels, torch.randint(0, 10, (count,), generator=generator))
