"""The command line `lresnet train --model lorentz_sgformer`, and the run folder that it writes."""

import json
from pathlib import Path

import pytest

from lresnet import cli
from lresnet.models import LorentzGCN, LorentzSGFormer, from_pretrained

SGFORMER = ["--model", "lorentz_sgformer"]
QUICK = ["--epochs", "6", "--hidden", "4", "--eval-every", "2", "--device", "cpu"]


def test_train_evaluate_and_train_again_by_the_recorded_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    options = ["--heads", "2", "--attention-layers", "2", "--graph-weight", "0.6", "--learn-graph-weight"]
    options += ["--branches", "lorentz", "--layers", "2", "--no-self-loops"]
    assert cli.main(["train", "disease_tree/nc", *SGFORMER, *options, *QUICK, "--out", str(first)]) == 0
    record = json.loads((first / "run.json").read_text())
    model = from_pretrained(first / "model")
    assert isinstance(model, LorentzSGFormer)
    wanted = {"heads": 2, "attention_layers": 2, "graph_weight": 0.6, "learn_graph_weight": True, "hidden": 4}
    assert (wanted | {"branches": "lorentz", "num_layers": 2, "self_loops": False}).items() <= model.config.items()

    assert cli.main(["evaluate", str(first), "--device", "cpu"]) == 0
    assert "disease_tree/nc, lorentz, seed 0: f1_binary" in capsys.readouterr().out

    assert cli.main([*record["command"].split()[1:], "--device", "cpu", "--out", str(second)]) == 0
    again = json.loads((second / "run.json").read_text())
    for name in ("task", "model", "train", "validation", "best_epoch", "command"):
        assert again[name] == record[name]


def test_link_prediction_with_the_euclidean_baseline(tmp_path: Path) -> None:
    command = ["train", "disease_tree/lp", *SGFORMER, "--method", "euclidean", "--norm", "layer", *QUICK]
    assert cli.main([*command, "--out", str(tmp_path)]) == 0
    model = from_pretrained(tmp_path / "model")
    assert isinstance(model, LorentzSGFormer)
    assert (model.config["residual"], model.config["norm"], model.head) == ("euclidean", "layer", None)


def test_the_two_models_of_a_graph_have_different_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "disease_tree/nc", *QUICK]) == 0
    assert cli.main(["train", "disease_tree/nc", *SGFORMER, *QUICK]) == 0
    assert isinstance(from_pretrained(Path("runs/disease_tree_nc-lorentz-0/model")), LorentzGCN)
    assert isinstance(from_pretrained(Path("runs/disease_tree_nc-sgformer-lorentz-0/model")), LorentzSGFormer)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["disease_tree/nc", "--heads", "2"], "heads is not a setting of lorentz_gcn, but of lorentz_sgformer"),
        (
            ["disease_tree/nc", *SGFORMER, "--activation", "relu"],
            "activation is not a setting of lorentz_sgformer, but of",
        ),
        (["disease_tree/nc", *SGFORMER, "--graph-weight", "1"], "--graph-weight must be above 0 and below 1, got 1"),
        (["disease_tree/nc", *SGFORMER, "--heads", "0"], "--heads must be at least 1, got 0"),
        (["disease_tree/nc", *SGFORMER, "--batch-size", "2"], "lorentz_sgformer needs the whole graph in every step"),
        (
            ["disease_tree/nc", "--model", "lorentz_resnet18"],
            "lorentz_resnet18 is not a network for graphs, as disease_tree/nc needs; choose one of lor",
        ),
        (["cifar10", *SGFORMER], "lorentz_sgformer is not a network for images, as cifar10 needs"),
        (["cifar10", "--heads", "2"], "heads is not a setting of lorentz_resnet18, but of lorentz_vit"),
    ],
)
def test_wrong_calls_are_one_line(
    args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", *args, "--device", "cpu"]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
