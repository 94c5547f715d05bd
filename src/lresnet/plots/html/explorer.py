"""The interactive Poincaré disk of the page: its data and its elements."""

from __future__ import annotations

import base64
import json
from html import escape

import numpy as np
from numpy.typing import NDArray

from lresnet.plots.disk_embedding import DiskEmbedding
from lresnet.plots.palette import CLASS_COLOURS, class_colour

__all__ = ["embedding_json", "explorer_section"]

# The markers of disk.js, in its order, in a box from -8 to 8.
_MARKERS = (
    '<circle r="6"/>',
    '<path d="M0-7 7 0 0 7-7 0Z"/>',
    '<path d="M0-7 7 5H-7Z"/>',
    '<path d="M-5-5H5V5H-5Z"/>',
    '<path d="M0 7-7-5H7Z"/>',
)

_SECTION = """\
<section id="embedding-section" aria-labelledby="embedding-title">
<h2 id="embedding-title">The embedding</h2>
<p>{title}: {nodes} nodes, {edges} edges, each drawn as a geodesic. {note} Drag to move another part of the space into
the centre: a translation, which changes no distance.</p>
<div class="explorer">
<div id="stage">
<canvas id="disk" tabindex="0" role="application" aria-label="Poincaré disk with {nodes} nodes"
 aria-describedby="keys"></canvas>
<div id="tip" hidden></div>
</div>
<div class="side">
<form id="search-form" role="search">
<label for="search">Find a node</label>
<input id="search" type="search" autocomplete="off" placeholder="{example}">
<button type="submit">Show</button>
<p id="found" role="status"></p>
</form>
<div id="buttons" role="group" aria-label="view">
<button type="button" data-act="in" aria-label="zoom in">+</button>
<button type="button" data-act="out" aria-label="zoom out">−</button>
<button type="button" data-act="reset">Reset</button>
</div>
{legend}
<p id="said" aria-live="polite">No node is selected.</p>
<div class="list">
<table id="neighbours" hidden>
<caption>Its neighbours; distances in radii of curvature</caption>
<thead><tr><th scope="col">node</th><th scope="col">class</th><th scope="col">distance</th></tr></thead>
<tbody id="rows"></tbody>
</table>
</div>
<p class="keys" id="keys">In the disk: <kbd>←</kbd> <kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd> move the focus, with
<kbd>Shift</kbd> faster; <kbd>+</kbd> <kbd>−</kbd> zoom, <kbd>0</kbd> resets; <kbd>Enter</kbd> selects the node nearest
to the centre, <kbd>Esc</kbd> none. Anywhere: <kbd>/</kbd> finds a node.</p>
</div>
</div>
<script type="application/json" id="embedding">{data}</script>
</section>"""


def explorer_section(embedding: DiskEmbedding) -> str:
    """The section of the page: canvas, search, legend, table of neighbours, and the data."""
    return _SECTION.format(
        title=escape(embedding.title),
        nodes=f"{len(embedding.points):,}",
        edges=f"{embedding.edges.shape[1]:,}",
        note=escape(embedding.note),
        example=escape(f"e.g. {embedding.names[0] if embedding.names else 0}"),
        legend=_legend(embedding),
        data=embedding_json(embedding),
    )


def embedding_json(embedding: DiskEmbedding) -> str:
    """What the script reads: arrays as little-endian bytes in base64, safe inside a ``script`` element."""
    labels = embedding.labels
    content = {
        "points": _base64(embedding.points, "<f8"),
        "edges": _base64(embedding.edges.T, "<u4"),
        "labels": None if labels is None else _base64(labels, "<u2"),
        "classes": embedding.classes,
        "names": embedding.names,
        "colours": CLASS_COLOURS,
    }
    return json.dumps(content, allow_nan=False).replace("<", "\\u003c")  # a name may say </script>


def _base64(array: NDArray[np.float64] | NDArray[np.int64], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode()


def _legend(embedding: DiskEmbedding) -> str:
    if embedding.labels is None:
        return ""
    counts = np.bincount(embedding.labels, minlength=len(embedding.classes))
    rows = []
    for label, (name, count) in enumerate(zip(embedding.classes, counts, strict=True)):
        marker = _MARKERS[label % len(_MARKERS)]
        picture = f'<svg viewBox="-8 -8 16 16" aria-hidden="true" fill="{class_colour(label)}">{marker}</svg>'
        rows.append(f"<li>{picture}{escape(name)} ({count:,})</li>")
    return f'<ul class="legend" aria-label="classes">{"".join(rows)}</ul>'
