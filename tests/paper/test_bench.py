"""Implementations and figures of the benchmarks, with a fake clock and tiny sizes."""

import json
import subprocess
import weakref
from collections.abc import Callable

import pytest
import torch

from lresnet import functional
from lresnet_paper.bench import Measurement, bench_gcn, bench_residual, bench_resnet, line, runtime_line
from lresnet_paper.bench.graphs import FALLBACK, available_cells, measure_graphs
from lresnet_paper.bench.memory import lacking_memory
from lresnet_paper.bench.residuals import (
    METHODS,
    Implementation,
    Size,
    implementations,
    measure_residuals,
    measure_stack,
    measure_without_sync,
    point_sets,
    why_not_compiled,
)
from lresnet_paper.bench.resnets import Network, measure_resnets, peaks_in_fresh_processes
from lresnet_paper.bench.timing import (
    PROCESS,
    Candidate,
    Spread,
    SyncTimes,
    Task,
    as_cuda_graph,
    first_line,
    try_prepare,
)
from lresnet_paper.bench.training import image_training
from tests.paper.fake_clock import FakeClock

CPU = torch.device("cpu")
TINY = Size(8, 16)


@pytest.fixture(autouse=True)
def few_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lresnet_paper.bench.residuals._CPU_CACHE", 1000)


def test_every_implementation_computes_its_residual() -> None:
    x, y = torch.randn(2, 5, 8, dtype=torch.float32).unbind(0)
    expected: dict[str, Callable[..., torch.Tensor]] = {
        "euclidean": torch.add,
        "space": functional.space_residual,
        "lorentz": functional.lorentz_residual,
        "parallel_transport": functional.parallel_transport_residual,
        "tangent": functional.tangent_residual,
    }
    field = implementations(CPU)
    assert list(dict.fromkeys(c.method for c in field)) == list(METHODS)
    for contender in field:
        if contender.function is None:
            assert contender.missing
        else:
            torch.testing.assert_close(contender.function(x, y), expected[contender.method](x, y), rtol=1e-3, atol=1e-4)
    missing = {c.name: c.missing for c in field if c.function is None}
    assert missing["lorentz, geoopt"] == "geoopt has no such operation"
    assert "CUDA" in missing["tangent, kernels"] or "TRITON_INTERPRET" in missing["tangent, kernels"]
    assert missing["tangent, textbook compiled"] == why_not_compiled(CPU, "auto") != ""
    assert why_not_compiled(CPU, "yes") == why_not_compiled(torch.device("cuda"), "auto") == ""


def test_a_failing_implementation_is_a_row_with_its_reason_and_the_others_are_measured() -> None:
    def broken(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("no such kernel\nand a long trace")

    field = [Implementation("euclidean", "x + y", torch.add), Implementation("lorentz", "reference", broken)]
    measured = measure_residuals(TINY, field, CPU, FakeClock(), rounds=3, copy_rate=1.0)
    assert [(m.form, m.part, m.missing) for m in measured] == [
        ("x + y", "forward", ""),
        ("reference", "forward", "NotImplementedError: no such kernel"),
        ("x + y", "forward + backward", ""),
        ("reference", "forward + backward", "NotImplementedError: no such kernel"),
    ]
    assert try_prepare(lambda: Candidate([], False)) == Candidate([], False)
    assert first_line(RuntimeError("")) == "RuntimeError: "
    assert lacking_memory(0, CPU) == ""
    assert lacking_memory(10**18, CPU).startswith("needs up to 1000000000 GB of memory, ")


def test_rates_and_ratios_follow_from_the_times() -> None:
    clock, costs = FakeClock(), {"x + y": 1.0, "reference": 2.0, "textbook": 8.0}
    done: list[str] = []

    def contender(method: str, form: str) -> Implementation:
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx: object, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                clock.spent = costs[form]
                return x + y

            @staticmethod
            def backward(ctx: object, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                done.append(form)
                clock.spent += 3 * costs[form]
                return g, g

        return Implementation(method, form, lambda x, y: Twice.apply(x, y))

    field = [contender("euclidean", "x + y"), contender("lorentz", "reference"), contender("lorentz", "textbook")]
    measured = measure_residuals(TINY, field, CPU, clock, rounds=3, copy_rate=4.0 * TINY.bytes)
    by = {(m.form, m.part): m for m in measured}
    assert done
    assert ("x + y", "backward") not in by  # it moves no data
    ours = by["reference", "forward"]
    assert ours.seconds == Spread(2.0, 2.0, 2.0, 3)
    assert ours.figures["gigabytes_per_second"] == pytest.approx(3 * TINY.bytes / 2 / 1e9)
    assert ours.figures["share_of_copy_rate"] == pytest.approx(3 / 2 / 4)
    assert ours.faster_than == {"x + y": 0.5, "textbook": 4.0}
    backward = by["reference", "backward"]
    assert backward.seconds is not None
    assert backward.seconds.median == 6.0
    assert backward.figures["share_of_copy_rate"] == pytest.approx(5 / 6 / 4)
    # The backward pass of x + y moves no data: 3 passes over memory for both.
    assert by["x + y", "forward + backward"].figures["share_of_copy_rate"] == pytest.approx(3 / 4 / 4)


def test_a_size_that_does_not_fit_into_memory_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lresnet_paper.bench.memory.free_memory", lambda device: TINY.bytes * 12)
    measured = measure_residuals(TINY, implementations(CPU)[:1], CPU, FakeClock(), rounds=2, copy_rate=1.0)
    assert [(m.part, bool(m.seconds)) for m in measured] == [("forward", True), ("forward + backward", False)]
    assert "GB are free" in measured[1].missing
    stack = measure_stack(TINY, CPU, FakeClock(), rounds=2)
    assert all(m.seconds is None and m.missing for m in stack)


def test_a_stack_has_the_given_depth_and_one_weight_per_level(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def residual(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        calls.append(w)
        return functional.lorentz_residual(x, y, w)

    monkeypatch.setattr("lresnet_paper.bench.residuals.lorentz_residual", residual)
    measured = measure_stack(TINY, CPU, FakeClock(), rounds=2, depth=5)
    assert [(m.form, m.seconds is None) for m in measured] == [
        ("x + y", False),
        ("kernels", True),
        ("reference", False),
        ("reference compiled", True),
    ]
    assert len(calls) == 5 * (1 + 3 + 2)  # once before, three warm-up rounds, two measured rounds
    assert len({id(w) for w in calls}) == 5
    assert measured[2].cell == "8/16 x 5"
    assert measured[2].faster_than == {"x + y": 1.0}


def test_times_without_synchronisation_are_measured_on_a_gpu_only() -> None:
    assert measure_without_sync(TINY, implementations(CPU), CPU, rounds=2) == []


def test_rates_without_and_with_synchronisation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lresnet_paper.bench.residuals._loop_times", lambda *arguments: SyncTimes(returned=0.5, finished=2.0)
    )
    monkeypatch.setattr("lresnet_paper.bench.residuals.point_sets", lambda size, device: point_sets(size, CPU))
    addition, ours = measure_without_sync(
        TINY, [c for c in implementations(CPU) if c.method in ("euclidean", "lorentz")], torch.device("cuda"), rounds=2
    )
    assert [(m.method, m.form) for m in (addition, ours)] == [("euclidean", "x + y"), ("lorentz", "textbook")]
    moved = 100 * 3 * TINY.bytes
    assert ours.seconds == Spread(0.5, 0.5, 0.5, 2)
    assert ours.figures == {
        "true_seconds": 2.0,
        "gigabytes": moved / 1e9,
        "implied_gigabytes_per_second": pytest.approx(moved / 0.5 / 1e9),
        "true_gigabytes_per_second": pytest.approx(moved / 2 / 1e9),
    }


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A device of type cuda whose work runs on the CPU."""
    package = "lresnet_paper.bench"
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    monkeypatch.setattr(f"{package}.memory.free_memory", lambda device: 10**12)
    monkeypatch.setattr(f"{package}.residuals.point_sets", lambda size, device: point_sets(size, CPU))
    monkeypatch.setattr(
        f"{package}.residuals._TRAFFIC", 24 * TINY.bytes * 4
    )  # three times forward + backward on 4 sets
    return torch.device("cuda")


def test_on_a_gpu_many_calls_are_one_task_that_is_replayed_if_it_can_be_captured(
    fake_gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = {"forward": 0, "both": 0}

    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        calls["both" if torch.is_grad_enabled() else "forward"] += 1
        return x + y

    def measure(form: str) -> list[Measurement]:
        calls.update(forward=0, both=0)
        field = [Implementation("lorentz", form, add)]
        return measure_residuals(TINY, field, fake_gpu, FakeClock(), rounds=2, copy_rate=1.0)

    monkeypatch.setattr("lresnet_paper.bench.residuals.as_cuda_graph", lambda task: lambda: None)
    forward, both, _ = measure("kernels")
    assert calls == {"forward": 8 * 4, "both": 3 * 4}  # run once before they are captured
    assert forward.facts["replayed"] is both.facts["replayed"] is True
    assert forward.seconds is not None
    assert forward.seconds.median == pytest.approx(1 / 32)  # the clock returns 1 for all 32 calls

    forward, _, _ = measure("geoopt")  # cannot be captured
    assert forward.facts["replayed"] is False
    assert calls["forward"] == 32 * (1 + 3 + 2)

    def refuse(task: Task) -> Task:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr("lresnet_paper.bench.residuals.as_cuda_graph", refuse)
    assert all(m.facts["replayed"] is False and m.seconds is not None for m in measure("kernels"))


@pytest.mark.slow
def test_on_a_gpu_epochs_are_compared_with_their_steps(fake_gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    package = "lresnet_paper.bench.resnets"
    monkeypatch.setattr(f"{package}.image_training", lambda *arguments: image_training(*arguments[:-1], CPU))
    monkeypatch.setattr(f"{package}.time.perf_counter", iter(range(100)).__next__)
    networks = [Network("lorentz_resnet20", method, 2) for method in ("lorentz", "euclidean")]
    peaks = dict.fromkeys(networks, 1)
    ours, _ = measure_resnets(networks, fake_gpu, FakeClock(), rounds=2, images=6, peaks=peaks)
    assert ours.seconds is not None
    assert ours.seconds.median == pytest.approx(1 / 20)  # one step of the 20 that are one task
    assert ours.figures["epoch_seconds"] == 1
    assert ours.figures["steps_per_epoch"] == 3
    assert ours.figures["epoch_over_its_steps"] == pytest.approx(1 / (3 / 20))


CASE = ("residual", "2048/10000", "lorentz", "kernels", "forward")


def test_lines_of_results() -> None:
    measurement = Measurement(
        *CASE, Spread(2.0, 1.0, 4.0, 9), {"share_of_copy_rate": 0.9}, {"x + y": 0.98}, {"sets": 2}
    )
    found = json.loads(json.dumps(line(measurement, "lresnet bench residual", CPU), allow_nan=False))
    assert found["table"] == "benchmarks"
    assert (found["value"], found["quartiles"], found["rounds"]) == (2.0, [1.0, 4.0], 9)
    assert found["metrics"] == {"share_of_copy_rate": 0.9}
    assert found.keys() >= {"study", "cell", "method", "protocol", "part", "command", "versions", "hardware", "config"}
    assert "seed" not in found  # not a run of a table

    run = runtime_line(measurement, "lresnet reproduce runtime", CPU)
    place = (run["table"], run["cell"], run["method"], run["protocol"])
    assert place == ("runtime", "2048/10000", "lorentz", "kernels")
    assert run["value"] == 200.0  # seconds for 100 additions
    assert (run["metrics"]["low"], run["metrics"]["high"]) == (100.0, 400.0)
    assert run.keys() >= {"seed", "split", "validation", "config", "command", "versions", "hardware", "seconds"}

    without_sync = Measurement("clock", *CASE[1:], Spread(2.0, 1.0, 4.0, 9))
    run = runtime_line(without_sync, "lresnet reproduce runtime", CPU)
    assert (run["protocol"], run["value"]) == ("kernels, not synchronised", 2.0)

    missing = runtime_line(Measurement(*CASE, missing="no compiler"), "lresnet reproduce runtime", CPU)
    assert (missing["value"], missing["missing"]) == (None, "no compiler")


def test_residuals_are_measured_at_the_given_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lresnet_paper.bench.suite._CPU_STACK", TINY)
    monkeypatch.setattr("lresnet_paper.bench.timing._COPY_BYTES", {"cpu": (2**12,)})
    measured = bench_residual(["4/6", "8/3"], CPU, rounds=2)
    assert list(dict.fromkeys((m.study, m.cell) for m in measured)) == [
        ("copy", "cpu"),
        ("residual", "4/6"),
        ("residual", "8/3"),
        ("stack", "8/16 x 64"),
    ]
    ours = next(m for m in measured if (m.form, m.part, m.cell) == ("reference", "backward", "8/3"))
    assert ours.seconds is not None
    assert ours.facts["sets"] == 21
    with pytest.raises(ValueError, match="rounds must be at least 2"):
        bench_residual([], CPU, rounds=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # raised inside torch.compile
def test_compiled_implementations_are_measured_if_requested() -> None:
    field = [c for c in implementations(CPU, "yes") if c.name in ("euclidean, x + y", "lorentz, reference compiled")]
    measured = measure_residuals(TINY, field, CPU, PROCESS, rounds=2, copy_rate=1.0)
    assert all(m.seconds is not None for m in measured), [m.missing for m in measured]


def test_steps_and_memory_are_compared_with_the_euclidean_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = [Network("lorentz_resnet20", method, 4) for method in ("lorentz", "euclidean")]
    peaks: dict[Network, int | str] = {networks[0]: 3 * 2**30, networks[1]: 2 * 2**30}
    ours, baseline = measure_resnets(networks, CPU, FakeClock(), rounds=2, images=4, peaks=peaks)
    assert (ours.cell, ours.method, baseline.method) == ("lorentz_resnet20/4", "lorentz", "euclidean")
    assert ours.figures == {"peak_gibibytes": 3.0, "peak_over_twin": 1.5}
    assert (ours.faster_than, baseline.faster_than) == ({"euclidean": 1.0}, {})
    peaks[networks[1]] = "no memory"
    ours, baseline = measure_resnets(networks, CPU, FakeClock(), rounds=2, images=4, peaks=peaks)
    assert "peak_over_twin" not in ours.figures
    assert baseline.facts["memory"] == "not measured: no memory"
    with pytest.raises(ValueError, match="at least 2 images"):
        bench_resnet("lorentz_resnet20", (), [1], CPU)
    with pytest.raises(ValueError, match="did you mean 'lorentz'"):
        bench_resnet("lorentz_resnet20", ["lorenz"], [4], CPU)


@pytest.mark.slow
def test_memory_of_a_step_grows_with_the_batch() -> None:
    small, large = peaks_in_fresh_processes([Network("lorentz_resnet20", "lorentz", n) for n in (2, 128)], CPU).values()
    assert isinstance(small, int)
    assert isinstance(large, int)
    # A lower bound: for the backward pass 20 layers keep at least 8 channels of 32 x 32 / 4 pixels of every image.
    assert large - small > 126 * 20 * 4 * 8 * 32 * 32 / 4
    (reason,) = peaks_in_fresh_processes([Network("lorentz_resnet20", "lorenz", 2)], CPU).values()
    assert str(reason).startswith("ValueError: unknown residual 'lorenz'")


def test_peak_memory_is_measured_in_one_process_per_network(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Process:
        returncode = 0

        def __init__(self, command: list[str], **options: object) -> None:
            started.append(command[1:])

        def communicate(self) -> tuple[str, str]:
            found = {"peak_bytes": 7} if "lorentz" in started[-1] else {"missing": "too big"}
            return json.dumps(found) + "\n", ""

    monkeypatch.setattr(subprocess, "Popen", Process)
    networks = [Network("lorentz_resnet20", method, 4) for method in ("lorentz", "euclidean")]
    assert list(peaks_in_fresh_processes(networks, CPU).values()) == [7, "too big"]
    assert started[0][-4:] == ["lorentz_resnet20", "lorentz", "4", "cpu"]


def test_epochs_of_one_seed_and_of_several_seeds() -> None:
    measured = measure_graphs("disease_tree/lp", ["lorentz"], CPU, FakeClock(), rounds=2, seeds=2)
    assert [(m.method, m.form, m.missing) for m in measured] == [
        ("lorentz", "1 seed", ""),
        ("lorentz", "2 seeds", ""),
        ("euclidean", "1 seed", ""),
        ("euclidean", "2 seeds", ""),
        ("euclidean", "PyG's GCN", ""),
    ]
    assert measured[1].faster_than == {"1 seed": 1.0, "euclidean": 1.0, "PyG's GCN": 1.0}
    assert {m.facts["layers"] for m in measured} == {measured[0].facts["layers"]}  # all networks have one depth


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(task: object) -> None:
        raise FileNotFoundError("no file")

    monkeypatch.setattr("lresnet_paper.bench.graphs.load", load)


@pytest.mark.usefixtures("without_data")
def test_without_data_the_generated_tree_is_measured() -> None:
    assert available_cells(["disease/lp", "airport/lp"]) == [FALLBACK]
    with pytest.raises(ValueError, match="did you mean 'space'"):
        bench_gcn([], ["spase"], CPU)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is missing")
def test_a_cuda_graph_keeps_the_tensors_of_its_task() -> None:
    def prepare() -> tuple[Task, weakref.ref[torch.Tensor], torch.Tensor]:
        x, y = torch.ones(2**20, device="cuda"), torch.empty(2**20, device="cuda")
        return as_cuda_graph(lambda: torch.add(x, x, out=y)), weakref.ref(x), y

    replay, x, y = prepare()
    torch.cuda.empty_cache()
    y.zero_()
    replay()
    assert x() is not None
    assert bool((y == 2).all())
