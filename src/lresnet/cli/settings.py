"""What decides a training, as options: for every task, for graphs and their transformer, for images.

None means unsaid, and so does a switch of which neither form is given: what the recipe fixes, else the default of the
library. A switch is therefore two options, --flip and --no-flip, and not one that is true or false.
"""

import functools
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, arg

__all__ = ["GraphSettings", "ImageSettings", "Settings", "TransformerSettings", "require_seeds", "said"]

_arg = functools.partial(arg, help_behavior_hint="")  # "default: None" would hide that the recipe decides
_Switch = Annotated[FlagCreatePairsOff[bool], _arg()]
_Int = Annotated[int | None, _arg(metavar="INT")]
_Float = Annotated[float | None, _arg(metavar="FLOAT")]
_LearnedOrFloat = Annotated[Literal["learned"] | float | None, _arg(metavar="learned|FLOAT")]


@dataclass(frozen=True)
class Settings:
    """Of every task."""

    model: Annotated[
        Literal["lorentz_gcn", "lorentz_sgformer", "lorentz_resnet18", "lorentz_resnet20", "lorentz_resnet32"] | None,
        _arg(metavar="NAME"),
    ] = None
    """Network: lorentz_gcn or lorentz_sgformer for graphs; lorentz_resnet18, 20 or 32 for images."""
    curvature: Annotated[float | None, _arg(metavar="K")] = None
    """Curvature of the space, a negative number."""
    learn_curvature: _Switch = False
    """Train the curvature too."""
    no_learn_curvature: _Switch = False
    """Keep it as it is."""
    weight: _LearnedOrFloat = None
    """Of the residual's branch, where the method has one."""
    scale: _LearnedOrFloat = None
    """Of the residual's result, where the method has one."""
    epochs: _Int = None
    """Epochs at most."""
    optimizer: Annotated[Literal["adam", "adam_l2", "sgd"] | None, _arg(metavar="adam|adam_l2|sgd")] = None
    """Adam, Adam with weight decay as part of the gradient, or SGD with Nesterov momentum 0.9."""
    lr: _Float = None
    """Learning rate."""
    lr_schedule: Annotated[
        Literal["constant", "cosine", "multistep"] | None, _arg(metavar="constant|cosine|multistep")
    ] = None
    """How the learning rate goes on; multistep: a fifth after 30, 60 and 80 % of the epochs."""
    warmup: Annotated[float | None, _arg(metavar="EPOCHS")] = None
    """Epochs in which the learning rate rises."""
    weight_decay: _Float = None
    """That of adam is decoupled; never on curvature, residual weights and scales."""
    decay: Annotated[Literal["matrices", "all"] | None, _arg(metavar="matrices|all")] = None
    """What decays: matrices and kernels alone, or norms and biases too."""
    clip: _Float = None
    """Largest norm of the gradient; for your own images 1 where nothing is said."""
    average: Annotated[float | None, _arg(metavar="SHARE")] = None
    """Average the parameters over the steps; the share of the old value, e.g. 0.999."""
    keep: Annotated[Literal["best", "last"] | None, _arg(metavar="best|last")] = None
    """Which parameters a run ends with: those of the best validation figure, or the last ones."""
    patience: _Int = None
    """Stop after so many epochs without a better validation figure."""
    eval_every: _Int = None
    """Epochs between two looks at the validation set."""


@dataclass(frozen=True)
class GraphSettings:
    """Of graphs."""

    num_layers: Annotated[int | None, _arg(name="layers", metavar="INT")] = None
    """Graph convolutions."""
    hidden: _Int = None
    """Dimension of the space."""
    layer: Annotated[Literal["hybonet", "space", "hyperplane"] | None, _arg(metavar="hybonet|space|hyperplane")] = None
    """Of lorentz_gcn: HyboNet's linear layer, a linear map of the space coordinates, or HNN++'s layer."""
    activation: Annotated[Literal["none", "relu"] | None, _arg(metavar="none|relu")] = None
    """On what enters every layer but the first; of lorentz_gcn."""
    dropout: Annotated[float | None, _arg(metavar="RATE")] = None
    """Rate on the space coordinates that enter a layer."""
    self_loops: _Switch = False
    """Every node is a neighbour of its own."""
    no_self_loops: _Switch = False
    """No node is, unless the graph says so."""
    features: Annotated[
        Literal["published", "standardised", "raw"] | None, _arg(metavar="published|standardised|raw")
    ] = None
    """How the features are prepared."""
    loss: Annotated[Literal["margin", "cross_entropy"] | None, _arg(metavar="margin|cross_entropy")] = None
    """Loss function."""
    margin: _Float = None
    """Of the margin loss, in units of -1/K."""


@dataclass(frozen=True)
class TransformerSettings:
    """Of lorentz_sgformer."""

    branches: Annotated[Literal["euclidean", "lorentz"] | None, _arg(metavar="euclidean|lorentz")] = None
    """Where attention and convolutions happen: in vectors, as in the paper, or on the hyperboloid."""
    attention_layers: _Int = None
    """Attention layers."""
    heads: _Int = None
    """Of an attention layer; averaged."""
    graph_weight: Annotated[float | None, _arg(metavar="SHARE")] = None
    """Of the graph branch against the attention, above 0 and below 1."""
    learn_graph_weight: _Switch = False
    """Train that weight too."""
    no_learn_graph_weight: _Switch = False
    """Keep it as it is."""
    attention_weight: Annotated[float | None, _arg(metavar="SHARE")] = None
    """Of an attention layer against its skip, above 0 and below 1."""
    norm: Annotated[Literal["none", "layer"] | None, _arg(metavar="none|layer")] = None
    """Of the vectors in Euclidean branches."""
    graph_input: Annotated[Literal["embedding", "features"] | None, _arg(metavar="embedding|features")] = None
    """What convolutions in Euclidean branches start from: as in the paper, or as in the released code."""
    values: Annotated[Literal["matrix", "identity"] | None, _arg(metavar="matrix|identity")] = None
    """Of the attention in Euclidean branches: as in SGFormer's paper, or as in the released scripts."""


@dataclass(frozen=True)
class ImageSettings:
    """Of images."""

    pooling: Annotated[Literal["poincare", "centroid", "mean"] | None, _arg(metavar="poincare|centroid|mean")] = None
    """How the pixels of an image become one point."""
    head: Annotated[Literal["mlr", "prototypes", "linear"] | None, _arg(metavar="mlr|prototypes|linear")] = None
    """What makes logits of that point."""
    batch_size: _Int = None
    """Images of a step."""
    size: Annotated[int | None, _arg(metavar="PIXELS")] = None
    """For a folder whose images differ in size: make all squares of this side."""
    holdout: Annotated[float | None, _arg(metavar="SHARE")] = None
    """Share of the training images that is kept apart for validation; 0: none."""
    pad: Annotated[int | None, _arg(metavar="PIXELS")] = None
    """Black pixels around a training image, of which a random crop is taken."""
    flip: _Switch = False
    """Mirror half of the training images."""
    no_flip: _Switch = False
    """Mirror none."""
    cutout: Annotated[int | None, _arg(metavar="PIXELS")] = None
    """Side of a square of a training image that is painted over; 0: none."""
    cutmix: Annotated[float | None, _arg(metavar="SHARE")] = None
    """Share of the training images that get a rectangle of another, and as much of its label (CutMix); 0: none."""
    label_smoothing: Annotated[float | None, _arg(metavar="SHARE")] = None
    """Share of the target that is spread evenly over all classes."""
    flip_test: _Switch = False
    """Judge by the mean of the logits of an image and of its mirror image."""
    no_flip_test: _Switch = False
    """Judge by the image alone."""


def require_seeds(option: str, *seeds: int) -> None:
    """Refuse a seed that a generator would not take, and say which option gave it."""
    for seed in seeds:
        if seed < 0:
            raise ValueError(f"{option} must be 0 or more, got {seed}")
        if seed >= 2**32:  # NumPy's limit; torch's is further up
            raise ValueError(f"{option} must be below 2^32, got {seed}")


def said(settings: Settings | GraphSettings | TransformerSettings | ImageSettings) -> dict[str, Any]:
    """The settings that were given, by name; of a switch whichever form was.

    Raises:
        ValueError: both forms of a switch were given.
    """
    given = {field.name: getattr(settings, field.name) for field in fields(settings)}
    given = {name: value for name, value in given.items() if value is not None and value is not False}  # but 0 is said
    for name in [name for name in given if name.startswith("no_")]:
        option = name.removeprefix("no_")
        if option in given:
            typed = option.replace("_", "-")
            raise ValueError(f"--{typed} and --no-{typed} cannot both be; leave one out")
        del given[name]
        given[option] = False
    return given
