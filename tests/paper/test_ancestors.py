"""The study of ancestor retrieval: its plan, its lines, how it resumes, its contrasts and its page."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from lresnet.models import create_model
from lresnet.train.results import append_result, read_results
from lresnet_paper import ancestors, hierarchy_images
from lresnet_paper.__main__ import main
from lresnet_paper.ancestors import (
    FORMS,
    Arm,
    arm_of,
    arms,
    chosen_trial,
    missing_arms,
    own_lines,
    read_plan,
    run_arm,
    run_study,
    task_of,
    total_steps,
    trials,
)
from lresnet_paper.completion import study as completion
from lresnet_paper.pages.ancestors_page import accuracy_tables, ancestors_page, ancestors_picture, registered_contrasts
from lresnet_paper.results import read_runs

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "ancestors.jsonl"
TINY: dict[str, Any] = read_plan() | {  # type: ignore[operator]
    "codes": 2,
    "train": {"optimizer": "adam", "eval_every": 5},
    "search": {"lr": [0.01], "scale": ["none", "1+w"], "lr_without_scale": [0.01, 0.02]},
    "contrasts": {"width": 4, "kappa": 1.0, "flat": 1e-6},
    "forms": {
        form: {
            "search_seeds": [7],
            "seeds": [0, 1],
            "search_steps": 3,
            "steps": 4,
            "max_anchors": 10,
            "blocks": [
                {
                    "tree": "synthetic",
                    "hops": [1, 2],
                    "widths": [4],
                    "kappas": [1e-6, 1.0],
                    "methods": ["lorentz", "none", "euclidean"],
                }
            ],
        }
        for form in FORMS
    },
}
BLOCK = {"tree": "synthetic", "hops": [2, 4, 6], "widths": [4], "kappas": [1e-6, 1.0], "methods": ["lorentz", "none"]}


def test_every_arm_has_the_same_number_of_trials_and_seeds() -> None:
    plan = read_plan()
    for form in FORMS:
        found = arms(plan, form)
        assert len(found) == len(set(found)) > 0
        assert len({len(trials(plan, arm.method)) for arm in found}) == 1
        assert {arm.kappa for arm in found if arm.method == "euclidean"} == {0.0}
        assert len(plan["forms"][form]["seeds"]) == {"small": 3, "deeper": 5}.get(form, 10)
        assert not set(plan["forms"][form]["seeds"]) & set(plan["forms"][form]["search_seeds"])
    for method in ("lorentz", "none", "tangent"):
        for one, other in itertools.combinations(trials(plan, method), 2):
            assert one != other


def test_the_arms_of_the_registered_contrasts_are_in_every_form() -> None:
    plan = read_plan()
    facts = plan["contrasts"]
    for form in FORMS:
        found = set(arms(plan, form))
        for tree, hops in {(arm.tree, arm.hops) for arm in found}:
            limit = next(arm.max_nodes for arm in found if (arm.tree, arm.hops) == (tree, hops))
            for method, kappa in (("lorentz", 1.0), ("none", 1.0), ("lorentz", facts["flat"])):
                assert Arm(form, tree, hops, facts["width"], method, kappa, limit) in found


def test_the_whole_study_has_no_more_layers_to_train_than_a_study_that_took_22_minutes_of_a_gpu() -> None:
    """The whole study has not run. The estimate is from the table `oversmoothing`, also stacks of seeds."""
    stacks = {(run["cell"], run["method"]): run for run in read_runs(ROOT / "results") if is_oversmoothing(run)}
    measured = sum(run["config"]["num_layers"] * run["config"]["epochs"] for run in stacks.values())
    assert len(stacks) == 70
    assert total_steps(read_plan(), "full")["layers"] < 1.1 * measured
    tiny = total_steps(TINY, "small")
    assert tiny == {"trainings": 10 * (2 * 3 + 2 * 4), "stacks": 10 * (2 * 3 + 4), "layers": 5 * (2 * 3 + 4) * 3}


def is_oversmoothing(run: Any) -> bool:
    return (run["table"], run["protocol"], run.get("stage", "final")) == ("oversmoothing", "legacy", "final")


def test_with_as_many_layers_as_hops_no_residual_carries_a_code() -> None:
    """In flat space, embeddings of queries depend on the codes in the same way with every residual and with none."""
    plan = read_plan()
    task = task_of(plan, Arm("small", "synthetic", 4, 16, "none", 1e-6))

    def effect(method: str, layers: int) -> torch.Tensor:
        options = {"scale": "1+w"} if method == "lorentz" else None
        sizes: dict[str, Any] = {
            "in_features": 8,
            "num_classes": 8,
            "hidden": 16,
            "num_layers": layers,
            "curvature": -1e-6,
        }
        torch.manual_seed(0)
        model = create_model(
            "lorentz_gcn", residual=method, residual_options=options, **sizes, **plan["model"]
        ).double()
        torch.manual_seed(1)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    parameter.normal_(std=0.1)
        graph = model.graph(task.edge_index, task.num_nodes)
        codes = task.val_codes[0], (task.val_codes[0] + 1) % 8
        one, other = (model.embed(model.input_points(task.features(own).double()), graph) for own in codes)
        return (other - one)[task.test_index].detach()

    methods = ("lorentz", "parallel_transport", "tangent", "space")
    none, deeper = effect("none", 4), effect("none", 6)
    for method in methods:
        assert (effect(method, 4) - none).norm() < 1e-5 * none.norm()
        assert (effect(method, 6) - deeper).norm() > 0.5 * deeper.norm()


def test_all_methods_of_a_tree_share_their_task_and_its_training_codes_are_balanced() -> None:
    plan = read_plan()
    for form in FORMS:
        for hops in (2, 4, 6):
            arm = Arm(form, "synthetic", hops, 16, "none", 1.0)
            task = task_of(plan, arm)
            assert torch.equal(task.train_index, task_of(plan, arm._replace(method="lorentz", width=8)).train_index)
            assert task.hops == hops
            assert task.anchor[task.train_index].unique().numel() % plan["codes"] == 0


def test_a_study_resumes_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, whole = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert run_study(TINY, "small", whole) == 0
    lines = own_lines(whole)
    assert len(lines) == 10 * (2 * 1 + 2)
    assert missing_arms(TINY, "small", lines) == []
    assert len(missing_arms(TINY, "full", lines)) == 10

    kept = whole.read_text().splitlines(keepends=True)[:-9]  # without two arms and a part of one
    out.write_text("".join(kept))
    trained = []
    real = ancestors.train_many
    monkeypatch.setattr(
        ancestors, "train_many", lambda models, *rest: trained.append(len(models)) or real(models, *rest)
    )
    assert run_study(TINY, "small", out, minutes=0.0) in (3, 0)
    assert run_study(TINY, "small", out) == 0
    assert sum(trained) == 9
    places = ("cell", "method", "config", "seed", "stage", "validation", "value")
    found, expected = ([{key: line.get(key) for key in places} for line in own_lines(path)] for path in (out, whole))
    assert sorted(map(str, found)) == sorted(map(str, expected))
    run_study(TINY, "small", out)
    assert sum(trained) == 9


def test_the_final_trainings_use_the_trial_with_the_best_mean_validation(tmp_path: Path) -> None:
    arm, out = arms(TINY, "small")[0], tmp_path / "a.jsonl"
    run_arm(TINY, arm, out)
    lines = own_lines(out)
    search = [line for line in lines if line["stage"] == "search"]
    best = max(search, key=lambda line: line["validation"])["config"]["settings"]
    assert all(line["config"]["settings"] == best for line in lines if line["stage"] == "final")
    assert all("value" not in line for line in search)  # the search does not read the test trees
    one = {"config": {"settings": {"lr": 0.1}}}
    other = {"config": {"settings": {"lr": 0.2}}}
    assert chosen_trial([one | {"validation": v} for v in (20.0, None)] + [other | {"validation": 15.0}]) == {"lr": 0.2}


def test_a_diverged_final_training_counts_as_chance(tmp_path: Path) -> None:
    plan = TINY | {"search": TINY["search"] | {"lr_without_scale": [1e30]}}
    arm = next(arm for arm in arms(plan, "small") if arm.method == "euclidean")
    run_arm(plan, arm, tmp_path / "a.jsonl")
    final = [line for line in own_lines(tmp_path / "a.jsonl") if line["stage"] == "final"]
    assert [line["value"] for line in final] == [50.0, 50.0]
    assert all("error" in line for line in final)
    assert "2 of 2 final trainings diverged; they count as chance" in ancestors_page(final, plan)


def line(arm: Arm, seed: int, value: float) -> dict[str, Any]:
    config = arm._asdict() | {"settings": {"lr": 0.01}, "steps": 4}
    place = {"stage": "final", "protocol": arm.form, "cell": f"{arm.tree}/k{arm.hops}", "seed": seed, "config": config}
    facts = {"hardware": "CPU", "versions": {"torch": "2"}, "command": "x", "size": {"anchors": 1, "nodes": 2}}
    return place | facts | {"value": value, "seconds": 60.0}


def test_contrasts_are_paired_by_seed_and_their_slope_is_that_of_each_seed() -> None:
    rng = np.random.default_rng(0)
    lines, values = [], {}
    for arm in arms(TINY, "cpu"):
        for seed in range(5):
            value = float(50 + 10 * (arm.method == "lorentz") * arm.hops + seed * 5 + rng.normal())
            values[arm.method, arm.kappa, arm.hops, seed] = value
            lines.append(line(arm, seed, value))
    found = {(one.name[:12], one.at): one for one in registered_contrasts(TINY, lines, "cpu")}
    assert len(found) == 6
    differences = np.array(
        [[values["lorentz", 1.0, k, s] - values["none", 1.0, k, s] for s in range(5)] for k in (1, 2)]
    )
    for hops, expected in ((1, differences[0]), (2, differences[1]), (None, differences[1] - differences[0])):
        test = stats.ttest_1samp(expected, 0)
        one = found["Lorentz minu", hops]
        assert one.difference.mean == pytest.approx(expected.mean())
        assert (one.difference.low, one.difference.high) == pytest.approx(tuple(test.confidence_interval()))
        assert one.difference.p == pytest.approx(test.pvalue)
        assert one.verdict == "better"
    assert all(found["Lorentz at k", hops].verdict == "no difference shown" for hops in (1, 2, None))


def test_a_difference_at_the_middle_depth_alone_has_no_slope() -> None:
    """Rounding errors of a fit would be a tiny slope with a small p value."""
    lines = []
    for arm in arms(TINY | {"forms": {"cpu": TINY["forms"]["cpu"] | {"blocks": [BLOCK]}}}, "cpu"):
        for seed in range(10):
            value = 94.7 + seed / 7 + (arm.method == "lorentz") * seed / 3
            lines.append(line(arm, seed, {2: 100.0, 4: value, 6: 12.5}[arm.hops]))
    found = registered_contrasts(TINY, lines, "cpu")
    slope = next(one for one in found if one.at is None and one.name.startswith("Lorentz minus none"))
    assert (slope.difference.mean, slope.difference.p) == (0.0, 1.0)


def test_the_verdict_names_what_is_decided() -> None:
    lines = [
        line(arm, seed, 60.0 + seed / 10 + 20 * (arm.method == "lorentz" and arm.kappa == 1.0 and arm.hops == 2))
        for arm in arms(TINY, "cpu")
        for seed in range(5)
    ]
    page = ancestors_page(lines, TINY)
    sentence = "better at k = 2 (+20.0 points), better the larger k is (slope +20.0 points per hop)"
    assert page.count(sentence) == 2


def test_the_page_names_what_is_at_chance_and_what_is_missing() -> None:
    lines = [line(arm, seed, 50.0 if arm.hops == 2 else 90.0) for arm in arms(TINY, "cpu")[:-1] for seed in (0, 1)]
    page = ancestors_page(lines, TINY)
    assert "The whole study has not run yet." in page
    assert "No arm leaves chance at synthetic, k = 2, width 4" in page
    sentence = "synthetic tree: no difference is shown, at k = 1, 2 or in the slope."
    assert sentence in page
    assert "1 arms are not finished." in page
    assert "| lorentz, kappa 1 | 90.0 ± 0.0 | 50.0 ± 0.0 |" in page
    assert "| slope | +0.00 |" in page
    (table,) = accuracy_tables(lines, "cpu")
    assert table.columns == ("k = 1", "k = 2")
    picture = ancestors_picture(lines, TINY)
    titles = [axes.get_title("left") for axes in picture.axes]
    assert titles == ["synthetic tree, kappa 1", "synthetic tree, kappa 1e-06"]
    assert [len(axes.containers) for axes in picture.axes] == [3, 3]
    with pytest.raises(ValueError, match="there are no final runs"):
        ancestors_page([])


def test_a_form_with_more_layers_than_hops_is_compared_by_its_layers() -> None:
    block = BLOCK | {"hops": [2], "extra_layers": [0, 3, 6]}
    plan = TINY | {"forms": TINY["forms"] | {"deeper": TINY["forms"]["deeper"] | {"blocks": [block]}}}
    found = arms(plan, "deeper")
    assert {arm.layers for arm in found} == {2, 5, 8}
    task = task_of(plan, found[0])
    assert {len(ancestors._model(plan, arm, trials(plan, arm.method)[0], task).layers) for arm in found} == {2, 5, 8}
    lines = [
        line(arm, seed, 60.0 + seed / 10 + 10 * (arm.layers == 8 and arm.method == "lorentz" and arm.kappa == 1.0))
        for arm in found
        for seed in range(5)
    ]
    contrasts = registered_contrasts(plan, lines, "deeper")
    assert [one.at for one in contrasts] == 2 * [2, 5, 8, None]
    assert [one.difference.mean for one in contrasts[:3]] == pytest.approx([0.0, 0.0, 10.0])
    assert contrasts[3].difference.mean == pytest.approx(10 / 6)
    cpu = [line(arm, seed, 60.0 + seed) for arm in arms(plan, "cpu") for seed in range(2)]
    page = ancestors_page([*cpu, *lines], plan)
    assert "| | 2 layers | 5 layers | 8 layers |" in page
    assert "see [more layers than hops](#more-layers-than-hops)" in page
    assert "better at 8 layers (+10.0 points), better the deeper the network is (slope +1.7 points per layer)" in page
    old = lines[0] | {"config": {key: own for key, own in lines[0]["config"].items() if key != "extra_layers"}}
    assert arm_of(old).layers == 2


def test_the_command_line_runs_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.toml"
    text = Path(ancestors.__file__).with_suffix(".toml").read_text(encoding="utf-8")
    start = text.index("[forms.full]")
    plan.write_text(
        text[:start]
        + "[forms.small]\nsearch_seeds = [9]\nseeds = [0]\nsearch_steps = 2\nsteps = 2\nmax_anchors = 12\n"
        + "[[forms.small.blocks]]\ntree = 'synthetic'\nhops = [1]\nwidths = [4]\nkappas = [1.0]\nmethods = ['none']\n"
    )
    out = tmp_path / "a.jsonl"
    assert main(["ancestors", "--small", "--plan", str(plan), "--out", str(out), "--device", "cpu"]) == 0
    assert "none, kappa 1" in capsys.readouterr().out
    assert {line["command"] for line in read_results(out)} == {"python -m lresnet_paper ancestors --small"}
    assert main(["ancestors", "--small", "--cpu"]) == 2
    assert "choose one of them" in capsys.readouterr().err


def test_the_recorded_lines_are_those_of_the_plan_and_give_the_page() -> None:
    plan, lines = read_plan(), own_lines(RESULTS)
    for form in {line["protocol"] for line in lines}:
        known = set(arms(plan, form))
        own = plan["forms"][form]
        for one in (line for line in lines if line["protocol"] == form):
            assert arm_of(one) in known
            assert one["config"]["settings"] in trials(plan, one["method"])
            final = one["stage"] == "final"
            assert one["config"]["steps"] == own["steps" if final else "search_steps"]
            assert one["seed"] in own["seeds" if final else "search_seeds"]
    assert ancestors_page(lines) == (ROOT / "docs" / "reproduction" / "ancestors.md").read_text(encoding="utf-8")
    assert all(run["table"] != "ancestors" for run in read_runs(RESULTS.parent))


@pytest.mark.parametrize("study", [ancestors, completion, hierarchy_images])
def test_a_line_that_is_not_one_of_the_study_is_skipped_with_a_warning(study: Any, tmp_path: Path) -> None:
    """A person may have changed a line and removed its checksum."""
    out = tmp_path / "lines.jsonl"
    line = next(read_results(RESULTS.with_name(f"{study.TABLE}.jsonl")))
    for changed in (line, line | {"config": []}, line | {"value": "high"}, {"table": study.TABLE}):
        append_result(out, changed)
    with pytest.warns(
        UserWarning, match=rf"lines\.jsonl: skipped a line that is not one of the study {study.TABLE}: "
    ) as w:
        assert study.own_lines(out) == [line]
    assert len(w) == 3
    assert len(study.results_file(out).keys()) >= 1
