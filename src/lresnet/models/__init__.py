"""Whole networks: ``create_model(name, ...)``, ``save_pretrained`` and ``from_pretrained``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lresnet.models import pretrained
from lresnet.models.gcn import LorentzGCN
from lresnet.models.mlp import LorentzMLP
from lresnet.models.pretrained import Pretrained
from lresnet.models.resnet import LorentzResNet
from lresnet.models.sgformer import LorentzSGFormer

__all__ = [
    "MODELS",
    "LorentzGCN",
    "LorentzMLP",
    "LorentzResNet",
    "LorentzSGFormer",
    "create_model",
    "from_pretrained",
]

MODELS: dict[str, Callable[..., Pretrained]] = {
    LorentzGCN.model_name: LorentzGCN,
    LorentzMLP.model_name: LorentzMLP,
    LorentzResNet.model_name: LorentzResNet,
    LorentzSGFormer.model_name: LorentzSGFormer,
    **{f"{LorentzResNet.model_name}{depth}": partial(LorentzResNet, depth) for depth in (18, 20, 32)},
}


def create_model(name: str, residual: str = "lorentz", curvature: float | None = None, **config: Any) -> Pretrained:
    """Build a model by name: one of :data:`MODELS`.

    Args:
        residual: a name of :data:`lresnet.residual.RESIDUALS`.
        curvature: K < 0. None: the model's own default, -1 for graphs and vectors, -0.02 for images.
        config: the other arguments of the model's class.

    Example:
        >>> model = create_model("lorentz_gcn", residual="space", in_features=8, num_classes=3)
    """
    if curvature is not None:
        config["curvature"] = curvature
    return pretrained.build(MODELS, name, residual=residual, **config)


def from_pretrained(folder: str | Path, device: torch.device | str = "cpu") -> Pretrained:
    """Read a model that ``model.save_pretrained(folder)`` wrote."""
    return pretrained.from_pretrained(MODELS, folder, device)
