"""Small link prediction and node classification runs on a synthetic tree, also as a process that a test kills."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from lresnet.data import LinkTask, NodeTask, disease_tree, load_task
from lresnet.models import LorentzGCN
from lresnet.train import (
    LinkPrediction,
    NodeClassification,
    Outcome,
    SampledLinkPrediction,
    SampledNodeClassification,
    TrainConfig,
    train_model,
)

EPOCHS = 40
CONFIG = TrainConfig(
    epochs=EPOCHS, lr=0.02, weight_decay=0.01, lr_schedule="cosine", clip=0.5, patience=EPOCHS, eval_every=3
)


def link_task(nodes: int = 80, seed: int = 0) -> LinkTask:
    task = load_task("disease_tree/lp", seed=seed, graph=disease_tree(nodes=nodes, seed=seed))
    assert isinstance(task, LinkTask)
    return task


def node_task(nodes: int = 80, seed: int = 0) -> NodeTask:
    task = load_task("disease_tree/nc", seed=seed, graph=disease_tree(nodes=nodes, seed=seed))
    assert isinstance(task, NodeTask)
    return task


def run(
    kind: str, checkpoint: Path | None, before_step: Callable[[int], None] | None = None
) -> tuple[LorentzGCN, Outcome, dict[str, float]]:
    """Train and test; every call gives the same numbers, interrupted or not.

    Args:
        kind: "lp" or "nc", or "lp-sampled" or "nc-sampled" for sampled batches.
        checkpoint: file of the checkpoints.
        before_step: called with the number of the epoch before each step.
    """
    torch.manual_seed(7)
    objective: LinkPrediction | NodeClassification
    batches = {"batch_size": 9, "neighbours": (2,)}
    if kind.startswith("lp"):
        if kind == "lp":
            objective = LinkPrediction(link_task(), margin=5.0, seed=7)
        else:
            objective = SampledLinkPrediction(link_task(), margin=5.0, seed=7, **batches)
        model = LorentzGCN(objective.task.x.shape[1], 6, learn_curvature=True, residual_options={"weight": "learned"})
    else:
        objective = (
            NodeClassification(node_task()) if kind == "nc" else SampledNodeClassification(node_task(), **batches)
        )
        model = LorentzGCN(objective.task.x.shape[1], 6, num_classes=2, dropout=0.4)
    if before_step is not None:
        steps, loss, in_epoch = itertools.count(), objective.loss, objective.steps_per_epoch
        objective.loss = lambda model: (before_step(next(steps) // in_epoch), loss(model))[1]
    outcome = train_model(model, objective, CONFIG, checkpoint=checkpoint, checkpoint_every=4)
    return model, outcome, objective.test(model)


def _run_and_be_killed(kind: str, checkpoint: str, threads: str, step: str, delay: str) -> None:
    """Train, and send SIGKILL to this process ``delay`` seconds after the start of ``step``."""
    torch.set_num_threads(int(threads))

    def before_step(number: int) -> None:
        if number == int(step):
            threading.Timer(float(delay), os.kill, (os.getpid(), signal.SIGKILL)).start()

    run(kind, Path(checkpoint), before_step)
    time.sleep(60)  # the run has ended: wait for the signal


if __name__ == "__main__":
    _run_and_be_killed(*sys.argv[1:])
