"""Base of every module that computes on a manifold which somebody else owns."""

from __future__ import annotations

import torch

from lresnet.geometry.lorentz import Lorentz

__all__ = ["ManifoldModule"]


class ManifoldModule(torch.nn.Module):
    """A module that refers to ``manifold`` without registering it.

    The curvature has one owner. Were the manifold a child of every layer, each would list the same parameter under
    a key of its own and safetensors would refuse the state dict. So: layers refer, the model registers.
    """

    def __init__(self, manifold: Lorentz) -> None:
        super().__init__()
        if not isinstance(manifold, Lorentz):
            raise TypeError(
                f"manifold must be an lresnet.Lorentz, got {type(manifold).__name__}; "
                "e.g. lresnet.Lorentz(-1.0), or Lorentz.from_geoopt(k) for geoopt's"
            )
        self.__dict__["manifold"] = manifold  # past nn.Module.__setattr__, which would register it

    manifold: Lorentz

    def extra_repr(self) -> str:
        return self.manifold.extra_repr()
