"""A sentence of the paper that a measurement can answer, the answers there are, and what they may rest on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from lresnet_paper.results import Figure
from lresnet_paper.tables import paper_columns

__all__ = [
    "HOLDS",
    "IN_PART",
    "NOTHING",
    "NOT_AT_HAND",
    "NOT_MEASURED",
    "NO_DIFFERENCE",
    "REFUTED",
    "STAND_IN",
    "Answer",
    "Claim",
    "Measured",
    "nothing_to_come",
]

HOLDS, IN_PART, REFUTED, NOT_MEASURED = "holds", "holds in part", "does not hold", "not measured yet"
NO_DIFFERENCE = "no difference shown"

NOT_AT_HAND, STAND_IN = "disease/nc", "disease_tree/nc"
"""The features of one cell were not at hand where results were made: a tree of ours stands in for it."""

Answer = tuple[str, str]
"""The verdict, and what it rests on."""
NOTHING: Answer = NOT_MEASURED, ""


class Claim(NamedTuple):
    """A sentence of the paper and what we found."""

    topic: str
    sentence: str
    verdict: str
    evidence: str


class Measured(NamedTuple):
    """All that a claim may be judged by."""

    figures: Sequence[Figure]
    numerics: Sequence[Mapping[str, Any]]
    """Lines of ``results/numerics.jsonl``."""
    runs: Sequence[Mapping[str, Any]] = ()
    """The runs behind the figures."""
    benchmarks: Sequence[Mapping[str, Any]] = ()
    """Lines of ``results/benchmarks.jsonl``."""

    def cells(self, table: str) -> dict[str, dict[str, Figure]]:
        """The figures of a table by cell and name, the stand-in under its own name where there is no other.

        Of several protocols that with the most methods; of equals the paper's, legacy, else the first by name.
        """
        own = [figure for figure in self.figures if figure.table == table and figure.n]
        found: dict[str, dict[str, dict[str, Figure]]] = {}
        for figure in sorted(own, key=lambda figure: (figure.protocol != "legacy", figure.protocol)):
            found.setdefault(figure.cell, {}).setdefault(figure.protocol, {})[figure.name] = figure
        if NOT_AT_HAND in found:
            found.pop(STAND_IN, None)
        return {cell: max(protocols.values(), key=len) for cell, protocols in found.items()}


def nothing_to_come(table: str, cells: Collection[str]) -> bool:
    """Whether ``cells`` are all that the paper's table has, as far as their data were published."""
    return {*cells, NOT_AT_HAND} >= set(paper_columns(table))
