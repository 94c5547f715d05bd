"""Contrastive loss of matching pairs, such as images and their captions, by hyperbolic distance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, pairwise_dist
from lresnet.geometry.curvature import Curvature

__all__ = ["ImageTextContrastiveLoss", "image_text_contrastive_loss"]

_MOST_SCALE = 100.0  # of CLIP and MERU: the temperature is at least 0.01


def image_text_contrastive_loss(
    images: Tensor, texts: Tensor, *, K: Curvature | None = -1.0, scale: float | Tensor = 1 / 0.07
) -> Tensor:
    r"""Return the symmetric contrastive loss of N pairs with minus the distance as similarity.

    The loss of MERU (Desai et al., ICML 2023, `arXiv 2304.09172 <https://arxiv.org/abs/2304.09172>`_), which is
    that of CLIP with the distance on the hyperboloid in place of the cosine. With
    :math:`s_{ij} = -\sigma\, d(x_i, y_j)`:

    .. math:: L = -\frac1{2N} \sum_i \Big[ \log \frac{\exp s_{ii}}{\sum_j \exp s_{ij}}
        + \log \frac{\exp s_{ii}}{\sum_j \exp s_{ji}} \Big]

    The two sets may be of any kind: images and captions, two views of an image, children and parents.

    Args:
        images: N points in space coordinates.
        texts: N points; row i belongs to row i of ``images``.
        K: Curvature K < 0. None: Euclidean distances.
        scale: :math:`\sigma > 0`, the inverse temperature.

    Shapes:
        images [N, n], texts [N, n] -> []

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [3.0, 0.0]])
        >>> image_text_contrastive_loss(x, x) < image_text_contrastive_loss(x, x.flip(0))
        tensor(True)
    """
    if images.dim() != 2 or images.shape != texts.shape:
        raise ValueError(
            f"images {tuple(images.shape)} and texts {tuple(texts.shape)} must both be [N, n], row i belongs to row i"
        )
    logits = -scale * pairwise_dist(images, texts, K=K)
    own = torch.arange(len(images), device=images.device)
    cross_entropy = torch.nn.functional.cross_entropy
    return (cross_entropy(logits, own) + cross_entropy(logits.mT, own)) / 2


class ImageTextContrastiveLoss(torch.nn.Module):
    r"""Symmetric contrastive loss with a learned temperature; see :func:`image_text_contrastive_loss`.

    The parameter ``log_scale``, of shape [1], is :math:`\log\sigma = -\log\tau`. As in CLIP and MERU, the scale is
    clamped to at most 100 (a temperature of 0.01); a clamped scale has gradient 0 until weights or momentum bring it
    back. It has no weight decay in the parameter groups of :mod:`lresnet.optim`.

    MERU maps the features f of each encoder to the hyperboloid by ``manifold.expmap0(alpha * f)``, where alpha is a
    learned scalar for each encoder, initially :math:`1/\sqrt n`. docs/howto/contrastive.md shows it.

    Args:
        manifold: Manifold of the distances; it is not registered as a submodule. None: Euclidean distances.
        temperature: Initial temperature.

    Shapes:
        images [N, n], texts [N, n] -> []

    Example:
        >>> loss = ImageTextContrastiveLoss(Lorentz(-1.0, learnable=True))
        >>> loss(torch.randn(4, 3), torch.randn(4, 3)).shape
        torch.Size([])
    """

    manifold: Lorentz | None

    def __init__(self, manifold: Lorentz | None, temperature: float = 0.07) -> None:
        super().__init__()
        if not 1 / _MOST_SCALE <= temperature < math.inf:
            raise ValueError(f"temperature must be {1 / _MOST_SCALE:g} or more and finite, got {temperature}")
        self.__dict__["manifold"] = manifold  # nn.Module.__setattr__ would register it
        # one element, not 0-dimensional: FSDP2 does not shard scalars
        self.log_scale = torch.nn.Parameter(torch.tensor([-math.log(temperature)]))

    @property
    def scale(self) -> Tensor:
        """The inverse temperature, 0-dimensional, at most 100."""
        return self.log_scale.float().clamp(max=math.log(_MOST_SCALE)).exp().reshape(())

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        K = None if self.manifold is None else self.manifold.curvature
        return image_text_contrastive_loss(images, texts, K=K, scale=self.scale)

    def extra_repr(self) -> str:
        return "euclidean" if self.manifold is None else self.manifold.extra_repr()
