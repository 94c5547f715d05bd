"""Configuration of a network: one dataclass per family, checked on construction, and the networks of graphs, images
and texts by name. None stands for the network's own default.

The module imports without torch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lresnet._options import (
    ABOVE_0_BELOW_1,
    AT_LEAST_1,
    FROM_0_BELOW_1,
    POSITIVE,
    Range,
    check_options,
    option,
)
from lresnet.residual.registry import RESIDUALS, residual_options
from lresnet.runs.names import require_known

__all__ = [
    "GRAPH_MODELS",
    "IMAGE_MODELS",
    "MODEL_CONFIGS",
    "TEXT_MODELS",
    "EmbeddingConfig",
    "GCNConfig",
    "GCNIIConfig",
    "GPTConfig",
    "ModelConfig",
    "ResNetConfig",
    "SAGEConfig",
    "SGFormerConfig",
    "ViTConfig",
]

_NEGATIVE = Range("negative and finite", lambda value: -math.inf < value < 0)
# log(theta + 1), the weight of the first matrix beside the identity, is at most 1.
_THETA = Range("above 0 and at most e - 1 = 1.718", lambda value: 0 < value <= math.e - 1)
_PROTOTYPE_DISTANCE = (
    "Typical distance of the initial prototypes of lorentz_gcn and lorentz_sgformer from the origin; None: one radius "
    "of curvature, which is far away for a curvature near 0."
)
_LEARNED = "learned|FLOAT"


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
