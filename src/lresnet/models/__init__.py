"""Whole networks: ``create_model(name, ...)``, ``save_pretrained`` and ``from_pretrained``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lresnet.models import pretrained
from lresnet.models.gcn import LorentzGCN
from lresnet.models.mlp import LorentzMLP
from lresnet.models.pretrained import Pretrained

__all__ = ["MODELS", "LorentzGCN", "LorentzMLP", "create_model", "from_pretrained"]

MODELS: dict[str, Callable[..., Pretrained]] = {model.model_name: model for model in (LorentzGCN, LorentzMLP)}


def create_model(name: str, residual: str = "lorentz", curvature: float = -1.0, **config: Any) -> Pretrained:
    """Build a model by name: one of :data:`MODELS`.

    Example:
        >>> model = create_model("lorentz_gcn", residual="space", in_features=8, num_classes=3)
    """
    return pretrained.build(MODELS, name, residual=residual, curvature=curvature, **config)


def from_pretrained(folder: str | Path, device: torch.device | str = "cpu") -> Pretrained:
    """Read a model that ``model.save_pretrained(folder)`` wrote."""
    return pretrained.from_pretrained(MODELS, folder, device)
