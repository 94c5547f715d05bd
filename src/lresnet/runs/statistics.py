"""Statistics of repeated runs: means, 95 % intervals of differences, and the verdict that they allow.

"Better" and "worse" mean one thing everywhere: the 95 % interval of the difference excludes zero. A table of several
comparisons is one family; its p values are corrected by Holm's method (:func:`verdicts`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from scipy import stats

__all__ = [
    "PUBLISHED_RUNS",
    "Estimate",
    "Summary",
    "Verdict",
    "holm",
    "is_non_inferior",
    "mean_interval",
    "paired_difference",
    "resampled_difference",
    "shared_differences",
    "summarise",
    "verdict",
    "verdict_against_published",
    "verdicts",
    "welch_difference",
]

Verdict = Literal["better", "worse", "no difference shown"]
K = TypeVar("K")

PUBLISHED_RUNS = (3, 10)
"""Numbers of runs assumed for a published figure that does not state its own."""

_LEVEL = 0.05


@dataclass(frozen=True)
class Summary:
    """Mean and sample deviation of ``n`` values; NaN where there are too few values.

    Example:
        >>> f"{Summary(97.0, 1.0, 3):.2f}", f"{Summary(97.0, math.nan, 1):.1f}"
        ('97.00 ± 1.00', '97.0')
    """

    mean: float
    deviation: float
    n: int

    def __format__(self, spec: str) -> str:
        """Return the mean, with the deviation if there are two values at least; ``spec`` formats both numbers."""
        return f"{self.mean:{spec}}" + (f" ± {self.deviation:{spec}}" if self.n > 1 else "")


@dataclass(frozen=True)
class Estimate:
    """A mean (usually of differences) with its 95 % interval.

    Args:
        mean: the estimated mean.
        low: lower end of the 95 % interval.
        high: upper end of the 95 % interval.
        n: number of values or pairs.
        p: two-sided p value of the hypothesis that the true mean is zero.

    Example:
        >>> f"{Estimate(mean=1.0, low=0.5, high=1.5, n=10, p=0.001):+.2f}"
        '+1.00 ± 0.50'
    """

    mean: float
    low: float
    high: float
    n: int
    p: float

    @property
    def half_width(self) -> float:
        """Half the width of the interval: the number after the ± sign."""
        return self.high - self.mean

    def __format__(self, spec: str) -> str:
        """Return the mean and half the width of the interval; ``spec`` formats both, its sign the mean only."""
        return f"{self.mean:{spec}} ± {self.half_width:{spec.replace('+', '')}}"

    def __neg__(self) -> Estimate:
        """Return the estimate with its sign reversed, for metrics where lower is better."""
        return Estimate(-self.mean, -self.high, -self.low, self.n, self.p)


def summarise(values: Iterable[float]) -> Summary:
    """Return mean, sample deviation (n - 1 in the denominator) and number of ``values``.

    Example:
        >>> summarise([96.0, 97.0, 98.0])
        Summary(mean=97.0, deviation=1.0, n=3)
    """
    own = list(values)
    mean = statistics.fmean(own) if own else math.nan
    return Summary(mean, statistics.stdev(own) if len(own) > 1 else math.nan, len(own))


def mean_interval(values: Sequence[float]) -> Estimate | None:
    """Return the mean of independent ``values`` with Student's t interval; None for fewer than two values.

    Example:
        >>> estimate = mean_interval([1.0, 2.0, 3.0])
        >>> f"{estimate.mean:.1f}, {estimate.low:.2f} to {estimate.high:.2f}"
        '2.0, -0.48 to 4.48'
    """
    if len(values) < 2:
        return None
    return _estimate(statistics.fmean(values), float(stats.sem(values)), len(values) - 1, len(values))


def shared_differences(ours: Mapping[K, float], theirs: Mapping[K, float]) -> list[float]:
    """Return ours minus theirs for every key (seed, or seed and split) that both have.

    Example:
        >>> shared_differences({0: 97.0, 1: 96.0, 2: 95.0}, {1: 94.0, 0: 96.5})
        [0.5, 2.0]
    """
    return [ours[key] - theirs[key] for key in sorted(ours.keys() & theirs.keys(), key=str)]


def paired_difference(ours: Mapping[K, float], theirs: Mapping[K, float]) -> Estimate | None:
    """Return the mean of ours minus theirs, paired by seed on one split, with Student's t interval.

    The result is about that split: other splits of the same data may differ. See :func:`resampled_difference`.

    Args:
        ours: value by seed (or by seed and split).
        theirs: the same of the other method; keys that only one side has are ignored.

    Returns:
        The estimate, or None for fewer than two shared keys.
    """
    return mean_interval(shared_differences(ours, theirs))


def resampled_difference(
    ours: Mapping[K, float],
    theirs: Mapping[K, float],
    *,
    test_per_train: float,
    split_of: Callable[[K], Hashable] | None = None,
) -> Estimate | None:
    r"""Return the mean of ours minus theirs over resampled splits, with the interval of Nadeau and Bengio (2003).

    Training sets of resampled splits overlap, so the differences are not independent and Student's interval is too
    narrow. The variance of the mean is corrected:

    .. math:: \operatorname{Var}(\bar d) = \left(\frac{1}{n} + \frac{n_{test}}{n_{train}}\right) s^2

    Args:
        ours: value by split (or by seed and split).
        theirs: the same of the other method; keys that only one side has are ignored.
        test_per_train: number of test examples divided by the number of training examples, or of all other examples if
            a split leaves some out.
        split_of: returns the split of a key. The differences of several seeds on one split are averaged first, because
            they are no further splits; n is then the number of splits. None: every key is a split.

    Returns:
        The estimate, or None for fewer than two shared splits.

    Example:
        >>> ours, theirs = {(0, 0): 81.0, (1, 0): 83.0, (0, 1): 84.0}, {(0, 0): 80.0, (1, 0): 80.0, (0, 1): 80.0}
        >>> estimate = resampled_difference(ours, theirs, test_per_train=0.25, split_of=lambda key: key[1])
        >>> estimate.mean, estimate.n
        (3.0, 2)
    """
    if not (math.isfinite(test_per_train) and test_per_train >= 0):
        raise ValueError(f"test_per_train must be a finite number of at least 0, got {test_per_train}")
    by_split: dict[Hashable, list[float]] = {}
    for key in sorted(ours.keys() & theirs.keys(), key=str):
        by_split.setdefault(key if split_of is None else split_of(key), []).append(ours[key] - theirs[key])
    values = [statistics.fmean(own) for own in by_split.values()]
    n = len(values)
    if n < 2:
        return None
    return _estimate(statistics.fmean(values), statistics.stdev(values) * math.sqrt(1 / n + test_per_train), n - 1, n)


def welch_difference(ours: Summary, theirs: Summary) -> Estimate | None:
    """Return the difference of two means with Welch's interval (unpaired, unequal variances).

    Returns:
        The estimate with ``n`` of ours, or None where one side has fewer than two values.

    Example:
        >>> estimate = welch_difference(Summary(97.0, 1.0, 4), Summary(95.0, 1.0, 4))
        >>> f"{estimate.mean:+.1f} ± {estimate.half_width:.2f}"
        '+2.0 ± 1.73'
    """
    if min(ours.n, theirs.n) < 2:
        return None
    squares = [one.deviation**2 / one.n for one in (ours, theirs)]
    error = math.sqrt(sum(squares))
    weights = [square / error**2 if error else 0.5 for square in squares]
    freedom = 1 / (weights[0] ** 2 / (ours.n - 1) + weights[1] ** 2 / (theirs.n - 1))
    return _estimate(ours.mean - theirs.mean, error, freedom, ours.n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values of one family, adjusted by Holm's step-down method, in the order given.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def verdict(estimate: Estimate) -> Verdict:
    """Return what one comparison alone shows: whether its 95 % interval excludes zero.

    The difference counts as better where it is positive; negate it for a metric where lower is better.

    Example:
        >>> verdict(Estimate(mean=1.0, low=0.5, high=1.5, n=10, p=0.001))
        'better'
    """
    return "better" if estimate.low > 0 else "worse" if estimate.high < 0 else "no difference shown"


def verdicts(family: Sequence[Estimate]) -> list[Verdict]:
    """Return the verdicts of all comparisons of one table, after Holm's correction.

    For a single comparison this is :func:`verdict`. In a larger family a comparison is decided only if its interval
    excludes zero and its adjusted p value is below 0.05.

    Example:
        >>> one, other = Estimate(1.0, 0.5, 1.5, 10, 0.001), Estimate(1.0, 0.1, 1.9, 10, 0.03)
        >>> verdicts([one, other, Estimate(0.3, -0.5, 1.1, 10, 0.4)])
        ['better', 'no difference shown', 'no difference shown']
    """
    if len(family) == 1:
        return [verdict(family[0])]
    adjusted = holm([estimate.p for estimate in family])
    return [
        verdict(estimate) if p < _LEVEL else "no difference shown" for estimate, p in zip(family, adjusted, strict=True)
    ]


def is_non_inferior(estimate: Estimate, margin: float) -> bool:
    """Return whether the 95 % interval of a difference lies above ``-margin``: ours is at most that much worse.

    The margin must be stated before the runs. No difference shown is not enough: the interval may reach far below 0.

    Example:
        >>> estimate = Estimate(mean=0.2, low=-0.6, high=1.0, n=10, p=0.6)
        >>> is_non_inferior(estimate, margin=1.0), is_non_inferior(estimate, margin=0.5)
        (True, False)
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise ValueError(f"margin must be a finite number of at least 0, got {margin}")
    return estimate.low > -margin


def verdict_against_published(ours: Summary, mean: float, deviation: float | None) -> Verdict | None:
    """Compare our runs with a published mean ± deviation over an unknown number of runs.

    The verdict is "better" or "worse" only if Welch's 95 % interval excludes zero on the same side for each number of
    runs in :data:`PUBLISHED_RUNS`. Both figures must be of the same split.

    Returns:
        The verdict, or None where no test is possible: no published deviation, or fewer than two runs of ours.

    Example:
        >>> verdict_against_published(Summary(97.0, 0.3, 10), mean=95.0, deviation=0.5)
        'better'
    """
    if deviation is None or ours.n < 2:
        return None
    estimates = [welch_difference(ours, Summary(mean, deviation, n)) for n in PUBLISHED_RUNS]
    found = {verdict(estimate) for estimate in estimates if estimate is not None}
    return found.pop() if len(found) == 1 else "no difference shown"


def _estimate(mean: float, error: float, freedom: float, n: int) -> Estimate:
    """Return the estimate of a mean with standard error ``error``."""
    half = error * float(stats.t.ppf(1 - _LEVEL / 2, freedom))
    # Values without any spread are an interval of width zero.
    p = 2 * float(stats.t.sf(abs(mean) / error, freedom)) if error else float(mean == 0)
    return Estimate(mean, mean - half, mean + half, n, p)
