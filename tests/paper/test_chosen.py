"""The chosen settings of a recipe are the best by validation among the search lines in results/."""

import tomllib
from importlib import resources
from pathlib import Path

import pytest

from lresnet.runs.search import best_configuration
from lresnet.train.results import read_results
from lresnet_paper.plan import search_runs, selection_metric
from lresnet_paper.run import complete

RESULTS = Path(__file__).parents[2] / "results"
TABLES = ("gnn", "commutativity", "graph_transformer", "image_classification")


def plans() -> list[tuple[str, str, dict]]:
    found = []
    for table in TABLES:
        for file in sorted(resources.files("lresnet_paper.recipes").joinpath(table).iterdir(), key=lambda f: f.name):
            plan = tomllib.loads(file.read_text()) if file.name.endswith(".toml") else {}
            if "chosen" in plan:
                found.append((table, file.name.partition(".")[0].replace("_nc", "/nc").replace("_lp", "/lp"), plan))
    return found


def test_the_cells_of_the_paper_have_chosen_settings():
    cells = {cell for table, cell, _ in plans() if table == "gnn"}
    assert cells >= {"disease/lp", "airport/lp", "airport/nc", "cora/lp", "cora/nc", "pubmed/lp", "pubmed/nc"}


@pytest.mark.parametrize(("table", "cell", "plan"), plans(), ids=lambda part: part if isinstance(part, str) else "")
def test_chosen_settings_are_the_best_by_validation(table, cell, plan):
    lines = [r for r in read_results(RESULTS / f"{table}.jsonl") if (r["cell"], r["stage"]) == (cell, "search")]
    for method, chosen in plan["chosen"].items():
        own = [r for r in lines if (r["method"], r["protocol"]) == (method, plan["protocol"])]
        assert len(own) == len(search_runs(table, cell, [method], plan["protocol"]))
        # In the order of the recipe, which decides ties; the lines are in the order in which workers finished.
        order = [complete(plan, method, configuration, "search") for configuration in plan["configurations"]]
        own.sort(key=lambda r: order.index(r["config"]))
        assert plan["configurations"][order.index(best_configuration(own, selection_metric(plan)))] == chosen
