"""The images that a run was trained on: what is kept of them, and whether those found today are still the same."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from lresnet.data import ImageData, ImageSet
from lresnet.data.formats.records import digest_of
from lresnet.train.distributed import Processes
from lresnet_paper.run import image_data

__all__ = [
    "image_facts",
    "images_of_run",
    "real_place",
    "require_images",
    "require_same_everywhere",
    "require_same_images",
    "require_same_order",
]

_ORDER = "training_order"
# What is kept in run.json, and what is another where it is another.
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
}


def image_facts(data: ImageData) -> dict[str, Any]:
    """What the user of a trained network must know of its images, and what tells them from others, for JSON."""
    height, width, channels = data.train.images.shape[1:]
    pixels = list(data.classes), list(data.mean), list(data.std)
    parts = data.train, data.test
    facts = height, width, channels, *pixels, *map(len, parts), *map(_digest, parts), _order(data.train)
    return dict(zip(_WORDS, facts, strict=True))


def _digest(images: ImageSet) -> str:
    """Of each image with its label, in whatever order they are: distributions of CIFAR differ in it.

    The pixels' mean and deviation do not tell of images that have changed places or labels.
    """
    pairs = zip(images.images.cpu().numpy(), images.labels.tolist(), strict=True)
    return digest_of(label.to_bytes(8, "little") + image.tobytes() for image, label in pairs)


def _order(images: ImageSet) -> str:
    """A checksum of the images as they follow each other: by their places they are held out, shuffled and shared."""
    return hashlib.sha256(images.images.cpu().numpy().tobytes()).hexdigest()


def real_place(cell: str) -> str:
    """Where the data of a run are: a path is followed through its links, of which several may lead to the same images.

    Example:
        >>> real_place("cifar10")
        'cifar10'
    """
    path = Path(cell)
    return str(path.resolve()) if path.is_absolute() else cell


def images_of_run(record: dict[str, Any], folder: Path) -> ImageData:
    """The images of the run in ``folder``, read again; ``record`` is what its ``run.json`` holds.

    Raises:
        FileNotFoundError: they are not where they were.
        ValueError: they have changed.
    """
    require_images(record, folder)
    data = image_data(record["cell"], record["config"].get("size"))
    require_same_images(image_facts(data), record, folder)
    return data


def require_images(record: dict[str, Any], folder: Path) -> None:
    """Images of a user may have been moved since the run in ``folder``: say where they were.

    Raises:
        FileNotFoundError: there is nothing any more where they were, or an empty folder.
    """
    place = Path(record["cell"])
    there = place.is_file() or (place.is_dir() and any(place.iterdir()))
    if "images" in record and place.is_absolute() and not there:  # cifar10 and the like are found by name
        raise FileNotFoundError(
            f"the images of the run in {folder} were at {place} and are not there any more; "
            "bring them back, or make that path a link to where they are now"
        )


def require_same_images(facts: dict[str, Any], record: dict[str, Any], folder: Path) -> None:
    """Files of a user may change: other classes or other pixels would give figures of no one run.

    Another order is another matter, see :func:`require_same_order`.

    A run by an older version has not counted its images, or has no checksum of its test or its training images.

    Args:
        facts: of the images as they are now, see :func:`image_facts`; of a graph there are none.
        record: what ``run.json`` of ``folder`` holds.

    Raises:
        ValueError: they have changed; in what, is said.
    """
    then = record.get("images", {})
    for name, now in facts.items():
        if name in then and then[name] != now and name != _ORDER:
            raise ValueError(
                f"{record['cell']} has other {_WORDS[name]} than when the run in {folder} was begun; "
                "bring them back, or train in another folder"
            )


def require_same_order(facts: dict[str, Any], record: dict[str, Any], folder: Path) -> None:
    """To go on, a training needs its images in their places; arguments as of :func:`require_same_images`.

    Raises:
        ValueError: they are the same in another order, as files are that were renamed.
    """
    then, now = record.get("images", {}), facts
    if now.get(_ORDER) != then.get(_ORDER, now.get(_ORDER)):
        raise ValueError(
            f"{record['cell']} has its training images in another order than when the run in {folder} was begun, "
            "by which they are held out and shuffled; name the files as they were, or train in another folder"
        )


def require_same_everywhere(facts: dict[str, Any], cell: str, processes: Processes) -> None:
    """Check that all processes have read the same images; each reads them from its own disk.

    Args:
        facts: of those that this process has read, see :func:`image_facts`.

    Raises:
        ValueError: they have found other ones.
    """
    found = processes.gather(facts)
    for name, word in _WORDS.items():
        if any(other[name] != found[0][name] for other in found):
            raise ValueError(f"not all processes find the same {word} at {cell}; give every machine the same images")
