"""The study of splits: its recipes, the effect of the split, and what is compared with what."""

from pathlib import Path
from typing import Any

import pytest

from lresnet.data.split_names import SPLITS
from lresnet.runs.task_config import GraphTaskConfig
from lresnet_paper.pages.splits_page import CELLS, TABLE, published_figures, split_effects, splits_page
from lresnet_paper.plan import final_runs, protocols, recipe
from lresnet_paper.run import run_config


def run(method: str, protocol: str, seed: int, value: float, cell: str = "cora/nc") -> dict[str, Any]:
    place = {"table": TABLE, "cell": cell, "method": method, "protocol": protocol, "stage": "final"}
    return place | {"seed": seed, "split": None, "value": value, "seconds": 30.0, "hardware": "CPU"}


RUNS = [
    run(method, protocol, seed, base + seed)
    for method, protocol, base in (
        ("lorentz", "public", 82.0),
        ("lorentz", "class-random", 80.0),
        ("euclidean", "public", 81.5),
    )
    for seed in range(3)
]


@pytest.mark.parametrize("cell", CELLS)
def test_the_split_is_the_only_difference_between_the_recipes_of_a_cell(cell: str, tmp_path: Path) -> None:
    assert protocols(TABLE, cell) == ["class-random", "public"]
    chosen = recipe("gnn", cell, "legacy-plain")["chosen"]
    settings = {}
    for protocol in protocols(TABLE, cell):
        runs = final_runs(TABLE, cell, tmp_path / "none.jsonl", protocol=protocol)
        assert {one.method for one in runs} == {"lorentz", "euclidean"}
        assert len({(one.method, one.seed) for one in runs}) == len(runs) >= 20
        for one in runs:
            assert chosen[one.method].items() <= one.config.items()
            task = run_config(one).task
            assert isinstance(task, GraphTaskConfig)
            assert (task.split, task.split_index) == (protocol, None)
        settings[protocol] = {(one.method, str(one.config)) for one in runs}
    assert settings["public"] == settings["class-random"]


def test_the_effect_is_the_difference_of_the_means() -> None:
    (effect,) = split_effects([*RUNS, run("lorentz", "public", 9, 1.0) | {"stage": "trial"}])
    assert (effect.method, effect.public.mean, effect.random.mean) == ("lorentz", 83.0, 81.0)
    assert (effect.lowest, effect.highest) == (80.0, 82.0)
    assert effect.difference is not None
    assert effect.difference.mean == pytest.approx(-2.0)


def test_a_published_figure_is_next_to_ours_on_its_own_split_only() -> None:
    assert {figure["split"] for figure in published_figures()} <= SPLITS.keys()
    page = splits_page(RUNS)
    assert (
        "| cora/nc | `public` | 85.5, GCNII (64 layers; Chen et al., ICML 2020) | 83.0 ± 1.0 (3) | not measured |"
        in page
    )
    (other,) = (line for line in page.splitlines() if line.startswith("| cora/nc") and "tunedGNN" in line)
    assert "| 81.0 ± 1.0 (3) | not measured |" in other
    assert "points (Lorentz network, cora/nc; no effect is shown)." in page
    assert "differ by -0.4 points on cora/nc (GCN of tunedGNN minus GCNII)," in page
    assert "**Unfinished.** 91 of the 100 planned runs are missing" in page
    assert "| cora/nc | Lorentz | 83.0 ± 1.0 (3) | 81.0 ± 1.0 (3) | 80.0 to 82.0 | -2.0 ±" in page


def test_without_runs_on_both_splits_there_is_no_page() -> None:
    with pytest.raises(ValueError, match="no network has runs on both splits"):
        splits_page([one for one in RUNS if one["protocol"] == "public"])
