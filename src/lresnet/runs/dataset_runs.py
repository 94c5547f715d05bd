"""Runs on a user's own data set: predictions for tensors and image files, and the points of its test items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lresnet.data import DatasetTask
from lresnet.data.augmentation import normalise
from lresnet.data.formats.image_folder import fill_frame, open_image
from lresnet.data.torch_dataset import DataRandomness, Transform, image_tensor
from lresnet.runs.own_network import HeadInput, head_input
from lresnet.runs.prediction import Prediction, Predictions, image_files, image_network
from lresnet.runs.run import Run
from lresnet.train.dataset_classification import network_input, network_logits

__all__ = ["ItemPrediction", "embed_inputs", "predict_inputs", "test_items"]

_BATCH = 256  # items that go through the network at once


class ItemPrediction(NamedTuple):
    """The most probable classes of one input, the best first."""

    item: int
    classes: tuple[int, ...]
    probabilities: tuple[float, ...]
    class_names: tuple[str, ...]
    """Names of the classes; their numbers if they have no names."""


def predict_inputs(run: Run, items: Any, *, top: int = 1) -> list[ItemPrediction] | Predictions:
    """Predict the classes of inputs, or of image files.

    Args:
        run: a run on a user's own data set or on images.
        items: a batch of inputs as the network takes them, a tensor or an array; or image files, for a run whose data
            set gives images of PIL or bytes, or has an ``eval_transform``. Bytes are divided by 255. A run on images
            that lresnet has read takes images ``[N, C, H, W]``, bytes or values in [0, 1], and normalises them.
        top: number of classes per input; all, if there are fewer.

    Raises:
        FileNotFoundError: an image does not exist.
        ValueError: the run does not know how its data set makes inputs from files, or the probabilities are not finite.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    if _are_files(items):
        return _predict_files(run, [Path(str(item)) for item in items], top)
    inputs = _stacked(items)
    found = []
    for start in range(0, len(inputs), _BATCH):
        values, labels = _best(run, _prepared(run, inputs[start : start + _BATCH]), top)
        for row, (own, numbers) in enumerate(zip(values, labels, strict=True)):
            names = tuple(_class_name(run, number) for number in numbers)
            found.append(ItemPrediction(start + row, tuple(numbers), tuple(own), names))
    return found


@torch.no_grad()
def embed_inputs(run: Run, inputs: Tensor) -> HeadInput:
    """Return the points before the head for a batch of inputs, on the CPU, see :func:`predict_inputs`."""
    parts = [head_input(run.model, _prepared(run, part)) for part in _stacked(inputs).split(_BATCH)]
    return HeadInput(torch.cat([part.points.float().cpu() for part in parts]), parts[0].manifold)


def test_items(run: Run) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs and labels of the test data of a run, in batches.

    Raises:
        ValueError: the task has no test data, or the run is not on a data set.
    """
    task = run.task
    if not isinstance(task, DatasetTask):
        raise ValueError(f"{run.place} holds a run on {run.record.data_name}; this needs one on a data set of your own")
    loader = task.evaluation_batches("test")
    if loader is None:
        raise ValueError(f"{task.name} has no test data; give test= to dataset_task")
    randomness = DataRandomness()
    randomness.seed(run.record.seed)
    with randomness.active():
        batches = [task.pair(batch) for batch in loader]
    yield from batches


def _are_files(items: Any) -> bool:
    return isinstance(items, list | tuple) and len(items) > 0 and all(isinstance(item, str | Path) for item in items)


def _stacked(items: Any) -> Tensor:
    if isinstance(items, Tensor):
        return items
    if isinstance(items, np.ndarray):
        return torch.from_numpy(items)
    tensors = [image_tensor(item) for item in items]
    if not tensors:
        raise ValueError("no inputs given; give a batch of tensors, or image files")
    return torch.stack(tensors)


def _prepared(run: Run, inputs: Tensor) -> Tensor:
    """Return inputs as the network takes them, on its device."""
    moved = network_input(inputs, run.device)
    if run.record.images is None:
        return moved
    network = image_network(run)
    if moved.dim() != 4 or moved.shape[1] != network.channels:
        raise ValueError(f"images must have the shape [N, {network.channels}, H, W], got {list(inputs.shape)}")
    pixels = (255 * moved).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
    return normalise(pixels, network.mean, network.std)


@torch.no_grad()
def _best(run: Run, inputs: Tensor, top: int) -> tuple[list[list[float]], list[list[int]]]:
    probabilities = network_logits(run.model.eval(), inputs).softmax(-1)
    if not probabilities.isfinite().all():
        raise ValueError(f"the predictions of {run.place} are not finite, so its network cannot be used")
    best = probabilities.topk(min(top, probabilities.shape[-1]))
    return best.values.tolist(), best.indices.tolist()


def _class_name(run: Run, number: int) -> str:
    names: Sequence[str] = (run.record.images or run.record.task).get("classes") or ()
    return names[number] if number < len(names) else str(number)


def _predict_files(run: Run, paths: Sequence[Path], top: int) -> Predictions:
    facts = run.record.task
    transform = _file_transform(run)
    shape = facts.get("shape") or []
    if transform is None and not (facts.get("bytes") and len(shape) == 3):
        raise ValueError(
            f"{run.place} was trained on tensors, and the run does not know how to make them from files; give "
            "eval_transform to dataset_task and the task to Run.open, or predict on tensors"
        )
    size = (shape[2], shape[1]) if len(shape) == 3 else (0, 0)
    result = Predictions(size, [], [])
    for file in image_files(paths):
        try:
            image = open_image(file, "L" if facts.get("mode") == "L" else "RGB")
        except Exception as error:  # decoders raise nearly anything at a damaged file
            result.skipped.append((file, " ".join(str(error).split())))
            continue
        made = fill_frame(image, *size) if transform is None else transform(image)
        values, labels = _best(run, network_input(image_tensor(made, image.mode).unsqueeze(0), run.device), top)
        names = tuple(_class_name(run, number) for number in labels[0])
        result.images.append(Prediction(file, image.size, names, tuple(values[0])))
    return result


def _file_transform(run: Run) -> Transform | None:
    """Return what makes an input from an image of PIL: the task's own transform, or that of its test data."""
    task = run.known_task
    if not isinstance(task, DatasetTask):
        return None
    if task.eval_transform is not None:
        return task.eval_transform
    data = task.test if task.test is not None else task.validation
    transform = getattr(getattr(data, "dataset", data), "transform", None)
    return transform if callable(transform) else None
