"""Is the Lorentz residual better? Paired over seeds: same seed, same split, one difference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lresnet.runs.run_settings import method_name, settings_apart
from lresnet.runs.statistics import mean_interval
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
    settings: str = ""
    """Of a user's own runs: in what the settings of the two are not the same."""

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
    """One difference for each cell, protocol and method that shares at least two runs with the method ``of``.

    Where a user has runs of ``of`` with several settings, none of them is the one to compare with. (In tables of the
    paper each method has the settings that the same search chose for it.)
    """
    configs: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    values: dict[tuple[str, str, str], dict[str, dict[tuple[Any, Any], float]]] = {}
    for r in records:
        if r.get("stage", "final") == "final" and r.get("value") is not None:
            place = values.setdefault((r["table"], r["cell"], r["protocol"]), {})
            place.setdefault(method_name(r), {})[r["seed"], r.get("split")] = r["value"]
            if r["table"] == "train":
                configs.setdefault((r["table"], r["cell"], r["protocol"]), {})[method_name(r)] = r.get("config", {})
    found = []
    for (table, cell, protocol), methods in values.items():
        ours = methods.get(of, {})
        for method, theirs in methods.items():
            shared = sorted(ours.keys() & theirs.keys(), key=str)
            if method != of and len(shared) > 1:
                gaps = [ours[key] - theirs[key] for key in shared]
                own = configs.get((table, cell, protocol), {})
                apart = settings_apart(own.get(of, {}), own.get(method, {}))
                found.append(_difference(table, cell, protocol, method, gaps, apart))
    return found


def _difference(
    table: str, cell: str, protocol: str, method: str, gaps: list[float], settings: str
) -> PairedDifference:
    found = mean_interval(gaps)
    assert found is not None  # there are two gaps at least
    return PairedDifference(table, cell, protocol, method, found.mean, (found.low, found.high), found.n, settings)


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
        shown = ", ".join(f"{d.method} ({d.mean:+.2f} ± {d.half_width:.2f}{_settings(d)})" for d in own)
        if shown:
            parts.append(f"{words or 'no difference shown to'} {shown}")
    fewest, most = min(d.n for d in differences), max(d.n for d in differences)
    number = str(most) if fewest == most else f"{fewest} to {most}"
    return f"Lorentz minus the other, paired (n = {number}): {'; '.join(parts)}."


def _settings(difference: PairedDifference) -> str:
    return f"; other settings: {difference.settings}" if difference.settings else ""
