"""Study of hierarchy-aware losses on CIFAR-100: accuracy and mistake severity, Lorentz and Euclidean, equal budgets.

The plan, with the comparisons and the rule of selection, is ``hierarchy_images.toml``; it was written before the runs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lresnet._json import read_toml
from lresnet.data import ImageData, ImageTask, load_images
from lresnet.geometry.checks import full_precision
from lresnet.metrics import accuracy, hierarchy_metrics
from lresnet.models import LorentzResNet, create_model
from lresnet.nn import path_log_probabilities, supervised_contrastive_loss
from lresnet.runs.workers import worker_pool
from lresnet.train import Augment, TrainConfig, train_model
from lresnet.train.image_classification import ImageClassification, class_scores
from lresnet.train.results import ResultsFile, environment
from lresnet_paper.results import study_file, study_lines

__all__ = [
    "LOSSES",
    "NETWORKS",
    "TABLE",
    "HierarchyClassification",
    "Training",
    "WithPoints",
    "chosen_settings",
    "own_lines",
    "read_plan",
    "results_file",
    "run_study",
    "run_training",
    "trainings",
]

TABLE = "hierarchy_images"
"""The name of the file of results, and of the field ``table`` of its lines."""

NETWORKS = ("lorentz", "euclidean")
LOSSES = ("cross_entropy", "superclass_cross_entropy", "supervised_contrastive")

_COMMAND = "python -m lresnet_paper hierarchy"
_SELECTED_BY = "hierarchical_distance@1"

Plan = Mapping[str, Any]


def read_plan(path: Path | None = None) -> Plan:
    """Return the plan of the study, or one of the same form.

    Example:
        >>> read_plan()["losses"]["superclass_cross_entropy"]
        {'weight': [0.3, 1.0, 3.0]}
    """
    return read_toml(path or Path(__file__).with_suffix(".toml"))


class Training(NamedTuple):
    """One training of the study. ``settings`` are the weight, the temperature and the label smoothing of the loss."""

    stage: str
    network: str
    loss: str
    settings: tuple[tuple[str, float], ...]
    seed: int


def trainings(
    plan: Plan, chosen: Mapping[tuple[str, str], tuple[tuple[str, float], ...]] | None = None
) -> list[Training]:
    """Return the trainings of the search, or the final ones of the ``chosen`` settings, one seed after the other.

    Example:
        >>> len(trainings(read_plan()))
        18
    """
    pairs = list(itertools.product(NETWORKS, plan["losses"]))
    if chosen is not None:
        return [Training("final", *pair, chosen[pair], seed) for seed in plan["seeds"] for pair in pairs]
    return [
        Training("search", network, loss, settings, plan["search_seed"])
        for network, loss in pairs
        for settings in _grid(plan["losses"][loss])
    ]


def _grid(options: Mapping[str, Sequence[float]]) -> Iterator[tuple[tuple[str, float], ...]]:
    for values in itertools.product(*options.values()):
        yield tuple(zip(options, map(float, values), strict=True))


def chosen_settings(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], tuple[tuple[str, float], ...]]:
    """Return, by network and loss, the settings with the lowest hierarchical distance on validation images."""
    best: dict[tuple[str, str], Mapping[str, Any]] = {}
    for line in lines:
        if line["stage"] != "search":
            continue
        key = line["method"], line["protocol"]
        value = line["validation_metrics"][_SELECTED_BY]
        if key not in best or value < best[key]["validation_metrics"][_SELECTED_BY]:
            best[key] = line
    return {key: tuple(line["config"]["settings"].items()) for key, line in best.items()}


# --- one training -----------------------------------------------------------------------------------------------------


class WithPoints(torch.nn.Module):
    """A network that returns, in training, its points beside its logits: [B, classes + n]; otherwise the logits."""

    def __init__(self, network: LorentzResNet) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        points = self.network.embed(images)
        with full_precision(points):
            logits: Tensor = self.network.head(points)
        return torch.cat([logits, points], dim=-1) if self.training else logits


class HierarchyClassification(ImageClassification):
    """Image classification with a hierarchy-aware loss.

    Args:
        task: images whose classes have superclasses.
        loss: a name of :data:`LOSSES`.
        weight: weight of the hierarchy-aware part.
        temperature: temperature of the contrastive loss.
        curvature: K of the distances; None: Euclidean.
        **options: as for ImageClassification.

    Raises:
        ValueError: the classes have no superclasses.
    """

    def __init__(
        self,
        task: ImageTask,
        *,
        loss: str,
        weight: float = 0.0,
        temperature: float = 1.0,
        curvature: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(task, **options)
        tree = task.data.tree
        if tree is None:
            raise ValueError(f"the classes of {task.name} have no superclasses")
        self.tree = tree.to(self.device)
        self.kind, self.weight, self.temperature, self.curvature = loss, weight, temperature, curvature

    def loss(self, model: Any) -> Tensor:
        output, labels = class_scores(model, self._batch, self._mean, self._std), self._labels
        logits, points = output[:, : self.tree.num_classes], output[:, self.tree.num_classes :]
        own = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=self.augment.label_smoothing)
        if self.kind == "cross_entropy":
            return own
        if self.kind == "superclass_cross_entropy":
            return own - self.weight * path_log_probabilities(logits, labels, self.tree)[:, 0].mean()
        levels = self.tree.levels(labels)
        return own + self.weight * supervised_contrastive_loss(
            points, levels, K=self.curvature, temperature=self.temperature
        )

    @torch.no_grad()
    def metrics(self, model: Any, part: str) -> dict[str, float]:
        """Return accuracy and hierarchy metrics on the held-out images (``"validation"``) or the test images."""
        images = self.held_out if part == "validation" else self.data.test.to(self.device)
        assert images is not None
        logits = self._all_logits(model.eval(), images)
        found = {"accuracy": 100 * float(accuracy(logits, images.labels))}
        return found | hierarchy_metrics(logits, images.labels, self.tree)


def run_training(plan: Plan, training: Training, device: str = "cpu", data: ImageData | None = None) -> dict[str, Any]:
    """Train once, and return the line of results. A final training reads the test images once, others never.

    Args:
        plan: see :func:`read_plan`.
        training: what to train.
        device: where to train.
        data: the images; None: those of the plan are loaded, once per process.
    """
    settings, final = dict(training.settings), training.stage == "final"
    images = _load(plan["data"]) if data is None else data
    task = ImageTask(plan["data"], images, holdout=0.0 if final else plan["holdout"])
    own = dict(plan["network"][training.network])
    smoothing = settings.get("label_smoothing", plan["augment"]["label_smoothing"])
    augment = Augment(**(plan["augment"] | {"label_smoothing": smoothing}))
    stage = plan[training.stage]
    config = TrainConfig(**plan["train"], **stage, eval_every=stage["epochs"], seed=training.seed, augment=augment)
    torch.manual_seed(training.seed)
    model = create_model(
        plan["network"]["model"],
        residual=training.network,
        num_classes=task.num_classes,
        in_channels=task.in_channels,
        **own,
    )
    assert isinstance(model, LorentzResNet)
    network = WithPoints(model).to(device)
    objective: Any = HierarchyClassification(
        task,
        loss=training.loss,
        weight=settings.get("weight", 0.0),
        temperature=settings.get("temperature", 1.0),
        curvature=None if model.euclidean else own["curvature"],
        batch_size=plan["train"]["batch_size"],
        augment=augment,
        seed=training.seed,
        device=device,
    )
    outcome = train_model(network, objective, config)
    found = {
        name: round(value, 4) for name, value in objective.metrics(network, "test" if final else "validation").items()
    }
    return {
        "table": TABLE,
        "cell": plan["data"],
        "method": training.network,
        "protocol": training.loss,
        "seed": training.seed,
        "config": {"model": plan["network"]["model"], **own, **plan["train"], **stage, "settings": settings}
        | {"augment": plan["augment"] | {"label_smoothing": smoothing}, "holdout": task.holdout},
        "split": None,
        "stage": training.stage,
        **({"metrics": found, "value": found["accuracy"], "validation": None} if final else {}),
        **({} if final else {"validation_metrics": found, "validation": found["accuracy"]}),
        "epochs": outcome.epochs,
        "seconds": round(outcome.seconds, 2),
        "command": _COMMAND,
        **environment(device),
    }


@functools.cache
def _load(name: str) -> ImageData:
    return load_images(name)


# --- the study --------------------------------------------------------------------------------------------------------


def run_study(plan: Plan, out: Path, *, device: str = "cpu", workers: int = 1, data: ImageData | None = None) -> None:
    """Run the search, then the final trainings; every line is appended to ``out`` as soon as it is known.

    Trainings whose lines are in the file are not repeated.
    """
    file = results_file(out)
    with worker_pool(workers) if workers > 1 else contextlib.nullcontext() as pool:
        for stage in ("search", "final"):
            planned = trainings(plan, None if stage == "search" else chosen_settings(own_lines(out)))
            known = set(map(_training_of, own_lines(out)))
            missing = [training for training in planned if training not in known]
            if pool is None:
                lines = (run_training(plan, training, device, data) for training in missing)
            else:
                futures = [pool.submit(run_training, plan, training, device, data) for training in missing]
                lines = (future.result() for future in as_completed(futures))
            for line in lines:
                file.append(line)


def own_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the study, one for each training."""
    return study_lines(path, TABLE, _training_of)


def results_file(path: Path) -> ResultsFile:
    """Return the file to which the lines of the study are appended, each once."""
    return study_file(path, TABLE, _training_of)


def _training_of(line: Mapping[str, Any]) -> Training:
    settings = tuple(line["config"]["settings"].items())
    return Training(line["stage"], line["method"], line["protocol"], settings, line["seed"])
