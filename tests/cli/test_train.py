"""The command lines `lresnet train` and `lresnet evaluate` on graphs."""

import itertools
import json
import re
from pathlib import Path

import pytest
import torch

from lresnet import Run, cli
from lresnet.cli.evaluate import untrained_lines
from lresnet.metrics import UntrainedScore
from lresnet.models import LorentzGCN, from_pretrained
from lresnet.train import LinkPrediction

QUICK = ["--epochs", "6", "--hidden", "4", "--eval-every", "2", "--device", "cpu"]


def test_train_then_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    options = ["--method", "space", "--seed", "2", "--layers", "2", "--lr", "0.01", "--curvature", "-0.5"]
    assert cli.main(["train", "disease_tree/nc", *options, *QUICK, "--out", str(folder)]) == 0
    out = capsys.readouterr().out
    assert ", 8 in points of the manifold\n" in out  # two prototypes of four coordinates
    assert "warning" not in out
    record = json.loads((folder / "run.json").read_text())
    assert f"validation {record['validation']:.2f}, epoch {record['best_epoch']}" in out
    assert {"num_layers": 2, "curvature": -0.5, "hidden": 4}.items() <= record["model"].items()
    assert {"lr": 0.01, "epochs": 6, "eval_every": 2, "seed": 2}.items() <= record["train"].items()
    model = from_pretrained(folder / "model")
    assert isinstance(model, LorentzGCN)
    assert len(model.layers) == 2
    assert float(model.manifold.K) == -0.5

    assert cli.main(["evaluate", str(folder)]) == 0
    figures = json.loads((folder / "evaluation.json").read_text())["metrics"]
    assert capsys.readouterr().out == (
        f"disease_tree/nc, space, seed 2: f1_binary {figures['f1_binary']:.2f}  accuracy {figures['accuracy']:.2f}\n"
    )


def test_train_and_read_the_test_set_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    for _ in range(2):  # a finished run is not trained again and prints the same
        assert cli.main(["train", "disease_tree/nc", *QUICK, "--out", str(folder), "--test"]) == 0
        figures = json.loads((folder / "evaluation.json").read_text())["metrics"]
        lines = capsys.readouterr().out.splitlines()
        assert lines[-2] == f"The run is in {folder}"
        assert lines[-1].startswith("disease_tree/nc, lorentz, seed 0: f1_binary")
        assert f"accuracy {figures['accuracy']:.2f}" in lines[-1]


def test_the_recorded_command_gives_the_same_run(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert cli.main(["train", "disease_tree/lp", *QUICK, "--learn-curvature", "--out", str(first)]) == 0
    record = json.loads((first / "run.json").read_text())
    assert cli.main([*record["command"].split()[1:], "--out", str(second)]) == 0
    again = json.loads((second / "run.json").read_text())
    for name in ("task", "model", "train", "validation", "best_epoch", "command"):
        assert again[name] == record[name]


def test_without_out_the_folder_is_named_after_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "disease_tree/lp", "--method", "none", "--seed", "1", *QUICK]) == 0
    assert (tmp_path / "runs" / "disease_tree_lp-none-1" / "model" / "model.safetensors").is_file()


def test_a_model_without_manifold_parameters_gives_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without manifold parameters, a Riemannian optimiser is an ordinary one; the user should know."""
    monkeypatch.setattr(LorentzGCN, "_head", lambda self, hidden, classes, distance: torch.nn.Linear(hidden, classes))
    assert cli.main(["train", "disease_tree/nc", *QUICK, "--out", str(tmp_path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "warning: no parameter is a point of the manifold" in out


def test_train_prints_the_parameters_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "disease_tree/lp", *QUICK, "--layers", "1", "--out", str(tmp_path)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Trainable parameters: ")]
    parts = re.findall(r"([\d,]+) in ([a-z ]+)", line)
    model = Run.open(tmp_path).model
    assert [name for _, name in parts][:2] == ["matrices", "biases and norms"]
    assert sum(int(count.replace(",", "")) for count, _ in parts) == sum(p.numel() for p in model.parameters())
    assert "points of the manifold" not in line  # a network for links has none


def test_a_training_that_diverges_is_one_line_and_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "disease_tree/nc", "--lr", "1e30", *QUICK, "--out", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("lresnet: error: ")
    assert "not finite" in err
    assert err.count("\n") == 1
    assert json.loads((tmp_path / "run.json").read_text())["validation"] is None


def test_the_help_says_that_the_preset_decides(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    head, _, text = capsys.readouterr().out.partition("general options")
    assert "Settings that you do not give come from the task's preset" in head
    assert "default: " not in text
    assert "--no-flip " in text


@pytest.mark.parametrize(("given", "loops"), [([], False), (["--self-loops"], True), (["--no-self-loops"], False)])
def test_a_given_flag_overrides_the_preset(given: list[str], loops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    monkeypatch.setattr("lresnet.cli.train._train", lambda config, *args: runs.append(config) or 0)
    assert cli.main(["train", "squirrel/nc", "--model", "lorentz_sgformer", "--method", "lorentz", *given]) == 0
    assert runs[0].model.self_loops is loops


@pytest.mark.parametrize(
    ("every", "words"),
    [
        (1, "the same command resumes from the checkpoint in run, epoch 3"),
        (9, "no checkpoint has been written yet, so the same command starts from the beginning"),
    ],
)
def test_an_interrupted_training_reports_how_to_resume(
    every: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    validation = LinkPrediction.validation

    def interrupted(objective: LinkPrediction, model: LorentzGCN) -> torch.Tensor:
        if next(passes) == 2:  # after the fourth epoch
            raise KeyboardInterrupt
        return validation(objective, model)

    monkeypatch.chdir(tmp_path)
    call = ["train", "disease_tree/lp", *QUICK, "--checkpoint-every", str(every), "--out", "run"]
    passes = itertools.count(1)
    monkeypatch.setattr(LinkPrediction, "validation", interrupted)
    assert cli.main(call) == 130
    assert capsys.readouterr().err == f"lresnet: interrupted; {words}\n"
    assert cli.main(call) == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["train", "desease/lp"], "did you mean 'disease/lp'"),
        (["train", "foo"], "'foo' does not exist, and no shipped task has that name; graphs: "),
        (["train", "disease_tree/nc", "--seed", "-1"], "--seed must be 0 or more and below 2^32, got -1"),
        (["train", "disease_tree/nc", "--method", "lorenz"], "did you mean 'lorentz'"),
        (["train", "disease_tree/nc", "--curvature", "1"], "curvature must be negative and finite, got 1.0"),
        (["train", "disease_tree/nc", "--layers", "0"], "--layers must be at least 1, got 0"),
        (["train", "disease_tree/nc", "--dropout", "1"], "--dropout must be at least 0 and below 1"),
        (["train", "disease_tree/nc", "--lr", "nan"], "--lr must be positive and finite"),
        (["train", "disease_tree/nc", "--self-loops", "--no-self-loops"], "--no-self-loops contradict each other"),
        (
            ["train", "disease_tree/nc", "--split", "official"],
            "disease_tree/nc has no split 'official'; choose disjoint",
        ),
        (["train", "disease_tree/nc", "--split", "99"], "disease_tree/nc has no split '99'; choose disjoint"),
        (
            ["train", "chameleon/nc", "--split", "-1"],
            "has no split '-1'; choose the number of an official split, e.g. 0",
        ),
        (["train", "disease_tree/nc", "--device", "gpu"], "unknown kind of device 'gpu'; use auto, cpu, cuda"),
        (
            ["train", "disease_tree/nc", "--out", "file/run"],
            "file is a file, and a run needs a folder; use another folder",
        ),
        (["train", "wordnet/nc"], "no file"),
        (["evaluate", "nowhere"], "nowhere does not exist"),
        (["evaluate", "file"], "file is a file, not the folder of a run"),
    ],
)
def test_user_errors_are_one_line_and_leave_nothing(
    args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LRESNET_DATA", str(tmp_path))
    Path("file").touch()
    assert cli.main(args) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_predict_names_the_classes_of_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    assert cli.main(["train", "disease_tree/nc", "--epochs", "2", "--out", run, "--device", "cpu"]) == 0
    capsys.readouterr()
    assert cli.main(["predict", run, "0", "17", "--top", "2", "--json", "-", "--device", "cpu"]) == 0
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert [one["node"] for one in nodes] == [0, 17]
    assert sum(share["probability"] for share in nodes[0]["predictions"]) == pytest.approx(1, abs=1e-4)
    assert cli.main(["predict", run, "--device", "cpu"]) == 0  # all nodes
    assert "999" in capsys.readouterr().out


def test_a_task_on_a_graph_is_refused_under_torchrun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert cli.main(["train", "disease_tree/nc", *QUICK, "--out", str(tmp_path / "run")]) == 2
    assert "start it without torchrun" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_link_prediction_shows_the_best_score_without_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    options = ["--epochs", "2", "--hidden", "3", "--device", "cpu", "--drop-columns", "0", "--out", str(folder)]
    assert cli.main(["train", "disease_tree/lp", *options]) == 0
    printed = capsys.readouterr().out
    assert "untrained baseline: one raw feature (column 4), validation 98.41 (this network " in printed
    assert "warning: a score that learns nothing (one raw feature (column 4)) ranks the validation pairs" in printed
    assert not (folder / "evaluation.json").exists()  # the test pairs were not read
    assert cli.main(["evaluate", str(folder), "--device", "cpu"]) == 0
    assert "untrained baseline: one raw feature (column 4) 97.71 (this network " in capsys.readouterr().out
    record = json.loads((folder / "evaluation.json").read_text())
    assert record["task"]["drop_columns"] == [0]
    assert record["untrained"][0]["metrics"] == {"roc_auc": 97.7145, "average_precision": 95.969}


def test_a_network_that_beats_every_untrained_score_gives_no_warning() -> None:
    scores = [UntrainedScore("hops", 95.0, {"roc_auc": 94.0}), UntrainedScore("degree", 90.0, {"roc_auc": 99.0})]
    assert untrained_lines(scores, 96.0, "test") == [
        "untrained baseline: two- and three-hop counts 94.00 (this network 96.00)"  # validation chose it
    ]
    assert len(untrained_lines(scores, 93.0, "test")) == 2
    assert untrained_lines([], 93.0, "test") == untrained_lines(scores, None, "validation") == []


def test_a_run_with_dropped_columns_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--epochs", "1", "--hidden", "3", "--device", "cpu"]
    assert cli.main(["train", "disease_tree/nc", *options, "--drop-columns", "5", "4"]) == 0
    assert cli.main(["train", "disease_tree/nc", *options]) == 0
    names = sorted(folder.name for folder in (tmp_path / "runs").iterdir())
    assert names == ["disease_tree_nc-lorentz-0", "disease_tree_nc-without_4_5-lorentz-0"]
