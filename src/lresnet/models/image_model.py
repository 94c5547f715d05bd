"""Base class of the networks for images: an image becomes one point, which a head classifies."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.checks import full_precision
from lresnet.models.pretrained import Pretrained
from lresnet.nn.mlr import LorentzMLR
from lresnet.nn.pooling import CentroidPool, PoincareMean, SpaceMean
from lresnet.nn.prototypes import Prototypes

__all__ = ["HEADS", "POOLINGS", "ImageModel", "classifier", "require_choice", "require_images"]

POOLINGS = {"poincare": PoincareMean, "centroid": CentroidPool, "mean": SpaceMean}
HEADS = ("mlr", "prototypes", "linear")


class ImageModel(Pretrained):
    """A network for images, in three parts: :meth:`features`, ``pool`` and ``head``.

    The attribute ``euclidean`` tells whether :meth:`embed` returns vectors (True) or points of ``manifold`` (False).
    """

    euclidean: bool
    in_channels: int
    manifold: Lorentz
    pool: torch.nn.Module
    head: torch.nn.Module

    def forward(self, x: Tensor) -> Tensor:
        points = self.embed(x)
        with full_precision(points):
            return self.head(points)  # type: ignore[no-any-return]

    def embed(self, x: Tensor) -> Tensor:
        """Return one point per image in space coordinates, [B, n], in float32 or wider."""
        return self.pool(self.features(x))  # type: ignore[no-any-return]

    def features(self, x: Tensor) -> Tensor:
        """Return the points before pooling, [B, n, H', W']."""
        raise NotImplementedError


class _Linear(torch.nn.Linear):
    """Linear head that computes in the precision of the points, even if its weights are in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


def classifier(kind: str, width: int, num_classes: int, manifold: Lorentz) -> torch.nn.Module:
    """Return the head called ``kind``.

    Example:
        >>> classifier("mlr", 8, 3, Lorentz(-1.0))
        LorentzMLR(8, 3, curvature=-1)
    """
    if kind == "linear":
        return _Linear(width, num_classes)
    return (LorentzMLR if kind == "mlr" else Prototypes)(width, num_classes, manifold=manifold)


def require_choice(name: str, value: str, known: Collection[str]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of the ``known`` names."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def require_images(x: object, channels: int) -> None:
    """Raise an error unless x is a batch of images with this number of channels."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"images must be a floating point tensor, got {kind}; convert them, e.g. x.float() / 255")
    if x.dim() != 4 or x.shape[1] != channels or 0 in x.shape[2:]:
        raise ValueError(
            f"images must have shape [B, {channels}, H, W] with at least one pixel, got {tuple(x.shape)}; "
            "a single image needs a batch axis, x.unsqueeze(0)"
        )
