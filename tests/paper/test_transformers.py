"""The study of transformers: its recipes, and a shrunken form of it that runs to its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from lresnet.data import ImageData, ImageSet, text_task
from lresnet.data.tasks import TextTask
from lresnet.runs import tasks
from lresnet.runs.model_config import GPTConfig, ViTConfig
from lresnet.runs.search import best_configuration, smoothed_best
from lresnet.runs.task_config import TextTaskConfig
from lresnet.train.results import append_result, read_results
from lresnet_paper import plan as plans
from lresnet_paper import sweep
from lresnet_paper.__main__ import main
from lresnet_paper.comparisons import compare_methods
from lresnet_paper.pages.text_tables import comparison_table, result_table
from lresnet_paper.pages.transformers_page import transformers_page
from lresnet_paper.plan import cells_of, final_runs, recipe, search_runs
from lresnet_paper.results import aggregate
from lresnet_paper.run import Run, images_of, run_config, split_depth, text_cell
from lresnet_paper.sweep import reproduce_cell, run_all

ROOT = Path(__file__).parents[2]
CELLS = ("cifar10", "cifar100", "gcide")


def test_every_data_set_has_three_depths() -> None:
    assert cells_of("transformers") == [f"{name}/{depth}" for name in CELLS for depth in (6, 12, 24)]
    assert split_depth("cifar100/24") == ("cifar100", 24)
    assert split_depth("cifar10/r20") == ("cifar10/r20", None)
    assert images_of(Run("transformers", "cifar100/24", "none", "depth", 0, {})) == "cifar100"
    assert text_cell("gcide/6") == "gcide"


@pytest.mark.parametrize("cell", CELLS)
def test_the_configurations_are_all_learning_rates(cell: str) -> None:
    plan = recipe("transformers", cell)
    assert plan["configurations"] == [{"lr": lr} for lr in plan["space"]["lr"]]


@pytest.mark.parametrize("cell", ["cifar10/6", "cifar100/12", "gcide/24"])
def test_every_method_has_the_same_budget_and_a_valid_configuration(cell: str) -> None:
    searched = search_runs("transformers", cell)
    plan = recipe("transformers", split_depth(cell)[0])
    assert len(searched) == len(plan["methods"]) * 3
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
        value = 1.0 + abs(run.config["lr"] - 0.0015)
        record = {name: getattr(run, name) for name in Run.__dataclass_fields__}
        append_result(results, record | {"validation": value, "validation_smoothed": value})
    found = final_runs("transformers", "gcide/6", results, ["none"])
    assert [run.seed for run in found] == [0, 1, 2]
    assert {run.config["lr"] for run in found} == {0.0015}
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

    monkeypatch.setattr(tasks, "_text", load)
    monkeypatch.setattr(plans, "recipe", lambda table, cell, protocol=None: small)
    monkeypatch.setattr("lresnet_paper.sweep._run_in_workers", _in_this_process)
    return small


def _in_this_process(parts: Any, device: str, workers: int, deadline: float) -> None:
    from lresnet_paper.sweep import _run_here

    _run_here(parts, device, deadline)


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
    monkeypatch.setattr(tasks, "_images", lambda *_: data)
    monkeypatch.setattr(plans, "recipe", lambda table, cell, protocol=None: small)
    monkeypatch.setattr("lresnet_paper.sweep._run_in_workers", _in_this_process)
    results = tmp_path / "transformers.jsonl"
    assert reproduce_cell("transformers", "cifar10/1", results) == 0
    assert [line["stage"] for line in read_results(results)].count("final") == 2


def test_the_cpu_form_searches_the_same_learning_rates_for_every_method_and_depth() -> None:
    for depth in (6, 12, 24):
        searched = search_runs("transformers", f"gcide/{depth}", protocol="depth-cpu")
        by_method: dict[str, list[dict[str, Any]]] = {}
        for run in searched:
            by_method.setdefault(run.method, []).append(run.config)
            config = run_config(run)
            assert isinstance(config.task, TextTaskConfig)
            assert (config.task.max_bytes, config.task.steps_per_epoch) == (1_000_000, 100)
            assert config.model.residual == run.method
        assert len(by_method) == 5
        assert all(own == by_method["lorentz"] for own in by_method.values())
        assert [one["lr"] for one in by_method["lorentz"]] == [0.001, 0.003, 0.01]


def test_the_cpu_form_prints_no_warning_about_days(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("lresnet_paper.sweep.reproduce_cells", lambda *_, **__: 0)
    call = ["reproduce", "transformers", "--cell", "gcide/6", "--device", "cpu", "--results", str(tmp_path)]
    assert main([*call, "--protocol", "depth-cpu"]) == 0
    assert "days" not in capsys.readouterr().err
    assert main([*call, "--protocol", "depth"]) == 0
    assert "takes days on a CPU" in capsys.readouterr().err


def test_an_interrupted_training_on_a_text_resumes_bit_for_bit(
    shrunken: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = shrunken["fixed"] | {"epochs": 3, "steps_per_epoch": 4, "eval_every": 1, "lr": 0.01, "num_layers": 1}
    run = Run("transformers", "gcide/1", "lorentz", "depth", 0, settings)
    whole, cut = tmp_path / "whole" / "transformers.jsonl", tmp_path / "cut" / "transformers.jsonl"
    assert run_all([run], whole, command="test") == 0

    def interrupt(epoch: int, _: float | None) -> None:
        trained.append(epoch)
        if epoch == 2 and not cut.is_file():
            raise KeyboardInterrupt

    def execute(run: Run, **options: Any) -> Any:
        return real(run, **options, on_epoch=interrupt)

    trained: list[int] = []
    real = sweep.execute
    monkeypatch.setattr(sweep, "execute", execute)
    with pytest.raises(KeyboardInterrupt):
        run_all([run], cut, command="test")
    monkeypatch.setattr(sweep, "execute", real)
    assert run_all([run], cut, command="test") == 0
    (one,), (other,) = list(read_results(whole)), list(read_results(cut))
    assert {name: one[name] for name in one if name != "seconds"} == {
        name: other[name] for name in other if name != "seconds"
    }
    assert trained == [1, 2]
    assert not list((cut.parent / "unfinished").glob("*.pt*"))


def test_a_run_that_another_process_has_finished_meanwhile_is_not_trained_again(
    shrunken: dict[str, Any], tmp_path: Path
) -> None:
    """It was missing when it was given to a worker, which was busy."""
    run = Run("transformers", "gcide/1", "lorentz", "depth", 0, shrunken["fixed"] | {"lr": 0.01, "num_layers": 1})
    results = tmp_path / "transformers.jsonl"
    assert run_all([run], results, command="test") == 0
    assert sweep._execute_group([run], "test", "cpu", results) == []


def line(method: str, depth: int, seed: int, value: float | None, protocol: str = "depth-cpu") -> dict[str, Any]:
    place = {"table": "transformers", "cell": f"gcide/{depth}", "method": method, "protocol": protocol, "seed": seed}
    config = {"lr": 0.003, "num_layers": depth}
    return place | {"split": None, "stage": "final", "config": config, "value": value, "seconds": 60, "hardware": "CPU"}


def test_the_page_states_verdicts_depth_and_what_is_missing() -> None:
    means = {"lorentz": {6: 2.5, 12: 2.4, 24: 2.2}, "euclidean": {6: 2.4, 12: 2.4, 24: 2.4}, "none": {6: 4.0}}
    noise = {"lorentz": (0.0, 0.001, 0.002), "euclidean": (0.0, 0.002, 0.001), "none": (0.002, 0.0, 0.001)}
    lines = [
        line(method, depth, seed, mean + noise[method][seed])
        for method, own in means.items()
        for depth, mean in own.items()
        for seed in range(3)
    ]
    page = transformers_page([*lines, line("tangent", 6, 0, None), line("tangent", 6, 1, 2.5)])
    assert "At 6 blocks the Lorentz residual is better than `none`, and is worse than `euclidean`." in page
    assert "At 12 blocks the Lorentz residual is not shown to differ from `euclidean`." in page
    assert "At 24 blocks the Lorentz residual is better than `euclidean`." in page
    assert (
        "From 6 to 24 blocks the figures of `lorentz` improve, and those of `euclidean` show no difference. "
        "23 of 45 final runs are finished."
    ) in page
    assert (
        "| lorentz | 2.501 ± 0.001 (3) | 2.401 ± 0.001 (3) | 2.201 ± 0.001 (3) | -0.300 ± 0.000 (3), better |" in page
    )
    assert "| tangent | 2.500 (1, 1 diverged) |  |  | not measured |" in page
    assert re.search(r"\| euclidean \| \+0.100 ± 0.002 \(3\), worse \| .0.000 ± 0.002 \(3\) \| -0.200 ± 0.002", page)
    assert "No chosen learning rate is the smallest or the largest" in page
    assert "- cifar10, `depth`: 63 final runs" in page
    for one in lines[:3]:  # the three seeds of Lorentz with 6 blocks
        one["config"]["lr"] = 0.01
    assert "learning rate that was tried was chosen for `lorentz` with 6 blocks. These networks" in transformers_page(
        lines
    )


def test_the_page_of_one_run_compares_nothing() -> None:
    page = transformers_page([line("lorentz", 6, 0, 2.5)])
    assert "No two methods share two seeds yet" in page
    assert "From 6 to 24" not in page
    with pytest.raises(ValueError, match="no final runs of the study"):
        transformers_page([line("lorentz", 6, 0, None)])


def test_the_committed_page_is_the_one_of_the_committed_results() -> None:
    page = transformers_page(list(read_results(ROOT / "results" / "transformers.jsonl")))
    assert page == (ROOT / "docs" / "reproduction" / "transformers.md").read_text(encoding="utf-8")


def test_the_page_states_the_size_of_each_form_and_its_learned_curvature() -> None:
    lines = [line("lorentz", 6, 0, 1.5, "depth"), line("lorentz", 6, 0, 70.0, "depth") | {"cell": "cifar10/6"}]
    page = transformers_page(lines)
    assert (
        "This is a short study: the first 20,000,000 bytes of the text, width 256, a context of 512 bytes, and 800 "
        "training steps of 32 windows."
    ) in page
    assert "This is a short study: width 128, and 12 epochs in batches of 256." in page
    assert "`lorentz_per_layer` learns a curvature for each block" in page
    assert "whose curvature is fixed; it had been chosen" in page
    assert "whose curvature is fixed" not in transformers_page([line("lorentz", 6, 0, 2.5)])
