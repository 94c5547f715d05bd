"""Settings of all tests. Without a GPU, kernels run in Triton's interpreter; it must be selected before the import."""

import gc
import os

import hypothesis
import pytest
import torch

from tests.interpreter import patch_once_per_grid

# No test depends on the speed of the machine: examples have no deadline, neither to run nor to be generated.
hypothesis.settings.register_profile("lresnet", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("lresnet")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Tests compare full float32. TF32, torch's default for convolutions on GPUs, has a mantissa of ten bits.
torch.backends.cudnn.allow_tf32 = False

# Imported modules and collected tests live until the end: exclude them from garbage collection, which is slow.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def quick_interpreter() -> None:
    patch_once_per_grid()
