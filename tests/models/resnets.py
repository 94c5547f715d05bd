"""Helpers of the ResNet tests: small networks and images."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lresnet.models import LorentzResNet
from tests.models.common import RESIDUALS

every_residual = pytest.mark.parametrize("residual", RESIDUALS)


def make(residual: str = "lorentz", depth: int = 8, **options: object) -> LorentzResNet:
    torch.manual_seed(0)
    return LorentzResNet(depth, residual=residual, **{"num_classes": 4} | options)


def images(batch: int = 4, height: int = 8, width: int = 8, seed: int = 1) -> Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(seed))


def trained(model: LorentzResNet) -> LorentzResNet:
    """Change parameters and running statistics from their initial values, and return the model in evaluation."""
    torch.manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
        model.train()(images())
    return model.eval()


def backward(model: LorentzResNet, x: Tensor) -> Tensor:
    loss = cross_entropy(model(x), torch.arange(len(x)) % 4)
    loss.backward()
    return loss
