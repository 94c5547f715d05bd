"""How well a score tells images of the training's kind (in-distribution, ID) from others (out-of-distribution, OOD)."""

from __future__ import annotations

import torch
from torch import Tensor

from lresnet.metrics.checks import NonFiniteScores
from lresnet.metrics.ranking import average_precision, link_scores, roc_auc

__all__ = ["OOD_METRICS", "draw_size", "ood_metrics", "ood_metrics_by_draws"]

OOD_METRICS = ("fpr95", "fpr95_first", "auroc", "aupr", "aupr_out")
"""The keys of :func:`ood_metrics`; of ``fpr95`` and ``fpr95_first`` less is better."""


def ood_metrics(id_scores: Tensor, ood_scores: Tensor) -> dict[str, float]:
    r"""The five usual figures, in percent, of scores that are higher in distribution.

    ========== ====================================================================================================
    fpr95       The share of OOD that is taken for ID at the threshold whose ID recall is closest to 95 % (the
                paper's; Liu et al., NeurIPS 2020). Of two recalls equally close the higher one counts; of the
                thresholds with that recall, which differ by the OOD between two ID scores, the lowest, and for a
                recall of 100 % the lowest ID score.
    fpr95_first The same at the highest threshold whose ID recall is 95 % or more.
    auroc       How often an ID score is higher than an OOD score; a tie counts one half.
    aupr        Average precision with ID as the positives; by chance n_id / (n_id + n_ood).
    aupr_out    Average precision with OOD as the positives, found by low scores.
    ========== ====================================================================================================

    A threshold accepts the scores that equal it, so equal scores are accepted together, as in scikit-learn: the order
    of the input does not matter. All is counted on the device after sorts; the host waits once, for the result.

    Args:
        id_scores: ``[n]``, any floating point type.
        ood_scores: ``[m]``.

    Raises:
        ValueError: scores of another shape, or none of a kind.
        NonFiniteScores: some are not finite.

    Example:
        >>> figures = ood_metrics(torch.tensor([3.0, 2.0, 4.0]), torch.tensor([1.0, 2.5]))
        >>> {name: round(value, 1) for name, value in figures.items()}
        {'fpr95': 50.0, 'fpr95_first': 50.0, 'auroc': 83.3, 'aupr': 91.7, 'aupr_out': 83.3}
    """
    _require_scores(id_scores, ood_scores)
    return _named(_figures(*_alike(id_scores, ood_scores)))


def ood_metrics_by_draws(
    id_scores: Tensor,
    ood_scores: Tensor,
    draws: int = 10,
    share: int = 5,
    generator: torch.Generator | None = None,
) -> dict[str, float]:
    """The paper's protocol: :func:`ood_metrics` of all ID and a fifth as many OOD scores, the mean of ten draws.

    A draw takes ``n // share`` OOD scores without replacement; the whole set if it is smaller, and then all draws are
    the same.

    Args:
        id_scores: ``[n]``.
        ood_scores: ``[m]``.
        draws: how often.
        share: ID scores for each OOD score.
        generator: of the draws. One of the CPU draws the same for scores on any device.

    Returns:
        The means under their names, and the deviations over the draws as ``auroc_std`` and so on; one draw has none.

    Raises:
        ValueError: as :func:`ood_metrics`, or ``draws`` or ``share`` below 1.

    Example:
        >>> figures = ood_metrics_by_draws(torch.arange(10.0) + 5, torch.arange(8.0), draws=3)
        >>> "auroc" in figures, "auroc_std" in figures
        (True, True)
    """
    _require_scores(id_scores, ood_scores)
    for name, value in (("draws", draws), ("share", share)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    inside, outside = _alike(id_scores, ood_scores)
    each = draw_size(len(inside), len(outside), share)
    where = inside.device if generator is None else generator.device
    figures = []
    for _ in range(draws):  # one by one: the orders of many draws would not fit in memory
        drawn = torch.rand(len(outside), generator=generator, device=where).argsort()[:each]
        figures.append(_figures(inside, outside[drawn.to(inside.device)]))
    by_draw = torch.stack(figures)
    means = _named(by_draw.mean(0))
    return means if draws == 1 else means | {f"{name}_std": value for name, value in _named(by_draw.std(0)).items()}


def draw_size(n_id: int, n_ood: int, share: int = 5) -> int:
    """How many OOD scores a draw has, of ``n_ood``: a ``share``-th of ``n_id``, at least one.

    Example:
        >>> draw_size(10_000, 26_032), draw_size(10_000, 1_200)
        (2000, 1200)
    """
    return min(n_ood, max(1, n_id // share))


def _figures(inside: Tensor, outside: Tensor) -> Tensor:
    """``[5]``, float64, between 0 and 1, in the order of :data:`OOD_METRICS`; nothing waits for the device."""
    scores, labels = link_scores(inside, outside)
    ranked = (roc_auc(scores, labels), average_precision(scores, labels), average_precision(-scores, 1 - labels))
    return torch.stack([*_false_positives(inside, outside), *ranked])


def _false_positives(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    """The share of ``outside`` that is accepted at a recall closest to 95 %, and at the first of 95 % or more."""
    ordered, n = inside.sort().values, len(inside)
    missed = torch.searchsorted(ordered, ordered)  # ID scores below each threshold, itself an ID score
    # |recall - 0.95| in units of 1 / (20 n): integers, so that equal ones are equal. The first minimum misses fewest.
    lost = missed.take((20 * (n - missed) - 19 * n).abs().argmin())  # an index in brackets would wait for the device
    # The lowest threshold of this recall lies just above the ID scores that it misses.
    best_missed = ordered.take((lost - 1).clamp(min=0))
    closest = torch.where(lost > 0, outside > best_missed, outside >= ordered[0])
    first = outside >= ordered[n // 20]  # the highest threshold that misses n / 20 or fewer
    return closest.double().mean(), first.double().mean()


def _named(figures: Tensor) -> dict[str, float]:
    return dict(zip(OOD_METRICS, (100 * figures).tolist(), strict=True))


def _alike(id_scores: Tensor, ood_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the wider of their types, where comparing them is exact."""
    dtype = torch.promote_types(id_scores.dtype, ood_scores.dtype)
    return id_scores.detach().to(dtype), ood_scores.detach().to(dtype)


def _require_scores(id_scores: Tensor, ood_scores: Tensor) -> None:
    for kind, scores in (("in-distribution", id_scores), ("out-of-distribution", ood_scores)):
        if scores.dim() != 1 or not scores.is_floating_point():
            raise ValueError(f"{kind} scores are {scores.dtype} {list(scores.shape)}; give floating point ones [n]")
        if len(scores) == 0:
            raise ValueError(f"there are no {kind} scores; both kinds are needed")
        finite = scores.isfinite()
        if not finite.all():
            at = int(finite.int().argmin())
            raise NonFiniteScores(
                f"{kind} score {at} is {float(scores[at])}; scores must be finite (has training diverged?)"
            )
