"""The study of hierarchy-aware losses: its plan, its losses, selection on validation images, resuming, its page."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lresnet.models import LorentzResNet
from lresnet.nn import supervised_contrastive_loss
from lresnet.train import Augment
from lresnet.train.image_classification import class_scores
from lresnet.train.results import read_results
from lresnet_paper import hierarchy_images
from lresnet_paper.__main__ import main
from lresnet_paper.hierarchy_images import (
    LOSSES,
    NETWORKS,
    HierarchyClassification,
    WithPoints,
    chosen_settings,
    read_plan,
    run_study,
    trainings,
)
from lresnet_paper.pages.hierarchy_page import compare_losses, hierarchy_page
from lresnet_paper.results import read_runs
from tests.coloured import coloured_data, coloured_task

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "hierarchy_images.jsonl"
DATA = replace(coloured_data(), superclass_of=("warm", "warm", "cold"))
TASK = replace(coloured_task(0.2), data=DATA)


def small_plan() -> dict:
    """Return the plan of the study for a small network and one epoch."""
    plan = json.loads(json.dumps(read_plan()))
    plan["network"]["model"] = "lorentz_resnet"
    for name in NETWORKS:
        plan["network"][name] |= {"depth": 8, "widths": [4, 6, 8]}
    plan["train"] |= {"batch_size": 16, "lr": 0.05}
    plan["augment"] |= {"pad": 1, "cutout": 0}
    plan["search"] = plan["final"] = {"epochs": 1, "warmup": 0}
    plan["losses"] = {name: {key: own[:1] for key, own in plan["losses"][name].items()} for name in LOSSES}
    plan["seeds"] = [0]
    return plan


def test_plan_gives_every_network_and_loss_the_same_number_of_trainings():
    plan = read_plan()
    search = trainings(plan)
    counts = {(one.network, one.loss): 0 for one in search}
    for one in search:
        counts[one.network, one.loss] += 1
    assert set(counts.values()) == {3}
    assert len(counts) == len(NETWORKS) * len(LOSSES)
    final = trainings(plan, dict.fromkeys(counts, ()))
    assert len(final) == len(counts) * 3
    assert {one.seed for one in final[: len(counts)]} == {0}  # a stopped study has complete seeds


def test_losses_add_their_part_to_the_cross_entropy():
    torch.manual_seed(0)
    model = WithPoints(LorentzResNet(8, 3, widths=(4, 6, 8))).train()
    found = {}
    for loss in LOSSES:
        options = {"loss": loss, "weight": 0.5, "temperature": 2.0, "curvature": -0.02}
        objective = HierarchyClassification(TASK, batch_size=16, augment=Augment(pad=0, flip=False), **options)
        objective.start_epoch()
        objective.advance(0)
        found[loss] = objective.loss(model)
    output = class_scores(model, objective._batch, objective._mean, objective._std)
    logits, points, labels = output[:, :3], output[:, 3:], objective._labels
    own = torch.nn.functional.cross_entropy(logits, labels)
    torch.testing.assert_close(found["cross_entropy"], own)
    p = logits.softmax(1)
    groups = torch.stack([p[:, 0] + p[:, 1], p[:, 2]], 1).log()
    coarse = torch.nn.functional.nll_loss(groups, (labels == 2).long())
    torch.testing.assert_close(found["superclass_cross_entropy"], own + 0.5 * coarse)
    parts = [
        supervised_contrastive_loss(points, own, K=-0.02, temperature=2.0) for own in (labels, (labels == 2).long())
    ]
    torch.testing.assert_close(found["supervised_contrastive"], own + 0.5 * sum(parts) / 2)


def test_study_reads_the_test_images_only_in_final_trainings_and_resumes(tmp_path: Path, monkeypatch):
    plan, out, parts = small_plan(), tmp_path / "lines.jsonl", []
    measured = HierarchyClassification.metrics

    def metrics(self, model, part):
        parts.append(part)
        return measured(self, model, part)

    monkeypatch.setattr(HierarchyClassification, "metrics", metrics)
    run_study(plan, out, data=DATA)
    assert parts == ["validation"] * 6 + ["test"] * 6
    lines = list(read_results(out))
    assert {line["stage"] for line in lines} == {"search", "final"}
    assert all("metrics" not in line for line in lines if line["stage"] == "search")
    keys = {"table", "cell", "method", "protocol", "seed", "config", "command", "versions", "hardware", "seconds"}
    assert all(keys <= line.keys() for line in lines)
    run_study(plan, out, data=DATA)
    assert len(list(read_results(out))) == len(lines)


def test_lowest_hierarchical_distance_on_validation_images_is_chosen():
    def line(stage, weight, distance):
        own = {"hierarchical_distance@1": distance}
        config = {"settings": {"weight": weight}}
        return {"stage": stage, "method": "m", "protocol": "p", "config": config, "validation_metrics": own}

    lines = [line("search", 0.1, 0.5), line("search", 0.3, 0.4), line("search", 1.0, 0.6), line("final", 9.0, 0.0)]
    assert chosen_settings(lines) == {("m", "p"): (("weight", 0.3),)}


def test_classes_without_superclasses_are_refused():
    with pytest.raises(ValueError, match="have no superclasses"):
        HierarchyClassification(coloured_task(), loss="cross_entropy")


def test_recorded_results_are_those_of_the_plan():
    plan, lines = read_plan(), list(read_results(RESULTS))
    known = {hierarchy_images._training_of(line) for line in lines}
    assert known == {*trainings(plan), *trainings(plan, chosen_settings(lines))}
    assert all(line["metrics"]["accuracy"] == line["value"] for line in lines if line["stage"] == "final")


def test_page_is_the_one_in_the_docs_and_other_pages_leave_the_study_out(tmp_path: Path):
    page = hierarchy_page(list(read_results(RESULTS)))
    assert page == (ROOT / "docs" / "reproduction" / "hierarchy.md").read_text(encoding="utf-8")
    assert main(["pages", "hierarchy", str(RESULTS.parent), "--out", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page
    assert all(run["table"] != "hierarchy_images" for run in read_runs(RESULTS.parent))
    with pytest.raises(ValueError, match="no final runs"):
        hierarchy_page([])


def test_fewer_is_better_for_severity_and_worse_for_accuracy():
    def line(loss, seed, shift):
        values = {"accuracy": 70 - shift, "mistake_severity": 1.6 - shift, "hierarchical_distance@1": 0.4}
        noise = 1e-3 * seed
        metrics = {name: value + noise * (loss != LOSSES[0]) for name, value in values.items()}
        return {
            "table": "hierarchy_images",
            "stage": "final",
            "method": "lorentz",
            "protocol": loss,
            "seed": seed,
            "metrics": metrics,
        }

    lines = [line(LOSSES[0], seed, 0.0) for seed in range(3)] + [line(LOSSES[2], seed, 0.5) for seed in range(3)]
    found = {one.metric: one.verdict for one in compare_losses(lines)}
    assert found["accuracy"] == "worse"
    assert found["mistake_severity"] == "better"
