"""The page docs/performance/numerics.md."""

from pathlib import Path

import pytest

from lresnet_paper.pages.numerics import numerics_page, read_numerics

ROOT = Path(__file__).parents[2]


def test_the_page_in_docs_is_rendered_from_results() -> None:
    page = numerics_page(read_numerics(ROOT / "results"))
    assert (ROOT / "docs/performance/numerics.md").read_text() == page
    assert "| random | ours | 7e-11 | 9e-10 |" in page


def test_without_results_the_error_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"run `python benchmarks/numerics.py`"):
        read_numerics(tmp_path)
