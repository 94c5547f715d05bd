"""Does a residual connection need a search of its own? From the searches, on validation data only."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["tuning_losses"]


def tuning_losses(runs: Iterable[Mapping[str, Any]], table: str = "gnn") -> dict[str, float]:
    """By cell, what the Lorentz residual loses with the settings that are best for none, against its own best.

    Both from the same configurations, mean validation over the search's seeds; points. A configuration in which a run
    diverged is left out; so is a cell in which the two methods were not searched over the same configurations.

    Example:
        >>> tuning_losses([])
        {}
    """
    found: dict[tuple[str, str], dict[str, dict[str, list[float | None]]]] = {}
    for run in runs:
        if run["table"] == table and run.get("stage") == "search" and run["method"] in ("none", "lorentz"):
            methods = found.setdefault((run["cell"], run["protocol"]), {"none": {}, "lorentz": {}})
            config = json.dumps(run.get("config", {}), sort_keys=True)
            methods[run["method"]].setdefault(config, []).append(run.get("validation"))
    losses = {}
    for (cell, protocol), methods in found.items():
        base, ours = (_means(methods[name]) for name in ("none", "lorentz"))
        if base and methods["none"].keys() == methods["lorentz"].keys():
            taken = max(base, key=lambda config: base[config])
            if taken in ours:
                losses[f"{cell}, {protocol}"] = max(ours.values()) - ours[taken]
    return losses


def _means(configs: Mapping[str, list[float | None]]) -> dict[str, float]:
    finite = {config: [v for v in values if v is not None] for config, values in configs.items()}
    return {c: statistics.fmean(values) for c, values in finite.items() if len(values) == len(configs[c])}
