"""Kernels that compile while the network is still being traced: the same ones that run afterwards, each once."""

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

pytest.importorskip("triton")

from lresnet.kernels import batch_norm, norm_relu, norm_tail, residual, runtime

HANG = 600  # seconds after which a test that hangs fails


class Kernel:
    """Notes what it is asked for; compiling waits until it is allowed to end."""

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


@pytest.fixture(autouse=True)
def nothing_begun(monkeypatch):
    monkeypatch.setattr(runtime, "_requested", set())
    monkeypatch.setattr(runtime, "_compiling", {})


def traced(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    with FakeTensorMode():
        return torch.empty(shape, dtype=dtype)


@pytest.fixture
def on_any_device(monkeypatch):
    """Tensors of a trace that are said to lie on the CPU count as well."""
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)


def test_on_real_tensors_it_runs() -> None:
    kernel, x = Kernel(), torch.ones(2, 3)
    runtime.launch(kernel, (4,), x, None, 7, ROWS=8)
    assert kernel.ran == [((4,), (x, None, 7), {"ROWS": 8})]
    assert kernel.compiled == []


def test_on_tensors_of_a_trace_it_compiles_once(on_any_device) -> None:
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


def test_a_first_run_waits_for_what_is_under_way(on_any_device) -> None:
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


def test_what_cannot_be_compiled_is_for_the_run_to_say(on_any_device) -> None:
    kernel = Kernel(error=RuntimeError("out of registers"))
    kernel.may_end.set()
    runtime.launch(kernel, (1,), traced(2, 3))
    runtime.launch(kernel, (1,), torch.ones(2, 3))
    assert len(kernel.compiled) == len(kernel.ran) == 1


def test_kernels_are_begun_for_a_gpu_that_is_here_and_known_sizes(monkeypatch) -> None:
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


def test_a_head_start_that_is_not_to_be_had_stops_nobody(monkeypatch) -> None:
    monkeypatch.setattr(runtime, "_is_concrete", lambda x: True)

    def launch(x: Tensor) -> None:
        raise RuntimeError("can't start new thread")

    runtime.compile_ahead(launch, traced(2, 3))


def test_numbers_that_are_not_known_yet_begin_nothing(on_any_device) -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    kernel = Kernel()
    step = ShapeEnv().create_unbacked_symint()
    runtime.launch(kernel, (1,), traced(2, 3), step)
    assert runtime._requested == set()


def test_what_triton_does_not_tell_apart_is_begun_once(on_any_device) -> None:
    kernel = Kernel()
    kernel.may_end.set()
    for rows in (1, 16, 48, 17, 19, 2**31):
        runtime.launch(kernel, (1,), traced(2, 3), rows)
    assert len(runtime._requested) == 4  # one; multiples of 16; others; long ones
    assert len(runtime._compiling[id(kernel)]) <= 4


@pytest.mark.parametrize(("first", "offset"), [(0, 0), (1, 6), (8, 0)])
def test_triton_hears_where_a_tensor_begins(on_any_device, first: int, offset: int) -> None:
    kernel = Kernel()
    kernel.may_end.set()
    with FakeTensorMode():
        x = torch.empty(20, 3, dtype=torch.bfloat16)[first:]
    runtime.launch(kernel, (1,), x)
    for each in runtime._compiling[id(kernel)]:
        each.result()
    (((address,),),) = [(kinds,) for _, kinds, _ in kernel.compiled]
    assert (address.dtype, address.data_ptr()) == (torch.bfloat16, offset)


def test_two_threads_may_run_a_kernel_first(on_any_device) -> None:
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
def test_a_forked_child_has_workers_of_its_own(on_any_device) -> None:
    kernel = Kernel()
    runtime.launch(kernel, (1,), traced(2, 3))  # under way when the child begins
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
        pytest.fail("the child waits for its parent's threads")
    assert status == 0


def test_a_program_that_ends_does_not_wait_for_what_nobody_will_run() -> None:
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
threading._register_atexit(may_end.set)  # before the pool's own hook is registered, so it runs after that
with FakeTensorMode():
    for n in range(200): runtime.launch(slow, (1,), torch.empty(2, 3), ROWS=n)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=HANG, capture_output=True, text=True)
    assert int(done.stdout) <= 8  # those that the workers had already started


def network_of_operators(rows: int, n: int) -> None:
    """Forward and backward of both operators, a tail with one norm and one with two."""
    x, y, g = (torch.ones(rows, n, dtype=torch.bfloat16) for _ in range(3))
    one, weight, bias = torch.ones(()), torch.ones(n), torch.zeros(n)
    for skip in ((None, None), (weight, bias)):
        factors = one, one, one, *skip, weight, bias
        _, statistics = norm_tail.norm_tail(x, y, *factors, 1e-5, 1e-5, "lorentz", True)
        norm_tail.norm_tail_backward(g, x, y, *factors, statistics, "lorentz", True)
    _, statistics = norm_relu.norm_relu(x, weight, bias, 1e-5)
    norm_relu.norm_relu_backward(g, x, statistics)


@pytest.mark.parametrize(("rows", "n"), [(70, 5), (128, 64)])
def test_a_trace_begins_exactly_what_will_run(monkeypatch, rows: int, n: int) -> None:
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
        "moments_blocks", "merge_moments", "forward_blocks", "backward_blocks", "merge_sums", "add_norm_gradient",
        "relu_forward", "relu_sums", "relu_gradient",
    }  # fmt: skip
    assert seen[False] == seen[True]
