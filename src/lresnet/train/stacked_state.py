"""What is known of each of S runs, on the device: figures, and whether its numbers are finite."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

__all__ = ["Seen", "StackState"]


class Seen(NamedTuple):
    """A look's result on the host, one number for each run."""

    best_epoch: list[float]
    finite_steps: list[float]
    finite: list[bool]
    finite_parameters: list[bool]
    figures: list[float]


class StackState:
    """What is known of each run, in tensors [S] that stay where they are."""

    def __init__(self, members: int, device: torch.device) -> None:
        self.best = torch.full((members,), -math.inf, dtype=torch.float64, device=device)
        """Best validation figure, percent."""
        self.figures = torch.zeros_like(self.best)
        """Those of the last look."""
        self.best_epoch = torch.zeros_like(self.best)
        self.epoch = torch.zeros((), dtype=torch.float64, device=device)
        self.counts = torch.ones(members, dtype=torch.bool, device=device)
        """Whether the run goes on."""
        self.finite = torch.ones_like(self.counts)
        """Whether all losses so far were finite."""
        self.finite_steps = torch.zeros_like(self.best)
        """How many steps had been taken when one was not."""
        self.finite_parameters = torch.ones_like(self.counts)

    def watch(self, losses: Tensor) -> None:
        """Remember which losses are not finite. Does not synchronise, and can be recorded."""
        # x - x is 0 for finite numbers only: half the kernels of isfinite.
        self.finite.logical_and_(losses - losses == 0)
        self.finite_steps.add_(self.finite)

    def compare(self, figures: Tensor, finite_parameters: Tensor, keep: Literal["best", "last"]) -> Tensor:
        """In which runs ``figures`` are the best so far; they are remembered."""
        self.finite_parameters.copy_(finite_parameters)
        self.figures.copy_(figures)
        better = self.counts & self.finite & finite_parameters
        if keep == "best":
            better = better & (figures > self.best)
        self.best.copy_(torch.where(better, figures, self.best))
        self.best_epoch.copy_(torch.where(better, self.epoch, self.best_epoch))
        return better

    def read(self) -> Seen:
        """One copy from the device. Synchronises."""
        known = self.best_epoch, self.finite_steps, self.finite, self.finite_parameters, self.figures
        rows = torch.stack(known).tolist()
        return Seen(rows[0], rows[1], list(map(bool, rows[2])), list(map(bool, rows[3])), rows[4])
