"""What the faults happen to: small runs on a graph, on images, on a taxonomy and on a text, a sweep, and a report."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from lresnet import Lorentz, LorentzResidual, cli
from lresnet.data import TextTask, text_task
from lresnet.plots.curves import read_curve
from lresnet.runs import Run as Trained
from lresnet.runs import RunConfig, fit, graph_search
from lresnet.runs.graph_search import Budget, Trial, read_trials, search
from lresnet.runs.model_config import GPTConfig
from lresnet.runs.presets import run_config
from lresnet.runs.record import read_record
from lresnet.train import TrainConfig, engine
from lresnet.train.checkpoint import load_checkpoint, save_checkpoint
from lresnet.train.results import ResultsFile, read_results
from lresnet_paper.results import key_of_line
from lresnet_paper.run import Run
from lresnet_paper.sweep import run_all
from tests.coloured import coloured_task
from tests.faults.disk import Disk


@dataclass(frozen=True)
class Scenario:
    """A program that writes files into a folder, and that is started again after a fault.

    Args:
        start: runs in the folder to its end; where there are files already, it resumes.
        outcome: what a user has at the end. It must be the same after any fault.
        progress: what is safe in the folder now, to be compared with what was promised.
    """

    name: str
    start: Callable[[Path], object]
    outcome: Callable[[Path], object]
    progress: Callable[[Path], int]

    def record(self, folder: Path) -> Disk:
        """Run once without a fault and return the disk with all operations and promises."""
        disk = Disk(folder)
        with disk.mounted(), _promises(disk):
            self.start(folder)
        disk.mark(self.progress(folder))
        return disk


@contextlib.contextmanager
def _promises(disk: Disk) -> Iterator[None]:
    """Mark when a checkpoint or a line has been written: from then on it must not be lost."""

    def save(path: Path, state: dict[str, Any]) -> None:
        save_checkpoint(path, state)
        if path.parent == disk.root:  # that of a trial is deleted with the trial
            disk.mark(int(state["epoch"]))

    def record(folder: Path, ended: Sequence[Trial]) -> None:
        record_trials(folder, ended)
        disk.mark(len(ended))

    def append(file: ResultsFile, record: dict[str, Any]) -> bool:
        appended = append_line(file, record)
        disk.mark(_lines(file.path.parent))
        return appended

    append_line, record_trials = ResultsFile.append, graph_search._write
    with (
        mock.patch.object(engine, "save_checkpoint", save),
        mock.patch.object(graph_search, "_write", record),
        mock.patch.object(ResultsFile, "append", append),
    ):
        yield


_FINISHED = 1000  # more than any epoch


def _epoch(folder: Path) -> int:
    if not (folder / "run.json").is_file():
        return -1
    with contextlib.suppress(ValueError, FileNotFoundError):
        Trained.open(folder, device="cpu", **_net_of(folder))
        return _FINISHED
    state = load_checkpoint(folder / "checkpoint.pt")
    return -1 if state is None else int(state["epoch"])


def _of_run(folder: Path) -> object:
    """What a run leaves, apart from how long it took."""
    run = Trained.open(folder, device="cpu", **_net_of(folder))
    weights = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in _tensors(run.model)))
    read = read_curve(folder)
    return run.record.validation, run.record.best_epoch, weights.hexdigest(), read.epochs, read.validation


def _tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    return [tensor.detach() for tensor in model.state_dict().values() if isinstance(tensor, torch.Tensor)]


# A run on a graph, with its evaluation -------------------------------------------------------------------------------


@functools.cache
def _graph_config() -> RunConfig:
    return run_config("disease_tree/nc", settings={"epochs": 6, "eval_every": 2, "hidden": 4, "dropout": 0.2})


def _start_graph(folder: Path) -> None:
    config = _graph_config()
    run = fit(config.task, config.model, config.train, out=folder, device="cpu", checkpoint_every=2)
    run.evaluate()


def _of_graph(folder: Path) -> object:
    return _of_run(folder), Trained.open(folder, device="cpu").evaluate()


# A run on images, with a user's own network --------------------------------------------------------------------------


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 3, stride=2)
        self.layer, self.residual = torch.nn.Linear(4, 4), LorentzResidual(Lorentz(-1.0))
        self.head = torch.nn.Linear(4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images).mean((2, 3))
        return self.head(self.residual(x, self.layer(x)))  # type: ignore[no-any-return]


def _net() -> _Net:
    torch.manual_seed(0)
    return _Net()


def _net_of(folder: Path) -> dict[str, Any]:
    return {} if (folder / "model" / "config.json").is_file() else {"model": _net()}


def _start_images(folder: Path) -> None:
    config = TrainConfig(epochs=4, lr=0.05, batch_size=20, eval_every=2)
    fit(coloured_task(holdout=0.2), _net(), config, out=folder, device="cpu", checkpoint_every=1)


# A search on a taxonomy, and its run ---------------------------------------------------------------------------------


@functools.cache
def _taxonomy() -> RunConfig:
    file = Path(tempfile.mkdtemp()) / "animals.csv"
    file.write_text("".join(f"kind {node},kind {(node - 1) // 2}\n" for node in range(1, 63)))
    return run_config(str(file), graph_task="hierarchy", settings={"epochs": 4, "eval_every": 2, "hidden": 4})


def _start_taxonomy(folder: Path) -> None:
    config = _taxonomy()
    before = read_record(folder)  # as `lresnet train` does: a run is there once the search has ended
    if before is None:
        given = {"epochs": 4, "eval_every": 2, "hidden": 4, "lr": 0.01}
        config, _ = search(config, given, Budget(trials=2), method="lorentz", folder=folder, device="cpu")
    else:
        config = before.config
    fit(config.task, config.model, config.train, out=folder, device="cpu").evaluate()


def _trials(folder: Path) -> int:
    return max(_epoch(folder), len(read_trials(folder)))


# A run on a text -----------------------------------------------------------------------------------------------------


@functools.cache
def _text() -> TextTask:
    song = b"".join(b"%d green bottles hanging on the wall\n" % number for number in range(30))
    return text_task(song, tokens="bpe", vocab_size=264, context=8, steps_per_epoch=2)


def _start_text(folder: Path) -> None:
    model = GPTConfig("lorentz_gpt", num_layers=1, width=16, heads=2)
    config = TrainConfig(epochs=4, lr=0.01, batch_size=4, eval_every=2)
    fit(_text(), model, config, out=folder, device="cpu", checkpoint_every=2)


def _of_text(folder: Path) -> object:
    return _of_run(folder), Trained.open(folder, device="cpu").generate("1 green", tokens=4, temperature=0)


# A sweep -------------------------------------------------------------------------------------------------------------

_SETTINGS = {"epochs": 2, "hidden": 4, "num_layers": 2, "lr": 0.05}


def _sweep_runs() -> list[Run]:
    return [
        Run("demo", "disease_tree/nc", name, "disjoint", 0, _SETTINGS) for name in ("lorentz", "space", "euclidean")
    ]


def _start_sweep(folder: Path) -> None:
    run_all(_sweep_runs(), folder / "demo.jsonl", command="faults", device="cpu:0")


def _of_sweep(folder: Path) -> object:
    lines = list(read_results(folder / "demo.jsonl"))
    keys = [key_of_line(line) for line in lines]
    assert len(keys) == len(set(keys)), "a run was written twice"
    return sorted((line["method"], line["value"]) for line in lines)


def _lines(folder: Path) -> int:
    return len(list(read_results(folder / "demo.jsonl")))


# A report ------------------------------------------------------------------------------------------------------------


@functools.cache
def _reported_runs() -> Path:
    folder = Path(tempfile.mkdtemp()) / "runs"
    _start_graph(folder / "tree")
    return folder


def _start_report(folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = cli.run_command(["report", str(_reported_runs()), "-o", str(folder / "page.html")], "x", _report, str)
    if code:
        raise OSError(28, "No space left on device", str(folder / "page.html"))


def _report(name: str) -> Any:
    from lresnet.cli.report import report

    return report


def _of_report(folder: Path) -> object:
    return (folder / "page.html").read_text().rstrip().endswith("</html>")


def _pages(folder: Path) -> int:
    path = folder / "page.html"
    if path.is_file():  # there is no page, or all of it
        assert _of_report(folder)
    return int(path.is_file())


SCENARIOS = {
    one.name: one
    for one in (
        Scenario("graph run", _start_graph, _of_graph, _epoch),
        Scenario("image run", _start_images, _of_run, _epoch),
        Scenario("taxonomy run", _start_taxonomy, _of_graph, _trials),
        Scenario("text run", _start_text, _of_text, _epoch),
        Scenario("sweep", _start_sweep, _of_sweep, _lines),
        Scenario("report", _start_report, _of_report, _pages),
    )
}
