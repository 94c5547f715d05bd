"""Tests of model cards: figures, baseline, command, code, and what must not be in them."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import shutil
import sys
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import lresnet
from lresnet.cli import main
from lresnet.runs import Run, run_config
from lresnet.runs.model_card import _command, _inline, _shipped_split, _without_folder, find_baseline
from lresnet.runs.record import read_record, write_record
from lresnet.runs.report import record_of
from tests.coloured import write_coloured
from tests.data import official
from tests.runs.folders import opened, trained, unverified

TASK = "disease_tree/lp"


SETTINGS = {"epochs": 2, "eval_every": 1, "lr": 0.05, "hidden": 4, "num_layers": 2, "weight_decay": 0.0, "dropout": 0.0}
SETTINGS |= {"activation": "relu"}  # the presets of the methods differ in it


def train(root: Path, method: str, **settings: Any) -> Run:
    return trained(root / f"{method}-0", run_config(TASK, method, settings=SETTINGS | settings))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluated runs of two methods with seed 0, and copies of them as seed 1. Tests must not change them."""
    root = tmp_path_factory.mktemp("runs")
    for method in ("lorentz", "euclidean"):
        train(root, method).evaluate()
        shutil.copytree(root / f"{method}-0", root / f"{method}-1")
        for name in ("run.json", "evaluation.json"):
            path = root / f"{method}-1" / name
            values = json.loads(path.read_text())
            values["train"]["seed"] = 1
            path.write_text(unverified(values))
    return root


def metadata(card: str) -> str:
    return card.split("---\n")[1]


def code_of(card: str, section: str) -> str:
    found = re.search(rf"## {section}\n.*?```\w+\n(.*?)```", card, flags=re.DOTALL)
    assert found is not None
    return found[1]


def test_a_card_has_the_figures_of_the_run_and_of_its_baseline(runs):
    card = opened(runs / "lorentz-0").model_card(repo="ann/tree")
    ours, theirs = (record_of(runs / name).metrics for name in ("lorentz-0", "euclidean-0"))
    assert "| model | ROC AUC | average precision |\n|---|---:|---:|\n" in card
    assert f"| **this model** | {ours['roc_auc']:.2f} | {ours['average_precision']:.2f} |" in card
    assert f"| Euclidean baseline | {theirs['roc_auc']:.2f} | {theirs['average_precision']:.2f} |" in card
    assert "on the test set" in card
    assert "same task, split and seed" in card
    assert re.search(r"Over 2 runs .* ROC AUC is \d", card)
    assert re.search(r"baseline is [+-]\d.*95 % interval, 2 pairs\): (better|worse|no difference shown)\.", card)
    assert "`lorentz` (Lorentz residual) on the hyperboloid of curvature K = " in card
    assert "| split | disjoint, drawn with seed 0 |" in card
    assert "| seed | 0 |" in card
    assert f"torch {torch.__version__}" in card


def test_the_metadata_are_those_of_the_hub(runs):
    run = opened(runs / "lorentz-0")
    text = metadata(run.model_card())
    assert text.startswith("library_name: lresnet\npipeline_tag: graph-ml\ntags:\n- lresnet\n- hyperbolic\n")
    assert f"value: {record_of(runs / 'lorentz-0').metrics['roc_auc']}" in text
    assert "license" not in text
    assert 'license: "mit"\n' in metadata(run.model_card(license="mit"))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("huggingface_hub") is None, reason="needs huggingface_hub")
def test_huggingface_hub_reads_the_metadata(runs):
    from huggingface_hub import ModelCard

    card = ModelCard(opened(runs / "lorentz-0").model_card(license="mit"))
    assert (card.data.library_name, card.data.license, card.data.pipeline_tag) == ("lresnet", "mit", "graph-ml")
    results = {one.metric_type: one.metric_value for one in card.data.eval_results}
    assert results == record_of(runs / "lorentz-0").metrics


def test_names_of_files_cannot_break_the_metadata(runs):
    run = opened(runs / "lorentz-0")
    name = 'a: "b"\n---\nc`d'
    run.record = dataclasses.replace(run.record, task={"kind": "python", "name": name, "task": "link"})
    run.folder = None
    run.record = dataclasses.replace(run.record, metrics={"roc_auc": 50.0})
    card = run.model_card()
    assert f"      name: {json.dumps(name)}\n" in metadata(card)
    assert r'on a: "b" --- c\`d' in card


@pytest.mark.slow
def test_the_command_of_a_card_repeats_the_run(runs, tmp_path, capsys):
    card = opened(runs / "lorentz-0").model_card()
    command = code_of(card, "Training")
    assert command.startswith(f"$ lresnet train {TASK} --method lorentz --seed 0 ")
    words = shlex.split(command.removeprefix("$ lresnet "))
    assert main([*words, "--out", str(tmp_path / "again"), "--device", "cpu"]) == 0
    capsys.readouterr()
    own, again = opened(runs / "lorentz-0"), opened(tmp_path / "again")
    assert again.record.validation == own.record.validation
    for name, tensor in own.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name


@pytest.mark.parametrize("method", ["lorentz", "euclidean"])
def test_the_code_of_a_card_runs_and_sees_the_inputs_of_the_training(method, runs, monkeypatch):
    run = opened(runs / f"{method}-0")
    monkeypatch.chdir(runs)
    names: dict[str, Any] = {}
    exec(code_of(run.model_card(), "Load the model"), names)
    assert torch.equal(names["points"], run.model(run.task.x, run.task.edge_index))


def test_a_baseline_has_no_baseline(runs):
    card = opened(runs / "euclidean-0").model_card()
    assert "It is a Euclidean baseline" in card
    assert "| Euclidean baseline |" not in card
    assert "so it does not show" not in card
    assert "hyperboloid" not in card


def test_without_evaluation_the_card_says_that_the_figure_is_one_of_validation(tmp_path):
    run = train(tmp_path, "lorentz")
    card = run.model_card()
    assert "The test set has not been evaluated." in card
    assert f"| **this model** | {run.record.validation:.2f} |" in card
    assert "model-index" not in card
    assert "No Euclidean baseline with the same task and split" in card


def test_a_given_baseline_must_be_one(runs, tmp_path):
    run = opened(runs / "lorentz-0")
    with pytest.raises(ValueError, match="is not a Euclidean baseline of this run: its residual is lorentz"):
        run.model_card(runs / "lorentz-1")
    with pytest.raises(ValueError, match="its seed differs"):
        run.model_card(opened(runs / "euclidean-1"))
    with pytest.raises(FileNotFoundError, match="holds no run"):
        run.model_card(tmp_path)
    unread = train(tmp_path, "euclidean", lr=0.02)
    with pytest.raises(ValueError, match="its test metrics are missing; evaluate it first"):
        run.model_card(unread)
    unread.evaluate()
    assert "Settings that differ (this model against the baseline): lr 0.05 against 0.02." in run.model_card(unread)


def test_a_baseline_with_equal_settings_is_found_first(runs, tmp_path):
    for name, changes in {"a": {}, "b": {"lr": 0.5}, "c": {"lr": 0.7}}.items():
        record = read_record(runs / "euclidean-0")
        write_record(tmp_path / name, dataclasses.replace(record, train=record.train | changes))
    run = read_record(runs / "lorentz-0")
    assert find_baseline(tmp_path / "run", run).settings == ""
    (tmp_path / "a" / "run.json").write_text("{")
    assert find_baseline(tmp_path / "run", run) is None  # two that differ: the choice is open
    (tmp_path / "b" / "run.json").unlink()
    assert find_baseline(tmp_path / "run", run).settings == "lr 0.05 against 0.7"


def test_a_card_of_own_data_has_no_path_of_the_machine(tmp_path, monkeypatch):
    edges = tmp_path / "secret" / "friends.csv"
    edges.parent.mkdir()
    edges.write_text("".join(f"a{i},a{(i * 7 + k) % 40}\n" for i in range(40) for k in (1, 2, 3)))
    config = run_config(str(edges), settings={"epochs": 2})
    run = trained(tmp_path / "secret" / "runs" / "one", config)
    run.evaluate()
    card = run.model_card()
    assert "secret" not in card
    assert "lresnet train friends.csv --method lorentz --seed 0" in card
    assert "| data | friends.csv: 40 nodes, " in card
    assert "it has one learned point per node" in card
    assert "| split | random |" in card
    monkeypatch.chdir(tmp_path / "secret" / "runs")
    run.record = dataclasses.replace(run.record, model=run.record.model | {"from": "python"})
    run.folder = None
    assert "secret" not in run.model_card()
    exec(code_of(card, "Load the model"), {})


@pytest.mark.slow
def test_a_card_of_images_has_the_pixel_statistics_and_classes(tmp_path, monkeypatch):
    path = write_coloured(tmp_path / "mine.npz")
    config = run_config(
        str(path), settings={"model": "lorentz_resnet20", "epochs": 1, "batch_size": 20, "holdout": 0.0}
    )
    run = trained(tmp_path / "one", config)
    card = run.model_card()
    assert str(tmp_path) not in card
    assert "pipeline_tag: image-classification" in card
    assert "There are no figures: no data were held out for validation" in card
    assert "| data | mine.npz: 60 training and 30 test images |" in card
    names: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    exec(code_of(card, "Load the model"), names)
    assert names["logits"].shape == (1, len(names["classes"]))
    assert names["classes"] == run.record.images["classes"]


@pytest.mark.slow
def test_a_run_from_python_gives_its_call(tmp_path):
    ring = torch.arange(20)
    data = Data(edge_index=torch.stack([ring, (ring + 1) % 20]), x=torch.randn(20, 3), y=ring % 2)
    task = lresnet.data.node_task(data)
    run = lresnet.fit(task, "lorentz_sage", lresnet.TrainConfig(epochs=1, lr=0.5), device="cpu")
    card = run.model_card()
    assert "No command repeats the run, because its task was built in Python." in card
    names = {"task": task}
    code = code_of(card, "Training")
    exec(code, names)
    assert "lr=0.5" in code
    assert names["run"].record.model == run.record.model
    assert names["run"].record.train == run.record.train
    model = lresnet.create_model("lorentz_gcn", in_features=3, num_classes=2)
    built = lresnet.fit(task, model, lresnet.TrainConfig(epochs=1), device="cpu").model_card()
    assert 'lresnet.create_model("lorentz_gcn", in_features=3, ' in built


@pytest.mark.slow
def test_a_named_task_of_python_keeps_its_split(tmp_path):
    config = lresnet.TrainConfig(epochs=1, seed=1)
    run = lresnet.fit(TASK, "lorentz_gcn", config, out=tmp_path / "one", device="cpu")
    card = run.model_card()
    assert "| split | disjoint, drawn with seed 0 |" in card  # `lresnet train --seed 1` draws another one
    assert "The run was started in Python, with a split that no command draws." in card
    first = lresnet.fit(TASK, "lorentz_gcn", lresnet.TrainConfig(epochs=1), out=tmp_path / "two", device="cpu")
    assert code_of(first.model_card(), "Training").rstrip().endswith("--split disjoint")


def test_a_run_is_uploaded_with_its_card_only(runs, monkeypatch):
    seen: dict[str, Any] = {}

    class HfApi:
        def __init__(self, **options: Any) -> None:
            seen["token"] = options["token"]

        def create_repo(self, repo_id: str, **options: Any) -> None:
            seen["private"] = options["private"]

        def upload_folder(self, *, folder_path: str, **options: Any) -> Any:
            seen["files"] = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}
            return types.SimpleNamespace(commit_url="the address")

    module = types.ModuleType("huggingface_hub")
    module.HfApi = HfApi
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    run = opened(runs / "lorentz-0")
    assert run.push_to_hub("ann/tree", license="mit", private=False, token="secret") == "the address"
    assert (seen["token"], seen["private"]) == ("secret", False)
    assert sorted(seen["files"]) == ["README.md", "config.json", "model.safetensors"]
    card = seen["files"]["README.md"].decode()
    assert card == run.model_card(repo="ann/tree", license="mit")
    assert 'lresnet.from_pretrained("ann/tree")' in card
    assert str(runs) not in card


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a|b <img src=x onerror=alert(1)>.csv", r"a\|b \<img src=x onerror=alert(1)\>.csv"),
        ("# a`b`\n```.csv", r"\# a\`b\` \`\`\`.csv"),
        (r"C:\Users\ann\secret\plain.csv", "plain.csv"),
        ("/home/ann/secret/plain.csv", "plain.csv"),
    ],
)
def test_names_of_files_are_plain_text_without_folders(name: str, shown: str) -> None:
    assert _inline(_without_folder(name)) == shown


@pytest.mark.parametrize("command", ["lresnet train 'a\n```b.csv'", r"lresnet train C:\Users\ann\plain.csv"])
def test_a_command_with_a_line_break_or_a_path_of_windows_is_left_out(runs: Path, command: str) -> None:
    record = dataclasses.replace(read_record(runs / "lorentz-0"), command=command)
    assert _command(record) is None


@pytest.mark.parametrize(
    ("words", "name", "index", "shown", "options"),
    [
        (["--split", "fresh_splits", "--split-index", "2"], "fresh_splits", 2, "fresh_splits, number 2", {"index": 2}),
        (["--split", "fresh_splits"], "fresh_splits", None, "fresh_splits, drawn with seed 3", {"seed": 3}),
        (["--split", "2"], "official_splits", 2, "official split 2", {}),
    ],
)
def test_a_card_selects_the_split_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], name: str, index: int | None, shown: str, options
) -> None:
    official.write_heterophilous(tmp_path, "actor")
    official.use(monkeypatch, tmp_path, "actor")
    folder = tmp_path / "run"
    call = ["train", "actor/nc", *words, "--epochs", "1", "--seed", "3", "--device", "cpu", "--out", str(folder)]
    assert main(call) == 0
    record = record_of(folder)
    assert (record.split, record.split_index) == (name, index)
    assert shlex.join(words) in record.command
    run = opened(folder)
    card = run.model_card()
    assert f"| split | {shown} |".replace("_", r"\_") in card
    split = 2 if not options else name
    assert {"split": split} | options == _shipped_split(record)
    task = lresnet.data.load_task("actor/nc", **_shipped_split(record))
    assert torch.equal(task.test_index, run.task.test_index)
