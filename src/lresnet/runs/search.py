"""Search over settings: configurations drawn once from a stated space, and the best one by its validation metric."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["best_configuration", "draw", "draws"]


def draw(space: Mapping[str, Sequence[Any]], count: int, seed: int) -> list[dict[str, Any]]:
    """Draw ``count`` different configurations uniformly from the grid ``space``; the seed decides which.

    Example:
        >>> draw({"lr": [0.1, 0.01], "dropout": [0.0]}, 2, seed=0)
        [{'lr': 0.01, 'dropout': 0.0}, {'lr': 0.1, 'dropout': 0.0}]
    """
    return list(itertools.islice(draws(space, seed), count))


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


def best_configuration(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the configuration with the highest mean validation metric over its seeds, the earlier one of equals.

    Args:
        records: objects with ``config`` and ``validation``; None is the validation metric of a run that diverged.

    Raises:
        ValueError: there are no records.
    """
    metrics: dict[str, list[float]] = defaultdict(list)
    configurations: dict[str, dict[str, Any]] = {}
    for record in records:
        key = repr(sorted(record["config"].items()))
        diverged = record["validation"] is None
        metrics[key].append(-math.inf if diverged else record["validation"])
        configurations.setdefault(key, record["config"])
    if not metrics:
        raise ValueError("there are no search runs to choose from")
    return configurations[max(metrics, key=lambda key: sum(metrics[key]) / len(metrics[key]))]
