"""Sweeps are resumable: no run is executed twice, lost, or selected on test data."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lresnet._files import locked
from lresnet.residual.registry import compared_methods
from lresnet.train import NonFiniteError
from lresnet.train.results import ResultsFile, append_result, read_results
from lresnet.train.stacking.model import StackError
from lresnet_paper import sweep
from lresnet_paper.plan import FINAL_SEEDS, SEARCH_SEEDS, final_runs, missing_runs, recipe, search_runs
from lresnet_paper.results import key_of_line
from lresnet_paper.run import Run
from lresnet_paper.sweep import checkpoint_path, reproduce_cell, reproduce_cells, run_all
from tests.runs.inline_pool import Inline

CELL = "disease/lp"
NOWHERE = Path("no.jsonl")  # runs on graphs write no checkpoint next to their results


@pytest.fixture
def executed(monkeypatch) -> list[Run]:
    """Replace training by a value that depends on the run; return the executed runs."""
    runs: list[Run] = []

    def execute(run: Run, *, command: str, **_: Any) -> tuple[dict[str, Any], None]:
        runs.append(run)
        record = {name: getattr(run, name) for name in Run.__dataclass_fields__}
        figure = 50 + run.config.get("lr", 0.0) * 100 + run.config.get("num_layers", 0)
        record |= {"validation": figure, "seconds": 0.0, "command": command}
        if run.stage == "final":
            record["value"] = figure
        return record, None

    @contextmanager
    def worker_pool(workers: int) -> Iterator[Inline]:
        yield Inline()

    monkeypatch.setattr(sweep, "execute", execute)
    monkeypatch.setattr(sweep, "worker_pool", worker_pool)
    monkeypatch.setattr("lresnet_paper.sweep.require_data", lambda run: None)  # needs no data
    return runs


def runs(count: int = 5, **change: object) -> list[Run]:
    base = {"table": "gnn", "cell": CELL, "method": "lorentz", "protocol": "legacy", "config": {"lr": 0.1}}
    return [Run(**base | change, seed=seed) for seed in range(count)]


# --- run_all ----------------------------------------------------------------------------------------------------------


def test_a_second_call_executes_nothing(executed, tmp_path):
    path = tmp_path / "results" / "gnn.jsonl"
    assert run_all(runs(), path, command="c") == 0
    assert len(executed) == 5
    before = path.read_bytes()
    assert run_all(runs(), path, command="c") == 0
    assert len(executed) == 5
    assert path.read_bytes() == before


def test_an_interrupted_file_is_continued(executed, tmp_path):
    """Two complete lines and a truncated one: the three missing runs are executed and appended."""
    path = tmp_path / "gnn.jsonl"
    run_all(runs(3), path, command="c")
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:2]) + "\n" + lines[2][:30])
    executed.clear()
    with pytest.warns(UserWarning, match="is not a result"):
        assert run_all(runs(5), path, command="c") == 0
    assert [run.seed for run in executed] == [2, 3, 4]
    with pytest.warns(UserWarning, match="is not a result"):
        assert sorted(r["seed"] for r in read_results(path)) == [0, 1, 2, 3, 4]


def test_lines_that_are_not_runs_do_not_count(executed, tmp_path):
    path = tmp_path / "gnn.jsonl"
    whole = {name: getattr(runs(1)[0], name) for name in Run.__dataclass_fields__}
    for odd in ({"milliseconds": 3.0}, {"table": "gnn"}, whole | {"config": None}, whole | {"seed": [0]}):
        append_result(path, odd)
    assert missing_runs(runs(2), path) == runs(2)


def test_a_line_is_appended_as_each_run_finishes(executed, tmp_path):
    path, seen = tmp_path / "gnn.jsonl", []

    def report(done: int, total: int, record: dict[str, Any]) -> None:
        seen.append((done, total, len(path.read_text().splitlines())))

    run_all(runs(4), path, command="c", report=report)
    assert seen == [(1, 4, 1), (2, 4, 2), (3, 4, 3), (4, 4, 4)]


def test_an_error_keeps_the_finished_runs(executed, tmp_path, monkeypatch):
    path, original = tmp_path / "gnn.jsonl", sweep.execute

    def broken(run: Run, *, command: str, **_: Any) -> tuple[dict[str, Any], None]:
        if run.seed == 3:
            raise FileNotFoundError("disease_lp.edges.csv")
        return original(run, command=command)

    monkeypatch.setattr(sweep, "execute", broken)
    with pytest.raises(FileNotFoundError, match="disease_lp"):
        run_all(runs(5), path, command="c")
    assert {r["seed"] for r in read_results(path)} <= {0, 1, 2, 4}
    assert len(list(read_results(path))) >= 1
    monkeypatch.setattr(sweep, "execute", original)
    assert run_all(runs(5), path, command="c") == 0
    assert sorted(r["seed"] for r in read_results(path)) == [0, 1, 2, 3, 4]


def test_methods_advance_side_by_side_seed_by_seed(executed, tmp_path):
    run_all(runs(2) + runs(2, method="euclidean"), tmp_path / "gnn.jsonl", command="c")
    assert [(run.seed, run.method) for run in executed] == [
        (seed, method) for seed in (0, 1) for method in ("lorentz", "euclidean")
    ]


def test_runs_that_another_sweep_finishes_meanwhile_are_neither_repeated_nor_written_twice(
    executed, tmp_path, monkeypatch
):
    path, original = tmp_path / "gnn.jsonl", sweep.execute
    other = ResultsFile(path, key_of_line)

    def execute(run: Run, **options: Any) -> tuple[dict[str, Any], None]:
        if run.seed == 0:  # before this run has ended, the other sweep has finished it and the last two
            for seed in (0, 3, 4):
                other.append(dataclasses.asdict(runs(5)[seed]) | {"value": 1.0, "validation": 1.0})
        return original(run, **options)

    monkeypatch.setattr(sweep, "execute", execute)
    monkeypatch.setattr(sweep, "group_runs", lambda todo: [[run] for run in todo])
    assert run_all(runs(5), path, command="c", device="cpu:0") == 0  # in this process, as on a GPU
    assert [run.seed for run in executed] == [0, 1, 2]
    assert sorted(record["seed"] for record in read_results(path)) == [0, 1, 2, 3, 4]


def test_a_run_that_another_process_trains_is_skipped_and_counted_as_missing(executed, tmp_path):
    (one,) = runs(1, cell="cifar10", table="image_classification", protocol="fast")
    lock = checkpoint_path(one, tmp_path / "r.jsonl", "cpu").parent / f"{sweep._digest(one.key())}.lock"
    with (
        locked(lock, "{}"),
        pytest.warns(UserWarning, match=r"skipped: cifar10 lorentz .* is being trained by process"),
    ):
        assert run_all([one], tmp_path / "r.jsonl", command="c", device="cpu:0") == 1
    assert executed == []
    assert run_all([one], tmp_path / "r.jsonl", command="c", device="cpu:0") == 0


def test_after_the_time_limit_no_run_starts_and_missing_runs_are_counted(executed, tmp_path):
    assert run_all(runs(5), tmp_path / "gnn.jsonl", command="c", minutes=-1.0) == 5
    assert executed == []


def test_at_the_time_limit_runs_that_wait_for_a_worker_are_taken_back(executed, tmp_path, monkeypatch):
    """Workers get runs ahead of time, so that none is idle."""
    now, submitted = [0.0], list[Future[Any]]()

    class Busy:
        """A pool whose worker finishes its first run after two minutes, and has not started the second one."""

        def submit(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
            submitted.append(Future())
            if len(submitted) == 2:
                submitted[0].set_result(first())
                now[0] = 120.0
            else:
                calls.append((fn, args))
            return submitted[-1]

    def first() -> Any:
        ((fn, args),) = calls
        return fn(*args)

    @contextmanager
    def worker_pool(workers: int) -> Iterator[Busy]:
        yield Busy()

    calls: list[tuple[Callable[..., Any], Any]] = []
    monkeypatch.setattr(sweep, "worker_pool", worker_pool)
    monkeypatch.setattr(sweep, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert run_all(runs(5), tmp_path / "gnn.jsonl", command="c", minutes=1.0) == 4
    assert [run.seed for run in executed] == [0]
    assert [future.cancelled() for future in submitted] == [False, True]


def test_a_diverged_run_is_recorded_without_a_value_and_not_repeated(executed, tmp_path, monkeypatch):
    path, calls = tmp_path / "gnn.jsonl", []

    def diverge(run: Run, *, command: str, **_: Any) -> None:
        calls.append(run)
        raise NonFiniteError("the loss stopped being finite at step 7")

    monkeypatch.setattr(sweep, "execute", diverge)
    assert run_all(runs(2), path, command="lresnet reproduce gnn") == 0
    for record in read_results(path):
        assert record["value"] is None
        assert record["validation"] is None
        assert record["error"] == "the loss stopped being finite at step 7"
        assert record["command"] == "lresnet reproduce gnn"
        assert record["versions"]
        assert record["hardware"]
    assert run_all(runs(2), path, command="c") == 0
    assert len(calls) == 2


def test_an_unwritable_file_is_an_error_before_the_first_run(executed, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        run_all(runs(), tmp_path / "file" / "gnn.jsonl", command="c")
    assert executed == []


@pytest.mark.slow
def test_real_runs_in_a_worker_process(tmp_path):
    """The real pool and real training: one run finishes and one diverges."""
    config = {"hidden": 4, "num_layers": 2, "epochs": 3, "eval_every": 1, "lr": 0.01}
    good = Run("gnn", "disease_tree/lp", "lorentz", "disjoint", 0, config)
    bad = Run("gnn", "disease_tree/lp", "lorentz", "disjoint", 0, config | {"lr": 1e38, "epochs": 30})
    path = tmp_path / "gnn.jsonl"
    assert run_all([good, bad], path, command="c", workers=1) == 0
    by_rate = {record["config"]["lr"]: record for record in read_results(path)}
    assert 0 <= by_rate[0.01]["value"] <= 100
    assert by_rate[1e38]["value"] is None
    assert "step" in by_rate[1e38]["error"]


class TestOnAGPU:
    """The code path of a GPU, on a CPU."""

    CONFIG = {"hidden": 4, "num_layers": 2, "epochs": 3, "eval_every": 1, "lr": 0.01}  # noqa: RUF012

    @pytest.fixture
    def records(self) -> list[dict[str, Any]]:
        return []

    @pytest.fixture
    def part(self, records, tmp_path) -> Callable[[list[Run]], sweep._Part]:
        """Return a function that makes a part of a sweep; it also appends every finished run to ``records``."""

        def report(done: int, total: int, record: dict[str, Any] | None) -> None:
            if record is not None:
                records.append(record)

        def make(runs: list[Run]) -> sweep._Part:
            return sweep._Part(tmp_path / "gnn.jsonl", "c", [lambda: runs], reports=[report], grouped=True)

        return make

    def run(self, seed: int, **change: object) -> Run:
        config = self.CONFIG | change
        return Run("gnn", "disease_tree/lp", "lorentz", "disjoint", seed, config)

    def test_runs_that_differ_only_in_the_seed_are_stacked(self, records, part):
        runs = [self.run(0), self.run(1), self.run(0, lr=0.02)]
        sweep._run_here([part(runs)], "cpu", math.inf)
        assert [record.get("stacked") for record in records] == [2, 2, None]
        for run, record in zip(runs, records, strict=True):
            alone = sweep._execute_one(run, "c", "cpu", NOWHERE)
            assert (record["seed"], record["config"]) == (run.seed, run.config)
            assert record["value"] == pytest.approx(alone["value"], abs=1e-3)

    @pytest.mark.slow  # two processes, and each imports torch
    def test_stacks_go_to_workers(self, records, part):
        runs = [self.run(0), self.run(1), self.run(0, lr=0.02)]
        sweep._run_in_workers([part(runs)], "cpu", 2, math.inf)
        assert sorted((r["config"]["lr"], r["seed"], r.get("stacked")) for r in records) == [
            (0.01, 0, 2),
            (0.01, 1, 2),
            (0.02, 0, None),
        ]

    def test_runs_that_cannot_be_stacked_are_executed_one_by_one(self, records, part, monkeypatch):
        def refuse(*_: object, **__: object) -> None:
            raise StackError("unequal shapes")

        monkeypatch.setattr(sweep, "execute_many", refuse)
        sweep._run_here([part([self.run(0), self.run(1)])], "cpu", math.inf)
        assert [record["seed"] for record in records] == [0, 1]
        assert all("stacked" not in record for record in records)

    def test_a_diverged_run_is_recorded(self, records, part):
        sweep._run_here([part([self.run(s, lr=1e38, epochs=9) for s in (0, 1)])], "cpu", math.inf)
        assert [record["value"] for record in records] == [None, None]
        assert all("finite" in record["error"] for record in records)

    def test_no_run_starts_after_the_time_limit(self, records, part):
        sweep._run_here([part([self.run(0)])], "cpu", -math.inf)
        assert records == []


# --- several cells ---------------------------------------------------------------------------------------------------


def test_cells_share_a_pool_and_each_has_its_own_stages(tmp_path, executed):
    cells = [("airport/lp", "legacy"), ("disease/lp", None)]
    path, started = tmp_path / "gnn.jsonl", []

    def report(cell: str, protocol: str | None) -> Callable[..., None]:
        def own(stage: str, done: int, total: int, record: dict[str, Any] | None) -> None:
            if record is None:
                started.append((cell, stage))
            else:
                assert record["cell"] == cell

        return own

    assert reproduce_cells("gnn", cells, path, methods=["lorentz"], report=report) == 0
    assert started == [(cell, stage) for cell, _ in cells for stage in ("search", "final")]
    lines = list(read_results(path))
    assert {line["command"] for line in lines} == {
        "lresnet reproduce gnn --cell airport/lp --protocol legacy",
        "lresnet reproduce gnn --cell disease/lp",
    }
    for cell, _ in cells:
        stages = [line["stage"] for line in lines if line["cell"] == cell]
        assert stages == sorted(stages, reverse=True)
        assert stages.count("final") == len(FINAL_SEEDS)
    assert reproduce_cells("gnn", cells, path, methods=["lorentz"]) == 0
    assert len(executed) == len(lines)


def test_a_worker_takes_the_next_cell_while_a_search_finishes(tmp_path, executed):
    first, second = (search_runs("gnn", cell, ["lorentz"]) for cell in ("airport/lp", "disease/lp"))
    path = tmp_path / "gnn.jsonl"
    final = [dataclasses.replace(run, stage="final") for run in first[:2]]
    parts = [
        sweep._Part(path, "c", [lambda: first[:2], lambda: final], reports=[None, None], grouped=False),
        sweep._Part(path, "c", [lambda: second[:1]], reports=[None], grouped=False),
    ]
    taken = [sweep._next(parts) for _ in range(4)]
    assert [found and found[1] for found in taken] == [[first[0]], [first[1]], [second[0]], None]
    for part, group in taken[:2]:
        part.recorder.write_and_report(sweep._execute_group(group, "c", "cpu", path))
        part.running.remove(group)
    assert sweep._next(parts) == (parts[0], [final[0]])


def test_two_cells_with_one_search_run_it_once(tmp_path, executed):
    search = search_runs("gnn", "airport/lp", ["lorentz"])[:3]
    path = tmp_path / "gnn.jsonl"
    parts = [sweep._Part(path, "c", [lambda: search], reports=[None], grouped=False) for _ in range(2)]
    assert sweep._execute(parts, workers=4, device="cpu", minutes=None) == 0
    assert len(executed) == len(search)
    again = [sweep._Part(tmp_path / "other.jsonl", "c", [lambda: search], reports=[None], grouped=False)] * 2
    assert sweep._execute(again, workers=1, device="cpu", minutes=-1.0) == len(search)


# --- search, then final runs -----------------------------------------------------------------------------------------


def test_search_is_every_configuration_method_and_search_seed():
    plan, wanted = recipe("gnn", CELL), search_runs("gnn", CELL)
    assert len(wanted) == len(plan["configurations"]) * len(compared_methods()) * len(SEARCH_SEEDS)
    assert len({run.key() for run in wanted}) == len(wanted)
    assert {run.stage for run in wanted} == {"search"}
    assert {run.seed for run in wanted} == set(SEARCH_SEEDS)
    for run in wanted:
        assert run.config.items() >= plan["fixed"].items()
        own = {key: value for key, value in run.config.items() if key in plan["space"]}
        assert own in plan["configurations"]
    euclidean = [run for run in wanted if run.method == "euclidean"]
    assert all(run.config.items() >= plan["only"]["euclidean"].items() for run in euclidean)


def test_final_runs_wait_for_the_whole_search_of_a_method(executed, tmp_path):
    path = tmp_path / "gnn.jsonl"
    search = search_runs("gnn", CELL, ["lorentz", "space"])
    missing = next(run for run in search if run.method == "space")
    run_all([run for run in search if run is not missing], path, command="c")
    final = final_runs("gnn", CELL, path, ["lorentz", "space"])
    assert {run.method for run in final} == {"lorentz"}
    assert [run.seed for run in final] == list(FINAL_SEEDS)
    assert {run.stage for run in final} == {"final"}
    run_all([missing], path, command="c")
    assert {run.method for run in final_runs("gnn", CELL, path, ["lorentz", "space"])} == {"lorentz", "space"}


def test_a_repeated_line_does_not_replace_a_missing_one(executed, tmp_path):
    path = tmp_path / "gnn.jsonl"
    search = search_runs("gnn", CELL, ["lorentz"])
    run_all(search[:-1], path, command="c")
    append_result(path, next(read_results(path)))
    assert len(list(read_results(path))) == len(search)
    assert final_runs("gnn", CELL, path, ["lorentz"]) == []


def test_the_best_configuration_by_validation_runs_on_all_final_seeds(executed, tmp_path):
    path = tmp_path / "gnn.jsonl"
    assert reproduce_cell("gnn", CELL, path, methods=["lorentz"]) == 0
    final = [run for run in executed if run.stage == "final"]
    searched = [run for run in executed if run.stage == "search"]
    best = max(searched, key=lambda run: run.config["lr"] * 100 + run.config["num_layers"])
    assert [run.seed for run in final] == list(FINAL_SEEDS)
    assert {json.dumps(run.config, sort_keys=True) for run in final} == {json.dumps(best.config, sort_keys=True)}
    count = len(executed)
    assert reproduce_cell("gnn", CELL, path, methods=["lorentz"]) == 0
    assert len(executed) == count


def test_variants_change_the_chosen_settings_and_need_no_search(executed, tmp_path):
    path, plan = tmp_path / "curvature.jsonl", recipe("curvature", CELL)
    assert search_runs("curvature", CELL) == []
    assert reproduce_cell("curvature", CELL, path) == 0
    assert len(executed) == len(plan["variants"]) * len(FINAL_SEEDS)
    assert {run.method for run in executed} == {"lorentz"}
    chosen = recipe("gnn", CELL)["chosen"]["lorentz"]
    for run in executed:
        assert {name: run.config[name] for name in chosen if name != "curvature"} | {"curvature": 0} == (
            chosen | {"curvature": 0}
        )
    found = {(run.config["curvature"], run.config.get("learn_curvature", False)) for run in executed}
    assert found == {(-0.5, False), (-1.0, False), (-1.5, False), (-2.0, False), (-1.0, True)}


def test_variants_without_chosen_settings_say_what_to_run_first(tmp_path):
    with pytest.raises(ValueError, match=r"none are chosen yet; run `lresnet reproduce gnn --cell disease/nc`"):
        final_runs("curvature", "disease/nc", tmp_path / "curvature.jsonl")


def test_lines_of_other_cells_and_older_recipes_do_not_count(executed, tmp_path):
    path = tmp_path / "gnn.jsonl"
    run_all(search_runs("gnn", "airport/lp", ["lorentz"]), path, command="c")
    for run in search_runs("gnn", CELL, ["lorentz"]):
        old = Run(**{**{n: getattr(run, n) for n in Run.__dataclass_fields__}, "config": run.config | {"epochs": 7}})
        run_all([old], path, command="c")
    assert final_runs("gnn", CELL, path, ["lorentz"]) == []


def test_a_diverged_configuration_is_never_chosen(executed, tmp_path, monkeypatch):
    path, original = tmp_path / "gnn.jsonl", sweep.execute
    best = max(search_runs("gnn", CELL, ["lorentz"]), key=lambda run: run.config["lr"] * 100 + run.config["num_layers"])

    def execute(run: Run, *, command: str, **_: Any) -> tuple[dict[str, Any], None]:
        if run.config == best.config and run.seed == SEARCH_SEEDS[1]:
            raise NonFiniteError("the loss stopped being finite at step 7")
        return original(run, command=command)

    monkeypatch.setattr(sweep, "execute", execute)
    run_all(search_runs("gnn", CELL, ["lorentz"]), path, command="c")
    final = final_runs("gnn", CELL, path, ["lorentz"])
    assert final
    assert all(run.config != best.config for run in final)


def test_the_committed_results_belong_to_the_committed_recipes():
    """Every final line has a search line with the same configuration."""
    results = Path(__file__).parents[2] / "results" / "gnn.jsonl"
    records = [record for record in read_results(results) if record["cell"] in ("disease/lp", "airport/lp", "cora/nc")]

    def what(record: dict[str, Any]) -> tuple[str, ...]:
        return record["cell"], record["method"], json.dumps(record["config"], sort_keys=True)

    searched = {what(record) for record in records if record["stage"] == "search"}
    final = [record for record in records if record["stage"] == "final"]
    assert final
    for record in final:
        assert record["seed"] in FINAL_SEEDS
        assert what(record) in searched
