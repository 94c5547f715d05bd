"""Damaged files: one line that names the file, exit code 2, no traceback."""

import json

import numpy as np
import pytest

from lresnet.cli import main
from tests.runs.folders import unverified


def complaint(capsys, *args):
    assert main([str(a) for a in args]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1, err
    return err


def test_a_task_that_is_a_number_in_run_json(tmp_path, capsys):
    assert main(["train", "disease_tree/lp", "--epochs", "1", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    path = tmp_path / "run.json"
    path.write_text(unverified(json.loads(path.read_text()) | {"task": 5}))
    assert "its task is 5, not a table of settings" in complaint(capsys, "evaluate", tmp_path)


@pytest.mark.parametrize("content", ["{}", "[]", "null", "{", '{"cell": "disease/lp"}', '{"format": 2}'])
def test_a_run_json_without_a_run(tmp_path, capsys, content):
    (tmp_path / "run.json").write_text(content)
    assert "run.json is not what `lresnet train` writes" in complaint(capsys, "evaluate", tmp_path)


def test_an_evaluation_json_without_an_evaluation(tmp_path, capsys):
    assert main(["train", "disease_tree/lp", "--epochs", "1", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    (tmp_path / "evaluation.json").write_text("{}")
    assert "evaluation.json is not what `lresnet evaluate` writes" in complaint(capsys, "evaluate", tmp_path)


def test_an_npz_with_flipped_bits(tmp_path, capsys):
    path = tmp_path / "space.npz"
    np.savez_compressed(path, np.abs(np.subtract.outer(np.arange(40.0), np.arange(40.0))))
    data = bytearray(path.read_bytes())
    for i in range(len(data) // 3, len(data) // 3 + 40):
        data[i] ^= 0xFF
    path.write_bytes(data)
    assert "space.npz cannot be read" in complaint(capsys, "delta", path)
