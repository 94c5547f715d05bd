"""The page that says where hyperbolic space helped in our measurements, where it did not, and what to use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lresnet.runs.statistics import Estimate, Verdict, resampled_difference, summarise, verdicts
from lresnet.train.results import read_results
from lresnet_paper import ancestors
from lresnet_paper.comparisons import Comparison, compare_methods
from lresnet_paper.completion.study import read_plan as completion_plan
from lresnet_paper.pages.ancestors_page import registered_contrasts as ancestor_contrasts
from lresnet_paper.pages.completion_page import registered_contrasts as completion_contrasts
from lresnet_paper.pages.hierarchy_page import compare_losses
from lresnet_paper.pages.text_tables import difference_text
from lresnet_paper.render import render
from lresnet_paper.results import Result, aggregate, cell_key, read_runs
from lresnet_paper.untrained import best_untrained

__all__ = ["taxonomy_differences", "when_page", "when_page_of_folder"]

_BASELINE = "euclidean"
_GRAPHS, _TRANSFORMER, _IMAGES, _OOD = "gnn", "graph_transformer", "image_classification", "ood"
_TAXONOMY_TEST_PER_TRAIN = 0.10 / 0.85  # shares of lresnet.data.hierarchy_task
_WITHOUT_COLUMN = ("features", "disease/lp", "legacy-without_column")

Key = tuple[str, str, str]
Line = Mapping[str, Any]


def when_page_of_folder(results: Path) -> str:
    """Return the page in Markdown, from the files of results in a folder."""
    names = "hierarchy_images", "ancestors", "completion", "taxonomies"
    studies = {name: list(read_results(file)) for name in names if (file := results / f"{name}.jsonl").exists()}
    return when_page(read_runs(results), studies)


def when_page(runs: Sequence[Line], studies: Mapping[str, Sequence[Line]] | None = None) -> str:
    """Return the page in Markdown.

    Args:
        runs: lines of results of the paper's tables.
        studies: lines of our own studies by name: hierarchy_images, ancestors, completion and taxonomies.

    Raises:
        ValueError: no cell has runs of the Lorentz network and of its Euclidean baseline.
    """
    studies = studies or {}
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
            "class_trees": _class_tree_counts(studies.get("hierarchy_images", [])),
        },
        difference={key: difference_text(one.difference, one.verdict) for key, one in by_key.items()},
        mean={(one.table, one.cell, one.protocol, one.method): one.mean for one in results},
        untrained=untrained,
        without_column=_WITHOUT_COLUMN,
        sizes=_sizes(runs),
        ancestors=_ancestors(studies.get("ancestors", [])),
        completion=_completion(studies.get("completion", [])),
        taxonomies=_taxonomies(studies.get("taxonomies", [])),
        depths=[
            _row(one, results, untrained)
            for one in sorted(
                _of(by_key, ("oversmoothing",), ""), key=lambda one: (one.protocol, cell_key(*_key(one)[:2]))
            )
        ],
    )


def _key(one: Comparison) -> Key:
    return one.table, one.cell, one.protocol


def _sizes(runs: Iterable[Line]) -> str:
    """Return the layers and widths of the Lorentz networks in the table of graphs, as words."""
    own = [run["config"] for run in runs if (run["table"], run["method"]) == (_GRAPHS, "lorentz") and _is_final(run)]
    layers, widths = ([config[name] for config in own if name in config] for name in ("num_layers", "hidden"))
    return f"{min(layers)} to {max(layers)} layers, width {min(widths)} to {max(widths)}" if layers and widths else ""


def _is_final(run: Line) -> bool:
    return bool(run.get("stage", "final") == "final")


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


def _ancestors(lines: Sequence[Line]) -> dict[str, Any] | None:
    """Return the registered contrasts of the largest form that has been run."""
    plan = ancestors.read_plan()
    for form in ancestors.FORMS:
        if found := ancestor_contrasts(plan, lines, form):
            decided = [
                {"name": one.name, "tree": one.tree, "hops": one.hops, "difference": f"{one.difference:+.1f}"}
                | {"verdict": one.verdict}
                for one in found
                if one.verdict != "no difference shown"
            ]
            return {"form": form, "counts": _summary(one.verdict for one in found), "decided": decided}
    return None


def _completion(lines: Sequence[Line]) -> dict[str, Any] | None:
    """Return the registered contrasts of hyperbolic embeddings with flat ones, by dimension."""
    found = completion_contrasts([line for line in lines if line["stage"] == "final"], completion_plan())
    if not found:
        return None
    rows = [
        {"cell": one.cell, "ours": one.ours, "theirs": one.theirs, "dimension": one.dimension}
        | {"difference": difference_text(one.difference, one.verdict)}
        for one in found
        if one.theirs.endswith("euclidean")
    ]
    return {"rows": rows, "counts": _summary(one.verdict for one in found)}


def taxonomy_differences(lines: Iterable[Line]) -> dict[tuple[str, str], tuple[Estimate, Verdict]]:
    """Return Lorentz minus Euclidean in points of MRR, by taxonomy and by what is held out; Holm over all of them.

    Args:
        lines: lines of ``benchmarks/taxonomies.py``.
    """
    values: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for line in lines:
        methods = values.setdefault((line["cell"], line["split"]), {})
        methods.setdefault(line["method"], {})[line["seed"]] = line["metrics"]["mrr"]
    found = {}
    for key, methods in values.items():
        sides = methods.get("lorentz", {}), methods.get(_BASELINE, {})
        if estimate := resampled_difference(*sides, test_per_train=_TAXONOMY_TEST_PER_TRAIN):
            found[key] = estimate
    decided = verdicts(list(found.values())) if found else []
    return {key: (one, verdict) for (key, one), verdict in zip(found.items(), decided, strict=True)}


def _taxonomies(lines: Sequence[Line]) -> list[dict[str, str]]:
    found = []
    for (cell, split), (difference, verdict) in taxonomy_differences(lines).items():
        own = [line for line in lines if (line["cell"], line["split"]) == (cell, split)]
        row = {"cell": cell, "split": split, "difference": difference_text(difference, verdict), "verdict": verdict}
        for method in ("lorentz", _BASELINE, "untrained"):
            row[method] = f"{summarise(line['metrics']['mrr'] for line in own if line['method'] == method):.1f}"
        found.append(row)
    return found


def _summary(verdicts: Iterable[str]) -> dict[str, int]:
    found = Counter(verdicts)
    return {"better": found["better"], "worse": found["worse"], "all": found.total()}
