"""The page "When does hyperbolic space help?": its counts, its table for choosing, and partial results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lresnet_paper.pages.when_page import taxonomy_differences, when_page, when_page_of_folder, widest_searches
from lresnet_paper.results import NoResults

ROOT = Path(__file__).parents[2]


def runs(cell: str, lead: float, protocol: str = "legacy", table: str = "gnn", **config: Any) -> list[dict[str, Any]]:
    return [
        {"table": table, "cell": cell, "protocol": protocol, "method": method, "seed": seed, "split": None}
        | {"config": {"hidden": 15, "num_layers": 2} | config, "value": 80 + lead * (method == "lorentz") + noise}
        for method in ("lorentz", "none", "euclidean")
        for seed, noise in enumerate((0.0, 0.1, 0.2 if method == "lorentz" else 0.25, -0.1))
    ]


def taxonomy(split: str, lead: float) -> list[dict[str, Any]]:
    return [
        {"cell": "plant", "split": split, "method": method, "seed": seed}
        | {"metrics": {"mrr": 50 + lead * (method == "lorentz") + seed / (7 if method == "lorentz" else 5)}}
        for method in ("lorentz", "euclidean", "untrained")
        for seed in range(5)
    ]


def choices(page: str) -> dict[str, dict[str, str]]:
    """Return the rows of the table for choosing by their first column; a row has its cells by column."""
    rows = page[page.index("## What to use") :].split("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("| ")]
    assert cells[0] == ["your data", "use", "evidence", "size", "dimension", "depth"]
    assert all(len(row) == 6 and all(row) for row in cells)
    return {row[0]: dict(zip(cells[0][1:], row[1:], strict=True)) for row in cells[1:]}


def test_the_page_in_the_docs_is_that_of_the_results() -> None:
    page = when_page_of_folder(ROOT / "results")
    assert page == (ROOT / "docs" / "start" / "when.md").read_text(encoding="utf-8")
    assert len(choices(page)) >= 8


def test_a_single_cell_gives_a_page_without_claims_about_others() -> None:
    page = when_page(runs("cora/nc", 0.0, num_layers=3))
    assert "the Lorentz network is better in 0 of 1 node classifications.\n" in page
    assert "link" not in page.split("*Better*")[0]
    assert "It is better on" not in page
    assert choices(page) == {
        "classes of nodes": {
            "use": "either; start with the Euclidean network, which has no curvature to search",
            "evidence": "better in 0 of 1",
            "size": "2,708 nodes",
            "dimension": "15",
            "depth": "3 layers",
        }
    }


def test_verdicts_decide_what_the_table_recommends() -> None:
    page = when_page([*runs("airport/lp", 3.0), *runs("cora/lp", -3.0), *runs("pubmed/nc", -3.0)])
    assert "better in 1 of 2 (worse in 1) link predictions and 0 of 1 (worse in 1) node classifications." in page
    assert "It is better on airport/lp (`legacy`)." in page
    found = choices(page)
    assert found["missing links in a graph"]["size"] == "2,708 to 3,188 nodes"
    assert found["missing links in a graph"]["use"].startswith("either")
    assert found["classes of nodes"]["use"] == "the Euclidean network"
    assert choices(when_page(runs("airport/lp", 3.0)))["missing links in a graph"]["use"].startswith("`lorentz`")


def test_depths_are_listed_by_their_verdict() -> None:
    deep = [
        run
        for layers, lead in ((16, 4.0), (32, 0.0), (64, -4.0))
        for run in runs(f"airport/lp/{layers}", lead, "legacy-deep", "oversmoothing", num_layers=layers)
    ]
    page = when_page(deep)
    listed = "better with 16 layers; worse with 64 layers; no difference shown with 32 layers."
    assert f"- airport/lp, `legacy-deep`: {listed}" in page
    assert choices(page)["missing links, a deep chain of residuals"]["evidence"] == "better at 1 of 3 depths"


def test_taxonomies_are_one_family_and_have_rows_of_their_own() -> None:
    lines = [*taxonomy("closure", 20.0), *taxonomy("leaves", 0.0)]
    found = taxonomy_differences(lines)
    assert {key: verdict for key, (_, verdict) in found.items()} == {
        ("plant", "closure"): "better",
        ("plant", "leaves"): "no difference shown",
    }
    page = when_page(runs("cora/nc", 0.0), {"taxonomies": lines})
    assert "it is better in 1 of 1 tasks with known nodes and in 0 of 1 with new terms" in page
    rows = choices(page)
    assert rows["a taxonomy, ancestors of known nodes"]["use"] == "`--task hierarchy` with its default, Lorentz"
    assert rows["a taxonomy, parents of new terms"]["use"].startswith("either")
    assert "untrained" not in "".join(rows["a taxonomy, parents of new terms"].values())


def test_an_untrained_score_above_both_networks_stands_beside_the_advice_on_new_terms() -> None:
    lines = taxonomy("leaves", 0.0)
    for line in lines:
        line["metrics"]["mrr"] += 30 * (line["method"] == "untrained")
    row = choices(when_page(runs("cora/nc", 0.0), {"taxonomies": lines}))["a taxonomy, parents of new terms"]
    assert row["use"].endswith("; compare with the untrained score that `lresnet train` prints")
    assert row["evidence"].endswith("; an untrained score is above both in 1 of 1")


def test_a_wider_search_takes_the_place_of_an_earlier_one() -> None:
    first, wider = taxonomy("closure", 20.0), taxonomy("closure", 0.0)
    assert widest_searches([*first, *wider]) == wider
    assert taxonomy_differences([*first, *wider]) == taxonomy_differences(wider)


def test_networks_with_an_initial_residual_and_transformers_have_rows_of_their_own() -> None:
    deep = [
        *runs("airport/lp", 3.0, "hgcn", "deep", hidden=16, num_layers=4),
        *runs("cora/nc", 0.0, "public", "deep", hidden=64, num_layers=64),
        *runs("cora/nc/64", 9.0, "public-deep", "deep", hidden=64, num_layers=64),
    ]
    texts = [
        run | {"config": {"width": 64, "num_layers": 6, "max_bytes": 1_000_000}}
        for run in runs("gcide/6", -3.0, table="transformers")
    ]
    page = when_page(runs("pubmed/nc", 0.0), {"deep": deep, "transformers": texts})
    assert "better in 1 of 1 link predictions and 0 of 1 node classifications" in page
    rows = choices(page)
    links, nodes = (
        rows[f"{what}, a network with an initial residual"] for what in ("missing links", "classes of nodes")
    )
    assert links["size"] == "3,188 nodes"
    assert links["use"].startswith("`lorentz_gcnii`")
    assert nodes["depth"] == "64 layers"
    assert nodes["use"] == "either; start with the Euclidean network, which has no curvature to search"
    assert nodes["evidence"] == "better than GCNII in 0 of 1"
    assert rows["a text, small transformers"] == {
        "use": "`lorentz_gpt`",
        "evidence": "better in 1 of 1 comparisons",
        "size": "1,000,000 bytes",
        "dimension": "64",
        "depth": "6 blocks",
    }
    assert "cora/nc/64" not in page


def test_without_comparisons_there_is_no_page() -> None:
    with pytest.raises(NoResults, match="`lresnet reproduce gnn` makes them"):
        when_page(runs("cora/nc", 0.0)[:2])
