"""docs/depth.md keeps to the data: every row of its tables is what the runs give."""

from pathlib import Path

from lresnet_paper.pages.depth_claims import depth_answers
from lresnet_paper.pages.depth_table import depth_markdown
from lresnet_paper.results import read_runs

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_page_are_those_of_the_runs() -> None:
    rendered = depth_markdown(read_runs(ROOT / "results")).splitlines()
    rows = [line for line in (ROOT / "docs" / "depth.md").read_text().splitlines() if line.startswith("|")]
    assert len(rows) == 4 * 9 + 2 * 8
    assert [row for row in rows if row not in rendered] == []


def test_the_answers_of_the_page_are_those_of_the_runs() -> None:
    untuned = [run for run in read_runs(ROOT / "results") if run["protocol"] == "legacy"]
    verdicts = [claim.verdict for claim in depth_answers(untuned)]
    assert verdicts == ["does not hold", "no difference shown", "holds"]
