"""Write the settings that the search lines in results/ select, by validation alone, into the recipes.

    python benchmarks/choose.py

Each recipe whose search is complete for a method gets a section [chosen.METHOD]. `lresnet train` reads it, and so do
the tables that vary one chosen setting. A second run changes nothing. tests/paper/test_chosen.py compares the recipes
with the results.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lresnet.residual.registry import compared_methods
from lresnet_paper.plan import final_runs, recipe_cells

ROOT = Path(__file__).resolve().parents[1]
RECIPES, RESULTS = ROOT / "src/lresnet_paper/recipes", ROOT / "results"
TABLES = ("gnn", "commutativity", "graph_transformer", "image_classification")
HEADING = "# Chosen by the mean validation figure of the search"


def main() -> None:
    for table in TABLES:
        for cell in recipe_cells(table):
            for file in sorted((RECIPES / table).glob(f"{cell.replace('/', '_')}.*")):
                write(file, table, cell)


def write(file: Path, table: str, cell: str) -> None:
    """Replace the text below the heading, or append it."""
    text = file.read_text()
    plan = tomllib.loads(text)
    sections = [section(method, values) for method, values in chosen(table, cell, plan)]
    if sections:
        head = text.split(HEADING)[0].rstrip()
        heading = f'{HEADING} (results/{table}.jsonl, stage "search"); what `lresnet train` takes.'
        file.write_text("\n\n".join([head, heading, *sections]) + "\n")
        print(f"{file.relative_to(ROOT)}: {len(sections)} methods")


def chosen(table: str, cell: str, plan: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each method whose search is complete, with the selected values of the search space."""
    for method in plan.get("methods", compared_methods()) if "space" in plan else ():
        runs = final_runs(table, cell, RESULTS / f"{table}.jsonl", [method], protocol=plan["protocol"])
        if runs:
            yield method, {name: runs[0].config[name] for name in plan["space"]}


def section(method: str, values: dict[str, Any]) -> str:
    return "\n".join([f"[chosen.{method}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items())])


if __name__ == "__main__":
    main()
