"""One run in a folder: ``run.json``, ``checkpoint.pt``, ``model/``, ``curve.jsonl``, and later ``evaluation.json``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lresnet._files import write_atomically
from lresnet.data.registry import IMAGE_SETS
from lresnet.models import from_pretrained
from lresnet.models.pretrained import Pretrained
from lresnet.runs.images import (
    image_facts,
    real_place,
    require_images,
    require_same_everywhere,
    require_same_images,
    require_same_order,
)
from lresnet.train import ImageClassification, Objective, Outcome, TrainConfig, train_model
from lresnet.train.checkpoint import is_damaged, load_checkpoint
from lresnet.train.distributed import ONE_PROCESS, Processes
from lresnet.train.results import environment
from lresnet_paper.run import Run, build, require_data

__all__ = [
    "Record",
    "checkpoint_epoch",
    "evaluate_folder",
    "finished_run",
    "require_own_checkpoint",
    "run_of",
    "train_in_folder",
    "usable_device",
]


Record = dict[str, Any]

_NEEDED = (*(field.name for field in dataclasses.fields(Run)), "best_epoch", "command")


def train_in_folder(
    run: Run,
    folder: Path,
    *,
    command: str,
    device: str = "cpu",
    checkpoint_every: int = 200,
    processes: Processes = ONE_PROCESS,
    on_start: Callable[[Pretrained, Objective[Any], TrainConfig], None] | None = None,
    on_epoch: Callable[[int, float | None], None] | None = None,
) -> Record:
    """Train and leave everything in ``folder``; goes on from its checkpoint if there is one, to the same numbers.

    The test set is not read: that is :func:`evaluate_folder`'s; of images checksums are kept. Nothing is written
    before the run is known to be possible, and ``run.json`` has its best epoch only when all else is there.

    Args:
        device: see :func:`usable_device`; a checkpoint is gone on from on the kind of device it was made on.
        processes: the processes that share the run. All of them call this function, and process 0 writes the folder.
            Resume with the same number of processes that wrote the checkpoint.
        on_start: called as ``on_start(model, objective, schedule)`` before the first epoch.
        on_epoch: see :func:`lresnet.train.train_model`.

    Returns:
        What ``run.json`` holds; for images also what :mod:`lresnet.runs.prediction` needs of them.

    Raises:
        ValueError: the run is not possible, the folder holds another one, or its images have changed.
        OSError: the folder cannot be written to, or data are missing.
    """
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every must be at least 1, got {checkpoint_every}")
    place = usable_device(device)
    model, objective, schedule = _build(run, place, processes)
    record = _begun(run, objective, command, place, processes)
    before = processes.broadcast(_read_run(folder) if processes.is_main else None)
    if before is not None:
        _require_same(run, before, folder)
        if _finished(before):
            require_same_images(record.get("images", {}), before, folder)
            return before
    checkpoint = folder / "checkpoint.pt"
    if processes.is_main:
        require_own_checkpoint(checkpoint, before, record)
        _write(folder / "run.json", record)
    if on_start is not None:
        on_start(model, objective, schedule)
    outcome = train_model(
        model, objective, schedule, checkpoint=checkpoint, checkpoint_every=checkpoint_every, on_epoch=on_epoch
    )
    record |= {
        "validation": None if outcome.validation is None else round(outcome.validation, 4),
        "best_epoch": outcome.best_epoch,
        "epochs": outcome.epochs,
        "seconds": round(outcome.seconds, 2),
    }
    if processes.is_main:
        _write_results(folder, model, outcome, record)
    return record


def _build(run: Run, device: torch.device, processes: Processes) -> tuple[Pretrained, Objective[Any], TrainConfig]:
    """As :func:`build`; what may have to be downloaded is loaded by process 0 before the others."""
    if processes.size > 1 and run.cell in IMAGE_SETS:
        if processes.is_main:
            require_data(run)
        processes.broadcast(None)  # the other processes wait here
    return build(run, device, processes)


def _begun(run: Run, objective: Objective[Any], command: str, device: torch.device, processes: Processes) -> Record:
    """What ``run.json`` says before the first epoch."""
    record = dataclasses.asdict(run) | {"validation": None, "best_epoch": None, "command": command}
    record |= {"device": device.type, **environment(str(device))}
    if processes.size > 1:
        record["processes"] = processes.size
    if isinstance(objective, ImageClassification):
        record["images"] = image_facts(objective.data)
        require_same_everywhere(record["images"], run.cell, processes)
    return record


def _write_results(folder: Path, model: Pretrained, outcome: Outcome, record: Record) -> None:
    model.save_pretrained(folder / "model")
    looks = [json.dumps({"epoch": epoch, "validation": round(figure, 4)}) + "\n" for epoch, figure in outcome.curve]
    write_atomically(folder / "curve.jsonl", "".join(looks).encode())
    _write(folder / "run.json", record)


def evaluate_folder(folder: Path, *, device: str = "cpu") -> Record:
    """The test figures of the model in ``folder``: read once, kept in ``evaluation.json``, and taken from there after.

    Returns:
        A line of results, as :mod:`lresnet.train.results` keeps them.

    Raises:
        FileNotFoundError: there is no run in the folder, or its data are gone.
        ValueError: the run has not finished, its model does not fit the data, or its images have changed.
    """
    record = finished_run(folder)
    target = folder / "evaluation.json"
    if target.is_file():
        return _read(target)
    place = usable_device(device)
    require_images(record, folder)
    _, objective, _ = build(run_of(record), place)
    if isinstance(objective, ImageClassification):
        require_same_images(image_facts(objective.data), record, folder)
    model = from_pretrained(folder / "model", place)
    metrics = {name: round(value, 4) for name, value in objective.test(model.eval()).items()}
    result = record | {"metrics": metrics, "value": next(iter(metrics.values())), "stage": "final"}
    result |= {"command": f"{record['command']}; lresnet evaluate", **environment(str(place))}
    _write(target, result)
    return result


def finished_run(folder: Path) -> Record:
    """What ``run.json`` of ``folder`` holds.

    Raises:
        FileNotFoundError: there is no run in the folder.
        ValueError: the run has not finished.
    """
    record = _read_run(folder)
    if record is None:
        raise FileNotFoundError(f"{folder} holds no run: run.json is missing (`lresnet train` writes it)")
    if not _finished(record):
        raise ValueError(f"the run in {folder} has not finished; `lresnet train` with the same options goes on with it")
    return record


def checkpoint_epoch(folder: Path) -> int:
    """The epoch that a run in ``folder`` goes on from: that of its checkpoint, 0 where there is none."""
    state = load_checkpoint(folder / "checkpoint.pt")
    return 0 if state is None else int(state["epoch"])


def run_of(record: Record) -> Run:
    """The run that ``record`` is of."""
    return Run(**{field.name: record[field.name] for field in dataclasses.fields(Run)})


def usable_device(name: str) -> torch.device:
    """The device called ``name``; ``"auto"``: a GPU if there is one, else the CPU.

    Raises:
        ValueError: it cannot be used here, with torch's reason.

    Example:
        >>> usable_device("cpu")
        device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:  # its message lists every device there might be
        raise ValueError(
            f"device {name!r} cannot be used here: there is no such kind; take auto, cpu, cuda or cuda:1"
        ) from error
    try:
        torch.zeros(1, device=device).item()  # meta tensors, say, have no values
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        reason = str(error).splitlines()[0].partition(". ")[0]  # what follows lists every device there might be
        raise ValueError(f"device {name!r} cannot be used here: {reason}") from error
    if device.type == "cpu" and device.index is not None:  # torch takes it, what loads a model does not
        raise ValueError(f"device {name!r} cannot be used here: a CPU has no number; take cpu")
    return device


def _finished(record: Record) -> bool:
    return record["best_epoch"] is not None


def _read_run(folder: Path) -> Record | None:
    path = folder / "run.json"
    return _read(path) if path.is_file() else None


def _read(path: Path) -> Record:
    try:
        record: Record = json.loads(path.read_text())
        missing = [name for name in _NEEDED if name not in record]
        if missing or not isinstance(record, dict):
            raise ValueError(f"it names no {', '.join(missing)}")
        if not isinstance(record["cell"], str):
            raise ValueError(f"its cell is {record['cell']!r}, not the name of a task")
        if not isinstance(record["config"], dict):
            raise ValueError(f"its config is {record['config']!r}, not a table of settings")
    except (TypeError, ValueError) as error:
        verb = "evaluate" if path.name == "evaluation.json" else "train"
        raise ValueError(f"{path} is not what `lresnet {verb}` writes: {error}") from error
    return record


def _write(path: Path, record: Record) -> None:
    write_atomically(path, (json.dumps(record, indent=2, allow_nan=False) + "\n").encode())


def _require_same(run: Run, before: Record, folder: Path) -> None:
    """A folder holds one run: say what is different about the other."""
    asked, found = _facts(dataclasses.asdict(run)), _facts(before)
    for name in dict.fromkeys([*asked, *found]):
        here, there = asked.get(name), found.get(name)
        if here != there:
            raise ValueError(f"{folder} holds another run: {name} is {there} there, not {here}; use another folder")


def _facts(record: Record) -> Record:
    """What makes a run, and nothing of what came of it."""
    facts = {name: record[name] for name in ("cell", "method", "protocol", "split", "seed")}
    return facts | {"cell": real_place(record["cell"])} | dict(record["config"])


def require_own_checkpoint(checkpoint: Path, before: dict[str, Any] | None, record: dict[str, Any]) -> None:
    """Refuse a ``checkpoint`` that a run cannot go on from; where there is none, it begins anew.

    Args:
        before: what ``run.json`` beside the checkpoint held when this call began; None: there was none.
        record: what it is going to hold.

    Raises:
        ValueError: the file is damaged, nobody's, or of another kind of device, number of processes or images.
    """
    if is_damaged(checkpoint):
        raise ValueError(f"{checkpoint} is damaged and cannot be gone on from; delete it to begin anew")
    if not checkpoint.is_file():
        return
    if before is None:
        raise ValueError(f"{checkpoint} has no run.json beside it that says whose it is; use another folder")
    _require_same_device(record["device"], before, checkpoint.parent)
    _require_as_many(record.get("processes", 1), before, checkpoint.parent)
    images = record.get("images", {})
    require_same_images(images, before, checkpoint.parent)
    require_same_order(images, before, checkpoint.parent)


def _require_same_device(kind: str, before: dict[str, Any], folder: Path) -> None:
    """Random streams of a CPU and of a GPU are different: a run cannot change over."""
    begun = before.get("device", kind)
    if begun != kind:
        raise ValueError(
            f"the run in {folder} was begun on {begun} and cannot go on on {kind}; "
            f"take --device {begun}, or another folder to begin anew"
        )


def _require_as_many(processes: int, before: dict[str, Any], folder: Path) -> None:
    """Batch norms see the share of a process: other shares would be another run."""
    begun = before.get("processes", 1)
    if begun != processes:
        raise ValueError(
            f"the run in {folder} was begun by {begun} process{'es' if begun > 1 else ''} and cannot go on with "
            f"{processes}, as batch norms would see other shares of a batch; "
            f"start {'it without torchrun' if begun == 1 else f'{begun} (torchrun --nproc-per-node)'}, "
            "or take another folder to begin anew"
        )
