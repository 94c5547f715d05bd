"""One run: :func:`fit` trains a model on a task, and :class:`Run` evaluates, predicts and embeds with the result."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lresnet._files import locked_folder, require_no_file, write_atomically
from lresnet._options import AT_LEAST_1
from lresnet.data import (
    AncestorTask,
    DatasetTask,
    GraphLevelTask,
    HierarchyTask,
    ImageData,
    ImageTask,
    LinkTask,
    NodeTask,
    Task,
    TextTask,
    dataset_task,
    load_images,
    load_task,
    text_task,
)
from lresnet.data.split_names import SPLITS
from lresnet.metrics.untrained_hierarchy import untrained_hierarchy_scores
from lresnet.metrics.untrained_links import UntrainedScore, untrained_link_scores
from lresnet.models import MODELS, create_model, from_pretrained
from lresnet.models.pretrained import Pretrained
from lresnet.runs.config import (
    GRAPH_MODELS,
    IMAGE_MODELS,
    MODEL_CONFIGS,
    TEXT_MODELS,
    GraphTaskConfig,
    ImageTaskConfig,
    ModelConfig,
    RunConfig,
    TaskConfig,
    TextTaskConfig,
    given_fields,
    require_shareable,
    task_as_dict,
    task_from_dict,
    train_as_dict,
    train_from_dict,
)
from lresnet.runs.defaults import LISTED_NEIGHBOURS
from lresnet.runs.graphs import graph_facts, load_own_task, require_same_graph
from lresnet.runs.images import (
    image_facts,
    require_images_exist,
    require_same_everywhere,
    require_same_images,
)
from lresnet.runs.names import require_known
from lresnet.runs.own_network import (
    describe_network,
    is_own_network,
    load_weights,
    network_weights,
    require_logits,
    save_weights,
)
from lresnet.runs.presets import TaskKind, find_task, is_own_graph, run_config
from lresnet.runs.record import (
    CURVE_FILE,
    MODEL_FILES,
    TOKENIZER_FILE,
    RunRecord,
    damage,
    digests,
    read_evaluation,
    read_finished_record,
    read_record,
    remove_previous_checkpoint,
    require_repairable,
    require_resumable,
    require_same_run,
    require_undamaged,
    write_record,
)
from lresnet.runs.stem import with_stem
from lresnet.runs.text import require_no_text, require_same_text, require_token_logits
from lresnet.train import Execution, Objective, Outcome, TrainConfig, make_objective, seed_everything, train_model
from lresnet.train.distributed import ONE_PROCESS, Processes
from lresnet.train.results import environment

if TYPE_CHECKING:
    from lresnet.runs.dataset_runs import ItemPrediction
    from lresnet.runs.embedding import Embedding
    from lresnet.runs.hierarchy import RankedAncestors
    from lresnet.runs.link_ranking import Link
    from lresnet.runs.neighbours import Neighbours
    from lresnet.runs.prediction import GraphPrediction, NodePrediction, Predictions

__all__ = ["OnEpoch", "OnStart", "Run", "build", "build_model", "fit", "load", "usable_device"]

OnStart = Callable[[Any, Objective[Any]], None]
OnEpoch = Callable[[int, float | None], None]

# An epoch in batches takes as long as a hundred epochs of a graph that is one batch, or longer.
_CHECKPOINT_EVERY_GRAPHS, _CHECKPOINT_EVERY_BATCHES, _CHECKPOINT_EVERY_DATASETS = 200, 10, 1


def fit(
    task: Task | TaskConfig | Dataset[Any] | DataLoader[Any] | str,
    model: torch.nn.Module | ModelConfig | str,
    config: TrainConfig = TrainConfig(),  # noqa: B008 - frozen
    *,
    out: str | Path | None = None,
    device: str = "auto",
    checkpoint_every: int | None = None,
    processes: Processes = ONE_PROCESS,
    command: str | None = None,
    on_start: OnStart | None = None,
    on_epoch: OnEpoch | None = None,
) -> Run:
    """Train a model on a task and return the run. The test set is not read: that is what :meth:`Run.evaluate` does.

    Args:
        task: a task, its configuration, or its name, e.g. ``"airport/lp"``, ``"cifar10"`` or ``"gcide"``; or a torch
            ``Dataset`` or ``DataLoader``, which stands for :func:`lresnet.data.dataset_task` of it.
        model: a model of :func:`lresnet.create_model`, its configuration, or its name; for images and data sets also
            any module that maps a batch to logits ``[batch, classes]``, and for a text any module that maps tokens
            ``[batch, length]`` to logits ``[batch, length, vocab_size]``. A configuration or a name is built with the
            sizes of the task after torch was seeded with ``config.seed``, so that the seed decides the whole run. A
            module is trained in place; seed torch before you build it. Parameters with ``requires_grad=False`` stay as
            they are, and a part all of whose parameters are frozen stays in eval mode
            (:func:`lresnet.train.engine.frozen_parts`).
        config: how to train.
        out: folder of the run. If it holds the checkpoint of the same run, training resumes from it; a resumed run is
            bit-identical to an uninterrupted one. (A user's own loader must give the same batches again, see
            :class:`lresnet.train.DatasetClassification`.) A finished run is returned without training, if its files
            match their checksums; otherwise it is trained again from its checkpoint. None: nothing is written.
        device: see :func:`usable_device`. A checkpoint must be resumed on the same kind of device.
        checkpoint_every: epochs between two checkpoints; None: 10; 200 for graphs that are one batch; 1 for data
            sets and texts.
        processes: the processes that share the run; all of them call this function, and only rank 0 writes. Resume
            with the same number of processes that wrote the checkpoint.
        command: what ``run.json`` records as the command; None: the command that repeats the configuration.
        on_start: called as ``on_start(model, objective)`` before the first epoch.
        on_epoch: called as ``on_epoch(epoch, best validation metric)``, see :func:`lresnet.train.train_model`.

    Raises:
        TypeError: the task, the model or the configuration has the wrong type.
        ValueError: the run is impossible, the model does not fit the task, the folder holds another run, or its images
            have changed.
        OSError: the folder cannot be written to, another process is working in it, or data are missing.

    Example:
        >>> import lresnet
        >>> task = lresnet.data.load_task("disease_tree/lp")
        >>> model = lresnet.create_model("lorentz_gcn", in_features=task.x.shape[1])
        >>> run = lresnet.fit(task, model, lresnet.TrainConfig(epochs=5))
        >>> sorted(run.evaluate())
        ['average_precision', 'roc_auc']
    """
    if not isinstance(config, TrainConfig):
        raise TypeError(f"fit takes a lresnet.TrainConfig as its configuration, got {config!r}")
    if checkpoint_every is not None and checkpoint_every not in AT_LEAST_1:
        raise ValueError(f"checkpoint_every must be {AT_LEAST_1}, got {checkpoint_every!r}")
    if out is not None:
        require_no_file(Path(out))
    place, folder = usable_device(device), None if out is None else Path(out)
    data, task_record = _load_in_order(task, config.seed, processes)
    if processes.size > 1 and not isinstance(data, ImageTask | DatasetTask | TextTask):
        require_shareable(GraphTaskConfig(data.name), processes.size, config.batch_size)
    network, model_record = _network(model, data, config.seed, place)
    is_own = is_own_network(model_record)
    if is_own and folder is not None:
        network_weights(network)  # raises before the training if they cannot be written after it
    objective = make_objective(data, config, place, processes=processes)
    objective.require_model(network)
    record = _started(data, task_record, model_record, config, command, place, processes)
    if folder is None:
        outcome = _train(network, objective, config, None, 1, on_start, on_epoch)
        return Run(_finished(record, outcome), network, data, device=place)
    before, intact = processes.broadcast(_known_run(folder, record) if processes.is_main else (None, False))
    if not intact:
        with locked_folder(folder) if processes.is_main else contextlib.nullcontext():
            # Another process may have finished the run since.
            before, intact = processes.broadcast(_known_run(folder, record) if processes.is_main else (None, False))
            if not intact:
                if processes.is_main:
                    _prepare(folder, before, record)
                every = checkpoint_every or _usual_checkpoints(data, config)
                outcome = _train(network, objective, config, folder / "checkpoint.pt", every, on_start, on_epoch)
                record = _finished(record, outcome)
                if processes.is_main:
                    record = _write_results(folder, network, data, outcome, record)
                return Run(record, network, data, folder, place)
    assert before is not None
    if is_own:
        load_weights(network, folder / "model")
    else:
        network = from_pretrained(folder / "model", place)
    return Run(before, network.eval(), data, folder, place)


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
            kind = self.record.task.get("kind")
            if kind not in ("graph", "images", "text"):
                raise ValueError(
                    f"{self.place} was trained on a task built in Python; pass it: Run.open(folder, task=task)"
                )
            if kind == "images":
                require_images_exist(self.record.task_name, Path(self.place))
            self._task = load(task_from_dict(self.record.task), self.record.seed)
            if isinstance(self._task, ImageTask):
                now = image_facts(self._task.data)
                require_same_images(now, self.record.images, self.record.task_name, Path(self.place))
            elif isinstance(self._task, TextTask):
                require_same_text(self._task.facts(), self.record.text, self.record.task_name, Path(self.place))
            elif self.record.graph is not None:
                require_same_graph(graph_facts(self._task), self.record.graph, self.record.task_name, Path(self.place))
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
        tokens: int = 200,
        temperature: float = 0.8,
        top_k: int | None = 40,
        seed: int = 0,
    ) -> str:
        """Return ``prompt`` and a continuation that the model draws, for a run on a text.

        Bytes that are not UTF-8 are replaced by U+FFFD. The result depends on the arguments and the run only.

        Args:
            prompt: beginning of the text; empty: the model begins a document.
            tokens: number of tokens to draw.
            temperature: divides the logits; 0 takes the most likely token always.
            top_k: draw from this many most likely tokens only; None: from all.
            seed: seed of the draws.

        Raises:
            ValueError: the run is not on a text, its model draws no tokens, or an argument is out of its range.
        """
        from lresnet.runs.text import generate

        return generate(self, prompt, tokens=tokens, temperature=temperature, top_k=top_k, seed=seed)

    def evaluate(self) -> dict[str, float]:
        """Return the test metrics, the one to report first: bits per byte of a text, otherwise percentages.

        For link prediction, scores without any training (:meth:`untrained`) are computed on the same pairs. The test
        set is read once: a run with a folder writes the metrics to ``evaluation.json`` and reads them from there
        afterwards. A warning says so if they cannot be written.

        Raises:
            FileNotFoundError: the data are gone.
            ValueError: the model does not fit the data, or the images have changed.
        """
        if self.record.metrics is None and self.folder is not None:
            found = read_evaluation(self.folder)
            if found is not None and (found.files is None or found.files == self.record.files):  # of these weights
                self.record = found
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
        """Return what scores without any training reach on the links or ancestors of this run, best first.

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
            self.record = read_evaluation(self.folder) or self.record
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
        from lresnet.runs import prediction

        require_no_text(self, "items to predict")
        on_images = self.record.images is not None or self.record.on_dataset
        if graph is not None and (on_images or not isinstance(self.task, NodeTask)):
            raise ValueError(f"{self.place} does not classify nodes, as graph= needs; links and embed take a graph too")
        if isinstance(items, str | Path):
            raise TypeError(f"predict takes a list of items, got {items!r}; write [{items!r}]")
        is_batch = isinstance(items, Tensor) or hasattr(items, "__array_interface__")
        if self.record.on_dataset or (self.record.images is not None and is_batch):
            from lresnet.runs.dataset_runs import predict_inputs

            return predict_inputs(self, items, top=top)
        if self.record.images is not None:  # needs no task: the record describes the images
            return prediction.predict_images(self, [Path(str(path)) for path in items], top=top)
        by_name = len(items) > 0 and not isinstance(items, Tensor) and all(isinstance(item, str) for item in items)
        if by_name and isinstance(self.task, NodeTask | GraphLevelTask):
            names = [str(item) for item in items]
            if isinstance(self.task, GraphLevelTask):
                return prediction.predict_graphs(self, names, top=top)
            return prediction.predict_nodes(self, names, top=top, graph=graph)
        try:
            numbers = torch.as_tensor(items)
        except (TypeError, ValueError) as error:
            raise TypeError(f"predict takes whole numbers of nodes, got {items!r}") from error
        if numbers.numel() and (numbers.is_floating_point() or numbers.dtype == torch.bool):
            raise TypeError(f"predict takes whole numbers of nodes, got {items!r}")
        if isinstance(self.task, LinkTask):
            return prediction.score_links(self, numbers)
        if isinstance(self.task, GraphLevelTask):
            return prediction.predict_graphs(self, numbers.flatten().tolist(), top=top)
        return prediction.predict_nodes(self, numbers.flatten().tolist(), top=top, graph=graph)

    def links(self, top: int = 50, *, node: str | int | None = None, graph: Any = None) -> list[Link]:
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

    def ancestors(self, node: str | int, top: int = 20) -> RankedAncestors:
        """Return the ranked ancestors of a node of a taxonomy, see :func:`lresnet.runs.hierarchy.rank_ancestors`."""
        from lresnet.runs.hierarchy import rank_ancestors

        return rank_ancestors(self, str(node), top=top)

    def parents(self, terms: Sequence[str], top: int = 10) -> list[RankedAncestors]:
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


def _usual_checkpoints(task: Task, config: TrainConfig) -> int:
    if isinstance(task, DatasetTask | TextTask):
        return _CHECKPOINT_EVERY_DATASETS
    in_batches = isinstance(task, ImageTask) or config.batch_size is not None
    return _CHECKPOINT_EVERY_BATCHES if in_batches else _CHECKPOINT_EVERY_GRAPHS


def load(config: TaskConfig, seed: int = 0) -> Task:
    """Load the task of a configuration. The last few tasks stay in memory.

    Args:
        seed: draws a random split that has no number; published splits are the same for every seed.
    """
    if isinstance(config, ImageTaskConfig):
        folder = (config.size, config.test_fraction, config.split_seed, config.memory, config.workers)
        data = _images(config.name, *folder)
        return ImageTask(config.name, data, holdout=config.holdout, stratified=bool(config.stratified))
    if isinstance(config, TextTaskConfig):
        return _text(config)
    if config.is_own:
        return load_own_task(config, seed)
    rule = SPLITS.get(config.split or "")
    drawn = config.split_index is None and rule is not None and rule.follows_seed
    return _graph_task(config, seed if drawn else 0)


@functools.lru_cache(maxsize=12)  # the ten official splits of a data set, and a few more
def _graph_task(config: GraphTaskConfig, seed: int) -> Task:
    dropped = config.drop_columns or ()
    return load_task(
        config.name,
        split=config.split,
        seed=seed,
        features=config.features,
        index=config.split_index,
        drop_columns=dropped,
    )


@functools.lru_cache(maxsize=2)
def _text(config: TextTaskConfig) -> TextTask:
    settings = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return text_task(settings.pop("name"), **settings)


@functools.lru_cache(maxsize=2)
def _images(
    name: str,
    size: int | None = None,
    test_fraction: float | None = None,
    split_seed: int | None = None,
    memory: float | None = None,
    workers: int | None = None,
) -> ImageData:
    options = {"test_fraction": test_fraction, "split_seed": split_seed, "memory": memory, "workers": workers}
    return load_images(name, size=size, **{key: value for key, value in options.items() if value is not None})  # type: ignore[arg-type]


def build(config: RunConfig, device: torch.device | str = "cpu") -> tuple[Pretrained, Objective[Any]]:
    """Return the model and the objective of a run, ready to train; the seed decides the parameters."""
    task = load(config.task, config.train.seed)
    seed_everything(config.train.seed)
    model = build_model(config.model, task, device)
    return model, make_objective(task, config.train, device)


def build_model(config: ModelConfig, task: Task, device: torch.device | str = "cpu") -> Pretrained:
    """Build the network of a configuration with the sizes that the task needs. Torch's generator decides its weights.

    Example:
        >>> task = load(GraphTaskConfig("disease_tree/nc"))
        >>> build_model(MODEL_CONFIGS["lorentz_gcn"]("lorentz_gcn"), task).config["num_classes"]
        2
    """
    sizes: dict[str, Any]
    config = with_stem(config, task)
    if isinstance(task, ImageTask):
        sizes = {"num_classes": len(task.data.classes), "in_channels": task.in_channels}
    elif isinstance(task, DatasetTask):
        sizes = {"num_classes": task.num_classes, "in_channels": task.in_channels}
    elif isinstance(task, TextTask):
        sizes = {"vocab_size": task.vocab_size, "context": task.context}
    else:
        classes = None if isinstance(task, LinkTask | HierarchyTask) else task.num_classes
        sizes = {"in_features": task.x.shape[1], "num_classes": classes}
    return create_model(config.name, **config.arguments(), **sizes).to(device)


def usable_device(name: str) -> torch.device:
    """Return the device called ``name``; ``"auto"`` is a GPU if there is one, otherwise the CPU.

    Raises:
        ValueError: the device cannot be used on this machine; the message gives torch's reason.

    Example:
        >>> usable_device("cpu")
        device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:  # torch's message lists every kind of device
        raise ValueError(f"unknown kind of device {name!r}; use auto, cpu, cuda or cuda:1") from error
    try:
        torch.zeros(1, device=device).item()  # a meta tensor, for example, has no values
    except (RuntimeError, AssertionError) as error:  # torch without CUDA raises AssertionError
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise ValueError(f"device {name!r} cannot be used here: {reason}") from error
    if device.type == "cpu" and device.index is not None:  # torch accepts it, safetensors does not
        raise ValueError(f"device {name!r} cannot be used here: a CPU has no number; use cpu")
    return device


def _load_in_order(
    task: Task | TaskConfig | Dataset[Any] | DataLoader[Any] | str, seed: int, processes: Processes
) -> tuple[Task, dict[str, Any]]:
    """Load a task with rank 0 first, which may have to download it, and describe it for ``run.json``."""
    if isinstance(task, Dataset | DataLoader):
        task = dataset_task(task)
    if isinstance(task, str):
        task = run_config(task).task if is_own_graph(task) else _named(task)
    if not isinstance(task, GraphTaskConfig | ImageTaskConfig | TextTaskConfig):
        known = LinkTask | NodeTask | HierarchyTask | GraphLevelTask | AncestorTask | ImageTask | TextTask | DatasetTask
        if not isinstance(task, known):
            raise TypeError(
                "fit takes a task of lresnet.data, its configuration or its name, or a torch Dataset or DataLoader, "
                f"got {task!r}"
            )
        return task, _describe(task)
    if processes.size > 1 and processes.is_main:
        load(task, seed)
    processes.broadcast(None)  # the others wait here
    loaded = load(task, seed)
    return loaded, task_as_dict(task)


def _named(name: str) -> TaskConfig:
    kind, name = find_task(name)
    configs: dict[TaskKind, type[TaskConfig]] = {
        "graphs": GraphTaskConfig,
        "images": ImageTaskConfig,
        "texts": TextTaskConfig,
    }
    return configs[kind](name)


def _describe(task: Task) -> dict[str, Any]:
    """Describe a task that was built in Python: its sizes and a checksum that notices another task."""
    if isinstance(task, ImageTask):
        return {"kind": "python", "name": task.name, "holdout": task.holdout}
    if isinstance(task, DatasetTask):
        return {"kind": "python"} | task.describe()
    if isinstance(task, TextTask):
        steps = {} if task.steps_per_epoch is None else {"steps_per_epoch": task.steps_per_epoch}
        facts = {"context": task.context, "digest": task.facts()["digest"]} | steps
        return {"kind": "python", "name": task.name} | facts
    tensors = {name: value for name, value in sorted(vars(task).items()) if isinstance(value, Tensor)}
    digest = hashlib.sha256()
    for name, value in tensors.items():
        digest.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        parts = [value] if value.layout == torch.strided else [value.coalesce().indices(), value.coalesce().values()]
        for part in parts:
            digest.update(part.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    kinds = {
        LinkTask: "link",
        NodeTask: "node",
        GraphLevelTask: "graph-level",
        HierarchyTask: "hierarchy",
        AncestorTask: "ancestors",
    }
    kind = kinds[type(task)]
    return {"kind": "python", "name": task.name, "task": kind, "nodes": task.num_nodes, "digest": digest.hexdigest()}


def _network(
    model: torch.nn.Module | ModelConfig | str, task: Task, seed: int, device: torch.device
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """Return the model on its device, built from its configuration if needed, and describe it for ``run.json``."""
    if isinstance(model, str):
        require_known("model", model, MODEL_CONFIGS)
        model = MODEL_CONFIGS[model](model)
    if isinstance(model, ModelConfig):
        _require_kind(model.name, task)
        model = with_stem(model, task)
        seed_everything(seed)
        return build_model(model, task, device), given_fields(model)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            "fit takes a model of lresnet.create_model, its configuration or its name, or a torch.nn.Module, "
            f"got {type(model).__name__}"
        )
    if not isinstance(model, Pretrained):
        if isinstance(task, TextTask):
            require_token_logits(model, task, device)
        else:
            require_logits(model, task)
        return model.to(device), describe_network(model)
    config = json.loads(json.dumps(model.config))
    _require_kind(config["model"], task)
    if not isinstance(task, ImageTask | DatasetTask | TextTask):  # the objectives of these look at the model
        _require_sizes(config, task)
    return model.to(device), {"name": config.pop("model"), "from": "python"} | config


def _require_kind(model: str, task: Task) -> None:
    """Raise an error if a model of the library takes other data than those of the task."""
    kind, names = "graphs", GRAPH_MODELS
    if isinstance(task, ImageTask | DatasetTask):
        kind, names = "images", IMAGE_MODELS
    elif isinstance(task, TextTask):
        kind, names = "texts", TEXT_MODELS
    if model in MODELS and not any(name.startswith(model) for name in names):  # lorentz_resnet has any depth
        raise ValueError(f"{model} is not a network for {kind}, as {task.name} needs; choose {' or '.join(names)}")


def _require_sizes(
    config: dict[str, Any], task: LinkTask | NodeTask | HierarchyTask | GraphLevelTask | AncestorTask
) -> None:
    """Raise an error if a model for graphs was built for other sizes than those of the task."""
    classes = {} if isinstance(task, LinkTask | HierarchyTask) else {"num_classes": task.num_classes}
    sizes = {"in_features": task.x.shape[1]} | classes
    for name, size in sizes.items():
        if config.get(name, size) != size:
            raise ValueError(
                f"the model has {name}={config[name]}, but {task.name} needs {size}; build it with {name}={size}"
            )


def _started(
    task: Task,
    task_record: dict[str, Any],
    model_record: dict[str, Any],
    config: TrainConfig,
    command: str | None,
    device: torch.device,
    processes: Processes,
) -> RunRecord:
    """Return the record of a run before its first epoch."""
    images = None
    if isinstance(task, ImageTask):
        images = image_facts(task.data)
        require_same_everywhere(images, task.name, processes.gather)
    tree: dict[str, Any] = {"task": task_record, "model": model_record, "train": train_as_dict(config)}
    text = task.facts() if isinstance(task, TextTask) else None
    if text is not None and len(set(processes.gather(text["digest"]))) > 1:
        raise ValueError(f"the processes find different texts at {task.name}; give every machine the same text")
    if command is None:
        command = _command(tree, processes.size)
    own = task_record["kind"] == "graph" and "task" in task_record
    return RunRecord(
        **tree,
        command=command,
        device=device.type,
        processes=processes.size,
        images=images,
        graph=graph_facts(task) if own else None,
        text=text,
        **environment(str(device)),
    )


def _command(tree: dict[str, Any], processes: int) -> str:
    if tree["task"]["kind"] == "python" or "from" in tree["model"]:
        return "lresnet.fit(...)"
    return RunConfig.from_dict(tree).command(processes)


def _train(
    model: torch.nn.Module,
    objective: Objective[Any],
    config: TrainConfig,
    checkpoint: Path | None,
    every: int,
    on_start: OnStart | None,
    on_epoch: OnEpoch | None,
) -> Outcome:
    if on_start is not None:
        on_start(model, objective)
    # A user's network may read values on the host, which a captured step cannot.
    execution: Execution = "fast" if isinstance(model, Pretrained) else "eager"
    return train_model(
        model,
        objective,
        config,
        checkpoint=checkpoint,
        checkpoint_every=every,
        execution=execution,
        on_epoch=on_epoch,
    )


def _finished(record: RunRecord, outcome: Outcome) -> RunRecord:
    validation = None if outcome.validation is None else round(outcome.validation, 4)
    return dataclasses.replace(
        record,
        validation=validation,
        best_epoch=outcome.best_epoch,
        epochs=outcome.epochs,
        seconds=round(outcome.seconds, 2),
        norm_statistics=outcome.norm_statistics,
    )


def _known_run(folder: Path, record: RunRecord) -> tuple[RunRecord | None, bool]:
    """Return the record in ``folder`` and whether it is that of a finished run with all its files.

    Raises:
        ValueError: the folder holds another run, or the data have changed since.
    """
    before = read_record(folder)
    if before is None:
        return None, False
    require_same_run(record, before, folder)
    require_same_graph(record.graph, before.graph, record.task_name, folder)
    require_same_text(record.text, before.text, record.task_name, folder)
    if before.finished:
        require_same_images(record.images, before.images, record.task_name, folder)
    return before, before.finished and damage(folder, before) is None


def _prepare(folder: Path, before: RunRecord | None, record: RunRecord) -> None:
    """Check that a run can start or resume in ``folder``, and write its record without a result.

    Raises:
        ValueError: the folder has a checkpoint from which this run cannot resume, or none and a damaged run.
    """
    if before is not None and before.finished:
        found = damage(folder, before)
        assert found is not None
        require_repairable(folder, found)
        require_resumable(folder, before, record)
        warnings.warn(f"{folder} is damaged: {found}; the run is trained again from its checkpoint", stacklevel=3)
        return  # the record stays as it is until the files are there again
    require_resumable(folder, before, record)
    write_record(folder, record)


def _write_results(folder: Path, model: torch.nn.Module, task: Task, outcome: Outcome, record: RunRecord) -> RunRecord:
    """Write the model and the validation curve, then ``run.json``: a record with a best epoch has all files."""
    if isinstance(model, Pretrained):
        model.save_pretrained(folder / "model")
    else:
        save_weights(model, folder / "model")
    if isinstance(task, TextTask):
        write_atomically(folder / TOKENIZER_FILE, task.tokenizer.to_json().encode())
    lines = [json.dumps({"epoch": epoch, "validation": round(value, 4)}) + "\n" for epoch, value in outcome.curve]
    write_atomically(folder / CURVE_FILE, "".join(lines).encode())
    record = dataclasses.replace(record, files=digests(folder))
    write_record(folder, record)
    remove_previous_checkpoint(folder)
    return record
