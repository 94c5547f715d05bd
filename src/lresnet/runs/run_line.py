"""What a line of results must be to be counted as a run: whatever another version or a broken program has left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lresnet_paper.depth import split_depth

__all__ = ["RUN_FIELDS", "is_finite", "is_run", "run_key"]

RUN_FIELDS = frozenset({"table", "cell", "method", "protocol", "seed"})
"""What every run has; a line with less is something else, a benchmark's, say."""

_BY_LAYER = ("radius", "distance", "gradient")
_DETECTION = ("fpr95", "auroc", "aupr", "accuracy")


def is_run(record: Mapping[str, Any]) -> bool:
    """Whether a line is a run that can be counted: its fields are there, its figures numbers that are finite, or None.

    Example:
        >>> is_run({"table": "gnn", "cell": "cora/nc", "method": "none", "protocol": "legacy", "seed": 0})
        True
    """
    return (
        record.keys() >= RUN_FIELDS
        and all(isinstance(record[name], str) for name in RUN_FIELDS - {"seed"})
        and all(isinstance(record.get(name, ""), str) for name in ("stage", "command", "hardware"))
        and _is_whole(record["seed"])
        and (record.get("split") is None or _is_whole(record["split"]))
        and all(record.get(name) is None or is_finite(record[name]) for name in ("value", "validation", "seconds"))
        and all(isinstance(record.get(name, {}), dict) for name in ("config", "versions"))
        and isinstance(record.get("note", ""), str | None)
        and _OWN.get(record["table"], _anything)(record)
    )


def run_key(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The same of two lines that are one run, which counts once."""
    names = ("table", "cell", "method", "protocol", "seed", "split", "config")
    return *(repr(_sorted(record.get(name))) for name in names), record.get("stage", "final")


def _sorted(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, dict) else value


def _anything(record: Mapping[str, Any]) -> bool:
    return True


def _has_curvature(record: Mapping[str, Any]) -> bool:
    return is_finite(record.get("config", {}).get("curvature", -1.0))


def _has_layers(record: Mapping[str, Any]) -> bool:
    """As many numbers as layers, of each kind, where there are any."""
    depth = split_depth(record["cell"])[1]
    given = [record[name] for name in ("initial_layers", "layers") if name in record]
    return all(
        isinstance(own, dict)
        and all(isinstance(own.get(name), list) and len(own[name]) == depth for name in _BY_LAYER)
        and all(value is None or is_finite(value) for name in _BY_LAYER for value in own[name])
        for own in given
    )


def _has_detection(record: Mapping[str, Any]) -> bool:
    """Of a final run the cell has three parts; of one that ended well the figures that the tables show are there."""
    if record.get("stage", "final") != "final":
        return True
    metrics, norms = record.get("metrics"), record.get("norm_confidence")
    return record["cell"].count("/") == 2 and (
        record.get("value") is None
        or (
            isinstance(metrics, dict)
            and all(is_finite(metrics.get(name)) for name in _DETECTION)
            and isinstance(metrics.get("scores"), dict)
            and all(isinstance(own, dict) and is_finite(own.get("auroc")) for own in metrics["scores"].values())
            and isinstance(norms, dict)
            and is_finite(norms.get("spearman"))
        )
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Whether a value that was read is a finite number.

    Example:
        >>> is_finite(0), is_finite(True), is_finite(math.nan), is_finite("0")
        (True, False, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_OWN = {"curvature": _has_curvature, "oversmoothing": _has_layers, "ood": _has_detection}
"""What a table needs beyond that."""
