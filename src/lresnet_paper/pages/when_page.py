"""The page that says where hyperbolic space helped in our measurements, where it did not, and what to use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lresnet.train.results import read_results
from lresnet_paper.comparisons import Comparison, compare_methods
from lresnet_paper.pages.hierarchy_page import compare_losses
from lresnet_paper.pages.text_tables import difference_text
from lresnet_paper.render import render
from lresnet_paper.results import Result, aggregate, cell_key, read_runs
from lresnet_paper.untrained import best_untrained

__all__ = ["when_page", "when_page_of_folder"]

_BASELINE = "euclidean"
_GRAPHS, _TRANSFORMER, _IMAGES, _OOD = "gnn", "graph_transformer", "image_classification", "ood"
_WITHOUT_COLUMN = ("features", "disease/lp", "legacy-without_column")

Key = tuple[str, str, str]
Line = Mapping[str, Any]


def when_page_of_folder(results: Path) -> str:
    """Return the page in Markdown, from the files of results in a folder."""
    images = results / "hierarchy_images.jsonl"
    return when_page(read_runs(results), list(read_results(images)) if images.exists() else [])


def when_page(runs: Sequence[Line], hierarchy_images: Iterable[Line] = ()) -> str:
    """Return the page in Markdown.

    Args:
        runs: lines of results of the paper's tables.
        hierarchy_images: lines of the study of hierarchy-aware losses.

    Raises:
        ValueError: no cell has runs of the Lorentz network and of its Euclidean baseline.
    """
    compared = compare_methods(runs)
    by_key: dict[Key, Comparison] = {_key(one): one for one in compared if one.method == _BASELINE}
    if not by_key:
        raise ValueError("no cell has runs of the Lorentz network and of its Euclidean baseline to compare")
    results = aggregate(runs)
    untrained = best_untrained(results)
    return render(
        "when.md.j2",
        links=[_row(one, results, untrained) for one in _of(by_key, (_GRAPHS, "features"), "/lp")],
        nodes=[_row(one, results, untrained) for one in _of(by_key, (_GRAPHS,), "/nc")],
        transformers=[_row(one, results, untrained) for one in _of(by_key, (_TRANSFORMER,), "")],
        images=[_row(one, results, untrained) for one in _of(by_key, (_IMAGES,), "")],
        counts={
            "links": _counts(_of(by_key, (_GRAPHS, "features"), "/lp")),
            "nodes": _counts(_of(by_key, (_GRAPHS,), "/nc")),
            "transformers": _counts(_of(by_key, (_TRANSFORMER,), "")),
            "images": _counts(_of(by_key, (_IMAGES,), "")),
            "ood": _counts(_of(by_key, (_OOD,), "")),
            "class_trees": _class_tree_counts(hierarchy_images),
        },
        difference={key: difference_text(one.difference, one.verdict) for key, one in by_key.items()},
        mean={(one.table, one.cell, one.protocol, one.method): one.mean for one in results},
        untrained=untrained,
        without_column=_WITHOUT_COLUMN,
        depths=[
            _row(one, results, untrained)
            for one in sorted(
                _of(by_key, ("oversmoothing",), ""), key=lambda one: (one.protocol, cell_key(*_key(one)[:2]))
            )
        ],
    )


def _key(one: Comparison) -> Key:
    return one.table, one.cell, one.protocol


def _depth_order(one: Comparison) -> tuple[Any, ...]:
    return one.protocol, cell_key(one.table, one.cell)


def _of(by_key: Mapping[Key, Comparison], tables: Sequence[str], part: str) -> list[Comparison]:
    """Return the comparisons of some tables whose cell contains ``part``, without features that give the answer."""
    return [
        one
        for (table, cell, protocol), one in by_key.items()
        if table in tables and part in cell and not protocol.endswith("column_only")
    ]


def _row(
    one: Comparison, results: Iterable[Result], untrained: Mapping[tuple[str, str], Result]
) -> dict[str, str | bool]:
    own = {found.method: found for found in results if (found.table, found.cell, found.protocol) == _key(one)}
    reference = untrained.get((one.cell, one.protocol))
    return {
        "cell": one.cell,
        "protocol": one.protocol,
        "lorentz": f"{own['lorentz'].mean:.1f} ± {own['lorentz'].std:.1f}",
        "euclidean": f"{own[_BASELINE].mean:.1f} ± {own[_BASELINE].std:.1f}",
        "difference": difference_text(one.difference, one.verdict),
        "untrained": "" if reference is None else f"{reference.mean:.1f}",
        "below_untrained": reference is not None and own["lorentz"].mean < reference.mean,
    }


def _counts(compared: Iterable[Comparison]) -> dict[str, int]:
    return _summary(one.verdict for one in compared)


def _class_tree_counts(lines: Iterable[Line]) -> dict[str, int]:
    """Count the verdicts on the Lorentz network against its baseline with the same loss."""
    return _summary(one.verdict for one in compare_losses(lines) if one.ours[1] == one.theirs[1])


def _summary(verdicts: Iterable[str]) -> dict[str, int]:
    found = Counter(verdicts)
    return {"better": found["better"], "worse": found["worse"], "all": found.total()}
