"""Fused torch optimisers for Euclidean parameters, Riemannian ones for points of a manifold, stepping as one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

import geoopt
import torch

from lresnet.geometry import Lorentz
from lresnet.optim.groups import ParameterGroups, parameter_groups
from lresnet.optim.riemannian import RiemannianAdam

__all__ = ["Decay", "Optimizers", "adam_l2", "adamw", "device_rate", "make_adam", "make_adam_l2", "make_sgd"]

Decay = Literal["matrices", "all"]

_MOMENTUM = 0.9


class Optimizers:
    """Several optimisers that step as one and save their state as one.

    On CUDA the learning rate of a torch optimiser is a tensor there, so that a recorded step sees it change.
    """

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self.optimizers = list(optimizers)
        for group in self._groups():
            group.setdefault("initial_lr", float(group["lr"]))

    @property
    def capturable(self) -> bool:
        """Whether a step can be recorded as a CUDA graph: geoopt's optimisers count their steps on the host."""
        return not any(isinstance(optimizer, geoopt.optim.mixin.OptimMixin) for optimizer in self.optimizers)

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def scale_lr(self, factor: float) -> None:
        """Set every learning rate to ``factor`` times its initial value; on CUDA without waiting for it."""
        for group in self._groups():
            rate = group["initial_lr"] * factor
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        return {str(i): optimizer.state_dict() for i, optimizer in enumerate(self.optimizers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        rates = [group["lr"] for group in self._groups()]
        for i, optimizer in enumerate(self.optimizers):
            optimizer.load_state_dict(state[str(i)])
            if isinstance(optimizer, geoopt.optim.RiemannianAdam):
                # geoopt counts steps in Python; torch's Adam loads them as float32, and the corrections would round.
                for moments in optimizer.state.values():
                    moments["step"] = int(moments["step"])
        for group, rate in zip(self._groups(), rates, strict=True):
            group["lr"] = rate  # a tensor stays where it was; scale_lr sets its value before the next step

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]


def make_adam(
    model: torch.nn.Module,
    lr: float,
    weight_decay: float = 0.0,
    *,
    decay: Decay = "matrices",
    expect_manifold: bool = False,
) -> Optimizers:
    """AdamW (decoupled decay, fused) for Euclidean parameters, RiemannianAdam for points of a manifold.

    Args:
        decay: what weight decay touches besides matrices: nothing, or norms and biases too.
        expect_manifold: warn if the model has no manifold parameter, i.e. if "Riemannian" would mean nothing.
    """
    groups = parameter_groups(model)
    if expect_manifold and not groups.manifold:
        warnings.warn(
            "a Riemannian optimiser was asked for, but the model has no geoopt.ManifoldParameter: "
            "all of its parameters get ordinary Adam updates",
            stacklevel=2,
        )
    return _adam(groups, adamw, lr, weight_decay, decay)


def make_adam_l2(
    model: torch.nn.Module, lr: float, weight_decay: float = 0.0, *, decay: Decay = "matrices"
) -> Optimizers:
    r"""Adam whose weight decay is part of the gradient, :math:`g + \lambda w`: the penalty :math:`\lambda |w|^2 / 2`.

    Adam then rescales it with the gradient: where few labels give small gradients, a weight shrinks by about lr a step
    until the data speak for it. With decoupled decay, which is :func:`make_adam`'s, it would shrink by lr times
    ``weight_decay`` of itself. Points of a manifold have none, as there.
    """
    return _adam(parameter_groups(model), adam_l2, lr, weight_decay, decay)


def _adam(
    groups: ParameterGroups,
    euclidean_adam: Callable[[list[dict[str, Any]], float], torch.optim.Optimizer],
    lr: float,
    weight_decay: float,
    decay: Decay,
) -> Optimizers:
    optimizers: list[torch.optim.Optimizer] = []
    if euclidean := _euclidean(groups, weight_decay, decay):
        optimizers.append(euclidean_adam(euclidean, lr))
    if groups.manifold:
        optimizers.append(_riemannian_adam(list(groups.manifold.values()), lr))
    return Optimizers(optimizers)


def _riemannian_adam(points: list[torch.nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Ours, for points of one hyperboloid: the same steps as geoopt's in half the time, and they can be recorded."""
    manifolds = [getattr(point, "manifold", None) for point in points]
    first = manifolds[0]
    if isinstance(first, Lorentz) and all(other is first for other in manifolds):
        return RiemannianAdam(points, partial(getattr, first, "curvature"), device_rate(lr, points))
    adam: torch.optim.Optimizer = geoopt.optim.RiemannianAdam(points, lr=lr, weight_decay=0.0)
    return adam


def adamw(groups: list[dict[str, Any]], lr: float) -> torch.optim.AdamW:
    """torch's AdamW on parameter groups that state their ``weight_decay``, fused and ready to be recorded on CUDA."""
    # AdamW shrinks by lr * weight_decay, as the decoupled decay of the released code does.
    options = _fused(groups, lr)
    return torch.optim.AdamW(groups, **options, capturable=isinstance(options["lr"], torch.Tensor))


def adam_l2(groups: list[dict[str, Any]], lr: float) -> torch.optim.Adam:
    """torch's Adam, which adds ``weight_decay`` times the parameter to its gradient; as :func:`adamw` otherwise."""
    options = _fused(groups, lr)
    return torch.optim.Adam(groups, **options, capturable=isinstance(options["lr"], torch.Tensor))


def make_sgd(model: torch.nn.Module, lr: float, weight_decay: float = 0.0, *, decay: Decay = "matrices") -> Optimizers:
    """SGD (Nesterov momentum 0.9, fused) for Euclidean parameters, RiemannianSGD for points of a manifold.

    Args:
        weight_decay: added to the gradient, as the paper's SGD has it.
        decay: what weight decay touches besides matrices: nothing, or norms and biases too.
    """
    groups = parameter_groups(model)
    optimizers: list[torch.optim.Optimizer] = []
    if euclidean := _euclidean(groups, weight_decay, decay):
        optimizers.append(torch.optim.SGD(euclidean, **_fused(euclidean, lr), momentum=_MOMENTUM, nesterov=True))
    if groups.manifold:
        points = list(groups.manifold.values())
        optimizers.append(geoopt.optim.RiemannianSGD(points, lr=lr, momentum=_MOMENTUM, nesterov=True))
    return Optimizers(optimizers)


def _euclidean(groups: ParameterGroups, weight_decay: float, decay: Decay) -> list[dict[str, Any]]:
    """Parameter groups of a torch optimiser, those without parameters left out."""
    plain = weight_decay if decay == "all" else 0.0
    rates = ((groups.decayed, weight_decay), (groups.plain, plain), (groups.geometric, 0.0))
    return [{"params": list(group.values()), "weight_decay": rate} for group, rate in rates if group]


def _fused(groups: list[dict[str, Any]], lr: float) -> dict[str, Any]:
    """One kernel a step where there is one; on CUDA the rate lies there, ready for a recorded step."""
    parameters = [p for g in groups for p in g["params"]]
    return {"lr": device_rate(lr, parameters), "fused": {p.device.type for p in parameters} <= {"cpu", "cuda"}}


def device_rate(lr: float, parameters: Iterable[torch.Tensor]) -> float | torch.Tensor:
    """``lr``; as a tensor where all parameters are on one CUDA device, so that a recorded step sees it change."""
    devices = {p.device for p in parameters}
    one_cuda = len(devices) == 1 and all(device.type == "cuda" for device in devices)
    return torch.tensor(lr, device=devices.pop()) if one_cuda else lr
