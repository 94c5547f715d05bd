"""The order of ancestors against its definition, pair by pair."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lresnet.metrics import AncestorOrder, ancestor_order, rank_answers, ranking_metric, ranking_metrics
from lresnet.metrics.checks import NonFiniteScores

Known = dict[tuple[int, int], int]


@st.composite
def orders(draw: st.DrawFn) -> tuple[list[list[float]], Known]:
    n = draw(st.integers(2, 6))
    row = st.lists(st.integers(-2, 2).map(float), min_size=n, max_size=n)  # ties are frequent
    scores = draw(st.lists(row, min_size=n, max_size=n))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    return scores, draw(st.dictionaries(pairs, st.integers(1, 3), min_size=1))


def by_hand(scores: list[list[float]], known: Known, node: int) -> tuple[Fraction | None, Fraction]:
    own = {candidate: steps for (of, candidate), steps in known.items() if of == node}
    parts = []
    for a, b in itertools.permutations(own, 2):
        if own[a] < own[b]:
            mine, other = scores[node][a], scores[node][b]
            parts.append(Fraction(1) if mine > other else Fraction(int(mine == other), 2))
    best = max(score for each, score in enumerate(scores[node]) if each != node)
    first = [each for each, score in enumerate(scores[node]) if each != node and score == best]
    share = sum(parts, Fraction()) / len(parts) if parts else None
    return share, Fraction(sum(own.get(each) == 1 for each in first), len(first))


def measured(scores: list[list[float]], known: Known) -> AncestorOrder:
    table, pairs = torch.tensor(scores), torch.tensor(list(known)).T
    return ancestor_order(lambda nodes: table[nodes], pairs, torch.tensor(list(known.values())), len(scores))


@given(orders())
@settings(max_examples=200, deadline=None)
def test_shares_and_first_parents_are_those_of_the_definition(drawn: tuple[list[list[float]], Known]) -> None:
    scores, known = drawn
    found = measured(scores, known)
    expected = [by_hand(scores, known, node) for node in sorted({node for node, _ in known})]
    for share, (wanted, _) in zip(found.shares.tolist(), expected, strict=True):
        assert math.isnan(share) if wanted is None else share == pytest.approx(float(wanted))
    assert found.parents_first.tolist() == pytest.approx([float(first) for _, first in expected])
    shares = [share for share, _ in expected if share is not None]
    mean = float(sum(shares) / len(shares)) if shares else 1.0
    assert float(found.share()) == pytest.approx(mean)


def test_a_list_with_the_root_first_has_no_pair_in_order_and_a_high_mrr() -> None:
    """Filtered ranks do not see the order, ordered_mrr does."""
    up = torch.tensor([[0.0, 1.0, 2.0, 3.0, -9.0]])  # parent 1, grandparent 2, root 3, and another node
    down = torch.tensor([[0.0, 3.0, 2.0, 1.0, -9.0]])
    pairs, steps = torch.tensor([[0, 0, 0], [1, 2, 3]]), torch.tensor([1, 2, 3])
    for table, expected in ((up, 0.0), (down, 1.0)):
        ranked = rank_answers(lambda nodes, table=table: table[nodes], pairs, 5)
        order = ancestor_order(lambda nodes, table=table: table[nodes], pairs, steps, 5)
        assert float(ranking_metric(ranked, "mrr")) == 1.0
        assert float(ranking_metric(ranked, "ordered_mrr", order)) == float(order.share()) == expected
        assert float(order.parent_first()) == expected
        found = ranking_metrics(ranked, "hits@3", order)
        assert list(found) == [
            *("hits@3", "ordered_mrr", "mrr", "order", "parent_first"),
            *("mean_average_precision", "hits@10", "mean_rank"),
        ]
        assert found["order"] == found["ordered_mrr"] == 100 * expected


def test_what_does_not_fit_is_refused() -> None:
    pairs, steps = torch.tensor([[0], [1]]), torch.tensor([1])
    with pytest.raises(ValueError, match=r"must be \[2, m\] and \[m\] with m > 0"):
        ancestor_order(lambda nodes: torch.zeros(1, 2), pairs, steps[:0], 2)
    with pytest.raises(ValueError, match=r"the scores have shape \[1, 3\]; \[1, 2\] are needed"):
        ancestor_order(lambda nodes: torch.zeros(1, 3), pairs, steps, 2)
    with pytest.raises(NonFiniteScores, match="a score of node 0 is NaN"):
        ancestor_order(lambda nodes: torch.full((1, 2), torch.nan), pairs, steps, 2)
    ranked = rank_answers(lambda nodes: torch.zeros(1, 2), pairs, 2)
    with pytest.raises(ValueError, match="ordered_mrr needs the order of the ancestors"):
        ranking_metric(ranked, "ordered_mrr")
