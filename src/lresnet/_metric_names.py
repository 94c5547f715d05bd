"""Names of metrics: those that configurations accept, and those that are not percentages."""

from __future__ import annotations

import re

__all__ = [
    "HIERARCHY_METRICS",
    "LINK_METRICS",
    "NODE_METRICS",
    "TEXT_METRICS",
    "digits",
    "is_percentage",
    "is_text_metric",
    "require_hierarchy_metric",
    "require_link_metric",
    "require_node_metric",
]

NODE_METRICS = ("accuracy", "f1", "f1_binary", "f1_macro", "roc_auc", "average_precision")
"""Metrics of classified nodes or graphs; :func:`lresnet.metrics.node_metric` computes them."""

LINK_METRICS = ("roc_auc", "average_precision", "mrr", "hits@k")
"""Metrics of ranked links, with a number for k; :func:`lresnet.metrics.link_metric` computes them."""

HIERARCHY_METRICS = ("ordered_mrr", "mrr", "mean_average_precision", "hits@k")
"""Metrics of ranked ancestors, with a number for k; :func:`lresnet.metrics.ranking_metric` computes them."""

TEXT_METRICS = ("bits_per_byte", "loss")
"""Metrics of a modelled text. They are not percentages, and lower is better."""


_NO_PERCENTAGES = ("mean_rank", "distortion", "norm_depth_correlation")  # of hierarchies


def is_text_metric(name: str) -> bool:
    """Return whether a metric is one of :data:`TEXT_METRICS`, where lower is better."""
    return name in TEXT_METRICS


def is_percentage(name: str) -> bool:
    """Return whether a metric is reported in percent.

    Example:
        >>> is_percentage("mrr"), is_percentage("mean_rank")
        (True, False)
    """
    return not is_text_metric(name) and name not in _NO_PERCENTAGES


def digits(name: str) -> int:
    """Return the number of digits after the point with which a metric is reported.

    Example:
        >>> digits("accuracy"), digits("bits_per_byte")
        (2, 4)
    """
    return 4 if is_text_metric(name) else 2


def require_node_metric(name: str, classes: int | None = None) -> None:
    """Check that there is a metric ``name`` for the classes of nodes or graphs.

    Raises:
        ValueError: There is none, or it is for two classes and there are more.
    """
    if name not in NODE_METRICS:
        raise ValueError(f"unknown metric {name!r} of a classification; choose one of {', '.join(NODE_METRICS)}")
    if name == "f1_binary" and classes is not None and classes != 2:
        raise ValueError(f"f1_binary is for two classes, but there are {classes}; choose f1 or f1_macro")


def require_link_metric(name: str) -> None:
    """Check that there is a metric ``name`` of links.

    Raises:
        ValueError: There is none.
    """
    _require_ranking_metric(name, LINK_METRICS, "links", "hits@50")


def require_hierarchy_metric(name: str) -> None:
    """Check that there is a metric ``name`` of ranked ancestors.

    Raises:
        ValueError: There is none.
    """
    _require_ranking_metric(name, HIERARCHY_METRICS, "a hierarchy", "hits@10")


def _require_ranking_metric(name: str, known: tuple[str, ...], ranked: str, example: str) -> None:
    if name not in known[:-1] and not re.fullmatch(r"hits@[1-9][0-9]{0,8}", name):
        raise ValueError(
            f"unknown metric {name!r} of {ranked}; choose one of {', '.join(known)}, with a number for k: {example}"
        )
