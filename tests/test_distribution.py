"""What a package index shows, and what the source distribution contains."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def shown() -> str:
    """The README as the metadata of the wheel have it."""
    command = [sys.executable, "-m", "hatch_fancy_pypi_readme"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_the_page_of_a_package_index_has_no_picture_or_link_that_breaks_there(shown: str) -> None:
    assert "![" not in shown
    assert "picture" not in shown
    assert [target for target in re.findall(r"\]\(([^)]+)\)", shown) if "://" not in target] == []
    assert "verdict (`docs/reproduction/index.md`)" in shown


def test_no_address_of_the_project_is_invented() -> None:
    assert "urls" not in PROJECT["project"]


def test_every_path_of_the_page_is_in_the_source_distribution(shown: str) -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    for path in re.findall(r"\(`([^`]+\.(?:md|cff)|LICENSE)`\)", shown):
        assert (ROOT / path).is_file()
        assert path == "LICENSE" or any(f"/{path}".startswith(one) for one in included), path


def test_extras_name_what_the_library_uses() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(extras) == {"dev", "docs", "faiss", "hub", "triton"}
    assert all("==" in requirement for requirement in extras["docs"])  # pinned: theme and plugins change together
