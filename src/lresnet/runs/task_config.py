"""Configuration of a task: a graph, a set of images or a text, with its split; checked on construction.

The module imports without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from lresnet._limits import VOCABULARY
from lresnet._metric_names import require_hierarchy_metric, require_link_metric, require_node_metric
from lresnet._options import (
    ABOVE_0_BELOW_1,
    AT_LEAST_1,
    FROM_0_BELOW_1,
    NOT_NEGATIVE,
    SEED,
    Range,
    check_options,
    option,
    option_name,
)
from lresnet.data.registry import TASKS, TEXTS
from lresnet.data.source import HIERARCHY_SPLITS, DataKind
from lresnet.data.split_names import canonical_split, require_index

__all__ = [
    "MACHINE_SETTINGS",
    "GraphTaskConfig",
    "GraphTaskKind",
    "ImageTaskConfig",
    "TaskConfig",
    "TextTaskConfig",
]

_VOCABULARY = Range(f"257 to {VOCABULARY:,}", lambda value: type(value) is int and 256 < value <= VOCABULARY)
GraphTaskKind = Literal["link", "node", "graph-level", "hierarchy"]
"""What can be learned on a user's graph."""


@dataclass(frozen=True)
class GraphTaskConfig:
    """A shipped task on a graph, or a task on a user's graph, and its split. Checked on construction.

    Args:
        name: the shipped task, e.g. ``"airport/lp"``, or the absolute path of a user's graph.
        split: name of the split, e.g. ``"disjoint"``; for a user's graph ``"random"`` or the absolute path of a split
            file, for a taxonomy ``"closure"`` or ``"leaves"``; None: the task's default.
        split_index: number of the split, where there are several of this name: an official split, or the seed of a
            ``"class-random"`` or ``"fresh_splits"`` split; None: the run's seed draws it.
        features: how the node features are prepared.
        drop_columns: raw feature columns of a shipped task that are left out, numbered from 0; None: none.
        task: what is to be learned on a user's graph; None for a shipped task.
        node_features: ``"learned"``, ``"structural"``, or the absolute path of a file, for a user's graph.
        labels: absolute path of a file of labels, for a user's graph.
        directed: whether the edges of a user's graph have a direction.
        metric: metric to select by and to report first, for a user's graph.
    """

    kind: ClassVar[str] = "graph"
    data_kind: ClassVar[DataKind] = "graphs"

    name: str
    split: str | None = None
    split_index: int | None = None
    features: Literal["published", "standardised", "raw"] = option("published", "How the node features are prepared.")
    drop_columns: tuple[int, ...] | None = option(
        None, "Raw feature columns of a shipped task to leave out, numbered from 0.", metavar="INT"
    )
    task: GraphTaskKind | None = option(None, "What to learn on your own graph.")
    node_features: str | None = option(
        None,
        "Node features of your own graph: a file, learned (one point per node), or structural (degrees, clustering, "
        "PageRank). For a hierarchy also names (words and letters of the names); its file has rows name,text.",
        metavar="FILE|learned|structural|names",
    )
    labels: str | None = option(None, "Labels of your own graph: a file with rows node,label.", metavar="FILE")
    directed: bool | None = option(None, "Keep the direction of the edges of your own graph.")
    metric: str | None = option(
        None,
        "Metric to select by and to report first on your own graph, e.g. accuracy, f1_macro, roc_auc, hits@50, mrr, "
        "mean_average_precision. None for a taxonomy: ordered_mrr, which sees the order of the ancestors.",
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("name", "split", "node_features", "labels", "metric"):
            if not isinstance(getattr(self, name), str | None):
                raise ValueError(f"{name} must be a string, got {getattr(self, name)!r}")
        if self.drop_columns is not None:
            object.__setattr__(self, "drop_columns", self._checked_columns(self.drop_columns))
        if not self.is_own and self.name in TASKS:
            self._name_split(TASKS[self.name].splits)
        if self.metric is not None and self.task is not None:
            checks = {"link": require_link_metric, "hierarchy": require_hierarchy_metric}
            checks.get(self.task, require_node_metric)(self.metric)
        for name in ("node_features", "labels", "directed", "metric"):
            if self.task is None and getattr(self, name) is not None:
                raise ValueError(
                    f"--{option_name(name)} is for your own graph, but {self.name} is a shipped task; leave it out"
                )
        if self.task == "graph-level":
            self._require_graph_level()
        if self.labels is not None and self.task in ("link", "hierarchy"):
            raise ValueError(
                f"--labels is for --task node, but --task {self.task} learns without labels; leave one out"
            )
        if self.task == "hierarchy":
            self._require_hierarchy()
        elif self.node_features == "names":
            raise ValueError("--node-features names is for --task hierarchy; choose learned, structural, or a file")

    def _checked_columns(self, columns: Any) -> tuple[int, ...] | None:
        """Return the columns to drop, sorted and each once; None if there are none."""
        if self.task is not None:
            raise ValueError("--drop-columns is for shipped tasks; leave the columns out of the file of your own graph")
        if not isinstance(columns, list | tuple) or not all(type(one) is int and one >= 0 for one in columns):
            raise ValueError(f"drop_columns must be a list of whole numbers, 0 or more, got {columns!r}")
        return tuple(sorted(set(columns))) or None

    def _name_split(self, splits: tuple[str, ...]) -> None:
        """Replace an older name of the split of a shipped task by its current name, and check its number."""
        if self.split is None and self.split_index is not None and "official_splits" in splits:
            object.__setattr__(self, "split", "official_splits")
        if self.split is not None:
            object.__setattr__(self, "split", canonical_split(self.split, splits))
            require_index(self.split, self.split_index)

    def _require_graph_level(self) -> None:
        given = [name for name in ("labels", "node_features", "directed") if getattr(self, name) is not None]
        if self.split_index is not None or self.split not in (None, "random"):
            given.append("split")
        if given:
            raise ValueError(
                f"--{option_name(given[0])} is for one graph, but --task graph-level reads many, with their labels and "
                "features, from a folder; leave it out"
            )

    def _require_hierarchy(self) -> None:
        if self.directed is not None:
            raise ValueError("--directed is for graphs; a taxonomy has rows child,parent; leave it out")
        if self.split_index is not None or self.split not in (None, *HIERARCHY_SPLITS):
            given = self.split if self.split_index is None else self.split_index
            raise ValueError(f"--split {given}: a taxonomy has the splits {' and '.join(HIERARCHY_SPLITS)}")

    @property
    def is_own(self) -> bool:
        """Whether the graph is the user's own."""
        return self.task is not None

    def words(self) -> list[str]:
        """Return the command-line options that choose the split and what is to be learned."""
        index = [] if self.split_index is None else [str(self.split_index)]
        if index and self.split in (None, "official_splits"):
            words = ["--split", *index]
        else:
            words = [] if self.split is None else ["--split", self.split]
            words += ["--split-index", *index] if index else []
        return words + ([] if self.task is None else ["--task", self.task, "--search", "off"])

    def split_facts(self) -> dict[str, Any]:
        """Return the split and what is to be learned, by their names in messages."""
        return {"split": self.split, "split_index": self.split_index, "task kind": self.task}


@dataclass(frozen=True)
class ImageTaskConfig:
    """A set of labelled images and the fraction held out for validation. Checked on construction.

    Args:
        name: ``"cifar10"``, ``"cifar100"``, or the absolute path of a folder or ``.npz``.
        size: for a folder whose images differ in size: resize all to squares of this side.
        holdout: fraction of the training images held out for validation.
        stratified: whether the same fraction of every class is held out, by content.
        test_fraction, split_seed: the test set of a folder without ``test``, see :func:`lresnet.data.load_images`.
        memory, workers: where the images of a folder are kept and how many processes decode them; they do not change
            the run.
    """

    kind: ClassVar[str] = "images"
    data_kind: ClassVar[DataKind] = "images"

    name: str
    size: int | None = option(
        None,
        "Resize all images of a folder to squares with this side. None: that of the images, at most 64 pixels on a CPU "
        "and 224 on a GPU.",
        range=AT_LEAST_1,
        metavar="PIXELS",
    )
    holdout: float = option(
        0.0,
        "Fraction of the training images held out for validation; 0 holds out none.",
        range=FROM_0_BELOW_1,
        metavar="FRACTION",
    )
    stratified: bool | None = option(
        None,
        "Hold out the same fraction of every class, with copies of an image on one side; the default for your own "
        "images.",
    )
    test_fraction: float | None = option(
        None,
        "Fraction of each class that is the test set of a folder without test/. None: 0.2.",
        range=ABOVE_0_BELOW_1,
        metavar="FRACTION",
    )
    split_seed: int | None = option(
        None, "Seed that chooses the test set of a folder without test/. None: 0.", range=SEED, metavar="INT"
    )
    memory: float | None = option(
        None,
        "Gigabytes of decoded images of a folder that are kept in memory; a larger set is decoded batch by batch. "
        "None: 2.",
        range=NOT_NEGATIVE,
        metavar="GB",
    )
    workers: int | None = option(
        None,
        "Processes that decode the images of a folder; 0 decodes without. None: one per core, at most 8.",
        range=NOT_NEGATIVE,
        metavar="INT",
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def is_own(self) -> bool:
        """Whether the images are the user's own."""
        return Path(self.name).is_absolute()

    def words(self) -> list[str]:
        """Return the command-line options that keep a recipe from being scaled to the user's images."""
        return ["--recipe", "fast"] if self.is_own else []

    def split_facts(self) -> dict[str, Any]:
        """Return nothing: the settings name the split."""
        return {}


MACHINE_SETTINGS = ("memory", "workers")
"""Settings of images that do not change a run, so that it may resume with others."""


@dataclass(frozen=True)
class TextTaskConfig:
    """A text whose tokens are predicted from those before them. Checked on construction.

    Args:
        name: a shipped text, e.g. ``"gcide"``, or the absolute path of a text file or of a folder of ``.txt`` files.
        tokens: ``"bytes"`` or ``"bpe"``, see :func:`lresnet.data.text_task`.
        vocab_size: number of tokens of ``"bpe"``.
        context: number of tokens that the model sees at once.
        max_bytes: number of bytes at the beginning of the text to use; None: all.
        steps_per_epoch: training steps of an epoch; None: an epoch reads as many tokens as the training part has.
    """

    kind: ClassVar[str] = "text"
    data_kind: ClassVar[DataKind] = "texts"

    name: str
    tokens: Literal["bytes", "bpe"] = option(
        "bytes", "What the tokens of a text are: its bytes, or byte pairs merged by their frequency."
    )
    vocab_size: int | None = option(
        None, "Number of tokens of --tokens bpe. None: 1024.", range=_VOCABULARY, metavar="INT"
    )
    context: int = option(
        256, "Number of tokens that the model of a text sees at once.", range=AT_LEAST_1, metavar="INT"
    )
    max_bytes: int | None = option(
        None, "Use this many bytes at the beginning of a text only. None: all.", range=AT_LEAST_1, metavar="INT"
    )
    steps_per_epoch: int | None = option(
        None,
        "Training steps of an epoch on a text. None: an epoch reads as many tokens as the training part has.",
        range=AT_LEAST_1,
        metavar="INT",
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.tokens == "bytes" and self.vocab_size is not None:
            raise ValueError(
                f"--vocab-size {self.vocab_size} is for --tokens bpe, but bytes are 256 tokens; leave it out"
            )

    @property
    def is_own(self) -> bool:
        """Whether the text is the user's own."""
        return self.name not in TEXTS

    def words(self) -> list[str]:
        """Return the command-line options that mark a path as a text."""
        return ["--task", "text"]

    def split_facts(self) -> dict[str, Any]:
        """Return nothing: a text has one split."""
        return {}


TaskConfig = GraphTaskConfig | ImageTaskConfig | TextTaskConfig
