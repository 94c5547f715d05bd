"""What a trained network sees in a user's images: class names and probabilities."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data.formats.image_folder import SUFFIXES, fill_frame, images_below, open_image
from lresnet.models import LorentzResNet, from_pretrained
from lresnet.runs.folder import Record, finished_run, run_of, usable_device
from lresnet.train import NodeClassification
from lresnet.train.image_classification import class_scores, mirrored_scores
from lresnet_paper.run import build

__all__ = [
    "ImageBatch",
    "ImageNetwork",
    "NodePrediction",
    "Prediction",
    "Predictions",
    "image_files",
    "load_network",
    "predict",
    "predict_nodes",
    "read_batches",
]


_TOGETHER = 256  # images that go through the network at once


@dataclasses.dataclass(frozen=True)
class ImageNetwork:
    """A trained network and what it was trained on.

    Args:
        model: in eval mode.
        height, width, channels: of its images.
        classes: names, by label.
        mean, std: of each channel, with pixels in [0, 1].
        flip_test: whether the run judges by an image and its mirror image.
    """

    model: LorentzResNet
    height: int
    width: int
    channels: int
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip_test: bool

    @torch.no_grad()
    def probabilities(self, images: Tensor) -> Tensor:
        """uint8 ``[N, H, W, C]`` -> ``[N, classes]``, on the images' device."""
        scores = mirrored_scores if self.flip_test else class_scores
        return scores(self.model, images, self.mean, self.std).softmax(-1)

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """The points that the head sees, uint8 ``[N, H, W, C]`` -> ``[N, n]``; images as they are, not mirrored."""
        return class_scores(self.model.embed, images, self.mean, self.std)


class ImageBatch(NamedTuple):
    """Images that were read together."""

    files: list[Path]
    sizes: list[tuple[int, int]]
    """Width and height of each file's image."""
    pixels: Tensor
    """uint8 ``[N, H, W, C]``, as the network takes them."""


class Prediction(NamedTuple):
    """Of one image, the most probable classes first."""

    file: Path
    size: tuple[int, int]
    """Width and height of the file's image."""
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Of several images.

    Args:
        size: width and height that the network takes.
        images: in the order of the files.
        skipped: files that could not be read as images, and why.
    """

    size: tuple[int, int]
    images: list[Prediction]
    skipped: list[tuple[Path, str]]

    @property
    def resized(self) -> int:
        """How many images had another size than the network takes."""
        return sum(image.size != self.size for image in self.images)


def load_network(folder: Path, device: torch.device | str = "cpu") -> ImageNetwork:
    """The network that ``lresnet train`` left in ``folder``.

    Raises:
        FileNotFoundError: there is no run in the folder.
        ValueError: the run has not finished, is none of images, or its files do not belong together.
    """
    record = finished_run(folder)
    facts = record.get("images")
    if facts is None:
        raise ValueError(f"{folder} holds a run on the graph {record['cell']}; this needs one on images")
    model = from_pretrained(folder / "model", device).eval()
    try:
        return _network(model, facts, record)
    except KeyError as error:
        raise ValueError(f"{folder}/run.json does not say what its images are: no {error}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{folder}/run.json does not fit the model beside it: {error}") from error


def image_files(paths: Sequence[Path]) -> list[Path]:
    """The files named, and for a folder what :func:`~lresnet.data.formats.image_folder.images_below` finds.

    A file that is named twice, or by its folder too, is there once.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: no path is given, or a folder has no images.
    """
    if not paths:
        raise ValueError("name image files, or folders with images")
    files: dict[str, Path] = {}
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"no file {path}")
        found = images_below(path) if path.is_dir() else [path]
        if not found:
            raise ValueError(f"{path} holds no images; they are told by their endings, {', '.join(sorted(SUFFIXES))}")
        for file in found:
            files.setdefault(os.path.abspath(file), file)  # noqa: PTH100 - resolve() would take links for one file
    return list(files.values())


def predict(folder: Path, paths: Sequence[Path], *, top: int = 1, device: str = "cpu") -> Predictions:
    """Class names and probabilities of images, by the network that ``lresnet train`` left in ``folder``.

    An image of another size is cut and resized to the network's
    (:func:`~lresnet.data.formats.image_folder.fill_frame`), one with colours or an alpha channel that the network does
    not know loses them. Files that cannot be read are left out and listed.

    Args:
        paths: image files, or folders of them, see :func:`image_files`.
        top: how many classes of each image; all, if there are fewer.
        device: see :func:`lresnet.runs.folder.usable_device`.

    Raises:
        FileNotFoundError: there is no run in the folder, or no such image.
        ValueError: the folder holds no finished run of images, there are no images, or the network's figures are not
            finite.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    place = usable_device(device)
    network = load_network(folder, place)
    result = Predictions((network.width, network.height), [], [])
    for batch in read_batches(image_files(paths), network, result.skipped):
        probabilities = network.probabilities(batch.pixels.to(place))
        if not probabilities.isfinite().all():
            raise ValueError(f"the probabilities that {folder} gives are not finite: its network cannot be used")
        best = probabilities.topk(min(top, len(network.classes)))
        rows = zip(batch.files, batch.sizes, best.values.tolist(), best.indices.tolist(), strict=True)
        for file, size, shares, labels in rows:
            names = tuple(network.classes[label] for label in labels)
            result.images.append(Prediction(file, size, names, tuple(shares)))
    return result


def read_batches(files: Sequence[Path], network: ImageNetwork, skipped: list[tuple[Path, str]]) -> Iterator[ImageBatch]:
    """The images of ``files``, fitted to the network; what cannot be read goes to ``skipped``, with the reason."""
    for start in range(0, len(files), _TOGETHER):
        read = list(_read(files[start : start + _TOGETHER], network, skipped))
        if read:
            names, sizes, pixels = zip(*read, strict=True)
            yield ImageBatch(list(names), list(sizes), torch.from_numpy(np.stack(pixels)))


def _network(model: torch.nn.Module, facts: Record, record: Record) -> ImageNetwork:
    if not isinstance(model, LorentzResNet):
        raise ValueError(f"{type(model).__name__} is no network for images")
    classes, outputs = tuple(facts["classes"]), model.config["num_classes"]
    if model.in_channels != facts["channels"]:
        raise ValueError(f"the model takes images of {model.in_channels} channels, the run's have {facts['channels']}")
    if outputs != len(classes):
        raise ValueError(f"the model tells {outputs} classes apart, the run has {len(classes)}")
    for name in ("height", "width"):
        if type(facts[name]) is not int or facts[name] < 1:
            raise ValueError(f"{name} is {facts[name]!r}, not a number of pixels")
    for name, least in (("mean", -math.inf), ("std", 0.0)):
        values = tuple(map(float, facts[name]))
        if len(values) != facts["channels"] or not all(least < value < math.inf for value in values):
            raise ValueError(f"{name} is {facts[name]!r}, not a number for each of {facts['channels']} channels")
    return ImageNetwork(
        model,
        facts["height"],
        facts["width"],
        facts["channels"],
        classes,
        tuple(facts["mean"]),
        tuple(facts["std"]),
        bool(record["config"].get("flip_test", False)),
    )


def _read(
    files: Sequence[Path], network: ImageNetwork, skipped: list[tuple[Path, str]]
) -> Iterator[tuple[Path, tuple[int, int], NDArray[np.uint8]]]:
    """Each readable file with its size and its pixels ``[H, W, C]`` as the network takes them."""
    for file in files:
        try:
            image = open_image(file, "L" if network.channels == 1 else "RGB")
        except Exception as error:  # decoders raise nearly anything at a damaged file
            skipped.append((file, " ".join(str(error).split())))
            continue
        pixels = np.asarray(fill_frame(image, network.width, network.height))
        yield file, image.size, pixels.reshape(network.height, network.width, network.channels)


class NodePrediction(NamedTuple):
    """Of one node, the most probable classes first."""

    node: int
    classes: tuple[int, ...]
    probabilities: tuple[float, ...]


def predict_nodes(
    folder: Path, nodes: Sequence[int] = (), *, top: int = 1, device: str = "cpu"
) -> list[NodePrediction]:
    """Classes of nodes, by the network that ``lresnet train`` left in ``folder``, of either model of graphs.

    Args:
        nodes: their numbers; none: all of them.
        top: how many classes of each node; all, if there are fewer.
        device: see :func:`lresnet.runs.folder.usable_device`.

    Raises:
        FileNotFoundError: there is no run in the folder.
        ValueError: the run has not finished or does not classify nodes, there is no such node, or the network's
            figures are not finite.

    Example: of the first two nodes, ``predict_nodes(Path("runs/chameleon_nc-sgformer-lorentz-0"), [0, 1])``
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    record, place = finished_run(folder), usable_device(device)
    _, objective, _ = build(run_of(record), place)
    if not isinstance(objective, NodeClassification):
        raise ValueError(
            f"{folder} holds a run on {record['cell']}; this needs one that classifies nodes, e.g. cora/nc"
        )
    count = objective.task.num_nodes
    for node in nodes:
        if not 0 <= node < count:
            raise ValueError(f"there is no node {node}: those of {record['cell']} are 0 to {count - 1}")
    model = from_pretrained(folder / "model", place).eval()
    with torch.no_grad():
        shares = objective.inputs.apply(model).softmax(-1)  # type: ignore[arg-type]
    if not shares.isfinite().all():
        raise ValueError(f"the probabilities that {folder} gives are not finite: its network cannot be used")
    wanted = list(nodes) or range(count)
    best = shares[torch.tensor(wanted, device=place)].topk(min(top, objective.task.num_classes))
    rows = zip(wanted, best.indices.tolist(), best.values.tolist(), strict=True)
    return [NodePrediction(node, tuple(classes), tuple(values)) for node, classes, values in rows]
