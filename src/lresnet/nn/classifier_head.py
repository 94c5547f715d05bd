r"""Classification head for the features of any backbone: features at a sensible radius, then a classifier.

Features of a Euclidean backbone have any mean and any norm: pooled features after a ReLU share a large mean, and those
after a layer norm have norm :math:`\sqrt n`. Fed to :class:`~lresnet.nn.LorentzMLR` or :class:`~lresnet.nn.Prototypes`
as they are, all points lie in one direction, and their distance to the origin in radii of curvature is arbitrary. So
they are centred and scaled first. The unit of length follows from the optimiser: weights of the regression are trained
best if the coordinates have variance 1, and prototypes if a step of RiemannianAdam, whose length is the learning rate,
is of the order of the distances. docs/howto/fine_tune.md has the measurements.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.geometry.state import number
from lresnet.nn.mlr import LorentzMLR
from lresnet.nn.prototypes import Prototypes

__all__ = ["ClassifierHead", "FeatureNorm", "HeadKind"]

HeadKind = Literal["mlr", "prototypes", "linear"]

_RADIUS = {"mlr": 1.0, "prototypes": 2.0, "linear": 0.0}
# Prototypes: radii of curvature that a step of length 1 has, in units of sqrt(n); initial distance from the origin in
# radii; initial factor on cosh d - 1. Of the values tried (1, 1/sqrt(8); 1, 0.1, 0.01; 5, 20) a compromise over
# learning rates from 0.001 to 0.1.
_STEP, _START, _SHARPNESS = 0.5, 0.1, 20.0


# Share of the mean variance that is added to every variance: a feature that hardly varies is not blown up.
_FLOOR = 1e-3
_MOMENTUM = 0.1


class FeatureNorm(torch.nn.Module):
    r"""Batch norm without parameters whose output does not depend on the scale of the features.

    .. math:: y = (x - \mu) / \sqrt{\sigma^2 + 0.001\, \overline{\sigma^2}}

    In training mean and variance are those of the batch. Otherwise they are running averages: of all batches up to the
    tenth, then with momentum 0.1. (``torch.nn.BatchNorm1d`` starts from variance 1, which is wrong for a hundred steps
    if features are small, and adds a constant to it.)

    Args:
        features: Number n of features.

    Shapes:
        [B, n] -> [B, n], float32 or wider; in training B > 1.

    Example:
        >>> FeatureNorm(2)(torch.tensor([[0.0, 1e-3], [4.0, 2e-3]]))[1, 0] > 0.9
        tensor(True)
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches: Tensor

    def __init__(self, features: int, *, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(features, device=device))
        self.register_buffer("running_var", torch.ones(features, device=device))
        self.register_buffer("num_batches", torch.zeros((), dtype=torch.long, device=device))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            mean, var = self.running_mean, self.running_var
        else:
            if len(x) < 2:
                raise ValueError(f"a classification head in training needs more than one item, got {len(x)}")
            var, mean = torch.var_mean(x, dim=0, correction=0)
            self._update(mean.detach(), var.detach())
        return (x - mean) * (var + _FLOOR * var.mean() + torch.finfo(torch.float32).tiny).rsqrt()

    @torch.no_grad()
    def _update(self, mean: Tensor, var: Tensor) -> None:
        self.num_batches += 1
        weight = (1 / self.num_batches).clamp(min=_MOMENTUM)
        for running, new in ((self.running_mean, mean), (self.running_var, var)):
            running.lerp_(new.to(running.dtype), weight.to(running.dtype))


class ClassifierHead(torch.nn.Module):
    r"""Classification head on Euclidean features, such as those of a pre-trained backbone.

    .. math:: x = \frac{r}{\sqrt{\kappa n}}\, \mathrm{norm}(f), \qquad \text{logits} = \text{classifier}(x)

    A norm without parameters (:class:`~lresnet.nn.classifier_head.FeatureNorm`) gives every feature mean 0 and variance
    1. The factor puts the points at a root mean
    square distance of asinh r radii of curvature from the origin; small r is nearly flat. Then ``"mlr"`` is
    :class:`LorentzMLR`, ``"prototypes"`` is :class:`Prototypes` with a learned factor on the logits, and ``"linear"`` a
    linear layer on the same normalised features, the Euclidean baseline.

    Args:
        in_features: Number n of features.
        num_classes: Number of classes C.
        kind: The classifier.
        radius: r > 0, the root mean square of :math:`\sqrt\kappa |x|`. Default: 1 for ``"mlr"``, 2 for
            ``"prototypes"``. The curvature itself is a choice of unit, and is chosen so that training is fast: -1/n
            times r^2 for ``"mlr"``, -n/4 for ``"prototypes"``.
        learn_curvature: Train the curvature. The head owns its manifold, so that its parameter is part of the network.

    Shapes:
        [..., n] -> [..., C]; in training more than one item.

    Example:
        >>> backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU())
        >>> net = torch.nn.Sequential(backbone, ClassifierHead(32, 10))
        >>> net(torch.randn(4, 1, 8, 8)).shape
        torch.Size([4, 10])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        kind: HeadKind = "mlr",
        *,
        radius: float | None = None,
        learn_curvature: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if kind not in _RADIUS:
            raise ValueError(f"kind must be one of {', '.join(_RADIUS)}, got {kind!r}")
        if kind == "linear" and (radius is not None or learn_curvature):
            raise ValueError("radius and learn_curvature are for hyperbolic classifiers, but kind is 'linear'")
        chosen = _RADIUS[kind] if radius is None else radius
        if not 0 <= chosen < math.inf or (kind != "linear" and chosen == 0):
            raise ValueError(f"radius must be positive and finite, got {radius}")
        self.in_features, self.num_classes, self.kind, self.radius = in_features, num_classes, kind, chosen
        place = {"device": device, "dtype": dtype}
        self.norm = FeatureNorm(in_features, device=device)
        self.manifold: Lorentz | None = None
        self.log_scale: torch.nn.Parameter | None = None
        self.classifier: torch.nn.Module
        self.factor = 1.0
        if kind == "linear":
            self.classifier = torch.nn.Linear(in_features, num_classes, **place)  # type: ignore[arg-type]
            return
        kappa = chosen**2 / in_features if kind == "mlr" else _STEP**2 * in_features
        self.factor = chosen / math.sqrt(kappa * in_features)
        self.manifold = Lorentz(-kappa, learnable=learn_curvature)
        options = {"manifold": self.manifold, **place}
        if kind == "mlr":
            self.classifier = LorentzMLR(in_features, num_classes, **options)  # type: ignore[arg-type]
            return
        self.classifier = Prototypes(in_features, num_classes, **options)  # type: ignore[arg-type]
        with torch.no_grad():
            self.classifier.points.mul_(_START)
        self.log_scale = torch.nn.Parameter(torch.full((1,), math.log(_SHARPNESS * kappa / 2), **place))  # type: ignore[arg-type]

    def points(self, features: Tensor) -> Tensor:
        """Return the normalised features: points of ``manifold`` in space coordinates, [..., n]."""
        if features.shape[-1] != self.in_features:
            raise ValueError(
                f"ClassifierHead was built for {self.in_features} features, got shape {tuple(features.shape)}; pool "
                "the output of the backbone to one vector per item"
            )
        wide = features.to(torch.promote_types(features.dtype, torch.float32))
        flat: Tensor = self.norm(wide.reshape(-1, self.in_features))
        return (self.factor * flat).reshape(wide.shape)

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.points(features))
        return logits if self.log_scale is None else logits * number(self.log_scale).exp()

    def extra_repr(self) -> str:
        radius = "" if self.kind == "linear" else f", radius={self.radius:g}"
        return f"{self.in_features}, {self.num_classes}, {self.kind!r}{radius}"
