"""Runs on images: classification with the ResNets."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from lresnet.data import ImageData, load_images
from lresnet.models import LorentzResNet, create_model
from lresnet.studies.settings import IMAGE_OBJECTIVE, IMAGE_TASK, SCHEDULE, own_residual_options, take
from lresnet.train import ImageClassification, Schedule, seed_everything
from lresnet.train.team import ALONE, Team

if TYPE_CHECKING:
    from lresnet.studies.run import Run

__all__ = ["build_image_run", "image_data", "images_of"]

_DEFAULT_MODEL = "lorentz_resnet18"


def build_image_run(
    run: Run, device: torch.device | str, team: Team = ALONE
) -> tuple[LorentzResNet, ImageClassification, Schedule]:
    """The model, the objective and the schedule; the model's parameters follow the seed.

    Options that a residual does not have (a weight of parallel transport) are passed over: the configurations of a
    search are the same for all methods. The twin has a curvature too, which nothing reads but a head or pooling that
    is asked for.
    """
    data, config = image_data(images_of(run), run.config.get("size")), dict(run.config)
    take(config, IMAGE_TASK)
    schedule, options = Schedule(**take(config, SCHEDULE)), take(config, IMAGE_OBJECTIVE)
    own = own_residual_options(run.method, config)
    seed_everything(run.seed)
    model = create_model(
        config.pop("model", _DEFAULT_MODEL),
        residual=run.method,
        residual_options=own,
        num_classes=len(data.classes),
        in_channels=data.train.images.shape[-1],
        **config,
    )
    if not isinstance(model, LorentzResNet):
        raise ValueError(f"{model.config['model']} is no network for images; take lorentz_resnet18, 20 or 32")
    return model.to(device), ImageClassification(data, seed=run.seed, device=device, team=team, **options), schedule


def images_of(run: Run) -> str:
    """The images that ``run`` trains on: of ``cifar10/svhn/r20`` in the table ``ood``, cifar10."""
    return run.cell.split("/")[0] if run.table == "ood" else run.cell


@functools.lru_cache(maxsize=2)
def image_data(name: str, size: int | None = None) -> ImageData:
    """The images called ``name``; a run that comes next with the same ones finds them in memory."""
    return load_images(name, size=size)
