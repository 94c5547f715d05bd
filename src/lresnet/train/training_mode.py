"""Train mode of a model, of which frozen parts stay in eval mode."""

from __future__ import annotations

import torch

__all__ = ["frozen_parts", "start_training"]


def frozen_parts(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the frozen parts of a model: modules whose parameters all have ``requires_grad=False``.

    Training keeps them in eval mode as a whole: batch norms keep their statistics, and there is no dropout. A module
    without parameters follows the module that contains it.

    Example:
        >>> net = torch.nn.Sequential(torch.nn.BatchNorm1d(3).requires_grad_(False), torch.nn.Linear(3, 2))
        >>> [type(part).__name__ for part in frozen_parts(net)]
        ['BatchNorm1d']
    """
    frozen = []
    for module in model.modules():
        parameters = list(module.parameters())
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            frozen.append(module)
    return frozen


def start_training(model: torch.nn.Module) -> None:
    """Put the model in train mode, except its frozen parts."""
    model.train()
    for part in frozen_parts(model):
        part.eval()
