"""What tells runs of one method apart: a user's runs may differ in more than the seed, and are not averaged then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["method_name", "named_settings", "settings_apart"]

Record = dict[str, Any]

_UNSAID = "default"


def named_settings(runs: Iterable[Record]) -> list[Record]:
    """The runs, with ``settings`` in those of which others on the same data and by the same method have other ones.

    It names what is not the same in all of them, and ``default`` where a run leaves to the library what another says.

    Example:
        >>> run = {"table": "train", "cell": "cora/nc", "method": "space", "protocol": "legacy"}
        >>> runs = [run | {"config": {"lr": lr, "epochs": 9}} for lr in (0.1, 0.2)]
        >>> [run["settings"] for run in named_settings(runs)]
        ['lr 0.1', 'lr 0.2']
    """
    runs = list(runs)
    models, configs = defaultdict(list), defaultdict(list)
    for run in runs:
        models[_group(run)].append(_model(run))
        configs[_group(run), *_model(run).items()].append(run.get("config", {}))
    found = []
    for run in runs:
        own = configs[_group(run), *_model(run).items()]  # two models have few settings in common to compare
        words = _words(_model(run), models[_group(run)]) + _words(run.get("config", {}), own)
        found.append(run | {"settings": ", ".join(words)} if words else run)
    return found


def method_name(run: Mapping[str, Any]) -> str:
    """The method, and the settings that tell the run from others.

    Example:
        >>> method_name({"method": "space", "settings": "lr 0.1"})
        'space, lr 0.1'
    """
    return f"{run['method']}, {run['settings']}" if run.get("settings") else str(run["method"])


def settings_apart(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What two configurations say of settings that they do not share; empty if there is nothing.

    Example:
        >>> settings_apart({"lr": 0.05, "epochs": 5}, {"lr": 0.01, "epochs": 5.0})
        'lr 0.05 against 0.01'
    """
    names = dict.fromkeys([*own, *other])
    pairs = ((name, _value(own, name), _value(other, name)) for name in names)
    return ", ".join(f"{name} {_shown(here)} against {_shown(there)}" for name, here, there in pairs if here != there)


def _group(run: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(run[name] for name in ("table", "cell", "method", "protocol"))


def _model(run: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"model": run.get("config", {}).get("model", _UNSAID)}


def _words(own: Mapping[str, Any], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What ``own`` says of the settings that are not the same in all ``configs``; 5 and 5.0 are."""
    names = dict.fromkeys(name for config in configs for name in config)
    differ = [name for name in names if any(_value(one, name) != _value(own, name) for one in configs)]
    return [f"{name} {_shown(_value(own, name))}" for name in differ]


def _value(config: Mapping[str, Any], name: str) -> Any:
    return config.get(name, _UNSAID)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
