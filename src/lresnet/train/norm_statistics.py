"""Statistics of batch norms for evaluation, re-estimated without dropout, and which norms have them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from lresnet.train.training_mode import start_training

__all__ = ["reestimate_statistics", "running_statistics", "tracking_norms"]


def tracking_norms(model: torch.nn.Module) -> list[_BatchNorm]:
    """Return the batch norms that normalise by the batch in training and by running statistics in evaluation.

    Frozen norms are not among them: they normalise by running statistics in training too.

    Example:
        >>> net = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3).requires_grad_(False))
        >>> len(tracking_norms(net))
        1
    """
    with _same_modes(model):
        start_training(model)
        return [
            module
            for module in model.modules()
            if isinstance(module, _BatchNorm) and module.training and module.num_batches_tracked is not None
        ]


def running_statistics(norms: Iterable[_BatchNorm]) -> list[Tensor]:
    """Return the running means and variances of the norms."""
    buffers = [buffer for norm in norms for buffer in (norm.running_mean, norm.running_var)]
    return [buffer for buffer in buffers if buffer is not None]


def reestimate_statistics(model: torch.nn.Module, forward: Callable[[], object]) -> None:
    r"""Replace the running statistics of batch norms by those of training inputs without dropout.

    In training a norm sees activations behind dropout, which multiplies their mean square by up to 1 / (1 - rate). A
    hyperbolic operation is not linear in the length of its input, so that mean and variance behind it are other ones
    without dropout. Whether evaluation is better with these depends on the network, whose weights were trained with
    the others; docs/howto/graphs.md has figures.

    ``forward`` runs with batch norms in train mode and everything else in eval mode, without gradients: no dropout, no
    random numbers. Each norm normalises by the batch, as later norms expect it from earlier ones. The result is the
    mean over the batches of mean and unbiased variance; with one batch, evaluation on that batch equals normalisation
    by its statistics (up to the factor n / (n - 1) of the unbiased variance). Norms that the pass does not reach keep
    their statistics. Buffers keep their place in memory; modes and parameters do not change. Without
    :func:`tracking_norms` nothing runs.

    Args:
        model: the network.
        forward: runs the model on training inputs, on one or more batches.

    Example:
        >>> net, x = torch.nn.Sequential(torch.nn.Dropout(0.7), torch.nn.BatchNorm1d(2)), torch.randn(50, 2)
        >>> reestimate_statistics(net, lambda: net(x))
        >>> torch.allclose(net[1].running_mean, x.mean(0), atol=1e-6)
        True
    """
    norms = tracking_norms(model)
    if not norms:
        return
    before = [(norm.momentum, [buffer.clone() for buffer in norm.buffers(recurse=False)]) for norm in norms]
    with _same_modes(model), torch.no_grad():
        model.eval()
        try:
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None  # a mean over all batches
                norm.train()
            forward()
        finally:
            for norm, (momentum, buffers) in zip(norms, before, strict=True):
                norm.momentum = momentum
                if not norm.num_batches_tracked:  # the pass did not reach it
                    for buffer, old in zip(norm.buffers(recurse=False), buffers, strict=True):
                        buffer.copy_(old)


@contextlib.contextmanager
def _same_modes(model: torch.nn.Module) -> Iterator[None]:
    """Give every module its mode back at the end: train or eval."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
