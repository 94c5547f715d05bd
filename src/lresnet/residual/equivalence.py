"""Proposition 4.2: weights for which the Lorentz residual gives the result of another method."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lresnet.geometry.checks import checked_points
from lresnet.geometry.curvature import Curvature, kappa_among
from lresnet.geometry.distance import dot, separation, unitless_time
from lresnet.geometry.smooth import asinhc, sinhc
from lresnet.residual.lorentz import normaliser
from lresnet.residual.registry import METHODS

__all__ = ["EquivalentWeights", "equivalent_weights"]


class EquivalentWeights(NamedTuple):
    """Weights of x and y and the scale, one of each per pair of points: [...]."""

    w_x: Tensor
    w_y: Tensor
    gamma: Tensor


def equivalent_weights(x: Tensor, y: Tensor, method: str, *, K: Curvature = -1.0) -> EquivalentWeights:
    r"""Return weights such that :math:`\gamma (w_x x + w_y y)/n` is the output of ``method``.

    The weights depend on the points, and gamma grows strongly with their norms. The proposition therefore says that the
    Lorentz residual reaches the other method's *geodesic* from the origin, not that trained scalar weights make the two
    equal. The paper's proof prints :math:`w_x = \cosh\alpha + c_v` for parallel transport; the correct weight is
    :math:`\cosh\alpha + \frac{\sinh\alpha}{\alpha} c_v`. In closed form, with w_y = 1,

    .. math:: w_x = \sqrt\kappa y_t + \kappa\, x \cdot y / (1 + \sqrt\kappa x_t) > 0 .

    Args:
        x, y: Points in space coordinates, [..., n].
        method: A method of the registry with ``has_equivalent_weights``.
        K: Curvature, a negative float or tensor.

    Example:
        >>> x, y = torch.tensor([2.0, -2.0]), torch.tensor([2.0, 2.0])
        >>> equivalent_weights(x, y, "parallel_transport")
        EquivalentWeights(w_x=tensor(3.0000), w_y=tensor(1.), gamma=tensor(8.0000))
    """
    points, dtype = checked_points(x, y)
    (x, y), kappa = kappa_among(points, K, -1)
    D = separation(x, y, kappa, -1)
    w_x = w_y = torch.ones_like(D)
    stretch: Tensor | float = 1.0
    if method == "parallel_transport":
        w_x = _transport_weight(x, y, kappa)
    elif method == "parallel_transport_reversed":
        w_y = _transport_weight(y, x, kappa)
    elif method == "tangent":
        w_x, w_y = asinhc(kappa * dot(x, x, -1)), asinhc(kappa * dot(y, y, -1))
        total = w_x * x + w_y * y
        stretch = sinhc(kappa * dot(total, total, -1))
    elif method != "space":
        known = ", ".join(repr(name) for name, entry in METHODS.items() if entry.has_equivalent_weights)
        raise ValueError(f"no equivalent weights are known for the method {method!r}; they are for {known}")
    gamma = normaliser(w_x, w_y, D) * stretch
    return EquivalentWeights(*(w.squeeze(-1).to(dtype) for w in (w_x, w_y, gamma)))


def _transport_weight(x: Tensor, y: Tensor, kappa: Curvature) -> Tensor:
    return (1 + separation(x, -y, kappa, -1) + unitless_time(y, kappa, -1)) / (1 + unitless_time(x, kappa, -1))
