"""Search over settings: configurations drawn once from a stated space, and the best one by its validation metric."""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["SMOOTHING", "best_configuration", "draw", "draws", "smoothed_best"]

SMOOTHING = 5
"""Number of consecutive validation passes that :func:`smoothed_best` averages."""


def draw(
    space: Mapping[str, Sequence[Any]], count: int, seed: int, ignoring: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Draw ``count`` different configurations uniformly from the grid ``space``; the seed decides which.

    Args:
        space: values by setting.
        count: number of configurations; fewer if the grid has fewer.
        seed: seed of the draws.
        ignoring: settings that do not count as a difference between two configurations, because one of the compared
            methods ignores them, as a Euclidean baseline ignores the curvature.

    Example:
        >>> draw({"lr": [0.1, 0.01], "dropout": [0.0]}, 2, seed=0)
        [{'lr': 0.01, 'dropout': 0.0}, {'lr': 0.1, 'dropout': 0.0}]
        >>> draw({"lr": [0.1, 0.01], "curvature": [-1.0, -4.0]}, 4, seed=0, ignoring=["curvature"])
        [{'lr': 0.01, 'curvature': -4.0}, {'lr': 0.1, 'curvature': -4.0}]
    """
    drawn: dict[str, dict[str, Any]] = {}
    for configuration in draws(space, seed):
        if len(drawn) == count:
            break
        counted = {name: value for name, value in configuration.items() if name not in ignoring}
        drawn.setdefault(repr(counted), configuration)
    return list(drawn.values())


def draws(space: Mapping[str, Sequence[Any]], seed: int) -> Iterator[dict[str, Any]]:
    """Yield all configurations of the grid ``space`` in random order, one draw at a time; the seed decides the order.

    Example:
        >>> [each["lr"] for each in draws({"lr": [0.1, 0.01], "dropout": [0.0]}, seed=0)]
        [0.01, 0.1]
    """
    generator = random.Random(seed)
    drawn: set[str] = set()
    size = math.prod(len({repr(value) for value in values}) for values in space.values())
    while len(drawn) < size:
        configuration = {name: generator.choice(values) for name, values in space.items()}
        key = repr(configuration)
        if key not in drawn:
            drawn.add(key)
            yield configuration


def smoothed_best(curve: Sequence[tuple[int, float]], *, lowest: bool = False) -> float | None:
    """Return the highest mean score of :data:`SMOOTHING` consecutive validation passes; None without a pass.

    A centred moving average, so no window reaches beyond the curve. A curve with fewer passes is one window. The
    maximum of a noisy curve favours runs with many passes and large noise; the maximum of its average does so less.

    Args:
        curve: epoch and score of every validation pass, as in :attr:`lresnet.train.Outcome.curve`.
        lowest: return the lowest mean, for a score where lower is better.

    Example:
        >>> smoothed_best([(5, 60.0), (10, 90.0), (15, 60.0), (20, 70.0), (25, 70.0), (30, 70.0)])
        72.0
    """
    scores = [score for _, score in curve]
    if not scores:
        return None
    width = min(SMOOTHING, len(scores))
    return (min if lowest else max)(statistics.fmean(scores[i : i + width]) for i in range(len(scores) - width + 1))


def best_configuration(
    records: Iterable[Mapping[str, Any]], metric: str = "validation", *, lowest: bool = False
) -> dict[str, Any]:
    """Return the configuration with the highest mean validation metric over its runs, the earlier one of equals.

    Args:
        records: objects with ``config`` and ``metric``; None is the metric of a run that diverged.
        metric: ``"validation"``, the score of the best pass, or ``"validation_smoothed"``, see :func:`smoothed_best`.
        lowest: return the configuration with the lowest mean, for a metric where lower is better.

    Raises:
        ValueError: there are no records.
    """
    metrics: dict[str, list[float]] = defaultdict(list)
    configurations: dict[str, dict[str, Any]] = {}
    for record in records:
        key = repr(sorted(record["config"].items()))
        value = record[metric]
        metrics[key].append(-math.inf if value is None else -value if lowest else value)
        configurations.setdefault(key, record["config"])
    if not metrics:
        raise ValueError("there are no search runs to choose from")
    return configurations[max(metrics, key=lambda key: sum(metrics[key]) / len(metrics[key]))]
