"""Settings searched for at every depth anew, on top of what a shallow network of the same method has chosen."""

from __future__ import annotations

from typing import Any

from lresnet.studies.depth import plan_of, split_depth
from lresnet.studies.graph_run import split_name
from lresnet.studies.run import complete
from lresnet.studies.search import recipe

__all__ = ["cell_plan"]


def cell_plan(table: str, cell: str, protocol: str | None = None) -> dict[str, Any]:
    """:func:`~lresnet.studies.depth.plan_of`; of a recipe with ``depths`` and ``configurations`` one with a search.

    A configuration changes what the table ``like`` chose for a method. Its ``weight_times_layers`` = c stands for
    a residual's weight of c / L at L layers.
    """
    plan = plan_of(table, cell, protocol)
    base, depth = split_depth(cell)
    if "depths" not in plan or "configurations" not in plan:
        return plan
    if depth is None:
        raise ValueError(f"{table} {cell} is searched depth by depth; name one, e.g. {cell}/{plan['depths'][0]}")
    like = recipe(plan["like"], base, split_name(plan["protocol"]))
    own = {
        method: complete(like, method, like["chosen"][method]) | plan.get("fixed", {}) | {"num_layers": depth}
        for method in plan["methods"]
    }
    configurations = [_of_depth(configuration, depth) for configuration in plan["configurations"]]
    rest = {name: value for name, value in plan.items() if name != "variants"}
    return rest | {"fixed": {}, "only": own, "configurations": configurations}


def _of_depth(configuration: dict[str, Any], depth: int) -> dict[str, Any]:
    rest = {name: value for name, value in configuration.items() if name != "weight_times_layers"}
    share = configuration.get("weight_times_layers")
    return rest if share is None else rest | {"weight": share / depth}
