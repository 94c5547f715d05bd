"""Is the Lorentz residual better? Paired over seeds: same seed, same split, one difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lresnet.runs.statistics import paired_difference
from lresnet_paper.results import method_key

__all__ = ["PairedDifference", "paired_differences", "paired_sentence"]


@dataclass(frozen=True)
class PairedDifference:
    """Lorentz, or who is asked about, minus another method, over the seeds both have; percentage points."""

    table: str
    cell: str
    protocol: str
    method: str
    mean: float
    interval: tuple[float, float]
    """95 % interval of the mean, by Student's t."""
    n: int

    @property
    def half_width(self) -> float:
        """Half the interval: the difference is the mean give or take this much."""
        return self.interval[1] - self.mean

    @property
    def verdict(self) -> str:
        """What the interval shows of the one that is asked about."""
        low, high = self.interval
        return "better" if low > 0 else "worse" if high < 0 else "no difference shown"


def paired_differences(records: Iterable[Mapping[str, Any]], of: str = "lorentz") -> list[PairedDifference]:
    """One difference for each cell, protocol and method that shares at least two runs with the method ``of``."""
    values: dict[tuple[str, str, str], dict[str, dict[tuple[Any, Any], float]]] = {}
    for r in records:
        if r.get("stage", "final") == "final" and r.get("value") is not None:
            own = values.setdefault((r["table"], r["cell"], r["protocol"]), {})
            own.setdefault(r["method"], {})[r["seed"], r.get("split")] = r["value"]
    found = []
    for place, methods in values.items():
        for method, theirs in methods.items():
            estimate = None if method == of else paired_difference(methods.get(of, {}), theirs)
            if estimate is not None:
                interval = estimate.low, estimate.high
                found.append(PairedDifference(*place, method, estimate.mean, interval, estimate.n))
    return found


def paired_sentence(differences: Sequence[PairedDifference]) -> str:
    """The differences of one cell in a line, by verdict; empty without any.

    Example:
        >>> paired_sentence([PairedDifference("gnn", "cora/nc", "legacy", "none", 1.0, (0.5, 1.5), 10)])
        'Lorentz minus the other, paired (n = 10): better than none (+1.00 ± 0.50).'
    """
    if not differences:
        return ""
    parts = []
    for verdict, words in (("better", "better than"), ("worse", "worse than"), ("no difference shown", "")):
        own = sorted((d for d in differences if d.verdict == verdict), key=lambda d: method_key(d.method))
        shown = ", ".join(f"{d.method} ({d.mean:+.2f} ± {d.half_width:.2f})" for d in own)
        if shown:
            parts.append(f"{words or 'no difference shown to'} {shown}")
    fewest, most = min(d.n for d in differences), max(d.n for d in differences)
    number = str(most) if fewest == most else f"{fewest} to {most}"
    return f"Lorentz minus the other, paired (n = {number}): {'; '.join(parts)}."
