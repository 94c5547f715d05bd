"""Metrics of out-of-distribution (OOD) detection: how well a score separates in-distribution (ID) from OOD images."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.metrics.checks import NonFiniteScores
from lresnet.metrics.ranking import average_precision, link_scores, roc_auc

__all__ = ["OOD_METRICS", "draw_size", "ood_metrics", "ood_metrics_by_draws"]

OOD_METRICS = ("fpr95", "fpr95_first", "auroc", "aupr", "aupr_out")
"""The keys of :func:`ood_metrics`. Lower is better for ``fpr95`` and ``fpr95_first``, higher for the others."""


def ood_metrics(id_scores: Tensor, ood_scores: Tensor) -> dict[str, float]:
    r"""Return the five usual metrics, in percent, of scores that are higher for ID images.

    ========== ====================================================================================================
    fpr95       Share of OOD scores that are accepted as ID at the threshold whose ID recall is closest to 95 %
                (Liu et al., NeurIPS 2020). Of two equally close recalls the higher one is used. The thresholds with
                that recall differ by the OOD scores between two ID scores; the lowest one is used, or the lowest ID
                score for a recall of 100 %.
    fpr95_first The same share at the highest threshold whose ID recall is at least 95 %.
    auroc       How often an ID score is higher than an OOD score; a tie counts one half.
    aupr        Average precision with ID as positives; n_id / (n_id + n_ood) by chance.
    aupr_out    Average precision with OOD as positives, found by low scores.
    ========== ====================================================================================================

    A threshold accepts the scores that equal it. Equal scores are accepted together, as in scikit-learn, so the order
    of the input does not matter. Everything is counted on the device; the host synchronises once, for the result.

    Args:
        id_scores: ID scores ``[n]``, of any floating-point type.
        ood_scores: OOD scores ``[m]``.

    Raises:
        ValueError: Scores have another shape, or one kind is empty.
        NonFiniteScores: A score is not finite.

    Example:
        >>> metrics = ood_metrics(torch.tensor([3.0, 2.0, 4.0]), torch.tensor([1.0, 2.5]))
        >>> {name: round(value, 1) for name, value in metrics.items()}
        {'fpr95': 50.0, 'fpr95_first': 50.0, 'auroc': 83.3, 'aupr': 91.7, 'aupr_out': 83.3}
    """
    _require_scores(id_scores, ood_scores)
    return _named(_metrics(*_common_dtype(id_scores, ood_scores)))


def ood_metrics_by_draws(
    id_scores: Tensor,
    ood_scores: Tensor,
    draws: int = 10,
    share: int = 5,
    generator: torch.Generator | None = None,
) -> dict[str, float]:
    """Return :func:`ood_metrics` of all ID scores and a fifth as many OOD scores, averaged over ten random draws.

    A draw takes ``n // share`` OOD scores without replacement, or all of them if there are fewer; then all draws are
    equal.

    Args:
        id_scores: ID scores ``[n]``.
        ood_scores: OOD scores ``[m]``.
        draws: Number of draws.
        share: Number of ID scores per OOD score.
        generator: Generator of the draws. A CPU generator draws the same for scores on any device.

    Returns:
        The means, and the standard deviations over the draws as ``auroc_std`` etc. A single draw has no deviations.

    Raises:
        ValueError: As in :func:`ood_metrics`, or ``draws`` or ``share`` is below 1.

    Example:
        >>> metrics = ood_metrics_by_draws(torch.arange(10.0) + 5, torch.arange(8.0), draws=3)
        >>> "auroc" in metrics, "auroc_std" in metrics
        (True, True)
    """
    _require_scores(id_scores, ood_scores)
    for name, value in (("draws", draws), ("share", share)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    inside, outside = _common_dtype(id_scores, ood_scores)
    each = draw_size(len(inside), len(outside), share)
    where = inside.device if generator is None else generator.device
    rows = []
    for _ in range(draws):  # one at a time: the orders of many draws would not fit in memory
        drawn = torch.rand(len(outside), generator=generator, device=where).argsort()[:each]
        rows.append(_metrics(inside, outside[drawn.to(inside.device)]))
    by_draw = torch.stack(rows)
    means = _named(by_draw.mean(0))
    return means if draws == 1 else means | {f"{name}_std": value for name, value in _named(by_draw.std(0)).items()}


def draw_size(n_id: int, n_ood: int, share: int = 5) -> int:
    """Return the number of OOD scores in a draw: ``n_id // share``, at least 1 and at most ``n_ood``.

    Example:
        >>> draw_size(10_000, 26_032), draw_size(10_000, 1_200)
        (2000, 1200)
    """
    return min(n_ood, max(1, n_id // share))


def _metrics(inside: Tensor, outside: Tensor) -> Tensor:
    """Return the metrics ``[5]``, float64, between 0 and 1, in the order of :data:`OOD_METRICS`."""
    scores, labels = link_scores(inside, outside)
    ranked = (roc_auc(scores, labels), average_precision(scores, labels), average_precision(-scores, 1 - labels))
    return torch.stack([*_false_positives(inside, outside), *ranked])


def _false_positives(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    """Return the share of accepted OOD scores at the recall closest to 95 %, and at the first one of at least 95 %."""
    ordered, n = inside.sort().values, len(inside)
    missed = torch.searchsorted(
        ordered, ordered
    )  # number of ID scores below each threshold, which is itself an ID score
    # |recall - 0.95| in units of 1 / (20 n): exact integers. The first minimum misses the fewest ID scores.
    lost = missed.take((20 * (n - missed) - 19 * n).abs().argmin())  # indexing with brackets would synchronise
    # The lowest threshold with this recall is just above the ID scores that it misses.
    best_missed = ordered.take((lost - 1).clamp(min=0))
    closest = torch.where(lost > 0, outside > best_missed, outside >= ordered[0])
    first = outside >= ordered[n // 20]  # the highest threshold that misses at most n / 20
    return closest.double().mean(), first.double().mean()


def _named(metrics: Tensor) -> dict[str, float]:
    return dict(zip(OOD_METRICS, (100 * metrics).tolist(), strict=True))


def _common_dtype(id_scores: Tensor, ood_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Convert both to the wider of their types, in which their comparison is exact."""
    dtype = torch.promote_types(id_scores.dtype, ood_scores.dtype)
    return id_scores.detach().to(dtype), ood_scores.detach().to(dtype)


def _require_scores(id_scores: Tensor, ood_scores: Tensor) -> None:
    for kind, scores in (("in-distribution", id_scores), ("out-of-distribution", ood_scores)):
        if scores.dim() != 1 or not scores.is_floating_point():
            raise ValueError(f"{kind} scores are {scores.dtype} {list(scores.shape)}; they must be floating-point [n]")
        if len(scores) == 0:
            raise ValueError(
                f"there are no {kind} scores; both in-distribution and out-of-distribution scores are needed"
            )
        finite = scores.isfinite()
        if not finite.all():
            at = int(finite.int().argmin())
            raise NonFiniteScores(
                f"{kind} score {at} is {float(scores[at])}; scores must be finite (has training diverged?)"
            )
