"""A finished run: :class:`Run` opens its folder, evaluates, predicts and embeds."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lresnet.data import HierarchyTask, ImageData, ImageTask, LinkTask, Task
from lresnet.metrics.untrained_hierarchy import untrained_hierarchy_scores
from lresnet.metrics.untrained_links import UntrainedScore, untrained_link_scores
from lresnet.models import from_pretrained
from lresnet.models.pretrained import Pretrained
from lresnet.runs.config import task_from_dict, train_from_dict
from lresnet.runs.defaults import (
    GENERATED_TOKENS,
    LISTED_ANCESTORS,
    LISTED_LINKS,
    LISTED_NEIGHBOURS,
    LISTED_PARENTS,
    TEMPERATURE,
    TOP_K,
)
from lresnet.runs.device import usable_device
from lresnet.runs.own_network import is_own_network, load_weights
from lresnet.runs.record import (
    MODEL_FILES,
    RunRecord,
    read_finished_record,
    read_own_evaluation,
    require_undamaged,
    write_record,
)
from lresnet.runs.task_config import GraphTaskConfig
from lresnet.runs.tasks import load, load_task_of_run
from lresnet.runs.text import require_no_text
from lresnet.train import TrainConfig, make_objective
from lresnet.train.results import environment

if TYPE_CHECKING:
    from lresnet.runs.dataset_runs import ItemPrediction
    from lresnet.runs.embedding import Embedding
    from lresnet.runs.hierarchy import RankedAncestors
    from lresnet.runs.link_ranking import Link
    from lresnet.runs.neighbours import Neighbours
    from lresnet.runs.prediction import GraphPrediction, NodePrediction, Predictions

__all__ = ["Run"]


class Run:
    """A finished run: its record, its model and its task.

    :func:`fit` returns one; :meth:`open` reads one from its folder.

    Args:
        record: configuration and outcome.
        model: the trained model, in eval mode: one of lresnet, or the user's own module.
        task: the task; None: loaded from the record when it is needed.
        folder: the run's folder; None: the run was not written.
        device: device of the model.
    """

    def __init__(
        self,
        record: RunRecord,
        model: torch.nn.Module,
        task: Task | None = None,
        folder: Path | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.record, self.folder, self.device = record, folder, torch.device(device)
        self.model: Any = model  # which methods it has depends on the task
        self._task = task

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        task: Task | None = None,
        model: torch.nn.Module | None = None,
        device: str = "auto",
    ) -> Run:
        """Read the run that ``lresnet train`` or :func:`fit` left in ``folder``.

        Args:
            model: the network of a run that trained a user's own module, built as before; the weights of the run are
                loaded into it. None: the folder describes a model of lresnet.
            task: needed for a run on a task that was built in Python and that only some methods can do without.
            device: see :func:`usable_device`.

        Raises:
            FileNotFoundError: there is no run in the folder, or no model.
            ValueError: the run has not finished, its files are damaged, or it needs ``model``.
        """
        folder = Path(folder)
        record = read_finished_record(folder)
        place = usable_device(device)
        require_undamaged(folder, record, MODEL_FILES)
        if model is not None:
            load_weights(model, folder / "model")
        elif is_own_network(record.model):
            raise ValueError(
                f"{folder} holds the weights of {record.model['name']}, a network built in Python; build it and pass "
                "it: lresnet.Run.open(folder, model=net)"
            )
        else:
            model = from_pretrained(folder / "model", place)
        return cls(record, model.to(place).eval(), task, folder, place)

    @property
    def place(self) -> str:
        """The folder for messages; a run without a folder goes by its task."""
        return str(self.folder) if self.folder is not None else f"the run on {self.record.data_name}"

    @property
    def known_task(self) -> Task | None:
        """The task if it was passed in or loaded before; None: it is not in memory."""
        return self._task

    @property
    def task(self) -> Task:
        """The task, loaded on first use.

        Raises:
            FileNotFoundError: the data are gone.
            ValueError: the images have changed, or the task was built in Python and must be passed to :meth:`open`.
        """
        if self._task is None:
            self._task = load_task_of_run(self.record, self.place)
        return self._task

    @property
    def images(self) -> ImageData:
        """The images of the run.

        Raises:
            ValueError: the run is on a graph.
        """
        if self.record.on_dataset:
            raise ValueError(
                f"{self.place} holds a run on a data set of your own; this needs images that lresnet reads"
            )
        require_no_text(self, "images")
        if not isinstance(self.task, ImageTask):
            raise ValueError(f"{self.place} holds a run on the graph {self.record.data_name}; this needs one on images")
        return self.task.data

    @property
    def train_config(self) -> TrainConfig:
        """How the run was trained."""
        return train_from_dict(self.record.train)

    def generate(
        self,
        prompt: str | bytes = "",
        *,
        tokens: int = GENERATED_TOKENS,
        temperature: float = TEMPERATURE,
        top_k: int | None = TOP_K,
        top_p: float | None = None,
        seed: int = 0,
    ) -> str:
        """Return ``prompt`` and a continuation drawn from the model of a run on a text.

        Bytes that are not UTF-8 are replaced by U+FFFD. The result depends on the arguments and the run only.

        Args:
            prompt: beginning of the text; empty: the model begins a document.
            tokens: number of tokens to draw.
            temperature: divides the logits; 0 takes the most likely token always.
            top_k: draw from this many most likely tokens only; None: from all.
            top_p: draw from the most likely tokens whose probabilities add up to this number only; None: from all.
            seed: seed of the draws.

        Raises:
            ValueError: the run is not on a text, its model draws no tokens, or an argument is out of its range.
        """
        from lresnet.runs.text import generate

        return generate(self, prompt, tokens=tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)

    def evaluate(self) -> dict[str, float]:
        """Return the test metrics, the main one first: bits per byte of a text, otherwise percentages.

        For link prediction, scores without any training (:meth:`untrained`) are computed on the same pairs. The test
        set is read once: a run with a folder writes the metrics to ``evaluation.json`` and reads them from there
        afterwards. A warning says so if they cannot be written.

        Raises:
            FileNotFoundError: the data are gone.
            ValueError: the model does not fit the data, or the images have changed.
        """
        if self.record.metrics is None and self.folder is not None:
            self.record = read_own_evaluation(self.folder, self.record) or self.record
        if self.record.metrics is None:
            objective = make_objective(self.task, self.train_config, self.device)
            metrics = {name: round(value, 4) for name, value in objective.test(self.model.eval()).items()}
            command = f"{self.record.command}; lresnet evaluate"
            untrained = [one.as_dict() for one in self._untrained(test=True)] or None
            self.record = dataclasses.replace(
                self.record, metrics=metrics, untrained=untrained, command=command, **environment(str(self.device))
            )
            if self.folder is not None:
                try:
                    write_record(self.folder, self.record)
                except OSError as error:
                    warnings.warn(f"the test metrics could not be saved: {error}", stacklevel=2)
        assert self.record.metrics is not None
        return dict(self.record.metrics)

    def untrained(self) -> list[UntrainedScore]:
        """Return the results of scores without training on the links or ancestors of this run, best first.

        For links they are raw features, common neighbours, two- and three-hop counts and degrees, see
        :func:`lresnet.metrics.untrained_link_scores`; for a hierarchy see
        :func:`lresnet.metrics.untrained_hierarchy_scores`. Validation pairs choose and order them; test metrics are
        there once the run has been evaluated.

        Raises:
            FileNotFoundError: the data are gone.
            ValueError: the run predicts neither links nor ancestors.

        Example:
            >>> import lresnet
            >>> run = lresnet.fit("disease_tree/lp", "lorentz_gcn", lresnet.TrainConfig(epochs=5))
            >>> best = run.untrained()[0]
            >>> best.label, round(best.validation, 1), best.value
            ('one raw feature (column 5)', 98.4, None)
        """
        if self.record.metrics is None and self.folder is not None:
            self.record = read_own_evaluation(self.folder, self.record) or self.record
        if self.record.untrained:
            return self.record.untrained_scores
        if not isinstance(self.task, LinkTask | HierarchyTask):
            raise ValueError(
                f"{self.place} predicts neither links nor ancestors; untrained scores are for link prediction and "
                "hierarchies"
            )
        return self._untrained(test=self.record.metrics is not None)

    def _untrained(self, *, test: bool) -> list[UntrainedScore]:
        """Return the untrained scores of the task; none if it ranks neither links nor ancestors."""
        if isinstance(self.task, HierarchyTask):
            return untrained_hierarchy_scores(self.task, test=test)
        if not isinstance(self.task, LinkTask):
            return []
        features = None
        if self.record.task.get("kind") == "graph" and self.record.own_task is None:
            config = task_from_dict(self.record.task)
            assert isinstance(config, GraphTaskConfig)
            raw = load(dataclasses.replace(config, features="raw"), self.record.seed)
            assert isinstance(raw, LinkTask)
            features = raw.x
        return untrained_link_scores(self.task, features, test=test)

    def predict(
        self, items: Sequence[Any] | Tensor = (), *, top: int = 1, graph: Any = None
    ) -> list[NodePrediction] | list[GraphPrediction] | list[ItemPrediction] | Predictions | Tensor:
        """Predict with the trained model.

        Args:
            items: for node classification, numbers or names of nodes (none: all of them); for graph classification,
                those of graphs; for images, image files or folders of them, or a batch of images, see
                :func:`lresnet.runs.dataset_runs.predict_inputs`; for a data set of your own, a batch of inputs, or
                image files; for link prediction, pairs of nodes ``[2, m]``, which are required.
            top: number of classes per node, graph, image or input.
            graph: for node classification, a new graph, see :func:`lresnet.runs.node_inputs.inputs_of_graph`.

        Returns:
            Classes with their probabilities, see :mod:`lresnet.runs.prediction`; for link prediction a score per pair,
            higher for a more likely edge.
        """
        from lresnet.runs.prediction import predict

        return predict(self, items, top=top, graph=graph)

    def links(self, top: int = LISTED_LINKS, *, node: str | int | None = None, graph: Any = None) -> list[Link]:
        """Return the most likely missing links of a run that predicts links: pairs without an edge, nearest first.

        Args:
            top: number of links.
            node: name or number of a node; None: the links of all nodes.
            graph: a new graph, see :func:`lresnet.runs.node_inputs.inputs_of_graph`; None: the run's own.
        """
        require_no_text(self, "links")
        from lresnet.runs.link_ranking import rank_links
        from lresnet.runs.node_inputs import inputs_of_graph

        inputs = None if graph is None else inputs_of_graph(self, graph)
        return rank_links(self, top=top, node=None if node is None else str(node), inputs=inputs).links

    def ancestors(self, node: str | int, top: int = LISTED_ANCESTORS) -> RankedAncestors:
        """Return the ranked ancestors of a node of a taxonomy, see :func:`lresnet.runs.hierarchy.rank_ancestors`."""
        from lresnet.runs.hierarchy import rank_ancestors

        return rank_ancestors(self, str(node), top=top)

    def parents(self, terms: Sequence[str], top: int = LISTED_PARENTS) -> list[RankedAncestors]:
        """Return the ranked parents of new terms, see :func:`lresnet.runs.hierarchy.rank_parents`."""
        from lresnet.runs.hierarchy import rank_parents

        return rank_parents(self, terms, top=top)

    def embed(self, images: Sequence[str | Path] = (), *, graph: Any = None) -> Embedding:
        """Return the points to which the model maps its data: nodes, test images, or the given image files.

        For a user's own network these are the inputs of its head, see :func:`lresnet.runs.own_network.head_input`.

        Args:
            images: image files, or folders of them, for a run on images.
            graph: a new graph, for a run on a graph.
        """
        from lresnet.runs.embedding import embed_run

        return embed_run(self, [Path(path) for path in images], graph)

    def neighbours(self, item: str | int, count: int = LISTED_NEIGHBOURS, *, graph: Any = None) -> Neighbours:
        """Return the points nearest to a node or image, see :func:`lresnet.runs.neighbours.neighbours_in_run`."""
        require_no_text(self, "neighbours")
        from lresnet.runs.neighbours import neighbours_in_run

        return neighbours_in_run(self, str(item), count=count, graph=graph)

    def model_card(
        self, baseline: str | Path | Run | None = None, *, repo: str | None = None, license: str | None = None
    ) -> str:
        """Return the model card of the run in Markdown: figures, baseline, data, command, limits, code that loads it.

        Evaluate the run first; otherwise the card gives the validation metric and says so.

        Args:
            baseline: a run of the Euclidean baseline on the same task, split and seed, or its folder. None: the one
                among the run folders beside this one, if there is exactly one.
            repo: the repository ``"owner/name"`` from which the card's code loads the model; None: the run's folder.
            license: licence of the weights, e.g. ``"mit"``; None: the card has none.

        Raises:
            FileNotFoundError: ``baseline`` holds no run.
            ValueError: ``baseline`` is not a Euclidean baseline of this run.
        """
        from lresnet.runs.model_card import model_card

        return model_card(self, baseline, repo=repo, license=license)

    def push_to_hub(
        self,
        repo: str,
        baseline: str | Path | Run | None = None,
        *,
        license: str | None = None,
        private: bool = True,
        commit_message: str | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
    ) -> str:
        """Upload the model with its card to the Hugging Face hub and return the address of the commit.

        ``run.json`` stays here, because it holds paths of this machine.

        Args:
            repo: ``"owner/name"``; created if missing.
            baseline, license: see :meth:`model_card`.
            private, commit_message, revision, token: see :meth:`lresnet.models.Pretrained.push_to_hub`.
        """
        if is_own_network(self.record.model):
            raise ValueError(
                f"{self.place} holds {self.record.model['name']}, a network built in Python; upload it yourself"
            )
        model: Pretrained = self.model
        return model.push_to_hub(
            repo,
            card=self.model_card(baseline, repo=repo, license=license),
            private=private,
            commit_message=commit_message,
            revision=revision,
            token=token,
        )
