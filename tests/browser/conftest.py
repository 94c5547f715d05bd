"""One browser for all tests; skipped where there is none, unless LRESNET_BROWSER=required (`make test-browser`)."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lresnet_paper.pages.claims import answer_claims
from lresnet_paper.pages.html_page import html_page
from tests.browser.chromium import Unavailable, chromium
from tests.browser.graphs import tree_embedding


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
    """The address of the page of a tree of so many nodes, written once."""
    folder, written = tmp_path_factory.mktemp("pages"), {}

    def address(nodes: int) -> str:
        if nodes not in written:
            runs = [
                {"table": "gnn", "cell": "disease/lp", "method": method, "protocol": "legacy", "seed": seed}
                | {"stage": "final", "value": value + seed, "validation": 90.0, "config": {"lr": 0.01}}
                for method, value in (("lorentz", 97.0), ("space", 83.0))
                for seed in range(3)
            ]
            written[nodes] = Path(folder) / f"{nodes}.html"
            text = html_page(
                runs, answer_claims([]), {("gnn", "disease/lp", "legacy"): "Tried <much>."}, tree_embedding(nodes)
            )
            written[nodes].write_text(text, encoding="utf-8")
        return written[nodes].as_uri()

    return address


@pytest.fixture
def open_page(browser: Any, page_of: Any) -> Iterator[Any]:
    """Open the page of a tree; what it logs, throws or asks the network for makes the test fail."""
    opened, complaints = [], []

    def load(nodes: int = 121, **options: Any) -> Any:
        context = browser.new_context(**({"viewport": {"width": 1200, "height": 900}} | options))
        page = context.new_page()
        opened.append(context)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda r: complaints.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
        page.goto(page_of(nodes))
        page.evaluate("document.getElementById('embedding-section').scrollIntoView()")
        settle(page)
        return page

    yield load
    for context in opened:
        context.close()
    assert complaints == []


def settle(page: Any) -> None:
    """Until all that was asked for is drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
