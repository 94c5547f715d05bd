"""Runs on images: classification with the ResNets."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import torch

from lresnet.data import ImageData, load_images
from lresnet.models import LorentzResNet, create_model
from lresnet.residual.registry import residual_options
from lresnet.studies.settings import IMAGE_OBJECTIVE, RESIDUAL, SCHEDULE, take
from lresnet.train import ImageClassification, Schedule, seed_everything

if TYPE_CHECKING:
    from lresnet.studies.run import Run

__all__ = ["Networks", "build_image_run", "image_data"]

_DEFAULT_MODEL = "lorentz_resnet18"


class Networks:
    """Networks to use again: what torch compiled for one serves every later run of the same architecture.

    Compiling takes half a minute, as long as training thirty epochs; loading other parameters takes none.
    """

    def __init__(self) -> None:
        self._kept: dict[str, LorentzResNet] = {}

    def filled(self, fresh: LorentzResNet, device: torch.device | str) -> LorentzResNet:
        """A network on ``device`` with the parameters of ``fresh``; whoever held it before must be done with it."""
        kept = self._kept.setdefault(json.dumps(fresh.config, sort_keys=True), fresh)
        if kept is fresh:
            return fresh.to(device)
        kept.load_state_dict(fresh.state_dict())
        return kept


def build_image_run(
    run: Run, device: torch.device | str, networks: Networks | None = None
) -> tuple[LorentzResNet, ImageClassification, Schedule]:
    """The model, the objective and the schedule; the model's parameters follow the seed.

    Settings that a method does not have (a weight of parallel transport, the twin's curvature) are passed over: the
    configurations of a search are the same for all methods.
    """
    data, config = image_data(run.cell), dict(run.config)
    schedule, options = Schedule(**take(config, SCHEDULE)), take(config, IMAGE_OBJECTIVE)
    own = {name: value for name, value in take(config, RESIDUAL).items() if name in residual_options(run.method)}
    if run.method == "euclidean":
        take(config, ("curvature", "learn_curvature"))  # unused there, and networks that are alike can be shared
    seed_everything(run.seed)
    model = create_model(
        config.pop("model", _DEFAULT_MODEL),
        residual=run.method,
        residual_options=own or None,
        num_classes=len(data.classes),
        in_channels=data.train.images.shape[-1],
        **config,
    )
    if not isinstance(model, LorentzResNet):
        raise ValueError(f"{model.config['model']} is no network for images; take lorentz_resnet18, 20 or 32")
    model = model.to(device) if networks is None else networks.filled(model, device)
    return model, ImageClassification(data, seed=run.seed, device=device, **options), schedule


@functools.lru_cache(maxsize=2)
def image_data(name: str) -> ImageData:
    """The images called ``name``; a run that comes next with the same ones finds them in memory."""
    return load_images(name)
