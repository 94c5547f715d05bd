"""Proposition 4.2: weights with which the Lorentz residual meets the other methods' geodesic from the origin."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lresnet.geometry.checks import prepare
from lresnet.geometry.curvature import Curvature, kappa_among
from lresnet.geometry.pair import dot, separation, unitless_time
from lresnet.geometry.smooth import asinhc, sinhc
from lresnet.residual.lorentz import normaliser

__all__ = ["EquivalentWeights", "equivalent_weights"]

Method = Literal["parallel_transport", "parallel_transport_reversed", "tangent", "space"]


class EquivalentWeights(NamedTuple):
    """Per pair of points, [...]."""

    w_x: Tensor
    w_y: Tensor
    gamma: Tensor


def equivalent_weights(x: Tensor, y: Tensor, method: Method, *, K: Curvature = -1.0) -> EquivalentWeights:
    r"""Weights such that :math:`\gamma (w_x x + w_y y)/n` is the output of ``method``.

    They depend on the points, and gamma does so strongly (it grows with the norms): the proposition says that the
    Lorentz residual reaches the other methods' *geodesic*, not that trained scalar weights make it equal to them.
    The paper's proof prints :math:`w_x = \cosh\alpha + c_v` for parallel transport; it must be
    :math:`\cosh\alpha + \frac{\sinh\alpha}{\alpha} c_v`. In closed form, with w_y = 1,

    .. math:: w_x = \sqrt\kappa y_t + \kappa\, x \cdot y / (1 + \sqrt\kappa x_t) > 0 .

    Example:
        >>> x, y = torch.tensor([2.0, -2.0]), torch.tensor([2.0, 2.0])
        >>> equivalent_weights(x, y, "parallel_transport")
        EquivalentWeights(w_x=tensor(3.0000), w_y=tensor(1.), gamma=tensor(8.0000))
    """
    points, dtype = prepare(x, y)
    (x, y), kappa = kappa_among(points, K, -1)
    D = separation(x, y, kappa, -1)
    stretch: Tensor | float = 1.0
    if method == "parallel_transport":
        w_x, w_y = _transport_weight(x, y, kappa), torch.ones_like(D)
    elif method == "parallel_transport_reversed":
        w_x, w_y = torch.ones_like(D), _transport_weight(y, x, kappa)
    elif method == "tangent":
        w_x, w_y = asinhc(kappa * dot(x, x, -1)), asinhc(kappa * dot(y, y, -1))
        total = w_x * x + w_y * y
        stretch = sinhc(kappa * dot(total, total, -1))
    elif method == "space":
        w_x, w_y = torch.ones_like(D), torch.ones_like(D)
    else:
        raise ValueError(
            f"unknown method {method!r}: 'parallel_transport', 'parallel_transport_reversed', 'tangent' or 'space'"
        )
    gamma = normaliser(w_x, w_y, D) * stretch
    return EquivalentWeights(*(w.squeeze(-1).to(dtype) for w in (w_x, w_y, gamma)))


def _transport_weight(x: Tensor, y: Tensor, kappa: Curvature) -> Tensor:
    return (1 + separation(x, -y, kappa, -1) + unitless_time(y, kappa, -1)) / (1 + unitless_time(x, kappa, -1))
