"""The page docs/howto/convert_zoo.md."""

from pathlib import Path

import pytest

from lresnet_paper.pages.conversion_page import conversion_page, read_conversions, read_hand_counts

ROOT = Path(__file__).parents[2]


def test_the_page_in_docs_is_rendered_from_results() -> None:
    page = conversion_page(read_conversions(ROOT / "results"), read_hand_counts(ROOT / "benchmarks"))
    assert (ROOT / "docs/howto/convert_zoo.md").read_text(encoding="utf-8") == page


def test_the_results_have_enough_networks_and_hand_counts() -> None:
    records = read_conversions(ROOT / "results")
    assert len({(record["package"], record["name"]) for record in records}) == len(records) >= 120
    assert sum("by_hand" in record for record in records) >= 25


def test_a_wrong_network_is_named_on_the_page() -> None:
    records = read_conversions(ROOT / "results")
    broken = {**records[0], "status": "wrong", "failures": ["space: differs by 1e-03"]}
    page = conversion_page([broken, *records[1:]], {})
    assert f"| {broken['package']} {broken['name']} | wrong | space: differs by 1e-03 |" in page


def test_without_results_the_error_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"run `python benchmarks/convert_zoo.py`"):
        read_conversions(tmp_path)
