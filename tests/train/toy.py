"""An objective of one's own for the engine's tests: a straight line, scripted validation figures, no test set."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lresnet.train import Objective


class Line(Objective[torch.nn.Module]):
    """Fit y = x1 - 2 x2 from points drawn afresh every step.

    ``figures`` are what validation answers, look after look; without them it is minus the distance to the solution.
    """

    def __init__(self, figures: Iterable[float] | None = None, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.figures = None if figures is None else iter(figures)
        self.losses: list[float] = []
        self.looks: list[dict[str, Tensor]] = []

    def loss(self, model: torch.nn.Module) -> Tensor:
        assert model.training
        x = torch.randn(8, 2, generator=self.generator)
        loss = (model(x).squeeze(-1) - (x[:, 0] - 2 * x[:, 1])).square().mean()
        self.losses.append(float(loss.detach()))
        return loss

    def validation(self, model: torch.nn.Module) -> Tensor:
        assert not model.training
        assert not torch.is_grad_enabled()
        self.looks.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        if self.figures is not None:
            return torch.tensor(next(self.figures), dtype=torch.float64)
        x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        return -(model(x).squeeze(-1) - torch.tensor([1.0, -2.0])).norm()

    def test(self, model: torch.nn.Module) -> dict[str, float]:
        raise AssertionError("the engine must not read the test set")

    @property
    def generators(self) -> list[torch.Generator]:
        return [self.generator]


def network(seed: int = 0, dropout: float = 0.0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Dropout(dropout), torch.nn.Linear(6, 1))
