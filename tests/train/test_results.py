"""Results as JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lresnet.train.results import ResultsFile, append_result, environment, parse_line, read_results


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


def test_a_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "gnn.jsonl"
    append_result(path, {"seed": 0, "value": 97.25})
    append_result(path, {"seed": 1, "value": 98.5})
    path.write_bytes(path.read_bytes().replace(b"97.25", b"97.35"))
    with pytest.warns(UserWarning, match=r"gnn\.jsonl:1 is not a result and was skipped"):
        assert list(read_results(path)) == [{"seed": 1, "value": 98.5}]
    path.write_bytes(b"\xff" + path.read_bytes())  # not UTF-8
    with pytest.warns(UserWarning, match=r"gnn\.jsonl:1 is not a result"):
        assert [r["seed"] for r in read_results(path)] == [1]


def test_a_line_that_was_not_written_by_us_is_not_verified():
    assert parse_line(b'{"seed": 0}') == {"seed": 0}
    for bad in (b'{"seed": 0, "checksum": "0"}', b"[" * 100_000, b"[1]", b"\xff", b""):
        with pytest.raises(ValueError, match=r".+"):
            parse_line(bad)


def test_short_writes_are_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, bytes(data[:5])))
    append_result(tmp_path / "gnn.jsonl", {"seed": 0})
    assert list(read_results(tmp_path / "gnn.jsonl")) == [{"seed": 0}]


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_leaves_no_torn_line_and_names_the_file(call, tmp_path, monkeypatch):
    path = tmp_path / "gnn.jsonl"
    append_result(path, {"seed": 0})
    before, write, calls = path.read_bytes(), os.write, []

    def full(handle, *data):
        calls.append(call)
        if call == "write" and len(calls) == 1:
            return write(handle, bytes(data[0][:7]))
        if len(calls) < 3:
            raise OSError(28, "No space left on device")
        return None

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(OSError, match=r"No space left on device: '.*gnn\.jsonl'"):
            append_result(path, {"seed": 1})
    assert path.read_bytes() == before


def test_a_line_whose_flush_was_interrupted_is_not_written_twice(tmp_path, monkeypatch):
    file = ResultsFile(tmp_path / "gnn.jsonl", key=lambda line: line["seed"])
    fsync, interrupted = os.fsync, []

    def interrupt(handle):
        fsync(handle)
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        file.append({"seed": 0})
    assert file.append({"seed": 0})  # as an aborted sweep does with what it has not written
    assert not file.append({"seed": 0})
    assert list(read_results(file.path)) == [{"seed": 0}]


def test_two_processes_write_every_run_once(tmp_path):
    code = """
import sys
from pathlib import Path
from lresnet.train.results import ResultsFile
file = ResultsFile(Path(sys.argv[1]), key=lambda line: line["seed"])
print(sum(file.append({"seed": seed, "by": sys.argv[2]}) for seed in range(60)))
"""
    path = tmp_path / "gnn.jsonl"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", code, str(path)]
    both = [subprocess.Popen([*command, name], env=environment, stdout=subprocess.PIPE) for name in "ab"]
    assert sum(int(one.communicate()[0]) for one in both) == 60
    assert sorted(line["seed"] for line in read_results(path)) == list(range(60))


def test_a_file_that_another_process_has_changed_is_read_again(tmp_path):
    path = tmp_path / "gnn.jsonl"
    file = ResultsFile(path, key=lambda line: line.get("seed"))
    assert file.keys() == set()
    for seed in range(3):
        file.append({"seed": seed})
    assert file.append({"note": "not a run"})
    assert file.append({"note": "not a run"})
    append_result(path, {"seed": 3})
    assert file.keys() == {0, 1, 2, 3}
    path.write_text(path.read_text().splitlines(keepends=True)[1])
    assert file.keys() == {1}
    path.unlink()
    assert file.keys() == set()


def test_environment_names_versions_and_hardware():
    import torch

    import lresnet

    facts = environment()
    assert facts["versions"]["lresnet"] == lresnet.__version__
    assert facts["versions"]["torch"] == torch.__version__
    assert set(facts["versions"]) >= {"lresnet", "torch", "python"}
    assert facts["hardware"]
    json.dumps(facts)
