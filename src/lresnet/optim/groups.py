"""Which parameter gets which update: fused torch optimisers for Euclidean parameters, geoopt's for the manifold's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import geoopt
import torch

__all__ = ["Optimizers", "ParameterGroups", "make_adam", "parameter_groups"]

# Names that weight decay never touches: curvature, residual weights and scales.
_GEOMETRIC = ("log_kappa", "raw_weight", "log_scale")


class ParameterGroups(NamedTuple):
    """Names and parameters, in the order of the model."""

    decayed: dict[str, torch.nn.Parameter]
    """Matrices and higher: weight decay applies."""
    plain: dict[str, torch.nn.Parameter]
    """Biases, norms, residual weights, scales, curvature: no weight decay."""
    manifold: dict[str, torch.nn.Parameter]
    """Points of a manifold: Riemannian updates, no weight decay."""

    def summary(self) -> str:
        """One line a group: how many parameters and tensors."""
        lines = []
        for name, group in zip(("decayed", "plain", "manifold"), self, strict=True):
            count = sum(p.numel() for p in group.values())
            lines.append(f"{name:9} {count:>9,} parameters in {len(group)} tensors")
        return "\n".join(lines)


def parameter_groups(model: torch.nn.Module) -> ParameterGroups:
    """Sort the trainable parameters of ``model``.

    Example:
        >>> parameter_groups(torch.nn.Linear(3, 2)).decayed.keys()
        dict_keys(['weight'])
    """
    groups = ParameterGroups({}, {}, {})
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if isinstance(parameter, geoopt.ManifoldParameter):
            groups.manifold[name] = parameter
        elif parameter.dim() >= 2 and name.rsplit(".", 1)[-1] not in _GEOMETRIC:
            groups.decayed[name] = parameter
        else:
            groups.plain[name] = parameter
    return groups


class Optimizers:
    """Several optimisers that step as one and save their state as one."""

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self.optimizers = list(optimizers)

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def scale_lr(self, factor: float) -> None:
        """Set every learning rate to ``factor`` times its initial value."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor

    def state_dict(self) -> dict[str, Any]:
        return {str(i): optimizer.state_dict() for i, optimizer in enumerate(self.optimizers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for i, optimizer in enumerate(self.optimizers):
            optimizer.load_state_dict(state[str(i)])
            if isinstance(optimizer, geoopt.optim.RiemannianAdam):
                # geoopt counts steps in Python; torch's Adam loads them as float32, and the corrections would round.
                for moments in optimizer.state.values():
                    moments["step"] = int(moments["step"])


def make_adam(
    model: torch.nn.Module, lr: float, weight_decay: float = 0.0, *, expect_manifold: bool = False
) -> Optimizers:
    """AdamW (decoupled decay, fused) for Euclidean parameters, RiemannianAdam for points of a manifold.

    Args:
        expect_manifold: warn if the model has no manifold parameter, i.e. if "Riemannian" would mean nothing.
    """
    groups = parameter_groups(model)
    if expect_manifold and not groups.manifold:
        warnings.warn(
            "a Riemannian optimiser was asked for, but the model has no geoopt.ManifoldParameter: "
            "all of its parameters get ordinary Adam updates",
            stacklevel=2,
        )
    euclidean = [
        {"params": list(groups.decayed.values()), "weight_decay": weight_decay},
        {"params": list(groups.plain.values()), "weight_decay": 0.0},
    ]
    optimizers: list[torch.optim.Optimizer] = []
    if groups.decayed or groups.plain:
        # AdamW shrinks by lr * weight_decay, as the decoupled decay of the released code does.
        optimizers.append(_fused(torch.optim.AdamW, [g for g in euclidean if g["params"]], lr))
    if groups.manifold:
        optimizers.append(geoopt.optim.RiemannianAdam(list(groups.manifold.values()), lr=lr, weight_decay=0.0))
    return Optimizers(optimizers)


def _fused(
    kind: Callable[..., torch.optim.Optimizer], groups: list[dict[str, Any]], lr: float
) -> torch.optim.Optimizer:
    devices = {p.device.type for g in groups for p in g["params"]}
    return kind(groups, lr=lr, fused=devices <= {"cpu", "cuda"})
