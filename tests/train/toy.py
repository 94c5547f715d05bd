"""A small objective for the tests of the engine: a straight line, given validation scores, no test set."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lresnet.train import Objective


class Line(Objective[torch.nn.Module]):
    """Fit y = x1 - 2 x2 to points drawn anew at every step.

    ``scores`` are the results of the validation passes; the default is minus the distance to the solution.
    """

    def __init__(self, scores: Iterable[float] | None = None, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.scores = None if scores is None else iter(scores)
        self.losses: list[float] = []
        self.passes: list[dict[str, Tensor]] = []

    def loss(self, model: torch.nn.Module) -> Tensor:
        assert model.training
        x = torch.randn(8, 2, generator=self.generator)
        loss = (model(x).squeeze(-1) - (x[:, 0] - 2 * x[:, 1])).square().mean()
        self.losses.append(float(loss.detach()))
        return loss

    def validation(self, model: torch.nn.Module) -> Tensor:
        assert not model.training
        assert not torch.is_grad_enabled()
        self.passes.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        if self.scores is not None:
            return torch.tensor(next(self.scores), dtype=torch.float64)
        x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        return -(model(x).squeeze(-1) - torch.tensor([1.0, -2.0])).norm()

    def validation_with_loss(self, model: torch.nn.Module) -> tuple[Tensor, Tensor]:
        """The score of :meth:`validation`, and ten times the distance to the solution as the loss."""
        x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        loss = 10 * (model(x).squeeze(-1) - torch.tensor([1.0, -2.0])).norm()
        return self.validation(model), loss

    def test(self, model: torch.nn.Module) -> dict[str, float]:
        raise AssertionError("the engine must not read the test set")

    @property
    def generators(self) -> list[torch.Generator]:
        return [self.generator]


def network(seed: int = 0, dropout: float = 0.0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Dropout(dropout), torch.nn.Linear(6, 1))
