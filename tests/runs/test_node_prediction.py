"""Classes of the nodes of a graph, from the folder of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lresnet.data import NodeTask
from lresnet.models import from_pretrained
from lresnet.runs.folder import evaluate_folder, train_in_folder
from lresnet.runs.prediction import predict_nodes
from lresnet.runs.single import single_run
from lresnet.runs.transformer_run import transformer_run
from lresnet_paper.run import graph_task

QUICK = {"epochs": 10, "hidden": 4, "eval_every": 5, "lr": 0.05}


@pytest.mark.parametrize("make", [single_run, transformer_run], ids=["gcn", "sgformer"])
def test_classes_are_those_that_the_test_figure_counts(make, tmp_path: Path) -> None:
    run = make("disease_tree/nc", seed=1, config=QUICK)
    train_in_folder(run, tmp_path, command="test")
    task = graph_task(run)
    assert isinstance(task, NodeTask)
    every = predict_nodes(tmp_path)
    assert [one.node for one in every] == list(range(task.num_nodes))
    right = [every[i].classes == (int(task.y[i]),) for i in task.test_index.tolist()]
    assert 100 * sum(right) / len(right) == pytest.approx(evaluate_folder(tmp_path)["metrics"]["accuracy"], abs=1e-3)

    some = predict_nodes(tmp_path, [7, 3], top=5)
    assert [one.node for one in some] == [7, 3]
    assert [one.classes[:1] for one in some] == [every[7].classes, every[3].classes]
    assert all(sum(one.probabilities) == pytest.approx(1, abs=1e-6) for one in some)
    logits = from_pretrained(tmp_path / "model").eval()(task.x, task.edge_index)
    assert some[0].probabilities[0] == pytest.approx(logits.softmax(-1)[7].max().item(), abs=1e-5)


def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no run"):
        predict_nodes(tmp_path)
    train_in_folder(transformer_run("disease_tree/nc", config=QUICK), tmp_path / "nc", command="test")
    with pytest.raises(ValueError, match="there is no node 1000: those of disease_tree/nc are 0 to 999"):
        predict_nodes(tmp_path / "nc", [0, 1000])
    with pytest.raises(ValueError, match="top must be at least 1, got 0"):
        predict_nodes(tmp_path / "nc", top=0)
    train_in_folder(transformer_run("disease_tree/lp", config=QUICK), tmp_path / "lp", command="test")
    with pytest.raises(ValueError, match="holds a run on disease_tree/lp; this needs one that classifies nodes"):
        predict_nodes(tmp_path / "lp")
    model = from_pretrained(tmp_path / "nc" / "model")
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, float("nan"))
    model.save_pretrained(tmp_path / "nc" / "model")
    with pytest.raises(ValueError, match=r"the probabilities that .*nc gives are not finite"):
        predict_nodes(tmp_path / "nc")
