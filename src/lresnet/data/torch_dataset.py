"""Classification of a user's own torch data set: any ``Dataset`` or ``DataLoader``, with the user's transforms."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, IterableDataset, Sampler, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from lresnet.data.source import DataKind
from lresnet.data.splits import stratified

__all__ = ["DataRandomness", "DatasetTask", "ItemForm", "Transform", "dataset_task", "image_tensor", "is_data"]

Transform = Callable[[Any], Any]
"""Called with the input of one item, e.g. an image of PIL; returns what the network takes, without the batch axis."""

_INPUT_KEYS = ("image", "images", "img", "pixel_values", "input", "inputs", "x")
_LABEL_KEYS = ("label", "labels", "target", "targets", "fine_label", "y")
_CHANNELS = (1, 3, 4)
# Largest and smallest batch, and the steps per epoch that a small data set has if they allow it.
_BATCH_SIZES, _STEPS = (16, 128), 32
_EVALUATION_BATCH = 256
# Every method and seed holds out the same items, so that runs differ in their training only.
_HOLD_OUT_SEED = 0


class ItemForm(NamedTuple):
    """What the items of a data set are."""

    shape: tuple[int, ...]
    """Shape of one input as the network gets it, without the batch axis."""
    is_bytes: bool
    """Whether inputs are images of PIL or uint8, which are divided by 255."""
    mode: str
    """Mode to which images of PIL are converted: "L" or "RGB"."""


_UNKNOWN_FORM = ItemForm((), False, "RGB")


@dataclass(frozen=True, eq=False)
class DatasetTask:
    """Classification of the items of a user's own data set. Build it with :func:`dataset_task`.

    Args:
        name: Name of the task.
        train: Training data, a data set or a loader.
        validation: Validation data; None: nothing selects an epoch, and the last one is kept.
        test: Test data; None: the run cannot be evaluated.
        classes: Names of the classes; empty if their number is unknown.
        form: What the training items are.
        transform: Applied to the inputs of training items.
        eval_transform: Applied to the inputs of validation and test items.
        keys: Keys of input and label in items that are dicts.
        workers: Worker processes of the loaders that are built here.
        steps_per_epoch: Batches per epoch of a stream without a length.
        notes: How the data were split, one sentence each.
    """

    data_kind: ClassVar[DataKind] = "images"

    name: str
    train: Any
    validation: Any = None
    test: Any = None
    classes: tuple[str, ...] = ()
    form: ItemForm = _UNKNOWN_FORM
    transform: Transform | None = None
    eval_transform: Transform | None = None
    keys: tuple[str, str] | None = None
    workers: int = 0
    steps_per_epoch: int | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        parts = [f"{name}={_counted(getattr(self, name))}" for name in ("train", "validation", "test")]
        return f"DatasetTask(name={self.name!r}, {', '.join(parts)}, classes={len(self.classes) or None})"

    @property
    def num_classes(self) -> int:
        """Number of classes.

        Raises:
            ValueError: It is unknown.
        """
        if not self.classes:
            raise ValueError(f"{self.name}: the number of classes is unknown; give classes= to dataset_task")
        return len(self.classes)

    @property
    def in_channels(self) -> int:
        """Number of channels of an image."""
        if len(self.form.shape) != 3:
            raise ValueError(f"{self.name}: items of shape {list(self.form.shape)} are not images [C, H, W]")
        return self.form.shape[0]

    def model_sizes(self) -> dict[str, Any]:
        """Return the arguments of :func:`lresnet.create_model` that the task decides."""
        return {"num_classes": self.num_classes, "in_channels": self.in_channels}

    def describe(self) -> dict[str, Any]:
        """Return the sizes of the data and the form of the items as JSON values."""
        counts = {f"{part}_items": _count(getattr(self, part)) for part in ("train", "validation", "test")}
        form = {"shape": list(self.form.shape), "bytes": self.form.is_bytes, "mode": self.form.mode}
        described = {"name": self.name, "data": "dataset", **counts, **form, "classes": list(self.classes)}
        checksum = _checksum(self.train)
        return described if checksum is None else described | {"sha256": checksum}

    def training_batches(self, batch_size: int | None, seed: int, rank: int = 0, size: int = 1) -> DataLoader[Any]:
        """Return the loader of the training data; each of ``size`` processes has its own share of every batch.

        Args:
            batch_size: Items per step, over all processes together, at most all items. None: 128; for a small data set
                a smaller power of two, at least 16, so that an epoch has 32 steps.
            seed: Decides the order of a data set that is shuffled here.

        Raises:
            ValueError: A loader has its own batch size, or does not share its items among the processes.
        """
        if isinstance(self.train, DataLoader):
            if batch_size is not None:
                raise ValueError(
                    f"batch_size={batch_size} is given, but the training data is a loader with its own batch size; "
                    "leave it out"
                )
            _require_shared(self.train, size)
            return self.train
        collate = _Collate(self.keys, self.form.mode, self.transform)
        if not _is_map(self.train):
            batch = batch_size or _BATCH_SIZES[1] // size * size
            if rest := batch % size:
                raise ValueError(f"batch_size {batch} is not a multiple of {size} processes; use {batch - rest}")
            options = {"num_workers": self.workers, "collate_fn": collate, "drop_last": True}
            return DataLoader(self.train, batch // size, **options)  # type: ignore[arg-type]
        count = len(self.train)
        batch = min(batch_size or _usual_batch(count, size), count)
        if rest := batch % size:
            near = batch - rest if batch > size else size
            raise ValueError(f"batch_size {batch} is not a multiple of the number of processes, {size}; use {near}")
        sampler = _ShuffledBatches(count, batch, seed, rank, size)
        return DataLoader(self.train, batch_sampler=sampler, num_workers=self.workers, collate_fn=collate)

    def evaluation_batches(self, part: str) -> DataLoader[Any] | None:
        """Return the loader of ``"validation"`` or ``"test"`` data in their order; None: there are none."""
        data = getattr(self, part)
        if data is None or isinstance(data, DataLoader):
            return data
        collate = _Collate(self.keys, self.form.mode, self.eval_transform)
        return DataLoader(data, _EVALUATION_BATCH, num_workers=self.workers, collate_fn=collate)

    def pair(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of a batch, as tensors; raises ``TypeError`` for anything else."""
        inputs, labels = _pair(batch, self.keys, "batch")
        if not isinstance(inputs, Tensor):
            raise TypeError(f"{self.name}: the inputs of a batch are {type(inputs).__name__}; a tensor is needed")
        return inputs, torch.as_tensor(labels)


def dataset_task(
    train: Any,
    validation: Any = None,
    test: Any = None,
    *,
    classes: int | Sequence[str] | None = None,
    holdout: float = 0.1,
    transform: Transform | None = None,
    eval_transform: Transform | None = None,
    keys: tuple[str, str] | None = None,
    workers: int = 0,
    steps_per_epoch: int | None = None,
    name: str = "dataset",
) -> DatasetTask:
    """Return the task to classify the items of a data set: images, or any other tensors.

    An item is a pair of input and label, or a dict such as ``{"image": ..., "label": ...}``. An input is an image of
    PIL, an array or a tensor. Images of PIL and uint8 values become float32 in [0, 1], images ``[C, H, W]``; other
    tensors stay as they are. Nothing else is done to them: there is no augmentation besides your own.

    Args:
        train: Training data: a data set with a length and numbered items, an ``IterableDataset``, or a ``DataLoader``
            with its own batch size, sampler, workers and collate function. Data sets without a loader are shuffled and
            batched here, by the seed and the batch size of the training configuration.
        validation: Validation data, which select the epoch to keep. None: ``holdout`` of a numbered data set is held
            out, with equal shares of every class if the labels can be read without the inputs (from ``targets`` or
            ``labels``). For a stream or a loader None means that the last epoch is kept.
        test: Test data, for :meth:`lresnet.Run.evaluate` only. A loader of validation or test data gives all items.
        classes: Names of the classes, or their number. None: those of the data set (``classes``, ``features``, or its
            labels).
        holdout: Share of ``train`` that is held out if there is no ``validation``; 0: none.
        transform: Applied to the input of each training item; for data sets, not for loaders.
        eval_transform: The same for validation and test items, also for those that are held out.
        keys: Keys of input and label, if items are dicts with other keys than usual.
        workers: Worker processes that read a data set without a loader.
        steps_per_epoch: Batches per epoch; required for a stream without a length, and only for such a stream.
        name: Name of the task in ``run.json`` and in messages.

    Raises:
        TypeError: An argument is not a data set or a loader, or its items are no pairs.
        ValueError: The data are empty, or an option does not fit them.

    Example:
        >>> data = TensorDataset(torch.rand(60, 3, 8, 8), torch.arange(60) % 2)
        >>> dataset_task(data, test=data)
        DatasetTask(name='dataset', train=54, validation=6, test=60, classes=2)
    """
    if isinstance(train, DataLoader) and (transform is not None or workers):
        raise ValueError(
            "transform and workers are for data sets, but train is a DataLoader with its own; leave them out"
        )
    if not 0 <= holdout < 1:
        raise ValueError(f"holdout must be a share, at least 0 and below 1, got {holdout}")
    parts = {"train": train, "validation": validation, "test": test}
    for part, data in parts.items():
        if data is None and part != "train":
            continue
        if not is_data(data):
            raise TypeError(f"{part} must be a torch Dataset or DataLoader, got {type(data).__name__}")
        if _count(data) == 0:
            raise ValueError(f"{name}: {part} has no items")
    _require_length(train, steps_per_epoch, name)
    given = _class_names(classes, train)
    notes: list[str] = []
    if validation is None and holdout and _is_map(train):
        train, parts["validation"], note = _held_out(train, holdout, keys, name)
        notes.append(note)
    elif validation is None:
        notes.append("No validation data: the last epoch is kept.")
    form = _form_of(train, transform, keys)
    return DatasetTask(
        name=name,
        train=train,
        validation=parts["validation"],
        test=test,
        classes=given,
        form=form,
        transform=transform,
        eval_transform=eval_transform,
        keys=keys,
        workers=workers,
        steps_per_epoch=steps_per_epoch,
        notes=tuple(notes),
    )


def is_data(value: object) -> bool:
    """Whether ``value`` is a data set or a loader: numbered items with a length, or something to iterate over."""
    if isinstance(value, DataLoader | IterableDataset):
        return True
    if isinstance(value, str | bytes | Tensor | Mapping | torch.nn.Module):
        return False
    return _is_map(value) or hasattr(value, "__iter__")


def image_tensor(value: Any, mode: str = "RGB") -> Tensor:
    """Return an image of PIL or an array as a tensor ``[C, H, W]``; a tensor stays as it is.

    Arrays ``[H, W, C]`` of bytes with 1, 3 or 4 channels are images; their axes are exchanged.

    Example:
        >>> image_tensor(np.zeros((4, 5, 3), np.uint8)).shape
        torch.Size([3, 4, 5])
    """
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "convert") and hasattr(value, "getbands"):  # PIL, without importing it
        pixels = torch.from_numpy(np.array(value.convert(mode)))
        return pixels.unsqueeze(0) if pixels.dim() == 2 else pixels.permute(2, 0, 1).contiguous()
    array = torch.as_tensor(np.asarray(value))
    if array.dtype != torch.uint8 or array.dim() != 3 or array.shape[2] not in _CHANNELS:
        return array
    channels_first = array.shape[0] in _CHANNELS and (array.shape[0] != 4 or array.shape[2] == 4)
    return array if channels_first else array.permute(2, 0, 1).contiguous()


def _usual_batch(count: int, processes: int) -> int:
    """Return a batch size for ``count`` items: a power of two, rounded down to a multiple of the processes."""
    least, most = _BATCH_SIZES
    fitting = min(most, max(least, 1 << max(0, (count // _STEPS).bit_length() - 1)))
    return max(processes, fitting // processes * processes)


class DataRandomness:
    """The global generators of torch, NumPy and Python while data are read, apart from those of the training.

    They are seeded anew for every epoch, so that random transforms depend on seed and epoch only, and a resumed run
    reads the same data as an uninterrupted one.

    Example:
        >>> randomness = DataRandomness()
        >>> randomness.seed(0, 3)
        >>> with randomness.active():
        ...     value = torch.rand(1)
    """

    def __init__(self) -> None:
        self._states: tuple[Any, ...] = _global_states()

    def seed(self, *numbers: int) -> None:
        """Seed the generators by a sequence of numbers."""
        words = np.random.SeedSequence([number % 2**64 for number in numbers]).generate_state(3)
        with self.active():
            torch.default_generator.manual_seed(int(words[0]))
            np.random.seed(int(words[1]))  # noqa: NPY002 - the transforms of users draw from it
            random.seed(int(words[2]))

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Put these generators in place of the global ones."""
        outside = _global_states()
        _set_global_states(self._states)
        try:
            yield
        finally:
            self._states = _global_states()
            _set_global_states(outside)


def _global_states() -> tuple[Any, ...]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002


def _set_global_states(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    random.setstate(states[2])


class _ShuffledBatches(Sampler[list[int]]):
    """This process's shares of batches of a permutation that seed and epoch decide; an incomplete batch is left out."""

    def __init__(self, count: int, batch_size: int, seed: int, rank: int, size: int) -> None:
        self.count, self.batch_size, self.seed = count, batch_size, seed
        own = batch_size // size
        self.share, self.epoch = slice(rank * own, (rank + 1) * own), 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        order = np.random.Generator(np.random.PCG64([self.seed, self.epoch])).permutation(self.count)
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            yield order[start + self.share.start : start + self.share.stop].tolist()


@dataclass(frozen=True)
class _Collate:
    """Items to tensors of inputs and labels; a class, because worker processes may have to pickle it."""

    keys: tuple[str, str] | None
    mode: str
    transform: Transform | None

    def __call__(self, items: Sequence[Any]) -> tuple[Tensor, Tensor]:
        inputs, labels = [], []
        for item in items:
            value, label = _pair(item, self.keys, "item")
            inputs.append(image_tensor(value if self.transform is None else self.transform(value), self.mode))
            labels.append(torch.as_tensor(label))
        shapes = list(dict.fromkeys(tuple(one.shape) for one in inputs))
        if len(shapes) > 1:
            raise ValueError(
                f"the inputs of a batch have the shapes {list(shapes[0])} and {list(shapes[1])}; give them one shape, "
                "e.g. resize and crop images in the transform"
            )
        return torch.stack(inputs), torch.stack(labels)


def _pair(item: Any, keys: tuple[str, str] | None, what: str) -> tuple[Any, Any]:
    """Return input and label of an item or a batch."""
    if isinstance(item, Mapping):
        wanted = [(key,) for key in keys] if keys is not None else [_INPUT_KEYS, _LABEL_KEYS]
        found = [next((name for name in names if name in item), None) for names in wanted]
        if None in found:
            known = ", ".join(map(str, item))
            raise TypeError(
                f"input and label of this {what} are unknown, it has the keys {known}; give keys=(input, label)"
            )
        return item[found[0]], item[found[1]]
    if isinstance(item, tuple | list) and len(item) >= 2:
        return item[0], item[1]
    raise TypeError(
        f"a data set must give pairs (input, label) or dicts of them, but this {what} is {type(item).__name__}"
    )


def _is_map(data: object) -> bool:
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, IterableDataset)


def _count(data: Any) -> int | None:
    """Return the number of items, or of batches for a loader whose data set has no length; None: unknown."""
    if isinstance(data, DataLoader):
        data = data.dataset
    try:
        return len(data)
    except TypeError:
        return None


def _counted(data: Any) -> str:
    return "None" if data is None else str(_count(data) or "stream")


def _require_length(train: Any, steps: int | None, name: str) -> None:
    if steps is not None and (type(steps) is not int or steps < 1):
        raise ValueError(f"steps_per_epoch must be a whole number of at least 1, got {steps!r}")
    try:
        known = len(train) > 0
    except TypeError:
        known = False
    if known and steps is not None:
        raise ValueError(f"steps_per_epoch={steps} is for a stream, but {name} has a length; leave it out")
    if not known and steps is None:
        raise ValueError(f"{name}: the training data has no length; give steps_per_epoch, the batches of one epoch")


def _require_shared(loader: DataLoader[Any], size: int) -> None:
    """Raise an error if several processes would read the same items of a loader."""
    if size == 1 or isinstance(loader.dataset, IterableDataset):
        return
    samplers = (loader.sampler, getattr(loader.batch_sampler, "sampler", None), loader.batch_sampler)
    if not any(isinstance(one, DistributedSampler) or hasattr(one, "num_replicas") for one in samplers):
        raise ValueError(
            f"the training loader gives all {size} processes the same items; pass the data set instead of the loader, "
            "or give the loader a DistributedSampler"
        )


def _labels_of(data: Any, keys: tuple[str, str] | None) -> NDArray[np.int64] | None:
    """Return the labels of a numbered data set if they can be read without its inputs."""
    if isinstance(data, Subset):
        inner = _labels_of(data.dataset, keys)
        return None if inner is None else inner[np.asarray(data.indices, dtype=np.int64)]
    if isinstance(data, ConcatDataset):
        parts = [_labels_of(part, keys) for part in data.datasets]
        return None if any(part is None for part in parts) else np.concatenate(parts)  # type: ignore[arg-type]
    if isinstance(data, TensorDataset):
        found: Any = data.tensors[1] if len(data.tensors) > 1 else None
    elif hasattr(data, "column_names"):  # a table of the library `datasets`
        names = _LABEL_KEYS if keys is None else (keys[1],)
        found = next((data[name] for name in names if name in data.column_names), None)
    else:
        found = next((getattr(data, name) for name in ("targets", "labels") if hasattr(data, name)), None)
    try:
        labels = np.asarray(found)
    except (TypeError, ValueError):
        return None
    is_list = labels.shape == (len(data),) and labels.dtype.kind in "iu"
    return labels.astype(np.int64) if is_list else None


def _checksum(data: Any) -> str | None:
    """Return a checksum of the labels and, for tensors in memory, of the inputs; None: neither can be read as it is."""
    inner = data.dataset if isinstance(data, DataLoader) else data
    if not _is_map(inner):
        return None
    labels = _labels_of(inner, None)
    while isinstance(inner, Subset):
        inner = inner.dataset
    arrays: list[Any] = [] if labels is None else [labels]
    if isinstance(inner, TensorDataset):
        tensors = [tensor.detach().cpu().contiguous() for tensor in inner.tensors if tensor.numel()]
        arrays += [tensor.view(-1).view(torch.uint8).numpy() for tensor in tensors]
    if not arrays:
        return None
    checksum = hashlib.sha256()
    for array in arrays:
        checksum.update(np.ascontiguousarray(array).tobytes())
    return checksum.hexdigest()


def _class_names(classes: int | Sequence[str] | None, train: Any) -> tuple[str, ...]:
    if isinstance(classes, str):
        raise TypeError(f"classes must be the names of the classes or their number, got {classes!r}")
    if isinstance(classes, int):
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        return tuple(map(str, range(classes)))
    if classes is not None:
        return tuple(map(str, classes))
    data = train.dataset if isinstance(train, DataLoader) else train
    inner = data
    while isinstance(inner, Subset):
        inner = inner.dataset
    names = getattr(inner, "classes", None)
    if not isinstance(names, list | tuple):
        features = getattr(inner, "features", None)
        label = (
            next((features[key] for key in _LABEL_KEYS if key in features), None)
            if isinstance(features, Mapping)
            else None
        )
        names = getattr(label, "names", None)
    if isinstance(names, list | tuple) and names:
        return tuple(map(str, names))
    labels = _labels_of(data, None) if _is_map(data) else None
    if labels is not None and labels.size and labels.min() < 0:
        raise ValueError(f"labels must be whole numbers from 0, got {labels.min()}")
    return () if labels is None or labels.size == 0 else tuple(map(str, range(int(labels.max()) + 1)))


def _held_out(data: Any, share: float, keys: tuple[str, str] | None, name: str) -> tuple[Any, Any, str]:
    """Return training items, validation items, and how they were chosen."""
    count, labels = len(data), _labels_of(data, keys)
    number = round(share * count)
    if not 0 < number < count:
        raise ValueError(
            f"{name}: holdout {share} of {count:,} items is {number:,}; give validation data, another share, or 0 to "
            "train on all"
        )
    order = np.random.RandomState(_HOLD_OUT_SEED).permutation(count)
    chosen = order[:number]
    how = "at random"
    if labels is not None:
        # The test part of the split joins the training items: only one part is held out.
        split = stratified(torch.from_numpy(labels), _HOLD_OUT_SEED, share, min(share, (1 - share) / 2))
        if split.val.numel():
            chosen, how = split.val.numpy(), "at random, with equal shares of every class"
    rest = np.setdiff1d(np.arange(count), chosen)
    note = f"{len(chosen):,} of {count:,} training items are held out for validation, {how}."
    return Subset(data, rest.tolist()), Subset(data, np.sort(chosen).tolist()), note


def _form_of(train: Any, transform: Transform | None, keys: tuple[str, str] | None) -> ItemForm:
    """Read one item of a numbered data set. Streams and loaders are not touched, since reading may consume them."""
    data = train.dataset if isinstance(train, DataLoader) else train
    if not _is_map(data):
        return _UNKNOWN_FORM
    randomness = DataRandomness()
    randomness.seed(0)
    with randomness.active():
        value, _ = _pair(data[0], keys, "item")
        mode = "L" if getattr(value, "mode", None) in ("1", "L") else "RGB"
        value = image_tensor(value if transform is None else transform(value), mode)
    is_bytes = value.dtype == torch.uint8
    return ItemForm(tuple(value.shape), is_bytes, mode)
