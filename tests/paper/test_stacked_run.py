"""Stacks of runs: the same results as one by one, and how runs are grouped."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from lresnet.train import NonFiniteError
from lresnet.train.stacking.model import StackError
from lresnet_paper.run import Run, build, execute
from lresnet_paper.sweep import execute_many, group_runs

CONFIG = {"hidden": 4, "num_layers": 2, "epochs": 6, "eval_every": 2, "lr": 0.01, "clip": 1.0}


def run(seed: int = 0, cell: str = "disease_tree/lp", **change: object) -> Run:
    values = {"table": "gnn", "method": "lorentz", "protocol": "disjoint", "config": CONFIG, "stage": "final"}
    return Run(**{"cell": cell, "seed": seed} | values | change)


# Fields that describe the computation, not the run.
OWN = {"seconds", "stacked", "when", "date", "time"}


@pytest.mark.parametrize("method", ["lorentz", "euclidean"])
@pytest.mark.parametrize("cell", ["disease_tree/lp", "disease_tree/nc"])
def test_a_stack_has_the_results_of_single_runs(cell, method):
    dropout = {"config": CONFIG | {"dropout": 0.3}}
    runs = [run(seed, cell, method=method, **dropout) for seed in range(3)]
    many = execute_many(runs, command="test")
    for one, (line, model) in zip(runs, many, strict=True):
        expected, single = execute(one, command="test")
        assert line["stacked"] == 3
        assert set(line) - set(expected) == {"stacked"}
        rounded = {"metrics", "value", "validation"}
        assert {k: line[k] for k in expected if k not in OWN | rounded} == {
            k: v for k, v in expected.items() if k not in OWN | rounded
        }
        assert line["value"] == pytest.approx(expected["value"], abs=0.1)
        assert line["validation"] == pytest.approx(expected["validation"], abs=0.1)
        matrices = [name for name, parameter in single.named_parameters() if parameter.dim() > 1]
        for name in matrices:  # not biases: the Euclidean baseline's last one has no effect
            torch.testing.assert_close(model.get_parameter(name), single.get_parameter(name), rtol=1e-2, atol=1e-3)


def test_only_final_runs_read_the_test_set():
    line, _ = execute_many([run(seed, stage="search") for seed in range(2)], command="test")[0]
    assert "value" not in line
    assert line["validation"] > 0


def test_a_diverged_run_is_an_error_in_the_list():
    config = CONFIG | {"lr": 1e30, "clip": None, "epochs": 30}
    results = execute_many([run(seed, method="euclidean", config=config) for seed in range(2)], command="test")
    assert all(isinstance(result, NonFiniteError) for result in results)
    with pytest.raises(NonFiniteError) as error:
        execute(run(1, method="euclidean", config=config), command="test")
    assert str(results[1]) == str(error.value)


def test_every_run_has_the_model_and_the_data_of_its_seed():
    results = execute_many([run(seed, config=CONFIG | {"lr": 1e-12}) for seed in range(2)], command="test")
    for seed, (_, model) in enumerate(results):
        fresh = build(run(seed))[0]
        assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(model.parameters(), fresh.parameters(), strict=True))


def test_runs_that_differ_in_more_than_seed_and_split_are_an_error():
    assert execute_many([], command="test") == []
    with pytest.raises(StackError, match="only in seed and split"):
        execute_many([run(0), run(1, method="space")], command="test")
    with pytest.raises(StackError, match="cifar10 is not a graph"):
        execute_many([run(0, cell="cifar10")], command="test")


def test_runs_are_grouped_by_everything_except_seed_and_split():
    seeds = [run(seed) for seed in range(5)]
    others = [run(seed, method="space") for seed in range(2)]
    splits = [run(0, "chameleon/nc", protocol="official_splits", split=split) for split in range(3)]
    images = [run(seed, "cifar10") for seed in range(2)]
    mixed = [seeds[0], others[0], *seeds[1:], others[1], *splits, *images]
    assert group_runs(mixed, largest=4) == [seeds[:4], others, seeds[4:], splits, [images[0]], [images[1]]]
    assert group_runs([dataclasses.replace(one, stage="search") for one in seeds[:1]] + seeds[:1]) != [seeds[:1]]
    assert group_runs([]) == []
