"""Intervals, corrections and verdicts, against scipy and examples computed by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lresnet.runs.statistics import (
    Estimate,
    Summary,
    holm,
    mean_interval,
    paired_difference,
    resampled_difference,
    shared_differences,
    summarise,
    verdict,
    verdict_against_published,
    verdicts,
    welch_difference,
)

OURS = {0: 97.0, 1: 98.0, 2: 96.0, 3: 97.5}
THEIRS = {0: 96.1, 1: 96.9, 2: 95.05, 3: 96.5}

numbers = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 2))
samples = st.lists(numbers, min_size=2, max_size=12)
probabilities = st.lists(st.floats(0, 1), max_size=12)


def estimate(p: float, mean: float = 1.0) -> Estimate:
    """An estimate over 10 values with this p value, with the interval that belongs to it."""
    error = abs(mean) / float(stats.t.isf(p / 2, 9))
    half = error * float(stats.t.ppf(0.975, 9))
    return Estimate(mean, mean - half, mean + half, 10, p)


def test_summary_by_hand():
    assert summarise([96.0, 97.0, 98.0]) == Summary(97.0, 1.0, 3)


def test_summary_of_too_few_values_is_nan():
    one, none = summarise([3.0]), summarise([])
    assert (one.mean, one.n) == (3.0, 1)
    assert math.isnan(one.deviation)
    assert none.n == 0
    assert math.isnan(none.mean) and math.isnan(none.deviation)  # noqa: PT018


@given(samples)
def test_interval_and_p_value_are_those_of_scipys_t_test(values):
    ours = mean_interval(values)
    assert ours is not None
    if np.ptp(values) < 1e-6:
        return
    theirs = stats.ttest_1samp(values, 0.0)
    interval = theirs.confidence_interval(0.95)
    assert (ours.mean, ours.n) == (pytest.approx(np.mean(values), abs=1e-9), len(values))
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), rel=1e-9, abs=1e-9)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)
    assert (verdict(ours) != "no difference shown") == (theirs.pvalue < 0.05)


def test_fewer_than_two_values_have_no_interval():
    assert mean_interval([1.0]) is None
    assert paired_difference({0: 1.0, 1: 2.0}, {1: 1.0, 2: 2.0}) is None
    assert resampled_difference({0: 1.0}, {0: 1.0}, test_per_train=0.25) is None


def test_paired_difference_is_scipys_paired_t_test():
    ours = paired_difference(OURS, THEIRS)
    theirs = stats.ttest_rel(list(OURS.values()), list(THEIRS.values()))
    interval = theirs.confidence_interval(0.95)
    assert ours is not None
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high))
    assert (ours.p, ours.n) == (pytest.approx(theirs.pvalue), 4)


def test_only_shared_keys_are_compared():
    assert shared_differences(OURS | {7: 1.0}, THEIRS | {9: 50.0}) == pytest.approx([0.9, 1.1, 0.95, 1.0])
    assert shared_differences({(0, "b"): 3.0, (0, None): 2.0}, {(0, None): 1.0, (0, "b"): 1.0}) == [2.0, 1.0]


@pytest.mark.parametrize(("shift", "expected"), [(1.0, "better"), (-1.0, "worse"), (0.0, "no difference shown")])
def test_verdict_of_one_comparison(shift, expected):
    values = [shift - e for e in (0.1, -0.1, 0.05, 0.0)]
    found = mean_interval(values)
    assert found is not None
    assert verdict(found) == expected
    assert verdict(-found) == {"better": "worse", "worse": "better"}.get(expected, expected)


def test_differences_without_spread():
    equal, apart = mean_interval([0.0, 0.0, 0.0]), mean_interval([0.5, 0.5])
    assert equal is not None and apart is not None  # noqa: PT018
    assert (verdict(equal), equal.p, equal.half_width) == ("no difference shown", 1.0, 0.0)
    assert (verdict(apart), apart.p) == ("better", 0.0)


def test_nadeau_bengio_by_hand():
    """Ten splits of 60 / 20 / 20: the variance grows from s²/10 to s² (1/10 + 20/60), a factor of 13/3."""
    values = {split: 0.1 * split for split in range(10)}
    zeros = dict.fromkeys(range(10), 0.0)
    student = paired_difference(values, zeros)
    corrected = resampled_difference(values, zeros, test_per_train=20 / 60)
    assert student is not None and corrected is not None  # noqa: PT018
    assert corrected.mean == student.mean
    assert corrected.half_width == pytest.approx(student.half_width * math.sqrt(13 / 3))
    t = corrected.mean / (np.std(list(values.values()), ddof=1) * math.sqrt(0.1 + 1 / 3))
    assert corrected.p == pytest.approx(2 * stats.t.sf(t, 9))
    assert (verdict(student), verdict(corrected)) == ("better", "no difference shown")


@given(samples)
def test_nadeau_bengio_with_an_empty_test_set_is_student(values):
    ours = dict(enumerate(values))
    zeros = dict.fromkeys(ours, 0.0)
    student, corrected = paired_difference(ours, zeros), resampled_difference(ours, zeros, test_per_train=0.0)
    assert student is not None and corrected is not None  # noqa: PT018
    assert (corrected.low, corrected.high) == pytest.approx((student.low, student.high), abs=1e-6)


@pytest.mark.parametrize("ratio", [-0.1, math.nan, math.inf])
def test_an_impossible_ratio_of_test_to_training_examples_is_an_error(ratio):
    with pytest.raises(ValueError, match="test_per_train must be a finite number of at least 0"):
        resampled_difference(OURS, THEIRS, test_per_train=ratio)


@given(samples, samples)
def test_welch_is_scipys(ours, theirs):
    if min(np.ptp(ours), np.ptp(theirs)) < 1e-2:
        return
    found = welch_difference(summarise(ours), summarise(theirs))
    expected = stats.ttest_ind(ours, theirs, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-7, abs=1e-7)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)


def test_welch_needs_two_values_on_each_side():
    assert welch_difference(Summary(1.0, math.nan, 1), Summary(1.0, 0.1, 3)) is None
    assert welch_difference(Summary(1.0, 0.1, 3), Summary(1.0, math.nan, 1)) is None


def test_welch_without_spread_on_either_side():
    found = welch_difference(Summary(1.0, 0.0, 3), Summary(0.5, 0.0, 5))
    assert found == Estimate(0.5, 0.5, 0.5, 3, 0.0)


def test_holm_by_hand():
    """0.01 x 4, 0.013 x 3 below it, 0.03 x 2, then 0.04 x 1 below that."""
    assert holm([0.03, 0.01, 0.04, 0.013]) == pytest.approx([0.06, 0.04, 0.06, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(probabilities)
def test_holm_lies_between_no_correction_and_bonferroni_and_keeps_the_order(values):
    adjusted = holm(values)
    for p, own in zip(values, adjusted, strict=True):
        assert p <= own <= min(1.0, len(values) * p) or own == pytest.approx(p)
    order = np.argsort(values, kind="stable")
    assert all(np.diff(np.asarray(adjusted)[order]) >= 0)


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(values):
    rejected = set()
    for rank, i in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        if (len(values) - rank) * values[i] >= 0.05:
            break
        rejected.add(i)
    assert {i for i, p in enumerate(holm(values)) if p < 0.05} == rejected


@given(st.lists(st.tuples(st.floats(1e-6, 0.99), st.sampled_from([-1.0, 1.0])), min_size=1, max_size=8))
def test_a_family_never_decides_more_than_its_members_alone(drawn):
    family = [estimate(p, mean) for p, mean in drawn]
    for own, together in zip(map(verdict, family), verdicts(family), strict=True):
        assert together in (own, "no difference shown")


def test_verdicts_of_a_family():
    family = [estimate(0.001), estimate(0.03, -1.0), estimate(0.015, -2.0), estimate(0.5)]
    assert [verdict(one) for one in family] == ["better", "worse", "worse", "no difference shown"]
    assert verdicts(family) == ["better", "no difference shown", "worse", "no difference shown"]
    assert verdicts(family[1:2]) == ["worse"]
    assert verdicts([]) == []


@pytest.mark.parametrize(
    ("ours", "mean", "deviation", "expected"),
    [
        (Summary(97.0, 0.3, 10), 95.0, 0.5, "better"),
        (Summary(93.0, 0.3, 10), 95.0, 0.5, "worse"),
        (Summary(95.1, 0.3, 10), 95.0, 0.5, "no difference shown"),
        (Summary(95.7, 0.3, 10), 95.0, 0.5, "no difference shown"),  # n = 10 alone would decide
    ],
)
def test_against_a_published_figure_both_numbers_of_runs_must_agree(ours, mean, deviation, expected):
    assert verdict_against_published(ours, mean, deviation) == expected
    ps = [
        stats.ttest_ind_from_stats(ours.mean, ours.deviation, ours.n, mean, deviation, n, equal_var=False).pvalue
        for n in (3, 10)
    ]
    assert (expected != "no difference shown") == (max(ps) < 0.05)


def test_a_published_figure_without_deviation_allows_no_verdict():
    assert verdict_against_published(Summary(97.0, 0.3, 10), 95.0, None) is None
    assert verdict_against_published(summarise([97.0]), 95.0, 0.5) is None
