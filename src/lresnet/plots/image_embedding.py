"""Embedding of test images by a trained network: in the Poincaré disk, or in a plane for vectors."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lresnet.plots.embedding import disk_points
from lresnet.plots.node_names import draw_names, short_name
from lresnet.plots.picture import INK, save_picture
from lresnet.plots.poincare_disk import CLASS_COLOURS, class_colour, class_marker, draw_disk, view_radius
from lresnet.runs.embedding import Embedding, embed_items, embed_test_images
from lresnet.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["ImagePoints", "draw_image_points", "image_figure", "image_points", "shade"]

_TEXT = "#666666"
_SHOWN = 2000  # images; more points cover each other
_FEW_CLASSES = 14  # up to this number the legend has one column, and classes are not named in the picture
_ROWS, _MOST_COLUMNS = 34, 3  # of a legend of many classes
# Colours of classes 0 to 6, 7 to 13 and 14 to 20: plain, mixed with black, and mixed with white. With five markers, 105
# classes have signs of their own.
_SHADES = ((0.0, 1.0), (0.0, 0.5), (1.0, 0.55))
_THUMBNAIL = 26.0  # points, the longer side
_NOTE_WIDTH, _TITLE_WIDTH = 38, 28  # characters per line


@dataclass(frozen=True, eq=False)
class ImagePoints:
    """Test images in the unit Poincaré disk or in a plane.

    Args:
        title: Title of the picture.
        points: [N, 2].
        labels: [N], class numbers from 0.
        classes: Names of the classes.
        is_disk: Whether the points lie in the Poincaré disk; otherwise in a plane.
        note: How the points were mapped, and how many of the images they are.
        images: Pixels of the images, uint8 [N, H, W, C]; None: there are no thumbnails.
    """

    title: str
    points: NDArray[np.float64]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    is_disk: bool
    note: str
    images: NDArray[np.uint8] | None = None


def image_points(run: Run, count: int = _SHOWN) -> ImagePoints:
    """Embed test images of a run and map their points to two dimensions.

    The points are those before the head. Hyperbolic ones are mapped by hyperbolic PCA, with their centroid at the
    centre of the disk; vectors by ordinary PCA.

    Args:
        run: A finished run on images, or on a data set of the user's own with test data.
        count: Largest number of images, drawn at random but always the same ones.

    Raises:
        ValueError: The run is on a graph, ``count`` is below 2, or the images have changed.
    """
    if count < 2:
        raise ValueError(f"images must be at least 2, got {count}")
    if run.record.on_dataset:
        found = embed_items(run)
        total, numbers = len(found), _drawn(len(found), count)
        found_points, labels = found.points[numbers], found.labels
        assert labels is not None
        labels = labels[numbers]
        pixels = None
    else:
        total = len(run.images.test)
        numbers = _drawn(total, count)
        found = embed_test_images(run, numbers.tolist())
        found_points, labels = found.points, found.labels
        test: Any = run.images.test
        pixels = (test.read(numbers) if hasattr(test, "read") else test.images[numbers]).numpy()
    assert labels is not None
    points, note = _plane(found_points, found)
    many = (
        f"{len(points):,} of {total:,} test images, chosen at random"
        if len(points) < total
        else f"{total:,} test images"
    )
    return ImagePoints(
        title=f"{Path(run.record.data_name).name}, {run.record.method}, seed {run.record.seed}",
        points=points,
        labels=labels.numpy(),
        classes=found.classes,
        is_disk=found.manifold is not None,
        note=f"{many}; each point is the input of the network's head. {note}",
        images=pixels,
    )


def draw_image_points(path: str | Path, shown: ImagePoints, thumbnails: int = 0) -> Path:
    """Draw the images, see :func:`image_figure`, and write the picture to ``path`` (.png, .svg or .pdf).

    Returns:
        The path of the picture.
    """
    return save_picture(image_figure(shown, thumbnails), path)


def image_figure(shown: ImagePoints, thumbnails: int = 0) -> Figure:
    """Draw points by class; with many classes, the names of classes stand in the picture too.

    Points close to the centre of the disk are shown in a zoomed view, and the note in the picture says so.

    Args:
        thumbnails: Number of images to draw at their points, spread over the picture.

    Raises:
        ValueError: The number is negative, or the images are unknown.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    if thumbnails < 0:
        raise ValueError(f"thumbnails must be at least 0, got {thumbnails}")
    if thumbnails and shown.images is None:
        raise ValueError("there are no thumbnails of a data set of your own; draw the points without them")
    count, classes = len(shown.points), len(shown.classes)
    figure = Figure(figsize=(9.8, 6.4))
    axes = figure.add_axes((0.01, 0.015, 0.64, 0.97))
    size = float(np.clip(9000 / count, 7, 40))
    notes = [shown.note]
    if shown.is_disk:
        radius = view_radius(shown.points)
        colours = ListedColormap([shade(k) for k in range(shown.labels.min(), shown.labels.max() + 1)])
        draw_disk(axes, shown.points, None, shown.labels, sizes=size, cmap=colours, radius=radius)
        if radius < 1:
            notes.append(
                f"Zoomed: the dashed circle is {2 * np.arctanh(radius):.2g} radii of curvature from the centre, the "
                "boundary of the disk is infinitely far."
            )
    else:
        _draw_plane(axes, shown, size)
    if thumbnails:
        _draw_thumbnails(axes, shown, thumbnails)
    elif classes > _FEW_CLASSES:
        named = _name_classes(axes, shown)
        if named < len(np.unique(shown.labels)):
            notes.append(f"{named} classes have their names at their means, where there is room.")
    _draw_legend(figure.add_axes((0.67, 0.015, 0.32, 0.97)), shown, " ".join(notes))
    return figure


def shade(label: int) -> str:
    """Return the colour of class ``label``: one of seven, plain, dark or light; colours repeat after 21 classes.

    Example:
        >>> shade(0), shade(7)
        ('#0072b2', '#003959')
    """
    from matplotlib.colors import to_hex, to_rgb

    towards, share = _SHADES[label // len(CLASS_COLOURS) % len(_SHADES)]
    red, green, blue = (share * value + (1 - share) * towards for value in to_rgb(class_colour(label)))
    return to_hex((red, green, blue))


def _drawn(total: int, count: int) -> torch.Tensor:
    order = np.random.RandomState(0).permutation(total)[:count]
    return torch.from_numpy(np.sort(order))


def _plane(points: torch.Tensor, found: Embedding) -> tuple[NDArray[np.float64], str]:
    """Return points [N, 2] and a sentence on how they were mapped."""
    if found.manifold is not None:
        return disk_points(points, found.manifold.cpu(), "images")
    wide = points.double()
    centred = wide - wide.mean(0)
    if wide.shape[1] <= 2:
        return torch.nn.functional.pad(centred, (0, 2 - wide.shape[1])).numpy(), ""
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    plane = torch.nn.functional.pad(centred @ axes[:2].T, (0, 2 - len(axes[:2])))
    plane = plane * torch.where(plane.pow(3).sum(0) < 0, -1.0, 1.0)  # the sign of an axis is arbitrary
    total = float(centred.square().sum())
    kept = 100 * float(plane.square().sum()) / total if total > 0 else 100.0
    return plane.numpy(), f"Two of {wide.shape[1]} dimensions, chosen by PCA: they keep {kept:.1f} % of the variance."


def _draw_plane(axes: Axes, shown: ImagePoints, size: float) -> None:
    for label in np.unique(shown.labels):
        own = shown.points[shown.labels == label]
        style: dict[str, Any] = {"marker": class_marker(int(label)), "color": shade(int(label))}
        axes.scatter(own[:, 0], own[:, 1], s=size, edgecolors="white", linewidths=0.4, zorder=3, **style)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set(xticks=[], yticks=[])
    axes.margins(0.04)
    for side in axes.spines.values():
        side.set(color=_TEXT, linewidth=0.8)


def _name_classes(axes: Axes, shown: ImagePoints) -> int:
    """Write the names of classes at the means of their points, large classes first; return how many have room."""
    present, counts = np.unique(shown.labels, return_counts=True)
    means = np.stack([shown.points[shown.labels == label].mean(0) for label in present])
    order = np.argsort(-counts, kind="stable").tolist()
    names = [shown.classes[label] for label in present]
    return len(draw_names(axes, means, names, order, len(present), np.zeros(len(present))))


def _draw_thumbnails(axes: Axes, shown: ImagePoints, count: int) -> None:
    """Draw images at points that are far from each other, with a frame in the colour of their class."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    assert shown.images is not None
    zoom = _THUMBNAIL / max(shown.images.shape[1:3])
    for number in _spread(shown.points, count):
        pixels = shown.images[number]
        picture = OffsetImage(pixels[..., 0] if pixels.shape[-1] == 1 else pixels, zoom=zoom, cmap="gray")
        frame = {"edgecolor": shade(int(shown.labels[number])), "linewidth": 1.5}
        at = (float(shown.points[number, 0]), float(shown.points[number, 1]))
        axes.add_artist(AnnotationBbox(picture, at, pad=0.1, bboxprops=frame, zorder=6))


def _spread(points: NDArray[np.float64], count: int) -> list[int]:
    """Return numbers of points: first the one nearest to the mean, then always the one farthest from those chosen."""
    chosen = [int(np.square(points - points.mean(0)).sum(-1).argmin())]
    nearest = np.square(points - points[chosen[0]]).sum(-1)
    for _ in range(min(count, len(points)) - 1):
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.square(points - points[chosen[-1]]).sum(-1))
    return chosen


def _draw_legend(axes: Axes, shown: ImagePoints, note: str) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    title = "\n".join(textwrap.wrap(short_name(shown.title, longest=3 * _TITLE_WIDTH), _TITLE_WIDTH))
    axes.text(0, 0.96, title, fontsize=12, fontweight="bold", color=INK, va="top", parse_math=False)
    lines = "\n".join(textwrap.wrap(note, _NOTE_WIDTH))
    axes.text(0, 0.02, lines, fontsize=8.6, color=_TEXT, va="bottom", linespacing=1.4, parse_math=False)
    top = 0.96 - 0.045 * (title.count("\n") + 1) - 0.02
    bottom = 0.03 + 0.027 * (lines.count("\n") + 1) + 0.02
    _draw_classes(axes, shown.classes, top, bottom)


def _draw_classes(axes: Axes, classes: Sequence[str], top: float, bottom: float) -> None:
    """List the classes between two heights: in one column, or in up to three of small print."""
    count = len(classes)
    columns = 1 if count <= _FEW_CLASSES else min(_MOST_COLUMNS, -(-count // 20))
    rows = min(_ROWS, -(-count // columns))
    shown = min(count, rows * columns)
    step = min(0.042 if columns == 1 else 0.028, (top - bottom) / (rows + (shown < count)))
    font = {1: 10.0, 2: 7.6, 3: 6.6}[columns] * min(1.0, step / (0.042 if columns == 1 else 0.02))
    width, longest = 1 / columns, {1: 28, 2: 18, 3: 13}[columns]
    for label, name in enumerate(classes[:shown]):
        x, y = label // rows * width, top - step * (label % rows + 0.5)
        style: dict[str, Any] = {"marker": class_marker(label), "color": shade(label)}
        axes.scatter(x + 0.04 * width + 0.01, y, s=5.5 * font, edgecolors="white", linewidths=0.3, **style)
        text = short_name(name, longest=longest)
        axes.text(x + 0.1 * width + 0.015, y, text, fontsize=font, color=INK, va="center", parse_math=False)
    if shown < count:
        y = top - step * (rows + 0.5)
        axes.text(0.03, y, f"and {count - shown} more", fontsize=font, color=_TEXT, va="center")
