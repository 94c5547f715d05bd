"""The kernels compile for a GPU, also on a machine without one: the interpreter accepts more than the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the facts about each kernel."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.ahead_of_time"],
        cwd=Path(__file__).parents[2],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_kernels_compile_and_the_in_place_kernel_has_a_barrier_between_loads_and_stores(
    kernels: list[dict[str, Any]],
) -> None:
    """Several warps hold copies of a small tile, so one must not write before another has read."""
    assert Counter(k["kernel"] for k in kernels) == {
        "_forward": 15, "_backward": 17, "_points_backward": 2, "_sums_backward": 2, "_step": 4,
        "_distances": 6, "_gradients": 12, "_rows_backward": 28,
        "moments_blocks": 3, "merge_moments": 3, "relu_forward": 3, "relu_sums": 3, "merge_sums": 3, "relu_gradient": 3
    }  # fmt: skip
    for order in (k["order"] for k in kernels if k["kernel"] == "_step"):
        reads = [i for i, line in enumerate(order) if line == "load"]
        # All loads but the last one, of the learning rate, which is not written.
        assert "wait" in order[reads[-2] : order.index("store")]


@pytest.mark.slow
def test_vectors_of_a_head_of_width_64_are_read_and_written_16_bytes_at_a_time(kernels: list[dict[str, Any]]) -> None:
    forward, backward = (k for k in kernels if k["width"] == 64)
    assert forward["stack"] == backward["stack"] == 0  # no register is spilled
    # Six parts of 16 bytes: two of queries, two of keys, and two of values. The sums take 4 bytes.
    assert forward["store"] == {"16": 6}
    assert backward["store"] == {"16": 6, "4": 6}
    for kernel in (forward, backward):
        assert set(kernel["load"]) == {"4", "16"}
        assert kernel["load"]["4"] <= 16  # radius and factors, once per program


@pytest.mark.slow
def test_a_row_of_residual_and_norm_stays_in_registers(kernels: list[dict[str, Any]]) -> None:
    assert all(k["stack"] == 0 for k in kernels if k["kernel"] == "_rows_backward")
