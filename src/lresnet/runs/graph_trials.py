"""Settings that the search on a user's graph tries, in order: an all-round choice first, then alternatives, then draws.

The list depends on the kind of task, the settings that the user has given, and the seed; never on time or data. The
module imports without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from lresnet.residual.registry import residual_options
from lresnet.runs.model_config import GRAPH_MODELS
from lresnet.runs.search import draws
from lresnet.runs.task_config import GraphTaskConfig, GraphTaskKind
from lresnet.train.config import TrainConfig

__all__ = ["first_settings", "trials"]

# The lists were chosen on development graphs by test results, two seeds each: 107 settings for nodes on cora, pubmed,
# chameleon, squirrel, actor, texas and tolokers, 170 for links on airport, cora, bio-yeast, california and inf-power.
# Most entries are those that improved what validation data would select there; cheap ones come first. Some were added
# by judgement and not run on a development graph: the deep network with batch norm (published results on minesweeper
# show that depth and batch norm help), the networks without a residual for links and with SAGE, the graph-level list,
# and the scale: 1+w, which makes the Lorentz residual of lorentz_gcn a sum in flat space (that of lorentz_sage is one).
_TRAINING: dict[str, Any] = {"epochs": 500, "patience": 100, "eval_every": 5}
_GCN: dict[str, Any] = {
    "model": "lorentz_gcn",
    "layer": "space",
    "activation": "relu",
    "num_layers": 2,
    "hidden": 64,
    "dropout": 0.5,
    "lr": 0.01,
    "optimizer": "adam_l2",
    "weight_decay": 5e-3,
    "curvature": -0.1,
}
_SAGE: dict[str, Any] = {
    "model": "lorentz_sage",
    "norm": "layer",
    "num_layers": 2,
    "hidden": 64,
    "dropout": 0.2,
    "lr": 3e-3,
    "optimizer": "adam_l2",
    "weight_decay": 5e-3,
    "curvature": -1.0,
}
_DEEP: dict[str, Any] = _SAGE | {"norm": "batch", "num_layers": 8, "weight_decay": 0.0, "curvature": -0.1}
_LINK: dict[str, Any] = {
    "model": "lorentz_gcn",
    "layer": "hybonet",
    "num_layers": 2,
    "hidden": 256,
    "dropout": 0.5,
    "lr": 3e-3,
    "weight_decay": 1e-2,
    "curvature": -0.3,
}

# Chosen on a taxonomy of 2,000 WordNet animals, on validation data: points on the closure split, texts on the leaves
# split (seed 0); the networks by judgement.
_EMBEDDING: dict[str, Any] = {
    "model": "lorentz_embedding",
    "hidden": 16,
    "lr": 0.05,
    "epochs": 40,
    "patience": 20,
    "eval_every": 5,
}
_TEXT_EMBEDDING: dict[str, Any] = _EMBEDDING | {"hidden": 64, "lr": 0.01, "epochs": 30}
_NETWORK: dict[str, Any] = _EMBEDDING | {
    "model": "lorentz_gcn",
    "layer": "space",
    "num_layers": 2,
    "lr": 0.01,
}

_LISTS: dict[GraphTaskKind, tuple[dict[str, Any], ...]] = {
    "link": (
        _LINK | {"layer": "space", "num_layers": 1, "hidden": 64, "lr": 0.01},
        _LINK,
        _LINK | {"dropout": 0.0, "weight_decay": 1e-3, "lr": 0.02},
        _LINK | {"layer": "space", "hidden": 128, "dropout": 0.3, "lr": 0.01, "margin": 4.0, "method": "none"},
        _LINK | {"num_layers": 3, "hidden": 128, "dropout": 0.0, "weight_decay": 0.0, "lr": 0.02},
        _LINK | {"num_layers": 3, "hidden": 128, "dropout": 0.0, "weight_decay": 0.0, "lr": 0.02, "scale": "1+w"},
    ),
    "node": (
        _GCN,
        _DEEP | {"num_layers": 3, "dropout": 0.5, "lr": 0.01, "weight_decay": 5e-4},
        _GCN | {"dropout": 0.8, "curvature": -0.01, "method": "none"},
        _DEEP,
        _SAGE,
        _SAGE | {"num_layers": 3, "hidden": 256, "dropout": 0.7, "lr": 1e-3},
        _SAGE | {"norm": "none", "num_layers": 5, "weight_decay": 2e-2, "curvature": -0.1},
        _SAGE | {"num_layers": 3, "method": "none"},
        _GCN | {"num_layers": 3, "scale": "1+w"},
    ),
    "graph-level": (
        _SAGE | {"num_layers": 3, "weight_decay": 0.0},
        _GCN | {"num_layers": 3, "dropout": 0.2, "weight_decay": 5e-4},
        _GCN | {"num_layers": 3, "dropout": 0.2, "weight_decay": 5e-4, "method": "none"},
        _GCN | {"num_layers": 3, "dropout": 0.2, "weight_decay": 5e-4, "scale": "1+w"},
    ),
    "hierarchy": (
        _EMBEDDING,
        _NETWORK,
        _EMBEDDING | {"loss": "cones"},
        _NETWORK | {"method": "none"},
        _EMBEDDING | {"lr": 0.02},
        _EMBEDDING | {"hidden": 64},
    ),
}

# The grid that further trials are drawn from. The scale is drawn for every network and method that has one.
_SCALES = ("none", "1+w")
_SAGE_SPACE: dict[str, tuple[Any, ...]] = {
    "model": ("lorentz_sage",),
    "norm": ("layer", "batch"),
    "num_layers": (1, 2, 3, 5, 8),
    "hidden": (64, 128, 256),
    "dropout": (0.2, 0.5, 0.7),
    "lr": (0.01, 3e-3, 1e-3),
    "optimizer": ("adam_l2",),
    "weight_decay": (0.0, 5e-4, 5e-3, 2e-2),
    "curvature": (-1.0, -0.1),
    "scale": _SCALES,
}
_SPACE: dict[GraphTaskKind, dict[str, tuple[Any, ...]]] = {
    "link": {
        "model": ("lorentz_gcn",),
        "method": (None, None, "none"),
        "num_layers": (1, 2, 3),
        "hidden": (64, 128, 256),
        "layer": ("hybonet", "space", "hyperplane"),
        "dropout": (0.0, 0.3, 0.5),
        "weight_decay": (0.0, 1e-3, 1e-2),
        "curvature": (-1.0, -0.3),
        "lr": (0.02, 0.01, 3e-3),
        "scale": _SCALES,
    },
    "node": _SAGE_SPACE,
    "graph-level": _SAGE_SPACE,
    "hierarchy": {
        "model": ("lorentz_embedding", "lorentz_gcn"),
        "epochs": (40,),
        "patience": (20,),
        "hidden": (8, 16, 64),
        "lr": (0.1, 0.05, 0.02, 0.005),
        "curvature": (-1.0, -0.3, -0.1),
        "num_layers": (1, 2, 3),
        "layer": ("space",),
        "weight_decay": (0.0, 1e-3),
    },
}


_REPEATS = 200  # draws in a row that repeat a trial, after which few new ones are left


def first_settings(kind: GraphTaskKind, model: str | None = None) -> dict[str, Any]:
    """Return the settings of the first trial: those of a run without a search.

    Args:
        kind: what is learned.
        model: the network if the user has fixed it; settings that it does not have are left out.

    Example:
        >>> first_settings("node")["model"]
        'lorentz_gcn'
    """
    own = _LISTS[kind][0]
    return _TRAINING | _settings_of(model or own["model"], own)


def trials(
    kind: GraphTaskKind, given: Mapping[str, Any], seed: int, *, method: str | None = None, has_features: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield the settings of one trial after the other, each different, until nothing new is drawn.

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
        >>> [(each["hidden"], each["num_layers"]) for each in (next(some), next(some))]
        [(8, 1), (8, 2)]
    """
    seen, repeats = set[str](), 0
    for own in _listed_then_drawn(kind, seed, has_features):
        chosen = own.pop("method", None)
        settings = _TRAINING | _settings_of(given.get("model", own["model"]), own) | dict(given)
        settings["method"] = method or chosen or "lorentz"
        if settings["method"] == "euclidean" and settings.get("loss") == "cones" and "loss" not in given:
            continue  # entailment cones need a hyperbolic space
        if "scale" not in given and "scale" not in residual_options(settings["method"]):
            settings.pop("scale", None)
        key = repr(sorted(settings.items()))
        repeats = repeats + 1 if key in seen else 0
        if repeats > _REPEATS:
            return
        if key not in seen:
            seen.add(key)
            yield dict(settings)


def _listed_then_drawn(kind: GraphTaskKind, seed: int, has_features: bool) -> Iterator[dict[str, Any]]:
    listed, space = _LISTS[kind], dict(_SPACE[kind])
    if has_features and kind == "hierarchy":
        listed = (_TEXT_EMBEDDING, _TEXT_EMBEDDING | {"hidden": 128, "lr": 3e-3}, _TEXT_EMBEDDING | {"loss": "cones"})
        listed = (*listed, _NETWORK | {"hidden": 64, "num_layers": 1, "dropout": 0.5})
    elif kind == "hierarchy":
        listed = (*listed, _NETWORK | {"node_features": "structural"})
    elif not has_features and kind != "graph-level":
        space["node_features"] = ("learned", "structural")
        structural = tuple(settings | {"node_features": "structural"} for settings in listed)
        # Links need to know which node is which; classes may be a matter of structure alone.
        listed = (*listed, *structural[:2]) if kind == "link" else tuple(sum(zip(listed, structural, strict=True), ()))
    yield from map(dict, listed)
    yield from draws(space, seed)


def _settings_of(model: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that ``model`` has; a user may have fixed another model than that of the list."""
    of_model = {field.name for field in fields(GRAPH_MODELS[model])}
    of_run = {field.name for owner in (TrainConfig, GraphTaskConfig) for field in fields(owner)}
    kept = {
        name: value
        for name, value in settings.items()
        if (name in of_model and _is_allowed(model, name, value)) or name in of_run - of_model
    }
    return kept | {"model": model}


def _is_allowed(model: str, name: str, value: Any) -> bool:
    try:
        GRAPH_MODELS[model](model, **{name: value})
    except ValueError:  # another choice than those of this network
        return False
    return True
