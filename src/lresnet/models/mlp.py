"""lorentz_mlp: Algorithm 1 of the paper for plain vectors, the layers of lorentz_gcn without a graph."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.curvature import kappa_of
from lresnet.models.pretrained import Pretrained
from lresnet.nn.input_map import MAX_RADIUS, features_to_points
from lresnet.nn.linear import LorentzLinear
from lresnet.nn.prototypes import Prototypes
from lresnet.residual import make_residual

__all__ = ["LorentzMLP"]


class LorentzMLP(Pretrained):
    r"""Residual network of Lorentz linear layers; with ``residual="euclidean"`` the Euclidean baseline.

    .. math:: x^{(1)} = f_1(\exp_o v), \qquad x^{(l)} = x^{(l-1)} \oplus f_l(x^{(l-1)})

    f is a :class:`~lresnet.nn.LorentzLinear`, v are the features. The Euclidean baseline has linear layers with ReLU
    and a linear head.

    Args:
        in_features: Number of features.
        hidden: Dimension n of the space, for all layers.
        num_layers: Number of linear layers.
        num_classes: Classes of the head (prototypes, or linear for the Euclidean baseline). None: the output is the
            embeddings.
        residual: A name of :data:`lresnet.residual.METHODS`.
        residual_options: Options of the residual. By default the weight of the Lorentz residual is learned, as in
            Algorithm 1 of the paper.
        curvature: K < 0.
        learn_curvature: Train the curvature.
        dropout: Dropout rate of the space coordinates that enter a layer.
        max_radius: Length to which longer input rows are shortened, in radii of curvature.

    Shapes:
        [B, in] -> logits [B, num_classes], or embeddings [B, hidden] if num_classes is None.

    Example:
        >>> LorentzMLP(in_features=4, num_classes=3)(torch.randn(10, 4)).shape
        torch.Size([10, 3])
    """

    model_name = "lorentz_mlp"

    def __init__(
        self,
        in_features: int,
        hidden: int = 16,
        num_layers: int = 3,
        num_classes: int | None = None,
        residual: str = "lorentz",
        residual_options: dict[str, Any] | None = None,
        curvature: float = -1.0,
        learn_curvature: bool = False,
        dropout: float = 0.0,
        max_radius: float = MAX_RADIUS,
    ) -> None:
        super().__init__()
        if num_layers < 1 or not 0 <= dropout < 1:
            raise ValueError(f"need num_layers >= 1 and 0 <= dropout < 1, got {num_layers} and {dropout}")
        self.euclidean = residual == "euclidean"
        self.dropout, self.max_radius = dropout, max_radius
        self.manifold = Lorentz(curvature, learnable=learn_curvature and not self.euclidean)
        widths = [in_features] + [hidden] * num_layers
        self.layers = torch.nn.ModuleList(self._layer(i, o) for i, o in itertools.pairwise(widths))
        self.residuals = torch.nn.ModuleList(
            make_residual(residual, self.manifold, **residual_options or {}) for _ in range(num_layers - 1)
        )
        self.head: torch.nn.Module | None = None
        if num_classes is not None and self.euclidean:
            self.head = torch.nn.Linear(hidden, num_classes)
        elif num_classes is not None:
            self.head = Prototypes(hidden, num_classes, manifold=self.manifold)

    def _layer(self, in_features: int, out_features: int) -> torch.nn.Module:
        if self.euclidean:
            return torch.nn.Sequential(torch.nn.Linear(in_features, out_features), torch.nn.ReLU())
        return LorentzLinear(in_features, out_features, manifold=self.manifold)

    def embed(self, x: Tensor) -> Tensor:
        """Return the embeddings, [B, hidden], in space coordinates."""
        if not self.euclidean:
            kappa = kappa_of(self.manifold.curvature, torch.promote_types(x.dtype, torch.float32))
            x = features_to_points(x, kappa, self.max_radius).x  # type: ignore[assignment]
        z = self._apply_layer(self.layers[0], x)
        for layer, residual in zip(self.layers[1:], self.residuals, strict=True):
            z = residual(z, self._apply_layer(layer, z))
        return z

    def _apply_layer(self, layer: torch.nn.Module, x: Tensor) -> Tensor:
        return layer(torch.nn.functional.dropout(x, self.dropout, self.training))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        embedding = self.embed(x)
        return embedding if self.head is None else self.head(embedding)
