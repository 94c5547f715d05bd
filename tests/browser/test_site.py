"""The built documentation site in headless Chromium, opened from disk: formulas, search and narrow screens.

It needs the site: `make docs`, then `LRESNET_SITE=site pytest tests/browser/test_site.py`.
"""

import os
from pathlib import Path
from typing import Any

import pytest

SITE = Path(os.environ.get("LRESNET_SITE", "site")).resolve()
pytestmark = pytest.mark.skipif("LRESNET_SITE" not in os.environ, reason="LRESNET_SITE is not set: `make docs` first")
PAGES = sorted(str(page.relative_to(SITE)) for page in SITE.rglob("*.html")) if SITE.is_dir() else []


def test_no_page_requests_the_network_has_a_wrong_formula_or_scrolls_sideways(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800})
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    formulas = 0
    for name in PAGES:
        page.goto(f"file://{SITE / name}")
        page.wait_for_function("!document.querySelector('.arithmatex') || document.querySelector('mjx-container')")
        assert page.locator("mjx-merror").count() == 0, f"{name}: a formula that MathJax cannot read"
        formulas += page.locator("mjx-container").count()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{name} is {width} pixels wide on a screen of 390"
    assert formulas > 20
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


@pytest.mark.parametrize(
    ("words", "expected"), [("LorentzResidual", "residual"), ("curvature sign", "faq"), ("NaN", "faq")]
)
def test_the_search_works_offline(browser: Any, words: str, expected: str) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(f"file://{SITE / 'index.html'}")
    page.locator("input.md-search__input").click()
    page.keyboard.type(words)
    page.wait_for_selector(".md-search-result__link", timeout=30_000)
    links = page.eval_on_selector_all(".md-search-result__link", "links => links.map(link => link.href)")
    assert any(expected in link for link in links), links
    page.close()
