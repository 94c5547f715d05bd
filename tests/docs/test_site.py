"""The documentation site: its hooks, its checker and its navigation. `make docs` builds the whole site."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
NAV = re.findall(r"^ +- (?:[^:\n]+: )?([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """docs/site_hooks.py; griffe is not in requirements.lock, and only its base class is needed here."""
    if importlib.util.find_spec("griffe") is None:
        fake = ModuleType("griffe")
        fake.Extension = fake.Object = object  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "griffe", fake)
    return _load("site_hooks")


def test_the_navigation_lists_every_page_once() -> None:
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert len(NAV) == len(set(NAV))
    assert set(NAV) == pages


def test_docstrings_become_markdown(hooks: ModuleType) -> None:
    text = (
        "Sum.\n\n.. math:: a = b,\n   c\n\nSee :func:`~lresnet.fit`, :class:`Lorentz` and :math:`x^2`::\n\nExample:\n"
    )
    assert hooks.as_markdown(text) == (
        'Sum.\n\n\n$$\na = b,\nc\n$$\n\n\nSee <autoref identifier="lresnet.fit" optional><code>fit</code></autoref>, '
        "`Lorentz` and $x^2$:\n\nExamples:\n"
    )


@pytest.mark.parametrize("package", ["lresnet.nn", "lresnet.functional", "lresnet.testing", "lresnet"])
def test_public_names_are_read_without_an_import(hooks: ModuleType, package: str) -> None:
    import importlib

    assert hooks.public_names(package) == list(importlib.import_module(package).__all__)


def test_every_public_package_has_a_reference_page(hooks: ModuleType) -> None:
    texts = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    packages = [
        name for name in hooks.public_names("lresnet") if name.islower() and (ROOT / "src/lresnet" / name).exists()
    ]
    missing = [name for name in packages if f"lresnet.{name}" not in texts]
    assert missing == []


def test_the_command_reference_shows_every_verb_and_option(hooks: ModuleType) -> None:
    text = hooks.commands()
    verbs = [
        "demo",
        "train",
        "evaluate",
        "predict",
        "ancestors",
        "generate",
        "embed",
        "neighbours",
        "ood",
        "report",
        "data",
        "delta",
        "plot",
        "doctor",
    ]
    assert re.findall(r"^## (\w+)", text, re.MULTILINE)[: len(verbs)] == verbs
    assert {"reproduce", "bench"} <= set(re.findall(r"^## (\w+) \(from `lresnet_paper`\)", text, re.MULTILINE))
    assert "| `--top INT` | Number of most probable classes" in text
    assert "### data fetch" in text
    assert "$ lresnet train friends.csv\n$ lresnet train citations/" in text  # examples share a block
    assert not {"╭", "─"} & set(text)
    assert "-h, --help" not in text


def _site(folder: Path, page: str) -> Path:
    (folder / "search").mkdir(parents=True)
    (folder / "search" / "search_index.json").write_text('{"docs": []}')
    (folder / "other.html").write_text('<h1 id="top">Other</h1>')
    (folder / "index.html").write_text(page)
    return folder


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<a href="other.html#top">x</a><a href="https://example.org">y</a><img src="data:,">', None),
        ('<a href="missing.html">x</a>', "index.html: missing.html does not exist"),
        ('<a href="other.html#no">x</a>', "index.html: other.html#no has no such anchor"),
        ('<a href="#no">x</a>', "index.html: #no has no such anchor"),
        ('<script src="https://cdn.example.org/x.js"></script>', "loads https://cdn.example.org/x.js from the network"),
    ],
)
def test_the_checker_finds_broken_links_and_resources_of_the_network(
    tmp_path: Path, page: str, problem: str | None
) -> None:
    found = _load("check_site").problems(_site(tmp_path / "site", page).resolve())
    assert found == [] if problem is None else (len(found) == 1 and problem in found[0])
