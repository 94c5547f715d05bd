"""The templates of the generated pages."""

from pathlib import Path

import jinja2
import pytest

import lresnet_paper
from lresnet_paper.render import render

TEMPLATES = Path(lresnet_paper.__file__).parent / "templates"


@pytest.mark.parametrize("template", sorted(path.name for path in TEMPLATES.glob("*.j2")))
def test_every_template_compiles(template: str) -> None:
    jinja2.Environment().parse((TEMPLATES / template).read_text(encoding="utf-8"))


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="devices"):
        render("benchmarks.md.j2")
