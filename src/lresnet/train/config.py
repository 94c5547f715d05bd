"""Configuration of a training run: optimiser, learning rate, stopping, loss and image augmentation."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from lresnet._options import (
    ABOVE_0_BELOW_1,
    AT_LEAST_1,
    FROM_0_BELOW_1,
    FROM_0_TO_1,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    Range,
    check_options,
    option,
)

__all__ = ["Augment", "Criterion", "Loss", "LrSchedule", "NormStatistics", "TrainConfig"]

LrSchedule = Literal["constant", "cosine", "multistep"]
Loss = Literal["margin", "cross_entropy", "ranking", "cones"]
NormStatistics = Literal["reestimated", "running"]
Criterion = Literal["score", "loss"]

# "multistep" multiplies the rate by 0.2 after these fractions of the epochs: at 60, 120 and 160 of the paper's 200.
_DROPS, _DROP = (0.3, 0.6, 0.8), 0.2
# Positions of pixels are computed in int32: this is more than any image is wide, and far from the limits of int32.
_PIXELS = Range("a whole number of pixels, 0 or more and below 2^20", lambda n: type(n) is int and 0 <= n < 2**20)
_NEIGHBOURS = "10"
# What a checkpoint records of the configuration, and what a resumed run must share with it.
_IN_CHECKPOINT = (
    "epochs",
    "lr",
    "weight_decay",
    "lr_schedule",
    "clip",
    "patience",
    "eval_every",
    "optimizer",
    "decay",
    "layer_decay",
    "warmup",
    "keep",
    "average",
)


@dataclass(frozen=True)
class Augment:
    """How images are augmented in training and evaluated. Checked on construction.

    Example:
        >>> Augment(cutout=8, label_smoothing=0.1).pad
        4
    """

    pad: int = option(
        4,
        "Black pixels added on each side of a training image before a random crop restores its size.",
        range=_PIXELS,
        metavar="PIXELS",
    )
    flip: bool = option(True, "Mirror each training image with probability 1/2.")
    cutout: int = option(
        0,
        "Side of a square that is painted over in each training image; 0 paints none.",
        range=_PIXELS,
        metavar="PIXELS",
    )
    cutmix: float = option(
        0.0,
        "Fraction of the training images that receive a rectangle of another image and that much of its label "
        "(CutMix); 0 mixes none.",
        range=FROM_0_TO_1,
        metavar="FRACTION",
    )
    label_smoothing: float = option(
        0.0,
        "Fraction of the target that is spread evenly over all classes.",
        range=FROM_0_BELOW_1,
        metavar="FRACTION",
    )
    flip_test: bool = option(False, "Evaluate on the mean of the logits of an image and of its mirror image.")

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("flip", "flip_test"):
            if type(getattr(self, name)) is not bool:
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class TrainConfig:
    """How to train: optimiser, learning rate, stopping, loss. Checked on construction.

    Example:
        >>> config = TrainConfig(epochs=200, lr=0.1, lr_schedule="multistep")
        >>> [round(config.lr * config.factor(epoch), 5) for epoch in (0, 60, 120, 160)]
        [0.1, 0.02, 0.004, 0.0008]
        >>> TrainConfig(lr=-1)
        Traceback (most recent call last):
        lresnet._options.InvalidSetting: lr must be positive and finite, got -1
    """

    epochs: int = option(1000, "Largest number of epochs.", range=AT_LEAST_1, metavar="INT")
    lr: float = option(0.01, "Learning rate.", range=POSITIVE, metavar="FLOAT")
    weight_decay: float = option(
        0.0,
        "Weight decay, decoupled for adam and part of the gradient for adam_l2 and sgd; it never applies to curvature, "
        "residual weights and scales.",
        range=NOT_NEGATIVE,
        metavar="FLOAT",
    )
    lr_schedule: LrSchedule = option(
        "constant",
        "How the learning rate changes; multistep multiplies it by 0.2 after 30, 60 and 80 % of the epochs.",
    )
    clip: float | None = option(
        None, "Largest global norm of the gradient; None does not clip.", range=POSITIVE, metavar="FLOAT"
    )
    patience: int | None = option(
        None,
        "Stop at the first validation pass this many epochs or more after the best one; None never stops early.",
        range=AT_LEAST_1,
        metavar="EPOCHS",
    )
    eval_every: int = option(5, "Epochs between two validation passes.", range=AT_LEAST_1, metavar="EPOCHS")
    optimizer: Literal["adam", "adam_l2", "sgd"] = option(
        "adam",
        "Adam, Adam with weight decay as part of the gradient, or SGD with Nesterov momentum 0.9.",
    )
    decay: Literal["matrices", "all"] = option(
        "matrices",
        "What weight decay applies to: matrices and convolution kernels only, or norms and biases too.",
    )
    layer_decay: float | None = option(
        None,
        "Weight decay of the layers of a network, without its first and its last map; None takes weight_decay.",
        range=NOT_NEGATIVE,
        metavar="FLOAT",
    )
    warmup: float = option(
        0.0, "Epochs in which the learning rate rises linearly to lr.", range=NOT_NEGATIVE, metavar="EPOCHS"
    )
    keep: Literal["best", "last"] = option(
        "best",
        "Which parameters a run ends with: those of the best validation pass, or the last ones.",
    )
    criterion: Criterion = option(
        "score",
        "What makes a validation pass the best one: the highest score, or the lowest loss on the validation data; loss "
        "is for the classification of nodes and graphs.",
    )
    average: float | None = option(
        None,
        "Average the parameters over the steps with this weight of the old value, e.g. 0.999; None does not average.",
        range=ABOVE_0_BELOW_1,
        metavar="FRACTION",
    )
    norm_statistics: NormStatistics | None = option(
        None,
        "Statistics of batch norms in evaluation: reestimated from training inputs without dropout and augmentation, "
        "or the running averages of training; None takes the default of the model, running unless it says otherwise.",
    )
    seed: int = option(
        0, "Seed of parameters, training negatives, shuffling and augmentation.", range=SEED, metavar="INT"
    )
    loss: Loss | None = option(
        None,
        "Loss on a graph; None takes margin for link prediction, cross_entropy for node classification and ranking "
        "for a hierarchy, where cones (entailment cones) is the other one.",
    )
    margin: float | None = option(
        None,
        "Margin of the margin loss, in units of -1/K; None takes 2 for link prediction and 1 for node classification.",
        range=POSITIVE,
        metavar="FLOAT",
    )
    batch_size: int | None = option(
        None,
        "Images, seed nodes, training edges or nodes of a hierarchy per step, over all processes together; None takes "
        "128 images, 256 nodes of a hierarchy, or the whole graph as one batch.",
        range=AT_LEAST_1,
        metavar="INT",
    )
    neighbours: str | None = option(
        None,
        "Neighbours drawn per node in a batch of a graph: one number, or one per layer, the last layer first, e.g. "
        "10,10; all takes all; None takes 10. Needs batch_size.",
        metavar="INT,INT",
    )
    augment: Augment = dataclasses.field(default=Augment(), metadata={"help": "Augmentation of images."})

    def __post_init__(self) -> None:
        check_options(self)
        object.__setattr__(self, "neighbours", _checked_neighbours(self.neighbours))
        if self.patience is not None and self.keep == "last":
            raise ValueError(
                f"patience={self.patience} stops by the best validation pass, but keep='last' ignores it; "
                "use keep='best' or patience=None"
            )
        if self.criterion == "loss" and self.keep == "last":
            raise ValueError("criterion='loss' selects the best validation pass, but keep='last' ignores it")
        if self.warmup >= self.epochs:
            raise ValueError(f"warmup must be shorter than the {self.epochs} epochs, got {self.warmup}")

    def factor(self, epoch: float, steps: int = 1) -> float:
        """Return the factor on the learning rate at ``epoch``, a fraction inside an epoch of several ``steps``."""
        if epoch + 1 / steps <= self.warmup:
            return (epoch + 1 / steps) / self.warmup
        if self.lr_schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * max(0.0, epoch - self.warmup) / (self.epochs - self.warmup)))
        if self.lr_schedule == "multistep":
            # Rounded, because 0.3 * 10 is not exactly 3 and a drop must not come one epoch late.
            return _DROP ** sum(epoch >= round(fraction * self.epochs, 6) for fraction in _DROPS)
        return 1.0

    @property
    def fanouts(self) -> tuple[int, ...]:
        """The numbers of :attr:`neighbours`: one for all layers, or one per layer; -1 stands for all neighbours.

        Example:
            >>> TrainConfig(neighbours="15,all").fanouts, TrainConfig(neighbours=[15, -1]).neighbours
            ((15, -1), '15,all')
        """
        words = (self.neighbours or _NEIGHBOURS).split(",")
        return tuple(-1 if word == "all" else int(word) for word in words)

    def schedule(self) -> dict[str, Any]:
        """Return the fields that a checkpoint records, by name; a resumed run must have the same ones."""
        fields = {name: getattr(self, name) for name in _IN_CHECKPOINT}
        if self.layer_decay is None:  # checkpoints of lresnet 0.2 do not have it
            del fields["layer_decay"]
        return fields


def _checked_neighbours(value: Any) -> str | None:
    """Return ``neighbours`` in its written form, e.g. "10,all"; Python may also give whole numbers, with -1 for all."""
    if value is None:
        return None
    if isinstance(value, str | int):
        value = str(value).split(",")
    words = [str(word).strip() for word in value]
    words = ["all" if word == "-1" else word for word in words]
    if not words or not all(word == "all" or (word.isdecimal() and int(word) > 0) for word in words):
        given = ",".join(words)
        raise ValueError(f"neighbours must be whole numbers of at least 1, or all, such as 10,10, got {given!r}")
    return ",".join(words)
