"""The NaN sentry: says at which step and in which module a number stopped being finite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lresnet.train.distributed import ALONE, Team

__all__ = ["NonFiniteError", "Sentry", "blame", "non_finite_loss", "out_of_range"]

_ADVICE = "Lower the learning rate, clip gradients, or check the features"
_LOSS_ITSELF = "all parameters and module outputs are finite, so it is the loss function itself"


class NonFiniteError(RuntimeError):
    """A loss, activation or parameter is NaN, infinite, or out of its range."""


class Sentry:
    """Watches losses without reading them: the first bad step is kept on the device until :meth:`check`.

    All of its state is on the device and changes in place, so that a recorded step can hold the watching too.
    """

    def __init__(self, device: torch.device) -> None:
        self._first = torch.full((), -1, dtype=torch.int64, device=device)
        self._step = torch.zeros((), dtype=torch.int64, device=device)

    def start(self, step: int) -> None:
        """The next loss is that of ``step``; without this, of step 0."""
        self._step.fill_(step)

    def watch(self, loss: Tensor) -> None:
        """Remember the step if ``loss`` is the first that is not finite. Does not synchronise."""
        bad = ~torch.isfinite(loss.detach()) & (self._first < 0)
        self._first.copy_(torch.where(bad, self._step, self._first))
        self._step.add_(1)

    def check(self, model: torch.nn.Module, forward: Callable[[], Any], team: Team = ALONE) -> None:
        """Raise if a watched loss was not finite, naming the module. Synchronises.

        A ``team`` has watched the mean of its losses, and raises as one: the fault may be in the share of any of it.
        """
        step = int(self._first)
        if step >= 0:
            raise non_finite_loss(model, forward, step, team)

    @staticmethod
    def check_parameters(model: torch.nn.Module, step: int) -> None:
        """Raise if a parameter is not finite. Synchronises."""
        names, parameters = zip(*model.named_parameters(), strict=True)
        finite = torch.stack([parameter.detach().isfinite().all() for parameter in parameters])
        if not bool(finite.all()):
            name = names[int(finite.int().argmin())]
            raise NonFiniteError(f"parameter {name!r} is not finite at step {step}. {_ADVICE}")


def non_finite_loss(
    model: torch.nn.Module, forward: Callable[[], Any], step: int, team: Team = ALONE
) -> NonFiniteError:
    """The error to raise for a loss that was not finite at ``step``, naming the module."""
    found = [words for words in team.all(blame(model, forward)) if words != _LOSS_ITSELF]
    return NonFiniteError(f"the loss stopped being finite at step {step}: {(found or [_LOSS_ITSELF])[0]}. {_ADVICE}")


def out_of_range(error: ValueError, step: int) -> NonFiniteError:
    """The error to raise for a check of values that fails at ``step`` and had passed before: the run has diverged."""
    value = str(error).partition(". ")[0]  # what follows is for callers who chose the value
    return NonFiniteError(f"the run has diverged at step {step}: {value}. {_ADVICE}")


def blame(model: torch.nn.Module, forward: Callable[[], Any]) -> str:
    """The first parameter or module output that is not finite, in words; ``forward`` runs the model once."""
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"parameter {name!r} is not finite"
    found: list[str] = []

    def hook(name: str) -> Callable[..., None]:
        def look(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
                found.append(f"the output of module {name!r} ({type(module).__name__}) is not finite")

        return look

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules() if name]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else _LOSS_ITSELF
