r"""Entailment cones on the hyperboloid: "a is more general than b" as "b lies in the cone of a".

A point x spans a cone around the ray from the origin through x, with its tip at x. Points near the origin have wide
cones and are general; points far away have narrow cones and are specific.

**Aperture.** Half the opening angle is (Ganea et al. 2018; MERU, Desai et al. 2023)

.. math:: \psi(x) = \arcsin \frac{2 r_{min}}{\sqrt\kappa |x|}

Ganea's form in the Poincare ball, :math:`\arcsin(K_c (1 - |p|^2) / |p|)`, is the same number: the point p of the unit
ball has :math:`\sqrt\kappa |x| = 2|p| / (1 - |p|^2)`, and :math:`r_{min}` is Ganea's constant.

**Exterior angle.** The angle at x between the ray away from the origin and the geodesic to y, :math:`\pi` minus the
angle of the triangle (origin, x, y) at x. MERU writes it as

.. math:: \phi(x, y) = \arccos \frac{y_t + x_t \kappa \langle x, y\rangle}
    {|x| \sqrt{(\kappa \langle x, y\rangle)^2 - 1}}

Numerator and root cancel for near points and for points on one ray, and an arccos near :math:`\pm1` loses half the
digits. The form used here has neither problem. In the tangent space at x, the logarithm of y has a part along the ray
and a part across it. With unitless radii R and times T (:mod:`lresnet.geometry.distance`), :math:`w = |u - v|` the
chord of the directions and a, b the hyperbolic radii of x and y, these parts are proportional to

.. math:: \text{across} = R_y w \sqrt{1 - w^2/4}, \qquad
    \text{along} = \sinh(b - a) - T_x R_y w^2 / 2, \qquad \phi = \operatorname{atan2}(\text{across}, \text{along}).

Both differences, of radii and of directions, are computed from x - y, as for the distance.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import checked_points, full_precision
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.geometry.distance import dot, unit

__all__ = ["EntailmentConeLoss", "cone_aperture", "entailment_loss", "exterior_angle"]

DEFAULT_MIN_RADIUS = 0.1  # of MERU and of Ganea et al.


def cone_aperture(x: Tensor, *, K: Curvature = -1.0, min_radius: float = DEFAULT_MIN_RADIUS) -> Tensor:
    r"""Return half the opening angle of the cone of x, :math:`\arcsin(2 r_{min} / (\sqrt\kappa |x|))`, in radians.

    Points nearer to the origin than :math:`2 r_{min} / \sqrt\kappa` have the aperture :math:`\pi/2`, with gradient 0.

    Args:
        x: Points in space coordinates.
        K: Curvature K < 0.
        min_radius: :math:`r_{min} > 0`.

    Shapes:
        [..., n] -> [...]

    Example:
        >>> cone_aperture(torch.tensor([[0.1], [0.4], [4.0]]))
        tensor([1.5708, 0.5236, 0.0500])
    """
    if not 0 < min_radius < math.inf:
        raise ValueError(f"min_radius must be positive and finite, got {min_radius}")
    (points,), dtype = checked_points(x)
    with full_precision(points):
        r = torch.linalg.vector_norm(points, dim=-1)
        least = 2 * min_radius / root(kappa_of(K, points.dtype))
        inside = r <= least
        # 0.5 stands for the unused values: the gradient of arcsin is infinite at 1, and NaN above it.
        sine = torch.where(inside, 0.5, least / torch.where(inside, 1.0, r))
        return torch.where(inside, math.pi / 2, torch.asin(sine)).to(dtype)


def exterior_angle(x: Tensor, y: Tensor, *, K: Curvature = -1.0) -> Tensor:
    r"""Return the angle at x between the ray away from the origin and the geodesic to y, in :math:`[0, \pi]`.

    It is 0 if y lies on the ray behind x, and :math:`\pi` if y lies between the origin and x. Two equal points have the
    angle 0, and gradient 0. If x is the origin, every y lies in its cone: the angle is 0.

    Args:
        x: Points in space coordinates; x and y broadcast.
        y: Points in space coordinates.
        K: Curvature K < 0.

    Shapes:
        [..., n] and [..., n] -> [...]

    Example:
        >>> x = torch.tensor([1.0, 0.0])
        >>> exterior_angle(x, torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.5, 0.0]]))
        tensor([0.0000, 1.8785, 3.1416])
    """
    (x, y), dtype = checked_points(x, y)
    with full_precision(x):
        kappa = kappa_of(K, x.dtype)
        across, along = _parts(x, y, kappa)
        # atan2 has no gradient at (0, 0): equal points, or x at the origin.
        defined = (across > 0) | (along != 0)
        # The angle does not depend on the scale, but the gradient of atan2 squares its arguments, which may underflow.
        scale = torch.where(defined, torch.maximum(across, along.abs()).detach(), 1.0)
        angle = torch.atan2(torch.where(defined, across / scale, 0.0), torch.where(defined, along / scale, 1.0))
        return angle.squeeze(-1).to(dtype)


def _parts(x: Tensor, y: Tensor, kappa: Curvature) -> tuple[Tensor, Tensor]:
    """Return the parts of the logarithm of y at x across the ray of x and along it, up to one positive factor."""
    (u, r_x), (v, r_y) = unit(x, -1), unit(y, -1)
    scale = root(kappa)
    R_y, T_x, T_y = scale * r_y, (1 + (scale * r_x).square()).sqrt(), (1 + (scale * r_y).square()).sqrt()
    d, total = x - y, (r_x + r_y).clamp(min=torch.finfo(r_x.dtype).tiny ** 0.5)
    delta = dot(d, (x + y) / total, -1)  # r_x - r_y
    sinh = -scale * delta / (r_x / total * T_y + r_y / total * T_x).clamp(min=1.0)  # of b - a
    # |u - v|, from d for near points and from the directions for others (lresnet.geometry.distance.chord2)
    near = _length(d) < 0.25 * total
    w = torch.where(near, 2 / total * _length(d - 0.5 * delta * (u + v)), _length(u - v))
    # w sqrt(1 - w^2/4), whose root would lose the digits of nearly opposite directions
    across = R_y * w * (0.5 * _length(u + v))
    along = sinh - T_x * R_y * (w.square() / 2)
    at_origin = r_x == 0
    return torch.where(at_origin, 0.0, across), torch.where(at_origin, 0.0, along)


def _length(x: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length


def entailment_loss(
    general: Tensor,
    specific: Tensor,
    *,
    K: Curvature = -1.0,
    min_radius: float = DEFAULT_MIN_RADIUS,
    negatives: Tensor | None = None,
    margin: float = 0.1,
) -> Tensor:
    r"""Return how far the specific points lie outside the cones of the general points.

    The energy of a pair is :math:`E(x, y) = \max(0, \phi(x, y) - \psi(x))`, with the :func:`exterior_angle` and the
    :func:`cone_aperture`; it is 0 if y lies in the cone of x. Without negatives this is the loss of MERU (Desai et al.,
    ICML 2023, `arXiv 2304.09172 <https://arxiv.org/abs/2304.09172>`_), the mean energy of the pairs. With negatives it
    is the loss of Ganea et al. (ICML 2018, `arXiv 1804.01882 <https://arxiv.org/abs/1804.01882>`_), which also pushes
    other points out of the cones:

    .. math:: L = \operatorname{mean} E(x, y) + \operatorname{mean} \max(0, \gamma - E(x, y'))

    Args:
        general: Points x with the cones: captions, superclasses, ancestors.
        specific: Points y that should lie in them: images, classes, descendants.
        K: Curvature K < 0.
        min_radius: See :func:`cone_aperture`.
        negatives: Points y' that should lie outside the cones; they broadcast against ``general``.
        margin: :math:`\gamma`, the energy that a negative should have at least, in radians.

    Shapes:
        general [..., n], specific [..., n], negatives [..., n] -> []; they broadcast

    Example:
        >>> x, inside, outside = torch.tensor([[1.0, 0.0], [2.0, 0.1], [-1.0, 1.0]])
        >>> entailment_loss(x, inside), entailment_loss(x, outside) > 0
        (tensor(0.), tensor(True))
    """
    positive = _energy(general, specific, K, min_radius).mean()
    if negatives is None:
        return positive
    return positive + torch.relu(margin - _energy(general, negatives, K, min_radius)).mean()


def _energy(x: Tensor, y: Tensor, K: Curvature, min_radius: float) -> Tensor:
    return torch.relu(exterior_angle(x, y, K=K) - cone_aperture(x, K=K, min_radius=min_radius))


class EntailmentConeLoss(ManifoldModule):
    """Entailment loss of the points of a manifold; see :func:`entailment_loss`.

    Args:
        manifold: Owner of the curvature. It is not registered as a submodule.
        min_radius: See :func:`cone_aperture`.
        margin: Energy that a negative should have at least, in radians.

    Shapes:
        general [..., n], specific [..., n], negatives [..., n] or None -> []

    Example:
        >>> loss = EntailmentConeLoss(Lorentz(-1.0))
        >>> loss(torch.randn(4, 3), torch.randn(4, 3)).shape
        torch.Size([])
    """

    def __init__(self, manifold: Lorentz, min_radius: float = DEFAULT_MIN_RADIUS, margin: float = 0.1) -> None:
        super().__init__(manifold)
        if not 0 < min_radius < math.inf:
            raise ValueError(f"min_radius must be positive and finite, got {min_radius}")
        self.min_radius, self.margin = float(min_radius), float(margin)

    def forward(self, general: Tensor, specific: Tensor, negatives: Tensor | None = None) -> Tensor:
        return entailment_loss(
            general,
            specific,
            K=self.manifold.curvature,
            min_radius=self.min_radius,
            negatives=negatives,
            margin=self.margin,
        )

    def extra_repr(self) -> str:
        return f"min_radius={self.min_radius:g}, margin={self.margin:g}, {super().extra_repr()}"
