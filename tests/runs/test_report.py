"""The report of a user's own runs: states of folders, groups, differences to the baseline, and output formats."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy import stats

from lresnet import cli
from lresnet._version import __version__
from lresnet.cli.report import results_table
from lresnet.plots.html.runs_page import runs_page
from lresnet.runs.report import (
    RunRecord,
    computing_time,
    finished_record,
    folder_states,
    group_runs,
    read_report,
    report_json,
    shown,
    untrained_result,
)
from tests.runs.folders import unverified
from tests.runs.run_records import report_of, run_record

HOSTILE = "<img src=x onerror=alert(1)> \"q\" 'q' 🌲 [bold]"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "tree"
    options = ["--hidden", "3", "--epochs", "5", "--device", "cpu", "--out", str(folder)]
    assert cli.main(["train", "disease_tree/lp", *options]) == 0
    return folder


@pytest.fixture(scope="module")
def evaluated(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated") / "tree"
    shutil.copytree(trained, folder)
    assert cli.main(["evaluate", str(folder), "--device", "cpu"]) == 0
    return folder


@pytest.fixture
def runs(trained: Path, evaluated: Path, tmp_path: Path) -> Path:
    """A folder with run folders in every state."""
    root = tmp_path / "runs"
    for name in ("unread", "unfinished", "older", "elsewhere", HOSTILE.replace("/", "")):
        shutil.copytree(trained, root / name)
    shutil.copytree(evaluated, root / "whole")
    change(root / "unfinished" / "run.json", best_epoch=None)
    change(root / "older" / "run.json", versions={"lresnet": "0.0.1"})
    (root / "elsewhere" / "run.json").write_text('{"epochs": 3, "model": "unknown"}')
    (root / "torn").mkdir()
    (root / "torn" / "run.json").write_text('{"table": "tra')
    (root / "no run").mkdir()
    return root


def change(file: Path, **facts: object) -> None:
    file.write_text(unverified(json.loads(file.read_text()) | facts))


# Folders -------------------------------------------------------------------------------------------------------------


def test_every_folder_is_listed_with_its_state(runs: Path) -> None:
    states = {state.folder.name: state.state for state in folder_states(runs)}
    assert "no run" not in states
    assert states["whole"] == "evaluated"
    assert states["unread"].startswith("not evaluated: `lresnet evaluate ")
    assert "has not finished" in states["unfinished"]
    assert states["older"].endswith(f"; made by lresnet 0.0.1, this is {__version__}")
    for name in ("elsewhere", "torn"):
        assert "run.json is not what `lresnet train` writes" in states[name]
    (state,) = folder_states(runs / "unread")
    assert state.folder == runs / "unread"


def test_a_private_folder_is_listed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat, lstat = Path.stat, Path.lstat

    def refused(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: Path, **options: Any) -> Any:
            if path.parent == runs / "whole":
                raise PermissionError(13, "Permission denied", str(path))
            return call(path, **options)

        return wrapped

    monkeypatch.setattr(Path, "stat", refused(stat))
    monkeypatch.setattr(Path, "lstat", refused(lstat))
    (state,) = (state for state in folder_states(runs) if state.folder.name == "whole")
    assert "Permission denied" in state.state
    assert state.is_damaged


def test_an_evaluation_of_another_run_is_reported(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = runs.parent / "other"
    options = ["--hidden", "3", "--epochs", "5", "--device", "cpu", "--seed", "1", "--out", str(other)]
    assert cli.main(["train", "disease_tree/lp", *options]) == 0
    assert cli.main(["evaluate", str(other), "--device", "cpu"]) == 0
    shutil.copy(other / "evaluation.json", runs / "whole")
    (state,) = folder_states(runs / "whole")
    assert state.state.startswith("evaluation.json belongs to other weights; `lresnet evaluate ")
    capsys.readouterr()
    assert cli.main(["report", str(runs / "whole"), "--json"]) == 0
    assert "whole is left out: evaluation.json belongs to other weights" in capsys.readouterr().err


def test_json_warns_of_damaged_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "whole" / "evaluation.json").write_text("{}")
    capsys.readouterr()
    assert cli.main(["report", str(runs), "--json"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out) == []
    assert [line.split(" is left out: ")[0] for line in found.err.splitlines()] == [
        f"lresnet: warning: {runs / name}" for name in ("elsewhere", "torn", "whole")
    ]


@pytest.mark.parametrize("wrong", ["{}", "[]", '{"metrics": 3}'])
def test_a_damaged_evaluation_is_reported(wrong: str, runs: Path) -> None:
    (runs / "whole" / "evaluation.json").write_text(wrong)
    (state,) = folder_states(runs / "whole")
    assert "evaluation.json is not what `lresnet evaluate` writes" in state.state
    assert state.record is None


@pytest.mark.parametrize("metrics", [{}, {"auc": "high"}, {"auc": True}])
def test_test_results_that_are_not_numbers_are_reported(metrics: object, runs: Path) -> None:
    change(runs / "whole" / "evaluation.json", metrics=metrics)
    (state,) = folder_states(runs / "whole")
    assert "evaluation.json is not what `lresnet evaluate` writes" in state.state


@pytest.mark.parametrize(
    "facts",
    [
        {"task": {"kind": "graph", "name": 3}},
        {"model": {"name": "lorentz_gcn", "residual": ["lorentz"]}},
        {"model": {"name": "nosuch", "residual": "lorentz"}},
        {"train": []},
        {"seconds": "1"},
        {"train": {"seed": [0]}},
        {"train": {"seed": True}},
        {"train": {"seed": 0, "lr": -1}},
        {"task": {"kind": "nosuch", "name": "cora/nc"}},
        {"command": 3},
        {"hardware": 3},
        {"validation": "80"},
    ],
    ids=str,
)
def test_a_record_with_wrong_fields_is_reported(facts: dict[str, object], runs: Path) -> None:
    change(runs / "whole" / "run.json", **facts)
    (state,) = folder_states(runs / "whole")
    assert "run.json is not what `lresnet train` writes" in state.state
    with pytest.raises(ValueError, match="is not what `lresnet train` writes"):
        finished_record(runs / "whole")


def test_a_folder_without_a_run_is_an_error_for_a_single_record(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no run"):
        finished_record(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        read_report(tmp_path / "nowhere")


# Groups --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configs", "names"),
    [
        ([{"lr": 0.1}, {"lr": 0.1}], ["lorentz"]),
        ([{"warmup": 5}, {"warmup": 5.0}], ["lorentz"]),
        ([{"lr": 0.1, "epochs": 3}, {"lr": 0.2, "epochs": 3}], ["lorentz, lr 0.1", "lorentz, lr 0.2"]),
        ([{"lr": 0.1}, {"lr": 0.1, "flip": False}], ["lorentz, flip default", "lorentz, flip False"]),
        (
            [{"lr": 0.1}, {"model": "lorentz_sgformer", "heads": 2}, {"lr": 0.2}],
            ["lorentz, model default, lr 0.1", "lorentz, model lorentz_sgformer", "lorentz, model default, lr 0.2"],
        ),
        ([{"lr": 0.12345678}, {"lr": 0.12345679}], ["lorentz, lr 0.12345678", "lorentz, lr 0.12345679"]),
    ],
)
def test_a_group_names_the_settings_that_differ(configs: list[dict[str, Any]], names: list[str]) -> None:
    groups = group_runs((Path(str(k)), run_record(seed=k, **config)) for k, config in enumerate(configs))
    assert [group.name for group in groups] == names


def test_only_runs_with_equal_settings_are_averaged() -> None:
    records = [
        run_record("lorentz", 0, 80.0, lr=0.1),
        run_record("lorentz", 1, 82.0, lr=0.1),
        run_record("lorentz", 0, 60.0, lr=0.2),
        run_record("space", 0, 50.0, lr=0.2),
    ]
    groups = report_of(records).groups
    found = {group.name: (group.test.mean, group.test.n) for group in groups}
    assert found == {"space": (50.0, 1), "lorentz, lr 0.1": (81.0, 2), "lorentz, lr 0.2": (60.0, 1)}
    assert groups[1].test.deviation == pytest.approx(2**0.5)
    assert groups[1].metrics["f1"].mean == pytest.approx(40.5)


def test_tasks_splits_and_methods_are_sorted() -> None:
    tasks = [{"name": name, "split": split} for name, split in (("b/nc", "x"), ("a10/nc", "x"), ("a9/nc", "y"))]
    records = [run_record(method, task=task) for task in tasks for method in ("euclidean", "mine", "lorentz", "none")]
    assert list(report_of(records).tables) == ["a9/nc, y", "a10/nc, x", "b/nc, x"]
    assert [group.method for group in report_of(records).groups[:4]] == ["none", "lorentz", "euclidean", "mine"]


def test_settings_are_shown_as_short_as_they_are_exact() -> None:
    assert [shown(value) for value in (5.0, 0.1, 1e-5, True, None, "x")] == ["5", "0.1", "1e-05", "True", "None", "x"]


# Differences to the baseline -----------------------------------------------------------------------------------------


def paired(ours: list[float], theirs: list[float], **options: Any) -> Any:
    records = [run_record("lorentz", seed, value, **options) for seed, value in enumerate(ours)]
    records += [run_record("euclidean", seed, value, **options) for seed, value in enumerate(theirs)]
    return next(group for group in report_of(records).groups if group.method == "lorentz").difference


def test_the_difference_to_the_baseline_is_paired_over_seeds() -> None:
    difference = paired([97.0, 98.0, 96.0, 97.5], [96.1, 96.9, 95.05, 96.5, 50.0])
    expected = stats.ttest_1samp([0.9, 1.1, 0.95, 1.0], 0.0).confidence_interval()
    assert (difference.estimate.low, difference.estimate.high) == pytest.approx((expected.low, expected.high))
    assert (difference.estimate.n, difference.verdict, difference.settings) == (4, "better", "")
    assert not difference.resampled


def test_different_splits_widen_the_interval() -> None:
    ours, theirs = [97.0, 98.0, 96.0, 97.5], [96.1, 96.9, 95.05, 96.5]
    student = paired(ours, theirs)
    drawn = paired(ours, theirs, task={"name": "cora/nc", "split": "disjoint"})
    assert drawn.resampled
    factor = ((1 / 4 + 15 / 70) / (1 / 4)) ** 0.5
    assert drawn.estimate.half_width == pytest.approx(student.estimate.half_width * factor)
    records = [
        run_record(method, seed, value, split_index=seed, task={"split": "official_splits"})
        for method, own in (("lorentz", ours), ("euclidean", theirs))
        for seed, value in enumerate(own)
    ]
    numbered = next(group for group in report_of(records).groups if group.method == "lorentz").difference
    assert numbered is not None
    assert numbered.resampled


def test_runs_of_different_splits_are_never_compared() -> None:
    ours = [run_record("lorentz", seed, 90.0 + seed, task={"split": "public"}) for seed in range(3)]
    theirs = [run_record("euclidean", seed, 80.0, task={"split": "class-random"}) for seed in range(3)]
    groups = report_of(ours + theirs).groups
    assert [(group.title, group.difference) for group in groups] == [
        ("cora/nc, class-random", None),
        ("cora/nc, public", None),
    ]


def test_split_files_of_one_name_in_two_folders_are_two_splits() -> None:
    own = {"name": "/data/friends.csv", "kind": "graph", "task": "node"}
    one, other = (own | {"split": f"/data/{folder}/parts.csv"} for folder in "ab")
    (group,) = report_of([run_record("lorentz", 0, task=one)]).groups
    assert group.split == "parts.csv"
    groups = report_of([run_record("lorentz", 0, task=one), run_record("lorentz", 1, task=other)]).groups
    assert [(group.split, group.test.n) for group in groups] == [("/data/a/parts.csv", 1), ("/data/b/parts.csv", 1)]


def test_older_and_current_names_of_a_split_are_one_split() -> None:
    records = [run_record("lorentz", seed, 90.0, task={"split": ("official", "public")[seed]}) for seed in range(2)]
    (group,) = report_of(records).groups
    assert (group.split, group.test.n) == ("public", 2)


def test_seeds_on_one_numbered_split_are_no_further_splits() -> None:
    values = {"lorentz": [[90.0, 92.0], [93.0, 93.0], [91.0, 97.0]], "euclidean": [[90.0] * 2, [91.0] * 2, [90.0] * 2]}
    records = [
        run_record(method, seed, value, split_index=index, task={"split": "class-random"})
        for method, splits in values.items()
        for index, own in enumerate(splits)
        for seed, value in enumerate(own)
    ]
    (difference,) = (group.difference for group in report_of(records).groups if group.difference is not None)
    student = stats.ttest_1samp([1.0, 2.0, 4.0], 0.0).confidence_interval()
    assert (difference.resampled, difference.estimate.n) == (True, 3)
    factor = (1 + 3 * 1000 / 1708) ** 0.5
    assert difference.estimate.half_width == pytest.approx((student.high - student.low) / 2 * factor)


def test_one_numbered_split_is_a_fixed_split() -> None:
    records = [
        run_record(method, seed, value + seed * (method == "lorentz"), split_index=4, task={"split": "class-random"})
        for method, value in (("lorentz", 90.0), ("euclidean", 80.0))
        for seed in range(3)
    ]
    (difference,) = (group.difference for group in report_of(records).groups if group.difference is not None)
    assert (difference.resampled, difference.estimate.n) == (False, 3)


def test_all_comparisons_of_a_task_are_one_family() -> None:
    """A difference with p = 0.03 is shown alone, but not as one of two (2 x 0.03 > 0.05)."""
    base = [90.0, 91.0, 92.0, 93.0, 94.0]
    noise = [1.0, 0.3, 0.9, 0.15, 0.35]
    records = [run_record("euclidean", seed, value) for seed, value in enumerate(base)]
    records += [run_record("lorentz", seed, value + e) for (seed, value), e in zip(enumerate(base), noise, strict=True)]
    (alone,) = (group.difference for group in report_of(records).groups if group.method == "lorentz")
    assert alone is not None
    assert 0.025 < alone.estimate.p < 0.05
    assert alone.verdict == "better"
    records += [run_record("space", seed, value - e) for (seed, value), e in zip(enumerate(base), noise, strict=True)]
    found = [group.difference for group in report_of(records).groups if group.difference is not None]
    assert [one.verdict for one in found] == ["no difference shown"] * 2


def test_other_settings_of_the_baseline_are_named() -> None:
    records = [run_record("lorentz", seed, 90.0 + seed, lr=0.05, epochs=5) for seed in range(3)]
    records += [run_record("euclidean", seed, 80.0 + 2 * seed, lr=0.01, epochs=5) for seed in range(3)]
    report = report_of(records)
    (difference,) = (group.difference for group in report.groups if group.difference is not None)
    assert difference.settings == "lr 0.05 against 0.01"


def test_a_baseline_with_equal_settings_is_preferred_and_an_open_choice_is_none() -> None:
    euclidean = [run_record("euclidean", seed, 80.0 + lr * seed, lr=lr) for lr in (0.1, 0.2) for seed in range(2)]
    ours = [run_record("lorentz", seed, 90.0 + seed, lr=lr) for lr in (0.1, 0.3) for seed in range(2)]
    found = {group.name: group.difference for group in report_of([*euclidean, *ours]).groups}
    assert found["lorentz, lr 0.1"] is not None
    assert found["lorentz, lr 0.1"].settings == ""
    assert found["lorentz, lr 0.3"] is None
    assert found["euclidean, lr 0.1"] is None


# Output --------------------------------------------------------------------------------------------------------------


def test_json_has_one_object_per_group() -> None:
    records = [run_record("lorentz", seed, 90.0 + seed, lr=0.1) for seed in range(2)]
    records += [run_record("euclidean", seed, 80.0, lr=0.1) for seed in range(2)]
    records += [run_record("lorentz", 0, 70.0, lr=0.2)]
    ours, other, baseline = json.loads(report_json(report_of(records)))
    assert {name: ours[name] for name in ("task", "split", "method", "settings", "metric", "mean", "n")} == {
        "task": "cora/nc",
        "split": "public",
        "method": "lorentz",
        "settings": {"lr": 0.1},
        "metric": "accuracy",
        "mean": 90.5,
        "n": 2,
    }
    assert ours["deviation"] == pytest.approx(0.5**0.5)
    assert ours["runs"] == ["runs/0", "runs/1"]
    assert ours["metrics"]["f1"]["mean"] == 45.25
    assert ours["difference"]["to"] == "euclidean"
    assert ours["difference"]["mean"] == 10.5
    assert ours["difference"]["verdict"] in ("better", "no difference shown")
    assert (other["deviation"], other["n"]) == (None, 1)
    assert baseline["difference"] is None


def test_computing_time_by_kind_of_device() -> None:
    cpu = run_record()
    gpu = [run_record(seed=seed) for seed in range(2)]
    for record in gpu:
        object.__setattr__(record, "hardware", "NVIDIA H200")
        object.__setattr__(record, "seconds", 3600.0)
    times = computing_time([cpu, *gpu])
    assert [(time.kind, time.runs, time.seconds) for time in times] == [("GPU", 2, 7200.0), ("CPU", 1, 2.0)]
    assert times[0].hardware == ("NVIDIA H200",)
    assert computing_time([]) == []


def test_the_verb_report(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")  # so that no path is broken in two
    page = tmp_path / "r.html"
    capsys.readouterr()
    assert cli.main(["report", str(runs), "-o", str(page)]) == 0
    printed = "".join(capsys.readouterr().out.split())
    assert "disease_tree/lp,disjoint" in printed
    assert "hasnotfinished" in printed
    assert "".join(HOSTILE.split()) in printed  # as text, not as markup
    assert f"Thepage:{page}" in printed
    html = page.read_text()
    assert "<img src=x" not in html
    assert "&lt;img src=x onerror=alert(1)&gt; &#34;q&#34; &#39;q&#39; 🌲 [bold]" in html
    assert "made by lresnet 0.0.1" in html
    assert cli.main(["report", str(runs), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["task"], found["split"], found["n"]) == ("disease_tree/lp", "disjoint", 1)
    assert found["runs"] == [str(runs / "whole")]


def test_the_verb_shows_groups_and_differences(
    evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for method, values in (("lorentz", (70.0, 71.0)), ("euclidean", (60.0, 61.0))):
        for seed, value in enumerate(values):
            folder = tmp_path / f"{method}-{seed}"
            shutil.copytree(evaluated, folder)
            record = json.loads((folder / "run.json").read_text())
            facts = {"model": record["model"] | {"residual": method}, "train": record["train"] | {"seed": seed}}
            change(folder / "run.json", **facts)
            change(folder / "evaluation.json", **facts, metrics={"auc": value})
    capsys.readouterr()
    assert cli.main(["report", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "70.50 ± 0.71" in printed
    assert "+10.00 ± 0.00" in printed
    assert "better" in printed
    assert max(map(len, printed.partition("Run folders")[0].splitlines())) <= 80


def test_other_settings_than_the_baselines_are_a_note_below_the_table() -> None:
    records = [run_record(method, seed, 90.0 + seed, lr=0.05) for method in ("lorentz", "space") for seed in range(3)]
    records += [run_record("euclidean", seed, 80.0 + 2 * seed, lr=0.01) for seed in range(3)]
    console = Console(width=80)
    with console.capture() as capture:
        console.print(results_table("cora/nc", report_of(records).groups))
    printed = " ".join(capture.get().split())
    assert "+9.00 ± 2.48 better *" in printed
    assert "* space; lorentz: other settings than euclidean: lr 0.05 against 0.01" in printed


def test_a_folder_without_results_is_explained(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", str(tmp_path)]) == 0
    assert "holds no run folders" in capsys.readouterr().out
    assert cli.main(["report", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert cli.main(["report", str(trained)]) == 0
    assert "No run has been evaluated yet" in capsys.readouterr().out
    assert cli.main(["report", str(tmp_path / "nowhere")]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err


# Users' graphs -------------------------------------------------------------------------------------------------------


def own(path: str, task: str, **facts: Any) -> dict[str, Any]:
    """The task of a run on a user's graph, as `lresnet train` records it."""
    return {"kind": "graph", "name": path, "task": task, "split": None} | facts


def test_tasks_and_metrics_of_one_graph_have_their_own_tables() -> None:
    tasks = [own("/data/friends.csv", "link"), own("/data/friends.csv", "node")]
    tasks.append(own("/data/friends.csv", "link", metric="hits@50"))
    report = report_of([run_record(task=task) for task in tasks])
    assert list(report.tables) == ["friends.csv, link", "friends.csv, link, hits@50", "friends.csv, node"]


def test_files_of_the_same_name_keep_their_paths() -> None:
    tasks = [own("/a/friends.csv", "link"), own("/b/friends.csv", "link"), own("/b/other.csv", "link")]
    report = report_of([run_record(task=task) for task in tasks])
    assert list(report.tables) == ["/a/friends.csv, link", "/b/friends.csv, link", "other.csv, link"]


def test_a_split_file_goes_by_its_name() -> None:
    report = report_of([run_record(task=own("/a/friends.csv", "node", split="/a/splits/mine.csv"))])
    assert list(report.tables) == ["friends.csv, node, mine.csv"]


@pytest.mark.parametrize(
    ("facts", "resampled"),
    [({}, True), ({"split": "random"}, True), ({"split": "/a/mine.csv"}, False)],
    ids=["default", "random", "file"],
)
def test_a_random_split_of_a_users_graph_follows_the_seed(facts: dict[str, Any], resampled: bool) -> None:
    task = own("/a/friends.csv", "node", **facts)
    records = [run_record("lorentz", seed, 90.0 + seed**2, task=task) for seed in range(4)]
    records += [run_record("euclidean", seed, 80.0 + seed, task=task) for seed in range(4)]
    lorentz, _ = report_of(records).groups
    assert lorentz.difference is not None
    assert lorentz.difference.resampled == resampled
    gaps = [10.0 + seed**2 - seed for seed in range(4)]
    share = 1 / 4 + (20 / 60 if resampled else 0.0)
    half = stats.t.ppf(0.975, 3) * (share * stats.tvar(gaps)) ** 0.5
    low, high = lorentz.difference.estimate.low, lorentz.difference.estimate.high
    assert (high - low) / 2 == pytest.approx(half)


def test_numbered_splits_of_a_users_graph_are_compared() -> None:
    task = own("/a/friends", "node")
    records = [
        run_record(method, 0, value + index, task=task | {"split_index": index})
        for method, value in (("lorentz", 90.0), ("euclidean", 80.0))
        for index in range(3)
    ]
    lorentz, _ = report_of(records).groups
    assert lorentz.difference is not None
    assert lorentz.difference.resampled


@pytest.mark.parametrize(
    ("task", "name", "title"),
    [
        (own("/a/friends.csv", "link"), "friends.csv", "friends.csv, link"),
        (own("/a/club/", "graph-level"), "club", "club, graph-level"),
        (own("/", "node"), "/", "/, node"),
        ({"kind": "graph", "name": "cora/nc"}, "cora/nc", "cora/nc"),
        ({"kind": "images", "name": "/photos/pets.npz"}, "/photos/pets.npz", "/photos/pets.npz"),
    ],
)
def test_what_a_record_calls_its_data(task: dict[str, Any], name: str, title: str) -> None:
    record = run_record(task=task)
    assert (record.data_name, record.title) == (name, title)
    assert record.name == f"{name}, lorentz, seed 0"
    assert record.task_name == task["name"]


def link_record(method: str, seed: int, value: float, hops: float, **task: Any) -> RunRecord:
    """An evaluated run on links, in which the column is the better score on validation and hops on test pairs."""
    record = run_record(method, seed, value, task={"name": "airport/lp", "split": "disjoint"} | task)
    column = {
        "name": "feature_column",
        "validation": 92.0,
        "metrics": {"accuracy": 91.0 + seed},
        "column": 3,
        "sign": -1,
    }
    other = {"name": "hops", "validation": 90.0, "metrics": {"accuracy": hops}}
    return dataclasses.replace(record, untrained=[column, other])


def test_every_figure_of_links_has_the_untrained_score_that_validation_chose() -> None:
    records = [link_record(method, seed, 90.0 + seed, 99.0) for method in ("lorentz", "euclidean") for seed in range(2)]
    result = untrained_result(records)
    assert result is not None
    assert (result.label, result.test.mean, result.test.n) == ("one raw feature (column 3)", 91.5, 2)
    report = report_of(records)
    for found in json.loads(report_json(report)):
        assert (found["untrained"]["score"], found["untrained"]["mean"]) == ("one raw feature (column 3)", 91.5)
    console = Console(width=80)
    with console.capture() as capture:
        console.print(results_table("airport/lp", report.groups))
    printed = " ".join(capture.get().split())
    assert "91.50 ± 0.71" in printed
    assert "untrained: one raw feature (column 3), which learns nothing; chosen on validation pairs;" in printed
    assert "higher than lorentz, euclidean" in printed
    assert "untrained: one raw feature (column 3)" in runs_page(report)


def test_runs_of_earlier_versions_have_no_untrained_score() -> None:
    report = report_of([run_record(seed=seed) for seed in range(2)])
    assert untrained_result(report.records) is None
    assert json.loads(report_json(report))[0]["untrained"] is None
    assert "untrained" not in runs_page(report)


def test_runs_without_a_column_are_another_table() -> None:
    records = [link_record("lorentz", 0, 60.0, 50.0, drop_columns=[10]), link_record("euclidean", 0, 90.0, 50.0)]
    report = report_of(records)
    assert list(report.tables) == ["airport/lp, disjoint", "airport/lp without column 10, disjoint"]
    assert all(group.difference is None for group in report.groups)
