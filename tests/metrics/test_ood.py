"""FPR95, AUROC and AUPR against scikit-learn and the definitions, and metrics averaged over draws."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from lresnet.metrics import OOD_METRICS, ood_metrics, ood_metrics_by_draws
from lresnet.metrics.ood import _metrics, draw_size

# Few values, so that ties are frequent; any finite values; or a single value.
few = st.integers(-3, 3).map(lambda value: value / 2)
finite = st.floats(-(2.0**90), 2.0**90, width=32)
kinds = st.sampled_from([few, finite, st.just(0.25)])


@st.composite
def two_kinds(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    values = draw(kinds)
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    sides = [draw(st.lists(values, min_size=1, max_size=draw(st.sampled_from([1, 3, 70])))) for _ in range(2)]
    return torch.tensor(sides[0], dtype=dtype), torch.tensor(sides[1], dtype=dtype)


def by_definition(inside: Tensor, outside: Tensor) -> tuple[Fraction, Fraction]:
    """Return both forms of FPR95, computed threshold by threshold in fractions."""
    own, other = inside.tolist(), outside.tolist()
    points = []  # threshold, recall, false positives
    for threshold in sorted({*own, *other}):
        recall = Fraction(sum(score >= threshold for score in own), len(own))
        points.append((threshold, recall, Fraction(sum(score >= threshold for score in other), len(other))))
    wanted = Fraction(95, 100)
    usual = [point for point in points if point[0] >= min(own)]
    closest = min(usual, key=lambda point: (abs(point[1] - wanted), -point[1], point[0]))
    first = max((point for point in points if point[1] >= wanted), key=lambda point: point[0])
    return closest[2], first[2]


@settings(deadline=None)
@given(scores=two_kinds())
def test_metrics_equal_scikit_learn_and_the_definition(scores: tuple[Tensor, Tensor]) -> None:
    inside, outside = scores
    found = ood_metrics(inside, outside)
    assert tuple(found) == OOD_METRICS
    values, labels = torch.cat(scores).numpy(), np.r_[np.ones(len(inside)), np.zeros(len(outside))]
    assert found["auroc"] == pytest.approx(100 * roc_auc_score(labels, values), abs=1e-9)
    assert found["aupr"] == pytest.approx(100 * average_precision_score(labels, values), abs=1e-9)
    assert found["aupr_out"] == pytest.approx(100 * average_precision_score(1 - labels, -values), abs=1e-9)
    closest, first = by_definition(inside, outside)
    assert found["fpr95"] == pytest.approx(100 * float(closest), abs=1e-9)
    assert found["fpr95_first"] == pytest.approx(100 * float(first), abs=1e-9)


def test_fpr95_equals_the_roc_curve_for_10000_and_2000_scores() -> None:
    generator = torch.Generator().manual_seed(0)
    inside, outside = torch.randn(10_000, generator=generator) + 1, torch.randn(2_000, generator=generator)
    labels = np.r_[np.ones(10_000), np.zeros(2_000)]
    fpr, tpr, _ = roc_curve(labels, torch.cat([inside, outside]).numpy(), drop_intermediate=False)
    backwards = np.abs(tpr - 0.95)[::-1].argmin()  # from the lowest threshold up
    found = ood_metrics(inside, outside)
    assert found["fpr95"] == pytest.approx(100 * fpr[::-1][backwards], abs=1e-9)
    assert found["fpr95_first"] == pytest.approx(100 * fpr[np.argmax(tpr >= 0.95)], abs=1e-9)
    assert 60 < found["fpr95"] < 80


def test_perfect_inverted_and_constant_scores() -> None:
    low, high = torch.arange(50.0), torch.arange(50.0) + 100
    assert list(ood_metrics(high, low).values()) == [0, 0, 100, 100, 100]
    assert ood_metrics(low, high)["auroc"] == 0
    assert ood_metrics(low, high)["fpr95"] == 100
    constant = ood_metrics(torch.zeros(30), torch.zeros(10))
    assert constant == {"fpr95": 100, "fpr95_first": 100, "auroc": 50, "aupr": 75, "aupr_out": 25}


def test_the_two_fprs_differ_if_no_recall_is_95_percent() -> None:
    inside = torch.arange(14.0)  # recalls 13/14 = 0.929 and 1: the first is closer, and below
    outside = torch.tensor([0.0, 0.5, 20.0, -1.0])
    found = ood_metrics(inside, outside)
    assert found["fpr95"] == 50.0
    assert found["fpr95_first"] == 75.0


def test_a_recall_of_exactly_95_percent_has_a_range_of_thresholds() -> None:
    inside, outside = torch.arange(20.0), torch.tensor([0.5, 5.0])  # all but one of 20 are reached above 0 and up to 1
    found = ood_metrics(inside, outside)
    assert (found["fpr95"], found["fpr95_first"]) == (100.0, 50.0)


def test_two_dtypes_are_compared_exactly() -> None:
    inside, outside = torch.tensor([1.0 + 2**-40], dtype=torch.float64), torch.tensor([1.0])
    assert ood_metrics(inside, outside)["auroc"] == 100
    assert ood_metrics(outside, inside)["auroc"] == 0


@pytest.mark.parametrize("metric", [ood_metrics, ood_metrics_by_draws])
@pytest.mark.parametrize(
    ("inside", "outside", "words"),
    [
        ([1.0, float("inf")], [0.0], "in-distribution score 1 is inf; scores must be finite"),
        ([1.0], [0.0, float("nan")], "out-of-distribution score 1 is nan"),
        ([1.0], [float("-inf")], "out-of-distribution score 0 is -inf"),
        ([], [0.0], "there are no in-distribution scores"),
        ([1.0], [], "there are no out-of-distribution scores"),
        ([[1.0]], [0.0], r"in-distribution scores are torch.float32 \[1, 1\]; they must be floating-point"),
        ([1.0], [0], "out-of-distribution scores are torch.int64"),
    ],
)
def test_invalid_scores_are_refused(metric, inside: list[float], outside: list[float], words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=words):
        metric(torch.tensor(inside), torch.tensor(outside))


def test_metrics_do_not_synchronise_with_the_device() -> None:
    with FakeTensorMode():  # a fake tensor has no values to read
        assert _metrics(torch.rand(40), torch.rand(8)).shape == (5,)


def test_all_scores_of_a_small_set_are_used() -> None:
    inside, outside = torch.arange(100.0), torch.arange(20.0) + 0.5
    found, whole = ood_metrics_by_draws(inside, outside), ood_metrics(inside, outside)
    assert {name: found[name] for name in OOD_METRICS} == pytest.approx(whole, abs=1e-9)
    assert all(found[f"{name}_std"] == pytest.approx(0, abs=1e-9) for name in OOD_METRICS)


def test_draws_have_a_fifth_of_the_scores_without_replacement() -> None:
    inside, outside = torch.zeros(10), torch.tensor([-1.0, 1.0, 1.0])  # a draw has two scores and never -1 twice
    found = {
        ood_metrics_by_draws(inside, outside, 1, generator=torch.Generator().manual_seed(seed))["auroc"]
        for seed in range(40)
    }
    assert found == {0.0, 50.0}
    assert (draw_size(10_000, 26_032), draw_size(10_000, 1_200), draw_size(3, 9)) == (2000, 1200, 1)


def test_mean_and_deviation_over_the_draws() -> None:
    inside, outside = torch.zeros(10), torch.tensor([-1.0, 1.0, 1.0])
    found = ood_metrics_by_draws(inside, outside, 4000, generator=torch.Generator().manual_seed(0))
    # Two of three draws contain -1 and have AUROC 50; the others have 0.
    assert found["auroc"] == pytest.approx(100 / 3, abs=1.5)
    assert found["auroc_std"] == pytest.approx(50 * (2 / 9) ** 0.5, abs=0.7)
    two = ood_metrics_by_draws(inside, outside, 2, generator=torch.Generator().manual_seed(1))
    assert two["auroc_std"] in (0.0, pytest.approx(50 / 2**0.5))


def test_one_draw_has_no_deviation() -> None:
    one = ood_metrics_by_draws(torch.arange(10.0) + 5, torch.arange(8.0), draws=1)
    assert tuple(one) == OOD_METRICS


def test_the_generator_decides_the_draws() -> None:
    generator = torch.Generator().manual_seed(0)
    inside, outside = torch.randn(50, generator=generator), torch.randn(40, generator=generator)
    first, again, other = (
        ood_metrics_by_draws(inside, outside, generator=torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    )
    assert first == again
    assert first["auroc"] != other["auroc"]


def test_draws_are_made_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, rand = [], torch.rand
    monkeypatch.setattr(torch, "rand", lambda *size, **options: drawn.append(size) or rand(*size, **options))
    ood_metrics_by_draws(torch.zeros(5), torch.zeros(7), draws=30)
    assert drawn == [(7,)] * 30


@pytest.mark.parametrize(("name", "options"), [("draws", {"draws": 0}), ("share", {"share": 0})])
def test_invalid_draws_and_share_are_refused(name: str, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        ood_metrics_by_draws(torch.zeros(5), torch.zeros(5), **options)
