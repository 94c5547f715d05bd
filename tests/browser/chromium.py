"""Headless Chromium, as the system has it, driven by playwright; nothing is downloaded and no network is used."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Unavailable", "chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]


class Unavailable(RuntimeError):
    """There is no browser to test with; the message says what to install."""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; ``LRESNET_CHROMIUM`` names another program than the one on the path."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise Unavailable("playwright is missing: pip install playwright") from error
    program = os.environ.get("LRESNET_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        raise Unavailable("Chromium is missing; on Debian: apt-get install chromium")
    # Chromium's own sandbox does not work for root, as whom containers often run.
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=_QUIET + sandbox)
        try:
            yield browser
        finally:
            browser.close()
