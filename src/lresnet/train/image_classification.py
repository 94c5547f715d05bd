"""Image classification: data on the device as bytes, augmented there one epoch at a time; cross entropy, accuracy."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from lresnet.data import ImageSet, ImageTask
from lresnet.data.augmentation import Augmentation, Draws, apply_draws, draw, draw_boxes, normalise, paste
from lresnet.data.augmentation import augment as augment_images
from lresnet.data.augmentation import cutmix as cut_and_mix
from lresnet.data.image_data import mean_colour
from lresnet.data.image_files import ImageFiles, ImageStream
from lresnet.metrics import accuracy, superclass_accuracy
from lresnet.models.image_model import ImageModel
from lresnet.train.config import Augment, TrainConfig
from lresnet.train.distributed import ONE_PROCESS, Processes
from lresnet.train.objective import Objective, given_options, require_no_graph_settings

__all__ = ["ImageClassification", "class_scores", "mirrored_scores", "precompile"]

# Pixels evaluated at once, as many as in a thousand CIFAR images; more activations would fill the memory.
_EVALUATION_PIXELS = 1000 * 32 * 32
# Training images whose mean statistics are those of batch norms in evaluation, with norm_statistics="reestimated".
_STATISTICS_IMAGES = 10_000


def class_scores(
    model: Callable[[Tensor], Tensor], images: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor
) -> Tensor:
    """Return the output of ``model`` (logits, or the features of a part of it) for images as bytes.

    On CUDA convolutions run in bfloat16 (autocast).

    Shapes:
        images: uint8 ``[N, H, W, C]``.
        returns: float32 ``[N, classes]``.
    """
    on_gpu = images.device.type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    with torch.autocast("cuda", dtype) if on_gpu else contextlib.nullcontext():
        return model(normalise(images, mean, std, dtype))


def mirrored_scores(
    model: Callable[[Tensor], Tensor], images: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor
) -> Tensor:
    """Return the mean of :func:`class_scores` over each image and its mirror image."""
    return (class_scores(model, images, mean, std) + class_scores(model, images.flip(2), mean, std)) / 2


class ImageClassification(Objective[ImageModel]):
    """Objective of image classification: cross entropy on augmented batches, accuracy on the original images.

    An epoch is ``len(train) // batch_size`` batches of a new permutation; the few remaining images are left out of that
    epoch. On CUDA convolutions run in bfloat16 (autocast), elsewhere in float32; the geometry is always float32.

    Several processes shuffle and augment in the same way. Each takes its share of every batch, and its batch norms see
    that share only.

    Images that stay in their files (:class:`~lresnet.data.image_files.ImageFiles`) are decoded by worker processes and
    augmented batch by batch, with the same random numbers: batches are those of images in memory, bit for bit.

    Args:
        task: the images and how many of them are held out for validation.
        batch_size: images per step, over all processes together; at most the number of training images.
        augment: augmentation in training, label smoothing, and whether evaluation averages over mirror images.
        seed: seed of shuffling and augmentation; the same in all processes.
        device: where the images are kept.
        processes: the processes that share each batch.

    Raises:
        ValueError: ``batch_size`` is below 1, or the processes cannot share a batch evenly.
    """

    compiles: ClassVar[bool] = True

    def __init__(
        self,
        task: ImageTask,
        *,
        batch_size: int = 128,
        augment: Augment = Augment(),
        seed: int = 0,
        device: torch.device | str = "cpu",
        processes: Processes = ONE_PROCESS,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        train, held_out = task.split()
        self.task, self.data, self.train = task, task.data, train.to(device)
        self.held_out = None if held_out is None else held_out.to(device)
        self.augment = augment
        self._augmentation = Augmentation(pad=augment.pad, flip=augment.flip, cutout=augment.cutout)
        self.device = self.train.labels.device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.batch_size, self.processes = min(batch_size, len(self.train)), processes
        self._share = processes.share(self.batch_size, len(self.train))
        # A captured step reads these tensors: advance() copies each batch into them.
        self._labels = torch.zeros_like(self.train.labels[self._share])
        self._batch = torch.zeros(len(self._labels), *self.train.shape, dtype=torch.uint8, device=self.device)
        self._others, self._kept = torch.zeros_like(self._labels), torch.ones_like(self._labels, dtype=torch.float32)
        self._fill = mean_colour(self.data.mean, self.device)
        self._mean, self._std = (torch.tensor(values, device=self.device) for values in (self.data.mean, self.data.std))
        self._epoch: tuple[Tensor, ...] = ()
        self._stream = None if isinstance(self.train, ImageSet) else _TrainingStream(self, self.train)

    @classmethod
    def from_config(
        cls, task: ImageTask, config: TrainConfig, device: torch.device | str, processes: Processes
    ) -> ImageClassification:
        require_no_graph_settings(task, config)
        batch = given_options(config, "batch_size")
        return cls(task, augment=config.augment, seed=config.seed, device=device, processes=processes, **batch)

    @property
    def steps_per_epoch(self) -> int:
        return len(self.train) // self.batch_size

    def start_epoch(self) -> None:
        order = torch.randperm(len(self.train), generator=self.generator, device=self.device)
        if self._stream is not None:
            self._stream.start_epoch(order)
            return
        assert isinstance(self.train, ImageSet)
        images = augment_images(self.train.images, order, self._augmentation, self.generator, self._fill)
        labels = self.train.labels[order]
        self._epoch = (images, labels)
        if self.augment.cutmix:
            mixed, kept = cut_and_mix(images, self.augment.cutmix, self.generator)
            self._epoch = (mixed, labels, labels.roll(-1), kept)

    def advance(self, step: int) -> None:
        if self._stream is not None:
            for target, values in zip(self._targets, self._stream.batch(step), strict=False):
                target.copy_(values)
            return
        start = step * self.batch_size
        rows = slice(start + self._share.start, start + self._share.stop)
        for target, values in zip(self._targets, self._epoch, strict=False):
            target.copy_(values[rows])

    @property
    def _targets(self) -> tuple[Tensor, ...]:
        return self._batch, self._labels, self._others, self._kept  # only CutMix has values for the last two

    def precompile(self, model: ImageModel) -> None:
        was_training = model.training
        precompile(model.train(), self.loss)
        together = min(self._together, len(self.train))
        images = self._batch.new_zeros(together, *self.train.shape)
        precompile(model.eval(), lambda call: self._evaluate(call, images))
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

    def forward_training_data(self, model: ImageModel) -> None:
        """Run the model on up to 10,000 training images without augmentation, in batches of training's size."""
        order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(0))
        steps = min(self.steps_per_epoch, max(1, _STATISTICS_IMAGES // self.batch_size))
        rows = [batch[self._share] for batch in order.split(self.batch_size)[:steps]]
        for batch in _batches(self.train, rows):
            self._logits(model, batch.to(self.device))

    def validation(self, model: ImageModel) -> Tensor | None:
        return None if self.held_out is None else self._accuracy(model, self.held_out)

    @torch.no_grad()
    def test(self, model: ImageModel) -> dict[str, float]:
        images = self.data.test.to(self.device)
        logits = self._all_logits(model, images)
        metrics = {"accuracy": 100 * float(accuracy(logits, images.labels))}
        if (tree := self.data.tree) is not None:
            metrics["superclass_accuracy"] = 100 * float(
                superclass_accuracy(logits, images.labels, tree.to(self.device))
            )
        return metrics

    def state_dict(self) -> dict[str, Tensor]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.generator.set_state(state["generator"])

    def _accuracy(self, model: ImageModel, images: ImageSet | ImageFiles) -> Tensor:
        return accuracy(self._all_logits(model, images), images.labels)

    def _all_logits(self, model: ImageModel, images: ImageSet | ImageFiles) -> Tensor:
        return torch.cat([self._evaluate(model, part.to(self.device)) for part in self._parts(images)])

    def _parts(self, images: ImageSet | ImageFiles) -> Iterator[Tensor]:
        return _batches(images, torch.arange(len(images)).split(self._together))

    @property
    def _together(self) -> int:
        """Number of images that are evaluated at once."""
        height, width, _ = self.train.shape
        return max(1, _EVALUATION_PIXELS // (height * width))

    def _evaluate(self, model: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        return self._logits(model, images, mirrored_scores if self.augment.flip_test else class_scores)

    def _logits(
        self, model: Callable[[Tensor], Tensor], images: Tensor, scores: Callable[..., Tensor] = class_scores
    ) -> Tensor:
        logits, classes = scores(model, images, self._mean, self._std), len(self.data.classes)
        if logits.shape[-1] != classes:
            raise ValueError(
                f"the model has {logits.shape[-1]} classes, but {self.data.name} has {classes}; "
                f"build it with num_classes={classes}"
            )
        return logits


def _batches(images: ImageSet | ImageFiles, rows: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the images with the given numbers, one batch for each tensor of numbers."""
    return map(images.read, rows) if isinstance(images, ImageSet) else ImageStream(images).batches(rows)


class _TrainingStream:
    """The batches of an objective whose images stay in their files.

    The random numbers of an epoch are drawn at once, in the order in which those of images in memory are drawn.
    """

    def __init__(self, objective: ImageClassification, files: ImageFiles) -> None:
        self.objective, self.files, self.stream = objective, files, ImageStream(files)
        self._batches: Iterator[Tensor] = iter(())
        self._order = self._labels = torch.empty(0, dtype=torch.int64)
        self._draws: Draws | None = None
        self._boxes: tuple[Tensor, ...] | None = None

    def start_epoch(self, order: Tensor) -> None:
        objective, (height, width, _) = self.objective, self.files.shape
        self._order, self._labels = order, self.files.labels[order]
        augmentation, generator = objective._augmentation, objective.generator
        self._draws = draw(len(order), height, width, augmentation, generator)
        share = objective.augment.cutmix
        self._boxes = draw_boxes(len(order), height, width, share, generator) if share else None
        numbers = order.cpu()
        steps = range(objective.steps_per_epoch)
        self._batches = self.stream.batches([numbers[self._rows(step).cpu()] for step in steps])

    def batch(self, step: int) -> tuple[Tensor, ...]:
        """Return images and labels of a step; with CutMix also the other labels and the shares of the own ones."""
        objective, rows = self.objective, self._rows(step)
        assert self._draws is not None
        pixels = next(self._batches).to(self._order.device)
        draws = Draws(*(values[rows] for values in self._draws))
        own = torch.arange(len(rows), device=pixels.device)
        images = apply_draws(pixels, own, objective._augmentation, draws, objective._fill)
        labels = self._labels[rows]
        if self._boxes is None:
            return images, labels
        height, width, _ = self.files.shape
        top, bottom, left, right = (values[rows] for values in self._boxes)
        kept = 1 - ((bottom - top) * (right - left)).float() / (height * width)
        mixed = paste(images, (top, bottom, left, right))  # the last image only lends its rectangle
        return mixed[:-1], labels[:-1], labels[1:], kept[:-1]

    def _rows(self, step: int) -> Tensor:
        """Return the places of a batch in the epoch; with CutMix one more, whose image the last one is mixed with."""
        objective = self.objective
        start, share = step * objective.batch_size, objective._share
        more = 1 if objective.augment.cutmix else 0
        rows = torch.arange(start + share.start, start + share.stop + more, device=self.files.labels.device)
        return rows % len(self.files)


def precompile(model: torch.nn.Module, forward: Callable[[Callable[..., Tensor]], Tensor]) -> None:
    """Start compiling the Triton kernels of a step in the background, by running it on tensors without values.

    A ResNet in training has about forty kernels. The first step would compile them one after the other, which takes
    Triton a quarter of a minute. A run on fake tensors reaches them all within a second, computes nothing and needs no
    memory on the device; :mod:`lresnet.kernels` compiles them on other cores. The model does not change.

    The backward pass is included if the model is in train mode. A model that cannot run without values, e.g. because it
    reads one, is silently skipped and compiles in its first step.

    Args:
        model: the network.
        forward: called with a function that stands for the model; returns the loss, or just the model's output.

    Example:
        >>> precompile(torch.nn.Linear(3, 2), lambda call: call(torch.randn(4, 3)).sum())
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            tensors = itertools.chain(model.named_parameters(), model.named_buffers())
            fake: dict[str, Tensor] = {name: mode.from_tensor(tensor) for name, tensor in tensors}
            output = forward(lambda *inputs: torch.func.functional_call(model, fake, inputs))
            if model.training:
                trained = [tensor for tensor in fake.values() if tensor.requires_grad]
                torch.autograd.grad(output, trained, allow_unused=True)
    except Exception:
        logging.getLogger(__name__).debug("kernels are not compiled ahead of the first step", exc_info=True)
