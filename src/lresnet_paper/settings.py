"""A run's settings are one flat table: which of them belong to the schedule, the objective and the task, and what they
may be. The rest are arguments of the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from lresnet.residual.registry import residual_options
from lresnet.train import TrainConfig

__all__ = [
    "GRAPH_OBJECTIVE",
    "GRAPH_TASK",
    "IMAGE_OBJECTIVE",
    "IMAGE_TASK",
    "RESIDUAL",
    "SCHEDULE",
    "own_residual_options",
    "require_bounds",
    "take",
]

SCHEDULE = frozenset(TrainConfig().schedule())
GRAPH_OBJECTIVE = frozenset({"loss", "margin"})
GRAPH_TASK = frozenset({"features"})
IMAGE_OBJECTIVE = frozenset(
    {"holdout", "batch_size", "pad", "flip", "cutout", "cutmix", "label_smoothing", "flip_test"}
)
IMAGE_TASK = frozenset({"size"})
RESIDUAL = frozenset({"weight", "scale", "initial_scale"})

_Bound = tuple[Callable[[Any], bool], str]
_AT_LEAST_1: _Bound = (lambda value: value >= 1, "at least 1")
_NOT_NEGATIVE: _Bound = (lambda value: 0 <= value < math.inf, "not negative, and finite")
_POSITIVE: _Bound = (lambda value: 0 < value < math.inf, "positive and finite")
_SHARE: _Bound = (lambda value: 0 <= value < 1, "at least 0 and below 1")
_PART: _Bound = (lambda value: 0 <= value <= 1, "0 to 1")
_BETWEEN: _Bound = (lambda value: 0 < value < 1, "above 0 and below 1")
# What a wrong value would otherwise show far from its cause, or never.
_BOUNDS: dict[str, _Bound] = {
    "epochs": _AT_LEAST_1,
    "eval_every": _AT_LEAST_1,
    "patience": _AT_LEAST_1,
    "hidden": _AT_LEAST_1,
    "num_layers": _AT_LEAST_1,
    "attention_layers": _AT_LEAST_1,
    "heads": _AT_LEAST_1,
    "batch_size": _AT_LEAST_1,
    "size": _AT_LEAST_1,
    "lr": _POSITIVE,
    "clip": _POSITIVE,
    "margin": _POSITIVE,
    "max_radius": _POSITIVE,
    "weight_decay": _NOT_NEGATIVE,
    "warmup": _NOT_NEGATIVE,
    "pad": _NOT_NEGATIVE,
    "cutout": _NOT_NEGATIVE,
    "cutmix": _PART,
    "dropout": _SHARE,
    "label_smoothing": _SHARE,
    "holdout": _SHARE,
    "average": _BETWEEN,
    "graph_weight": _BETWEEN,
    "attention_weight": _BETWEEN,
    "curvature": (lambda value: -math.inf < value < 0, "negative and finite"),
}


def take(config: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Move the settings called ``names`` out of ``config``."""
    return {name: config.pop(name) for name in sorted(names) if name in config}


def own_residual_options(method: str, config: dict[str, Any]) -> dict[str, Any] | None:
    """Move the residual's settings out of ``config``, and give those that ``method`` has; None where there are none.

    Example:
        >>> own_residual_options("tangent", {"weight": 0.5, "scale": 2.0})
        {'weight': 0.5}
    """
    known = residual_options(method)
    return {name: value for name, value in take(config, RESIDUAL).items() if name in known} or None


def require_bounds(config: dict[str, Any]) -> None:
    """Refuse values that cannot be.

    Raises:
        ValueError: with the name and what it should be.
    """
    for name, (holds, words) in _BOUNDS.items():
        value = config.get(name)
        if value is not None and not holds(value):
            raise ValueError(f"{name} must be {words}, got {value}")
    if config.get("patience") is not None and config.get("keep") == "last":
        raise ValueError("patience waits for a better validation figure, and keep=last goes by none; take keep=best")
    if config.get("warmup", 0) >= config.get("epochs", math.inf):
        raise ValueError(f"warmup must be shorter than the {config['epochs']} epochs, got {config['warmup']}")
