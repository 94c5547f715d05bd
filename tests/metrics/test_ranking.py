"""ROC AUC and average precision against scikit-learn."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from lresnet.metrics import average_precision, link_scores, roc_auc

PAIRS = [(roc_auc, roc_auc_score), (average_precision, average_precision_score)]
Metric = Callable[[Tensor, Tensor], Tensor]

# Few values, so that ties are frequent; or any finite values.
few = st.integers(-3, 3).map(lambda value: value / 2)
finite = st.floats(-(2.0**90), 2.0**90, width=32)


@st.composite
def rankings(draw: st.DrawFn) -> tuple[list[float], list[int]]:
    scores = draw(st.lists(draw(st.sampled_from([few, finite])), min_size=2, max_size=60))
    labels = draw(st.lists(st.integers(0, 1), min_size=len(scores), max_size=len(scores)))
    labels[0], labels[-1] = 0, 1
    order = draw(st.permutations(range(len(scores))))
    return [scores[i] for i in order], [labels[i] for i in order]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@settings(deadline=None)
@given(ranking=rankings())
def test_metrics_equal_scikit_learn_with_ties(
    ours: Metric, theirs: Callable[..., float], ranking: tuple[list[float], list[int]]
) -> None:
    scores, labels = ranking
    found = ours(torch.tensor(scores), torch.tensor(labels))
    assert found.shape == ()
    assert found.dtype == torch.float64
    assert abs(found.item() - theirs(labels, np.array(scores, dtype=np.float32))) < 1e-9


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_metrics_equal_scikit_learn_on_many_scores(
    ours: Metric, theirs: Callable[..., float], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.rand(20_000, generator=generator) < 0.3
    scores = (torch.randn(20_000, generator=generator) + labels).to(dtype)
    assert abs(ours(scores, labels).item() - theirs(labels.numpy(), scores.double().numpy())) < 1e-9


def test_scores_of_edges_and_of_non_edges_are_joined() -> None:
    positive, negative = torch.tensor([0.9, 0.5, 0.2]), torch.tensor([0.5, 0.1])
    assert roc_auc(*link_scores(positive, negative)).item() == (2 + 1.5 + 1) / 6


@pytest.mark.parametrize("metric", [roc_auc, average_precision])
def test_perfect_inverted_and_constant_rankings(metric: Metric) -> None:
    labels = torch.tensor([0, 0, 1, 1])
    assert metric(torch.tensor([1.0, 2.0, 3.0, torch.inf]), labels) == 1
    assert metric(torch.tensor([4.0, 3.0, 2.0, 1.0]), labels) < 0.5
    assert metric(torch.zeros(4), labels) == 0.5


@pytest.mark.parametrize("metric", [roc_auc, average_precision])
@pytest.mark.parametrize(
    ("scores", "labels", "words"),
    [
        ([], [], "scores are empty"),
        ([0.1, 0.2], [1, 1], "all labels are 1"),
        ([0.1, 0.2], [0, 0], "all labels are 0"),
        ([0.1, float("nan")], [0, 1], "score 1 is NaN"),
        ([0.1, 0.2], [0, 2], "labels must be 0"),
        ([0.1, 0.2], [1], r"scores \[2\] and labels \[1\]"),
    ],
)
def test_invalid_input_is_refused(metric: Metric, scores: list[float], labels: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        metric(torch.tensor(scores), torch.tensor(labels, dtype=torch.int64))


@pytest.mark.parametrize("metric", [roc_auc, average_precision])
def test_metrics_do_not_synchronise_with_the_device(metric: Metric) -> None:
    # A fake tensor has no values, so every synchronisation fails.
    with FakeTensorMode():
        assert metric(torch.rand(8), torch.ones(8, dtype=torch.int64)).shape == ()


@pytest.mark.parametrize("metric", [roc_auc, average_precision])
def test_no_gradient_is_kept(metric: Metric) -> None:
    scores = torch.tensor([0.3, 0.4], requires_grad=True)
    assert not metric(scores, torch.tensor([0, 1])).requires_grad
