"""Training in a folder: :func:`fit` starts a run, resumes it from its checkpoint, or returns the finished one."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from lresnet._files import locked_folder, require_no_file, write_atomically
from lresnet._options import AT_LEAST_1
from lresnet.data import Task, TextTask
from lresnet.models import from_pretrained
from lresnet.models.pretrained import Pretrained
from lresnet.runs.config import RunConfig, require_shareable, train_as_dict
from lresnet.runs.data_facts import data_facts, require_same_data
from lresnet.runs.device import usable_device
from lresnet.runs.model_config import ModelConfig
from lresnet.runs.networks import network_of
from lresnet.runs.own_network import is_own_network, load_weights, network_weights, save_weights
from lresnet.runs.record import (
    CURVE_FILE,
    TOKENIZER_FILE,
    RunRecord,
    damage,
    digests,
    read_record,
    remove_previous_checkpoint,
    require_repairable,
    require_resumable,
    require_same_run,
    write_record,
)
from lresnet.runs.run import Run
from lresnet.runs.task_config import TaskConfig
from lresnet.runs.tasks import load_in_order
from lresnet.train import Execution, Objective, Outcome, TrainConfig, make_objective, train_model
from lresnet.train.distributed import ONE_PROCESS, Processes
from lresnet.train.results import environment

__all__ = ["OnEpoch", "OnStart", "fit"]

OnStart = Callable[[Any, Objective[Any]], None]
OnEpoch = Callable[[int, float | None], None]


def fit(
    task: Task | TaskConfig | Dataset[Any] | DataLoader[Any] | str,
    model: torch.nn.Module | ModelConfig | str,
    config: TrainConfig = TrainConfig(),  # noqa: B008 - frozen
    *,
    out: str | Path | None = None,
    device: str = "auto",
    checkpoint_every: int | None = None,
    processes: Processes = ONE_PROCESS,
    command: str | None = None,
    on_start: OnStart | None = None,
    on_epoch: OnEpoch | None = None,
) -> Run:
    """Train a model on a task and return the run. The test set is not read: that is what :meth:`Run.evaluate` does.

    Args:
        task: a task, its configuration, or its name, e.g. ``"airport/lp"``, ``"cifar10"`` or ``"gcide"``; or a torch
            ``Dataset`` or ``DataLoader``, which stands for :func:`lresnet.data.dataset_task` of it.
        model: a model of :func:`lresnet.create_model`, its configuration, or its name; for images and data sets also
            any module that maps a batch to logits ``[batch, classes]``, and for a text any module that maps tokens
            ``[batch, length]`` to logits ``[batch, length, vocab_size]``. A configuration or a name is built with the
            sizes of the task after torch was seeded with ``config.seed``, so that the seed decides the whole run. A
            module is trained in place; seed torch before you build it. Parameters with ``requires_grad=False`` stay as
            they are, and a part all of whose parameters are frozen stays in eval mode
            (:func:`lresnet.train.engine.frozen_parts`).
        config: how to train.
        out: folder of the run. If it holds the checkpoint of the same run, training resumes from it; a resumed run is
            bit-identical to an uninterrupted one. (A user's own loader must give the same batches again, see
            :class:`lresnet.train.DatasetClassification`.) A finished run is returned without training, if its files
            match their checksums; otherwise it is trained again from its checkpoint. None: nothing is written.
        device: see :func:`usable_device`. A checkpoint must be resumed on the same kind of device.
        checkpoint_every: epochs between two checkpoints; None: 10; 200 if an epoch is one batch; 1 for data sets of
            your own and texts.
        processes: the processes that share the run; all of them call this function, and only rank 0 writes. Resume
            with the same number of processes that wrote the checkpoint.
        command: what ``run.json`` records as the command; None: the command that repeats the configuration.
        on_start: called as ``on_start(model, objective)`` before the first epoch.
        on_epoch: called as ``on_epoch(epoch, best validation metric)``, see :func:`lresnet.train.train_model`.

    Raises:
        TypeError: the task, the model or the configuration has the wrong type.
        ValueError: the run is impossible, the model does not fit the task, the folder holds another run, or its images
            have changed.
        OSError: the folder cannot be written to, another process is working in it, or data are missing.

    Example:
        >>> import lresnet
        >>> task = lresnet.data.load_task("disease_tree/lp")
        >>> model = lresnet.create_model("lorentz_gcn", in_features=task.x.shape[1])
        >>> run = lresnet.fit(task, model, lresnet.TrainConfig(epochs=5))
        >>> sorted(run.evaluate())
        ['average_precision', 'roc_auc']
    """
    if not isinstance(config, TrainConfig):
        raise TypeError(f"fit takes a lresnet.TrainConfig as its configuration, got {config!r}")
    if checkpoint_every is not None and checkpoint_every not in AT_LEAST_1:
        raise ValueError(f"checkpoint_every must be {AT_LEAST_1}, got {checkpoint_every!r}")
    if out is not None:
        require_no_file(Path(out))
    place, folder = usable_device(device), None if out is None else Path(out)
    data, task_record = load_in_order(task, config.seed, processes)
    require_shareable(data, processes.size, config.batch_size)
    network, model_record = network_of(model, data, config.seed, place)
    is_own = is_own_network(model_record)
    if is_own and folder is not None:
        network_weights(network)  # raises before the training if they cannot be written after it
    objective = make_objective(data, config, place, processes=processes)
    objective.require_model(network)
    record = _started(data, task_record, model_record, config, command, place, processes)
    if folder is None:
        outcome = _train(network, objective, config, None, 1, on_start, on_epoch)
        return Run(_finished(record, outcome), network, data, device=place)
    before, intact = processes.broadcast(_known_run(folder, record) if processes.is_main else (None, False))
    if not intact:
        with locked_folder(folder) if processes.is_main else contextlib.nullcontext():
            # Another process may have finished the run since.
            before, intact = processes.broadcast(_known_run(folder, record) if processes.is_main else (None, False))
            if not intact:
                if processes.is_main:
                    _prepare(folder, before, record)
                every = checkpoint_every or objective.checkpoint_every
                outcome = _train(network, objective, config, folder / "checkpoint.pt", every, on_start, on_epoch)
                record = _finished(record, outcome)
                if processes.is_main:
                    record = _write_results(folder, network, data, outcome, record)
                return Run(record, network, data, folder, place)
    assert before is not None
    if is_own:
        load_weights(network, folder / "model")
    else:
        network = from_pretrained(folder / "model", place)
    return Run(before, network.eval(), data, folder, place)


def _started(
    task: Task,
    task_record: dict[str, Any],
    model_record: dict[str, Any],
    config: TrainConfig,
    command: str | None,
    device: torch.device,
    processes: Processes,
) -> RunRecord:
    """Return the record of a run before its first epoch."""
    tree: dict[str, Any] = {"task": task_record, "model": model_record, "train": train_as_dict(config)}
    facts = data_facts(task, task_record, processes)
    if command is None:
        command = _command(tree, processes.size)
    return RunRecord(
        **tree,
        **facts,  # type: ignore[arg-type]
        command=command,
        device=device.type,
        processes=processes.size,
        **environment(str(device)),
    )


def _command(tree: dict[str, Any], processes: int) -> str:
    if tree["task"]["kind"] == "python" or "from" in tree["model"]:
        return "lresnet.fit(...)"
    return RunConfig.from_dict(tree).command(processes)


def _train(
    model: torch.nn.Module,
    objective: Objective[Any],
    config: TrainConfig,
    checkpoint: Path | None,
    every: int,
    on_start: OnStart | None,
    on_epoch: OnEpoch | None,
) -> Outcome:
    if on_start is not None:
        on_start(model, objective)
    # A user's network may read values on the host, which a captured step cannot.
    execution: Execution = "fast" if isinstance(model, Pretrained) else "eager"
    return train_model(
        model,
        objective,
        config,
        checkpoint=checkpoint,
        checkpoint_every=every,
        execution=execution,
        on_epoch=on_epoch,
    )


def _finished(record: RunRecord, outcome: Outcome) -> RunRecord:
    validation = None if outcome.validation is None else round(outcome.validation, 4)
    return dataclasses.replace(
        record,
        validation=validation,
        best_epoch=outcome.best_epoch,
        epochs=outcome.epochs,
        seconds=round(outcome.seconds, 2),
        norm_statistics=outcome.norm_statistics,
    )


def _known_run(folder: Path, record: RunRecord) -> tuple[RunRecord | None, bool]:
    """Return the record in ``folder`` and whether it is that of a finished run with all its files.

    Raises:
        ValueError: the folder holds another run, or the data have changed since.
    """
    before = read_record(folder)
    if before is None:
        return None, False
    require_same_run(record, before, folder)
    require_same_data("graph", record.graph, before.graph, record.task_name, folder)
    require_same_data("text", record.text, before.text, record.task_name, folder)
    if before.finished:
        require_same_data("images", record.images, before.images, record.task_name, folder)
    return before, before.finished and damage(folder, before) is None


def _prepare(folder: Path, before: RunRecord | None, record: RunRecord) -> None:
    """Check that a run can start or resume in ``folder``, and write its record without a result.

    Raises:
        ValueError: the folder has a checkpoint from which this run cannot resume, or none and a damaged run.
    """
    if before is not None and before.finished:
        found = damage(folder, before)
        assert found is not None
        require_repairable(folder, found)
        require_resumable(folder, before, record)
        warnings.warn(f"{folder} is damaged: {found}; the run is trained again from its checkpoint", stacklevel=3)
        return  # the record stays as it is until the files are there again
    require_resumable(folder, before, record)
    write_record(folder, record)


def _write_results(folder: Path, model: torch.nn.Module, task: Task, outcome: Outcome, record: RunRecord) -> RunRecord:
    """Write the model and the validation curve, then ``run.json``: a record with a best epoch has all files."""
    if isinstance(model, Pretrained):
        model.save_pretrained(folder / "model")
    else:
        save_weights(model, folder / "model")
    if isinstance(task, TextTask):
        write_atomically(folder / TOKENIZER_FILE, task.tokenizer.to_json().encode())
    lines = [json.dumps({"epoch": epoch, "validation": round(value, 4)}) + "\n" for epoch, value in outcome.curve]
    write_atomically(folder / CURVE_FILE, "".join(lines).encode())
    record = dataclasses.replace(record, files=digests(folder))
    write_record(folder, record)
    remove_previous_checkpoint(folder)
    return record
