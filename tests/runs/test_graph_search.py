"""The search for settings on a user's graph: its list of trials, its budget, and how it resumes."""

import dataclasses
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lresnet.runs import graphs
from lresnet.runs import training as runs
from lresnet.runs.config import RunConfig, configure
from lresnet.runs.graph_search import Budget, Trial, best_trial, read_budget, read_trials, require_chosen, search
from lresnet.runs.graph_trials import first_settings, trials
from lresnet.runs.presets import run_config
from lresnet.runs.task_config import GraphTaskConfig, GraphTaskKind
from lresnet.train import NonFiniteError

KINDS: tuple[GraphTaskKind, ...] = ("link", "node", "graph-level")
QUICK = {"epochs": 2, "hidden": 4, "eval_every": 1}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    pairs = np.random.default_rng(0).integers(30, size=(120, 2))
    path = tmp_path / "graph.csv"
    path.write_text("".join(f"n{i},n{j}\n" for i, j in pairs))
    return path


def _config(graph: Path, seed: int = 0) -> RunConfig:
    return run_config(str(graph), seed=seed, settings=QUICK, graph_task="link")


def _first(count: int, kind: GraphTaskKind = "link", given: dict[str, Any] | None = None, **options: Any) -> list[Any]:
    return list(itertools.islice(trials(kind, given or {}, options.pop("seed", 0), **options), count))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_features", [True, False])
def test_the_list_of_trials_depends_on_the_seed_only(kind: GraphTaskKind, has_features: bool) -> None:
    one = _first(30, kind, has_features=has_features)
    assert one == _first(30, kind, has_features=has_features)
    other = _first(30, kind, has_features=has_features, seed=1)
    assert one != other, "draws follow the listed trials"
    assert one[0] == other[0] == first_settings(kind) | {"method": "lorentz"}
    assert all(one.count(settings) == 1 for settings in one)
    for settings in one:  # every trial is a valid run
        own = dict(settings)
        configure(GraphTaskConfig("/graph", task=kind), own.pop("method"), settings=own)
    assert ("node_features" in {name for each in one for name in each}) == (not has_features and kind != "graph-level")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", [None, "lorentz_gcn", "lorentz_sage", "lorentz_sgformer"])
def test_given_settings_hold_in_every_trial(kind: GraphTaskKind, model: str | None) -> None:
    given = {"hidden": 7, "lr": 0.5, "num_layers": 1} | ({} if model is None else {"model": model})
    for settings in _first(20, kind, given, method="tangent"):
        assert given.items() <= settings.items()
        assert settings["method"] == "tangent"
        own = dict(settings)
        configure(GraphTaskConfig("/graph", task=kind), own.pop("method"), settings=own)


def test_without_a_given_method_some_trials_have_no_residual() -> None:
    for kind in KINDS:
        assert {settings["method"] for settings in _first(12, kind)} == {"lorentz", "none"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", ["lorentz_gcn", "lorentz_sage", "lorentz_sgformer"])
def test_both_scales_are_drawn_for_a_method_that_has_one(kind: GraphTaskKind, model: str) -> None:
    drawn = _first(60, kind, {"model": model}, method="lorentz")
    assert {"none", "1+w"} <= {settings.get("scale") for settings in drawn}
    for method in ("none", "tangent", "euclidean"):
        assert not any("scale" in settings for settings in _first(60, kind, {"model": model}, method=method))
    assert "scale" not in first_settings(kind)


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1.5", "60", "60s", "0s", "2m", "1.5h", "1d", "s", "1e3", "off", "none"]
)
def test_the_budget_is_a_time_a_number_or_off(text: str) -> None:
    expected = {"60": Budget(trials=60), "60s": Budget(60.0), "0s": Budget(0.0), "2m": Budget(120.0)}
    expected |= {"1.5h": Budget(5400.0), "off": Budget(trials=0)}
    if text in expected:
        assert read_budget(text) == expected[text]
    else:
        with pytest.raises(ValueError, match=r"^--search must be a time such as 60s or 5m, a number of trials, or off"):
            read_budget(text)


def test_a_budget_allows_the_first_trial() -> None:
    assert Budget(seconds=0.0).allows(0, 0.0)
    assert not Budget(seconds=0.0).allows(1, 0.1)
    assert not Budget(trials=0).allows(0, 0.0)


def test_the_best_trial_is_the_earlier_one_of_equals() -> None:
    some = [
        Trial(1, {}, None, 0, 1.0),
        Trial(2, {}, 70.0, 5, 1.0),
        Trial(3, {}, 90.0, 5, 1.0),
        Trial(4, {}, 90.0, 5, 1.0),
    ]
    assert best_trial(some).number == 3
    with pytest.raises(ValueError, match="every trial of the search has diverged; give smaller --lr"):
        best_trial(some[:1])


def _same_choice(one: Path, other: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        assert (one / "model" / name).read_bytes() == (other / "model" / name).read_bytes()
    records = [json.loads((folder / "run.json").read_text()) for folder in (one, other)]
    for name in ("task", "model", "train", "validation", "best_epoch", "command"):
        assert records[0][name] == records[1][name]


def test_an_interrupted_search_resumes_without_repeating_trials(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    fit = runs.fit

    def counted(*args: Any, out: Path, **options: Any) -> Any:
        if interrupt and len(started) == 2:
            raise KeyboardInterrupt
        started.append(out.name)
        return fit(*args, out=out, **options)

    monkeypatch.setattr(runs, "fit", counted)
    interrupt = True
    folder, whole = tmp_path / "run", tmp_path / "whole"
    config = _config(graph)
    with pytest.raises(KeyboardInterrupt):
        search(config, QUICK, Budget(trials=4), folder=folder, device="cpu")
    assert [trial.number for trial in read_trials(folder)] == [1, 2]
    interrupt = False
    chosen, ended = search(config, QUICK, Budget(trials=4), folder=folder, device="cpu")
    assert started == ["1", "2", "3", "4"]
    assert [trial.number for trial in ended] == [1, 2, 3, 4]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["checkpoint.pt", "curve.jsonl", "model", "run.json", "search.jsonl"]
    )
    again, other = search(config, QUICK, Budget(trials=4), folder=whole, device="cpu")
    assert [trial.validation for trial in ended] == [trial.validation for trial in other]
    assert chosen == again
    _same_choice(folder, whole)


def test_an_interrupted_trial_does_not_stand_in_the_way_of_other_settings_or_data(graph: Path, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    def interrupt(config: RunConfig) -> None:
        with pytest.raises(Stopped):
            runs.fit(config.task, config.model, config.train, out=place, on_epoch=stop, device="cpu")

    folder = tmp_path / "run"
    place = folder / "trials" / "1"
    config = _config(graph)
    interrupt(dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=1000)))
    assert search(config, QUICK, Budget(trials=1), folder=folder, device="cpu")[1][0].epochs < 1000
    shutil.rmtree(folder)
    first = search(config, QUICK, Budget(trials=1), device="cpu")[0]
    interrupt(first)
    with graph.open("a") as stream:
        stream.write("n0,n17\n")
    graphs._graph.cache_clear()
    graphs.load_own_task.cache_clear()
    assert len(search(config, QUICK, Budget(trials=1), folder=folder, device="cpu")[1]) == 1


def test_trials_on_another_seed_are_not_reused(graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    folder, alone = tmp_path / "run", tmp_path / "alone"
    monkeypatch.setattr("lresnet.runs.graph_search._keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search(_config(graph), QUICK, Budget(trials=2), folder=folder, device="cpu")
    monkeypatch.undo()
    other = dataclasses.replace(_config(graph), train=dataclasses.replace(_config(graph).train, seed=7))
    assert [trial.validation for trial in search(other, QUICK, Budget(trials=2), folder=folder, device="cpu")[1]] == [
        trial.validation for trial in search(other, QUICK, Budget(trials=2), folder=alone, device="cpu")[1]
    ]
    _same_choice(folder, alone)


def test_a_search_that_is_killed_while_it_keeps_the_best_trial_ends_with_it(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder, whole = _config(graph), tmp_path / "run", tmp_path / "whole"
    search(config, QUICK, Budget(trials=2), folder=whole, device="cpu")
    replace = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if self.name == "run.json" and "trials" in self.parts:
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            search(config, QUICK, Budget(trials=2), folder=folder, device="cpu")
    search(config, QUICK, Budget(trials=2), folder=folder, device="cpu")
    _same_choice(folder, whole)


def test_a_diverging_trial_is_skipped_and_its_time_counts(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, calls = runs.fit, itertools.count(1)

    def diverges_first(*args: Any, **options: Any) -> Any:
        if next(calls) == 1:
            raise NonFiniteError("not finite")
        return fit(*args, **options)

    monkeypatch.setattr(runs, "fit", diverges_first)
    clock = itertools.count(0.0, 5.0)
    monkeypatch.setattr("lresnet.runs.graph_search.time.perf_counter", lambda: next(clock))
    _, ended = search(_config(graph), QUICK, Budget(trials=2), folder=tmp_path / "run", device="cpu")
    assert [trial.validation is None for trial in ended] == [True, False]
    assert ended[0].seconds == 5.0, "otherwise a search whose trials all diverge would not end in its time"
    assert best_trial(ended).number == 2
    assert (tmp_path / "run" / "run.json").is_file()


def test_a_search_without_a_folder_writes_nothing(graph: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    chosen, ended = search(_config(graph), QUICK, Budget(trials=2), device="cpu")
    assert sorted(tmp_path.rglob("*")) == before
    assert chosen.model.hidden == 4  # type: ignore[attr-defined]
    assert len(ended) == 2


def test_lines_that_are_not_trials_are_skipped_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "search.jsonl").write_text('{"number": 1}\nnonsense\n[]\n')
    with pytest.warns(UserWarning, match=r"search\.jsonl, line \d is damaged") as warned:
        assert read_trials(tmp_path) == []
    assert [str(one.message).rpartition("/")[2] for one in warned] == [
        f"search.jsonl, line {number} is damaged; its trial is repeated" for number in (1, 2, 3)
    ]


def test_a_run_is_not_returned_for_other_data_or_settings(graph: Path, tmp_path: Path) -> None:
    config, folder = _config(graph), tmp_path / "run"
    chosen, _ = search(config, QUICK, Budget(trials=2), folder=folder, device="cpu")
    require_chosen(chosen, config, QUICK, None, folder)
    with pytest.raises(ValueError, match=r"run holds another run: hidden is 4 there, not 8; use another folder$"):
        require_chosen(chosen, config, QUICK | {"hidden": 8}, None, folder)
    with pytest.raises(ValueError, match="method is lorentz there, not tangent"):
        require_chosen(chosen, config, QUICK, "tangent", folder)
    with pytest.raises(ValueError, match="seed is 0 there, not 1"):
        require_chosen(chosen, _config(graph, seed=1), QUICK, None, folder)
    other = graph.with_name("other.csv")
    other.write_text(graph.read_text())
    with pytest.raises(ValueError, match=r"task is .*graph.csv there, not .*other.csv"):
        require_chosen(chosen, _config(other), QUICK, None, folder)


def test_the_command_repeats_the_choice(graph: Path, tmp_path: Path) -> None:
    chosen, _ = search(_config(graph), QUICK, Budget(trials=3), folder=tmp_path / "run", device="cpu")
    repeated = runs.fit(chosen.task, chosen.model, chosen.train, out=tmp_path / "again", device="cpu")
    _same_choice(tmp_path / "run", tmp_path / "again")
    model = runs.Run.open(tmp_path / "run", device="cpu").model
    for one, other in zip(model.parameters(), repeated.model.parameters(), strict=True):
        assert torch.equal(one, other)
