"""The page "Does the paper reproduce?", and the counts that the README quotes."""

import re
from pathlib import Path
from typing import Any

import pytest

from lresnet_paper.pages.claims import VERDICTS, Claim, answer_claims, claim_counts
from lresnet_paper.pages.results_page import claims_of_folder
from lresnet_paper.pages.verdict_page import claim_counts_of_folder, verdict_page
from lresnet_paper.plan import protocols, recipe_cells
from lresnet_paper.results import read_runs

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reproduction" / "index.md"
TABLES = ("gnn", "graph_transformer", "image_classification", "ood", "commutativity", "curvature", "oversmoothing")


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    return read_runs(ROOT / "results")


@pytest.fixture(scope="module")
def claims(runs: list[dict[str, Any]]) -> list[Claim]:
    return claims_of_folder(runs, ROOT / "results")


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_page_in_docs_is_rendered_from_results(runs: list[dict[str, Any]], claims: list[Claim], text: str) -> None:
    assert verdict_page(runs, claims) == text, "run `python -m lresnet_paper pages`"


def test_a_folder_without_results_has_no_measured_claim(tmp_path: Path) -> None:
    counts = claim_counts_of_folder(tmp_path)
    assert counts["not measured"] == sum(counts.values()) > 10


def test_the_answer_and_the_claims_come_first(claims: list[Claim], text: str) -> None:
    counts = claim_counts(claims)
    assert list(counts) == list(VERDICTS)
    holds, partly, undecided, refuted, missing = counts.values()
    assert missing == 0
    answer = (
        f"of {sum(counts.values())} claims that a measurement can answer, {holds} hold, {partly} partly hold, "
        f"{undecided} are undecided and {refuted} do not hold"
    )
    assert answer in text.partition("## ")[0]
    assert re.findall(r"^## (.*)", text, flags=re.MULTILINE)[0] == "The paper's claims"
    table = text.partition("## The paper's claims\n\n")[2].partition("\n\n")[0].splitlines()[2:]
    verdicts = [row.split(" | ")[1].strip("*") for row in table]
    assert {word: verdicts.count(word) for word in VERDICTS} == counts
    assert all(len(row.split(" | ")[2]) <= 220 for row in table)


def test_disease_stands_next_to_its_untrained_baseline(text: str) -> None:
    (row,) = [line for line in text.splitlines() if line.startswith("| disease/lp | 98.09")]
    assert "| better, +1.22 | none 96.87 | one column 99.31 |" in row
    assert "one raw feature column reaches 99.31 without any training, the trained Lorentz residual 98.09" in text
    assert "On airport/lp, the number of two- and three-hop paths reaches 95.50 without any training" in text
    evidence = text.partition("<summary>The evidence in full</summary>")[2].partition("</details>")[0]
    named = [line for line in evidence.splitlines() if "disease/lp" in line]
    assert len(named) > 3
    assert all("one raw feature column reaches 99.3 on disease/lp" in line for line in named)


def test_without_results_the_page_has_the_claims_only() -> None:
    page = verdict_page([], answer_claims([]))
    assert "of 0 claims that a measurement can answer, 0 hold" in page
    assert "## Images" not in page
    assert "## Run one cell again" in page


def test_the_page_of_protocols_names_every_protocol() -> None:
    page = (ROOT / "docs" / "reproduction" / "protocols.md").read_text(encoding="utf-8")
    names = {name for table in TABLES for cell in recipe_cells(table) for name in protocols(table, cell)}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", ["index", "results", "depth", "fidelity", "protocols"])
def test_links_between_pages_lead_to_files_and_headings(name: str) -> None:
    page = ROOT / "docs" / "reproduction" / f"{name}.md"
    for target, _, anchor in re.findall(r"\]\(([^)#:]*\.md)?(#([^)]*))?\)", page.read_text(encoding="utf-8")):
        other = page if not target else (page.parent / target).resolve()
        assert other.is_file(), target
        headings = re.findall(r"^#+ (.*)", other.read_text(encoding="utf-8"), flags=re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
        assert not anchor or anchor in slugs, f"{target}#{anchor}"
