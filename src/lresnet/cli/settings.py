"""What decides a training, as options: for every task, for graphs and their transformer, for images.

None, and the default of a switch, mean unsaid: what the recipe fixes, else the default of the library.
"""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from tyro.conf import arg

__all__ = ["GraphSettings", "ImageSettings", "Settings", "TransformerSettings", "require_seeds", "said"]

_Int = Annotated[int | None, arg(metavar="INT")]
_Float = Annotated[float | None, arg(metavar="FLOAT")]
_LearnedOrFloat = Annotated[Literal["learned"] | float | None, arg(metavar="learned|FLOAT")]


@dataclass(frozen=True)
class Settings:
    """Of every task."""

    model: Annotated[
        Literal["lorentz_gcn", "lorentz_sgformer", "lorentz_resnet18", "lorentz_resnet20", "lorentz_resnet32"] | None,
        arg(metavar="NAME"),
    ] = None
    """Network: lorentz_gcn or lorentz_sgformer for graphs; lorentz_resnet18, 20 or 32 for images."""
    curvature: Annotated[float | None, arg(metavar="K")] = None
    """Curvature of the space, a negative number."""
    learn_curvature: bool = False
    """Train the curvature too."""
    weight: _LearnedOrFloat = None
    """Of the residual's branch, where the method has one."""
    scale: _LearnedOrFloat = None
    """Of the residual's result, where the method has one."""
    epochs: _Int = None
    """Epochs at most."""
    optimizer: Annotated[Literal["adam", "adam_l2", "sgd"] | None, arg(metavar="adam|adam_l2|sgd")] = None
    """Adam, Adam with weight decay as part of the gradient, or SGD with Nesterov momentum 0.9."""
    lr: _Float = None
    """Learning rate."""
    lr_schedule: Annotated[
        Literal["constant", "cosine", "multistep"] | None, arg(metavar="constant|cosine|multistep")
    ] = None
    """How the learning rate goes on; multistep: a fifth after 30, 60 and 80 % of the epochs."""
    warmup: Annotated[float | None, arg(metavar="EPOCHS")] = None
    """Epochs in which the learning rate rises."""
    weight_decay: _Float = None
    """That of adam is decoupled; never on curvature, residual weights and scales."""
    decay: Annotated[Literal["matrices", "all"] | None, arg(metavar="matrices|all")] = None
    """What decays: matrices and kernels alone, or norms and biases too."""
    clip: _Float = None
    """Largest norm of the gradient; for your own images 1 where nothing is said."""
    average: Annotated[float | None, arg(metavar="SHARE")] = None
    """Average the parameters over the steps; the share of the old value, e.g. 0.999."""
    keep: Annotated[Literal["best", "last"] | None, arg(metavar="best|last")] = None
    """Which parameters a run ends with: those of the best validation figure, or the last ones."""
    patience: _Int = None
    """Stop after so many epochs without a better validation figure."""
    eval_every: _Int = None
    """Epochs between two looks at the validation set."""


@dataclass(frozen=True)
class GraphSettings:
    """Of graphs."""

    num_layers: Annotated[int | None, arg(name="layers", metavar="INT")] = None
    """Graph convolutions."""
    hidden: _Int = None
    """Dimension of the space."""
    layer: Annotated[Literal["hybonet", "space", "hyperplane"] | None, arg(metavar="hybonet|space|hyperplane")] = None
    """Of lorentz_gcn: HyboNet's linear layer, a linear map of the space coordinates, or HNN++'s layer."""
    activation: Annotated[Literal["none", "relu"] | None, arg(metavar="none|relu")] = None
    """On what enters every layer but the first; of lorentz_gcn."""
    dropout: Annotated[float | None, arg(metavar="RATE")] = None
    """Rate on the space coordinates that enter a layer."""
    self_loops: bool = True
    """Every node is a neighbour of its own."""
    features: Annotated[
        Literal["published", "standardised", "raw"] | None, arg(metavar="published|standardised|raw")
    ] = None
    """How the features are prepared."""
    loss: Annotated[Literal["margin", "cross_entropy"] | None, arg(metavar="margin|cross_entropy")] = None
    """Loss function."""
    margin: _Float = None
    """Of the margin loss, in units of -1/K."""


@dataclass(frozen=True)
class TransformerSettings:
    """Of lorentz_sgformer."""

    branches: Annotated[Literal["euclidean", "lorentz"] | None, arg(metavar="euclidean|lorentz")] = None
    """Where attention and convolutions happen: in vectors, as in the paper, or on the hyperboloid."""
    attention_layers: _Int = None
    """Attention layers."""
    heads: _Int = None
    """Of an attention layer; averaged."""
    graph_weight: Annotated[float | None, arg(metavar="SHARE")] = None
    """Of the graph branch against the attention, above 0 and below 1."""
    learn_graph_weight: bool = False
    """Train that weight too."""
    attention_weight: Annotated[float | None, arg(metavar="SHARE")] = None
    """Of an attention layer against its skip, above 0 and below 1."""
    norm: Annotated[Literal["none", "layer"] | None, arg(metavar="none|layer")] = None
    """Of the vectors in Euclidean branches."""
    graph_input: Annotated[Literal["embedding", "features"] | None, arg(metavar="embedding|features")] = None
    """What convolutions in Euclidean branches start from: as in the paper, or as in the released code."""
    values: Annotated[Literal["matrix", "identity"] | None, arg(metavar="matrix|identity")] = None
    """Of the attention in Euclidean branches: as in SGFormer's paper, or as in the released scripts."""


@dataclass(frozen=True)
class ImageSettings:
    """Of images."""

    pooling: Annotated[Literal["poincare", "centroid", "mean"] | None, arg(metavar="poincare|centroid|mean")] = None
    """How the pixels of an image become one point."""
    head: Annotated[Literal["mlr", "prototypes", "linear"] | None, arg(metavar="mlr|prototypes|linear")] = None
    """What makes logits of that point."""
    batch_size: _Int = None
    """Images of a step."""
    size: Annotated[int | None, arg(metavar="PIXELS")] = None
    """For a folder whose images differ in size: make all squares of this side."""
    holdout: Annotated[float | None, arg(metavar="SHARE")] = None
    """Share of the training images that is kept apart for validation; 0: none."""
    pad: Annotated[int | None, arg(metavar="PIXELS")] = None
    """Black pixels around a training image, of which a random crop is taken."""
    flip: bool = True
    """Mirror half of the training images."""
    cutout: Annotated[int | None, arg(metavar="PIXELS")] = None
    """Side of a square of a training image that is painted over; 0: none."""
    label_smoothing: Annotated[float | None, arg(metavar="SHARE")] = None
    """Share of the target that is spread evenly over all classes."""
    flip_test: bool = False
    """Judge by the mean of the logits of an image and of its mirror image."""


def require_seeds(option: str, *seeds: int) -> None:
    """Refuse a seed that a generator would not take, and say which option gave it."""
    for seed in seeds:
        if seed < 0:
            raise ValueError(f"{option} must be 0 or more, got {seed}")


def said(settings: Settings | GraphSettings | TransformerSettings | ImageSettings) -> dict[str, Any]:
    """The settings that differ from their defaults, by name."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return {field.name: values[field.name] for field in fields(settings) if values[field.name] != field.default}
