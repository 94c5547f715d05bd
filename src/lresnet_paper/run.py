"""One run: a cell, a method, a configuration and a seed, to a line of results."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lresnet.data import TASKS, ImageData, ImageTask, LinkTask, NodeTask, load_images, load_task
from lresnet.models import LorentzGCN, LorentzResNet, LorentzSGFormer, create_model, pretrained
from lresnet.models.pretrained import Pretrained
from lresnet.train import (
    Augment,
    Objective,
    Outcome,
    TrainConfig,
    make_objective,
    seed_everything,
    train_model,
)
from lresnet.train.distributed import ONE_PROCESS, Processes
from lresnet.train.results import environment
from lresnet_paper.depth import split_depth
from lresnet_paper.settings import (
    GRAPH_OBJECTIVE,
    GRAPH_TASK,
    IMAGE_OBJECTIVE,
    IMAGE_TASK,
    RESIDUAL,
    SCHEDULE,
    own_residual_options,
    require_bounds,
    take,
)

__all__ = [
    "GRAPH_MODELS",
    "Run",
    "build",
    "build_graph_run",
    "build_image_run",
    "complete",
    "execute",
    "graph_cell",
    "graph_task",
    "image_data",
    "images_of",
    "record_of",
    "require_data",
    "require_settings",
    "require_shareable",
]


@dataclasses.dataclass(frozen=True)
class Run:
    """What to run. ``config`` holds arguments of the model, the objective, the schedule and the task, by name."""

    table: str
    cell: str
    method: str
    protocol: str
    seed: int
    config: dict[str, Any]
    split: int | None = None
    """Index of the official split, where there are several."""
    stage: str = "final"
    """``"search"``, ``"train"``: the test set is not read. ``"final"``: it is, once. A line may also be of a
    ``"trial"``, which no table shows."""

    def key(self) -> tuple[Any, ...]:
        """What makes two runs the same run."""
        config = tuple(sorted((name, str(value)) for name, value in self.config.items()))
        return (self.table, self.cell, self.method, self.protocol, self.seed, self.split, self.stage, config)


def complete(plan: dict[str, Any], method: str, configuration: dict[str, Any], stage: str = "final") -> dict[str, Any]:
    """A configuration, completed by what a recipe fixes for all methods, for this one, and for this stage."""
    own = plan.get("only", {}).get(method, {})
    return plan["fixed"] | own | configuration | plan.get(stage, {})  # type: ignore[no-any-return]


def build(
    run: Run, device: torch.device | str = "cpu", processes: Processes = ONE_PROCESS
) -> tuple[Pretrained, Objective[Any], TrainConfig]:
    """The model, the objective and the schedule of a run; the model's parameters follow the seed.

    Args:
        processes: the processes that share the batches of images.

    Raises:
        ValueError: a value of the configuration cannot be; its name and what it should be are said.
    """
    require_shareable(run, processes.size)
    require_bounds(run.config)
    return build_graph_run(run, device) if graph_cell(run.cell) else build_image_run(run, device, processes)


def require_shareable(run: Run, processes: int) -> None:
    """Refuse a run that several processes cannot share.

    Raises:
        ValueError: it is one of graphs.
    """
    if processes > 1 and graph_cell(run.cell):
        raise ValueError(
            f"{run.cell} cannot be shared among {processes} processes: the whole graph is one batch, which one process "
            "trains on one device; start it without torchrun"
        )


def require_data(run: Run) -> None:
    """Load the data of a run, or say what is missing; runs that come next find them in memory."""
    if graph_cell(run.cell):
        graph_task(run)
    else:
        image_data(images_of(run), run.config.get("size"))


def execute(
    run: Run,
    *,
    command: str,
    device: torch.device | str = "cpu",
    checkpoint: Path | None = None,
    on_epoch: Callable[[int, float | None], None] | None = None,
) -> tuple[dict[str, Any], Pretrained]:
    """Train, and read the test set if this is a final run. Returns the line for the results and the model.

    Args:
        checkpoint: file to go on from, written after every fifth of the epochs: for a ResNet-18 that takes as long as
            an epoch on a fast GPU, and so an interruption costs a fifth of a training at most.
    """
    model, objective, schedule = build(run, device)
    outcome = train_model(
        model,
        objective,
        schedule,
        checkpoint=checkpoint,
        checkpoint_every=max(1, schedule.epochs // 5),
        execution="compiled",  # of a table there are many runs in one process, which share what is compiled
        on_epoch=on_epoch,
    )
    return record_of(run, outcome, model, objective, command, device), model


def record_of(
    run: Run,
    outcome: Outcome,
    model: Pretrained,
    objective: Objective[Any],
    command: str,
    device: torch.device | str,
) -> dict[str, Any]:
    """The line for the results of a run that has ended; of a final run with the test figures, read here and once."""
    record = dataclasses.asdict(run)
    if run.stage == "final":
        record["metrics"] = {name: round(value, 4) for name, value in objective.test(model).items()}
        record["value"] = next(iter(record["metrics"].values()))
    return record | {
        "validation": None if outcome.validation is None else round(outcome.validation, 4),
        "best_epoch": outcome.best_epoch,
        "epochs": outcome.epochs,
        "seconds": round(outcome.seconds, 2),
        "command": command,
        **environment(str(device)),
    }


GRAPH_MODELS: dict[str, Callable[..., Pretrained]] = {
    LorentzGCN.model_name: LorentzGCN,
    LorentzSGFormer.model_name: LorentzSGFormer,
}
"""What ``config["model"]`` may say; ``lorentz_gcn`` if it says nothing."""


def graph_cell(name: str) -> str | None:
    """The cell of :data:`lresnet.data.TASKS` that ``name`` stands for; None: it is no graph.

    The table of graph transformers names its columns by the data set alone, that of depths adds the number of layers.

    Example:
        >>> graph_cell("chameleon"), graph_cell("disease/lp/64"), graph_cell("cifar10")
        ('chameleon/nc', 'disease/lp', None)
    """
    base, _ = split_depth(name)
    return next((cell for cell in (base, f"{base}/nc") if cell in TASKS), None)


def build_graph_run(run: Run, device: torch.device | str) -> tuple[Pretrained, Objective[Any], TrainConfig]:
    """The model, the objective and the schedule; the model's parameters follow the seed."""
    task, config = graph_task(run), dict(run.config)
    take(config, GRAPH_TASK)
    settings = TrainConfig(**take(config, SCHEDULE | GRAPH_OBJECTIVE), seed=run.seed)
    own = own_residual_options(run.method, config)
    seed_everything(run.seed)
    classes = task.num_classes if isinstance(task, NodeTask) else None
    name = config.pop("model", LorentzGCN.model_name)
    sizes = {"in_features": task.x.shape[1], "num_classes": classes}
    model = pretrained.build(GRAPH_MODELS, name, residual=run.method, residual_options=own, **sizes, **config).to(
        device
    )
    return model, make_objective(task, settings, device), settings


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


_DEFAULT_MODEL = "lorentz_resnet18"


def build_image_run(
    run: Run, device: torch.device | str, processes: Processes = ONE_PROCESS
) -> tuple[LorentzResNet, Objective[Any], TrainConfig]:
    """The model, the objective and the schedule; the model's parameters follow the seed.

    Options that a residual does not have (a weight of parallel transport) are passed over: the configurations of a
    search are the same for all methods. The twin has a curvature too, which nothing reads but a head or pooling that
    is asked for.
    """
    data, config = image_data(images_of(run), run.config.get("size")), dict(run.config)
    take(config, IMAGE_TASK)
    task = ImageTask(data.name, data, **take(config, {"holdout"}))
    augment = Augment(**take(config, IMAGE_OBJECTIVE - {"batch_size"}))
    settings = TrainConfig(**take(config, SCHEDULE | {"batch_size"}), augment=augment, seed=run.seed)
    own = own_residual_options(run.method, config)
    seed_everything(run.seed)
    model = create_model(
        config.pop("model", _DEFAULT_MODEL),
        residual=run.method,
        residual_options=own,
        num_classes=len(data.classes),
        in_channels=data.train.images.shape[-1],
        **config,
    )
    if not isinstance(model, LorentzResNet):
        raise ValueError(f"{model.config['model']} is no network for images; take lorentz_resnet18, 20 or 32")
    return model.to(device), make_objective(task, settings, device, processes=processes), settings


def images_of(run: Run) -> str:
    """The images that ``run`` trains on: of ``cifar10/svhn/r20`` in the table ``ood``, cifar10."""
    return run.cell.split("/")[0] if run.table == "ood" else run.cell


@functools.lru_cache(maxsize=2)
def image_data(name: str, size: int | None = None) -> ImageData:
    """The images called ``name``; a run that comes next with the same ones finds them in memory."""
    return load_images(name, size=size)
