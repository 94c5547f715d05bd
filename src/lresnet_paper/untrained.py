"""Untrained baselines of link prediction on the splits of our runs, as lines of results.

The scores are those of :mod:`lresnet.metrics.untrained_links`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from lresnet.data import TASKS, LinkTask, load_task
from lresnet.metrics import UNTRAINED_SCORES, UntrainedScore, untrained_link_scores
from lresnet.train.results import environment
from lresnet_paper.results import Result
from lresnet_paper.run import split_name

__all__ = [
    "SCORE_LABELS",
    "UNTRAINED_TABLE",
    "best_untrained",
    "link_cells",
    "protocol_of",
    "protocols_of",
    "seeds_of",
    "untrained_runs",
]

UNTRAINED_TABLE = "untrained"
"""The name of the file of results, and of the field ``table`` of its lines."""

_SEEDS = (0, 1, 2, 3, 4)  # of splits that follow the seed; the demo has the same
_OTHER_SPLITS = {"airport/lp": {"disjoint": tuple(range(10))}}  # splits of the table deep, and their seeds
_CHUNK = 4096  # pairs at a time: a row of the squared adjacency may have thousands of entries

SCORE_LABELS = {
    "feature_column": "one column",
    "feature_distance": "distance",
    "feature_cosine": "cosine",
    "common_neighbours": "common neighbours",
    "hops": "hops",
    "degree": "degree",
}
"""The short names of :data:`lresnet.metrics.UNTRAINED_SCORES` in tables."""

_WITHOUT_COLUMN = {"disease/lp": {"legacy-without_column": (10,)}}
"""Protocols by cell in which the networks do not see some raw feature columns, and these columns."""


# --- lines of results -------------------------------------------------------------------------------------------------


def link_cells() -> list[str]:
    """Return the link prediction tasks of the library."""
    return [name for name in TASKS if name.endswith("/lp")]


def protocol_of(cell: str) -> str:
    """Return the split on which our runs of a cell are: the published one where there is one.

    Example:
        >>> protocol_of("disease/lp"), protocol_of("disease_tree/lp")
        ('legacy', 'disjoint')
    """
    return "legacy" if "hgcn" in TASKS[cell].splits else "disjoint"  # lines keep the older name of the split hgcn


def seeds_of(cell: str, protocol: str) -> tuple[int, ...]:
    """Return the seeds of a cell: one for a fixed split, because the scores are not random.

    Example:
        >>> seeds_of("disease/lp", "legacy"), seeds_of("disease_tree/lp", "disjoint")
        ((0,), (0, 1, 2, 3, 4))
    """
    if protocol in _OTHER_SPLITS.get(cell, ()):
        return _OTHER_SPLITS[cell][protocol]
    return (0,) if protocol_of(cell) == "legacy" else _SEEDS


def protocols_of(cell: str) -> tuple[str, ...]:
    """Return the splits of a cell, and our protocols in which the networks do not see all features.

    Example:
        >>> protocols_of("disease/lp"), protocols_of("airport/lp")
        (('legacy', 'legacy-without_column'), ('legacy', 'disjoint'))
    """
    return protocol_of(cell), *_OTHER_SPLITS.get(cell, ()), *_WITHOUT_COLUMN.get(cell, ())


def untrained_runs(
    cell: str, seed: int, *, command: str, protocol: str | None = None, task: LinkTask | None = None
) -> list[dict[str, Any]]:
    """Return one line of results per score. Validation pairs choose the column; the test pairs are read once per score.

    Args:
        cell: a link prediction task, e.g. ``"disease/lp"``.
        seed: seed of the split, where it follows the seed.
        command: the command that the lines record.
        protocol: one of :func:`protocols_of`; None: the first.
        task: the task with raw features; None: it is loaded.

    Raises:
        FileNotFoundError: the data are not there and cannot be downloaded.
    """
    protocol = protocol or protocol_of(cell)
    dropped = _WITHOUT_COLUMN.get(cell, {}).get(protocol, ())
    if task is None:
        loaded = load_task(cell, split_name(protocol), seed=seed, features="raw", drop_columns=dropped)
        assert isinstance(loaded, LinkTask)
        task = loaded
    started = time.monotonic()
    scores = {score.name: score for score in untrained_link_scores(task)}
    seconds = (time.monotonic() - started) / len(scores)
    return [_line(scores[name], task, cell, protocol, seed, command, dropped, seconds) for name in UNTRAINED_SCORES]


def _line(
    score: UntrainedScore,
    task: LinkTask,
    cell: str,
    protocol: str,
    seed: int,
    command: str,
    dropped: Sequence[int],
    seconds: float,
) -> dict[str, Any]:
    config: dict[str, Any] = {"score": score.name}
    if score.name.startswith("feature_"):
        config |= {"features": "raw"} | ({"drop_columns": list(dropped)} if dropped else {})
    if score.column is not None:
        config |= {"column": score.column, "columns": task.x.shape[1]}
        config |= {} if score.sign == -1 else {"sign": score.sign}
    values = score.as_dict()
    return {
        "table": UNTRAINED_TABLE,
        "cell": cell,
        "method": score.name,
        "protocol": protocol,
        "seed": seed,
        "config": config,
        "split": None,
        "stage": "final",
        "metrics": values["metrics"],
        "value": values["metrics"]["roc_auc"],
        "validation": values["validation"],
        "seconds": round(seconds, 2),
        "command": command,
        **environment("cpu"),
    }


# --- the best one of a cell -------------------------------------------------------------------------------------------


def best_untrained(results: Iterable[Result]) -> dict[tuple[str, str], Result]:
    """Return, by cell and protocol, the untrained score with the highest mean on validation data.

    Example:
        >>> best_untrained([])
        {}
    """
    best: dict[tuple[str, str], Result] = {}
    for one in results:
        if one.table == UNTRAINED_TABLE and one.n:
            key = one.cell, one.protocol
            if key not in best or one.validation > best[key].validation:
                best[key] = one
    return best
