"""What the table ood says in sentences: does the Lorentz residual help detection, and do the scores of its geometry?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lresnet_paper.pages.ood_figures import (
    Gap,
    Runs,
    ood_runs,
    residual_gaps,
    score_gaps,
    training_residual_gaps,
    training_score_gaps,
)
from lresnet_paper.pages.planned import missing_sentences

__all__ = ["Said", "ood_answers", "other_definitions"]

_OTHERS = ("euclidean", "space")
_GEOMETRY = {"lorentz": ("origin_distance", "boundary_distance")}
_TWINS = {"euclidean": ("euclidean_norm", "euclidean_boundary_distance")}
_CAVEAT = "Paired over seeds, 95 % intervals (Student's t), not corrected for their number"


class Said(NamedTuple):
    """A sentence for those in a hurry, and what it rests on."""

    headline: str
    detail: str = ""


def ood_answers(runs: Iterable[Mapping[str, Any]]) -> list[Said]:
    """Which runs are still missing; then, protocol by protocol, what was found.

    Example:
        >>> ood_answers([])
        []
    """
    lines = list(runs)
    found = ood_runs(lines)
    answers: list[Said | None] = [Said(sentence) for sentence in missing_sentences("ood", lines)]
    for protocol in sorted({cell.protocol for cell in found}):
        own = {cell: methods for cell, methods in found.items() if cell.protocol == protocol}
        answers += [_residual(protocol, own), _scores(protocol, own)]
    return [answer for answer in answers if answer]


def _residual(protocol: str, runs: Runs) -> Said | None:
    gaps = {other: training_residual_gaps(runs, other) for other in _OTHERS}
    if not gaps["euclidean"]:
        return None
    parts = [f"minus {other}: {_listed(own)}" for other, own in gaps.items() if own]
    cells = [f"against {other}, {_by_set(runs, other)}" for other, own in gaps.items() if own]
    fewest = min(gap.n for own in gaps.values() for gap in own.values())
    power = f"; {fewest} seeds show large differences only" if fewest <= 3 else ""
    signs = [gap.sign for gap in residual_gaps(runs, "euclidean").values()]
    return Said(
        f"Does the Lorentz residual help detection ({protocol})? Against its Euclidean twin, over the three sets "
        f"together: {_verdict(gaps['euclidean'])}; set by set better in {signs.count(1)} and worse in "
        f"{signs.count(-1)} of {len(signs)} cells.",
        f"AUROC, the mean over the three sets, Lorentz {'; '.join(parts)}. Set by set: {'; '.join(cells)}. "
        f"{_CAVEAT}{power}.{_stand_ins(runs)}",
    )


def _stand_ins(runs: Runs) -> str:
    """Which sets are not the paper's."""
    noted = {cell.ood for cell, methods in runs.items() for own in methods.values() for run in own if run.get("note")}
    return f" Stand-ins, see the notes: {', '.join(sorted(noted))}." if noted else ""


def _by_set(runs: Runs, other: str) -> str:
    """Better and worse by AUROC, and by FPR95, of which less is better."""
    auroc = [gap.sign for gap in residual_gaps(runs, other).values()]
    fpr95 = [-gap.sign for gap in residual_gaps(runs, other, "fpr95").values()]
    return (
        f"AUROC better in {auroc.count(1)} of {len(auroc)} cells and worse in {auroc.count(-1)}, "
        f"FPR95 better in {fpr95.count(1)} and worse in {fpr95.count(-1)}"
    )


def _scores(protocol: str, runs: Runs) -> Said | None:
    ours = _of_scores(runs, _GEOMETRY)
    if not ours:
        return None
    twins = _of_scores(runs, _TWINS)
    verdicts = [f"{name}: {verdict}" for name, verdict, _ in ours]
    beside = f" Those of the twin's geometry on its own networks: {_joined(twins)}." if twins else ""
    return Said(
        f"Do the scores of the hyperbolic geometry help, in place of the energy ({protocol})? {'; '.join(verdicts)}.",
        "AUROC minus the energy's on the same Lorentz networks, the mean over the three sets: "
        f"{_joined(ours)}.{beside}",
    )


def _joined(found: Sequence[tuple[str, str, str]]) -> str:
    return "; ".join(f"{name} {figures}" for name, _, figures in found)


def _of_scores(runs: Runs, scores: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str]]:
    """Name, verdict and figures of each score that networks have."""
    found = []
    for method, names in scores.items():
        for name in names:
            if gaps := training_score_gaps(runs, method, name):
                signs = [gap.sign for gap in score_gaps(runs, method, name).values()]
                cells = f"better in {signs.count(1)} of {len(signs)} cells, worse in {signs.count(-1)}"
                found.append((name, _verdict(gaps), f"{_listed(gaps)} ({cells})"))
    return found


def _verdict(gaps: Mapping[str, Gap]) -> str:
    signs = [gap.sign for gap in gaps.values()]
    better, worse = signs.count(1), signs.count(-1)
    if not (better or worse):
        return "no difference shown"
    words = [f"{word} in {count}" for word, count in (("better", better), ("worse", worse)) if count]
    return f"{' and '.join(words)} of {len(signs)} trainings"


def _listed(gaps: Mapping[str, Gap]) -> str:
    return ", ".join(f"{name} {gap.mean:+.2f} ± {gap.high - gap.mean:.2f} (n = {gap.n})" for name, gap in gaps.items())


def other_definitions(runs: Iterable[Mapping[str, Any]]) -> str:
    """How far FPR95 by its second definition, and AUROC on whole sets, are from what the sheets show."""
    lines = [run for methods in ood_runs(runs).values() for own in methods.values() for run in own]
    metrics = [run["metrics"] for run in lines if "full" in run.get("metrics", {})]
    pairs = [(m["fpr95"] - m["fpr95_first"], m["auroc"] - m["full"]["auroc"]) for m in metrics]
    if not pairs:
        return ""
    fpr95, auroc = (max(map(abs, own)) for own in zip(*pairs, strict=True))
    return (
        f"`results/ood.jsonl` also has, for every run, FPR95 at the first threshold with a recall of at least 95 % (at "
        f"most {fpr95:.2f} points from what is shown, which is at the recall closest to it), AUROC on whole sets (at "
        f"most {auroc:.2f} points away), and AUPR on whole sets and with the images from elsewhere as the positives, "
        "which the numbers of images change by much."
    )
