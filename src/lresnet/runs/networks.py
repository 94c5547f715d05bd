"""Networks of runs: built from a configuration with the sizes of the task, or checked against it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import torch

from lresnet.data import ImageTask, Task, TextTask
from lresnet.data.torch_dataset import DatasetTask
from lresnet.models import MODELS, create_model
from lresnet.models.pretrained import Pretrained
from lresnet.runs.config import RunConfig, given_fields, require_network_for
from lresnet.runs.model_config import MODEL_CONFIGS, ModelConfig, ResNetConfig
from lresnet.runs.names import require_known
from lresnet.runs.own_network import describe_network, require_logits
from lresnet.runs.tasks import load
from lresnet.runs.text import require_token_logits
from lresnet.train import Objective, make_objective, seed_everything

__all__ = ["LARGE_IMAGES", "build", "build_model", "network_of", "stem_of_size", "with_stem"]

LARGE_IMAGES = 96
"""Shorter side in pixels from which images get the ImageNet stem.

The last stage sees an image of side s with s/32 pixels per side behind the ImageNet stem, and with s/8 behind the CIFAR
stem, whose blocks cost 16 times as much. ResNets were designed for 7 pixels there (224 / 32), and the CIFAR variant for
4 (32 / 8). On a logarithmic scale, s/32 is as near to a target t as s/8 at s = 16 t: 64 pixels for t = 4, 112 for
t = 7. At 96, in between, the ImageNet stem leaves 3 pixels, so that a 3 x 3 convolution still has a pixel without
padding, and the CIFAR stem makes a ResNet-18 cost 5.0 GMAC, where the usual one at 224 pixels costs 1.8.
"""


def stem_of_size(height: int, width: int) -> str:
    """Return the stem for images of this size.

    Example:
        >>> stem_of_size(224, 224), stem_of_size(32, 32), stem_of_size(64, 512)
        ('imagenet', 'cifar', 'cifar')
    """
    return "imagenet" if min(height, width) >= LARGE_IMAGES else "cifar"


def with_stem(config: ModelConfig, task: Task) -> ModelConfig:
    """Return the configuration of a ResNet with the stem for the task's images; a stem that is given stays.

    The usual stem of a network stays None, so that runs of earlier versions are found again.
    """
    if not isinstance(config, ResNetConfig) or config.stem is not None:
        return config
    if isinstance(task, DatasetTask) and len(task.form.shape) == 3:
        height, width = task.form.shape[1:]
    elif isinstance(task, ImageTask):
        images = task.data.train
        height, width, *_ = images.shape if hasattr(images, "shape") else images.images.shape[1:]
    else:
        return config
    stem = stem_of_size(height, width)
    return config if stem == config.usual_stem else dataclasses.replace(config, stem=stem)  # type: ignore[arg-type]


def build(config: RunConfig, device: torch.device | str = "cpu") -> tuple[Pretrained, Objective[Any]]:
    """Return the model and the objective of a run, ready to train; the seed decides the parameters."""
    task = load(config.task, config.train.seed)
    seed_everything(config.train.seed)
    model = build_model(config.model, task, device)
    return model, make_objective(task, config.train, device)


def build_model(config: ModelConfig, task: Task, device: torch.device | str = "cpu") -> Pretrained:
    """Build the network of a configuration with the sizes that the task needs. Torch's generator decides its weights.

    Example:
        >>> from lresnet.data import load_task
        >>> from lresnet.runs import GCNConfig
        >>> build_model(GCNConfig("lorentz_gcn"), load_task("disease_tree/nc")).config["num_classes"]
        2
    """
    config = with_stem(config, task)
    return create_model(config.name, **config.arguments(), **task.model_sizes()).to(device)


def network_of(
    model: torch.nn.Module | ModelConfig | str, task: Task, seed: int, device: torch.device
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Return the model on its device, built from its configuration if needed, and describe it for ``run.json``."""
    if isinstance(model, str):
        require_known("model", model, MODEL_CONFIGS)
        model = MODEL_CONFIGS[model](model)
    if isinstance(model, ModelConfig):
        require_network_for(task.data_kind, model.name, task.name)
        model = with_stem(model, task)
        seed_everything(seed)
        return build_model(model, task, device), given_fields(model)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            "fit takes a model of lresnet.create_model, its configuration or its name, or a torch.nn.Module, "
            f"got {type(model).__name__}"
        )
    if not isinstance(model, Pretrained):
        if isinstance(task, TextTask):
            require_token_logits(model, task, device)
        else:
            require_logits(model, task)
        return model.to(device), describe_network(model)
    config = json.loads(json.dumps(model.config))
    if config["model"] in MODELS:
        require_network_for(task.data_kind, config["model"], task.name)
    if task.data_kind == "graphs":  # the other objectives look at the model
        _require_sizes(config, task)
    return model.to(device), {"name": config.pop("model"), "from": "python"} | config


def _require_sizes(config: Mapping[str, Any], task: Task) -> None:
    """Raise an error if a model was built for other sizes than those of the task."""
    for name, size in task.model_sizes().items():
        if size is not None and config.get(name, size) != size:
            raise ValueError(
                f"the model has {name}={config[name]}, but {task.name} needs {size}; build it with {name}={size}"
            )
