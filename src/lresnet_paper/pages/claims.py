"""The paper's sentences that a measurement can answer, with our answers.

The sentences stand under ``[claims]`` in ``tables.toml``; :data:`JUDGES` has a rule for each that results of
ours can answer, and the others are not measured yet. A claim about all cells of a table is answered as soon as the
cells measured so far settle it. The features of disease/nc were not at hand: a tree made here stands in for it among
the graphs, which is said, and no answer waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from lresnet_paper.pages.claim import (
    HOLDS,
    IN_PART,
    NO_DIFFERENCE,
    NOT_MEASURED,
    NOTHING,
    REFUTED,
    Answer,
    Claim,
    Measured,
)
from lresnet_paper.pages.graph_claims import GRAPH_JUDGES
from lresnet_paper.pages.image_claims import IMAGE_JUDGES
from lresnet_paper.pages.residual_claims import RESIDUAL_JUDGES
from lresnet_paper.results import Figure
from lresnet_paper.tables import paper_tables

__all__ = [
    "HOLDS",
    "IN_PART",
    "JUDGES",
    "NOT_MEASURED",
    "NO_DIFFERENCE",
    "REFUTED",
    "Claim",
    "answer_claims",
    "claims_markdown",
]

JUDGES: dict[str, Callable[[Measured], Answer]] = GRAPH_JUDGES | IMAGE_JUDGES | RESIDUAL_JUDGES

_NUMERICS = {"method", "dtype", "norm", "ours", "floor", "textbook"}


def answer_claims(
    figures: Sequence[Figure],
    numerics: Iterable[Mapping[str, Any]] = (),
    runs: Sequence[Mapping[str, Any]] = (),
    benchmarks: Sequence[Mapping[str, Any]] = (),
) -> list[Claim]:
    """Every claim of the paper, in its order, with the verdict that the results allow and what it rests on.

    Example:
        >>> answer_claims([])[0]
        Claim(topic='gnn', sentence='lorentz is best in 8 of 10 cells', verdict='not measured yet', evidence='')
    """
    measured = Measured(figures, [line for line in numerics if line.keys() >= _NUMERICS], runs, benchmarks)
    sentences = paper_tables()["claims"]
    return [Claim(topic, text, *_judge(text, measured)) for topic, own in sentences.items() for text in own]


def _judge(sentence: str, measured: Measured) -> Answer:
    return JUDGES[sentence](measured) if sentence in JUDGES else NOTHING


def claims_markdown(claims: Sequence[Claim]) -> str:
    """A section for docs/: a row a claim."""
    lines = ["## The paper's claims", "", "| about | claim | answer | by what |", "|---|---|---|---|"]
    lines += [f"| {c.topic} | {c.sentence} | {c.verdict} | {c.evidence} |" for c in claims]
    return "\n".join(lines) + "\n"
