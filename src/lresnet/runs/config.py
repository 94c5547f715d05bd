"""Configuration of a run: one tree of typed dataclasses for the task, the model and the training.

Every setting has one owner, with its type, default, help text and allowed range. The command line, presets in TOML and
Python build the same tree; every value is checked where its dataclass is made. The module imports without torch.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping
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
    POSITIVE,
    SEED,
    Range,
    check_options,
    option,
)
from lresnet.data.registry import TASKS, TEXTS
from lresnet.data.source import HIERARCHY_SPLITS
from lresnet.data.split_names import canonical_split, require_index
from lresnet.residual.registry import RESIDUALS, residual_options
from lresnet.runs.names import require_known
from lresnet.train.config import Augment, TrainConfig

__all__ = [
    "GRAPH_MODELS",
    "IMAGE_MODELS",
    "MODEL_CONFIGS",
    "TEXT_MODELS",
    "TRAIN_SETTINGS_OF_GRAPHS",
    "TRAIN_SETTINGS_OF_IMAGES",
    "EmbeddingConfig",
    "GCNConfig",
    "GCNIIConfig",
    "GPTConfig",
    "GraphTaskConfig",
    "GraphTaskKind",
    "ImageTaskConfig",
    "ModelConfig",
    "ResNetConfig",
    "RunConfig",
    "SAGEConfig",
    "SGFormerConfig",
    "TaskConfig",
    "TextTaskConfig",
    "ViTConfig",
    "configure",
    "given_fields",
    "option_name",
    "require_shareable",
    "task_as_dict",
    "task_from_dict",
    "train_as_dict",
    "train_from_dict",
]

_NEGATIVE = Range("negative and finite", lambda value: -math.inf < value < 0)
# log(theta + 1), the weight of the first matrix beside the identity, is at most 1.
_THETA = Range("above 0 and at most e - 1 = 1.718", lambda value: 0 < value <= math.e - 1)
_VOCABULARY = Range(f"257 to {VOCABULARY:,}", lambda value: type(value) is int and 256 < value <= VOCABULARY)
_PROTOTYPE_DISTANCE = (
    "Typical distance of the initial prototypes of lorentz_gcn and lorentz_sgformer from the origin; None: one radius "
    "of curvature, which is far away for a curvature near 0."
)
_LEARNED = "learned|FLOAT"
GraphTaskKind = Literal["link", "node", "graph-level", "hierarchy"]
"""What can be learned on a user's graph."""
TRAIN_SETTINGS_OF_GRAPHS: tuple[str, ...] = ("loss", "margin", "neighbours")
TRAIN_SETTINGS_OF_IMAGES: tuple[str, ...] = ()
"""Settings of :class:`~lresnet.train.config.TrainConfig` that only one kind of task has."""


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
        "mean_average_precision.",
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("name", "split", "node_features", "labels", "metric"):
            if not isinstance(getattr(self, name), str | None):
                raise ValueError(f"{name} must be a text, got {getattr(self, name)!r}")
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
        """Take the current name of the split of a shipped task, and check its number."""
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


_MACHINE_SETTINGS = ("memory", "workers")
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


TaskConfig = GraphTaskConfig | ImageTaskConfig | TextTaskConfig


@dataclass(frozen=True)
class ModelConfig:
    """The network and its residual connection. Checked on construction; None stands for the network's own default."""

    name: str
    residual: str = "lorentz"
    curvature: float | None = option(None, "Curvature K of the space, a negative number.", range=_NEGATIVE, metavar="K")
    learn_curvature: bool | None = option(None, "Train the curvature too.")
    weight: Literal["learned"] | float | None = option(
        None, "Weight of the residual's branch, for a method that has one.", metavar=_LEARNED
    )
    scale: Literal["learned", "1+w", "none"] | float | None = option(
        None,
        "Scale of the residual's result, for a method that has one: 1+w makes it a sum in flat space, none an average.",
        metavar="learned|1+w|none|FLOAT",
    )
    initial_scale: float | None = option(None, "Initial value of a learned scale.", range=POSITIVE, metavar="FLOAT")

    def __post_init__(self) -> None:
        require_known("method", self.residual, RESIDUALS)
        if isinstance(self.scale, str):
            object.__setattr__(self, "scale", self.scale.replace(" ", ""))
        check_options(self)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of :func:`lresnet.create_model` that this configuration sets.

        Options that the residual does not have are left out, so that one configuration serves every method.

        Example:
            >>> GCNConfig("lorentz_gcn", "tangent", hidden=8, weight=0.5, scale=2.0).arguments()
            {'residual': 'tangent', 'hidden': 8, 'residual_options': {'weight': 0.5}}
            >>> GCNConfig("lorentz_gcn", scale="none").arguments()
            {'residual': 'lorentz', 'residual_options': {'scale': None}}
        """
        given = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        del given["name"]
        options = {name: given.pop(name) for name in ("weight", "scale", "initial_scale") if name in given}
        if options.get("scale") == "none":
            options["scale"] = None
        known = self._options_of_residual()
        own = {name: value for name, value in options.items() if name in known}
        return given | {"residual_options": own or None}

    def _options_of_residual(self) -> set[str]:
        return residual_options(self.residual)


@dataclass(frozen=True)
class _GraphModelConfig(ModelConfig):
    num_layers: int | None = option(
        None, "Number of graph convolutions, or of the blocks of a transformer.", range=AT_LEAST_1, metavar="INT"
    )
    hidden: int | None = option(None, "Dimension of the space.", range=AT_LEAST_1, metavar="INT")
    dropout: float | None = option(
        None, "Dropout rate on the space coordinates that enter a layer.", range=FROM_0_BELOW_1, metavar="RATE"
    )
    self_loops: bool | None = option(None, "Make every node its own neighbour.")
    max_radius: float | None = option(
        None, "Largest distance from the origin that the input map produces.", range=POSITIVE, metavar="FLOAT"
    )


@dataclass(frozen=True)
class GCNConfig(_GraphModelConfig):
    """Settings of ``lorentz_gcn``."""

    layer: Literal["hybonet", "space", "hyperplane"] | None = option(
        None,
        "Layer of lorentz_gcn: HyboNet's linear layer, a linear map of the space coordinates, or HNN++'s layer.",
    )
    activation: Literal["none", "relu"] | None = option(
        None, "Activation of lorentz_gcn on the input of every layer but the first."
    )
    prototype_distance: float | None = option(None, _PROTOTYPE_DISTANCE, range=POSITIVE, metavar="FLOAT")


@dataclass(frozen=True)
class SAGEConfig(_GraphModelConfig):
    """Settings of ``lorentz_sage``."""

    layer: Literal["hybonet", "space", "hyperplane"] | None = option(
        None,
        "Layer of lorentz_gcn and lorentz_sage: HyboNet's linear layer, a linear map of the space coordinates, or "
        "HNN++'s layer.",
    )
    activation: Literal["none", "relu", "gelu"] | None = option(
        None, "Activation: in lorentz_gcn (none or relu) on the input of every layer but the first."
    )
    norm: Literal["none", "layer", "batch"] | None = option(
        None,
        "Normalisation: of the space coordinates in lorentz_sage and lorentz_gcnii, of the vectors in the Euclidean "
        "branches of lorentz_sgformer (none or layer).",
    )


@dataclass(frozen=True)
class _WeightedJoinConfig(_GraphModelConfig):
    """Settings of a network whose residuals have a pair of weights: with them, every method has a scale."""

    def _options_of_residual(self) -> set[str]:
        scaled = set() if self.residual == "none" else {"scale", "initial_scale"}
        return super()._options_of_residual() | scaled


@dataclass(frozen=True)
class GCNIIConfig(_WeightedJoinConfig):
    """Settings of ``lorentz_gcnii``."""

    connection: Literal["initial", "chain", "dense", "jumping"] | None = option(
        None,
        "Skip branch of a layer of lorentz_gcnii: the first embedding, the layer before, the mean of all layers "
        "before, or none with the mean of all layers as the result.",
    )
    alpha: float | None = option(
        None,
        "Weight of the skip branch in lorentz_gcnii, above 0 and below 1. None: 0.1, and 0.5 for a chain.",
        range=ABOVE_0_BELOW_1,
        metavar="FRACTION",
    )
    learn_alpha: bool | None = option(None, "Train alpha, one for each layer.")
    identity_map: bool | None = option(
        None, "Add the identity to the matrices of lorentz_gcnii, less and less of the matrix from layer to layer."
    )
    theta: float | None = option(
        None,
        "Strength of the matrices beside the identity, lambda in GCNII's paper. None: 0.5.",
        range=_THETA,
        metavar="FLOAT",
    )
    aggregation: Literal["symmetric", "mean"] | None = option(
        None, "Weights of the neighbours in lorentz_gcnii: symmetrically normalised, or equal."
    )
    skip: Literal["identity", "linear"] | None = option(
        None, "Whether a matrix of its own maps the skip branch of lorentz_gcnii."
    )
    norm: Literal["none", "layer", "batch"] | None = option(
        None, "Normalisation of the space coordinates before the ReLU of a layer."
    )
    head: Literal["linear", "prototypes", "mlr"] | None = option(
        None, "Classifier: a linear map of the space coordinates, prototypes, or hyperbolic logistic regression."
    )
    activation_checkpointing: bool | None = option(
        None, "Compute most activations again in the backward pass, which needs less memory and more time."
    )


@dataclass(frozen=True)
class SGFormerConfig(_WeightedJoinConfig):
    """Settings of ``lorentz_sgformer``."""

    branches: Literal["euclidean", "lorentz"] | None = option(
        None,
        "Where attention and convolutions are computed: on vectors, as in the paper, or on the hyperboloid.",
    )
    attention_layers: int | None = option(None, "Number of attention layers.", range=AT_LEAST_1, metavar="INT")
    heads: int | None = option(
        None,
        "Heads of an attention layer; in lorentz_sgformer their outputs are averaged.",
        range=AT_LEAST_1,
        metavar="INT",
    )
    graph_weight: float | None = option(
        None,
        "Weight of the graph branch against the attention branch, above 0 and below 1.",
        range=ABOVE_0_BELOW_1,
        metavar="FRACTION",
    )
    learn_graph_weight: bool | None = option(None, "Train the weight of the graph branch too.")
    attention_weight: float | None = option(
        None,
        "Weight of an attention layer against its skip connection, above 0 and below 1.",
        range=ABOVE_0_BELOW_1,
        metavar="FRACTION",
    )
    norm: Literal["none", "layer"] | None = option(None, "Normalisation of the vectors in Euclidean branches.")
    graph_input: Literal["embedding", "features"] | None = option(
        None,
        "Input of the convolutions in Euclidean branches: the embedding, as in the paper, or the features, as in the "
        "released code.",
    )
    values: Literal["matrix", "identity"] | None = option(
        None,
        "Values of the attention in Euclidean branches: a learned matrix, as in SGFormer's paper, or the identity, as "
        "in the released scripts.",
    )
    prototype_distance: float | None = option(None, _PROTOTYPE_DISTANCE, range=POSITIVE, metavar="FLOAT")


@dataclass(frozen=True)
class ResNetConfig(ModelConfig):
    """Settings of the ResNets."""

    pooling: Literal["poincare", "centroid", "mean"] | None = option(
        None, "How the pixels or patches of an image are pooled into one point."
    )
    head: Literal["mlr", "prototypes", "linear"] | None = option(
        None,
        "Classifier that computes logits from points: of an image, of a node in lorentz_gcnii.",
    )
    stem: Literal["imagenet", "cifar"] | None = option(
        None,
        "First layers: a 7 x 7 convolution with stride 2 and max pooling, or a 3 x 3 convolution. None: imagenet for "
        "images of 96 pixels or more, otherwise cifar.",
    )

    @property
    def usual_stem(self) -> str:
        """The stem of a network of this name if none is given: that of :func:`lresnet.create_model`."""
        return "imagenet" if self.name in ("lorentz_resnet34", "lorentz_resnet50") else "cifar"


@dataclass(frozen=True)
class EmbeddingConfig(ModelConfig):
    """Settings of ``lorentz_embedding``."""

    hidden: int | None = option(None, "Dimension of the space.", range=AT_LEAST_1, metavar="INT")
    dropout: float | None = option(None, "Dropout rate of the features.", range=FROM_0_BELOW_1, metavar="RATE")


@dataclass(frozen=True)
class _TransformerConfig(ModelConfig):
    """Settings that the transformers for texts and for images share."""

    num_layers: int | None = option(
        None, "Number of graph convolutions, or of the blocks of a transformer.", range=AT_LEAST_1, metavar="INT"
    )
    width: int | None = option(None, "Dimension of the space of a transformer.", range=AT_LEAST_1, metavar="INT")
    heads: int | None = option(
        None,
        "Heads of an attention layer; in lorentz_sgformer their outputs are averaged.",
        range=AT_LEAST_1,
        metavar="INT",
    )
    scores: Literal["lorentz", "l2", "dot"] | None = option(
        None,
        "Scores of a transformer's attention: Lorentzian inner products, negative squared distances, or dot products. "
        "None: dot for --method euclidean, otherwise lorentz.",
    )
    curvature_per_layer: bool | None = option(None, "Give every block of a transformer a curvature of its own.")
    dropout: float | None = option(
        None, "Dropout rate on the space coordinates that enter a layer.", range=FROM_0_BELOW_1, metavar="RATE"
    )
    activation_checkpointing: bool | None = option(
        None, "Compute most activations again in the backward pass, which needs less memory and more time."
    )

    def arguments(self) -> dict[str, Any]:
        given = super().arguments()
        if "num_layers" in given:
            given["layers"] = given.pop("num_layers")
        return given


@dataclass(frozen=True)
class GPTConfig(_TransformerConfig):
    """Settings of ``lorentz_gpt``. The size of its vocabulary and its context are those of the task."""


@dataclass(frozen=True)
class ViTConfig(_TransformerConfig):
    """Settings of ``lorentz_vit``, ``lorentz_vit_tiny`` and ``lorentz_vit_small``."""

    pooling: Literal["poincare", "centroid", "mean"] | None = option(
        None, "How the pixels or patches of an image are pooled into one point."
    )
    head: Literal["mlr", "prototypes", "linear"] | None = option(
        None,
        "Classifier that computes logits from points: of an image, of a node in lorentz_gcnii.",
    )

    patch: int | None = option(
        None, "Side of a patch of a vision transformer. None: 4.", range=AT_LEAST_1, metavar="PIXELS"
    )


GRAPH_MODELS: Mapping[str, type[ModelConfig]] = {
    "lorentz_gcn": GCNConfig,
    "lorentz_gcnii": GCNIIConfig,
    "lorentz_sage": SAGEConfig,
    "lorentz_sgformer": SGFormerConfig,
    "lorentz_embedding": EmbeddingConfig,
}
"""Networks for graphs by name, the default first."""
IMAGE_MODELS: Mapping[str, type[ModelConfig]] = {
    **{f"lorentz_resnet{depth}": ResNetConfig for depth in (18, 20, 32, 34, 50)},
    **{f"lorentz_vit{size}": ViTConfig for size in ("", "_tiny", "_small")},
}
"""Networks for images by name, the default first."""
TEXT_MODELS: Mapping[str, type[ModelConfig]] = {"lorentz_gpt": GPTConfig}
"""Networks for texts by name, the default first."""
MODEL_CONFIGS: Mapping[str, type[ModelConfig]] = {**GRAPH_MODELS, **IMAGE_MODELS, **TEXT_MODELS}


@dataclass(frozen=True)
class RunConfig:
    """A run: its task, its model and how it is trained.

    Example:
        >>> config = configure(GraphTaskConfig("airport/lp"), settings={"lr": 0.1, "hidden": 8, "features": "raw"})
        >>> config.train.lr, config.model.name, config.task.features
        (0.1, 'lorentz_gcn', 'raw')
        >>> RunConfig.from_dict(config.as_dict()) == config
        True
    """

    task: TaskConfig
    model: ModelConfig
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)

    def as_dict(self) -> dict[str, Any]:
        """Return the tree as JSON values; settings that are None are left out."""
        return {"task": task_as_dict(self.task), "model": given_fields(self.model), "train": train_as_dict(self.train)}

    @classmethod
    def from_dict(cls, tree: Mapping[str, Any]) -> RunConfig:
        """Read what :meth:`as_dict` returned.

        Raises:
            ValueError: a part is missing, or a setting is unknown or out of its range.
        """
        try:
            model = dict(tree["model"])
            model_class = MODEL_CONFIGS[model["name"]]
            return cls(task_from_dict(tree["task"]), model_class(**model), train_from_dict(tree["train"]))
        except KeyError as error:
            raise ValueError(f"the configuration has no {error}, or an unknown value of it") from error
        except TypeError as error:
            raise ValueError(f"the configuration does not fit: {error}") from error

    def settings(self) -> dict[str, Any]:
        """Return the settings by name, flat, as the command line takes them; those that are None are left out."""
        hidden = {"name", "residual", "split", "split_index", "seed", "augment", "task"}
        parts = [self.model, self.train, self.task]
        if isinstance(self.task, ImageTaskConfig):
            parts.append(self.train.augment)
        settings = {"model": self.model.name}
        for part in parts:
            settings |= {name: value for name, value in given_fields(part).items() if name not in hidden}
        return settings

    def command(self, processes: int = 1) -> str:
        """Return the command that repeats the run with every setting spelt out, whatever the presets may become."""
        program = ["lresnet"] if processes == 1 else ["torchrun", f"--nproc-per-node={processes}", "-m", "lresnet"]
        words = [*program, "train", self.task.name, "--method", self.model.residual, "--seed", str(self.train.seed)]
        if isinstance(self.task, GraphTaskConfig):
            words += self._split_words(self.task)
            words += [] if self.task.task is None else ["--task", self.task.task, "--search", "off"]
        elif isinstance(self.task, TextTaskConfig):
            words += ["--task", "text"]
        elif self.task.is_own:
            words += ["--recipe", "fast"]  # a recipe is not scaled to the images
        for name, value in self.settings().items():
            typed = option_name(name)
            if isinstance(value, tuple):
                words += [f"--{typed}", *map(str, value)]
            elif isinstance(value, bool):
                words.append(f"--{typed}" if value else f"--no-{typed}")
            else:
                words += [f"--{typed}", _number(value) if isinstance(value, float) else str(value)]
        return shlex.join(words)

    @staticmethod
    def _split_words(task: GraphTaskConfig) -> list[str]:
        index = [] if task.split_index is None else [str(task.split_index)]
        if index and task.split in (None, "official_splits"):
            return ["--split", *index]
        name = [] if task.split is None else ["--split", task.split]
        return name + (["--split-index", *index] if index else [])

    def facts(self) -> dict[str, Any]:
        """Return what makes two runs the same, by name; a path is followed through its links."""
        path = Path(self.task.name)
        name = str(path.resolve()) if path.is_absolute() else self.task.name
        facts: dict[str, Any] = {"task": name, "method": self.model.residual}
        if isinstance(self.model, ResNetConfig):
            facts["stem"] = self.model.usual_stem  # where the settings have none
        if isinstance(self.task, GraphTaskConfig):
            facts |= {"split": self.task.split, "split_index": self.task.split_index, "task kind": self.task.task}
        settings = {name: value for name, value in self.settings().items() if name not in _MACHINE_SETTINGS}
        return facts | {"seed": self.train.seed} | settings

    def same_run(self, other: RunConfig) -> str | None:
        """Return the first setting in which another configuration differs, as a sentence; None: they are equal."""
        own, others = self.facts(), other.facts()
        for name in dict.fromkeys([*own, *others]):
            if own.get(name) != others.get(name):
                return f"{name} is {others.get(name)} there, not {own.get(name)}"
        return None


def configure(
    task: TaskConfig,
    method: str = "lorentz",
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Build the configuration of a run from flat settings, as the command line and TOML files give them.

    Args:
        task: what is learned. Settings of the task in ``settings`` take precedence.
        method: the residual connection, a name of :data:`lresnet.residual.RESIDUALS`.
        seed: seed of parameters, negatives, shuffling and augmentation.
        settings: values by name; ``model`` names the network, ``lorentz_gcn``, ``lorentz_resnet18`` or ``lorentz_gpt``
            by default.

    Raises:
        ValueError: a setting is unknown, belongs to another model or kind of task, or is out of its range.
    """
    given = dict(settings or {})
    what, models, _ = _KINDS[type(task)]
    name = given.pop("model", next(iter(models)))
    require_known("model", name, MODEL_CONFIGS)
    if name not in models:
        raise ValueError(f"{name} is not a network for {what}, as {task.name} needs; choose {' or '.join(models)}")
    others = [setting for kind, (*_, own) in _KINDS.items() if not isinstance(task, kind) for setting in own]
    misplaced = [setting for setting in others if setting in given]
    taken = {part: _take(given, part) for part in (type(task), models[name], TrainConfig)}
    augment = _take(given, Augment) if isinstance(task, ImageTaskConfig) else {}
    if misplaced or given:
        raise ValueError(_misplaced([*misplaced, *given][0], task, name))
    return RunConfig(
        dataclasses.replace(task, **taken[type(task)]),
        models[name](name, method, **taken[models[name]]),
        TrainConfig(**{"seed": seed} | taken[TrainConfig], augment=Augment(**augment)),
    )


def require_shareable(task: TaskConfig, processes: int, batch_size: int | None) -> None:
    """Raise an error if several processes are to share a graph that is one batch.

    Raises:
        ValueError: there are several processes, the task is on a graph, and there is no batch size.
    """
    if processes > 1 and isinstance(task, GraphTaskConfig) and batch_size is None:
        raise ValueError(
            f"{task.name} cannot be shared among {processes} processes: the whole graph is one batch; give "
            "--batch-size, e.g. --batch-size 512, to train on sampled batches, or start it without torchrun"
        )


def task_as_dict(task: TaskConfig) -> dict[str, Any]:
    """Return the configuration of a task as JSON values, see :meth:`RunConfig.as_dict`."""
    fields = given_fields(task)
    return {"kind": task.kind} | {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()
    }


def task_from_dict(values: Mapping[str, Any]) -> TaskConfig:
    """Read what :func:`task_as_dict` returned."""
    fields = dict(values)
    return {each.kind: each for each in _KINDS}[fields.pop("kind")](**fields)


def train_as_dict(train: TrainConfig) -> dict[str, Any]:
    """Return how a run is trained as JSON values, see :meth:`RunConfig.as_dict`; default augmentation is omitted."""
    augment = {} if train.augment == Augment() else {"augment": given_fields(train.augment)}
    return given_fields(train) | augment


def train_from_dict(values: Mapping[str, Any]) -> TrainConfig:
    """Read what :func:`train_as_dict` returned."""
    augment = Augment(**values.get("augment", {}))
    return TrainConfig(**{**values, "augment": augment})


def option_name(setting: str) -> str:
    """Return the command-line option of a setting, without its dashes.

    Example:
        >>> option_name("num_layers"), option_name("weight_decay")
        ('layers', 'weight-decay')
    """
    return setting.removeprefix("num_").replace("_", "-")


def _take(settings: dict[str, Any], owner: Any) -> dict[str, Any]:
    """Move the settings of a dataclass out of ``settings``."""
    names = {field.name for field in dataclasses.fields(owner)} - {"name", "residual", "augment", "task"}
    return {name: settings.pop(name) for name in list(settings) if name in names}


_KINDS: Mapping[type[TaskConfig], tuple[str, Mapping[str, type[ModelConfig]], tuple[str, ...]]] = {
    GraphTaskConfig: ("graphs", GRAPH_MODELS, TRAIN_SETTINGS_OF_GRAPHS),
    ImageTaskConfig: ("images", IMAGE_MODELS, TRAIN_SETTINGS_OF_IMAGES),
    TextTaskConfig: ("texts", TEXT_MODELS, ()),
}
"""What messages call the data of a task, its networks, and the settings of the training that only it has."""


def _settings_of_kind(kind: type[TaskConfig]) -> set[str]:
    """Return the settings that a kind of task, its networks and its training have."""
    _, models, training = _KINDS[kind]
    owners: list[Any] = [kind, *models.values()] + [Augment] * (kind is ImageTaskConfig)
    return {field.name for owner in owners for field in dataclasses.fields(owner)}.union(training)


def _misplaced(setting: str, task: TaskConfig, model: str) -> str:
    """Say where a setting belongs that the task or its model does not have."""
    kind, models, _ = _KINDS[type(task)]
    for name in models:
        if setting in {field.name for field in dataclasses.fields(MODEL_CONFIGS[name])}:
            typed = option_name(setting)
            return f"--{typed} is not a setting of {model}, but of {name}; leave it out, or use --model {name}"
    for other in _KINDS:
        if not isinstance(task, other) and setting in _settings_of_kind(other):
            owner = _KINDS[other][0]
            return f"--{option_name(setting)} is for {owner}, but {task.name} is a task on {kind}; leave it out"
    return f"{setting!r} is not a setting of a run"


def given_fields(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that are not None and not dataclasses themselves."""
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return {name: value for name, value in values.items() if value is not None and not isinstance(value, Augment)}


def _number(value: float) -> str:
    """Write 5.0 as 5, so that a value looks the same however it was given."""
    return str(int(value)) if value.is_integer() else str(value)
