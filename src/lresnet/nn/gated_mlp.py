"""Two-layer perceptron of a transformer on space coordinates, gated (Shazeer, 2020) or plain."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import require_features, require_points

__all__ = ["Activation", "LorentzGatedMLP", "gated_width"]

Activation: TypeAlias = Literal["silu", "gelu", "relu"]


class LorentzGatedMLP(ManifoldModule):
    r"""Gated perceptron of the space coordinates (SwiGLU); the time follows from them.

    .. math:: y_s = W_o (\phi(W_g x_s) \odot W_v x_s), \qquad \text{plain:}\quad y_s = W_o\, \phi(W_g x_s)

    Linear maps and activations of the space coordinates are the paper's hyperbolic layers. The origin stays at the
    origin unless there are biases.

    Args:
        features: Dimension n of the space of inputs and outputs.
        hidden: Width of the hidden layer. None: 8n/3, rounded up to a multiple of 32, for a gated perceptron, which
            then has the parameters of a plain one of width 4n, and 4n for a plain one.
        activation: :math:`\phi`, "silu", "gelu" or "relu".
        gated: Whether the hidden layer is a product.
        bias: Whether the linear maps have biases.
        manifold: Owner of the curvature, on which the space coordinates do not depend.

    Shapes:
        [..., n] -> [..., n]

    Example:
        >>> LorentzGatedMLP(96, manifold=Lorentz(-1.0))(torch.randn(5, 96)).shape
        torch.Size([5, 96])
    """

    saves_curvature = False

    def __init__(
        self,
        features: int,
        hidden: int | None = None,
        *,
        activation: Activation = "silu",
        gated: bool = True,
        bias: bool = False,
        manifold: Lorentz,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        if activation not in get_args(Activation):
            raise ValueError(f"activation must be one of {', '.join(get_args(Activation))}, got {activation!r}")
        if hidden is None:
            hidden = gated_width(features) if gated else 4 * features
        if min(features, hidden) < 1:
            raise ValueError(f"features and hidden must be at least 1, got {features} and {hidden}")
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.features, self.hidden, self.activation, self.gated = features, hidden, activation, gated
        self.in_proj = torch.nn.Linear(features, 2 * hidden if gated else hidden, bias, **place)
        self.out_proj = torch.nn.Linear(hidden, features, bias, **place)

    def forward(self, x: Tensor) -> Tensor:
        require_features(require_points(x), self.features, type(self).__name__)
        activation = getattr(torch.nn.functional, self.activation)
        inner = self.in_proj(x)
        if self.gated:
            gate, values = inner.chunk(2, -1)
            inner = activation(gate) * values
        else:
            inner = activation(inner)
        result: Tensor = self.out_proj(inner)
        return result

    def extra_repr(self) -> str:
        return f"{self.features}, hidden={self.hidden}, activation={self.activation!r}, gated={self.gated}"


def gated_width(features: int) -> int:
    """Return 8n/3, rounded up to a multiple of 32.

    Example:
        >>> gated_width(512)
        1376
    """
    return -(-8 * features // 96) * 32
