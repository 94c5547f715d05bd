"""Tests of Adam with weight decay in the gradient: which parameters decay, and by how much."""

from __future__ import annotations

import pytest
import torch

from lresnet import Lorentz
from lresnet.models import LorentzGCN
from lresnet.nn import Prototypes
from lresnet.optim import make_adam, make_adam_l2


def test_steps_equal_adam_on_the_loss_plus_penalty():
    """Compared with torch's Adam without decay on loss + decay/2 |w|^2, for matrices and for all parameters."""
    for decay in ("matrices", "all"):
        torch.manual_seed(0)
        ours = torch.nn.Linear(4, 3, dtype=torch.float64)
        torch.manual_seed(0)
        other = torch.nn.Linear(4, 3, dtype=torch.float64)
        x = torch.randn(8, 4, dtype=torch.float64)
        optimizers = make_adam_l2(ours, lr=0.1, weight_decay=0.3, decay=decay)
        adam = torch.optim.Adam(other.parameters(), lr=0.1)
        for _ in range(5):
            optimizers.zero_grad()
            ours(x).square().mean().backward()
            optimizers.step()
            penalised = [other.weight] + ([other.bias] if decay == "all" else [])
            adam.zero_grad()
            (other(x).square().mean() + 0.15 * sum(p.square().sum() for p in penalised)).backward()
            adam.step()
        torch.testing.assert_close(ours.weight, other.weight)
        torch.testing.assert_close(ours.bias, other.bias)


def test_without_a_gradient_of_the_data_a_weight_shrinks_by_the_rate_for_any_decay():
    """With decoupled decay it shrinks by the rate times the decay."""
    for decay in (1e-4, 1e-2):
        lengths = []
        for make in (make_adam_l2, make_adam):
            layer = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
            torch.nn.init.ones_(layer.weight)
            optimizers = make(layer, lr=0.1, weight_decay=decay)
            (0 * layer.weight).sum().backward()
            optimizers.step()
            lengths.append(layer.weight.item())
        assert lengths == pytest.approx([0.9, 1 - 0.1 * decay], abs=1e-4)


def test_points_curvature_and_residual_weights_have_no_decay():
    steps = []
    for decay in (0.0, 0.5):
        torch.manual_seed(0)
        network = LorentzGCN(4, 3, 2, 2, residual_options={"weight": "learned"}, learn_curvature=True)
        optimizers = make_adam_l2(network, lr=0.1, weight_decay=decay)
        x, edges = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([[0, 1, 2], [1, 2, 3]])
        network(x, edges).square().sum().backward()
        optimizers.step()
        steps.append({name: p.detach().clone() for name, p in network.named_parameters()})
    plain, decayed = steps
    for name in plain:
        matrix = name.endswith("linear.weight")
        assert torch.equal(plain[name], decayed[name]) != matrix, name


def test_a_model_of_points_only_has_one_optimiser():
    head = Prototypes(3, 2, manifold=Lorentz(-1.0))
    head.bias.requires_grad_(False)
    assert len(make_adam_l2(head, lr=0.1).optimizers) == 1
