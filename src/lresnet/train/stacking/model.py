"""The parameters of S models as a few tensors, and one model that computes with all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.func import functional_call

from lresnet.geometry.curvature import Curvature
from lresnet.geometry.state import is_learned_number

__all__ = ["ModelStack", "StackError"]

Model = TypeVar("Model", bound=torch.nn.Module)
Result = TypeVar("Result")


class StackError(ValueError):
    """These runs cannot be stacked; they can be run one by one."""


class ModelStack(Generic[Model]):
    """The parameters of S models, and one model that computes with all of them (:mod:`lresnet.geometry.stack`).

    Args:
        models: models of one architecture, on one device.
        sections: names of parameters that share one tensor [S, P]. Few tensors mean few operations for clipping,
            optimiser steps and copies.
        points: names of parameters that keep a tensor [S, ...] of their own, such as points of a manifold.

    Raises:
        StackError: the models differ in more than the values of their parameters.

    Example:
        >>> from lresnet.models import LorentzGCN
        >>> models = [LorentzGCN(4, num_layers=1) for _ in range(3)]
        >>> stack = ModelStack(models, [[name for name, _ in models[0].named_parameters()]])
        >>> x, edges = torch.randn(5, 1, 4), torch.tensor([[0, 1], [1, 2]])
        >>> stack.call(lambda model: model(model.input_points(x), model.graph(edges, 5))).shape
        torch.Size([5, 3, 16])
    """

    def __init__(self, models: Sequence[Model], sections: Sequence[Sequence[str]], points: Sequence[str] = ()) -> None:
        _require_same_architecture(models)
        self.members = len(models)
        self.model = copy.deepcopy(models[0])
        self._caller = _Caller(self.model)
        self._sections = [list(section) for section in [*sections, *([name] for name in points)] if section]
        self._shapes = {name: parameter.shape for name, parameter in models[0].named_parameters()}
        self._points = set(points)
        self._numbers = {name for name in self._shapes if is_learned_number(models[0], name)}
        missing = set(self._shapes) - {name for section in self._sections for name in section}
        if missing:
            raise StackError(
                f"parameters {', '.join(sorted(missing))} are in no section, e.g. because they are frozen; "
                "run the models one by one"
            )
        rows = [dict(model.named_parameters()) for model in models]
        self.leaves = [self._leaf(section, rows) for section in self._sections]
        """The tensors that optimisers update: [S, P] for each section, then [S, ...] for each of ``points``."""

    def _leaf(self, section: list[str], rows: Sequence[dict[str, torch.nn.Parameter]]) -> Tensor:
        if section[0] in self._points:
            return torch.stack([row[section[0]].detach().as_subclass(Tensor) for row in rows]).requires_grad_()
        flat = [torch.cat([row[name].detach().flatten() for name in section]) for row in rows]
        return torch.stack(flat).requires_grad_()

    def views(self, leaves: Sequence[Tensor] | None = None) -> dict[str, Tensor]:
        """Return each parameter's differentiable view [S, ...] of ``leaves`` (default: those of the stack)."""
        views: dict[str, Tensor] = {}
        for section, leaf in zip(self._sections, self.leaves if leaves is None else leaves, strict=True):
            if section[0] in self._points:
                views[section[0]] = leaf
                continue
            parts = leaf.split([self._shapes[name].numel() for name in section], dim=1)
            views |= {name: self._shaped(name, part) for name, part in zip(section, parts, strict=True)}
        return views

    def _shaped(self, name: str, part: Tensor) -> Tensor:
        # A curvature broadcasts against points and keeps a coordinate axis, [S, 1]; other learned numbers are [S].
        if name.rsplit(".", 1)[-1] == "log_kappa":
            return part
        shape = self._shapes[name]
        return part.squeeze(1) if name in self._numbers or not shape else part.unflatten(1, shape)

    def call(self, function: Callable[[Model], Result], leaves: Sequence[Tensor] | None = None) -> Result:
        """Return ``function(model)``, where ``model`` computes with the parameters of all members."""
        views = {f"model.{name}": view for name, view in self.views(leaves).items()}
        result: Result = functional_call(self._caller, views, (function,))
        return result

    @torch.no_grad()
    def curvature(self) -> Curvature:
        """Return K for points [S, C, n]: a float, or [S, 1, 1] if each member learns its own."""
        K: Curvature = self.call(lambda model: model.manifold.curvature)  # type: ignore[assignment, union-attr]
        return K.unsqueeze(-1) if isinstance(K, Tensor) else K

    @torch.no_grad()
    def write(self, member: int, model: Model, leaves: Sequence[Tensor] | None = None) -> None:
        """Copy the parameters of one member into ``model``."""
        views = self.views(leaves)
        for name, parameter in model.named_parameters():
            parameter.copy_(views[name][member].reshape(parameter.shape))


class _Caller(torch.nn.Module):
    """A module whose forward pass is any function of ``model``, for ``functional_call``."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[[torch.nn.Module], Result]) -> Result:
        return function(self.model)


def _require_same_architecture(models: Sequence[torch.nn.Module]) -> None:
    if not models:
        raise StackError("a stack needs at least one model, got none")
    first = models[0]
    for model in models[1:]:
        if type(model) is not type(first) or getattr(model, "config", None) != getattr(first, "config", None):
            raise StackError("models of different classes or configurations cannot be stacked; run them one by one")
        layout, expected = _layout(model), _layout(first)
        if layout != expected:
            name = next(iter(set(layout.items()) ^ set(expected.items())))[0]
            raise StackError(f"{name!r} differs in shape, dtype or device between models; run them one by one")
        for name, buffer in model.named_buffers():
            if not torch.equal(buffer, first.get_buffer(name)):
                raise StackError(f"buffer {name!r} differs between models, but a stack shares it; run them one by one")


def _layout(model: torch.nn.Module) -> dict[str, tuple[torch.Size, torch.dtype, torch.device]]:
    return {name: (tensor.shape, tensor.dtype, tensor.device) for name, tensor in model.state_dict().items()}
