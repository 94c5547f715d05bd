"""A run killed at a random moment and resumed has the parameters and metrics of an uninterrupted run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lresnet.train.checkpoint import load_checkpoint
from tests.train import tree

ROOT = Path(__file__).parents[2]


def run_and_kill(kind: str, checkpoint: Path, step: int, delay: float) -> None:
    arguments = (kind, checkpoint, torch.get_num_threads(), step, delay)
    command = [sys.executable, "-m", "tests.train.tree", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr


@pytest.mark.parametrize(
    "kind",
    [
        "lp",
        pytest.param("nc", marks=pytest.mark.slow),
        pytest.param("nc-sampled", marks=pytest.mark.slow),
        pytest.param("lp-sampled", marks=pytest.mark.slow),
    ],
)
def test_a_killed_and_resumed_run_is_bit_identical(kind, tmp_path):
    model, outcome, metrics = tree.run(kind, None)
    dice = random.SystemRandom()
    step, delay = dice.randint(6, tree.EPOCHS - 2), dice.uniform(0.0, 0.02)
    path = tmp_path / "run.ckpt"
    run_and_kill(kind, path, step, delay)
    reached = load_checkpoint(path)["epoch"]
    assert 4 <= reached <= tree.EPOCHS, f"killed at step {step}"
    torch.manual_seed(12345)  # whatever this process drew in the meantime
    resumed, again, metrics_again = tree.run(kind, path)
    context = f"killed {delay:.4f} s after the start of step {step}, resumed from {reached}"
    assert metrics_again == metrics, context
    assert (again.validation, again.best_epoch, again.epochs) == (outcome.validation, outcome.best_epoch, 40), context
    for name, tensor in model.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), f"{name}, {context}"
