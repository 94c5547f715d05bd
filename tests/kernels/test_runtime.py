"""Runtime of the kernels: availability, supported tensors, launches, compilation in the background."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.func import grad, vmap

pytest.importorskip("triton")

from lresnet.functional import lorentz_residual, parallel_transport_residual, tangent_residual
from lresnet.kernels import (
    batch_norm,
    disabled,
    enabled,
    is_available,
    norm_relu,
    norm_tail,
    residual,
    runtime,
    supports_pair,
)
from tests.kernels.cases import DEVICE, on_device, record_launches
from tests.residual.common import normals

HANG = 600  # seconds after which a test that hangs fails


class Kernel:
    """A fake kernel that records its calls; its compilation waits for ``may_end``."""

    def __init__(self, error: Exception | None = None) -> None:
        self.ran: list[tuple[Any, ...]] = []
        self.compiled: list[tuple[Any, ...]] = []
        self.error, self.may_end = error, threading.Event()

    def __getitem__(self, grid: object) -> Any:
        return lambda *arguments, **options: self.ran.append((grid, arguments, options))

    def warmup(self, *kinds: object, grid: object, **options: object) -> None:
        assert self.may_end.wait(HANG)
        self.compiled.append((grid, kinds, options))
        if self.error is not None:
            raise self.error


# --- launches and compilation in the background -----------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_compilations(monkeypatch):
    monkeypatch.setattr(runtime, "_requested", set())
    monkeypatch.setattr(runtime, "_compiling", {})


def traced(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    with FakeTensorMode():
        return torch.empty(shape, dtype=dtype)


@pytest.fixture
def on_any_device(monkeypatch):
    """Accept tensors of a trace on any device."""
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)


def test_a_launch_with_real_tensors_runs_the_kernel() -> None:
    kernel, x = Kernel(), torch.ones(2, 3)
    runtime.launch(kernel, (4,), x, None, 7, ROWS=8)
    assert kernel.ran == [((4,), (x, None, 7), {"ROWS": 8})]
    assert kernel.compiled == []


def test_a_launch_with_traced_tensors_compiles_once(on_any_device) -> None:
    kernel = Kernel()
    kernel.may_end.set()
    for _ in range(3):
        runtime.launch(kernel, (4,), traced(2, 3), None, 7, ROWS=8)
    runtime.launch(kernel, (4,), traced(2, 3), None, 7, ROWS=16)
    runtime.launch(kernel, (4,), traced(2, 3, dtype=torch.float32), None, 7, ROWS=8)
    for each in runtime._compiling[id(kernel)]:
        each.result()
    kinds = [(kinds[0].dtype, options["ROWS"]) for _, kinds, options in kernel.compiled]
    assert sorted(kinds, key=str) == [(torch.bfloat16, 16), (torch.bfloat16, 8), (torch.float32, 8)]
    assert kernel.ran == []


def test_the_first_run_waits_for_compilations_in_progress(on_any_device) -> None:
    kernel = Kernel()
    runtime.launch(kernel, (1,), traced(2, 3), ROWS=8)
    runner = threading.Thread(target=runtime.launch, args=(kernel, (1,), torch.ones(2, 3)), kwargs={"ROWS": 8})
    runner.start()
    runner.join(0.2)
    assert runner.is_alive()
    assert kernel.ran == []
    kernel.may_end.set()
    runner.join(HANG)
    assert len(kernel.compiled) == len(kernel.ran) == 1


def test_a_failed_compilation_is_left_to_the_run(on_any_device) -> None:
    kernel = Kernel(error=RuntimeError("out of registers"))
    kernel.may_end.set()
    runtime.launch(kernel, (1,), traced(2, 3))
    runtime.launch(kernel, (1,), torch.ones(2, 3))
    assert len(kernel.compiled) == len(kernel.ran) == 1


def test_kernels_compile_ahead_for_gpus_of_this_machine_and_known_sizes(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    mode = FakeTensorMode()

    def seen(place: str, *shape: int) -> bool:
        x = mode.from_tensor(torch.empty(shape, device="meta"))
        x.fake_device = torch.device(place)
        calls: list[Tensor] = []
        runtime.compile_ahead(calls.append, x)
        return bool(calls)

    assert seen("cuda:0", 4, 3)
    assert seen("cuda:1", 4, 3)
    assert not seen("cuda:7", 4, 3)
    assert not seen("cpu", 4, 3)
    assert not seen("cuda:0", 0, 3)
    runtime.compile_ahead(pytest.fail, torch.ones(4, 3))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not seen("cuda:0", 4, 3)


def test_errors_while_compiling_ahead_are_ignored(monkeypatch) -> None:
    monkeypatch.setattr(runtime, "_is_concrete", lambda x: True)

    def launch(x: Tensor) -> None:
        raise RuntimeError("can't start new thread")

    runtime.compile_ahead(launch, traced(2, 3))


def test_symbolic_numbers_request_no_compilation(on_any_device) -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    kernel = Kernel()
    step = ShapeEnv().create_unbacked_symint()
    runtime.launch(kernel, (1,), traced(2, 3), step)
    assert runtime._requested == set()


def test_integers_of_the_same_specialisation_compile_once(on_any_device) -> None:
    kernel = Kernel()
    kernel.may_end.set()
    for rows in (1, 16, 48, 17, 19, 2**31):
        runtime.launch(kernel, (1,), traced(2, 3), rows)
    assert len(runtime._requested) == 4  # 1; multiples of 16; other integers; 64-bit integers
    assert len(runtime._compiling[id(kernel)]) <= 4


@pytest.mark.parametrize(("first", "offset"), [(0, 0), (1, 6), (8, 0)])
def test_the_alignment_of_a_tensor_is_passed_to_triton(on_any_device, first: int, offset: int) -> None:
    kernel = Kernel()
    kernel.may_end.set()
    with FakeTensorMode():
        x = torch.empty(20, 3, dtype=torch.bfloat16)[first:]
    runtime.launch(kernel, (1,), x)
    for each in runtime._compiling[id(kernel)]:
        each.result()
    (((address,),),) = [(kinds,) for _, kinds, _ in kernel.compiled]
    assert (address.dtype, address.data_ptr()) == (torch.bfloat16, offset)


def test_several_threads_may_run_a_kernel_first(on_any_device) -> None:
    for _ in range(50):
        kernel = Kernel()
        kernel.may_end.set()
        runtime.launch(kernel, (1,), traced(2, 3))
        threads = [threading.Thread(target=runtime.launch, args=(kernel, (1,), torch.ones(2, 3))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(kernel.ran) == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_starts_its_own_workers(on_any_device) -> None:
    kernel = Kernel()
    runtime.launch(kernel, (1,), traced(2, 3))  # still compiling when the process forks
    child = os.fork()
    if child == 0:
        kernel.may_end.set()
        runtime.launch(kernel, (1,), traced(2, 3))
        runtime.launch(kernel, (1,), torch.ones(2, 3))
        os._exit(0 if len(kernel.compiled) == len(kernel.ran) == 1 else 1)
    kernel.may_end.set()
    for _ in range(20 * HANG):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child waits for threads of its parent")
    assert status == 0


@pytest.mark.slow
def test_a_program_that_ends_cancels_queued_compilations() -> None:
    program = """
import atexit, concurrent.futures.thread, contextlib, threading, torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from lresnet.kernels import runtime
torch.cuda.device = contextlib.nullcontext
may_end, compiled = threading.Event(), []
class Slow:
    def warmup(self, *kinds, **options):
        may_end.wait()
        compiled.append(options)
slow = Slow()
atexit.register(lambda: print(len(compiled)))
threading._register_atexit(may_end.set)  # registered before the hook of the pool, so it runs after it
with FakeTensorMode():
    for n in range(200): runtime.launch(slow, (1,), torch.empty(2, 3), ROWS=n)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG, capture_output=True, text=True)
    assert int(done.stdout) <= 8  # those that the workers had started


def network_of_operators(rows: int, n: int) -> None:
    """Run forward and backward of norm_tail, with one norm and with two, and of norm_relu."""
    x, y, g = (torch.ones(rows, n, dtype=torch.bfloat16) for _ in range(3))
    one, weight, bias = torch.ones(()), torch.ones(n), torch.zeros(n)
    for skip in ((None, None), (weight, bias)):
        factors = one, one, one, *skip, weight, bias
        _, statistics = norm_tail.norm_tail(x, y, *factors, 1e-5, 1e-5, "lorentz", True)
        norm_tail.norm_tail_backward(g, x, y, *factors, statistics, "lorentz", True)
    _, statistics = norm_relu.norm_relu(x, weight, bias, 1e-5)
    norm_relu.norm_relu_backward(g, x, statistics)


@pytest.mark.parametrize(("rows", "n"), [(70, 5), (128, 64)])
def test_a_trace_compiles_exactly_the_kernels_that_run(monkeypatch, rows: int, n: int) -> None:
    seen: dict[bool, set[tuple[Any, ...]]] = {True: set(), False: set()}

    def noted(kernel: Any, grid: Any, *arguments: Any, **options: Any) -> None:
        kinds = tuple(a.dtype if isinstance(a, Tensor) else a for a in arguments)
        real = type(arguments[0]) is Tensor
        seen[real].add((kernel.fn.__name__, tuple(grid), kinds, tuple(options.items())))

    for module in (residual, batch_norm, norm_relu):
        monkeypatch.setattr(module, "launch", noted)
    monkeypatch.setattr(runtime, "_is_concrete", lambda x: type(x) is FakeTensor)
    network_of_operators(rows, n)
    with FakeTensorMode():
        network_of_operators(rows, n)
    assert {name for name, *_ in seen[True]} == {
        "moments_blocks", "merge_moments", "forward_short", "backward_short", "merge_sums", "add_norm_gradient",
        "relu_forward", "relu_sums", "relu_gradient",
    }  # fmt: skip
    assert seen[False] == seen[True]


# --- availability and supported tensors -------------------------------------------------------------------------------


def points(*shape: int) -> list[Tensor]:
    return on_device(normals(*shape), normals(*shape, seed=1))


@pytest.fixture
def launches(monkeypatch):
    """Record the launches of the residual kernels, with the kernels enabled."""
    with enabled():
        yield record_launches(monkeypatch, residual)


def test_every_residual_uses_its_kernel(launches):
    x, y = points(4, 6)
    for function in (lorentz_residual, parallel_transport_residual, tangent_residual):
        function(x, y)
    assert launches == ["forward"] * 3
    with disabled():
        lorentz_residual(x, y)
    assert len(launches) == 3


def test_unsupported_arguments_use_the_formulas(launches):
    x, y = points(4, 6)
    lorentz_residual(x.double(), y.double())
    lorentz_residual(x, y[:1])  # broadcast
    lorentz_residual(x, y, K=torch.full((4, 1), -1.0, device=DEVICE))  # several curvatures
    vmap(lorentz_residual)(x, y)
    grad(lambda t: lorentz_residual(t, y).sum())(x)
    lorentz_residual(x.to("meta"), y.to("meta"))
    assert launches == []
    with pytest.raises(ValueError, match="the coordinate axis"):
        lorentz_residual(x, y[:, :5])
    with pytest.raises(TypeError, match=r"must be a torch\.Tensor"):
        lorentz_residual(x, [1.0])


def test_scales_are_checked_on_the_cpu(launches):
    x, y = on_device(normals(4, 6), normals(4, 6, seed=1))
    if DEVICE == "cpu":
        with pytest.raises(ValueError, match="scale must be positive and finite, got -1"):
            lorentz_residual(x, y, 1.0, -1.0)
    with pytest.raises(ValueError, match="curvature must be negative"):
        lorentz_residual(x, y, K=1.0)
    assert launches == []


def test_reasons_why_the_kernels_are_not_available(monkeypatch):
    with disabled():
        assert not is_available()
        assert "disabled()" in is_available().reason
    monkeypatch.setenv("LRESNET_KERNELS", "off")
    assert "LRESNET_KERNELS" in is_available().reason
    assert not supports_pair(*points(4, 6), dim=-1)
    monkeypatch.delenv("LRESNET_KERNELS")
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "_triton_is_installed", lambda: False)
        assert is_available().reason.startswith("triton is not installed")
        with enabled():
            assert not supports_pair(*points(4, 6), dim=-1)
            lorentz_residual(*points(4, 6))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "only within" in is_available("cpu").reason
    with enabled():
        assert is_available("cpu")
    monkeypatch.delenv("TRITON_INTERPRET")
    with enabled():
        assert is_available("cpu").reason == "the kernels are written for CUDA devices, not for 'cpu'"
        assert is_available("cuda").available == torch.cuda.is_available()


def test_cpu_tensors_use_the_formulas():
    assert not supports_pair(torch.ones(2, 3), torch.ones(2, 3), dim=-1)


def test_triton_is_imported_with_the_first_kernel():
    code = (
        "import sys, torch, lresnet, lresnet.kernels\n"
        "from lresnet.functional import lorentz_residual\n"
        "lorentz_residual(torch.ones(2, 3), torch.ones(2, 3))\n"
        "assert 'triton' not in sys.modules and 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
