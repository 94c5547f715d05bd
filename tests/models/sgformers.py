"""Helpers of the SGFormer tests: small networks and their configurations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lresnet.models import LorentzSGFormer
from tests.models.common import CLASSES, FEATURES, RESIDUALS

CASES = [(kind, "euclidean") for kind in RESIDUALS] + [(kind, "lorentz") for kind in RESIDUALS if kind != "euclidean"]
every_case = pytest.mark.parametrize(("residual", "branches"), CASES)
one_graph = pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's tracer
both_branches = pytest.mark.parametrize("branches", ["euclidean", "lorentz"])


def make(residual: str = "lorentz", **options: object) -> LorentzSGFormer:
    torch.manual_seed(0)
    sizes = {"in_features": FEATURES, "hidden": 5, "num_classes": CLASSES, "attention_layers": 2, "heads": 2}
    return LorentzSGFormer(**sizes | {"residual": residual} | options)


def no_dropout(x: Tensor) -> Tensor:
    return x
