"""Checks of a converted network: with plain sums as residuals it is the original, bit for bit."""

from __future__ import annotations

import copy
import io
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import lresnet
from lresnet.convert import Plan


class Net(nn.Module):
    """Layers for the forwards of the tests. The input has the shape (2, 4, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g, self.norm, self.drop = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout()
        self.mlp = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4))
        self.shortcut, self.proj, self.downsample = nn.Linear(4, 4), nn.Linear(4, 4), None
        self.narrow, self.wide = nn.Linear(4, 2), nn.Linear(4, 8)
        self.gamma, self.weight = nn.Parameter(torch.full((4,), 0.5)), nn.Parameter(torch.randn(4, 4))
        self.pos = nn.Parameter(torch.randn(1, 9, 4))
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)])
        self.tokens, self.places = nn.Embedding(9, 4), nn.Embedding(9, 4)
        self.flag, self.held = True, [self.f, self.g]
        self.register_buffer("cos", torch.rand(4))

    def rotate(self, x):
        return torch.cat([-x[..., 2:], x[..., :2]], -1)

    @staticmethod
    def twice(x):
        return 2 * x

    @property
    def chosen(self):
        return self.f

    def block(self, x):
        return self.drop(self.f(x))


def example() -> Tensor:
    """Return the input of :class:`Net`."""
    return torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(1))


def net_with(forward: Callable[..., object], base: type[nn.Module] = Net) -> nn.Module:
    """Return a network with this ``forward``. Its class can be pickled."""
    name = f"NetOf_{forward.__module__}_{forward.__qualname__}".replace(".", "_").replace("<locals>", "in")
    cls = type(name, (base,), {"forward": forward, "__module__": __name__})
    setattr(sys.modules[__name__], name, cls)
    torch.manual_seed(0)
    return cls()


def converted(plan: Plan) -> list[str]:
    """Return the code of the sums that are converted."""
    return [one.text for one in plan.converted]


def refused(plan: Plan) -> dict[str, str]:
    """Return the code and the reason of the sums that are not converted."""
    return {one.text: one.reason for one in plan.refused}


def check_same(
    network: nn.Module, *inputs: Any, pickled: bool = True, exact_gradients: bool = True, **keywords: Any
) -> Plan:
    """Assert that the converted network with plain sums has the original's outputs and gradients; return the plan.

    Dropout is on. A deepcopy and a pickled copy of the converted network compute the same. Gradients that are not
    exact may be sums in another order.
    """
    plan = lresnet.find_sums(network, *inputs, **keywords)
    flat = lresnet.lorentzify(network, residual="space", plan=plan)
    expected, gradients = _pass(network, inputs, keywords)
    twins = [flat, copy.deepcopy(flat), *([_pickled(flat)] if pickled else [])]
    for twin in twins:
        found, own = _pass(twin, inputs, keywords)
        assert len(found) == len(expected)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        for name, gradient in gradients.items():
            assert (own[name] is None) == (gradient is None), name
            if gradient is not None and exact_gradients:
                assert torch.equal(own[name], gradient), name
            elif gradient is not None:
                torch.testing.assert_close(own[name], gradient)
        assert [type(part) for part in twin.modules()] == [type(part) for part in flat.modules()]
    return plan


def _pickled(network: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(network, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def _pass(network: nn.Module, inputs: Any, keywords: Any) -> tuple[list[Tensor], dict[str, Tensor | None]]:
    """Return the outputs and the gradients in training mode."""
    network.train().zero_grad()
    torch.manual_seed(3)
    inputs, keywords = copy.deepcopy((inputs, keywords))
    outputs = [one for one in tree_leaves(network(*inputs, **keywords)) if isinstance(one, Tensor)]
    sum(one.square().sum() for one in outputs if one.requires_grad).backward()
    return outputs, {name: parameter.grad for name, parameter in network.named_parameters()}
