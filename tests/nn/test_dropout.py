"""Tests of dropout: equal to torch's for one network, and to each member's own for a stack."""

from __future__ import annotations

import torch

from lresnet.nn.dropout import dropout


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_dropout_equals_torch_s_on_a_cpu():
    x = torch.randn(50, 6, requires_grad=True)
    results = []
    for f in (dropout, torch.nn.functional.dropout):
        torch.manual_seed(1)
        y = f(x, 0.3)
        results.append((y, *torch.autograd.grad(y.sum(), x)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert 0.2 < (results[0][0] == 0).float().mean() < 0.4


def test_a_member_drops_the_same_entries_as_alone():
    for x in (torch.randn(40, 3, 5), torch.randn(40, 1, 5)):
        y = dropout(x, 0.6, [generator(s) for s in range(3)])
        for s in range(3):
            torch.manual_seed(s)
            assert torch.equal(y[:, s], dropout(x[:, s % x.shape[1]], 0.6))


def test_entries_of_all_members_in_sequence():
    values, counts = torch.randn(90), [20, 40, 30]
    y = dropout(values, 0.5, [generator(s) for s in range(3)], counts)
    for s, (own, all_) in enumerate(zip(y.split(counts), values.split(counts), strict=True)):
        torch.manual_seed(s)
        assert torch.equal(own, dropout(all_, 0.5))
