"""Rendering of the generated pages from the Jinja2 templates in ``lresnet_paper/templates``."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from lresnet._files import write_atomically

__all__ = ["macros", "render", "write_page"]


def render(template_name: str, **values: Any) -> str:
    """Return the page that a template gives with ``values``.

    Args:
        template_name: a file name in ``lresnet_paper/templates``, e.g. ``"benchmarks.md.j2"``.
        **values: every name that the template uses. A missing name raises :class:`jinja2.UndefinedError`.

    HTML templates (``*.html.j2``) escape their values; Markdown templates do not.
    """
    return _environment().get_template(template_name).render(**values)


def macros(template_name: str) -> Any:
    """Return the macros of a template that has nothing else, as functions: ``macros("claims.md.j2").speed(...)``."""
    return _environment().get_template(template_name).module


def write_page(path: Path, text: str) -> None:
    """Write a page as UTF-8; its folder is created if it does not exist."""
    write_atomically(path, text.encode())


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("lresnet_paper", "templates"),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
