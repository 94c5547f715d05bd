"""Histograms of scores: how far the test images of a network overlap with out-of-distribution images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lresnet.metrics import ood_metrics
from lresnet.plots.picture import INK, save_picture
from lresnet.runs.names import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch import Tensor

    from lresnet.runs.detection import Scores

__all__ = ["draw_score_histograms"]

_INSIDE, _OUTSIDE = "#0072B2", "#D55E00"
_BINS = 60
_PANEL = (3.6, 2.5)  # inches
_LONGEST_NAME = 20  # characters of a set's name above a panel
_LABELS = {
    "energy": "negative energy",
    "softmax": "largest probability",
    "logit": "largest logit",
    "origin_distance": "distance to the origin",
    "euclidean_norm": "Euclidean norm",
    "boundary_distance": "distance to the farthest hyperplane",
    "prototype_distance": "minus the distance to the nearest prototype",
    "euclidean_boundary_distance": "Euclidean distance to the farthest hyperplane",
}


def draw_score_histograms(path: str | Path, found: Scores) -> Path:
    """Draw one row of panels per out-of-distribution set, one panel per score, and write the picture to ``path``.

    The histogram of the test images is hatched, that of the set is an outline; both have area one. The dashed line is
    the threshold that 95 % of the test images reach. All panels of a score share their bins. The bins cover the test
    images and every set except their outermost thousandths, which count in the first and last bin.

    Returns:
        The path of the picture.

    Raises:
        ValueError: There is no set, or a score is not finite.
    """
    from matplotlib.figure import Figure

    if not found.outside:
        raise ValueError("there is no set to draw; name at least one")
    rows, columns = len(found.outside), len(found.inside)
    figure = Figure(figsize=(_PANEL[0] * max(columns, 2), _PANEL[1] * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    bins = {
        score: _bins([inside, *(ood.scores[score] for ood in found.outside)]) for score, inside in found.inside.items()
    }
    for row, (name, _, outside) in zip(panels, found.outside, strict=True):
        for axes, (score, inside) in zip(row, found.inside.items(), strict=True):
            auroc = ood_metrics(inside, outside[score])["auroc"]  # before drawing: it rejects non-finite scores
            _draw_panel(axes, inside, outside[score], bins[score])
            title = f"{_shortened(one_line(name))}, all {len(outside[score]):,}: AUROC {auroc:.1f} %"
            axes.set_title(title, fontsize=9.5, color=INK, parse_math=False)  # a name may contain $
            axes.set_xlabel(_LABELS.get(score, score), fontsize=8.8, color=INK)
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=3, frameon=False, fontsize=9
    )
    return save_picture(figure, path)


def _shortened(name: str) -> str:
    """Return the end of a name that is too long for its panel."""
    return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"


def _draw_panel(axes: Axes, inside: Tensor, outside: Tensor, bins: list[float]) -> None:
    own, other = (_numbers(scores).clip(bins[0], bins[-1]) for scores in (inside, outside))
    axes.hist(
        own,
        bins,
        density=True,
        histtype="stepfilled",
        facecolor="#DCEBF4",
        edgecolor=_INSIDE,
        hatch="////",
        linewidth=1.0,
        label="test images",
    )
    axes.hist(
        other, bins, density=True, histtype="step", color=_OUTSIDE, linewidth=1.8, label="out-of-distribution images"
    )
    threshold = np.sort(own)[len(own) // 20]  # the same as in the metric fpr95_first
    axes.axvline(threshold, color=INK, linestyle=(0, (4, 2)), linewidth=1.1, label="95 % of the test images are above")
    axes.set_yticks([])
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _bins(kinds: Sequence[Tensor]) -> list[float]:
    low, high = (
        combine(np.quantile(_numbers(kind), q) for kind in kinds) for combine, q in ((min, 0.001), (max, 0.999))
    )
    if high - low <= _BINS * np.spacing(max(abs(low), abs(high))):  # (nearly) one value: float64 has no edges between
        low, high = low - 0.5, high + 0.5
    edges: list[float] = np.linspace(low, high, _BINS + 1).tolist()
    return edges


def _numbers(scores: Tensor) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = scores.double().cpu().numpy()
    return numbers
