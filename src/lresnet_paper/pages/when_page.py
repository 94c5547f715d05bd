"""The page that says where hyperbolic space helped in our measurements, where it did not, and what to use."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lresnet.data.registry import GRAPHS, TASKS
from lresnet.data.split_names import canonical_split
from lresnet.runs.statistics import Estimate, Verdict, resampled_difference, summarise, verdicts
from lresnet.train.results import read_results
from lresnet_paper import ancestors
from lresnet_paper.comparisons import Comparison, compare_methods, resampling_ratio
from lresnet_paper.completion.study import read_plan as completion_plan
from lresnet_paper.pages.ancestors_page import registered_contrasts as ancestor_contrasts
from lresnet_paper.pages.completion_page import registered_contrasts as completion_contrasts
from lresnet_paper.pages.hierarchy_page import compare_losses
from lresnet_paper.pages.text_tables import difference_text
from lresnet_paper.render import render
from lresnet_paper.results import NoResults, Result, aggregate, cell_key, read_runs
from lresnet_paper.run import split_depth
from lresnet_paper.untrained import best_untrained

__all__ = [
    "taxonomy_differences",
    "taxonomy_key",
    "when_page",
    "when_page_of_folder",
    "widest_searches",
]

_BASELINE = "euclidean"
_LIMIT = "lorentz_limit"  # the Lorentz network at a curvature near 0
_GRAPHS, _TRANSFORMER, _IMAGES, _OOD = "gnn", "graph_transformer", "image_classification", "ood"
_DEEP, _TEXTS = "deep", "transformers"
_TAXONOMY_TEST_PER_TRAIN = 0.10 / 0.85  # shares of lresnet.data.hierarchy_task; closure trains on all edges as well
_DISEASE, _WITHOUT_COLUMN = ("disease/lp", "legacy"), ("disease/lp", "legacy-without_column")
_HELD_OUT = ("closure", "leaves")
_HIERARCHIES = {"wordnet": "82,192 nouns", "wordnet:mammal": "1,182 mammals"}  # of the study `completion`

Key = tuple[str, str, str]
Line = Mapping[str, Any]


def when_page_of_folder(results: Path) -> str:
    """Return the page in Markdown, from the files of results in a folder."""
    names = "hierarchy_images", "ancestors", "completion", "taxonomies", _DEEP, _TEXTS
    studies = {name: list(read_results(file)) for name in names if (file := results / f"{name}.jsonl").exists()}
    return when_page(read_runs(results), studies)


def when_page(runs: Sequence[Line], studies: Mapping[str, Sequence[Line]] | None = None) -> str:
    """Return the page in Markdown.

    Args:
        runs: lines of results of the paper's tables.
        studies: lines of our own studies by name: hierarchy_images, ancestors, completion, taxonomies, deep and
            transformers.

    Raises:
        NoResults: no cell has runs of the Lorentz network and of its Euclidean baseline.
    """
    studies = studies or {}
    deep = [line for line in studies.get(_DEEP, []) if split_depth(line["cell"])[1] is None]
    runs = [*runs, *deep, *studies.get(_TEXTS, [])]
    compared = compare_methods(runs)
    by_key: dict[Key, Comparison] = {_key(one): one for one in compared if one.method == _BASELINE}
    if not by_key:
        raise NoResults(
            "no cell has runs of the Lorentz network and of its Euclidean baseline; `lresnet reproduce gnn` makes them"
        )
    results = aggregate(runs)
    untrained = best_untrained(results)
    untrained |= {  # the table of deep networks has the newer names of the splits
        (cell, canonical_split(protocol, TASKS[cell].splits)): best for (cell, protocol), best in untrained.items()
    }
    others = {(_key(one), one.method): one for one in compared if one.method in ("none", _LIMIT)}
    groups = {
        "links": _of(by_key, (_GRAPHS, "features"), "/lp"),
        "nodes": _of(by_key, (_GRAPHS,), "/nc"),
        "transformers": _of(by_key, (_TRANSFORMER,), ""),
        "images": _of(by_key, (_IMAGES,), ""),
        "ood": _of(by_key, (_OOD,), ""),
        "deep_links": _of(by_key, (_DEEP,), "/lp"),
        "deep_nodes": _of(by_key, (_DEEP,), "/nc"),
        "texts": _of(by_key, (_TEXTS,), "gcide"),
        "depths": sorted(_of(by_key, ("oversmoothing",), ""), key=lambda one: (one.protocol, cell_key(*_key(one)[:2]))),
    }
    rows = {name: [_row(one, results, untrained, others) for one in own] for name, own in groups.items()}
    taxonomies = _taxonomies(studies.get("taxonomies", []))
    return render(
        "when.md.j2",
        rows=rows,
        counts={
            **{name: _counts(own) for name, own in groups.items()},
            "class_trees": _class_tree_counts(studies.get("hierarchy_images", [])),
            **{split: _summary(row["verdict"] for row in taxonomies if row["split"] == split) for split in _HELD_OUT},
        },
        disease=next((row for row in rows["links"] if _place(row) == _DISEASE), None),
        without_column=next((row for row in rows["links"] if _place(row) == _WITHOUT_COLUMN), None),
        sizes={name: _sizes(runs, own) for name, own in groups.items()},
        widths=_interval_widths([one for name in ("links", "nodes", "transformers") for one in groups[name]]),
        depth_answers=_depth_answers(groups["depths"]),
        ancestors=_ancestors(studies.get("ancestors", [])),
        completion=_completion(studies.get("completion", [])),
        taxonomies=taxonomies,
    )


def _key(one: Comparison) -> Key:
    return one.table, one.cell, one.protocol


class Sizes(NamedTuple):
    """Ranges of a group of comparisons, as words; empty if the lines do not record them."""

    nodes: str
    dimension: str
    depth: str
    bytes: str


def _sizes(runs: Iterable[Line], compared: Iterable[Comparison]) -> Sizes:
    """Return the nodes of the graphs of some comparisons, width and depth of their Lorentz networks, bytes of texts."""
    keys = {_key(one) for one in compared}
    known = [nodes for key in keys if (nodes := _nodes(key[1])) is not None]
    own = [
        run["config"]
        for run in runs
        if (run["table"], run["cell"], run["protocol"]) in keys and run["method"] == "lorentz" and _is_final(run)
    ]
    widths = [config["width" if "width" in config else "hidden"] for config in own if {"width", "hidden"} & {*config}]
    layers = [config["num_layers"] for config in own if "num_layers" in config]
    read = [config["max_bytes"] for config in own if "max_bytes" in config]
    return Sizes(*(_range(values) for values in (known, widths, layers, read)))


def _nodes(cell: str) -> int | None:
    """Return the number of nodes of the graph of a cell, from the summary of its data set."""
    sources = (
        source for name, source in GRAPHS.items() if name == cell or any(task.name == cell for task in source.tasks)
    )
    found = next((re.search(r"([\d,]+) (?:nodes|papers|airports)", source.summary) for source in sources), None)
    return int(found[1].replace(",", "")) if found else None


def _range(values: Sequence[int]) -> str:
    """Return a range as words.

    Example:
        >>> _range([2708, 890, 19717]), _range([3, 3]), _range([])
        ('890 to 19,717', '3', '')
    """
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _signed_range(values: Sequence[float]) -> str:
    """Return the range of some differences as words, with their signs.

    Example:
        >>> _signed_range([4.58, 10.57]), _signed_range([5.51]), _signed_range([])
        ('+4.6 to +10.6', '+5.5', '')
    """
    return " to ".join(dict.fromkeys(f"{pick(values):+.1f}" for pick in (min, max))) if values else ""


def _interval_widths(compared: Iterable[Comparison]) -> dict[str, str]:
    """Return the range of half the widths of the intervals, on fixed and on resampled splits."""
    found: dict[str, list[float]] = {"fixed": [], "resampled": []}
    for one in compared:
        kind = "fixed" if resampling_ratio(one.cell, one.protocol) is None else "resampled"
        found[kind].append(one.difference.half_width)
    return {kind: f"{min(own):.1f} to {max(own):.1f}" for kind, own in found.items() if own}


def _depth_answers(compared: Iterable[Comparison]) -> list[dict[str, Any]]:
    """Return, by protocol and data set, the numbers of layers with each verdict."""
    found: dict[tuple[str, str], dict[str, list[int]]] = {}
    for one in compared:
        cell, layers = split_depth(one.cell)
        own = found.setdefault((one.protocol, cell), {"better": [], "worse": [], "no difference shown": []})
        own[one.verdict].append(layers or 0)
    return [{"protocol": protocol, "cell": cell, "layers": own} for (protocol, cell), own in found.items()]


def _is_final(run: Line) -> bool:
    return bool(run.get("stage", "final") == "final")


def _place(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["cell"], row["protocol"]


def _of(by_key: Mapping[Key, Comparison], tables: Sequence[str], part: str) -> list[Comparison]:
    """Return the comparisons of some tables whose cell contains ``part``, without features that give the answer."""
    return [
        one
        for (table, cell, protocol), one in by_key.items()
        if table in tables and part in cell and not protocol.endswith("column_only")
    ]


def _row(
    one: Comparison,
    results: Iterable[Result],
    untrained: Mapping[tuple[str, str], Result],
    others: Mapping[tuple[Key, str], Comparison],
) -> dict[str, Any]:
    own = {found.method: found for found in results if (found.table, found.cell, found.protocol) == _key(one)}
    reference = untrained.get((one.cell, one.protocol))
    digits = 3 if one.table == _TEXTS else 1

    def minus(method: str) -> str:
        other = others.get((_key(one), method))
        return "" if other is None else difference_text(other.difference, other.verdict)

    return {
        "cell": one.cell,
        "protocol": one.protocol,
        "lorentz": f"{own['lorentz'].mean:.{digits}f} ± {own['lorentz'].std:.{digits}f}",
        "euclidean": f"{own[_BASELINE].mean:.{digits}f} ± {own[_BASELINE].std:.{digits}f}",
        "difference": difference_text(one.difference, one.verdict, max(digits, 2)),
        "verdict": one.verdict,
        "minus_none": minus("none"),
        "minus_limit": minus(_LIMIT),
        "untrained": "" if reference is None else f"{reference.mean:.1f}",
        "below_untrained": reference is not None and own["lorentz"].mean < reference.mean,
        "baseline_below_untrained": reference is not None and own[_BASELINE].mean < reference.mean,
    }


def _counts(compared: Iterable[Comparison]) -> dict[str, int]:
    return _summary(one.verdict for one in compared)


def _class_tree_counts(lines: Iterable[Line]) -> dict[str, int]:
    """Count the verdicts on the Lorentz network against its baseline with the same loss."""
    return _summary(one.verdict for one in compare_losses(lines) if one.ours[1] == one.theirs[1])


def _ancestors(lines: Sequence[Line]) -> dict[str, Any] | None:
    """Return the registered contrasts of the largest form that has been run."""
    plan = ancestors.read_plan()
    deeper = [one for one in ancestor_contrasts(plan, lines, "deeper") if one.name.startswith("Lorentz minus none")]
    for form in ancestors.FORMS:
        if found := ancestor_contrasts(plan, lines, form):
            decided = [
                {"name": one.name, "tree": one.tree, "hops": one.at, "difference": f"{one.difference:+.1f}"}
                | {"verdict": one.verdict}
                for one in found
                if one.verdict != "no difference shown"
            ]
            return {
                "form": form,
                "counts": _summary(one.verdict for one in found),
                "curvature": _summary(one.verdict for one in found if one.name.startswith("Lorentz at")),
                "decided": decided,
                "deeper": _summary(one.verdict for one in deeper),
                "hops": _range([one.at for one in found if one.at is not None]),
                "width": plan["contrasts"]["width"],
            }
    return None


def _completion(lines: Sequence[Line]) -> dict[str, Any] | None:
    """Return the registered contrasts of hyperbolic embeddings with flat ones, by dimension."""
    plan = completion_plan()
    found = completion_contrasts([line for line in lines if line["stage"] == "final"], plan)
    if not found:
        return None
    flat = [one for one in found if one.theirs.endswith("euclidean")]
    groups = {
        "points": [one for one in flat if one.protocol == "none"],
        "closure": [one for one in flat if one.protocol != "none" and one.cell.endswith("/closure")],
        "leaves": [one for one in flat if one.cell.endswith("/leaves")],
    }
    rows = [
        {"cell": one.cell, "ours": plan["arms"][one.ours]["label"], "glosses": one.protocol, "dimension": one.dimension}
        | {"difference": difference_text(one.difference, one.verdict)}
        for one in flat
    ]
    return {
        "rows": rows,
        "counts": _summary(one.verdict for one in found),
        "groups": {
            name: {
                "counts": _summary(one.verdict for one in own),
                "size": " and ".join(
                    words for cell, words in _HIERARCHIES.items() if any(one.cell.startswith(f"{cell}/") for one in own)
                ),
                "dimensions": _range([one.dimension for one in own]),
                "better_in": {
                    words: dimensions for cell, words in _HIERARCHIES.items() if (dimensions := _better_in(own, cell))
                },
                "leads": _signed_range([one.difference.mean for one in own if one.verdict == "better"]),
                "width": max((one.difference.half_width for one in own), default=0.0),
            }
            for name, own in groups.items()
        },
        "layers": plan["networks"]["num_layers"],
    }


def _better_in(contrasts: Iterable[Any], hierarchy: str) -> list[int]:
    """Return the dimensions in which the hyperbolic embedding of this hierarchy is better."""
    return [one.dimension for one in contrasts if one.verdict == "better" and one.cell.startswith(f"{hierarchy}/")]


def taxonomy_key(line: Line) -> tuple[Any, ...]:
    """Return what identifies a result of ``benchmarks/taxonomies.py``."""
    return line["cell"], line["split"], line["method"], line["seed"]


def widest_searches(lines: Iterable[Line]) -> list[Any]:
    """Return the last line of every result: a later line had more learning rates to choose from."""
    return list({taxonomy_key(line): line for line in lines}.values())


def taxonomy_differences(lines: Iterable[Line]) -> dict[tuple[str, str], tuple[Estimate, Verdict]]:
    """Return Lorentz minus Euclidean in points of MRR, by taxonomy and by what is held out; Holm over all of them.

    Args:
        lines: lines of ``benchmarks/taxonomies.py``.
    """
    values: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for line in widest_searches(lines):
        methods = values.setdefault((line["cell"], line["split"]), {})
        methods.setdefault(line["method"], {})[line["seed"]] = line["metrics"]["mrr"]
    found = {}
    for key, methods in values.items():
        sides = methods.get("lorentz", {}), methods.get(_BASELINE, {})
        if estimate := resampled_difference(*sides, test_per_train=_TAXONOMY_TEST_PER_TRAIN):
            found[key] = estimate
    decided = verdicts(list(found.values())) if found else []
    return {key: (one, verdict) for (key, one), verdict in zip(found.items(), decided, strict=True)}


def _taxonomies(lines: Sequence[Line]) -> list[dict[str, Any]]:
    found = []
    lines = widest_searches(lines)
    for (cell, split), (difference, verdict) in taxonomy_differences(lines).items():
        own = [line for line in lines if (line["cell"], line["split"]) == (cell, split)]
        methods = "lorentz", _BASELINE, "untrained"
        mrr = {name: summarise(line["metrics"]["mrr"] for line in own if line["method"] == name) for name in methods}
        row = {"cell": cell, "split": split, "difference": difference_text(difference, verdict), "verdict": verdict}
        row |= {name: f"{one:.1f}" for name, one in mrr.items()}
        found.append(row | {"untrained_is_best": mrr["untrained"].mean > max(mrr["lorentz"].mean, mrr[_BASELINE].mean)})
    return found


def _summary(verdicts: Iterable[str]) -> dict[str, int]:
    found = Counter(verdicts)
    return {"better": found["better"], "worse": found["worse"], "all": found.total()}
