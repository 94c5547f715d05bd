"""Identity of the data that a run was trained on: what ``run.json`` records, and whether they have changed since."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from lresnet.data import GraphLevelTask, ImageData, ImageSet, ImageTask, Task, TextTask
from lresnet.data.image_files import ImageFiles
from lresnet.train.distributed import Processes

__all__ = [
    "data_facts",
    "graph_facts",
    "image_facts",
    "require_images_exist",
    "require_same_data",
    "require_same_everywhere",
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
_WORDS_OF_GRAPH = {"nodes": "nodes", "edges": "edges", "digest": "edges, features or labels"}
_WORDS_OF_TEXT = {"vocab_size": "tokens", "tokens": "tokens"}  # everything else is a matter of its bytes

Facts = Mapping[str, Any]


def data_facts(task: Task, task_record: Facts, processes: Processes) -> dict[str, dict[str, Any] | None]:
    """Return the facts of images, of a text or of a user's graph, by the fields of ``run.json``; None: other data.

    Args:
        task_record: what ``run.json`` records of the task.
        processes: the processes that share the run.

    Raises:
        ValueError: the processes have read different images or texts.
    """
    images = graph = text = None
    if isinstance(task, ImageTask):
        images = image_facts(task.data)
        require_same_everywhere(images, task.name, processes.gather)
    elif isinstance(task, TextTask):
        text = task.facts()
        if len(set(processes.gather(text["digest"]))) > 1:
            raise ValueError(f"the processes find different texts at {task.name}; give every machine the same text")
    elif task_record["kind"] == "graph" and "task" in task_record:
        graph = graph_facts(task)
    return {"images": images, "graph": graph, "text": text}


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


def graph_facts(task: Task) -> dict[str, Any] | None:
    """Return the sizes and a checksum of a user's graph as JSON values; None for a task without its graph."""
    if isinstance(task, GraphLevelTask):
        parts: list[Any] = [task.x, task.edge_index, task.batch, task.y]
        return _facts(task.num_nodes, task.edge_index.shape[1] // 2, parts)
    graph = getattr(task, "graph", None)
    if graph is None:
        return None
    features = graph.features
    arrays = [features] if features is None or isinstance(features, np.ndarray) else [features.data, features.indices]
    return _facts(graph.num_nodes, graph.edges.shape[1], [graph.edges, graph.weights, graph.labels, *arrays])


def _facts(nodes: int, edges: int, parts: list[Any]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for part in parts:
        if part is None:
            digest.update(b"none")
            continue
        array = part.numpy() if isinstance(part, Tensor) else part
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return {"nodes": nodes, "edges": edges, "digest": digest.hexdigest()}


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


def require_same_data(
    part: Literal["images", "graph", "text"], facts: Facts | None, before: Facts | None, name: str, folder: Path
) -> None:
    """Raise an error if the data have changed since the run in ``folder`` was started.

    The order of images may differ, see :func:`require_same_order`. A run of an older version has recorded fewer facts.

    Args:
        part: what the data are.
        facts: facts of the data as they are now, see :func:`data_facts`; None: the run is on other data.
        before: facts that ``run.json`` of ``folder`` recorded; None: it recorded none.
        name: name or path of the data.

    Raises:
        ValueError: the data have changed; the message says in what.
    """
    words = {"images": _WORDS, "graph": _WORDS_OF_GRAPH, "text": _WORDS_OF_TEXT}[part]
    for key, now in (facts or {}).items():
        if before is not None and before.get(key, now) != now and key not in _ORDERS:
            raise ValueError(
                f"{name} has other {words.get(key, 'bytes')} than when the run in {folder} was started; "
                f"restore {'them' if part == 'images' else 'the file'}, or train in another folder"
            )


def require_same_order(facts: Facts | None, before: Facts | None, name: str, folder: Path) -> None:
    """Raise an error if the training images are in another order; arguments as in :func:`require_same_data`.

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
