"""Which parameter gets which update."""

from __future__ import annotations

from typing import NamedTuple

import geoopt
import torch

__all__ = ["ParameterGroups", "parameter_groups"]

# Names that weight decay never touches: curvature, residual weights and scales.
_GEOMETRIC = ("log_kappa", "raw_weight", "log_scale")


class ParameterGroups(NamedTuple):
    """Names and parameters, in the order of the model."""

    decayed: dict[str, torch.nn.Parameter]
    """Matrices and higher: weight decay applies."""
    plain: dict[str, torch.nn.Parameter]
    """Biases and norms: weight decay only where a recipe says so."""
    geometric: dict[str, torch.nn.Parameter]
    """Residual weights, scales, curvature: never any weight decay."""
    manifold: dict[str, torch.nn.Parameter]
    """Points of a manifold: Riemannian updates, no weight decay."""

    def summary(self) -> str:
        """One line a group: how many parameters and tensors."""
        lines = []
        for name, group in self._asdict().items():
            count = sum(p.numel() for p in group.values())
            lines.append(f"{name:9} {count:>9,} parameters in {len(group)} tensors")
        return "\n".join(lines)


def parameter_groups(model: torch.nn.Module) -> ParameterGroups:
    """Sort the trainable parameters of ``model``.

    Example:
        >>> parameter_groups(torch.nn.Linear(3, 2)).decayed.keys()
        dict_keys(['weight'])
    """
    groups = ParameterGroups({}, {}, {}, {})
    # By identity: a residual's weight may be a parameter that its user made, and have a second name.
    everywhere = model.named_parameters(remove_duplicate=False)
    geometric = {id(parameter) for name, parameter in everywhere if name.rsplit(".", 1)[-1] in _GEOMETRIC}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if isinstance(parameter, geoopt.ManifoldParameter):
            groups.manifold[name] = parameter
        elif id(parameter) in geometric:
            groups.geometric[name] = parameter
        elif parameter.dim() >= 2:
            groups.decayed[name] = parameter
        else:
            groups.plain[name] = parameter
    return groups
