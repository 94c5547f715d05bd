"""The table ood: one training gives one line per out-of-distribution set; nothing is trained or written twice."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from lresnet import cli
from lresnet.data.ood_sets import OodSet
from lresnet.metrics import ood_metrics
from lresnet.models import LorentzResNet
from lresnet.runs import detection
from lresnet.runs.detection import embed_and_score
from lresnet.runs.model_config import ResNetConfig
from lresnet.runs.search import draw
from lresnet.runs.task_config import ImageTaskConfig
from lresnet.runs.tasks import _images
from lresnet.train import Augment, ImageClassification, NonFiniteError, TrainConfig
from lresnet.train.results import append_result, read_results
from lresnet_paper import ood as ood_run_module
from lresnet_paper.__main__ import main as paper_main
from lresnet_paper.ood import PAPER_SETS, cells_served, detections, lines_of, ood_set, remaining, training_cell
from lresnet_paper.plan import final_runs, missing_runs, recipe, recipe_cells, search_runs
from lresnet_paper.run import Run, execute
from lresnet_paper.sweep import reproduce_cell, run_all
from tests.coloured import coloured_data
from tests.paper.settings import settings_of

CELLS = ["cifar100/r20", "cifar100/r32", "cifar10/r20", "cifar10/r32"]
CONFIG = {"model": "lorentz_resnet20", "epochs": 1, "batch_size": 20, "lr": 0.05, "optimizer": "sgd", "keep": "last"}
NAN = float("nan")
NOTES = {"places": "a stand-in", "svhn": "", "textures": "a part of it"}


def run(cell: str = "cifar10/r20", **change: Any) -> Run:
    return Run(
        **{"table": "ood", "method": "lorentz", "protocol": "fast", "seed": 0, "config": CONFIG} | change, cell=cell
    )


# --- the recipes ------------------------------------------------------------------------------------------------------


def test_every_training_has_our_recipe_and_the_papers_recipe():
    assert recipe_cells("ood") == CELLS
    assert [recipe("ood", cell)["protocol"] for cell in CELLS] == ["fast"] * 4
    assert [recipe("ood", cell, "paper")["protocol"] for cell in CELLS] == ["paper"] * 4


@pytest.mark.parametrize("cell", ["cifar10/r20", "cifar100/r20"])
def test_configurations_are_what_the_stated_seed_draws_and_all_methods_use(cell):
    plan = recipe("ood", cell)
    assert plan["configurations"] == draw(plan["space"], plan["count"], plan["seed"])
    pairs = {(c["lr"], c["weight_decay"]) for c in plan["configurations"]}
    assert len(pairs) == len(plan["space"]["lr"]) * len(plan["space"]["weight_decay"])
    curvatures = [c["curvature"] for c in plan["configurations"]]
    assert min(curvatures.count(K) for K in plan["space"]["curvature"]) >= 2


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("protocol", ["fast", "paper"])
def test_every_setting_exists_and_no_setting_distorts_the_energy(cell, protocol):
    plan = recipe("ood", cell, protocol)
    known = settings_of(ResNetConfig, ImageTaskConfig, TrainConfig, Augment)
    assert set(plan["fixed"]) | set(plan.get("space", {})) <= known | {"model"}
    assert plan["fixed"]["model"] == f"lorentz_resnet{cell[-2:]}"
    assert plan["fixed"]["keep"] == "last"
    assert not plan["fixed"].keys() & {"label_smoothing", "cutout"}


def test_both_networks_use_the_same_settings():
    for images in ("cifar10", "cifar100"):
        small, large = (recipe("ood", f"{images}/{network}")["fixed"] for network in ("r20", "r32"))
        assert small | {"model": "lorentz_resnet32"} == large


# --- cells ------------------------------------------------------------------------------------------------------------


def test_a_training_serves_three_cells_and_a_single_cell_only_itself():
    assert cells_served("ood", "cifar100/r32") == [f"cifar100/{name}/r32" for name in PAPER_SETS]
    assert cells_served("ood", "cifar10/svhn/r20") == ["cifar10/svhn/r20"]
    assert training_cell("ood", "cifar10/svhn/r20") == training_cell("ood", "cifar10/r20") == "cifar10/r20"
    for table, cell in (("gnn", "disease/lp"), ("image_classification", "cifar10"), ("oversmoothing", "disease/lp/64")):
        assert cells_served(table, cell) == [cell]
        assert training_cell(table, cell) == cell


def test_remaining_runs_of_a_partly_finished_training():
    whole = run()
    parts = [dataclasses.replace(whole, cell=cell) for cell in cells_served("ood", whole.cell)]
    assert remaining(whole, set()) == [whole]
    assert remaining(whole, {parts[1].key()}) == [parts[0], parts[2]]
    assert remaining(whole, {part.key() for part in parts}) == []
    assert remaining(parts[1], {parts[0].key()}) == [parts[1]]
    search = run(stage="search")
    assert remaining(search, {part.key() for part in parts}) == [search]
    assert remaining(search, {search.key()}) == []


# --- which runs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["cifar10/r20", "cifar10/r32", "cifar10/svhn/r20", "cifar10/svhn/r32"])
def test_all_networks_and_sets_share_the_search_of_resnet_20(cell):
    wanted = search_runs("ood", cell)
    assert wanted == search_runs("ood", "cifar10/r20")
    assert len(wanted) == 8 * 5
    assert {one.cell for one in wanted} == {"cifar10/r20"}
    assert {one.config["model"] for one in wanted} == {"lorentz_resnet20"}
    assert {(one.config["epochs"], one.config["holdout"]) for one in wanted} == {(30, 0.1)}


def test_resnet_32_uses_the_settings_chosen_for_resnet_20(tmp_path):
    path = tmp_path / "ood.jsonl"
    searched = search_runs("ood", "cifar10/r20", ["tangent"])
    for number, one in enumerate(searched):
        append_result(path, dataclasses.asdict(one) | {"validation": 90.0 + (number == 5)})
    best = recipe("ood", "cifar10/r20")["configurations"][5]
    for cell, model in (("cifar10/r20", "lorentz_resnet20"), ("cifar10/places/r32", "lorentz_resnet32")):
        final = final_runs("ood", cell, path)
        assert [(one.method, one.seed, one.cell) for one in final] == [("tangent", seed, cell) for seed in (0, 1, 2)]
        for one in final:
            assert one.config.items() >= (best | {"model": model, "epochs": 100}).items()
            assert "holdout" not in one.config
    assert final_runs("ood", "cifar100/r32", path) == []


def test_ties_are_decided_by_the_order_of_the_recipe(tmp_path):
    for name, order in (("in order", 1), ("reversed", -1)):
        path = tmp_path / f"{name}.jsonl"
        for one in search_runs("ood", "cifar10/r20", ["lorentz"])[::order]:
            append_result(path, dataclasses.asdict(one) | {"validation": 90.0})
        first = recipe("ood", "cifar10/r20")["configurations"][0]
        assert all(one.config.items() >= first.items() for one in final_runs("ood", "cifar10/r20", path, ["lorentz"]))


def test_seeds_are_those_of_the_recipe(tmp_path):
    path = tmp_path / "ood.jsonl"
    for images in ("cifar10", "cifar100"):
        for one in search_runs("ood", f"{images}/r20"):
            append_result(path, dataclasses.asdict(one) | {"validation": 90.0})
    counts = {
        (images, method): sum(one.method == method for one in final_runs("ood", f"{images}/r32", path))
        for images in ("cifar10", "cifar100")
        for method in ("lorentz", "euclidean", "space", "tangent", "parallel_transport")
    }
    assert {key for key, count in counts.items() if count == 5} == {("cifar10", "lorentz"), ("cifar10", "euclidean")}
    assert set(counts.values()) == {3, 5}


@pytest.mark.parametrize("cell", ["cifar10/r32", "cifar10/svhn/r32"])
def test_the_papers_settings_need_no_search(cell, tmp_path):
    assert search_runs("ood", cell, protocol="paper") == []
    final = final_runs("ood", cell, tmp_path / "none.jsonl", protocol="paper")
    assert [(one.method, one.seed) for one in final] == [(m, s) for m in ("lorentz", "euclidean") for s in (0, 1, 2)]
    assert {one.cell for one in final} == {cell}
    for one in final:
        assert one.config.items() >= {"optimizer": "adam", "lr": 0.01, "weight_decay": 1e-4, "batch_size": 128}.items()


# --- training and detection -------------------------------------------------------------------------------------------


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Replace the images by tiny ones; return the names of the loaded sets, in order."""
    loaded: list[str] = []

    def load(name: str) -> OodSet:
        loaded.append(name)
        generator = torch.Generator().manual_seed(len(name))
        images = torch.randint(256, (9, 8, 8, 3), generator=generator, dtype=torch.uint8)
        return OodSet(name, images, note=NOTES[name])

    monkeypatch.setattr("lresnet.runs.tasks.load_images", lambda name, size=None: coloured_data())
    monkeypatch.setattr(ood_run_module, "load_ood_set", load)
    _images.cache_clear()
    ood_set.cache_clear()
    yield loaded
    _images.cache_clear()
    ood_set.cache_clear()


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Record every training; the worker is one thread."""
    from lresnet_paper import sweep as module

    runs: list[Run] = []

    def recorded(one: Run, **options: Any) -> Any:
        runs.append(one)
        return execute(one, **options)

    @contextmanager
    def pool(workers: int) -> Iterator[ThreadPoolExecutor]:
        with ThreadPoolExecutor(1) as executor:
            yield executor

    monkeypatch.setattr(module, "execute", recorded)
    monkeypatch.setattr(module, "worker_pool", pool)
    return runs


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])  # cpu:0 takes the code path of a GPU
def test_one_training_gives_three_lines_and_is_not_repeated(toys, trainings, tmp_path, device):
    path = tmp_path / "ood.jsonl"
    assert run_all([run()], path, command="c", device=device) == 0
    assert len(trainings) == 1
    assert sorted(toys) == sorted(PAPER_SETS)
    lines = list(read_results(path))
    assert [line["cell"] for line in lines] == cells_served("ood", "cifar10/r20")
    for line, name in zip(lines, PAPER_SETS, strict=True):
        metrics = line["metrics"]
        assert line["value"] == metrics["auroc"]
        assert line["note"] == NOTES[name]
        assert line["served"] == 3
        assert metrics.keys() >= {"fpr95", "fpr95_first", "auroc", "aupr", "aupr_out", "full", "scores", "accuracy"}
        assert set(metrics["scores"]) == {"softmax", "logit", "origin_distance", "boundary_distance"}
        assert all(own.keys() >= {"auroc", "full"} for own in metrics["scores"].values())
        assert set(line["norm_confidence"]) == {"spearman", "pearson"}
        assert "detections" not in line
        assert (metrics["n_id"], metrics["n_ood"], metrics["full"]["n_ood"]) == (30, 6, 9)
    assert len({json.dumps([line["metrics"]["accuracy"], line["norm_confidence"]]) for line in lines}) == 1
    assert run_all([run()], path, command="c", device=device) == 0
    assert run_all([run("cifar10/svhn/r20")], path, command="c", device=device) == 0
    assert len(trainings) == 1


def test_a_finished_cell_is_not_written_again(toys, trainings, tmp_path):
    path = tmp_path / "ood.jsonl"
    assert run_all([run("cifar10/svhn/r20")], path, command="c") == 0
    assert toys == ["svhn"]  # the other sets are not needed
    assert [one.cell for one in missing_runs([run()], path)] == ["cifar10/places/r20", "cifar10/textures/r20"]
    assert run_all([run()], path, command="c") == 0
    assert sorted(line["cell"] for line in read_results(path)) == cells_served("ood", "cifar10/r20")


def test_the_metrics_compare_test_images_with_the_ood_set(toys):
    record, model = execute(run(), command="c")
    found = detections(run(), model, "cpu")["detections"]["cifar10/svhn/r20"]
    data = coloured_data()
    inside, outside = (
        embed_and_score(model, images, data.mean, data.std, ["energy", "softmax"])
        for images in (data.test.images, ood_set("svhn").images)
    )
    for score, own in (("energy", found["metrics"]), ("softmax", found["metrics"]["scores"]["softmax"])):
        expected = ood_metrics(inside[score], outside[score])
        assert own["full"]["auroc"] == pytest.approx(expected["auroc"], abs=1e-3)
        assert own["full"]["fpr95"] == pytest.approx(expected["fpr95"], abs=1e-3)
    lines = lines_of(record | detections(run(), model, "cpu"))
    assert lines[1]["metrics"]["accuracy"] == record["metrics"]["accuracy"]
    assert sum(line["seconds"] for line in lines) == pytest.approx(record["seconds"], abs=0.02)


def test_the_euclidean_baseline_has_euclidean_scores(toys):
    baseline = run(method="euclidean")
    _, model = execute(baseline, command="c")
    found = detections(baseline, model, "cpu")["detections"]["cifar10/places/r20"]
    assert set(found["metrics"]["scores"]) == {"softmax", "logit", "euclidean_norm", "euclidean_boundary_distance"}


def test_space_addition_equals_the_euclidean_network_before_the_head(toys):
    """With the same parameters except the head's, the points before pooling are bit-identical."""
    _, space = execute(run(method="space"), command="c")
    _, baseline = execute(run(method="euclidean"), command="c")
    assert isinstance(space, LorentzResNet)
    assert isinstance(baseline, LorentzResNet)
    body = {name: value for name, value in baseline.state_dict().items() if name.startswith(("stem", "blocks"))}
    missing, unexpected = space.load_state_dict(body, strict=False)
    assert not unexpected
    assert all(name.startswith(("head", "manifold")) for name in missing)
    images = torch.randn(4, 3, 8, 8)
    assert torch.equal(space.eval().features(images), baseline.eval().features(images))


def test_a_diverged_training_gives_three_lines_without_a_value(toys, trainings, tmp_path, monkeypatch):
    def diverge(one: Run, **_: Any) -> None:
        raise NonFiniteError("the loss stopped being finite at step 7")

    monkeypatch.setattr("lresnet_paper.sweep.execute", diverge)
    path = tmp_path / "ood.jsonl"
    assert run_all([run()], path, command="c") == 0
    lines = list(read_results(path))
    assert [(line["cell"], line["value"]) for line in lines] == [(c, None) for c in cells_served("ood", "cifar10/r20")]
    assert missing_runs([run()], path) == []


@pytest.mark.parametrize("where", ["test images", "an OOD set"])
def test_a_model_with_non_finite_scores_gives_lines_without_a_value(toys, trainings, tmp_path, monkeypatch, where):
    """Training was finite, so it raised no error; the sweep must record the run and go on with the table."""
    if where == "test images":
        monkeypatch.setattr(
            ImageClassification, "_evaluate", lambda self, model, images: torch.full((len(images), 3), NAN)
        )
    else:
        monkeypatch.setitem(detection._OF_LOGITS, "logit", lambda logits: logits.amax(-1) * NAN)
    path = tmp_path / "ood.jsonl"
    assert run_all([run()], path, command="c") == 0
    lines = list(read_results(path))
    assert [line["value"] for line in lines] == [None] * 3
    assert {line["error"].partition(" ")[0] for line in lines} == {
        "the" if where == "test images" else "in-distribution"
    }
    assert missing_runs([run()], path) == []


def test_a_search_run_reads_no_ood_set_and_no_test_image(toys, trainings, tmp_path):
    path = tmp_path / "ood.jsonl"
    assert run_all([run(stage="search", config=CONFIG | {"holdout": 0.2})], path, command="c") == 0
    (line,) = read_results(path)
    assert line["cell"] == "cifar10/r20"
    assert not line.keys() & {"value", "metrics", "detections", "norm_confidence"}
    assert toys == []


@pytest.mark.parametrize("how", [{"protocol": "paper", "stage": "final"}, {}])  # {} would search for hours first
def test_missing_images_are_reported_before_training(toys, trainings, tmp_path, monkeypatch, how):
    def gone(name: str) -> OodSet:
        raise FileNotFoundError(f"there are no images of {name}")

    monkeypatch.setattr(ood_run_module, "load_ood_set", gone)
    with pytest.raises(FileNotFoundError, match="no images of places"):
        reproduce_cell("ood", "cifar10/r20", tmp_path / "ood.jsonl", **how)
    assert trainings == []


# --- command line -----------------------------------------------------------------------------------------------------

RECIPE = """
protocol = "fast"
methods = ["lorentz", "euclidean"]
search_seeds = [1000]
seeds = {{ lorentz = [0, 1], euclidean = [0, 1] }}
fixed = {{ model = "lorentz_resnet20", epochs = 1, batch_size = 20, keep = "last", {own} }}
"""
SEARCHED = (
    RECIPE.format(own="eval_every = 1") + "search = { holdout = 0.2 }\nconfigurations = [{ lr = 0.01 }, { lr = 0.02 }]"
)
RECIPES = {
    "cifar10_r20.fast": SEARCHED,
    "cifar10_r32.fast": RECIPE.format(own="eval_every = 2") + 'searched_at = "cifar10/r20"',
}


def test_the_whole_table_in_one_command_and_a_report(toys, trainings, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("lresnet_paper.plan._files", lambda table: RECIPES)
    call = ["reproduce", "ood", "--device", "cpu", "--results", str(tmp_path)]
    assert cli.main(call) == 0
    assert [one.stage for one in trainings].count("search") == 4
    assert [one.stage for one in trainings].count("final") == 8
    out = capsys.readouterr()
    assert "warning: training on cifar10/r20 and cifar10/r32 takes days on a CPU" in out.err
    assert "ood: cifar10 against svhn, fast" in out.out
    assert "Lorentz minus the other" in out.out
    assert max(map(len, out.out.splitlines())) <= 80
    assert len(list(read_results(tmp_path / "ood.jsonl"))) == 4 + 3 * 8
    assert cli.main([*call, "--cell", "cifar10/svhn/r32"]) == 0
    assert len(trainings) == 12  # every run was there
    assert "against places" not in capsys.readouterr().out

    assert paper_main(["report", str(tmp_path), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert len(figures) == 6 * 2
    first = next(f for f in figures if (f["cell"], f["method"]) == ("cifar10/places/r20", "lorentz"))
    assert (first["n"], first["paper"], first["note"]) == (2, {"mean": 82.6, "std": None}, "a stand-in")


def test_an_unknown_cell_suggests_the_nearest(capsys):
    assert cli.main(["reproduce", "ood", "--cell", "cifar10/svhm/r20", "--device", "cpu"]) == 2
    assert "did you mean 'cifar10/svhn/r20'" in capsys.readouterr().err
