"""One browser for all tests. They are skipped without one, unless LRESNET_BROWSER=required (`make test-browser`)."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lresnet.plots.html.runs_page import runs_page
from tests.browser.chromium import Unavailable, chromium
from tests.browser.graphs import tree_embedding
from tests.runs.run_records import report_of, run_record


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    try:
        with chromium() as found:
            yield found
    except Unavailable as error:
        if os.environ.get("LRESNET_BROWSER") == "required":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the address of the page of a tree with a number of nodes; each page is written once."""
    folder, written = tmp_path_factory.mktemp("pages"), {}

    def address(nodes: int) -> str:
        if nodes not in written:
            records = [
                run_record(method, seed, value + seed, note=note)
                for method, value, note in (("lorentz", 97.0, "a"), ("lorentz", 96.0, "<much>"), ("space", 83.0, "a"))
                for seed in range(3)
            ]
            written[nodes] = Path(folder) / f"{nodes}.html"
            written[nodes].write_text(runs_page(report_of(records), tree_embedding(nodes)), encoding="utf-8")
        return written[nodes].as_uri()

    return address


@pytest.fixture
def open_page(browser: Any, page_of: Any) -> Iterator[Any]:
    """Open the page of a tree. A message in the console, an error or a network request fails the test."""
    opened, problems = [], []

    def load(nodes: int = 121, **options: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1200, "height": 900}} | options))
        page = context.new_page()
        opened.append(context)
        page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda r: problems.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
        page.goto(page_of(nodes))
        page.evaluate("document.getElementById('embedding-section').scrollIntoView()")
        settle(page)
        return page

    yield load
    for context in opened:
        context.close()
    assert problems == []


def settle(page: Any) -> None:
    """Wait until all requested frames are drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
