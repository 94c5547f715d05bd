r"""Scores by which a network tells images of its training's kind from others: higher is more in-distribution.

Three are of the logits alone. Two are of the geometry, and there are two of each: of the hyperboloid, for networks that
have one, and of flat space, for the Euclidean twin.

Why far from the origin counts as in-distribution. Along a ray from the origin the distance to every hyperplane of
:class:`~lresnet.nn.LorentzMLR` that the ray leaves behind grows without bound, and with it the logit of its class; near
the origin all images have much the same logits, those of the offsets. So the head can tell classes apart, and be
certain, only further out, and the cross entropy drives training images there. (Khrulkov et al., CVPR 2020, read a
hyperbolic network's certainty off this distance.) The distance is an increasing function of the norm of the space
coordinates, so one model ranks images by either alike.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lresnet.geometry.checks import full_precision, prepare
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
    r"""The negative energy :math:`T \log \sum_k e^{v_k / T}` (Liu et al., NeurIPS 2020): the paper's score, at T = 1.

    Args:
        logits: ``[..., classes]``.
        temperature: T > 0; towards 0 it becomes :func:`logit_score`.

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
    """The largest probability, ``[..., classes] -> [...]`` (Hendrycks and Gimpel, ICLR 2017).

    In float64: in float32 all probabilities above 1 - 6e-8, which are many, would be one.

    Example:
        >>> softmax_score(torch.tensor([0.0, 0.0]))
        tensor(0.5000, dtype=torch.float64)
    """
    return logits.double().softmax(-1).amax(-1)


def logit_score(logits: Tensor) -> Tensor:
    """The largest logit, ``[..., classes] -> [...]``, float32 or wider (Hendrycks et al., ICML 2022).

    Example:
        >>> logit_score(torch.tensor([1.0, 3.0]))
        tensor(3.)
    """
    return _wide(logits).amax(-1)


def origin_distance_score(embedding: Tensor, K: Curvature = -1.0) -> Tensor:
    r"""The geodesic distance to the origin, :math:`\operatorname{asinh}(\sqrt\kappa |x|) / \sqrt\kappa`.

    Args:
        embedding: points, ``[..., n]``.
        K: curvature, a negative float or a tensor of one.

    Returns:
        ``[...]``, float32 or wider.

    Example:
        >>> origin_distance_score(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), K=-1.0)
        tensor([0.0000, 2.3124])
    """
    (points,), _ = prepare(embedding)
    k = root(kappa_of(K, points.dtype))
    return (k * _norm(points)).asinh() / k


def boundary_distance(embedding: Tensor, weight: Tensor, bias: Tensor, *, K: Curvature = -1.0) -> Tensor:
    r"""The largest signed geodesic distance to a class's hyperplane of :class:`~lresnet.nn.LorentzMLR`.

    A logit is :math:`v_k = 2 |z_k| d(x, H_k)`; the length of the normal is the class's own and left out here.

    Args:
        embedding: points, ``[..., n]``.
        weight: z, ``[classes, n]``.
        bias: r, ``[classes]``.
        K: curvature.

    Returns:
        ``[...]``, float32 or wider; below 0 where the point is outside all half-spaces.

    Example:
        >>> boundary_distance(torch.tensor([3.0, 4.0]), torch.tensor([[10.0, 0.0], [0.0, 0.1]]), torch.zeros(2))
        tensor(2.0947)
    """
    points = _wide(embedding)
    direction, _ = unit(weight.to(points.dtype), -1)
    return lorentz_mlr(points, direction, bias, K=K).amax(-1) / 2


def prototype_distance(embedding: Tensor, prototypes: Tensor, *, K: Curvature = -1.0) -> Tensor:
    """Minus the geodesic distance to the nearest prototype of :class:`~lresnet.nn.Prototypes`.

    Args:
        embedding: points, ``[..., n]``.
        prototypes: points, ``[classes, n]``.
        K: curvature.

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
    """The Euclidean twin's distance to the origin, ``[..., n] -> [...]``, float32 or wider.

    Example:
        >>> euclidean_norm(torch.tensor([3.0, 4.0]))
        tensor(5.)
    """
    return _norm(_wide(embedding))


def euclidean_boundary_distance(embedding: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    r"""The largest signed distance to a hyperplane of a linear head, :math:`(w_k \cdot x + b_k) / |w_k|`.

    Args:
        embedding: ``[..., n]``.
        weight: w, ``[classes, n]``.
        bias: b, ``[classes]``.

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
