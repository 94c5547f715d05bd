"""The study of deep chains: its plan, its lines, and how it resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lresnet.train.engine import TrainingState
from lresnet.train.results import read_results
from lresnet_paper import collapse
from lresnet_paper.__main__ import main
from lresnet_paper.collapse import Training, missing_trainings, read_plan, run_of, run_study, run_training, trainings
from lresnet_paper.depth import training_state
from lresnet_paper.pages.collapse_table import collapse_table, collapsed_at, share_of_margin
from lresnet_paper.results import read_runs
from lresnet_paper.run import build

RESULTS = Path(__file__).parents[2] / "results"
PLAN: dict[str, Any] = {
    "cell": "disease_tree/lp",
    "protocol": "disjoint",
    "layers": [3],
    "seeds": [0, 1],
    "epochs": [0, 1, 3],
    "fixed": {"hidden": 4, "clip": 0.5, "lr": 0.01},
    "settings": {"average": {"method": "lorentz"}, "sum": {"method": "lorentz", "scale": "1+w", "clip": 0.0}},
}


def test_every_training_of_the_plan_is_a_valid_run():
    plan = read_plan()
    found = trainings(plan)
    assert len(set(found)) == len(found) == len(plan["settings"]) * len(plan["layers"]) * len(plan["seeds"])
    for one in found:
        run = run_of(plan, one)
        config = plan["settings"][one.setting]
        assert (run.stage, run.seed, run.method) == ("train", one.seed, config["method"])
        assert run.cell == f"disease/lp/{one.layers}"
        assert ("clip" in run.config) == (config.get("clip") != 0)


def test_the_states_are_those_of_the_training():
    line = run_training(PLAN, Training("sum", 3, 1))
    model, objective, config = build(run_of(PLAN, Training("sum", 3, 1)))
    assert model.residuals[0].follows_weight
    assert config.clip is None
    state = TrainingState(model, objective, config, "eager")
    expected = [training_state(model, objective)]
    for epoch in (1, 2, 3):
        state.train_epoch()
        if epoch in PLAN["epochs"]:
            expected.append(training_state(model, objective))
    assert line["states"] == expected
    assert line["state_epochs"] == [0, 1, 3]
    assert line["validation"] == expected[-1]["validation"]
    assert "value" not in line  # the test set is not read


def test_a_training_that_diverges_keeps_its_states(monkeypatch: pytest.MonkeyPatch):
    plan = PLAN | {"fixed": PLAN["fixed"] | {"lr": 1e30, "clip": 1e30}}
    line = run_training(plan, Training("average", 3, 0))
    assert line["state_epochs"][0] == 0
    assert len(line["states"]) == len(line["state_epochs"]) < 3
    assert line["validation"] is None
    assert "Lower the learning rate" in line["error"]


def test_the_study_resumes(tmp_path: Path):
    out, lines = tmp_path / "collapse.jsonl", list[str]()
    assert run_study(PLAN, out, minutes=0.0, report=lines.append) in (3, 4)
    assert run_study(PLAN, out, report=lines.append) == 0
    assert run_study(PLAN, out, report=lines.append) == 0
    found = list(read_results(out))
    assert len(lines) == len(found) == 4
    assert missing_trainings(PLAN, found) == []
    assert {(line["setting"], line["seed"]) for line in found} == {(s, i) for s in PLAN["settings"] for i in (0, 1)}
    assert read_runs(tmp_path) == []  # no table of the paper


def test_the_command_runs_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'cell = "disease_tree/lp"\nprotocol = "disjoint"\nlayers = [2]\nseeds = [0]\nepochs = [0, 1]\n'
        '[fixed]\nclip = 0.5\nhidden = 4\nmargin = 2.0\ncurvature = -1.0\n[settings.average]\nmethod = "lorentz"\n'
    )
    assert main(["collapse", "--plan", str(plan), "--out", str(tmp_path / "c.jsonl")]) == 0
    assert "average, 2 layers, seed 0: loss " in capsys.readouterr().out


def line(setting: str, losses: list[float], validation: float = 70.0) -> dict[str, Any]:
    states = [{"loss": loss, "validation": validation} for loss in losses]
    config = {"num_layers": 2, "margin": 50.0, "curvature": -0.5}  # the loss of one point is 100
    epochs = list(range(len(losses)))
    return {"setting": setting, "method": "lorentz", "config": config, "state_epochs": epochs, "states": states}


def test_a_run_has_collapsed_if_its_loss_stays_that_of_one_point():
    assert collapsed_at(line("average", [98.0, 99.5, 100.0])) == 1
    assert collapsed_at(line("average", [98.0, 100.0, 98.0, 100.0])) == 3
    assert collapsed_at(line("average", [98.0, 100.0, 98.0])) is None
    euclidean = line("euclidean", [60.0, 4.0]) | {"method": "euclidean"}
    assert collapsed_at(euclidean) is None
    assert share_of_margin(euclidean, euclidean["states"][1]) == 4.0 / 50.0


def test_the_table_has_medians_of_the_loss_and_means_of_the_validation():
    lines = [line("average", [98.0, 100.0], 50.0), line("average", [98.0, 10.0], 80.0), line("sum", [50.0])]
    lines.append(line("sum", [50.0]) | {"error": "diverged"})
    table = collapse_table(lines)
    assert table.columns == ("2: loss", "2: validation", "2: collapsed")
    assert [(row.name, row.cells) for row in table.rows] == [
        ("average", ("0.55", "65.0", "1 of 2")),
        ("sum", ("0.50", "70.0", "0 of 2")),
    ]


def test_the_lines_are_those_of_the_plan():
    plan = read_plan()
    for line in read_results(RESULTS / f"{collapse.TABLE}.jsonl"):
        run = run_of(plan, Training(line["setting"], line["config"]["num_layers"], line["seed"]))
        assert {name: line[name] for name in ("cell", "method", "protocol", "config")} == {
            name: getattr(run, name) for name in ("cell", "method", "protocol", "config")
        }
        for state in line["states"]:
            assert (
                len(state["distance"])
                == len(state["gradient"])
                == len(state["ranking"])
                == line["config"]["num_layers"]
            )
        assert torch.tensor(line["state_epochs"]).diff().gt(0).all()
