"""A matplotlib picture as part of a page: text stays text, and its ink is the page's, light or dark."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from lresnet_paper.pages.comparison_picture import INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["inline_svg"]


def inline_svg(picture: Figure, title: str) -> str:
    """An ``svg`` element without a background, called ``title`` by screen readers; the same for the same picture."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "lresnet", "font.family": "sans-serif"}):
        picture.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK.lower(), "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
