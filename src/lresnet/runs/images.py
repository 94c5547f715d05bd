"""Identity of the images that a run was trained on: what ``run.json`` records, and whether they have changed since."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lresnet.data import ImageData, ImageSet
from lresnet.data.image_files import ImageFiles

__all__ = [
    "image_facts",
    "require_images_exist",
    "require_same_everywhere",
    "require_same_images",
    "require_same_order",
]

_ORDER, _ORDER_OF_IMAGES = "training_order", "training_order_of_images"
# What run.json records of the images, and what an error message calls it.
_WORDS = {
    "height": "sizes",
    "width": "sizes",
    "channels": "channels",
    "classes": "classes",
    "mean": "pixels",
    "std": "pixels",
    "training_images": "training images",
    "test_images": "test images",
    "training_digest": "training images or training labels",
    "test_digest": "test images or test labels",
    _ORDER: "order of the training images",
    _ORDER_OF_IMAGES: "order of the training images",
    "validation_images": "validation images",
    "validation_digest": "validation images or validation labels",
}

_ORDERS = (_ORDER, _ORDER_OF_IMAGES)

Facts = Mapping[str, Any]


def image_facts(data: ImageData) -> dict[str, Any]:
    """Return the sizes, classes, pixel statistics and checksums of images as JSON values."""
    values = list(data.classes), list(data.mean), list(data.std), len(data.train), len(data.test)
    train, test = _digests(data.train), _digests(data.test)
    facts = dict(zip(_WORDS, (*data.train.shape, *values, _joined(sorted(train)), _joined(sorted(test))), strict=False))
    # The order decides how images are held out, shuffled and shared. The first form is older and needs all pixels.
    if isinstance(data.train, ImageSet):
        facts[_ORDER] = hashlib.sha256(data.train.images.cpu().numpy().tobytes()).hexdigest()
    if data.contents is not None:
        facts[_ORDER_OF_IMAGES] = _joined(train)
    if data.val is not None:
        facts |= {"validation_images": len(data.val), "validation_digest": _joined(sorted(_digests(data.val)))}
    return facts


def _digests(images: ImageSet | ImageFiles) -> Sequence[bytes]:
    """Return a checksum of each image with its label.

    Sorted, they do not depend on the order: copies of CIFAR differ in it. The mean and deviation of the pixels would
    not notice swapped labels.
    """
    if isinstance(images, ImageFiles):
        return images.digests
    pairs = zip(images.images.cpu().numpy(), images.labels.tolist(), strict=True)
    return [hashlib.sha256(label.to_bytes(8, "little") + image.tobytes()).digest() for image, label in pairs]


def _joined(digests: Sequence[bytes]) -> str:
    return hashlib.sha256(b"".join(digests)).hexdigest()


def require_images_exist(name: str, folder: Path) -> None:
    """Raise an error if a user's own images are no longer where they were during the run in ``folder``.

    Raises:
        FileNotFoundError: the path of the images does not exist, or is an empty folder.
    """
    place = Path(name)
    exists = place.is_file() or (place.is_dir() and any(place.iterdir()))
    if place.is_absolute() and not exists:  # shipped sets are found by name
        raise FileNotFoundError(
            f"the images of the run in {folder} were at {place} and are no longer there; "
            "move them back, or make that path a link to their new place"
        )


def require_same_images(facts: Facts | None, before: Facts | None, name: str, folder: Path) -> None:
    """Raise an error if the images have changed since the run in ``folder`` was started.

    Their order may differ, see :func:`require_same_order`. A run of an older version has recorded fewer facts.

    Args:
        facts: facts of the images as they are now, see :func:`image_facts`; None for a graph.
        before: facts that ``run.json`` of ``folder`` recorded.
        name: name or path of the images.

    Raises:
        ValueError: the images have changed; the message says in what.
    """
    for key, now in (facts or {}).items():
        if before is not None and key in before and before[key] != now and key not in _ORDERS:
            raise ValueError(
                f"{name} has other {_WORDS[key]} than when the run in {folder} was started; "
                "restore them, or train in another folder"
            )


def require_same_order(facts: Facts | None, before: Facts | None, name: str, folder: Path) -> None:
    """Raise an error if the training images are in another order; arguments as in :func:`require_same_images`.

    Raises:
        ValueError: the order has changed, for example because files were renamed.
    """
    pairs = [((facts or {}).get(key), (before or {}).get(key)) for key in _ORDERS]
    if any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ValueError(
            f"{name} has its training images in another order than when the run in {folder} was started, and the order "
            "decides which are held out and how they are shuffled; restore the file names, or train in another folder"
        )


def require_same_everywhere(facts: Facts, name: str, gather: Callable[[Any], list[Any]]) -> None:
    """Raise an error if the processes of a distributed run have read different images.

    Args:
        facts: facts of the images that this process has read, see :func:`image_facts`.
        name: name or path of the images.
        gather: collects a value from every process.

    Raises:
        ValueError: the images differ; the message says in what.
    """
    found = gather(facts)
    for key, word in _WORDS.items():
        if any(other.get(key) != found[0].get(key) for other in found):
            raise ValueError(f"the processes find different {word} at {name}; give every machine the same images")
