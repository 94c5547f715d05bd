"""One run of ``lorentz_sgformer`` as a person asks for it; the table of graph transformers supplies the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lresnet.models import LorentzSGFormer
from lresnet.runs.single import single_run
from lresnet_paper.run import Run, complete
from lresnet_paper.search import recipe

__all__ = ["transformer_run"]


def transformer_run(
    cell: str, method: str = "lorentz", seed: int = 0, split: str | None = None, config: dict[str, Any] | None = None
) -> Run:
    """:func:`~lresnet.runs.single.single_run` for the other model of graphs.

    What ``config`` does not say is what the recipe of the table ``graph_transformer`` fixes, where the data set has a
    column there, else the library's default. The recipes of ``lorentz_gcn`` are not asked: its settings are others.

    Raises:
        ValueError: no such cell or method; the nearest is named.

    Example:
        >>> run = transformer_run("chameleon/nc", config={"heads": 2})
        >>> run.config["model"], run.config["epochs"], run.config["heads"]
        ('lorentz_sgformer', 500, 2)
    """
    run = single_run(cell, method, seed, split)
    own = {"model": LorentzSGFormer.model_name}
    return replace(run, config=_fixed(cell, method) | own | (config or {}))


def _fixed(cell: str, method: str) -> dict[str, Any]:
    try:
        plan = recipe("graph_transformer", cell.removesuffix("/nc"))
    except ValueError:
        return {}
    return complete(plan, method, plan.get("chosen", {}).get(method, {}))
