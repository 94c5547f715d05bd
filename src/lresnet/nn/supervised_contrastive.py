"""Supervised contrastive loss by hyperbolic distance, for classes and for hierarchies of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, pairwise_dist
from lresnet.geometry.checks import checks_values
from lresnet.geometry.curvature import Curvature

__all__ = ["SupervisedContrastiveLoss", "supervised_contrastive_loss"]


def supervised_contrastive_loss(
    x: Tensor,
    labels: Tensor,
    *,
    K: Curvature | None = -1.0,
    temperature: float | Tensor = 1.0,
    level_weights: Sequence[float] | None = None,
) -> Tensor:
    r"""Return the supervised contrastive loss with minus the distance as similarity.

    This is :math:`L_{out}` of Khosla et al. (NeurIPS 2020, `arXiv 2004.11362 <https://arxiv.org/abs/2004.11362>`_,
    equation 2) with :math:`s_{ij} = -d(x_i, x_j) / \tau` in place of the cosine:

    .. math:: L = -\frac1{|A|} \sum_{i \in A} \frac1{|P(i)|} \sum_{p \in P(i)}
        \log \frac{\exp s_{ip}}{\sum_{a \ne i} \exp s_{ia}}

    P(i) are the other points with the label of i, and A the points with at least one. A batch without any such pair has
    the loss 0. Labels of several levels, such as :meth:`lresnet.geometry.ClassTree.levels`, give the weighted mean of
    the losses of the levels; the distances are computed once.

    Args:
        x: Points in space coordinates, or Euclidean vectors.
        labels: Classes, or one class for each of L levels.
        K: Curvature K < 0. None: Euclidean distances.
        temperature: :math:`\tau > 0`, in units of the distance. Typical distances of a network's points differ between
            networks: choose it on validation data, or learn it.
        level_weights: Weights of the levels, L non-negative numbers. Default: all equal.

    Shapes:
        x [N, n], labels [N] or [N, L] -> []

    Example:
        >>> x = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
        >>> near, mixed = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
        >>> supervised_contrastive_loss(x, near) < supervised_contrastive_loss(x, mixed)
        tensor(True)
    """
    levels = labels.unsqueeze(-1) if labels.dim() == 1 else labels
    if x.dim() != 2 or levels.dim() != 2 or len(levels) != len(x):
        raise ValueError(
            f"x {tuple(x.shape)} and labels {tuple(labels.shape)} must be N points [N, n] with labels [N] or [N, L]"
        )
    _require_temperature(temperature)
    weights = _weights(level_weights, levels.shape[1])
    similarity = -pairwise_dist(x, K=K) / temperature
    own = torch.eye(len(x), dtype=torch.bool, device=x.device)
    log_p = similarity.masked_fill(own, -torch.inf).log_softmax(-1)
    losses = (_mean_over_positives(log_p, (level.unsqueeze(1) == level) & ~own) for level in levels.unbind(-1))
    return torch.stack([weight * loss for weight, loss in zip(weights, losses, strict=True)]).sum()


def _mean_over_positives(log_p: Tensor, positive: Tensor) -> Tensor:
    count = positive.sum(-1)
    # where, not a product: log_p is minus infinity on the diagonal
    total = torch.where(positive, log_p, 0.0).sum(-1)
    return -(total / count.clamp(min=1)).sum() / (count > 0).sum().clamp(min=1)


def _weights(given: Sequence[float] | None, levels: int) -> list[float]:
    """Return one weight for each level; they add up to 1."""
    weights = [1.0] * levels if given is None else [float(weight) for weight in given]
    if len(weights) != levels or min(weights, default=0.0) < 0 or not 0 < sum(weights) < math.inf:
        raise ValueError(f"level_weights must be {levels} numbers, 0 or more and not all 0, got {given}")
    return [weight / sum(weights) for weight in weights]


def _require_temperature(temperature: float | Tensor) -> None:
    if isinstance(temperature, Tensor):
        if checks_values(temperature) and not bool((temperature > 0).all() & temperature.isfinite().all()):
            raise ValueError(f"temperature must be positive and finite, got {temperature.detach().flatten()[0]:g}")
    elif not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive and finite, got {temperature}")


class SupervisedContrastiveLoss(torch.nn.Module):
    r"""Supervised contrastive loss of the points of a manifold; see :func:`supervised_contrastive_loss`.

    Args:
        manifold: Manifold of the distances; it is not registered as a submodule. None: Euclidean distances.
        temperature: :math:`\tau > 0`; the initial value if it is learned.
        learn_temperature: Train :math:`\log(1/\tau)`, the parameter ``log_scale`` of shape [1]. It has no weight decay
            in the parameter groups of :mod:`lresnet.optim`.
        level_weights: Weights of the levels of the labels. Default: all equal.

    Shapes:
        x [N, n], labels [N] or [N, L] -> []

    Example:
        >>> loss = SupervisedContrastiveLoss(Lorentz(-1.0), temperature=0.5)
        >>> loss(torch.randn(8, 3), torch.arange(8) % 2).shape
        torch.Size([])
    """

    manifold: Lorentz | None

    def __init__(
        self,
        manifold: Lorentz | None,
        temperature: float = 1.0,
        learn_temperature: bool = False,
        level_weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        _require_temperature(temperature)
        self.__dict__["manifold"] = manifold  # nn.Module.__setattr__ would register it
        self.temperature, self.level_weights = float(temperature), level_weights
        self.log_scale: torch.nn.Parameter | None = None
        if learn_temperature:  # one element, not 0-dimensional: FSDP2 does not shard scalars
            self.log_scale = torch.nn.Parameter(torch.tensor([-math.log(temperature)]))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        temperature = self.temperature if self.log_scale is None else (-self.log_scale).exp().reshape(())
        K = None if self.manifold is None else self.manifold.curvature
        return supervised_contrastive_loss(x, labels, K=K, temperature=temperature, level_weights=self.level_weights)

    def extra_repr(self) -> str:
        learned = ", learned" if self.log_scale is not None else ""
        space = "euclidean" if self.manifold is None else self.manifold.extra_repr()
        return f"temperature={self.temperature:g}{learned}, {space}"
