"""The share of right answers."""

from __future__ import annotations

from torch import Tensor

from lresnet.metrics.checks import require_classification

__all__ = ["accuracy"]


def accuracy(logits: Tensor, y: Tensor) -> Tensor:
    """The share of rows whose largest logit is that of their class.

    Args:
        logits: ``[m, classes]``.
        y: ``[m]``, int64.

    Returns:
        0-d, float64, between 0 and 1.

    Example:
        >>> accuracy(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0]))
        tensor(0.5000, dtype=torch.float64)
    """
    require_classification(logits, y)
    return (logits.argmax(dim=1) == y).double().mean()
