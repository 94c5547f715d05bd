"""Damaged files: one line that names the file, exit code 2, no traceback."""

import json
import shutil
import zipfile

import numpy as np
import pytest

from lresnet.cli import main
from lresnet.runs.record import read_evaluation, read_record
from lresnet.train.results import read_results
from lresnet_paper.plan import protocols
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


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "disease_tree/lp", "--epochs", "1", "--out", str(folder)]) == 0
    assert main(["evaluate", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("name", ["run.json", "evaluation.json"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text.replace(b'"seed": 0', b'"seed": ' + b"9" * 400), "a whole number of 400 digits"),
        (lambda text: b'{"task": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (lambda text: text.replace(b"{", b"{\n\xff", 1), "line 2 is not UTF-8 text (byte 0xff)"),
        (lambda text: text.replace(b'"validation": ', b'"validation": 1e999, "was": '), "validation is inf"),
        (lambda text: text.replace(b'"processes": 1', b'"processes": "1"'), "its processes is '1'"),
        (lambda text: text.replace(b'"torch": "', b'"torch": 1, "was": "'), "not texts"),
        (lambda text: text.replace(b'"lr": ', b'"lr": [1], "was": '), "is not what"),
        (lambda text: text.replace(b'"split": "disjoint"', b'"split": 0.5'), "split must be a string, got 0.5"),
        (lambda text: text.replace(b'"hardware": "', b'"hardware": null, "was": "'), "its hardware is None"),
        (lambda text: b"", "is not what"),
    ],
)
def test_a_damaged_record_is_named(finished, tmp_path, capsys, name, damage, words):
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / name
    path.write_text(unverified(json.loads(path.read_text())))  # otherwise the checksum would be named
    changed = damage(path.read_bytes())
    assert changed != path.read_bytes()
    path.write_bytes(changed)
    with pytest.raises(ValueError) as caught:
        (read_record if name == "run.json" else read_evaluation)(tmp_path / "run")
    assert str(caught.value).startswith(f"{path} is not what `lresnet ")
    assert words in str(caught.value)
    if name == "run.json":
        assert str(path) in complaint(capsys, "evaluate", tmp_path / "run")
    main(["report", str(tmp_path)])  # lists the folder as damaged
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"table": "\xff"}', ": byte 12 of the line is not UTF-8"),
        (b'{"seed": ' + b"9" * 400 + b"}", ": it has a whole number of 400 digits; up to 20 are read"),
        (b"[" * 100_000, ": its objects and lists are nested too deeply"),
        (b"x" * (2**22 + 5), ""),
    ],
)
def test_a_damaged_line_of_results_is_named_and_the_others_are_read(tmp_path, line, words):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b'\n{"b": 2}\n')
    with pytest.warns(UserWarning, match="is not a result") as found:
        assert list(read_results(path)) == [{"a": 1}, {"b": 2}]
    assert str(found[0].message) == f"{path}:2 is not a result and was skipped{words}"


def test_a_table_in_a_line_of_results_is_never_a_path():
    for table in ("../recipes/gnn", "..", "../../lresnet/runs/presets", "/etc", "gnn/", "."):
        assert protocols(table, "airport/nc") == []
    assert protocols("gnn", "airport/nc") == ["disjoint", "legacy"]


def test_damaged_arrays_are_one_line_on_the_command_line(tmp_path, capsys):
    (tmp_path / "space.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f8', ")
    assert "space.npy cannot be read as an array" in complaint(capsys, "delta", tmp_path / "space.npy")
    with zipfile.ZipFile(tmp_path / "space.npz", "w") as archive:
        archive.writestr("read me.txt", "text")
    assert "its member 'read me.txt' is not an array" in complaint(capsys, "delta", tmp_path / "space.npz")
    indptr = np.array([0, 2**63 - 1, -(2**63), -1, 5, 9])
    parts = {"data": np.ones(9), "indices": np.arange(9) % 5, "indptr": indptr, "shape": np.array([5, 5])}
    np.savez(tmp_path / "space.npz", format=b"csr", **parts)
    assert "indptr of the sparse matrix must rise" in complaint(capsys, "delta", tmp_path / "space.npz")


def test_a_matrix_that_holds_no_distances_is_named(tmp_path, capsys):
    np.save(tmp_path / "space.npy", np.eye(4))
    assert f"{tmp_path / 'space.npy'}: distances[0, 0] = 1.0" in complaint(capsys, "delta", tmp_path / "space.npy")
