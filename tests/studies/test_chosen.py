"""What a recipe names as chosen is what the search lines in results/ choose, by validation alone."""

from pathlib import Path

import pytest

from lresnet.studies import METHODS, best_configuration, recipe
from lresnet.train.results import read_results

RESULTS = Path(__file__).parents[2] / "results" / "gnn.jsonl"


@pytest.mark.parametrize("cell", ["disease/lp", "airport/lp", "cora/nc"])
def test_chosen_settings_are_the_best_by_validation(cell):
    plan = recipe("gnn", cell)
    searched = [r for r in read_results(RESULTS) if r["stage"] == "search" and r["cell"] == cell]
    for method in METHODS:
        best = best_configuration(r for r in searched if r["method"] == method)
        assert {name: best[name] for name in plan["space"]} == plan["chosen"][method]
        assert plan["chosen"][method] in plan["configurations"]
