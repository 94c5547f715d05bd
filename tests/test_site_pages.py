"""Every Python block and every command of README.md and of the documentation's pages runs.

Blocks run from top to bottom of a page, in an empty folder. Marks are HTML comments on the line before a fence:

- ``<!-- needs: a GPU -->``: the block is not run; the mark says what it needs.
- ``<!-- test adds: --epochs 5 -->``: words that the test appends to each ``lresnet train`` of the block.
- ``<!-- test: slow -->``, anywhere on the page: the page runs in ``make test-all`` only.
"""

import re
import runpy
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from lresnet.cli import main

ROOT = Path(__file__).parent.parent
RUN, SHOWN = {"python", "console"}, {"text", "toml", "json", "csv", "bibtex", "yaml", "html", "markdown"}
_FENCE = re.compile(
    r"(?:^ *<!-- (?P<mark>needs|test adds): (?P<value>[^\n]+?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    needs: str | None
    adds: list[str]

    @property
    def commands(self) -> list[list[str]]:
        joined = self.code.replace("\\\n", " ")
        return [shlex.split(line[2:], comments=True) for line in joined.splitlines() if line.startswith("$ ")]


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of a page in their order."""
    found = []
    for match in _FENCE.finditer(text):
        code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
        value = match["value"] or ""
        needs = value if match["mark"] == "needs" else None
        found.append(Block(match["language"].strip(), code, needs, shlex.split(value) if needs is None else []))
    return found


PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
BLOCKS = {page: blocks_of(text) for page, text in PAGES.items()}


def _marked(page: str) -> Any:
    slow = [pytest.mark.slow] if "<!-- test: slow -->" in PAGES[page] else []
    return pytest.param(page, marks=slow)


RUNNING = [
    _marked(page)
    for page, blocks in BLOCKS.items()
    if any(block.language in RUN and block.needs is None for block in blocks)
]


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's own, compiling
@pytest.mark.parametrize("page", RUNNING)
def test_the_blocks_of_a_page_run_in_an_empty_folder(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in BLOCKS[page]:
            if block.needs is not None:
                continue
            if block.language == "python":
                _run_python(block.code, names)
            elif block.language == "console":
                for words in block.commands:
                    _run_command(words, block.adds, monkeypatch)


def _run_python(code: str, names: dict[str, Any]) -> None:
    file = re.match(r"# (\S+\.py)\n", code)
    if file:
        Path(file[1]).write_text(code, encoding="utf-8")
    exec(compile(code, "<page>", "exec"), names)


def _run_command(words: list[str], adds: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = words
    if program == "python" and arguments[:2] == ["-m", "lresnet"]:
        program, arguments = "lresnet", arguments[2:]
    if program == "lresnet":
        added = adds if arguments[:1] == ["train"] else []
        assert main([*arguments, *added]) == 0, shlex.join(words)
    elif program == "python" and arguments and arguments[0].endswith(".py"):
        monkeypatch.setattr(sys, "argv", arguments)
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        pytest.fail(f"the test cannot run `{shlex.join(words)}`: mark the block with <!-- needs: ... -->")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_fenced_and_has_a_known_language(page: str) -> None:
    unknown = {block.language for block in BLOCKS[page]} - RUN - SHOWN
    assert unknown == set(), "give every block a language that this test knows"
    assert len(BLOCKS[page]) * 2 == len(re.findall(r"^ *```", PAGES[page], flags=re.MULTILINE)), "an unclosed fence"
    without = _FENCE.sub("", PAGES[page])
    indented = re.findall(r"(?:\A|\n)\n {4}(?! *[-*+\d]|.*\|)(?:lresnet|python|make|pip|torchrun|\$) .*", without)
    assert indented == [], "use a fenced block, not an indented one"
    tildes = set(re.findall(r"^ *~~~+ *(\w+)", PAGES[page], flags=re.MULTILINE))
    assert tildes <= {"markdown"}, "use ``` fences, which the tests run"
    assert not re.search(r"^ *(> ?)+ *```|<pre", without, flags=re.MULTILINE), "no code in quotes or HTML"
    for block in BLOCKS[page]:
        assert block.language != "console" or block.commands, f"a console block without a `$ ` line:\n{block.code}"


@pytest.mark.parametrize("page", PAGES)
def test_linked_files_exist(page: str) -> None:
    text = _FENCE.sub("", PAGES[page])
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) if "://" not in target]
    folder = (ROOT / page).parent
    missing = [target for target in targets if not target.startswith("mailto:") and not (folder / target).exists()]
    assert missing == []


def test_marks_stand_directly_before_a_fence() -> None:
    for page, text in PAGES.items():
        for match in re.finditer(r"^ *<!-- (?:needs|test adds): .*?-->\n(?! *```)", text, flags=re.MULTILINE):
            pytest.fail(f"{page}: {match[0].strip()} does not stand on the line before a block")
