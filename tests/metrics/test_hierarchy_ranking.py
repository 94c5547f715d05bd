"""Filtered rankings against a count by hand, distortion and rank correlation against their definitions."""

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lresnet.metrics import average_distortion, norm_depth_correlation, rank_answers
from lresnet.metrics import hierarchy_ranking as module
from lresnet.metrics.checks import NonFiniteScores

Pair = tuple[int, int]


def ranked_by_hand(
    scores: list[list[float]], answers: list[Pair], known: set[Pair], exclude_self: bool
) -> tuple[list[Fraction], list[Fraction]]:
    """Return ranks and precisions from their definitions, in exact arithmetic."""
    true = known | set(answers)
    ranks, precisions = [], []
    for query, answer in answers:
        row, mine = scores[query], scores[query][answer]
        rivals = [row[c] for c in range(len(row)) if (query, c) not in true and not (exclude_self and c == query)]
        above, equal = sum(s > mine for s in rivals), sum(s == mine for s in rivals)
        good = sum(row[c] >= mine for q, c in answers if q == query)
        ranks.append(1 + above + Fraction(equal, 2))
        precisions.append(Fraction(good, good + above + equal))
    return ranks, precisions


@st.composite
def rankings(draw: st.DrawFn) -> tuple[list[list[float]], list[Pair], list[Pair], bool]:
    n = draw(st.integers(2, 7))
    few = st.integers(-2, 2).map(float)  # ties are frequent
    scores = draw(st.lists(st.lists(few, min_size=n, max_size=n), min_size=n, max_size=n))
    pairs = draw(st.permutations(list(itertools.product(range(n), range(n)))))
    count, rest = draw(st.integers(1, n * n)), draw(st.integers(0, n * n))
    answers = pairs[:count]
    return scores, answers, pairs[count : count + rest] + answers[:1], draw(st.booleans())


@settings(deadline=None)
@given(case=rankings(), block=st.sampled_from([1, 5, 2**23]))
def test_ranks_and_precisions_equal_a_count_by_hand(
    case: tuple[list[list[float]], list[Pair], list[Pair], bool], block: int
) -> None:
    scores, answers, known, exclude_self = case
    table = torch.tensor(scores)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        found = rank_answers(
            lambda queries: table[queries],
            torch.tensor(answers).T,
            len(scores),
            known=torch.tensor(known).T,
            exclude_self=exclude_self,
        )
    ranks, precisions = ranked_by_hand(scores, answers, set(known), exclude_self)
    assert found.ranks.tolist() == [float(rank) for rank in ranks]
    assert found.precisions.tolist() == [float(one) for one in precisions]
    assert float(found.mean_rank()) == pytest.approx(float(sum(ranks) / len(ranks)), rel=1e-14)
    assert float(found.mean_reciprocal_rank()) == pytest.approx(
        float(sum(1 / r for r in ranks) / len(ranks)), rel=1e-14
    )
    assert float(found.hits_at(2)) == sum(rank <= 2 for rank in ranks) / len(ranks)
    of_query = {q: [p for (query, _), p in zip(answers, precisions, strict=True) if query == q] for q, _ in answers}
    expected = sum(sum(each) / len(each) for each in of_query.values()) / len(of_query)
    assert float(found.mean_average_precision()) == pytest.approx(float(expected), rel=1e-14)


def test_other_true_candidates_do_not_push_an_answer_down() -> None:
    scores = torch.tensor([[9.0, 5.0, 4.0, 3.0]])
    answer = torch.tensor([[0], [3]])

    def score(queries: Tensor) -> Tensor:
        return scores[queries]

    assert rank_answers(score, answer, 4).ranks.item() == 3  # node 0 is the query itself
    assert rank_answers(score, answer, 4, exclude_self=False).ranks.item() == 4
    assert rank_answers(score, answer, 4, known=torch.tensor([[0, 0, 5], [1, 2, 3]])).ranks.item() == 1


def test_queries_may_be_other_than_candidates() -> None:
    scores = torch.rand(12, 3, generator=torch.Generator().manual_seed(0))
    answers = torch.stack([torch.arange(12), torch.arange(12) % 3])
    found = rank_answers(lambda queries: scores[queries], answers, 3, exclude_self=False)
    mine = scores[answers[0], answers[1]]
    assert found.ranks.tolist() == (1 + (scores > mine[:, None]).sum(1)).tolist()


def test_scores_are_asked_for_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 40)
    asked: list[int] = []

    def score(queries: Tensor) -> Tensor:
        asked.append(queries.numel())
        return torch.zeros(queries.numel(), 10)

    rank_answers(score, torch.stack([torch.arange(10), torch.zeros(10, dtype=torch.int64)]), 10, exclude_self=False)
    assert asked == [4, 4, 2]


@pytest.mark.parametrize(
    ("answers", "scores", "words"),
    [
        (torch.zeros(2, 0, dtype=torch.int64), torch.zeros(3, 3), "pairs"),
        (torch.tensor([[1, 1], [0, 0]]), torch.zeros(3, 3), "repeat"),
        (torch.tensor([[1], [0]]), torch.zeros(3, 2), "queries, candidates"),
        (torch.tensor([[1], [0]]), torch.full((3, 3), math.nan), "query 1 is NaN"),
    ],
)
def test_impossible_rankings_are_refused(answers: Tensor, scores: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rank_answers(lambda queries: scores[queries], answers, 3)


def test_nan_is_reported_as_a_diverged_score() -> None:
    with pytest.raises(NonFiniteScores):
        rank_answers(lambda queries: torch.full((1, 2), math.nan), torch.tensor([[1], [0]]), 2)


def test_distortion_is_zero_for_proportional_distances_and_equals_its_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    tree = torch.randint(1, 9, (50,), generator=generator)
    for factor in (1e-200, 1.0, 1e200):
        assert average_distortion(factor * tree.double(), tree).item() < 1e-15
    distances = torch.rand(50, generator=generator, dtype=torch.float64)
    ratio = [d / t for d, t in zip(distances.tolist(), tree.tolist(), strict=True)]
    factor = sum(ratio) / sum(r * r for r in ratio)
    expected = sum(abs(factor * r - 1) for r in ratio) / 50
    assert average_distortion(distances, tree).item() == pytest.approx(expected, rel=1e-12)
    assert average_distortion(torch.zeros(3), torch.ones(3)).item() == 1
    with pytest.raises(ValueError, match="positive"):
        average_distortion(torch.ones(2), torch.tensor([1, 0]))


def test_rank_correlation_of_norm_and_depth_has_mean_ranks_for_ties() -> None:
    depths = torch.tensor([0, 1, 1, 2, 2])
    norms = torch.tensor([0.0, 0.2, 0.4, 0.3, 0.9])
    # Pearson's correlation of the ranks 1, 2.5, 2.5, 4.5, 4.5 and 1, 2, 4, 3, 5.
    a, b = [1 - 3, -0.5, -0.5, 1.5, 1.5], [-2, -1, 1, 0, 2]
    expected = sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    assert norm_depth_correlation(norms, depths) == pytest.approx(expected, rel=1e-12)
    assert norm_depth_correlation(-norms, depths) == pytest.approx(-expected, rel=1e-12)
    assert norm_depth_correlation(torch.zeros(5), depths) == 0
