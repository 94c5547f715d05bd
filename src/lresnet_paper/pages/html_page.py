"""The whole report as one HTML page: no network, no framework; styles, scripts and data are inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from lresnet._version import __version__
from lresnet.plots.disk_embedding import DiskEmbedding
from lresnet.plots.html.explorer import explorer_section
from lresnet.runs.run_folders import FolderState
from lresnet_paper.pages.claims import Claim
from lresnet_paper.pages.html_details import run_details
from lresnet_paper.pages.html_tables import VERDICT_LOOKS, claims_table, table_section
from lresnet_paper.pages.markdown_page import READING, Notes
from lresnet_paper.pages.paired import paired_differences
from lresnet_paper.results import Figure, aggregate, in_order

__all__ = ["html_page"]

_SCRIPTS = ("moebius.js", "disk.js", "controls.js", "start.js")
# The page may run what it carries and load nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>lresnet: {about}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<h1>Lorentzian residual networks: {about}</h1>
<p class="soft">{beside}
Rendered by lresnet {version} from the results; every number is an average over the runs listed below.</p>
<nav aria-label="sections"><ul>{links}</ul></nav>
</header>
<main id="main">
{sections}
</main>
<footer>The same as Markdown: <code>lresnet report --markdown FILE</code>; as JSON: <code>lresnet report --json</code>.
</footer>
{script}
</body>
</html>
"""


_PAPER = (
    "what was measured",
    "Beside the figures of He, Yang and Ying, <i>Lorentzian Residual Neural Networks</i> (KDD 2025).",
)
_OWN = "your runs", "Runs of one method are averaged where they differ in seed or split alone; others have a row each."


def html_page(
    runs: Sequence[Mapping[str, Any]],
    claims: Sequence[Claim],
    notes: Notes | None = None,
    embedding: DiskEmbedding | None = None,
    folders: Sequence[FolderState] = (),
) -> str:
    """The page of ``runs``: a summary, the tables with their pictures, the claims, the embedding and the details.

    Args:
        runs: lines of results, as :func:`lresnet_paper.results.read_runs` gives them.
        claims: see :func:`lresnet_paper.pages.claims.answer_claims`; none: the page is of a user's own runs.
        notes: what was tried, by table, cell and protocol.
        embedding: for the interactive disk; None: the page has none.
        folders: of `lresnet train`, to be listed with their states.
    """
    figures = in_order(aggregate(dict(run) for run in runs))
    sections = {"summary": ("Summary", _summary(figures, claims))}
    if embedding is not None:
        sections["embedding-section"] = ("Embedding", explorer_section(embedding))
    differences = paired_differences(dict(run) for run in runs)
    for table in dict.fromkeys(figure.table for figure in figures):
        own = [figure for figure in figures if figure.table == table]
        paired = [difference for difference in differences if difference.table == table]
        sections[table] = (table.replace("_", " "), table_section(table, own, paired, notes or {}, runs))
    if claims:
        sections["claims"] = ("Claims", _titled("claims", "The paper's claims", claims_table(claims)))
    sections["runs"] = ("Runs", _titled("runs", "Run details", run_details(runs, folders)))
    about, beside = _PAPER if claims else _OWN
    return _PAGE.format(
        about=about,
        beside=beside,
        policy=_POLICY,
        style=_file("page.css"),
        version=__version__,
        links="".join(f'<li><a href="#{escape(key)}">{escape(title)}</a></li>' for key, (title, _) in sections.items()),
        sections="\n".join(text for _, text in sections.values()),
        script="" if embedding is None else f"<script>\n'use strict';\n{''.join(map(_file, _SCRIPTS))}</script>",
    )


def _summary(figures: Sequence[Figure], claims: Sequence[Claim]) -> str:
    """How the figures compare with the paper's, and how the claims stand, counted."""
    known = [figure for figure in figures if figure.verdict and figure.paper_mean is not None]
    compared = Counter(figure.verdict for figure in known)
    answered = Counter(claim.verdict for claim in claims)
    if not figures:
        makers = "<code>lresnet reproduce</code> makes those of a table, <code>lresnet evaluate</code> that of a run"
        return _titled("summary", "Summary", f"<p>No final runs yet: {makers}.</p>")
    if not claims:
        cells = Counter(figure.cell for figure in figures)
        rows = (f"<li><b>{sum(f.n for f in figures if f.cell == cell)}</b> on {escape(cell)}</li>" for cell in cells)
        return _titled("summary", "Summary", f'<h3>Runs with figures</h3><ul class="facts">{"".join(rows)}</ul>')
    ours = Counter(figure.verdict for figure in known if figure.method == "lorentz")
    text = (
        f"<h3>Our means against the paper's, {sum(compared.values())} figures</h3>{_facts(compared)}"
        f"<h3>Of these, of the Lorentz residual</h3>{_facts(ours)}"
        f"<h3>The paper's claims</h3>{_facts(answered)}"
        f"<h3>Names</h3><p>{escape(READING.replace('*', ''))}</p>"
    )
    return _titled("summary", "Summary", text)


def _facts(counts: Mapping[str, int]) -> str:
    """The counts in the order of the verdicts, the good news first."""
    items = [f"<li><b>{counts[what]}</b> {escape(what)}</li>" for what in VERDICT_LOOKS if what in counts]
    return f'<ul class="facts">{"".join(items)}</ul>'


def _titled(key: str, title: str, text: str) -> str:
    return f'<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{title}</h2>\n{text}</section>'


def _file(name: str) -> str:
    return resources.files("lresnet.plots.html").joinpath(name).read_text(encoding="utf-8")
