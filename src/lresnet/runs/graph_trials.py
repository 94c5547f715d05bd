"""Settings that the search on a user's graph tries, in order: an all-round choice first, then alternatives, then draws.

The list depends on the kind of task, the settings that the user has given, and the seed; never on time or data. The
module imports without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lresnet.runs.config import GraphTaskKind
from lresnet.runs.search import draws

__all__ = ["first_settings", "trials"]

_TRAINING: dict[str, Any] = {"lr": 0.01, "epochs": 500, "patience": 100, "eval_every": 5}
_BASE: dict[GraphTaskKind, dict[str, Any]] = {
    "link": _TRAINING | {"model": "lorentz_gcn", "num_layers": 2, "hidden": 32, "layer": "hybonet", "curvature": -1.0},
    "node": _TRAINING
    | {
        "model": "lorentz_gcn",
        "num_layers": 2,
        "hidden": 64,
        "layer": "space",
        "activation": "relu",
        "dropout": 0.5,
        "optimizer": "adam_l2",
        "weight_decay": 5e-4,
        "curvature": -0.1,
    },
    "graph-level": _TRAINING | {"model": "lorentz_gcn", "num_layers": 3, "hidden": 64, "layer": "space"},
}

# Alternatives, each a change of the base settings that helps on some kind of graph.
_ALTERNATIVES: dict[GraphTaskKind, tuple[dict[str, Any], ...]] = {
    "link": (
        {"method": "none"},
        {"num_layers": 3, "hidden": 16},
        {"num_layers": 1, "hidden": 64},
        {"layer": "space", "dropout": 0.3},
    ),
    "node": (
        {"method": "none"},
        {"num_layers": 4, "hidden": 128, "dropout": 0.3, "weight_decay": 0.0},
    ),
    "graph-level": ({"method": "none"},),
}

# The grid that further trials are drawn from.
_SPACE: dict[GraphTaskKind, dict[str, tuple[Any, ...]]] = {
    "link": {
        "method": (None, "none"),
        "num_layers": (1, 2, 3, 4),
        "hidden": (16, 32, 64),
        "layer": ("hybonet", "space", "hyperplane"),
        "dropout": (0.0, 0.3),
        "weight_decay": (0.0, 1e-4, 1e-3),
        "curvature": (-1.0, -0.1),
        "lr": (0.01, 0.003),
    },
    "node": {
        "method": (None, "none"),
        "num_layers": (2, 3, 5),
        "hidden": (64, 128),
        "dropout": (0.2, 0.5, 0.7),
        "weight_decay": (0.0, 5e-4, 5e-3),
        "curvature": (-1.0, -0.1, -0.01),
        "lr": (0.01, 0.003),
    },
    "graph-level": {
        "method": (None, "none"),
        "num_layers": (2, 3, 4),
        "hidden": (32, 64, 128),
        "dropout": (0.0, 0.3, 0.5),
        "weight_decay": (0.0, 5e-4),
        "curvature": (-1.0, -0.1),
    },
}


def first_settings(kind: GraphTaskKind) -> dict[str, Any]:
    """Return the settings of the first trial: those of a run without a search.

    Example:
        >>> first_settings("node")["activation"]
        'relu'
    """
    return dict(_BASE[kind])


def trials(
    kind: GraphTaskKind, given: Mapping[str, Any], seed: int, *, method: str | None = None, has_features: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield the settings of one trial after the other, each different, without end until the grid is exhausted.

    Args:
        kind: what is learned.
        given: settings that the user has fixed; they hold in every trial.
        seed: seed of the draws.
        method: the residual connection if the user has fixed it. None: the Lorentz residual, and trials without one.
        has_features: whether the graph has node features; otherwise trials differ in learned and structural ones.

    Yields:
        Settings by name, ``"method"`` among them.

    Example:
        >>> some = trials("link", {"hidden": 8}, seed=0)
        >>> [next(some)["method"] for _ in range(2)]
        ['lorentz', 'none']
    """
    seen: list[dict[str, Any]] = []
    for change in _changes(kind, seed, has_features):
        own = dict(change)
        chosen = own.pop("method", None)
        settings = _BASE[kind] | own | dict(given)
        settings["method"] = method or chosen or "lorentz"
        if settings not in seen:
            seen.append(settings)
            yield dict(settings)


def _changes(kind: GraphTaskKind, seed: int, has_features: bool) -> Iterator[dict[str, Any]]:
    space = dict(_SPACE[kind])
    yield {}
    if not has_features and kind != "graph-level":
        yield {"node_features": "structural"}
        space["node_features"] = ("learned", "structural")
    yield from _ALTERNATIVES[kind]
    yield from draws(space, seed)
