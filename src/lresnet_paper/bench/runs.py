"""Trainings, ready to be timed step by step: the engine's own, on random images or on the tasks of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from lresnet.data import ImageData, ImageSet
from lresnet.models import LorentzGCN, LorentzResNet, create_model
from lresnet.models.pretrained import Pretrained
from lresnet.runs.single import single_run
from lresnet.train import Augment, ImageClassification, Objective, TrainConfig, own_generator, seed_everything

# A benchmark looks into the engine: train_model() has no name for a single epoch, and must not need one.
from lresnet.train.engine import _optimizers, _Run
from lresnet.train.engine import _tried_convolutions as tried_convolutions
from lresnet.train.stacking.engine import _StackedRun
from lresnet_paper.run import Run, build

__all__ = [
    "engine_run",
    "graph_run",
    "graph_training",
    "image_training",
    "stacked_trainings",
    "tried_convolutions",
]


def image_training(model: str, method: str, batch: int, images: int, device: torch.device) -> _Run[Any]:
    """A ResNet on ``images`` random images of 32 x 32, trained as our recipe does it."""
    seed_everything(0)
    network = create_model(model, residual=method, num_classes=10)
    if not isinstance(network, LorentzResNet):
        raise ValueError(f"{model} is no network for images; take lorentz_resnet18, 20 or 32")
    data = ImageData("random", _images(images), _images(10), tuple("0123456789"), (0.5,) * 3, (0.25,) * 3)
    objective = ImageClassification(
        data, batch_size=batch, augment=Augment(label_smoothing=0.1, cutout=8), device=device
    )
    schedule = TrainConfig(epochs=100, lr=0.05, optimizer="sgd", weight_decay=5e-4, decay="all", warmup=5, keep="last")
    return engine_run(network.to(device), objective, schedule)


def graph_run(cell: str, method: str, seed: int = 0) -> Run:
    """What the recipe chose for the Lorentz residual, for every method: networks of one depth and width."""
    return replace(single_run(cell, "lorentz"), method=method, seed=seed)


def graph_training(cell: str, method: str, device: torch.device) -> _Run[Any]:
    """``lorentz_gcn`` on the task of ``cell``."""
    return engine_run(*build(graph_run(cell, method), device))


def engine_run(model: Pretrained, objective: Objective[Any], schedule: TrainConfig) -> _Run[Any]:
    """As the engine begins it in a run that is long, or one of many."""
    return _Run(model, objective, schedule, _optimizers(model, schedule), "compiled")


def stacked_trainings(cell: str, method: str, seeds: Sequence[int], device: torch.device) -> _StackedRun:
    """The same with several seeds, as one computation."""
    models, objectives, generators = [], [], []
    schedule = TrainConfig()
    for seed in seeds:
        model, objective, schedule = build(graph_run(cell, method, seed), device)
        if not isinstance(model, LorentzGCN):
            raise ValueError(f"{cell} is no task of graphs; take e.g. disease/lp")
        models.append(model)
        objectives.append(objective)
        generators.append(own_generator(device))
    return _StackedRun(models, objectives, schedule, generators, "fast")


def _images(count: int) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8, generator=generator)
    return ImageSet(pixels, torch.randint(0, 10, (count,), generator=generator))
