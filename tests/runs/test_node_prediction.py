"""Classes of the nodes of a graph, from the folder of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lresnet.data import NodeTask
from lresnet.models import from_pretrained
from lresnet.runs.prediction import predict_nodes
from lresnet.runs.presets import run_config
from tests.runs.folders import forget_checksums, opened, trained

QUICK = {"epochs": 10, "hidden": 4, "eval_every": 5, "lr": 0.05}


@pytest.mark.parametrize("model", ["lorentz_gcn", "lorentz_sgformer"])
def test_classes_are_those_that_the_test_figure_counts(model: str, tmp_path: Path) -> None:
    task = trained(tmp_path, run_config("disease_tree/nc", seed=1, settings=QUICK | {"model": model})).task
    assert isinstance(task, NodeTask)
    every = predict_nodes(opened(tmp_path))
    assert [one.node for one in every] == list(range(task.num_nodes))
    right = [every[i].classes == (int(task.y[i]),) for i in task.test_index.tolist()]
    assert 100 * sum(right) / len(right) == pytest.approx(opened(tmp_path).evaluate()["accuracy"], abs=1e-3)

    some = predict_nodes(opened(tmp_path), [7, 3], top=5)
    assert [one.node for one in some] == [7, 3]
    assert [one.classes[:1] for one in some] == [every[7].classes, every[3].classes]
    assert all(sum(one.probabilities) == pytest.approx(1, abs=1e-6) for one in some)
    logits = from_pretrained(tmp_path / "model").eval()(task.x, task.edge_index)
    assert some[0].probabilities[0] == pytest.approx(logits.softmax(-1)[7].max().item(), abs=1e-5)


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no run"):
        predict_nodes(opened(tmp_path))
    trained(tmp_path / "nc", run_config("disease_tree/nc", settings={"model": "lorentz_sgformer"} | QUICK))
    with pytest.raises(ValueError, match="there is no node 1000; disease_tree/nc has nodes 0 to 999"):
        predict_nodes(opened(tmp_path / "nc"), [0, 1000])
    with pytest.raises(ValueError, match="top must be at least 1, got 0"):
        predict_nodes(opened(tmp_path / "nc"), top=0)
    trained(tmp_path / "lp", run_config("disease_tree/lp", settings={"model": "lorentz_sgformer"} | QUICK))
    with pytest.raises(ValueError, match="holds a run on disease_tree/lp; this needs one that classifies nodes"):
        predict_nodes(opened(tmp_path / "lp"))
    model = from_pretrained(tmp_path / "nc" / "model")
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, float("nan"))
    model.save_pretrained(tmp_path / "nc" / "model")
    forget_checksums(tmp_path / "nc")
    with pytest.raises(ValueError, match=r"the predictions of .*nc are not finite"):
        predict_nodes(opened(tmp_path / "nc"))
