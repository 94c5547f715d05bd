"""Rendering of templates."""

from pathlib import Path

import jinja2
import pytest

import lresnet_paper
from lresnet_paper.render import render

TEMPLATES = Path(lresnet_paper.__file__).parent / "templates"


@pytest.mark.parametrize("template", sorted(path.name for path in TEMPLATES.glob("*.j2")))
def test_every_template_compiles_and_needs_its_values(template: str) -> None:
    with pytest.raises(jinja2.UndefinedError):
        render(template)
