r"""Scores for out-of-distribution detection; a higher score means more in-distribution.

Three scores use the logits only. Two kinds of scores use the geometry: the distance to the origin and the distance to
the decision boundary. Each exists in a hyperbolic form and in a Euclidean form for the Euclidean baseline.

A large distance to the origin counts as in-distribution for the following reason. Along a ray from the origin, the
distance to every hyperplane of :class:`~lresnet.nn.LorentzMLR` that the ray crosses grows without bound, and so does
the logit of its class. Near the origin all images have nearly the same logits, given by the offsets. The head can
therefore separate classes with confidence only far from the origin, and the cross entropy moves training images there.
(Khrulkov et al., CVPR 2020, use this distance as the confidence of a hyperbolic network.) The distance is an increasing
function of the norm of the space coordinates, so both rank the images of one model equally.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lresnet.geometry.checks import checked_points, full_precision
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.geometry.distance import cross_separation, unit
from lresnet.nn.mlr import lorentz_mlr

__all__ = [
    "boundary_distance",
    "energy_score",
    "euclidean_boundary_distance",
    "euclidean_norm",
    "logit_score",
    "origin_distance_score",
    "prototype_distance",
    "softmax_score",
]


def energy_score(logits: Tensor, temperature: float = 1.0) -> Tensor:
    r"""Return the negative energy :math:`T \log \sum_k e^{v_k / T}` (Liu et al., NeurIPS 2020).

    Args:
        logits: ``[..., classes]``.
        temperature: T > 0. The limit T -> 0 is :func:`logit_score`.

    Returns:
        ``[...]``, float32 or wider.

    Example:
        >>> energy_score(torch.tensor([1.0, 1.0]))
        tensor(1.6931)
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be a positive number, got {temperature}")
    return temperature * (_wide(logits) / temperature).logsumexp(-1)


def softmax_score(logits: Tensor) -> Tensor:
    """Return the largest probability, ``[..., classes] -> [...]`` (Hendrycks and Gimpel, ICLR 2017).

    The result is float64: in float32 all probabilities above 1 - 6e-8, which are frequent, would round to 1.

    Example:
        >>> softmax_score(torch.tensor([0.0, 0.0]))
        tensor(0.5000, dtype=torch.float64)
    """
    return logits.double().softmax(-1).amax(-1)


def logit_score(logits: Tensor) -> Tensor:
    """Return the largest logit, ``[..., classes] -> [...]``, float32 or wider (Hendrycks et al., ICML 2022).

    Example:
        >>> logit_score(torch.tensor([1.0, 3.0]))
        tensor(3.)
    """
    return _wide(logits).amax(-1)


def origin_distance_score(embedding: Tensor, K: Curvature = -1.0) -> Tensor:
    r"""Return the geodesic distance to the origin, :math:`\operatorname{asinh}(\sqrt\kappa |x|) / \sqrt\kappa`.

    Args:
        embedding: Points ``[..., n]``.
        K: Curvature, a negative float or a tensor.

    Returns:
        ``[...]``, float32 or wider.

    Example:
        >>> origin_distance_score(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), K=-1.0)
        tensor([0.0000, 2.3124])
    """
    (points,), _ = checked_points(embedding)
    k = root(kappa_of(K, points.dtype))
    return (k * _norm(points)).asinh() / k


def boundary_distance(embedding: Tensor, weight: Tensor, bias: Tensor, *, K: Curvature = -1.0) -> Tensor:
    r"""Return the largest signed geodesic distance to the hyperplane of a class of :class:`~lresnet.nn.LorentzMLR`.

    A logit is :math:`v_k = 2 |z_k| d(x, H_k)`. The length of the normal differs between classes and is left out here.

    Args:
        embedding: Points ``[..., n]``.
        weight: Normals z, ``[classes, n]``.
        bias: Offsets r, ``[classes]``.
        K: Curvature.

    Returns:
        ``[...]``, float32 or wider; negative if the point is outside all half-spaces.

    Example:
        >>> boundary_distance(torch.tensor([3.0, 4.0]), torch.tensor([[10.0, 0.0], [0.0, 0.1]]), torch.zeros(2))
        tensor(2.0947)
    """
    points = _wide(embedding)
    direction, _ = unit(weight.to(points.dtype), -1)
    return lorentz_mlr(points, direction, bias, K=K).amax(-1) / 2


def prototype_distance(embedding: Tensor, prototypes: Tensor, *, K: Curvature = -1.0) -> Tensor:
    """Return the negative geodesic distance to the nearest prototype of :class:`~lresnet.nn.Prototypes`.

    Args:
        embedding: Points ``[..., n]``.
        prototypes: Points ``[classes, n]``.
        K: Curvature.

    Returns:
        ``[...]``, float32 or wider.

    Example:
        >>> prototype_distance(torch.tensor([3.0, 4.0]), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor(-0.)
    """
    points = _wide(embedding)
    kappa = kappa_of(K, points.dtype)
    nearest = cross_separation(points, prototypes.to(points.dtype), kappa).amin(-1)
    return -2 / root(kappa) * (nearest / 2).sqrt().asinh()  # cosh d - 1 = 2 sinh^2(d / 2)


def euclidean_norm(embedding: Tensor) -> Tensor:
    """Return the Euclidean distance to the origin, ``[..., n] -> [...]``, float32 or wider.

    Example:
        >>> euclidean_norm(torch.tensor([3.0, 4.0]))
        tensor(5.)
    """
    return _norm(_wide(embedding))


def euclidean_boundary_distance(embedding: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    r"""Return the largest signed distance to a hyperplane of a linear head, :math:`(w_k \cdot x + b_k) / |w_k|`.

    Args:
        embedding: Points ``[..., n]``.
        weight: Normals w, ``[classes, n]``.
        bias: Offsets b, ``[classes]``.

    Returns:
        ``[...]``, float32 or wider.

    Example:
        >>> weight, bias = torch.tensor([[10.0, 0.0], [0.0, 0.1]]), torch.zeros(2)
        >>> euclidean_boundary_distance(torch.tensor([3.0, 4.0]), weight, bias)
        tensor(4.)
    """
    points = _wide(embedding)
    with full_precision(points):
        w, b = weight.to(points.dtype), bias.to(points.dtype)
        return (torch.nn.functional.linear(points, w, b) / _norm(w)).amax(-1)


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _norm(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return norm
