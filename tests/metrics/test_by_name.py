"""Metrics by name against scikit-learn and against brute force."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as reference

from lresnet._metric_names import NODE_METRICS
from lresnet.metrics import hits_at, link_metric, mean_reciprocal_rank, node_metric


def _logits(seed: int, classes: int, count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (count,), generator=generator)


@pytest.mark.parametrize("seed", range(3))
def test_ranking_metrics_of_several_classes_are_means_over_one_against_the_rest(seed: int) -> None:
    logits, y = _logits(seed, 4)
    probabilities = logits.softmax(-1).numpy()
    expected = reference.roc_auc_score(y, probabilities, multi_class="ovr", average="macro")
    assert float(node_metric("roc_auc")(logits, y)) == pytest.approx(expected, abs=1e-12)
    expected = reference.average_precision_score(torch.nn.functional.one_hot(y).numpy(), probabilities, average="macro")
    assert float(node_metric("average_precision")(logits, y)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_metrics_of_two_classes_are_those_of_class_1(seed: int) -> None:
    logits, y = _logits(seed, 2)
    score, guess = logits.softmax(-1)[:, 1], logits.argmax(-1)
    expected = {
        "accuracy": reference.accuracy_score(y, guess),
        "f1": reference.f1_score(y, guess, average="micro"),
        "f1_macro": reference.f1_score(y, guess, average="macro"),
        "f1_binary": reference.f1_score(y, guess),
        "roc_auc": reference.roc_auc_score(y, score),
        "average_precision": reference.average_precision_score(y, score),
    }
    assert set(expected) == set(NODE_METRICS)
    for name, value in expected.items():
        assert float(node_metric(name)(logits, y)) == pytest.approx(value, abs=1e-7)


def test_a_class_without_examples_does_not_count_in_the_mean() -> None:
    logits, y = _logits(0, 4)
    present = y != 3
    found = node_metric("roc_auc")(logits[present], y[present])
    scores = logits[present].softmax(-1)
    each = [reference.roc_auc_score(y[present] == label, scores[:, label]) for label in range(3)]
    assert float(found) == pytest.approx(sum(each) / 3, abs=1e-12)


# Few different values, so that there are ties.
_SCORES = st.lists(st.integers(-3, 3), min_size=1, max_size=12).map(lambda values: torch.tensor(values).double())


@given(_SCORES, _SCORES)
def test_the_reciprocal_rank_is_that_of_brute_force(positive: torch.Tensor, negative: torch.Tensor) -> None:
    ranks = [1 + sum(1.0 if other > own else 0.5 * (other == own) for other in negative) for own in positive]
    expected = sum(1 / float(rank) for rank in ranks) / len(ranks)
    assert float(mean_reciprocal_rank(positive, negative)) == pytest.approx(expected, abs=1e-12)
    assert link_metric("mrr")(positive, negative) == mean_reciprocal_rank(positive, negative)


@given(_SCORES, _SCORES, st.integers(1, 14))
def test_hits_are_the_edges_above_the_kth_best_pair(positive: torch.Tensor, negative: torch.Tensor, k: int) -> None:
    best = sorted(negative.tolist(), reverse=True)
    hits = [own for own in positive.tolist() if len(best) < k or own > best[k - 1]]
    assert float(hits_at(positive, negative, k)) == pytest.approx(len(hits) / positive.numel())
    assert link_metric(f"hits@{k}")(positive, negative) == hits_at(positive, negative, k)


@given(_SCORES, _SCORES)
def test_ranked_links_have_the_metrics_of_scikit_learn(positive: torch.Tensor, negative: torch.Tensor) -> None:
    scores = torch.cat([positive, negative]).numpy()
    truth = [1] * positive.numel() + [0] * negative.numel()
    for name, function in (("roc_auc", "roc_auc_score"), ("average_precision", "average_precision_score")):
        expected = getattr(reference, function)(truth, scores)
        assert float(link_metric(name)(positive, negative)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["hits@0", "hits@", "hits@-1", "hits@1.5", "accuracy", "auc", ""])
def test_unknown_metrics_of_links_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"^unknown metric .* of links; choose one of roc_auc, .*hits@50$"):
        link_metric(name)


@pytest.mark.parametrize("name", ["mrr", "hits@5", "auc", "F1", ""])
def test_unknown_metrics_of_classes_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"^unknown metric .* of a classification; choose one of accuracy, "):
        node_metric(name)


def test_no_hits_at_0() -> None:
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        hits_at(torch.ones(1), torch.ones(1), 0)
