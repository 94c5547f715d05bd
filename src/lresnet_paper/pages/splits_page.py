"""The page that shows how much of a published difference is the split: the same networks on two splits."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from lresnet.data.split_names import SPLITS
from lresnet.runs.statistics import Estimate, Summary, summarise, welch_difference
from lresnet_paper.comparisons import compare_methods
from lresnet_paper.pages.text_tables import difference_text
from lresnet_paper.plan import final_runs, recipe
from lresnet_paper.render import render
from lresnet_paper.results import NoResults

__all__ = ["TABLE", "SplitEffect", "published_figures", "split_effects", "splits_page"]

TABLE = "splits"
"""Name of the table in the recipes and in the lines of results."""

CELLS = ("cora/nc", "pubmed/nc")
METHODS = {"lorentz": "Lorentz", "euclidean": "Euclidean"}
FIXED, DRAWN = "public", "class-random"

Run = Mapping[str, Any]


class SplitEffect(NamedTuple):
    """One network on one graph: its test accuracy on the public split and on random ones."""

    cell: str
    method: str
    public: Summary
    """Over seeds on the one split."""
    random: Summary
    """Over splits, each with a seed of its own."""
    lowest: float
    highest: float
    """Of the single random splits."""
    difference: Estimate | None
    """Random minus public, Welch's interval; None for fewer than two runs on a side."""


def split_effects(runs: Iterable[Run]) -> list[SplitEffect]:
    """Return the effect of the split for every network that has runs on both splits."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for run in _final(runs):
        values.setdefault((run["cell"], run["method"], run["protocol"]), []).append(run["value"])
    found = []
    for cell in CELLS:
        for method in METHODS:
            public, random = (values.get((cell, method, split), []) for split in (FIXED, DRAWN))
            if public and random:
                sides = summarise(random), summarise(public)
                effect = SplitEffect(
                    cell, method, sides[1], sides[0], min(random), max(random), welch_difference(*sides)
                )
                found.append(effect)
    return found


@functools.cache
def published_figures() -> Sequence[Mapping[str, Any]]:
    """Return the published accuracies with their splits."""
    text = resources.files("lresnet_paper").joinpath("splits_published.toml").read_text(encoding="utf-8")
    figures: list[dict[str, Any]] = tomllib.loads(text)["figure"]
    return figures


def splits_page(lines: Sequence[Run]) -> str:
    """Return the page in Markdown.

    Args:
        lines: lines of ``results/splits.jsonl``.

    Raises:
        NoResults: no network has runs on both splits.
    """
    effects = split_effects(lines)
    if not effects:
        raise NoResults("no network has runs on both splits; `python -m lresnet_paper reproduce splits` makes them")
    final = _final(lines)
    ours = {(one.cell, one.method, split): side for one in effects for split, side in _sides(one).items()}
    return render(
        "splits.md.j2",
        effects=effects,
        across=_published_differences(),
        planned=(planned := _planned_runs()),
        missing=planned - len(final),
        ranges=[one.highest - one.lowest for one in effects],
        methods=METHODS,
        rules={name: SPLITS[name].rule for name in (FIXED, DRAWN)},
        published=[
            {
                "figure": figure,
                "ours": [ours.get((figure["cell"], method, figure["split"])) for method in METHODS],
            }
            for figure in published_figures()
        ],
        within=[
            {"cell": one.cell, "split": one.protocol, "difference": difference_text(one.difference, one.verdict)}
            for one in compare_methods(final)
        ],
        settings={cell: recipe("gnn", cell, recipe(TABLE, cell, FIXED)["like_protocol"])["chosen"] for cell in CELLS},
        minutes=sum(run["seconds"] for run in final) / 60,
        runs=len(final),
        hardware=sorted({run["hardware"] for run in final}),
    )


def _final(runs: Iterable[Run]) -> list[Run]:
    """Return the finished final runs of the study."""
    return [run for run in runs if run["table"] == TABLE and run["stage"] == "final" and run.get("value") is not None]


def _planned_runs() -> int:
    """Return the number of runs in the recipes of the study."""
    recipes = [(cell, split) for cell in CELLS for split in (FIXED, DRAWN)]
    return sum(len(final_runs(TABLE, cell, Path(), protocol=split)) for cell, split in recipes)


def _published_differences() -> list[dict[str, Any]]:
    """Return, by cell, the published figure on the random split minus the one on the public split."""
    found = []
    for cell in CELLS:
        own = {figure["split"]: figure for figure in published_figures() if figure["cell"] == cell}
        fixed, drawn = own[FIXED], own[DRAWN]
        difference = drawn["value"] - fixed["value"]
        found.append({"cell": cell, "difference": difference, "drawn": drawn["network"], "fixed": fixed["network"]})
    return found


def _sides(effect: SplitEffect) -> dict[str, Summary]:
    return {FIXED: effect.public, DRAWN: effect.random}
