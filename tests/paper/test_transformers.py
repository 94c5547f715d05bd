"""The study of transformers: its recipes, and a shrunken form of it that runs to its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from lresnet.data import ImageData, ImageSet, text_task
from lresnet.data.tasks import TextTask
from lresnet.runs import training as runs
from lresnet.runs.model_config import GPTConfig, ViTConfig
from lresnet.runs.search import best_configuration, draw, smoothed_best
from lresnet.runs.task_config import TextTaskConfig
from lresnet.train.results import append_result, read_results
from lresnet_paper import plan as plans
from lresnet_paper.comparisons import compare_methods
from lresnet_paper.pages.text_tables import comparison_table, result_table
from lresnet_paper.plan import cells_of, final_runs, recipe, search_runs
from lresnet_paper.results import aggregate
from lresnet_paper.run import Run, images_of, run_config, split_depth, text_cell
from lresnet_paper.sweep import reproduce_cell

CELLS = ("cifar10", "cifar100", "gcide")


def test_every_data_set_has_three_depths() -> None:
    assert cells_of("transformers") == [f"{name}/{depth}" for name in CELLS for depth in (6, 12, 24)]
    assert split_depth("cifar100/24") == ("cifar100", 24)
    assert split_depth("cifar10/r20") == ("cifar10/r20", None)
    assert images_of(Run("transformers", "cifar100/24", "none", "depth", 0, {})) == "cifar100"
    assert text_cell("gcide/6") == "gcide"


@pytest.mark.parametrize("cell", CELLS)
def test_the_configurations_are_those_that_were_drawn(cell: str) -> None:
    plan = recipe("transformers", cell)
    assert plan["configurations"] == draw(plan["space"], plan["count"], plan["seed"], ignoring=["curvature"])
    for name, values in plan["space"].items():
        assert {one[name] for one in plan["configurations"]} == set(values)


@pytest.mark.parametrize("cell", ["cifar10/6", "cifar100/12", "gcide/24"])
def test_every_method_has_the_same_budget_and_a_valid_configuration(cell: str) -> None:
    searched = search_runs("transformers", cell)
    plan = recipe("transformers", split_depth(cell)[0])
    assert len(searched) == len(plan["methods"]) * 4
    kinds: dict[str, dict[str, Any]] = {}
    for run in searched:
        config = run_config(run)
        assert isinstance(config.model, GPTConfig if cell.startswith("gcide") else ViTConfig)
        assert config.model.num_layers == split_depth(cell)[1]
        kinds[run.method] = config.model.arguments()
    assert kinds["euclidean_l2"]["scores"] == "l2"
    assert kinds["lorentz_per_layer"]["curvature_per_layer"] is True
    assert "scores" not in kinds["euclidean"]
    shown = {
        name: {key: own[key] for key in own if key not in ("residual_options", "curvature")}
        for name, own in kinds.items()
    }
    assert len({repr(own) for own in shown.values()}) == len(kinds)  # no two methods are the same


def test_fewest_bits_are_chosen() -> None:
    records = [{"config": {"lr": lr}, "validation": value} for lr, value in ((0.1, 2.0), (0.2, 1.5), (0.3, None))]
    assert best_configuration(records, lowest=True) == {"lr": 0.2}
    assert best_configuration(records) == {"lr": 0.1}
    assert smoothed_best([(1, 3.0), (2, 1.0)], lowest=True) == 2.0
    assert smoothed_best([(n, float(n)) for n in range(10)], lowest=True) == 2.0


def test_the_final_runs_of_a_text_have_the_configuration_with_the_fewest_bits(tmp_path: Path) -> None:
    results = tmp_path / "transformers.jsonl"
    for run in search_runs("transformers", "gcide/6", ["none"]):
        value = 1.0 + abs(run.config["lr"] - 0.001)
        record = {name: getattr(run, name) for name in Run.__dataclass_fields__}
        append_result(results, record | {"validation": value, "validation_smoothed": value})
    found = final_runs("transformers", "gcide/6", results, ["none"])
    assert [run.seed for run in found] == [0, 1, 2]
    assert {run.config["lr"] for run in found} == {0.001}
    assert all(run_config(run).train.epochs == 4 for run in found)


def test_fewer_bits_per_byte_are_better() -> None:
    lines = [
        {"table": "transformers", "cell": "gcide/6", "protocol": "depth", "method": name, "seed": seed, "value": value}
        for name, own in {"lorentz": 1.5, "euclidean": 1.7}.items()
        for seed, value in enumerate((own, own + 0.01, own + 0.021 * (name == "lorentz") + 0.02))
    ]
    (one,) = compare_methods(lines)
    assert one.difference.mean < 0
    assert one.verdict == "better"


@pytest.fixture
def shrunken(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The recipe of the text with two methods, two depths and a text of a few kilobytes."""
    full = recipe("transformers", "gcide")
    small = full | {
        "methods": ["lorentz_per_layer", "euclidean_l2"],
        "depths": [1, 2],
        "final_seeds": [0, 1],
        "fixed": full["fixed"] | {"width": 16, "heads": 2, "context": 16, "batch_size": 16, "epochs": 1},
        "search": {"epochs": 1},
        "configurations": full["configurations"][:2],
    }
    small["fixed"].pop("warmup")
    lines = b"".join(b"%d green bottles\n" % number for number in range(150))

    def load(config: TextTaskConfig) -> TextTask:
        return text_task(lines, context=config.context, name=config.name)

    monkeypatch.setattr(runs, "_text", load)
    monkeypatch.setattr(plans, "recipe", lambda table, cell, protocol=None: small)
    monkeypatch.setattr("lresnet_paper.sweep._run_in_workers", _in_this_process)
    return small


def _in_this_process(groups: Any, command: str, device: str, workers: int, deadline: float, recorder: Any) -> None:
    from lresnet_paper.sweep import _run_here

    _run_here(groups, command, device, deadline, recorder)


def test_a_shrunken_study_runs_to_its_end(shrunken: dict[str, Any], tmp_path: Path) -> None:
    results = tmp_path / "transformers.jsonl"
    for cell in ("gcide/1", "gcide/2"):
        assert reproduce_cell("transformers", cell, results) == 0
    lines = list(read_results(results))
    final = [line for line in lines if line["stage"] == "final"]
    assert len(lines) == 2 * 2 * (2 + 2)
    assert len(final) == 2 * 2 * 2
    assert all(line["metrics"].keys() == {"bits_per_byte", "loss"} and 0 < line["value"] < 9 for line in final)
    assert {line["config"]["num_layers"] for line in final} == {1, 2}
    shown = list(result_table(aggregate(final), "transformers").columns[1].cells)
    assert sum(re.fullmatch(r"\d\.\d{4} ± \d\.\d{4}", str(one)) is not None for one in shown) == 4
    assert comparison_table(compare_methods(final, "lorentz_per_layer")).row_count > 0


def test_a_shrunken_study_on_images_runs_to_its_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    full = recipe("transformers", "cifar10")
    small = full | {
        "methods": ["lorentz", "euclidean"],
        "depths": [1],
        "final_seeds": [0],
        "fixed": full["fixed"] | {"width": 16, "heads": 2, "batch_size": 20, "epochs": 2, "warmup": 0, "eval_every": 1},
        "search": {"epochs": 1, "holdout": 0.5},
        "configurations": full["configurations"][:1],
    }
    images = torch.randint(0, 256, (40, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    part = ImageSet(images, torch.arange(40) % 10)
    data = ImageData("cifar10", part, part, tuple("abcdefghij"), (0.5,) * 3, (0.25,) * 3)
    monkeypatch.setattr(runs, "_images", lambda *_: data)
    monkeypatch.setattr(plans, "recipe", lambda table, cell, protocol=None: small)
    monkeypatch.setattr("lresnet_paper.sweep._run_in_workers", _in_this_process)
    results = tmp_path / "transformers.jsonl"
    assert reproduce_cell("transformers", "cifar10/1", results) == 0
    assert [line["stage"] for line in read_results(results)].count("final") == 2
