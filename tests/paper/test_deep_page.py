"""The study of deep networks: its recipes, the table at every depth, and the page."""

from typing import Any

import pytest

from lresnet.runs.model_config import GCNIIConfig
from lresnet.runs.task_config import GraphTaskConfig
from lresnet_paper.pages.deep_page import TABLE, deep_page
from lresnet_paper.plan import cells_of, protocols, recipe_cells, search_runs
from lresnet_paper.run import run_config, split_name

RECIPES = [(cell, protocol) for cell in recipe_cells(TABLE) for protocol in protocols(TABLE, cell)]


def run(method: str, seed: int, value: float | None, cell: str = "cora/nc", protocol: str = "public") -> dict[str, Any]:
    config = {"alpha": 0.1, "dropout": 0.6, "lr": 0.01, "curvature": -0.1, "num_layers": 64}
    place = {"table": TABLE, "cell": cell, "method": method, "protocol": protocol, "stage": "final", "config": config}
    return place | {"seed": seed, "split": None, "value": value, "seconds": 60.0, "hardware": "CPU", "alpha": 0.1}


@pytest.mark.parametrize(("cell", "protocol"), RECIPES)
def test_every_method_has_the_same_search(cell: str, protocol: str) -> None:
    cells = [one for one in cells_of(TABLE, protocol) if one == cell or one.startswith(f"{cell}/")]
    for one in cells:
        runs = search_runs(TABLE, one, protocol=protocol)
        by_method = {method: [run for run in runs if run.method == method] for method in ("lorentz", "euclidean")}
        assert len(runs) == 3 * len(by_method["lorentz"]) > 0
        free = {"curvature", "residual"}
        shared = [
            [{k: v for k, v in each.config.items() if k not in free} | {"at": (each.seed, each.split)} for each in own]
            for own in by_method.values()
        ]
        assert shared[0] == shared[1]
        for each in runs:
            config = run_config(each)
            assert isinstance(config.model, GCNIIConfig)
            assert isinstance(config.task, GraphTaskConfig)
            assert config.task.split == split_name(protocol)
            assert (config.model.curvature == -1e-6) == (each.method == "lorentz_limit")
            assert config.model.residual == ("euclidean" if each.method == "euclidean" else "lorentz")
        different = {str(sorted(each.config.items())) for each in by_method["euclidean"]}
        assert len(different) * len({(r.seed, r.split) for r in runs}) == len(by_method["euclidean"])


def test_the_page_states_differences_and_what_is_missing() -> None:
    lines = [
        run(m, seed, base + 0.1 * seed) for m, base in (("lorentz", 85.0), ("euclidean", 85.2)) for seed in range(3)
    ]
    lines += [
        run("lorentz", 0, None, "cora/nc/16", "public-chain"),
        run("lorentz", 0, 84.0, "cora/nc/64", "public-deep"),
    ]
    page = deep_page(lines)
    assert "| cora/nc | `public` | 85.1 ± 0.1 (3) |  | 85.3 ± 0.1 (3) |" in page
    assert "non-inferior, at most one point worse, in 1 of 1" in page
    assert "| cora/nc | `public` | initial | Lorentz | 0.10 |  |  |  | 84.0 (1) |" in page
    assert "| cora/nc | `public` | chain | Lorentz | 0.10 |  |  | diverged |  |" in page
    assert "airport/lp on `hgcn`" in page
    assert "alpha 0.1, dropout 0.6, lr 0.01, curvature -0.1" in page


def test_without_final_runs_there_is_no_page() -> None:
    with pytest.raises(ValueError, match="no final runs"):
        deep_page([run("lorentz", 0, 80.0) | {"stage": "search"}])
