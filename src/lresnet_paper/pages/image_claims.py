"""What the paper says of images: accuracy, robustness, and what the norm of an embedding tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lresnet_paper.pages.claim import HOLDS, IN_PART, NOT_MEASURED, NOTHING, REFUTED, Answer, Measured
from lresnet_paper.pages.graph_claims import largest_gain
from lresnet_paper.pages.ood_figures import Gap, first_protocol, ood_runs, residual_gaps, spearman
from lresnet_paper.pages.planned import is_begun

__all__ = ["IMAGE_JUDGES"]

_TRAININGS = 4  # CIFAR-10 and CIFAR-100, ResNet-20 and ResNet-32


def _images(measured: Measured) -> Answer:
    better, evidence = largest_gain(measured, "image_classification", 0.5)
    if evidence and is_begun("image_classification", "fast", measured.runs):
        better, evidence = NOT_MEASURED, f"{evidence}, with trainings to come"
    robust, words = _robust(measured)
    found = {better, robust}
    if found >= {REFUTED, HOLDS} or found >= {REFUTED, IN_PART}:
        verdict = IN_PART
    else:
        verdict = next(word for word in (NOT_MEASURED, REFUTED, IN_PART, HOLDS) if word in found)
    return verdict, "; ".join(filter(None, (evidence, words or (evidence and "robustness not measured yet"))))


def _robust(measured: Measured) -> Answer:
    """At detecting images from elsewhere than the twin: in most of the twelve cells, or in more than it is worse in."""
    runs = first_protocol(ood_runs(measured.runs))
    gaps = {other: [gap.sign for gap in residual_gaps(runs, other).values()] for other in ("euclidean", "space")}
    evidence = [
        f"than {other} in {own.count(1)} of {len(own)} cells, worse in {own.count(-1)}"
        for other, own in gaps.items()
        if own
    ]
    if not evidence:
        return NOTHING
    better, worse, cells = gaps["euclidean"].count(1), gaps["euclidean"].count(-1), len(gaps["euclidean"])
    verdict = NOT_MEASURED if cells < 12 else HOLDS if better > 6 else IN_PART if better > worse else REFUTED
    return verdict, f"AUROC of detection on stand-ins, paired over seeds: better {'; '.join(evidence)}"


def _norm_and_confidence(measured: Measured) -> Answer:
    runs = ood_runs(measured.runs)
    ours, twin = spearman(runs, "lorentz"), spearman(runs, "euclidean")
    if not ours:
        return NOTHING
    positive = sum(gap.sign == 1 for gap in ours.values())
    verdict = HOLDS if positive == len(ours) else IN_PART if positive else REFUTED
    if len(ours) < _TRAININGS:
        verdict = NOT_MEASURED
    beside = f"; of the Euclidean twin {_correlations(twin)}" if twin else ""
    if twin and all(gap.sign == 1 for gap in twin.values()):
        beside += ", so it is not particular to hyperbolic networks"
    what = "Spearman's correlation over the test images, the mean over networks and its 95 % interval"
    return verdict, f"{what}: {_correlations(ours)}{beside}"


def _correlations(found: Mapping[str, Gap]) -> str:
    return ", ".join(f"{name} {gap.mean:+.2f} ({gap.low:+.2f} to {gap.high:+.2f})" for name, gap in found.items())


IMAGE_JUDGES: dict[str, Callable[[Measured], Answer]] = {
    "up to 0.5 % better, and more robust": _images,
    "embedding norm correlates with confidence": _norm_and_confidence,
}
