"""Embeddings of tokens and of image patches as points in space coordinates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import checks_values

__all__ = ["LorentzEmbedding", "LorentzPatchEmbedding"]


class LorentzEmbedding(ManifoldModule):
    """One learned point for each token, in space coordinates.

    Every vector of space coordinates is a point, so the weight is an ordinary parameter: any optimiser trains it, FSDP2
    shards it, and a language model may use it again as its last linear map. Weight decay pulls the points towards the
    origin, as it does with vectors.

    Args:
        num_embeddings: Number of tokens.
        features: Dimension n of the space.
        std: Standard deviation of the initial coordinates.
        manifold: Owner of the curvature, on which the space coordinates do not depend.

    Shapes:
        integers [...] -> points [..., n]

    Example:
        >>> LorentzEmbedding(256, 8, manifold=Lorentz(-1.0))(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 8])
    """

    saves_curvature = False

    def __init__(
        self,
        num_embeddings: int,
        features: int,
        *,
        std: float = 0.02,
        manifold: Lorentz,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        if min(num_embeddings, features) < 1:
            raise ValueError(f"num_embeddings and features must be at least 1, got {num_embeddings} and {features}")
        self.num_embeddings, self.features, self.std = num_embeddings, features, std
        self.weight = torch.nn.Parameter(torch.empty(num_embeddings, features, device=device, dtype=dtype))
        torch.nn.init.normal_(self.weight, std=std)

    def forward(self, ids: Tensor) -> Tensor:
        if ids.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"ids must be int64 or int32, got {ids.dtype}; convert them, e.g. ids.long()")
        if checks_values(ids) and ids.numel():
            low, high = ids.aminmax()
            if low < 0 or high >= self.num_embeddings:
                found = f"{int(low)} to {int(high)}"
                raise ValueError(f"ids must be from 0 to {self.num_embeddings - 1}, but these are from {found}")
        return torch.nn.functional.embedding(ids, self.weight)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.features}"


class LorentzPatchEmbedding(ManifoldModule):
    """Patches of images as points: a linear map of the pixels of each patch gives its space coordinates.

    Images whose sides are not multiples of the patch are padded with zeros on the right and at the bottom.

    Args:
        in_channels: Channels of the images.
        features: Dimension n of the space.
        patch: Side of a patch in pixels.
        manifold: Owner of the curvature, on which the space coordinates do not depend.

    Shapes:
        images [B, in_channels, H, W] -> points [B, ceil(H / patch), ceil(W / patch), n]

    Example:
        >>> LorentzPatchEmbedding(3, 16, 4, manifold=Lorentz(-1.0))(torch.randn(2, 3, 32, 30)).shape
        torch.Size([2, 8, 8, 16])
    """

    saves_curvature = False

    def __init__(
        self,
        in_channels: int,
        features: int,
        patch: int,
        *,
        manifold: Lorentz,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        if min(in_channels, features, patch) < 1:
            sizes = f"{in_channels}, {features} and {patch}"
            raise ValueError(f"in_channels, features and patch must be at least 1, got {sizes}")
        self.in_channels, self.features, self.patch = in_channels, features, patch
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.proj = torch.nn.Linear(in_channels * patch * patch, features, **place)

    def forward(self, images: Tensor) -> Tensor:
        if images.dim() != 4 or images.shape[1] != self.in_channels or not images.is_floating_point():
            raise ValueError(
                f"images must be floating point numbers [B, {self.in_channels}, H, W], got {images.dtype} of shape "
                f"{tuple(images.shape)}"
            )
        height, width = images.shape[-2:]
        below, right = -height % self.patch, -width % self.patch
        if below or right:
            images = torch.nn.functional.pad(images, (0, right, 0, below))
        rows = images.unflatten(-1, (-1, self.patch)).unflatten(-3, (-1, self.patch))  # [B, C, h, p, w, p]
        points: Tensor = self.proj(rows.permute(0, 2, 4, 1, 3, 5).flatten(-3))
        return points.to(torch.promote_types(points.dtype, self.proj.weight.dtype))  # autocast would leave them in half

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.features}, patch={self.patch}"
