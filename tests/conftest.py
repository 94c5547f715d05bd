"""Settings of all tests. Without a GPU the kernels run in Triton's interpreter, chosen before Triton is imported."""

import gc
import os

import hypothesis
import pytest
import torch

from tests.interpreter import patch_once_per_grid

# No test depends on how fast this machine is: no time limit for an example, nor for drawing it.
hypothesis.settings.register_profile("lresnet", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("lresnet")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# float32 is compared as float32: TF32, torch's default for convolutions on GPUs, keeps ten bits of a number.
torch.backends.cudnn.allow_tf32 = False

# Imported modules and collected tests stay until the end: garbage collection need not look at them again and again.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def quick_interpreter() -> None:
    patch_once_per_grid()
