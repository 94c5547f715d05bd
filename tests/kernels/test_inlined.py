"""torch.compile sees the kernels of inlined operators; torch.export sees the operators."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

OPERATORS = ("lresnet.attention_vectors.default", "lresnet.attention_vectors_backward.default")


@pytest.fixture(scope="module")
def graphs() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the facts about each graph, by case and direction."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.kernels.inlined"],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {(facts["case"], facts["graph"]): facts for facts in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["all arguments", "no angles", "symbolic sizes"])
def test_a_compiled_graph_has_one_kernel_forward_and_one_backward_and_no_operator(graphs, case: str) -> None:
    """Only new memory is written: inductor then copies none of the tensors that a kernel gets."""
    expected = {
        "forward": ("_forward", ["q_pointer", "k_pointer", "v_pointer"]),
        "backward": ("_backward", ["gx_pointer"] if case == "no angles" else ["gx_pointer", "lines_pointer"]),
    }
    for direction, (name, changed) in expected.items():
        facts = graphs[case, direction]
        assert not set(OPERATORS) & set(facts["targets"])
        (kernel,) = facts["kernels"]
        assert (kernel["kernel"], kernel["changed"]) == (name, changed)
        assert kernel["allocated"] == ["aten.empty.memory_format"] * len(changed)
        assert kernel["symbolic"] == (case == "symbolic sizes")
        absent = {"cos_pointer", "sin_pointer", "lines_pointer"} if case == "no angles" else set()
        assert set(kernel["absent"]) == (absent - {"lines_pointer"} if direction == "forward" else absent)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["all arguments", "no angles", "symbolic sizes"])
def test_a_graph_launches_its_kernels_as_eager_mode_does(graphs, case: str) -> None:
    """Every pointer, number, constant and the grid are the same; the accuracy of eager mode is tested elsewhere."""
    for kernel, arguments in (("_forward", 26), ("_backward", 38)):
        facts = graphs[case, f"launch of {kernel}"]
        assert (facts["differing"], facts["arguments"]) == ([], arguments)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["residual and norm", "two residuals and norm"])
def test_the_kernel_of_residual_and_norm_is_launched_as_in_eager_mode(graphs, case: str) -> None:
    facts = graphs[case, "launch of _rows_backward"]
    assert (facts["differing"], facts["arguments"]) == ([], 22)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["all arguments", "no angles", "symbolic sizes"])
def test_the_forward_graph_stores_the_vectors_for_the_backward_graph(graphs, case: str) -> None:
    assert graphs[case, "forward"]["returned"] == ["k_pointer", "q_pointer", "v_pointer"]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "absent"), [
    ("residual and norm", ["branch_pointer", "branch_scale_pointer", "branch_weight_pointer"]),
    ("two residuals and norm", []),
])  # fmt: skip
def test_the_gradients_of_residual_and_norm_are_one_kernel_that_writes_new_memory_only(graphs, case, absent) -> None:
    facts = graphs[case, "forward"]
    assert "lresnet.residual_norm_backward.default" not in facts["targets"]
    (kernel,) = facts["kernels"]
    assert (kernel["kernel"], kernel["num_warps"]) == ("_rows_backward", 1)
    assert kernel["changed"] == ["gx_pointer", "gy_pointer", "lines_pointer"]
    assert set(kernel["allocated"]) == {"aten.empty.memory_format"}
    assert sorted(kernel["absent"]) == absent


@pytest.mark.slow
def test_an_exported_graph_has_the_operator(graphs) -> None:
    facts = graphs["exported", "forward"]
    assert OPERATORS[0] in facts["targets"]
    assert facts["kernels"] == []


@pytest.mark.slow
def test_kernels_of_inlined_operators_are_not_compiled_in_the_background(graphs) -> None:
    assert graphs["all", ""]["in background"] == 0


@pytest.mark.slow
def test_the_functions_of_a_kernel_can_be_copied_into_one_file(graphs) -> None:
    """Generated code holds them under their names, as a string: two functions of one name would be confused."""
    assert graphs["all", ""]["kernels"] >= 3
    assert graphs["all", ""]["ambiguous"] == []
    assert graphs["all", ""]["with backslash"] == []
