"""The whole report as one HTML page: no network, no framework; styles, scripts and data are inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from lresnet.plots.html import page
from lresnet.plots.html.page import Section
from lresnet.plots.poincare_disk import DiskEmbedding
from lresnet_paper.pages.claims import Claim
from lresnet_paper.pages.html_details import run_details
from lresnet_paper.pages.html_tables import VERDICT_LOOKS, claims_table, table_section
from lresnet_paper.pages.markdown_page import READING, Notes
from lresnet_paper.pages.paired import paired_differences
from lresnet_paper.results import Figure, aggregate, in_order

__all__ = ["html_page"]

_PAPER = Markup("Beside the figures of He, Yang and Ying, <i>Lorentzian Residual Neural Networks</i> (KDD 2025).")
_FOOTER = Markup(
    "The same as Markdown: <code>lresnet report --markdown FILE</code>; as JSON: <code>lresnet report --json</code>."
)


def html_page(
    runs: Sequence[Mapping[str, Any]],
    claims: Sequence[Claim],
    notes: Notes | None = None,
    embedding: DiskEmbedding | None = None,
) -> str:
    """The page of ``runs``: a summary, the tables with their pictures, the claims, the embedding and the details.

    Args:
        runs: lines of results, as :func:`lresnet_paper.results.read_runs` gives them.
        claims: see :func:`lresnet_paper.pages.claims.answer_claims`.
        notes: what was tried, by table, cell and protocol.
        embedding: for the interactive disk; None: the page has none.
    """
    figures = in_order(aggregate(dict(run) for run in runs))
    sections = [Section("summary", "Summary", _summary(figures, claims))]
    differences = paired_differences(dict(run) for run in runs)
    for table in dict.fromkeys(figure.table for figure in figures):
        own = [figure for figure in figures if figure.table == table]
        paired = [difference for difference in differences if difference.table == table]
        body = table_section(table, own, paired, notes or {}, runs)
        sections.append(Section(table, table.replace("_", " "), body))
    if claims:
        sections.append(Section("claims", "Claims", claims_table(claims), "The paper's claims"))
    sections.append(Section("runs", "Runs", run_details(runs), "Run details"))
    return page.html_page(sections, embedding, title="what was measured", introduction=_PAPER, footer=_FOOTER)


def _summary(figures: Sequence[Figure], claims: Sequence[Claim]) -> Markup:
    """How the figures compare with the paper's, and how the claims stand, counted."""
    known = [figure for figure in figures if figure.verdict and figure.paper_mean is not None]
    compared = Counter(figure.verdict for figure in known)
    answered = Counter(claim.verdict for claim in claims)
    if not figures:
        return Markup("<p>No final runs yet: <code>lresnet reproduce</code> makes those of a table.</p>")
    ours = Counter(figure.verdict for figure in known if figure.method == "lorentz")
    return Markup(
        "<h3>Our means against the paper's, {} figures</h3>{}"
        "<h3>Of these, of the Lorentz residual</h3>{}"
        "<h3>The paper's claims</h3>{}"
        "<h3>Names</h3><p>{}</p>"
    ).format(sum(compared.values()), _facts(compared), _facts(ours), _facts(answered), READING.replace("*", ""))


def _facts(counts: Mapping[str, int]) -> Markup:
    """The counts in the order of the verdicts, the good news first."""
    items = [Markup("<li><b>{}</b> {}</li>").format(counts[what], what) for what in VERDICT_LOOKS if what in counts]
    return Markup('<ul class="facts">{}</ul>').format(Markup("").join(items))
