"""Sets of images that a network was not trained on, by name or path, at the size the network takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lresnet.data.files import Root

__all__ = ["OOD_SETS", "OodSet", "load_ood_set"]

OOD_SETS = ("svhn", "places", "textures", "mnist", "fashion_mnist", "noise_gaussian", "noise_uniform")


@dataclass(frozen=True, eq=False)
class OodSet:
    """Images without labels.

    Args:
        name: what to call it.
        images: uint8 ``[N, H, W, 3]``.
        skipped: files that could not be read as images, and why.
        note: what to know beside every figure of it, e.g. that the files are not the official ones; may be empty.
    """

    name: str
    images: Tensor
    skipped: tuple[tuple[Path, str], ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4 or self.images.shape[-1] != 3:
            raise ValueError(f"images are uint8 [N, H, W, 3], not {self.images.dtype} {list(self.images.shape)}")
        if self.images.numel() == 0:
            raise ValueError(f"{self.name} holds no readable image")


def load_ood_set(name: str | Path, *, size: int | tuple[int, int] = 32, root: Root = None, seed: int = 0) -> OodSet:
    """The set called ``name``, or the images of a folder or ``.npz``."""
    raise ValueError(f"{name} is no set of images")
