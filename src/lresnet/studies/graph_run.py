"""Runs on graphs: link prediction and node classification with ``lorentz_gcn`` or ``lorentz_sgformer``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from lresnet.data import CELLS, LinkTask, NodeTask, load_task
from lresnet.models import LorentzGCN, LorentzSGFormer, pretrained
from lresnet.models.pretrained import Pretrained
from lresnet.studies.depth import split_depth
from lresnet.studies.settings import GRAPH_OBJECTIVE, GRAPH_TASK, RESIDUAL, SCHEDULE, own_residual_options, take
from lresnet.train import LinkPrediction, NodeClassification, Schedule, seed_everything

if TYPE_CHECKING:
    from lresnet.studies.run import Run

__all__ = ["GRAPH_MODELS", "build_graph_run", "graph_cell", "graph_task", "require_settings"]

GRAPH_MODELS: dict[str, Callable[..., Pretrained]] = {
    LorentzGCN.model_name: LorentzGCN,
    LorentzSGFormer.model_name: LorentzSGFormer,
}
"""What ``config["model"]`` may say; ``lorentz_gcn`` if it says nothing."""


def graph_cell(name: str) -> str | None:
    """The cell of :data:`lresnet.data.CELLS` that ``name`` stands for; None: it is no graph.

    The table of graph transformers names its columns by the data set alone, that of depths adds the number of layers.

    Example:
        >>> graph_cell("chameleon"), graph_cell("disease/lp/64"), graph_cell("cifar10")
        ('chameleon/nc', 'disease/lp', None)
    """
    base, _ = split_depth(name)
    return next((cell for cell in (base, f"{base}/nc") if cell in CELLS), None)


def build_graph_run(
    run: Run, device: torch.device | str
) -> tuple[Pretrained, LinkPrediction | NodeClassification, Schedule]:
    """The model, the objective and the schedule; the model's parameters follow the seed."""
    task, config = graph_task(run), dict(run.config)
    take(config, GRAPH_TASK)
    schedule, options = Schedule(**take(config, SCHEDULE)), take(config, GRAPH_OBJECTIVE)
    own = own_residual_options(run.method, config)
    seed_everything(run.seed)
    classes = task.num_classes if isinstance(task, NodeTask) else None
    name = config.pop("model", LorentzGCN.model_name)
    sizes = {"in_features": task.x.shape[1], "num_classes": classes}
    model = pretrained.build(GRAPH_MODELS, name, residual=run.method, residual_options=own, **sizes, **config).to(
        device
    )
    if isinstance(task, LinkTask):
        return model, LinkPrediction(task, seed=run.seed, device=device, **options), schedule
    return model, NodeClassification(task, device=device, **options), schedule


def require_settings(config: dict[str, Any]) -> None:
    """Refuse settings of a run on a graph that its model does not have.

    Raises:
        ValueError: with the setting, and the model that has it if there is one.

    Example:
        >>> require_settings({"model": "lorentz_sgformer", "heads": 2, "lr": 0.1})
    """
    name = config.get("model", LorentzGCN.model_name)
    if name not in GRAPH_MODELS:
        raise ValueError(f"{name} is no network for graphs; take {' or '.join(GRAPH_MODELS)}")
    others = SCHEDULE | GRAPH_OBJECTIVE | GRAPH_TASK | RESIDUAL | {"model"}
    arguments = {model: set(inspect.signature(make).parameters) for model, make in GRAPH_MODELS.items()}
    for setting in config:
        if setting not in others | arguments[name]:
            owner = next((f", but of {model}" for model in GRAPH_MODELS if setting in arguments[model]), "")
            raise ValueError(f"{setting} is no setting of {name}{owner}; leave it out, or take another model")


def graph_task(run: Run) -> LinkTask | NodeTask:
    """The task of a run, with its split; a run that comes next with the same one finds it in memory."""
    options = {name: run.config[name] for name in GRAPH_TASK if name in run.config}
    # Published splits are one and the same for every seed; honest ones follow it.
    split = split_name(run.protocol)
    seed = run.seed if run.split is None and split == "disjoint" else 0
    return _task(graph_cell(run.cell) or run.cell, split, run.split, seed, **options)


def split_name(protocol: str) -> str:
    """The split of a protocol. A second recipe on the same split has a word behind a dash.

    Example:
        >>> split_name("legacy"), split_name("legacy-deep")
        ('legacy', 'legacy')
    """
    return protocol.partition("-")[0]


@functools.lru_cache(maxsize=12)  # the ten official splits of a data set, and some more
def _task(cell: str, name: str, split: int | None, seed: int, **options: Any) -> LinkTask | NodeTask:
    return load_task(cell, split=name if split is None else split, seed=seed, **options)
