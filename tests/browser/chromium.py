"""The system's headless Chromium, controlled by playwright without downloads or network access."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Unavailable", "chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]


class Unavailable(RuntimeError):
    """The browser is missing; the message names what to install."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser; ``LRESNET_CHROMIUM`` names a program other than the one on the path."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise Unavailable("playwright is missing: pip install playwright") from error
    program = os.environ.get("LRESNET_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        raise Unavailable("Chromium is missing; on Debian: apt-get install chromium")
    # Chromium's sandbox does not work as root, which containers often use.
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=_QUIET + sandbox)
        try:
            yield browser
        finally:
            browser.close()
