"""Tasks from a user's own data sets and loaders: items, splits, classes, randomness, and errors."""

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from lresnet.data import dataset_task
from lresnet.data.torch_dataset import DataRandomness, image_tensor


class Items(Dataset[Any]):
    """A data set of given items, with any attributes."""

    def __init__(self, items: list[Any], **attributes: Any) -> None:
        self.items = items
        vars(self).update(attributes)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(torch.full((2,), float(i)), i % 2) for i in range(7)])


def tensors(count: int = 40, classes: int = 2) -> TensorDataset:
    return TensorDataset(torch.arange(count).float().unsqueeze(1), torch.arange(count) % classes)


def batches(task: Any, epoch: int = 0, **options: Any) -> list[list[float]]:
    loader = task.training_batches(options.pop("batch_size", None), options.pop("seed", 0), **options)
    loader.batch_sampler.set_epoch(epoch)
    return [task.pair(batch)[0].flatten().tolist() for batch in loader]


PHOTO = Image.fromarray(np.arange(60, dtype=np.uint8).reshape(4, 5, 3))


@pytest.mark.parametrize(
    ("item", "shape", "is_bytes"),
    [
        ((PHOTO, 1), (3, 4, 5), True),
        ({"img": PHOTO.convert("L"), "label": 1}, (1, 4, 5), True),
        ({"pixel_values": torch.rand(3, 4, 5), "labels": torch.tensor(1)}, (3, 4, 5), False),
        ((np.zeros((4, 5, 3), np.uint8), np.int64(1)), (3, 4, 5), True),
        ([torch.zeros(3, 4, 5, dtype=torch.uint8), 1, "more"], (3, 4, 5), True),
    ],
)
def test_items_of_every_usual_form_become_batches(item: Any, shape: tuple[int, ...], is_bytes: bool) -> None:
    task = dataset_task(Items([item] * 4), validation=tensors(), classes=2)
    assert (task.form.shape, task.form.is_bytes) == (shape, is_bytes)
    inputs, labels = task.pair(next(iter(task.training_batches(None, 0))))
    assert inputs.shape == (4, *shape)
    assert labels.tolist() == [1] * 4


def test_colours_of_a_photo_stay_in_place() -> None:
    assert torch.equal(image_tensor(PHOTO), torch.from_numpy(np.array(PHOTO)).permute(2, 0, 1))
    assert image_tensor(PHOTO.convert("RGBA")).shape == (3, 4, 5)


def test_own_keys_name_the_parts_of_an_item() -> None:
    items = Items([{"scan": torch.zeros(2), "grade": 0}, {"scan": torch.ones(2), "grade": 1}] * 5)
    with pytest.raises(TypeError, match=r"it has the keys scan, grade; give keys=\(input, label\)"):
        dataset_task(items)
    assert dataset_task(items, keys=("scan", "grade"), classes=2).form.shape == (2,)


@pytest.mark.parametrize(
    "wrap", [lambda data: data, lambda data: Subset(data, range(40)), lambda d: ConcatDataset([d])]
)
def test_held_out_items_have_equal_shares_of_the_classes_and_are_the_same_for_every_seed(wrap: Any) -> None:
    task = dataset_task(wrap(tensors(40, 4)), holdout=0.2)
    held = [int(task.validation[i][0]) for i in range(len(task.validation))]
    assert np.bincount([number % 4 for number in held]).tolist() == [2, 2, 2, 2]
    rest = [int(task.train[i][0]) for i in range(len(task.train))]
    assert sorted(held + rest) == list(range(40))
    again = dataset_task(wrap(tensors(40, 4)), holdout=0.2)
    assert [int(again.validation[i][0]) for i in range(8)] == held
    assert "8 of 40 training items are held out for validation, at random, with equal shares" in task.notes[0]


def test_items_without_readable_labels_are_held_out_at_random() -> None:
    items = Items([(torch.zeros(2), i % 2) for i in range(20)])
    task = dataset_task(items, classes=2)
    assert len(task.validation) == 2
    assert task.notes == ("2 of 20 training items are held out for validation, at random.",)


def test_a_loader_and_a_stream_without_validation_say_that_the_last_epoch_is_kept() -> None:
    for data, steps in ((DataLoader(tensors(), 8), None), (Stream(), 3)):
        task = dataset_task(data, steps_per_epoch=steps)
        assert task.validation is None
        assert task.notes == ("No validation data: the last epoch is kept.",)


def test_class_names_come_from_the_data_set() -> None:
    named = Items([(torch.zeros(2), 0)] * 4, classes=["cat", "dog"])
    assert dataset_task(named, holdout=0).classes == ("cat", "dog")
    assert dataset_task(Subset(named, [0, 1]), holdout=0).classes == ("cat", "dog")
    assert dataset_task(tensors(9, 3), holdout=0).classes == ("0", "1", "2")
    assert dataset_task(tensors(), holdout=0, classes=["a", "b"]).classes == ("a", "b")
    with pytest.raises(ValueError, match="the number of classes is unknown; give classes="):
        _ = dataset_task(Items([(torch.zeros(2), 0)] * 4), holdout=0).num_classes


def test_the_seed_and_the_epoch_decide_the_order() -> None:
    task = dataset_task(tensors(), holdout=0)
    first = batches(task, batch_size=8)
    assert batches(task, batch_size=8) == first
    assert batches(task, epoch=1, batch_size=8) != first
    assert batches(task, seed=1, batch_size=8) != first
    assert sorted(itertools.chain(*first)) == list(range(40))


def test_processes_share_every_batch() -> None:
    task = dataset_task(tensors(), holdout=0)
    whole = batches(task, batch_size=8)
    shares = [batches(task, batch_size=8, rank=rank, size=2) for rank in range(2)]
    assert [a + b for a, b in zip(*shares, strict=True)] == whole
    with pytest.raises(ValueError, match="batch_size 9 is not a multiple of the number of processes, 2; use 8"):
        task.training_batches(9, 0, 0, 2)
    with pytest.raises(ValueError, match="gives all 2 processes the same items; pass the data set instead"):
        dataset_task(DataLoader(tensors(), 8)).training_batches(None, 0, 0, 2)
    sampler = torch.utils.data.DistributedSampler(tensors(), num_replicas=2, rank=0)
    loader = DataLoader(tensors(), 8, sampler=sampler)
    assert dataset_task(loader).training_batches(None, 0, 0, 2) is loader


def test_transforms_apply_to_their_part_only() -> None:
    task = dataset_task(tensors(), transform=lambda x: x + 1000, eval_transform=lambda x: -x, test=tensors())
    train = list(itertools.chain(*batches(task)))
    assert min(train) >= 1000
    for part in ("validation", "test"):
        loader = task.evaluation_batches(part)
        assert loader is not None
        assert max(float(task.pair(batch)[0].max()) for batch in loader) <= 0


def test_data_randomness_is_apart_from_the_generators_of_the_training() -> None:
    def draw() -> tuple[float, float, float]:
        return torch.rand(1).item(), np.random.rand(), random.random()  # noqa: NPY002

    torch.manual_seed(0)
    expected = torch.rand(2).tolist()
    torch.manual_seed(0)
    randomness, values = DataRandomness(), []
    for _ in range(2):
        randomness.seed(0, 5)
        with randomness.active():
            first = draw()
        with randomness.active():
            values.append((first, draw()))
    assert values[0] == values[1]
    assert values[0][0] != values[0][1]
    assert torch.rand(2).tolist() == expected


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((3,), {}, TypeError, "train must be a torch Dataset or DataLoader, got int"),
        ((tensors(), "test"), {}, TypeError, "validation must be a torch Dataset or DataLoader, got str"),
        ((Items([]),), {}, ValueError, "dataset: train has no items"),
        ((Items([5] * 10),), {}, TypeError, r"must give pairs \(input, label\) or dicts of them, but this item is int"),
        ((Stream(),), {}, ValueError, "the training data has no length; give steps_per_epoch"),
        ((tensors(),), {"steps_per_epoch": 3}, ValueError, "steps_per_epoch=3 is for a stream"),
        ((tensors(),), {"holdout": 1.0}, ValueError, "holdout must be a share"),
        ((tensors(3),), {}, ValueError, "holdout 0.1 of 3 items is 0; give validation data, another share, or 0"),
        ((DataLoader(tensors()),), {"workers": 2}, ValueError, "train is a DataLoader with its own; leave them out"),
        ((tensors(),), {"classes": "cat"}, TypeError, "classes must be the names of the classes or their number"),
    ],
)
def test_what_cannot_be_a_task_is_refused(arguments: Any, options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        dataset_task(*arguments, **options)


def test_images_of_different_sizes_are_named() -> None:
    items = Items([(torch.zeros(3, 4, 4), 0), (torch.zeros(3, 5, 4), 1)])
    task = dataset_task(items, holdout=0, classes=2)
    with pytest.raises(ValueError, match=r"have the shapes \[3, ., 4\] and \[3, ., 4\]; give them one shape"):
        next(iter(task.training_batches(None, 0)))


def test_a_loader_keeps_its_own_batch_size() -> None:
    task = dataset_task(DataLoader(tensors(), 8))
    with pytest.raises(ValueError, match="batch_size=16 is given, but the training data is a loader"):
        task.training_batches(16, 0)


@pytest.mark.parametrize(("count", "expected"), [(10, 10), (600, 16), (2100, 64), (9000, 128)])
def test_small_data_sets_have_smaller_batches(count: int, expected: int) -> None:
    task = dataset_task(tensors(count), holdout=0)
    assert len(batches(task)[0]) == expected


def test_the_usual_batch_can_be_shared() -> None:
    shares = [batches(dataset_task(tensors(600), holdout=0), rank=rank, size=3) for rank in range(3)]
    assert [len(share[0]) for share in shares] == [5, 5, 5]
