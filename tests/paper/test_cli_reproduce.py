"""The verb `reproduce`; the workers are threads here, because starting them is fast."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from lresnet import cli
from lresnet.runs.search import best_configuration
from lresnet.runs.tasks import _images
from lresnet.train.results import append_result, read_results
from lresnet_paper.cli.reproduce import _recipes
from lresnet_paper.plan import FINAL_SEEDS, SEARCH_SEEDS, NothingChosen, cells_of, protocols, recipe, recipe_cells
from lresnet_paper.run import Run
from tests.coloured import coloured_data

CALL = ["reproduce", "demo", "--cell", "disease_tree/nc", "--methods", "euclidean", "--device", "cpu"]
SEARCH = len(recipe("demo", "disease_tree/nc")["configurations"]) * len(SEARCH_SEEDS)


@pytest.fixture(autouse=True)
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def pool(workers: int) -> Iterator[ThreadPoolExecutor]:
        with ThreadPoolExecutor(1) as executor:  # one, because all threads share one random generator
            yield executor

    monkeypatch.setattr("lresnet_paper.sweep.worker_pool", pool)


def lines(folder: Path) -> list[dict[str, object]]:
    return list(read_results(folder / "demo.jsonl"))


def test_search_then_final_resumed_and_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*CALL, "--stage", "final", "--results", str(tmp_path)]) == 0
    assert lines(tmp_path) == []  # nothing to choose from yet

    assert cli.main([*CALL, "--stage", "search", "--results", str(tmp_path)]) == 0
    searched = lines(tmp_path)
    assert len(searched) == SEARCH
    assert {record["stage"] for record in searched} == {"search"}
    assert not any("value" in record or "metrics" in record for record in searched)  # the test set was not read

    # A run that was lost is run again, and nothing else.
    kept = "".join(json.dumps(record) + "\n" for record in searched if record != searched[3])
    (tmp_path / "demo.jsonl").write_text(kept)
    capsys.readouterr()
    assert cli.main([*CALL, "--results", str(tmp_path)]) == 0
    records = lines(tmp_path)
    assert len(records) == SEARCH + len(FINAL_SEEDS)
    again = records[SEARCH - 1]
    assert {**again, "seconds": 0} == {**searched[3], "seconds": 0}
    final = records[SEARCH:]
    assert sorted(record["seed"] for record in final) == list(FINAL_SEEDS)
    assert all(record["config"] == best_configuration(searched) for record in final)
    assert all(record["command"] == "lresnet reproduce demo --cell disease_tree/nc" for record in records)
    out = capsys.readouterr().out
    mean = sum(record["value"] for record in final) / len(final)
    assert f"{mean:.2f} ±" in out
    assert "1/1" in out
    assert "10/10" in out

    assert cli.main([*CALL, "--results", str(tmp_path)]) == 0
    assert lines(tmp_path) == records


def test_no_run_starts_after_the_time_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*CALL, "--minutes", "0", "--results", str(tmp_path)]) == 0
    assert lines(tmp_path) == []
    assert f"{SEARCH} runs are still missing; run the same command again to resume" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    for minutes in ("-1", "nan"):
        assert cli.main([*CALL, "--minutes", minutes, "--results", str(tmp_path)]) == 2
        assert f"--minutes must be 0 or more, got {minutes}" in capsys.readouterr().err


def test_final_runs_wait_for_the_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*CALL, "--stage", "final", "--results", str(tmp_path)]) == 0
    assert "no final run has finished yet; the final runs of a method start when its search" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "cell", "protocol"), [("ood", "cifar100/r20", "paper"), ("curvature", "disease/lp", "legacy")]
)
def test_a_recipe_without_a_search_says_so(
    table: str, cell: str, protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["reproduce", table, "--cell", cell, "--protocol", protocol, "--device", "cpu", "--results", str(tmp_path)]
    assert cli.main([*call, "--stage", "search"]) == 0
    words = "\nthe recipe has no search, so --stage search does nothing; omit it to start the final runs\n"
    assert capsys.readouterr().out.endswith(words)


def test_without_a_search_no_final_run_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lresnet_paper.sweep.reproduce_cells", lambda *args, **options: 3)
    assert cli.main(["reproduce", "curvature", "--cell", "disease/lp", "--results", str(tmp_path)]) == 0
    assert "no final run has finished yet\n3 runs are still missing" in capsys.readouterr().out


def test_a_whole_table_skips_cells_that_cannot_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def planned(table: str, cell: str, *_: object) -> list[Run]:
        tried.append(cell)
        if cell == "disease/nc":
            raise NothingChosen("nothing is chosen yet")
        if cell == "airport/lp":
            raise FileNotFoundError("no file airport.p")
        return []

    monkeypatch.setattr("lresnet_paper.sweep.search_runs", planned)
    monkeypatch.setattr("lresnet_paper.sweep.final_runs", lambda *_: [])
    assert cli.main(["reproduce", "curvature", "--device", "cpu", "--results", str(tmp_path)]) == 0
    assert tried == cells_of("curvature")
    err = capsys.readouterr().err
    assert "warning: skipped disease/nc: nothing is chosen yet" in err
    assert "warning: skipped airport/lp: no file airport.p" in err
    assert cli.main(["reproduce", "curvature", "--cell", "disease/nc", "--results", str(tmp_path)]) == 2


def test_all_protocols_are_every_recipe_of_a_table_or_a_cell() -> None:
    found = _recipes("deep", None, "all", ())
    assert len(found) == len(set(found))
    assert {("cora/nc", "public"), ("cora/nc", "class-random"), ("cora/nc/64", "public-chain")} < set(found)
    assert {own for _, own in found} == {own for cell in recipe_cells("deep") for own in protocols("deep", cell)}
    assert _recipes("deep", "cora/nc", "all", ()) == [(cell, own) for cell, own in found if cell.startswith("cora/nc")]
    assert _recipes("deep", "cora/nc/4", "all", ()) == [("cora/nc/4", "public-chain"), ("cora/nc/4", "public-deep")]
    assert _recipes("ood", "cifar10/svhn/r20", "paper", ()) == [("cifar10/svhn/r20", "paper")]
    assert _recipes("ood", "cifar10/r20", "paper", ()) == [("cifar10/r20", "paper")]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["reproduce", "gn"], "no recipes for a table 'gn'"),
        (["reproduce", "gnn", "--cell", "disease/l"], "did you mean 'disease/lp'"),
        (["reproduce", "gnn", "--methods", "lorentz", "spase"], "did you mean 'space'"),
        (["reproduce", "gnn", "--cell", "cora/nc", "--workers", "0"], "workers must be at least 1"),
        (
            ["reproduce", "gnn", "--cell", "cora/nc", "--seeds", "0", "-1"],
            "--seeds must be 0 or more",
        ),
        (["reproduce", "image_classification", "--methods", "none"], "unknown method of cifar10 'none'"),
        (["reproduce", "image_classification", "--protocol", "slow"], "with protocol slow; there are: fast"),
        (["reproduce", "image_classification", "--device", "gpu"], "unknown kind of device 'gpu'"),
        (["reproduce", "demo", "--results", "file/results"], "Not a directory"),
    ],
)
def test_user_errors_are_one_line(
    args: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("empty").mkdir()
    assert cli.main(args) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]


RECIPE = """
protocol = "{protocol}"
methods = ["lorentz", "euclidean"]
search_seeds = [1000]
seeds = {{ lorentz = [0, 1, 2], euclidean = [0, 1, 2] }}
fixed = {{ model = "lorentz_resnet20", epochs = 1, batch_size = 20, keep = "last" }}
search = {{ holdout = 0.2 }}
configurations = [{{ lr = 0.01 }}, {{ lr = 0.02 }}]
"""


@pytest.fixture
def toy_images(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiny recipes and tiny images in place of CIFAR-10."""
    recipes = {f"cifar10.{protocol}": RECIPE.format(protocol=protocol) for protocol in ("fast", "paper")}
    monkeypatch.setattr("lresnet_paper.plan._files", lambda table: recipes)
    monkeypatch.setattr("lresnet.runs.tasks.load_images", lambda name, size=None: coloured_data())
    _images.cache_clear()
    yield
    _images.cache_clear()


def test_images_in_several_calls(
    toy_images: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = tmp_path / "image_classification.jsonl"
    call = ["reproduce", "image_classification", "--cell", "cifar10", "--device", "cpu", "--results", str(tmp_path)]
    assert cli.main([*call, "--stage", "search", "--methods", "lorentz"]) == 0
    assert "warning: training on cifar10 takes days on a CPU" in capsys.readouterr().err
    assert [(r["stage"], r["method"], r["config"]["holdout"]) for r in read_results(file)] == [
        ("search", "lorentz", 0.2)
    ] * 2
    assert cli.main([*call, "--seeds", "7", "8"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    final = [record for record in read_results(file) if record["stage"] == "final"]
    assert sorted((r["method"], r["seed"]) for r in final) == [(m, s) for m in ("euclidean", "lorentz") for s in (7, 8)]
    assert all(record["validation"] is None and "holdout" not in record["config"] for record in final)
    assert "diverged" not in out  # without a validation score the test score is shown
    value = {(record["method"], record["seed"]): record["value"] for record in final}
    gaps = [value["lorentz", seed] - value["euclidean", seed] for seed in (7, 8)]
    mean, error = sum(gaps) / 2, 12.706204736 * abs(gaps[0] - gaps[1]) / 2  # Student's t, one degree of freedom
    row = next(line for line in out.splitlines() if line.split()[:1] == ["euclidean"] and " to " in line)
    assert f"{mean:+.2f}" in row
    assert f"{mean - error:+.2f} to {mean + error:+.2f}" in row

    before = len(list(read_results(file)))
    assert cli.main([*call, "--seeds", "7", "8"]) == 0
    assert len(list(read_results(file))) == before  # every run was there

    capsys.readouterr()
    for line in final:  # as two sweeps of lresnet 0.2 at the same time
        append_result(file, line)
    assert cli.main([*call, "--seeds", "7", "8"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = next(row for row in rows if row[:1] == ["lorentz"])
    assert shown == next(line.split() for line in out.splitlines() if line.split()[:1] == ["lorentz"])


def test_each_protocol_has_its_own_runs_and_table(
    toy_images: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["reproduce", "image_classification", "--methods", "euclidean", "--seeds", "0", "--device", "cpu"]
    call += ["--results", str(tmp_path)]
    assert cli.main(call) == 0
    assert "cifar10, fast" in " ".join(capsys.readouterr().out.split())  # a heading may wrap
    assert cli.main([*call, "--protocol", "paper"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "cifar10, paper" in out
    assert "cifar10, fast" not in out
    assert "Lorentz minus" not in out  # one method alone
    protocols = [record["protocol"] for record in read_results(tmp_path / "image_classification.jsonl")]
    assert protocols == ["fast"] * 3 + ["paper"] * 3


def test_an_interrupt_says_where_the_finished_runs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: object, **options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("lresnet_paper.sweep.reproduce_cells", interrupted)
    assert cli.main([*CALL, "--results", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "lresnet: interrupted; no run has finished yet\n"
    (file := tmp_path / "demo.jsonl").touch()
    assert cli.main([*CALL, "--results", str(tmp_path)]) == 130
    words = f"finished runs are in {file}; run the same command again to resume"
    assert capsys.readouterr().err == f"lresnet: interrupted; {words}\n"
