"""Image classification: the whole set on the device as bytes, each epoch's crops and flips made there at once."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from lresnet.data import ImageData, ImageSet
from lresnet.data.augmentation import Augmentation, normalise
from lresnet.data.augmentation import augment as augment_images
from lresnet.data.augmentation import cutmix as cut_and_mix
from lresnet.data.image_data import hold_out, mean_colour
from lresnet.metrics import accuracy
from lresnet.models import LorentzResNet
from lresnet.train.config import Augment
from lresnet.train.distributed import ALONE, Team
from lresnet.train.objective import Objective

__all__ = [
    "ImageClassification",
    "class_scores",
    "mirrored_scores",
    "rehearse",
]


# The images held out are the same for every method and seed: what differs between two runs is the run.
_HOLD_OUT_SEED = 0
# Pixels judged at once, a thousand images of CIFAR: larger images are fewer, or their activations fill the memory.
_EVALUATION_PIXELS = 1000 * 32 * 32


def class_scores(
    model: Callable[[Tensor], Tensor], images: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor
) -> Tensor:
    """Logits, float32 ``[N, classes]``, of images as bytes, uint8 ``[N, H, W, C]``; of part of a model, its output."""
    on_gpu = images.device.type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    with torch.autocast("cuda", dtype) if on_gpu else contextlib.nullcontext():
        return model(normalise(images, mean, std, dtype))


def mirrored_scores(
    model: Callable[[Tensor], Tensor], images: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor
) -> Tensor:
    """The mean of :func:`class_scores` over an image and its mirror image."""
    return (class_scores(model, images, mean, std) + class_scores(model, images.flip(2), mean, std)) / 2


class ImageClassification(Objective[LorentzResNet]):
    """Objective of image classification: cross entropy on augmented batches, accuracy on images as they are.

    An epoch is ``len(train) // batch_size`` batches of one new shuffling; the few images left over sit it out. On CUDA
    convolutions run in bfloat16 (autocast), elsewhere in float32; the geometry is float32 everywhere.

    The processes of a team shuffle and augment alike; each takes its share of every batch, which its batch norms see.

    Args:
        data: the images.
        holdout: share of the training images that is kept apart for validation, e.g. 0.1; 0: train on all, and there is
            no validation.
        batch_size: images of a step, in a team of all processes together; all of them if there are fewer.
        augment: augmentation in training, label smoothing, and whether evaluation averages over mirror images.
        seed: of shuffling and augmentation; the same in all processes of a team.
        team: who shares the batches.
    """

    compiles: ClassVar[bool] = True

    def __init__(
        self,
        data: ImageData,
        *,
        holdout: float = 0.0,
        batch_size: int = 128,
        augment: Augment = Augment(),
        seed: int = 0,
        device: torch.device | str = "cpu",
        team: Team = ALONE,
    ) -> None:
        if not 0 <= holdout < 1:
            raise ValueError(f"holdout must be a share, at least 0 and below 1, got {holdout}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        train, held_out = data.train, None
        if holdout:
            train, held_out = hold_out(data.train, _count(holdout, len(data.train)), _HOLD_OUT_SEED)
        self.data, self.train = data, train.to(device)
        self.held_out = None if held_out is None else held_out.to(device)
        self.augment = augment
        self._augmentation = Augmentation(pad=augment.pad, flip=augment.flip, cutout=augment.cutout)
        self.device = self.train.images.device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.batch_size, self.team = min(batch_size, len(self.train)), team
        self._share = team.share(self.batch_size, len(self.train))
        # What a recorded step reads: advance() copies each batch to these places.
        self._batch = torch.zeros_like(self.train.images[self._share])
        self._labels = torch.zeros_like(self.train.labels[self._share])
        self._others, self._kept = torch.zeros_like(self._labels), torch.ones_like(self._labels, dtype=torch.float32)
        self._fill = mean_colour(data.mean, self.device)
        self._mean, self._std = (torch.tensor(values, device=self.device) for values in (data.mean, data.std))
        self._epoch: tuple[Tensor, ...] = ()

    @property
    def steps_per_epoch(self) -> int:
        return len(self.train) // self.batch_size

    def start_epoch(self) -> None:
        order = torch.randperm(len(self.train), generator=self.generator, device=self.device)
        images = augment_images(self.train.images, order, self._augmentation, self.generator, self._fill)
        labels = self.train.labels[order]
        self._epoch = (images, labels)
        if self.augment.cutmix:
            mixed, kept = cut_and_mix(images, self.augment.cutmix, self.generator)
            self._epoch = (mixed, labels, labels.roll(-1), kept)

    def advance(self, step: int) -> None:
        start = step * self.batch_size
        rows = slice(start + self._share.start, start + self._share.stop)
        places = (self._batch, self._labels, self._others, self._kept)
        for place, values in zip(places, self._epoch, strict=False):  # of the last two only CutMix has values
            place.copy_(values[rows])

    def rehearse(self, model: LorentzResNet) -> None:
        was_training = model.training
        rehearse(model.train(), self.loss)
        rehearse(model.eval(), lambda call: self._judge(call, self._parts(self.train.images)[0]))
        model.train(was_training)

    def loss(self, model: Callable[[Tensor], Tensor]) -> Tensor:
        logits = self._logits(model, self._batch)
        smoothing = self.augment.label_smoothing
        if not self.augment.cutmix:
            return torch.nn.functional.cross_entropy(logits, self._labels, label_smoothing=smoothing)
        own, other = (
            torch.nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
            for labels in (self._labels, self._others)
        )
        return torch.lerp(other, own, self._kept).mean()

    def validation(self, model: LorentzResNet) -> Tensor | None:
        return None if self.held_out is None else self._accuracy(model, self.held_out)

    @torch.no_grad()
    def test(self, model: LorentzResNet) -> dict[str, float]:
        return {"accuracy": 100 * float(self._accuracy(model, self.data.test.to(self.device)))}

    def state_dict(self) -> dict[str, Tensor]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.generator.set_state(state["generator"])

    def _accuracy(self, model: LorentzResNet, images: ImageSet) -> Tensor:
        logits = [self._judge(model, part) for part in self._parts(images.images)]
        return accuracy(torch.cat(logits), images.labels)

    def _parts(self, images: Tensor) -> Sequence[Tensor]:
        return torch.split(images, max(1, _EVALUATION_PIXELS // images[0, ..., 0].numel()))

    def _judge(self, model: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        return self._logits(model, images, mirrored_scores if self.augment.flip_test else class_scores)

    def _logits(
        self, model: Callable[[Tensor], Tensor], images: Tensor, scores: Callable[..., Tensor] = class_scores
    ) -> Tensor:
        logits, classes = scores(model, images, self._mean, self._std), len(self.data.classes)
        if logits.shape[-1] != classes:
            raise ValueError(
                f"the model tells {logits.shape[-1]} classes apart, but {self.data.name} has {classes}; "
                f"build it with num_classes={classes}"
            )
        return logits


def _count(holdout: float, images: int) -> int:
    """How many images the share ``holdout`` is; there must be some on both sides."""
    count = round(holdout * images)
    if not 0 < count < images:
        raise ValueError(
            f"holdout {holdout} of {images:,} images is {count:,}; take a share that leaves images on both sides, "
            "or 0 to train on all"
        )
    return count


def rehearse(model: torch.nn.Module, play: Callable[[Callable[..., Tensor]], Tensor]) -> None:
    """Run ``play`` on shapes: no value is computed, no memory of a device is taken, ``model`` stays as it is.

    Backward too, where the model is in training. A head start and no more: what cannot do without values (a model of
    one's own that reads one, say) goes without.

    Args:
        play: given a callable that stands for the model, gives the loss, or just what the model gives.

    Example:
        >>> rehearse(torch.nn.Linear(3, 2), lambda call: call(torch.randn(4, 3)).sum())
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            tensors = itertools.chain(model.named_parameters(), model.named_buffers())
            shapes: dict[str, Tensor] = {name: mode.from_tensor(tensor) for name, tensor in tensors}
            found = play(lambda *inputs: torch.func.functional_call(model, shapes, inputs))
            if model.training:
                wanted = [tensor for tensor in shapes.values() if tensor.requires_grad]
                torch.autograd.grad(found, wanted, allow_unused=True)
    except Exception:
        logging.getLogger(__name__).debug("no rehearsal", exc_info=True)
