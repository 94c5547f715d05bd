"""Detection of NaN and infinity in training: at which step, and in which module or parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lresnet.train.distributed import ONE_PROCESS, Processes

__all__ = [
    "NonFiniteCheck",
    "NonFiniteError",
    "check_parameters",
    "describe_non_finite",
    "diverged",
    "non_finite_loss",
]

_ADVICE = "Lower the learning rate, clip gradients, or check the features"
_LOSS_ITSELF = "all parameters and module outputs are finite, so the loss function itself is not"


class NonFiniteError(RuntimeError):
    """A loss, activation or parameter is NaN, infinite, or out of its range."""


class NonFiniteCheck:
    """A record of the first step whose loss is not finite, kept on the device until :meth:`raise_if_found` reads it.

    Its tensors change in place, so a captured step can contain :meth:`record`.
    """

    def __init__(self, device: torch.device) -> None:
        self._first = torch.full((), -1, dtype=torch.int64, device=device)
        self._step = torch.zeros((), dtype=torch.int64, device=device)

    def start(self, step: int) -> None:
        """Set the number of the next step; without this call it is 0."""
        self._step.fill_(step)

    def record(self, loss: Tensor) -> None:
        """Record the step if ``loss`` is the first one that is not finite. Does not synchronise."""
        bad = ~torch.isfinite(loss.detach()) & (self._first < 0)
        self._first.copy_(torch.where(bad, self._step, self._first))
        self._step.add_(1)

    def raise_if_found(
        self, model: torch.nn.Module, forward: Callable[[], Any], processes: Processes = ONE_PROCESS
    ) -> None:
        """Raise if a recorded loss was not finite, naming the module. Synchronises.

        Several processes record the mean of their losses and raise together; the cause may be in any of their shares.

        Raises:
            NonFiniteError: with the step and the first parameter or module that is not finite.
        """
        step = int(self._first)
        if step >= 0:
            raise non_finite_loss(model, forward, step, processes)


def check_parameters(model: torch.nn.Module, step: int) -> None:
    """Check that all parameters are finite. Synchronises.

    Raises:
        NonFiniteError: with the name of the first parameter that is not.
    """
    names, parameters = zip(*model.named_parameters(), strict=True)
    finite = torch.stack([parameter.detach().isfinite().all() for parameter in parameters])
    if not bool(finite.all()):
        name = names[int(finite.int().argmin())]
        raise NonFiniteError(f"parameter {name!r} is not finite at step {step}. {_ADVICE}")


def non_finite_loss(
    model: torch.nn.Module, forward: Callable[[], Any], step: int, processes: Processes = ONE_PROCESS
) -> NonFiniteError:
    """Return the error for a loss that was not finite at ``step``, naming the module."""
    causes = [cause for cause in processes.gather(describe_non_finite(model, forward)) if cause != _LOSS_ITSELF]
    return NonFiniteError(f"the loss stopped being finite at step {step}: {(causes or [_LOSS_ITSELF])[0]}. {_ADVICE}")


def diverged(error: ValueError, step: int) -> NonFiniteError:
    """Return the error for a range check that fails at ``step`` after it had passed: the run has diverged."""
    value = str(error).partition(". ")[0]  # the rest advises callers who chose the value themselves
    return NonFiniteError(f"the run has diverged at step {step}: {value}. {_ADVICE}")


def describe_non_finite(model: torch.nn.Module, forward: Callable[[], Any]) -> str:
    """Describe the first parameter or module output that is not finite; ``forward`` runs the model once."""
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"parameter {name!r} is not finite"
    found: list[str] = []

    def make_hook(name: str) -> Callable[..., None]:
        def hook(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            if not found and isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
                found.append(f"the output of module {name!r} ({type(module).__name__}) is not finite")

        return hook

    handles = [module.register_forward_hook(make_hook(name)) for name, module in model.named_modules() if name]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else _LOSS_ITSELF
