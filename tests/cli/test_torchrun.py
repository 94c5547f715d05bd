"""`torchrun -m lresnet`: one run, one folder, one output; verbs that run in one process only are refused."""

import contextlib
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from torch.distributed import TCPStore

from lresnet import __version__, cli
from lresnet.data import ImageData
from lresnet.data.image_data import channel_statistics
from lresnet.runs import RunConfig, run_config
from lresnet.runs import tasks as runs_tasks
from lresnet.train import ImageClassification, SampledNodeClassification
from lresnet.train.distributed import Processes, join_processes
from tests.coloured import coloured_data, write_coloured
from tests.processes import KILLED, run_in_two_processes
from tests.runs.folders import trained, unverified

QUICK = ["--model", "lorentz_resnet20", "--epochs", "2", "--batch-size", "20", "--lr", "0.05", "--device", "cpu"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_coloured(tmp_path_factory.mktemp("images") / "coloured.npz")


def _call(*args: str) -> tuple[int, str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = cli.main(args)
    return code, out.getvalue(), err.getvalue()


def test_torchrun_trains_once_and_reads_the_test_set_once(images: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "lresnet"]
    call = ["train", str(images), *QUICK, "--epochs", "1", "--out", str(tmp_path / "run"), "--test"]
    done = subprocess.run([*command, *call], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The run is in ") == done.stdout.count("54 images to train on") == 1
    assert done.stdout.count(", lorentz, seed 0: accuracy") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    names = ["checkpoint.pt", "curve.jsonl", "evaluation.json", "model", "run.json"]
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == names
    for name in ("run.json", "evaluation.json"):
        record = json.loads((tmp_path / "run" / name).read_text())
        assert record["processes"] == 2
        assert record["command"].startswith(f"torchrun --nproc-per-node=2 -m lresnet train {images} --method lorentz ")


def _loads(folder: Path, done: Path) -> bool:
    """Return whether another process had already loaded CIFAR-10 when this one loaded it."""
    seen = []

    def load(*_: object, **options: object) -> ImageData:
        seen.append(done.exists())
        done.touch()
        return coloured_data()

    runs_tasks.load_images = load  # type: ignore[assignment]
    run = run_config("cifar10", settings={"epochs": 1, "model": "lorentz_resnet20"})
    with join_processes("cpu") as (processes, _):
        trained(folder, run, processes=processes)
    return seen[0]


@pytest.mark.slow
def test_process_0_loads_what_may_need_a_download_before_the_others(tmp_path: Path) -> None:
    assert run_in_two_processes(_loads, tmp_path / "run", tmp_path / "loaded") == [False, True]


def _interrupted(run: RunConfig, folder: Path) -> list[int]:
    """Train to the third epoch, resume with a new model, train again uninterrupted; return the resumed epochs."""
    epochs: list[int] = []

    def stop(epoch: int, best: float | None) -> None:
        if epoch == 3:
            raise InterruptedError

    with join_processes("cpu") as (processes, _):
        with contextlib.suppress(InterruptedError):
            _trained(run, folder / "interrupted", processes, stop)
        _trained(run, folder / "interrupted", processes, lambda epoch, best: epochs.append(epoch))
        _trained(run, folder / "whole", processes, None)
    return epochs


def _trained(run: RunConfig, folder: Path, processes: Processes, on_epoch: object) -> None:
    trained(folder, run, checkpoint_every=2, processes=processes, on_epoch=on_epoch)


def test_a_run_resumes_bit_identically_with_the_same_number_of_processes(images: Path, tmp_path: Path) -> None:
    config = {"model": "lorentz_resnet20", "epochs": 4, "batch_size": 20, "average": 0.9, "keep": "best"}
    run = run_config(str(images), settings=config | {"eval_every": 1})
    assert run_in_two_processes(_interrupted, run, tmp_path) == [[3, 4], [3, 4]]
    resumed, whole = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("interrupted", "whole"))
    for name, values in whole.items():
        np.testing.assert_array_equal(resumed[name], values, err_msg=name)
    resumed, whole = ((tmp_path / name / "curve.jsonl").read_text() for name in ("interrupted", "whole"))
    assert resumed == whole

    record = json.loads((tmp_path / "interrupted" / "run.json").read_text())
    (tmp_path / "interrupted" / "run.json").write_text(unverified(record | {"best_epoch": None}))  # as before its end
    words = r"started by 2 processes and cannot resume with 1, .* start it with torchrun --nproc-per-node=2"
    with pytest.raises(ValueError, match=words):
        trained(tmp_path / "interrupted", run)
    record["processes"] = 1
    (tmp_path / "interrupted" / "run.json").write_text(unverified(record | {"best_epoch": None}))
    for code, out, err in run_in_two_processes(
        _call, "train", str(images), *_options(run), "--out", str(tmp_path / "interrupted")
    ):
        assert (code, out) == ((2, "") if err else (1, ""))
        assert not err or "started by 1 process and cannot resume with 2, because" in err


def _options(run: RunConfig) -> list[str]:
    words = run.command().split()
    return [*words[3:], "--device", "cpu"]


def _fails_in_one(*args: str) -> tuple[int, str, str]:
    def refuse(*_: object) -> None:
        raise OSError("the disk of process 1 is gone")

    if os.environ["RANK"] == "1":
        ImageClassification.start_epoch = refuse  # type: ignore[method-assign]
    return _call(*args)


def _finds_other_images(*args: str) -> tuple[int, str, str]:
    """Run the command with one brighter pixel in the images of process 1."""
    if os.environ["RANK"] == "1":
        read = runs_tasks.load_images

        def brighter(*found: Any, **options: Any) -> ImageData:
            data = read(*found, **options)
            data.train.images[0, 0, 0, 0] += 1
            mean, std = channel_statistics(data.train.images)
            return dataclasses.replace(data, mean=mean, std=std)

        runs_tasks.load_images = brighter  # type: ignore[assignment]
    return _call(*args)


@pytest.mark.parametrize(
    ("job", "call", "words"),
    [
        (
            _call,
            ["disease_tree/nc"],
            "disease_tree/nc cannot be shared among 2 processes: the whole graph is one batch; give --batch-size",
        ),
        (
            _call,
            ["disease_tree/nc", "--batch-size", "1"],
            "batch_size 1 is smaller than the number of processes, 2; use at least 2, or fewer processes",
        ),
        (
            _call,
            ["IMAGES", *QUICK, "--batch-size", "15"],
            "batch_size 15 is not a multiple of the number of processes, 2",
        ),
        (
            _call,
            ["IMAGES", *QUICK, "--scale", "learned", "--lr", "1e30", "--clip", "1e30"],
            "the run has diverged at step 1: ",
        ),
        (_fails_in_one, ["IMAGES", *QUICK], "the disk of process 1 is gone"),
        pytest.param(
            _finds_other_images, ["IMAGES", *QUICK], "the processes find different pixels at ", marks=pytest.mark.slow
        ),
    ],
    ids=["a graph", "seeds", "a batch", "divergence", "one alone", "other images"],
)
def test_an_error_that_ends_all_processes_is_reported_once(
    job: object, call: list[str], words: str, images: Path, tmp_path: Path
) -> None:
    args = ["train", *call, "--out", str(tmp_path / "run")]
    ends = run_in_two_processes(job, *(str(images) if word == "IMAGES" else word for word in args))
    assert all(code > 0 for code, _, _ in ends)
    assert ends[1][1] == ""  # only process 0 prints
    report = "".join(err for _, _, err in ends)
    assert report.startswith("lresnet: error: ")
    assert words in report
    assert report.count("\n") == 1


GRAPH = ["train", "disease_tree/nc", "--batch-size", "64", "--neighbours", "4", "--epochs", "4", "--dropout", "0.3"]


def _kills_itself(*args: str) -> tuple[int, str, str]:
    """Run the command; process 1 kills itself at the start of the fourth epoch."""
    start = SampledNodeClassification.start_epoch

    def start_or_die(objective: SampledNodeClassification) -> None:
        start(objective)
        if objective.state_dict()["epoch"] == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    if os.environ["RANK"] == "1":
        SampledNodeClassification.start_epoch = start_or_die  # type: ignore[method-assign]
    return _call(*args)


def test_a_killed_process_ends_a_sampled_graph_run_in_one_line_and_the_same_command_resumes(tmp_path: Path) -> None:
    call = [*GRAPH, "--device", "cpu", "--checkpoint-every", "2", "--eval-every", "1", "--out"]
    first, second = run_in_two_processes(_kills_itself, *call, str(tmp_path / "run"))
    assert second == KILLED
    code, _, err = first
    assert code == 2
    assert err.startswith("lresnet: error: no connection to the other processes of this run: ")
    assert err.endswith("; the same command resumes from its checkpoint\n")
    assert err.count("\n") == 1
    for folder in ("run", "whole"):
        main, other = run_in_two_processes(_call, *call, str(tmp_path / folder))
        assert (main[0], main[2], other) == (0, "", (0, "", ""))
    resumed, whole = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("run", "whole"))
    for name, values in whole.items():
        np.testing.assert_array_equal(resumed[name], values, err_msg=name)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["command"].startswith("torchrun --nproc-per-node=2 -m lresnet train disease_tree/nc ")
    assert "--batch-size 64 --neighbours 4" in record["command"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["reproduce", "gnn"],
            "`lresnet reproduce` runs in one process, but torchrun has started 2; use --workers",
        ),
        (
            ["demo"],
            "`lresnet demo` runs in one process, but torchrun has started 2; start it without torchrun",
        ),
        (["bench", "residual"], "`lresnet bench` runs in one process"),
        (["train", "--nope"], "unknown option --nope"),
    ],
)
def test_other_verbs_are_refused_and_the_first_process_reports_it(
    args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here process 1 fails first; torchrun would end process 0 before it could report anything."""
    monkeypatch.chdir(tmp_path)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": True}
    for name, value in (address | {"WORLD_SIZE": 2}).items():
        monkeypatch.setenv(name, str(value))
    for rank in (1, 0):
        monkeypatch.setenv("RANK", str(rank))
        assert cli.main(args) == 2
        err = capsys.readouterr().err
        assert (words in err and err.count("\n") == 1) if rank == 1 else err == ""
    assert not list(tmp_path.iterdir())


def test_help_and_version_are_printed_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        with pytest.raises(SystemExit):
            cli.main(["train", "--help"])
        assert ("--nproc-per-node=4 -m lresnet train cifar10" in capsys.readouterr().out) == (rank == 0)
        assert cli.main(["--version"]) == 0
        assert capsys.readouterr().out == ("" if rank else f"lresnet {__version__}\n")


@pytest.mark.parametrize("size", ["", "1"])
def test_a_rank_without_a_world_size_is_ignored(
    size: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", size)
    assert cli.main(["data", "list"]) == 0
    assert "cifar10" in capsys.readouterr().out


@pytest.mark.parametrize("size", ["two", "0", "-1"])
def test_a_wrong_world_size_is_refused(
    size: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    assert cli.main(["doctor"]) == 2
    assert f"WORLD_SIZE is '{size}', not a number of processes; unset it" in capsys.readouterr().err
