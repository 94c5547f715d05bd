"""Is the Lorentz residual better? Paired over seeds: same seed, same split, one difference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from scipy import stats

__all__ = ["PairedDifference", "paired_differences"]


@dataclass(frozen=True)
class PairedDifference:
    """Lorentz minus another method, over the seeds both have; percentage points."""

    table: str
    cell: str
    protocol: str
    method: str
    mean: float
    interval: tuple[float, float]
    """95 % interval of the mean, by Student's t."""
    n: int

    @property
    def verdict(self) -> str:
        """What the interval shows of the Lorentz residual."""
        low, high = self.interval
        return "better" if low > 0 else "worse" if high < 0 else "no difference shown"


def paired_differences(records: Iterable[dict[str, Any]]) -> list[PairedDifference]:
    """One difference for each cell, protocol and method that shares at least two runs with the Lorentz residual."""
    values: dict[tuple[str, str, str], dict[str, dict[tuple[Any, Any], float]]] = {}
    for r in records:
        if r.get("stage", "final") == "final" and r.get("value") is not None:
            place = values.setdefault((r["table"], r["cell"], r["protocol"]), {})
            place.setdefault(r["method"], {})[r["seed"], r.get("split")] = r["value"]
    found = []
    for (table, cell, protocol), methods in values.items():
        ours = methods.get("lorentz", {})
        for method, theirs in methods.items():
            shared = sorted(ours.keys() & theirs.keys(), key=str)
            if method != "lorentz" and len(shared) > 1:
                gaps = [ours[key] - theirs[key] for key in shared]
                found.append(_difference(table, cell, protocol, method, gaps))
    return found


def _difference(table: str, cell: str, protocol: str, method: str, gaps: list[float]) -> PairedDifference:
    mean = sum(gaps) / len(gaps)
    error = float(stats.sem(gaps)) * float(stats.t.ppf(0.975, len(gaps) - 1))
    return PairedDifference(table, cell, protocol, method, mean, (mean - error, mean + error), len(gaps))
