"""The page docs/performance/index.md: its figures are those of the results."""

import json
from pathlib import Path

from lresnet_paper.pages.performance_page import performance_page

ROOT = Path(__file__).parents[2]


def test_the_page_in_docs_is_rendered_from_results() -> None:
    page = (ROOT / "docs/performance/index.md").read_text(encoding="utf-8")
    assert performance_page(ROOT / "results") == page, "run `python -m lresnet_paper pages performance`"


def test_its_ratio_of_a_training_step_is_that_of_the_newest_line() -> None:
    lines = [json.loads(line) for line in (ROOT / "results/benchmarks.jsonl").read_text().splitlines()]
    own = [
        line
        for line in lines
        if line["hardware"] == "NVIDIA H200"
        and (line["cell"], line["method"], line["protocol"]) == ("lorentz_resnet18/512", "lorentz", "engine")
    ]
    ratio = 1 / own[-1]["faster_than"]["euclidean"]
    page = (ROOT / "docs/performance/index.md").read_text(encoding="utf-8")
    assert f"| Training step of a ResNet-18 | {ratio:.2f} and " in page
