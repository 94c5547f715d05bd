"""Predictions of a trained network: classes of images and of nodes, and scores of links."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lresnet.data import GraphLevelTask, HierarchyTask, LinkTask, NodeTask
from lresnet.data.augmentation import normalise
from lresnet.data.formats.image_folder import SUFFIXES, fill_frame, images_below, open_image
from lresnet.geometry import Lorentz
from lresnet.models.image_model import ImageModel
from lresnet.models.pretrained import Pretrained
from lresnet.nn.pair_distance import lorentz_distance2
from lresnet.runs.names import did_you_mean
from lresnet.runs.node_inputs import NodeInputs, inputs_of_graph, inputs_of_run
from lresnet.runs.own_network import head_input
from lresnet.runs.run import Run
from lresnet.runs.text import require_no_text
from lresnet.train.graph_classification import graph_logits
from lresnet.train.image_classification import class_scores, mirrored_scores
from lresnet.train.link_prediction import kappa_of_model

if TYPE_CHECKING:
    from lresnet.runs.dataset_runs import ItemPrediction

__all__ = [
    "GraphPrediction",
    "ImageBatch",
    "ImageNetwork",
    "NodePrediction",
    "Prediction",
    "Predictions",
    "image_files",
    "image_network",
    "predict",
    "predict_graphs",
    "predict_images",
    "predict_nodes",
    "read_batches",
    "score_links",
]

_BATCH = 256  # images that go through the network at once


@dataclasses.dataclass(frozen=True)
class ImageNetwork:
    """A trained image classifier and the images that it takes.

    Args:
        model: the network, in eval mode: a model of lresnet, or the user's own.
        height, width, channels: sizes of its images.
        classes: class names by label.
        mean, std: pixel statistics of each channel, with pixels in [0, 1].
        flip_test: whether the logits are the mean over an image and its mirror image.
    """

    model: Any
    height: int
    width: int
    channels: int
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip_test: bool

    @torch.no_grad()
    def probabilities(self, images: Tensor) -> Tensor:
        """Return class probabilities ``[N, classes]`` of images uint8 ``[N, H, W, C]``, on the images' device."""
        scores = mirrored_scores if self.flip_test else class_scores
        return scores(self.model, images, self.mean, self.std).softmax(-1)

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """Return the points ``[N, n]`` that the head takes, for images uint8 ``[N, H, W, C]``, not mirrored."""
        return class_scores(lambda pixels: head_input(self.model, pixels).points, images, self.mean, self.std)

    @torch.no_grad()
    def space(self) -> Lorentz | None:
        """Return the manifold of the points of :meth:`embed`, on the CPU and fixed; None: they are vectors."""
        if isinstance(self.model, ImageModel):
            manifold = None if self.model.euclidean else self.model.manifold
        else:  # which part of a user's network is its head shows when it runs
            device = next(self.model.parameters()).device
            blank = torch.zeros(1, self.height, self.width, self.channels, dtype=torch.uint8, device=device)
            manifold = head_input(self.model, normalise(blank, self.mean, self.std)).manifold
        return None if manifold is None else Lorentz(float(manifold.K))


class ImageBatch(NamedTuple):
    """Images that were read together."""

    files: list[Path]
    sizes: list[tuple[int, int]]
    """Width and height of each file's image."""
    pixels: Tensor
    """uint8 ``[N, H, W, C]``, in the network's size."""


class Prediction(NamedTuple):
    """The most probable classes of one image, the best first."""

    file: Path
    size: tuple[int, int]
    """Width and height of the file's image."""
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Predictions of several images.

    Args:
        size: width and height of the network's images.
        images: predictions in the order of the files.
        skipped: files that could not be read as images, and why.
    """

    size: tuple[int, int]
    images: list[Prediction]
    skipped: list[tuple[Path, str]]

    @property
    def resized(self) -> int:
        """Number of images whose size was not the network's."""
        return sum(image.size != self.size for image in self.images)


class NodePrediction(NamedTuple):
    """The most probable classes of one node, the best first."""

    node: int
    classes: tuple[int, ...]
    probabilities: tuple[float, ...]
    name: str
    """Name of the node; its number if the nodes have no names."""
    class_names: tuple[str, ...]
    """Names of the classes; their numbers if they have no names."""


class GraphPrediction(NamedTuple):
    """The most probable classes of one graph, the best first."""

    graph: int
    classes: tuple[int, ...]
    probabilities: tuple[float, ...]
    name: str
    """Name of the graph; its number if the graphs have no names."""
    class_names: tuple[str, ...]
    """Names of the classes; their numbers if they have no names."""


def image_network(run: Run) -> ImageNetwork:
    """Return the network of a run on images.

    Raises:
        ValueError: the run is on a graph, or its files do not belong together.
    """
    facts = run.record.images
    require_no_text(run, "images")
    if run.record.on_dataset:
        raise ValueError(f"{run.place} holds a run on a data set of your own; this needs images that lresnet reads")
    if facts is None:
        raise ValueError(f"{run.place} holds a run on the graph {run.record.data_name}; this needs one on images")
    try:
        return _image_network(run.model, facts, run.train_config.augment.flip_test)
    except KeyError as error:
        raise ValueError(f"{run.place}/run.json does not describe its images: no {error}") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{run.place}/run.json does not fit the model beside it: {error}") from error


def predict(
    run: Run, items: Sequence[Any] | Tensor, *, top: int, graph: Any
) -> list[NodePrediction] | list[GraphPrediction] | list[ItemPrediction] | Predictions | Tensor:
    """Predict by the task of a run, see :meth:`lresnet.Run.predict`."""
    require_no_text(run, "items to predict")
    on_images = run.record.images is not None or run.record.on_dataset
    if graph is not None and (on_images or not isinstance(run.task, NodeTask)):
        raise ValueError(f"{run.place} does not classify nodes, as graph= needs; links and embed take a graph too")
    if isinstance(items, str | Path):
        raise TypeError(f"predict takes a list of items, got {items!r}; write [{items!r}]")
    is_batch = isinstance(items, Tensor) or hasattr(items, "__array_interface__")
    if run.record.on_dataset or (run.record.images is not None and is_batch):
        from lresnet.runs.dataset_runs import predict_inputs

        return predict_inputs(run, items, top=top)
    if on_images:  # needs no task: the record describes the images
        return predict_images(run, [Path(str(path)) for path in items], top=top)
    by_name = len(items) > 0 and not isinstance(items, Tensor) and all(isinstance(item, str) for item in items)
    if by_name and isinstance(run.task, NodeTask | GraphLevelTask):
        chosen: list[int | str] = [str(item) for item in items]
    else:
        numbers = _numbers(items)
        if isinstance(run.task, LinkTask):
            return score_links(run, numbers)
        chosen = numbers.flatten().tolist()
    if isinstance(run.task, GraphLevelTask):
        return predict_graphs(run, chosen, top=top)
    return predict_nodes(run, chosen, top=top, graph=graph)


def _numbers(items: Sequence[Any] | Tensor) -> Tensor:
    try:
        numbers = torch.as_tensor(items)
    except (TypeError, ValueError) as error:
        raise TypeError(f"predict takes whole numbers of nodes, got {items!r}") from error
    if numbers.numel() and (numbers.is_floating_point() or numbers.dtype == torch.bool):
        raise TypeError(f"predict takes whole numbers of nodes, got {items!r}")
    return numbers


def image_files(paths: Sequence[Path]) -> list[Path]:
    """Return the given files, and for a folder what :func:`~lresnet.data.formats.image_folder.images_below` finds.

    A file that is given twice, or by its folder too, is listed once.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: no path is given, or a folder holds no images.
    """
    if not paths:
        raise ValueError("no images given; name image files, or folders of them")
    files: dict[str, Path] = {}
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"no file {path}")
        found = images_below(path) if path.is_dir() else [path]
        if not found:
            raise ValueError(f"{path} holds no images; image files end with {', '.join(sorted(SUFFIXES))}")
        for file in found:
            files.setdefault(os.path.abspath(file), file)  # noqa: PTH100 - resolve() would merge links to one file
    return list(files.values())


def predict_images(run: Run, paths: Sequence[Path], *, top: int = 1) -> Predictions:
    """Predict the classes of image files.

    An image of another size is cropped and resized (:func:`~lresnet.data.formats.image_folder.fill_frame`); colours or
    an alpha channel that the network does not take are dropped. Files that cannot be read are listed in
    :attr:`Predictions.skipped`.

    Args:
        paths: image files, or folders of them, see :func:`image_files`.
        top: number of classes per image; all, if there are fewer.

    Raises:
        FileNotFoundError: an image does not exist.
        ValueError: the run is not on images, there are no images, or the probabilities are not finite.
    """
    _require_top(top)
    network = image_network(run)
    result = Predictions((network.width, network.height), [], [])
    for batch in read_batches(image_files(paths), network, result.skipped):
        probabilities = network.probabilities(batch.pixels.to(run.device))
        _require_finite(probabilities, run)
        best = probabilities.topk(min(top, len(network.classes)))
        rows = zip(batch.files, batch.sizes, best.values.tolist(), best.indices.tolist(), strict=True)
        for file, size, values, labels in rows:
            names = tuple(network.classes[label] for label in labels)
            result.images.append(Prediction(file, size, names, tuple(values)))
    return result


def predict_nodes(
    run: Run, nodes: Sequence[int | str] = (), *, top: int = 1, graph: Any = None
) -> list[NodePrediction]:
    """Predict the classes of nodes.

    Args:
        nodes: numbers or names of the nodes; none: all of them.
        top: number of classes per node; all, if there are fewer.
        graph: a new graph, see :func:`lresnet.runs.node_inputs.inputs_of_graph`; None: the run's own.

    Raises:
        ValueError: the run does not classify nodes, a node does not exist, or the probabilities are not finite.

    Example: ``predict_nodes(Run.open("runs/chameleon_nc-sgformer-lorentz-0"), [0, 1])`` predicts the first two nodes.
    """
    _require_top(top)
    task = run.task
    if not isinstance(task, NodeTask):
        others = {LinkTask: "or --links to rank links", HierarchyTask: "or --parents TERM, or `lresnet ancestors`"}
        instead = others.get(type(task), "e.g. cora/nc")
        raise ValueError(
            f"{run.place} holds a run on {run.record.data_name}; this needs one that classifies nodes, {instead}"
        )
    inputs = inputs_of_run(run) if graph is None else inputs_of_graph(run, graph)
    wanted = [_node_number(node, inputs) for node in nodes] or range(inputs.num_nodes)
    probabilities = inputs.outputs(run).softmax(-1)
    _require_finite(probabilities, run)
    found = probabilities[torch.tensor(wanted, device=probabilities.device)].topk(min(top, task.num_classes))
    rows = zip(wanted, found.indices.tolist(), found.values.tolist(), strict=True)
    return [
        NodePrediction(
            node, tuple(classes), tuple(values), inputs.names[node], tuple(inputs.classes[i] for i in classes)
        )
        for node, classes, values in rows
    ]


def predict_graphs(run: Run, graphs: Sequence[int | str] = (), *, top: int = 1) -> list[GraphPrediction]:
    """Predict the classes of the graphs that a run was trained, validated and tested on.

    Args:
        graphs: numbers or names of the graphs; none: all of them.
        top: number of classes per graph; all, if there are fewer.

    Raises:
        ValueError: the run does not classify graphs, a graph does not exist, or the probabilities are not finite.
    """
    _require_top(top)
    task = run.task
    if not isinstance(task, GraphLevelTask):
        raise ValueError(f"{run.place} holds a run on {run.record.data_name}; this needs one that classifies graphs")
    names = task.names or tuple(map(str, range(task.num_graphs)))
    wanted = [_graph_number(graph, names, run) for graph in graphs] or list(range(task.num_graphs))
    with torch.no_grad():
        probabilities = graph_logits(run.model.eval(), task.to(run.device)).softmax(-1)
    _require_finite(probabilities, run)
    found = probabilities[torch.tensor(wanted, device=probabilities.device)].topk(min(top, task.num_classes))
    classes = task.classes or tuple(map(str, range(task.num_classes)))
    rows = zip(wanted, found.indices.tolist(), found.values.tolist(), strict=True)
    return [
        GraphPrediction(graph, tuple(labels), tuple(values), names[graph], tuple(classes[label] for label in labels))
        for graph, labels, values in rows
    ]


def _graph_number(graph: int | str, names: tuple[str, ...], run: Run) -> int:
    if isinstance(graph, int) and 0 <= graph < len(names):
        return graph
    if graph in names:
        return names.index(str(graph))
    if isinstance(graph, str) and graph.isdecimal() and int(graph) < len(names):
        return int(graph)
    question = did_you_mean(str(graph), names)
    raise ValueError(
        f"{run.record.data_name} has no graph {graph!r}; {question}Its graphs are numbered 0 to {len(names) - 1}"
    )


def _node_number(node: int | str, inputs: NodeInputs) -> int:
    if isinstance(node, str):
        return inputs.number(node)
    if not 0 <= node < inputs.num_nodes:
        raise ValueError(f"there is no node {node}; {inputs.source} has nodes 0 to {inputs.num_nodes - 1}")
    return node


def score_links(run: Run, pairs: Tensor) -> Tensor:
    """Score pairs of nodes: the negative squared distance of their points, higher for a more likely edge.

    Args:
        pairs: numbers of the nodes, int64 ``[2, m]``.

    Returns:
        Scores, float32 ``[m]``, on the CPU.

    Raises:
        ValueError: the run does not predict links, or a node does not exist.
    """
    task = run.task
    if not isinstance(task, LinkTask):
        raise ValueError(f"{run.place} holds a run on {run.record.data_name}; this needs one that predicts links")
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        raise ValueError(f"pairs must have the shape [2, m], one column per pair, got {list(pairs.shape)}")
    inputs = inputs_of_run(run)
    for node in pairs.flatten().tolist():
        _node_number(node, inputs)
    model: Any = run.model  # any model that embeds nodes
    with torch.no_grad():
        points = inputs.outputs(run)
        scores = -lorentz_distance2(points, pairs.to(points.device), kappa_of_model(model, points))
    _require_finite(scores, run)
    return scores.float().cpu()


def read_batches(files: Sequence[Path], network: ImageNetwork, skipped: list[tuple[Path, str]]) -> Iterator[ImageBatch]:
    """Yield the images of ``files`` in the network's size; unreadable files go to ``skipped``, with the reasons."""
    for start in range(0, len(files), _BATCH):
        read = list(_read(files[start : start + _BATCH], network, skipped))
        if read:
            names, sizes, pixels = zip(*read, strict=True)
            yield ImageBatch(list(names), list(sizes), torch.from_numpy(np.stack(pixels)))


def _image_network(model: torch.nn.Module, facts: dict[str, Any], flip_test: bool) -> ImageNetwork:
    classes = tuple(facts["classes"])
    if isinstance(model, ImageModel):
        _require_fit(model, facts)
    elif isinstance(model, Pretrained):
        raise ValueError(f"{type(model).__name__} is not a network for images")
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
        flip_test,
    )


def _require_fit(model: ImageModel, facts: dict[str, Any]) -> None:
    outputs, classes = model.config["num_classes"], len(facts["classes"])
    if model.in_channels != facts["channels"]:
        raise ValueError(f"the model takes images of {model.in_channels} channels, the run's have {facts['channels']}")
    if outputs != classes:
        raise ValueError(f"the model has {outputs} classes, the run has {classes}")


def _read(
    files: Sequence[Path], network: ImageNetwork, skipped: list[tuple[Path, str]]
) -> Iterator[tuple[Path, tuple[int, int], NDArray[np.uint8]]]:
    """Yield each readable file with its size and its pixels ``[H, W, C]`` in the network's size."""
    for file in files:
        try:
            image = open_image(file, "L" if network.channels == 1 else "RGB")
        except Exception as error:  # decoders raise nearly anything at a damaged file
            skipped.append((file, " ".join(str(error).split())))
            continue
        pixels = np.asarray(fill_frame(image, network.width, network.height))
        yield file, image.size, pixels.reshape(network.height, network.width, network.channels)


def _require_top(top: int) -> None:
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")


def _require_finite(values: Tensor, run: Run) -> None:
    if not values.isfinite().all():
        raise ValueError(f"the predictions of {run.place} are not finite, so its network cannot be used")
