"""Results as JSON lines."""

from __future__ import annotations

import json

import pytest

from lresnet.train.results import append_result, environment, read_results


def test_lines_are_added_and_read_in_order(tmp_path):
    path = tmp_path / "deep" / "gnn.jsonl"
    assert list(read_results(path)) == []
    for seed in range(3):
        append_result(path, {"seed": seed, "value": 97.25, "split": None, "config": {"lr": 0.01}})
    assert [r["seed"] for r in read_results(path)] == [0, 1, 2]
    assert len(path.read_text().splitlines()) == 3


def test_an_incomplete_last_line_is_reported_and_skipped(tmp_path):
    path = tmp_path / "gnn.jsonl"
    append_result(path, {"seed": 0})
    with path.open("a") as file:
        file.write('{"seed": 1, "va')
    with pytest.warns(UserWarning, match=r"gnn\.jsonl:2 is not a result and was skipped"):
        assert [r["seed"] for r in read_results(path)] == [0]


def test_an_incomplete_last_line_does_not_damage_the_next_one(tmp_path):
    path = tmp_path / "gnn.jsonl"
    append_result(path, {"seed": 0})
    with path.open("a") as file:
        file.write('{"seed": 1, "va')
    append_result(path, {"seed": 2})
    append_result(path, {"seed": 3})
    with pytest.warns(UserWarning, match=r"gnn\.jsonl:2 "):
        assert [r["seed"] for r in read_results(path)] == [0, 2, 3]


def test_a_last_line_without_newline_is_read(tmp_path):
    path = tmp_path / "gnn.jsonl"
    path.write_text('{"seed": 0}')
    append_result(path, {"seed": 1})
    assert [r["seed"] for r in read_results(path)] == [0, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_json_does_not_have_are_refused_before_anything_is_written(tmp_path, bad):
    path = tmp_path / "gnn.jsonl"
    append_result(path, {"seed": 0})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_result(path, {"value": bad})
    with pytest.raises(TypeError):
        append_result(path, {"value": object()})
    assert path.read_bytes() == before


def test_environment_names_versions_and_hardware():
    import torch

    import lresnet

    facts = environment()
    assert facts["versions"]["lresnet"] == lresnet.__version__
    assert facts["versions"]["torch"] == torch.__version__
    assert set(facts["versions"]) >= {"lresnet", "torch", "python"}
    assert facts["hardware"]
    json.dumps(facts)
