"""Ranking losses of hierarchies: against their definitions, masks, extreme scores, gradients, descent."""

import itertools
import math

import pytest
import torch

from lresnet import Lorentz
from lresnet.nn import (
    HierarchyRankingLoss,
    ordered_ranking_loss,
    pairwise_ancestor_energy,
    pairwise_entailment_energy,
    ranking_loss,
    split_candidates,
)
from lresnet.testing import assert_compiles


@pytest.fixture(autouse=True)
def same_points_in_every_run() -> None:
    torch.manual_seed(0)


def definition(positive, negative, levels, margin=0.0):
    """The mean over positives of minus the log of the softmax, by loops of Python floats."""
    losses = []
    for p, n in zip(positive.tolist(), negative.tolist(), strict=True):
        for j, own in enumerate(p):
            farther = [p[k] + margin for k in range(len(p)) if levels[k] > levels[j]]
            total = math.fsum(math.exp(s) for s in (own, *farther, *(s + margin for s in n)))
            losses.append(math.log(total) - own)
    return sum(losses) / len(losses)


@pytest.mark.parametrize("margin", [0.0, 0.7])
def test_losses_agree_with_their_definitions(margin):
    positive, negative = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    for levels in ([0, 1, 2, 3], [2, 1, 1, 5], [1, 1, 1, 1]):
        got = ordered_ranking_loss(positive, negative, levels=torch.tensor(levels), margin=margin)
        assert float(got) == pytest.approx(definition(positive, negative, levels, margin), rel=1e-13)
    equal = definition(positive, negative, [0] * 4, margin)
    assert float(ranking_loss(positive, negative, margin=margin)) == pytest.approx(equal, rel=1e-13)
    sorted_ones = ordered_ranking_loss(positive, negative, margin=margin)
    assert float(sorted_ones) == pytest.approx(definition(positive, negative, [0, 1, 2, 3], margin), rel=1e-13)


def test_ordered_loss_is_the_likelihood_of_plackett_and_luce():
    scores = torch.randn(4, dtype=torch.float64)
    total = 0.0
    for order in itertools.permutations(range(4)):
        ranked = scores[list(order)].unsqueeze(0)
        total += math.exp(-4 * float(ordered_ranking_loss(ranked, ranked[:, :0])))
    assert total == pytest.approx(1.0)


def test_padding_changes_nothing_and_gets_no_gradient():
    positive = torch.tensor([[2.0, 1.0, math.nan], [0.5, math.inf, -math.inf]], requires_grad=True)
    negative = torch.tensor([[0.0, math.nan], [1.0, 0.3]], requires_grad=True)
    known = torch.tensor([[True, True, False], [True, False, False]])
    others = torch.tensor([[True, False], [True, True]])
    for loss in (ranking_loss, ordered_ranking_loss):
        value = loss(positive, negative, positive_mask=known, negative_mask=others)
        first = loss(torch.tensor([[2.0, 1.0]]), torch.tensor([[0.0]]))
        second = loss(torch.tensor([[0.5]]), torch.tensor([[1.0, 0.3]]))
        torch.testing.assert_close(value, (2 * first + second) / 3)
        for gradient, mask in zip(torch.autograd.grad(value, [positive, negative]), (known, others), strict=True):
            assert gradient.isfinite().all()
            assert ((gradient != 0) == mask).all()


def test_weights_and_levels_of_each_node():
    positive, negative = torch.randn(2, 3), torch.randn(2, 4)
    weight = torch.tensor([[1.0, 0.5, 0.0]])
    first, second, _ = (ranking_loss(positive[:, j : j + 1], negative) for j in range(3))
    torch.testing.assert_close(ranking_loss(positive, negative, weight=weight), (first + 0.5 * second) / 1.5)
    levels = torch.tensor([[1, 1, 2], [3, 2, 1]])
    each = [ordered_ranking_loss(positive[i : i + 1], negative[i : i + 1], levels=levels[i]) for i in range(2)]
    torch.testing.assert_close(ordered_ranking_loss(positive, negative, levels=levels), sum(each) / 2)


def test_without_rivals_or_positives_the_loss_is_zero():
    score = torch.randn(2, 1, requires_grad=True)
    nothing = torch.zeros(2, 1, dtype=torch.bool)
    for loss in (ranking_loss, ordered_ranking_loss):
        for value in (
            loss(score, score[:, :0]),
            loss(score, score, negative_mask=nothing),
            loss(score[:, :0], score),
            loss(score, score, positive_mask=nothing),
        ):
            assert float(value.detach()) == 0
            assert (torch.autograd.grad(value, score, allow_unused=True, materialize_grads=True)[0] == 0).all()


def test_small_and_large_losses_keep_their_digits():
    positive = torch.tensor([[0.0]], dtype=torch.float64)
    for difference in (-700.0, -40.0, 40.0, 1e6):
        got = ranking_loss(positive, positive + difference)
        expected = difference if difference > 100 else math.log1p(math.exp(difference))
        assert float(got) == pytest.approx(expected, rel=1e-14)
    half = ranking_loss(torch.tensor([[1.0]], dtype=torch.bfloat16), torch.tensor([[-20.0]], dtype=torch.bfloat16))
    assert half.dtype == torch.float32
    assert float(half) == pytest.approx(math.exp(-21), rel=1e-6)


def test_gradcheck_to_second_order():
    positive, negative = (torch.randn(2, n, dtype=torch.float64, requires_grad=True) for n in (3, 4))
    positive_mask = torch.tensor([[True, True, True], [True, True, False]])
    levels = torch.tensor([1, 2, 2])

    def loss(p, n):
        return ordered_ranking_loss(p, n, levels=levels, positive_mask=positive_mask, margin=0.3)

    assert torch.autograd.gradcheck(loss, (positive, negative))
    assert torch.autograd.gradgradcheck(loss, (positive, negative))


def test_candidates_are_split_into_positives_and_negatives():
    scores = torch.randn(2, 5, requires_grad=True)
    positive, mask, others = split_candidates(scores, torch.tensor([[3, 1], [0, -1]]), torch.tensor([[0], [2]]))
    assert torch.equal(positive[0], scores[0, [3, 1]])
    assert positive[1, 0] == scores[1, 0]
    assert mask.tolist() == [[True, True], [True, False]]
    assert others.tolist() == [[False, False, True, False, True], [False, True, False, True, True]]
    got = ordered_ranking_loss(positive, scores, positive_mask=mask, negative_mask=others)
    first = ordered_ranking_loss(scores[:1, [3, 1]], scores[:1, [2, 4]])
    second = ordered_ranking_loss(scores[1:, [0]], scores[1:, [1, 3, 4]])
    torch.testing.assert_close(got, (2 * first + second) / 3)
    with pytest.raises(ValueError, match="positives must be from 0 to 4, or -1 for padding, got 5"):
        split_candidates(scores, torch.tensor([[5], [0]]))
    with pytest.raises(ValueError, match="exclude"):
        split_candidates(scores, torch.tensor([[1], [0]]), torch.tensor([[-2], [0]]))


@pytest.mark.parametrize("score", ["distance", "ancestor", "cone"])
def test_module_ranks_points_by_its_score(score):
    M = Lorentz(-0.8, learnable=True)
    nodes, ancestors, others = torch.randn(4, 3), torch.randn(4, 2, 3), torch.randn(6, 3)
    loss = HierarchyRankingLoss(M, score, temperature=0.5, alpha=0.7, margin=0.1)
    energy = {
        "distance": lambda x, y: M.pairwise_dist(x, y),
        "ancestor": lambda x, y: pairwise_ancestor_energy(x, y, K=M.curvature, alpha=0.7),
        "cone": lambda x, y: pairwise_entailment_energy(x, y, K=M.curvature),
    }[score]
    positive = torch.stack([energy(nodes[i : i + 1], ancestors[i])[0] for i in range(4)])
    expected = ordered_ranking_loss(-2 * positive, -2 * energy(nodes, others), margin=0.1)
    got = loss(nodes, ancestors, others)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(loss(nodes, ancestors, others.expand(4, 6, 3)), expected)
    plain = HierarchyRankingLoss(M, score, ordered=False, temperature=0.5, alpha=0.7)(nodes, ancestors, others)
    torch.testing.assert_close(plain, ranking_loss(-2 * positive, -2 * energy(nodes, others)))
    got.backward()
    assert M.log_kappa.grad.isfinite().all()
    assert (M.log_kappa.grad != 0).all()


@pytest.mark.parametrize("score", ["distance", "ancestor", "cone"])
def test_gradients_are_finite_at_equal_far_and_origin_points(score):
    rows = [[0.0, 0.0], [1.0, 1.0], [1e4, 1e4], [1e-30, 0.0], [-1e4, -1e4], [2.0, 2.0]]
    points = torch.tensor(rows, requires_grad=True)
    loss = HierarchyRankingLoss(Lorentz(-1.0), score)
    value = loss(points, points[torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4], [0, 5], [1, 0]])], points)
    value.backward()
    assert value.isfinite()
    assert points.grad.isfinite().all()


def test_descent_puts_the_parent_before_the_grandparent_and_both_before_the_rest():
    torch.manual_seed(0)
    parents = [-1, 0, 0, 1, 1, 2, 2]  # a binary tree
    points = torch.nn.Parameter(0.1 * torch.randn(7, 4))
    loss, optimizer = HierarchyRankingLoss(Lorentz(-1.0), "ancestor"), torch.optim.Adam([points], lr=0.1)
    leaves = torch.tensor([3, 4, 5, 6])
    ancestors = torch.tensor([[parents[i], parents[parents[i]]] for i in leaves.tolist()])
    for _ in range(150):
        optimizer.zero_grad()
        positive, mask, others = split_candidates(loss.scores(points[leaves], points), ancestors, leaves.unsqueeze(1))
        ordered_ranking_loss(positive, loss.scores(points[leaves], points), negative_mask=others).backward()
        optimizer.step()
    assert mask.all()
    scores = loss.scores(points[leaves], points).detach()
    scores[torch.arange(4), leaves] = -torch.inf
    assert torch.equal(scores.topk(2).indices, ancestors)


def test_wrong_arguments_are_reported():
    score = torch.randn(2, 3)
    with pytest.raises(TypeError, match="positive_mask must be a boolean tensor"):
        ranking_loss(score, score, positive_mask=torch.ones(2, 3))
    with pytest.raises(ValueError, match="margin"):
        ranking_loss(score, score, margin=-1.0)
    with pytest.raises(ValueError, match="weight"):
        ranking_loss(score, score, weight=-score.abs())
    M = Lorentz(-1.0)
    for name, options in (
        ("score", {"score": "norm"}),
        ("temperature", {"temperature": 0.0}),
        ("alpha", {"alpha": -1}),
    ):
        with pytest.raises(ValueError, match=name):
            HierarchyRankingLoss(M, **options)
    with pytest.raises(ValueError, match=r"must be \[B, n\]"):
        HierarchyRankingLoss(M)(score, score, score)
    assert "score='cone'" in repr(HierarchyRankingLoss(M, "cone"))


@pytest.mark.slow
def test_module_compiles():
    nodes, ancestors, others = torch.randn(4, 3), torch.randn(4, 2, 3), torch.randn(6, 3)
    assert_compiles(HierarchyRankingLoss(Lorentz(-1.0), "ancestor"), nodes, ancestors, others)
