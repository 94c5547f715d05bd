"""HTML pages that need no network: sections, tables, pictures and an interactive Poincaré disk in one file."""

from __future__ import annotations

import base64
import functools
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from numpy.typing import NDArray

from lresnet._version import __version__
from lresnet.plots.picture import INK
from lresnet.plots.poincare_disk import (
    CLASS_COLOURS,
    NO_LABEL,
    NO_LABEL_COLOUR,
    DiskEmbedding,
    class_colour,
    view_radius,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "VERDICT_SIGNS",
    "Heading",
    "Row",
    "Section",
    "Table",
    "embedding_json",
    "environment",
    "html_page",
    "html_table",
    "html_verdict",
    "inline_svg",
]

_DISK_SCRIPTS = ("moebius.js", "labels.js", "disk.js", "controls.js", "start.js")

# The markers of disk.js, in its order, in a box from -8 to 8.
_MARKERS = (
    '<circle r="6"/>',
    '<path d="M0-7 7 0 0 7-7 0Z"/>',
    '<path d="M0-7 7 5H-7Z"/>',
    '<path d="M-5-5H5V5H-5Z"/>',
    '<path d="M0 7-7-5H7Z"/>',
)

VERDICT_SIGNS: Mapping[str, tuple[str, str]] = {
    "better": ("▲", "better"),
    "no difference shown": ("●", "within"),
    "worse": ("▼", "worse"),
}
"""For each verdict, a sign for readers without colour vision and a class of the style sheet."""


@dataclass(frozen=True)
class Section:
    """Section of a page.

    Args:
        key: Its id, for links.
        title: Its name in the navigation.
        body: Its content as HTML.
        heading: Its heading; default: the title.
    """

    key: str
    title: str
    body: Markup
    heading: str = ""


@dataclass(frozen=True)
class Heading:
    """Row of a table that names the rows below it."""

    text: str


@dataclass(frozen=True)
class Row:
    """Row of a table: a name, numbers, then texts. Strings are escaped, ``Markup`` is kept."""

    name: str | Markup
    numbers: Sequence[str] = ()
    texts: Sequence[str | Markup] = ()
    highlighted: bool = False


@dataclass(frozen=True)
class Table:
    """Table of a page.

    Args:
        columns: One heading per column: the name, the numbers, the texts.
        rows: The rows.
        caption: What the table shows, above it and as wide as the page.
        style: Class of the style sheet: ``"details"`` wraps long texts in the last column, ``"overview"`` wraps long
            names.
    """

    columns: Sequence[str]
    rows: Sequence[Row | Heading]
    caption: str = ""
    style: str = ""


def html_page(
    sections: Sequence[Section],
    disk: DiskEmbedding | None = None,
    *,
    title: str,
    introduction: str | Markup = "",
    footer: str | Markup = "",
) -> str:
    """Return a page of ``sections`` with a sidebar; the interactive disk is its first screen.

    Args:
        sections: The content.
        disk: Graph for the interactive Poincaré disk; None: no disk.
        title: What the page is about.
        introduction: First sentence, above the sections and below the disk.
        footer: Last line of the page.
    """
    first = [] if disk is None else [Section("embedding-section", "Embedding", _disk_body(disk))]
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            introduction=introduction,
            footer=footer,
            sections=[*first, *sections],
            has_disk=disk is not None,
            version=__version__,
            style=Markup(_file("page.css")),
            script=Markup("".join(map(_file, ("page.js", *(() if disk is None else _DISK_SCRIPTS))))),
        )
    )


def html_table(table: Table) -> Markup:
    """Return ``table`` as HTML that scrolls sideways on narrow screens.

    The page's script adds buttons that sort by a column, within each group below a :class:`Heading`, and a filter.
    """
    rows = [row for row in table.rows if isinstance(row, Row)]
    numbers = len(rows[0].numbers) if rows else 0
    html = (
        environment()
        .get_template("table.html.j2")
        .render(
            columns=table.columns,
            groups=_row_groups(table.rows),
            caption=table.caption,
            style=table.style,
            numeric=range(1, 1 + numbers),
        )
    )
    return Markup(html)


def html_verdict(verdict: str, number: str = "", signs: Mapping[str, tuple[str, str]] = VERDICT_SIGNS) -> Markup:
    """Return a coloured verdict with its sign and a number; empty for an empty verdict.

    Example:
        >>> html_verdict("worse", "-0.5")
        Markup('<span class="worse">▼ worse</span> −0.5')
    """
    if not verdict:
        return Markup()
    sign, style = signs.get(verdict, ("", "soft"))
    text = f"{sign} {verdict}".strip()
    return Markup('<span class="{}">{}</span> {}').format(style, text, _minus(number)).strip()


def inline_svg(picture: Figure, title: str) -> Markup:
    """Return a matplotlib figure as an ``svg`` element without a background.

    Text stays text and takes the page's colour, in light and dark mode. Equal figures give equal markup.

    Args:
        title: Name of the picture for screen readers.
    """
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "lresnet", "font.family": "sans-serif"}):
        picture.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK.lower(), "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1))


def embedding_json(embedding: DiskEmbedding) -> Markup:
    """Return the data of the disk for its script: arrays as little-endian bytes in base64, safe in a ``script``."""
    labels = embedding.labels
    content = {
        "points": _base64(embedding.points, "<f8"),
        "edges": _base64(embedding.edges.T, "<u4"),
        "labels": None if labels is None else _base64(labels, "<i4"),
        "classes": embedding.classes,
        "names": embedding.names,
        "order": None if embedding.names is None else _base64(embedding.most_general_first(), "<u4"),
        "colours": CLASS_COLOURS,
        "noLabel": {"name": NO_LABEL, "colour": NO_LABEL_COLOUR},
        "zoom": 1 / view_radius(embedding.points),
    }
    return Markup(json.dumps(content, allow_nan=False).replace("<", "\\u003c"))  # a name may contain </script>


@functools.cache
def environment() -> Environment:
    """Return the environment of the HTML templates: values are escaped, a missing value is an error."""
    found = Environment(
        loader=PackageLoader("lresnet.plots", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["minus"] = _minus
    return found


def _disk_body(embedding: DiskEmbedding) -> Markup:
    html = (
        environment()
        .get_template("disk.html.j2")
        .render(
            title=embedding.title,
            nodes=f"{len(embedding.points):,}",
            edges=f"{embedding.edges.shape[1]:,}",
            note=embedding.note,
            zoomed=view_radius(embedding.points) < 1,
            named=embedding.names is not None,
            example=embedding.names[0] if embedding.names else 0,
            classes=_classes(embedding),
            data=embedding_json(embedding),
        )
    )
    return Markup(html)


def _classes(embedding: DiskEmbedding) -> list[dict[str, Any]]:
    if embedding.labels is None:
        return []
    counts = np.bincount(embedding.labels[embedding.labels >= 0], minlength=len(embedding.classes))
    rows = [(label, name, int(counts[label])) for label, name in enumerate(embedding.classes)]
    if embedding.unlabelled:
        rows.append((-1, NO_LABEL, embedding.unlabelled))
    return [
        {
            "name": name,
            "count": f"{count:,}",
            "colour": class_colour(label),
            "marker": Markup(_MARKERS[max(label, 0) % len(_MARKERS)]),
        }
        for label, name, count in rows
    ]


def _row_groups(rows: Sequence[Row | Heading]) -> list[dict[str, Any]]:
    """Return the rows below each heading; rows before the first heading have none."""
    groups: list[dict[str, Any]] = []
    for row in rows:
        if isinstance(row, Heading):
            groups.append({"heading": row.text, "rows": []})
        else:
            if not groups:
                groups.append({"heading": "", "rows": []})
            groups[-1]["rows"].append(row)
    return groups


def _minus(number: str) -> str:
    """Replace hyphens by minus signs, except in exponents; markup stays markup."""
    return type(number)(re.sub(r"(?<!e)-", "−", number))


def _base64(array: NDArray[np.float64] | NDArray[np.int64], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode()


def _file(name: str) -> str:
    return resources.files("lresnet.plots.html").joinpath(name).read_text(encoding="utf-8")
