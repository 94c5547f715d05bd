"""Lines of results of the untrained scores, which are those of the library, and the choice among them."""

import json
import os
from pathlib import Path

import pytest

from lresnet.data import LinkTask, load_task
from lresnet.metrics import UNTRAINED_SCORES, untrained_link_scores
from lresnet.train.results import read_results
from lresnet_paper.__main__ import main
from lresnet_paper.plan import protocols, recipe
from lresnet_paper.results import aggregate, is_run
from lresnet_paper.untrained import SCORE_LABELS, best_untrained, link_cells, protocols_of, untrained_runs
from tests.metrics.test_untrained_links import small_task

DATA = os.environ.get("LRESNET_DATA")
RESULTS = Path(__file__).parents[2] / "results"


def test_a_line_holds_what_the_library_computes() -> None:
    task = small_task()
    lines = {line["method"]: line for line in untrained_runs("disease_tree/lp", 0, command="c", task=task)}
    assert list(lines) == list(UNTRAINED_SCORES) == list(SCORE_LABELS)
    for score in untrained_link_scores(task):
        line = lines[score.name]
        assert (line["value"], line["validation"]) == (round(score.value or 0.0, 4), round(score.validation, 4))
    column = lines["feature_column"]
    assert column["config"] == {"score": "feature_column", "features": "raw", "column": 1, "columns": 2}
    assert all(is_run(line) for line in lines.values())


@pytest.mark.skipif(not DATA, reason="LRESNET_DATA names no folder with the published files")
@pytest.mark.parametrize("cell", ["airport/lp", "cora/lp", "disease/lp", "pubmed/lp"])
def test_the_library_reproduces_the_recorded_lines(cell: str) -> None:
    recorded = [line for line in read_results(RESULTS / "untrained.jsonl") if line["cell"] == cell]
    for protocol in protocols_of(cell):
        own = {line["method"]: line for line in recorded if (line["protocol"], line["seed"]) == (protocol, 0)}
        assert set(own) == set(UNTRAINED_SCORES)
        for line in untrained_runs(cell, 0, command="c", protocol=protocol):
            before = own[line["method"]]
            assert line["config"] == before["config"]
            # 0.002: sums of products that are equal up to rounding were ranked apart before.
            assert line["metrics"] == pytest.approx(before["metrics"], abs=2e-3)
            assert line["validation"] == pytest.approx(before["validation"], abs=2e-3)


def test_the_best_score_is_chosen_by_validation() -> None:
    base = untrained_runs("disease_tree/lp", 0, command="c", task=small_task())
    high = [line | {"value": 99.0, "validation": 50.0} if line["method"] == "degree" else line for line in base]
    ((key, best),) = best_untrained(aggregate(high)).items()
    assert key == ("disease_tree/lp", "disjoint")
    assert best.method == "feature_column"


def test_the_command_writes_each_line_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "untrained.jsonl"
    for _ in range(2):
        assert main(["untrained", "--cells", "disease_tree/lp", "--out", str(out)]) == 0
        assert "feature_column" in capsys.readouterr().out
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert len(lines) == 5 * len(UNTRAINED_SCORES)
    own = [line for line in read_results(RESULTS / "untrained.jsonl") if line["cell"] == "disease_tree/lp"]
    known = {(line["method"], line["seed"]): line["value"] for line in own}
    assert {(line["method"], line["seed"]): line["value"] for line in lines} == pytest.approx(known, abs=1e-3)
    assert main(["untrained", "--cells", "disease_tree/nc", "--out", str(out)]) == 2


def test_the_home_nearly_solves_the_tree_of_the_demo() -> None:
    task = load_task("disease_tree/lp", features="raw")
    assert isinstance(task, LinkTask)
    best = untrained_link_scores(task)[0]
    assert (best.name, best.column) == ("feature_column", task.x.shape[1] - 1)  # the home is the last feature
    assert best.value is not None
    assert best.value > 97


def test_every_link_prediction_task_has_all_scores_in_results() -> None:
    lines = list(read_results(RESULTS / "untrained.jsonl"))
    found = {(line["cell"], line["protocol"], line["method"]) for line in lines}
    assert found == {
        (cell, protocol, name) for cell in link_cells() for protocol in protocols_of(cell) for name in UNTRAINED_SCORES
    }


def test_the_scores_without_a_column_see_what_the_networks_of_that_recipe_see() -> None:
    protocol = protocols("features", "disease/lp")[0]
    assert protocol in protocols_of("disease/lp")
    dropped = recipe("features", "disease/lp", protocol)["fixed"]["drop_columns"]
    lines = [line for line in read_results(RESULTS / "untrained.jsonl") if line["protocol"] == protocol]
    column = next(line for line in lines if line["method"] == "feature_column")
    assert column["config"]["drop_columns"] == dropped
    assert column["config"]["columns"] == 11 - len(dropped)


def test_one_column_of_disease_gives_the_answer_away_and_no_other_does() -> None:
    lines = [line for line in read_results(RESULTS / "untrained.jsonl") if line["cell"] == "disease/lp"]
    value = {line["protocol"]: line["value"] for line in lines if line["method"] == "feature_column"}
    assert value["legacy"] == pytest.approx(99.3061)
    assert value["legacy-without_column"] < 60


def test_the_search_without_the_column_is_the_start_of_the_search_with_it() -> None:
    own, other = recipe("features", "disease/lp"), recipe("gnn", "disease/lp")
    assert own["configurations"] == other["configurations"][: own["count"]]
    assert own["fixed"] == other["fixed"] | {"drop_columns": [10]}
    assert own["only"] == other["only"]
