"""Helpers of the model tests: small graphs, and the residual connections of the models."""

from __future__ import annotations

import torch
from torch import Tensor

NODES, FEATURES, CLASSES = 14, 6, 3
# Without the textbook forms, which are NaN at the origin.
RESIDUALS = ("lorentz", "parallel_transport", "parallel_transport_reversed", "tangent", "space", "none", "euclidean")


def parameters_of(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict without fixed curvatures, to load it into a network of another curvature."""
    return {name: tensor for name, tensor in state.items() if not name.endswith("_extra_state")}


def features(dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Return features with some zeros; row 5 is all zeros."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(NODES, FEATURES, generator=g) * (torch.rand(NODES, FEATURES, generator=g) < 0.6)
    x[5] = 0
    return x.to(dtype)


def graph(seed: int = 1) -> tuple[Tensor, Tensor]:
    """Return a directed, weighted graph; node 13 is isolated."""
    g = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(NODES - 1, (2, 40), generator=g)
    return edge_index, 0.1 + torch.rand(40, generator=g)
