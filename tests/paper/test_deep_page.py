"""The study of deep networks: its recipes, the table at every depth, and the page."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lresnet.runs.model_config import GCNIIConfig
from lresnet.runs.task_config import GraphTaskConfig
from lresnet.train.results import append_result, read_results
from lresnet_paper.__main__ import main
from lresnet_paper.pages.deep_page import TABLE, deep_page
from lresnet_paper.plan import cells_of, final_runs, missing_runs, protocols, recipe, recipe_cells, search_runs
from lresnet_paper.results import key_of_line
from lresnet_paper.run import run_config, split_name

ROOT = Path(__file__).parents[2]
RECIPES = [(cell, protocol) for cell in recipe_cells(TABLE) for protocol in protocols(TABLE, cell)]


def run(
    method: str, seed: int, value: float | None, cell: str = "cora/nc", protocol: str = "public", **more: Any
) -> dict[str, Any]:
    config = {"alpha": 0.1, "dropout": 0.6, "lr": 0.01, "curvature": -0.1, "num_layers": 64, **more}
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
        run("lorentz", 0, None, "cora/nc/16", "public-chain", scale="1+w") | {"alpha": 0.5},
        run("lorentz", 0, 84.0, "cora/nc/64", "public-deep"),
    ]
    page = deep_page(lines)
    assert "| cora/nc | `public` | 85.1 ± 0.1 (3) | not measured | 85.3 ± 0.1 (3) |  |" in page
    assert "non-inferior, at most one point worse, in 1 of 1" in page
    assert "| cell | split | connection | alpha | network | 16 layers | 64 layers |\n" in page
    assert "| cora/nc | `public` | initial | 0.10 | Lorentz | not measured | 84.0 (1) |\n" in page
    assert "| cora/nc | `public` | chain | 0.50 | Lorentz | diverged, sum | not measured |\n" in page
    assert "- pubmed/nc, chain: 2, 4, 16, 64 layers\n" in page
    runs_64 = "1 of 5 runs of Lorentz and 0 of 5 runs of Lorentz, K → 0 and 0 of 5 runs of GCNII"
    assert f"- cora/nc, initial: 2, 4, 16 layers; 64 layers: {runs_64}\n" in page
    assert "depth-connections.png" not in page
    assert "airport/lp (`hgcn`), " in page
    assert "pubmed/nc (`public`, by loss)" in page
    assert "| Lorentz | alpha 0.1, dropout 0.6, lr 0.01, curvature -0.1 |" in page
    assert "| GCNII | alpha 0.1, dropout 0.6, lr 0.01 |" in page


def test_with_all_depths_nothing_is_missing() -> None:
    lines = []
    for cell, protocol in RECIPES:
        for number, depth in enumerate(recipe(TABLE, cell, protocol).get("depths", [])):
            base = (70.0 if protocol.endswith("-chain") else 80.0) + number
            for more, method in enumerate(("lorentz", "lorentz_limit", "euclidean")):
                at = f"{cell}/{depth}", protocol
                lines += [run(method, seed, base - more + 0.1 * seed, *at, scale="none") for seed in range(5)]
    page = deep_page(lines)
    assert "| cell | split | connection | alpha | network | 2 layers | 4 layers | 16 layers | 64 layers |\n" in page
    values = "69.2 ± 0.2 (5), average | 70.2 ± 0.2 (5), average | 71.2 ± 0.2 (5), average | 72.2 ± 0.2 (5), average"
    assert f"| airport/lp | `hgcn` | chain | 0.10 | Lorentz, K → 0 | {values} |\n" in page
    assert "Missing:" not in page
    assert (
        "On pubmed/nc with 64 layers, Lorentz scores 83.2 with the initial residual and 73.2 as a chain; "
        "GCNII scores 81.2 with the initial residual and 71.2 as a chain."
    ) in page
    assert "depth-connections.png" in page
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)
    counts = {line.count("|") for line in rows if "initial" in line or "chain |" in line}
    assert counts == {10, 8}  # results, differences
    assert "In a chain, Lorentz is better than GCNII in 12, worse in 0 of 12 pairs" in page
    assert "| airport/lp | chain | GCNII | +2.00 ± 0.00 (5), better |" in page


def test_recipes_by_loss_have_rows_of_their_own() -> None:
    lines = [
        run(m, seed, base + 0.1 * seed, "cora/nc", protocol)
        for m in ("lorentz", "euclidean")
        for protocol, base in (("public", 84.0), ("public-loss", 85.5))
        for seed in range(3)
    ]
    page = deep_page(lines)
    assert "| cora/nc | `public` | 84.1 ± 0.1 (3) |" in page
    assert "| cora/nc | `public`, by loss | 85.6 ± 0.1 (3) |" in page
    assert page.count("- `public`: ") == 1


def test_the_page_and_its_picture_are_written(tmp_path: Path) -> None:
    page, picture = tmp_path / "deep.md", tmp_path / "depth.svg"
    call = ["pages", "deep", str(tmp_path), "--out", str(page), "--picture", str(picture)]
    chain, initial = ("cora/nc/{}", "public-chain"), ("cora/nc/{}", "public-deep")
    for depth in (4, 16):
        for cell, protocol in (chain, initial):
            line = run("lorentz", 0, 80.0, cell.format(depth), protocol, scale="none")
            append_result(tmp_path / "deep.jsonl", line)
        assert main(call) == 0
        assert picture.exists() == (depth == 16)
        assert ("depth-connections.png" in page.read_text()) == (depth == 16)


def test_a_lead_over_a_baseline_below_an_untrained_score_is_named() -> None:
    at = ("airport/lp", "hgcn")
    lines = [run(m, s, base + 0.1 * s, *at) for m, base in (("lorentz", 96.0), ("euclidean", 93.0)) for s in range(3)]
    place = {"table": "untrained", "cell": "airport/lp", "protocol": "legacy", "stage": "final", "seed": 0}
    score = place | {"method": "hops", "value": 95.5, "validation": 96.1}
    lower = place | {"method": "degree", "value": 97.0, "validation": 88.0}
    page = deep_page(lines, [score, lower])
    assert "| airport/lp | `hgcn` | 96.1 ± 0.1 (3) | not measured | 93.1 ± 0.1 (3) | 95.5 (hops) |" in page
    assert "scores less than an [untrained score](#results) on airport/lp (`hgcn`), so" in page
    assert "weak baseline" not in deep_page(lines, [score | {"value": 90.0}])


def test_limits_of_the_differences_by_depth_are_named() -> None:
    lines = [
        run(m, s, base + 0.1 * s, f"airport/lp/{depth}", protocol, scale="none")
        for m, base in (("lorentz", 90.0), ("lorentz_limit", 80.0), ("euclidean", 83.0))
        for s in range(3)
        for depth, protocol in ((16, "hgcn-chain"), (64, "hgcn-deep"))
    ]
    place = {"table": "untrained", "cell": "airport/lp", "protocol": "legacy", "stage": "final", "seed": 0}
    score = place | {"method": "hops", "value": 95.5, "validation": 96.1}
    page = deep_page(lines, [score])
    assert "score less than the [untrained score](#results) on airport/lp, so" in page
    assert "their means differ by up to 3.0 points (airport/lp, " in page
    assert "searched among 0.002 and 0.01," in page
    assert "between weak networks" not in deep_page(lines, [score | {"value": 90.05}])
    assert "between weak networks" not in deep_page(lines)


def test_a_resumed_search_is_completed_and_decided_by_the_smoothed_validation(tmp_path: Path) -> None:
    """The recorded file has a part of the search; the highest single validation pass must not decide."""
    file = tmp_path / "deep.jsonl"
    runs = search_runs(TABLE, "cora/nc", protocol="public")
    configurations = [run.config for run in runs if (run.method, run.seed) == ("lorentz", runs[0].seed)]
    best, highest = configurations[3], configurations[1]
    for run in runs[:-4]:
        score = {"validation_smoothed": 82.0 + (run.config == best), "validation": 83.0 + 5 * (run.config == highest)}
        append_result(file, asdict(run) | score)
    assert missing_runs(runs, file) == runs[-4:]
    assert {run.method for run in final_runs(TABLE, "cora/nc", file, protocol="public")} < {"lorentz", "lorentz_limit"}
    for run in runs[-4:]:
        append_result(file, asdict(run) | {"validation_smoothed": 81.0, "validation": 99.0})
    final = final_runs(TABLE, "cora/nc", file, protocol="public")
    assert {run.method for run in final} == {"lorentz", "lorentz_limit", "euclidean"}
    assert {run.stage for run in final} == {"final"}
    chosen = [run for run in final if run.method == "lorentz"]
    assert len(chosen) == 10
    assert all(run.config == best for run in chosen)


def test_the_recorded_runs_are_those_of_the_recipes() -> None:
    recorded: dict[tuple[str, str], set[Any]] = {}
    for line in read_results(ROOT / "results" / "deep.jsonl"):
        if line["stage"] == "search":
            recorded.setdefault((line["cell"], line["protocol"]), set()).add(key_of_line(line))
    assert recorded
    for (cell, protocol), keys in recorded.items():
        assert keys <= {one.key() for one in search_runs(TABLE, cell, protocol=protocol)}


def test_without_final_runs_there_is_no_page() -> None:
    with pytest.raises(ValueError, match="no final runs"):
        deep_page([run("lorentz", 0, 80.0) | {"stage": "search"}])
