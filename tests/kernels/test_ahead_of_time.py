"""The kernels compile for a GPU, also on a machine without one: the interpreter accepts more than the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("triton")


@pytest.mark.slow
def test_kernels_compile_and_the_in_place_kernel_has_a_barrier_between_loads_and_stores(tmp_path: Path) -> None:
    """Several warps hold copies of a small tile, so one must not write before another has read."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.ahead_of_time"],
        cwd=Path(__file__).parents[2],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    kernels = [json.loads(line) for line in done.stdout.splitlines()]
    assert Counter(k["kernel"] for k in kernels) == {
        "_forward": 14, "_backward": 16, "_points_backward": 2, "_sums_backward": 2, "_step": 4,
        "_distances": 6, "_gradients": 12, "_rows_backward": 14,
        "moments_blocks": 3, "merge_moments": 3, "relu_forward": 3, "relu_sums": 3, "merge_sums": 3, "relu_gradient": 3
    }  # fmt: skip
    for order in (k["order"] for k in kernels if k["kernel"] == "_step"):
        reads = [i for i, line in enumerate(order) if line == "load"]
        # All loads but the last one, of the learning rate, which is not written.
        assert "wait" in order[reads[-2] : order.index("store")]
    rows = [k for k in kernels if k["kernel"] == "_rows_backward"]
    sys.stdout.write(f"registers of a thread: {[k['registers'] for k in rows]}\n")
    assert all(k["stack"] == 0 for k in rows)  # a row stays in registers
