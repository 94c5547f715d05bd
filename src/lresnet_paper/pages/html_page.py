"""The results as one HTML page: summary, the paper's claims, tables with pictures, and the details of every run."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from lresnet.plots.html import page
from lresnet.plots.html.page import VERDICT_SIGNS, Heading, Row, Section, Table, html_table, html_verdict, inline_svg
from lresnet.plots.poincare_disk import DiskEmbedding
from lresnet_paper.comparisons import Comparison, compare_methods, family_verdicts
from lresnet_paper.pages.claims import HOLDS, NOT_MEASURED, PARTLY, REFUTED, UNDECIDED, Claim
from lresnet_paper.pages.comparison_picture import comparison_picture, panel_title, unit_of
from lresnet_paper.pages.depth_page import (
    DEPTH_TABLE,
    all_runs_by_depth,
    depth_causes,
    depth_protocols,
    depth_tables,
    depths_of,
    finite_values,
    shown_name,
)
from lresnet_paper.pages.depth_picture import auc_picture, depth_picture, layers_picture
from lresnet_paper.pages.features_page import FEATURES_TABLE, without_column_sentences
from lresnet_paper.pages.ood_page import (
    Counts,
    first_protocol,
    mean_detection_differences,
    ood_answers,
    ood_reading,
    ood_runs,
    ood_tables,
)
from lresnet_paper.pages.planned import PLANNED_TABLES, missing_sentences
from lresnet_paper.pages.results_page import (
    CellLine,
    Notes,
    computing_time,
    names_note,
    overview,
    released_notes,
    table_summary,
    untrained_cell_name,
    untrained_sentences,
)
from lresnet_paper.pages.text_tables import (
    TextTable,
    difference_text,
    has_paper_values,
    non_inferiority_text,
    our_value,
    paper_value,
    validation_text,
)
from lresnet_paper.render import macros, render
from lresnet_paper.results import DIVERGED, Result, aggregate, grouped, in_order, method_key
from lresnet_paper.untrained import SCORE_LABELS, UNTRAINED_TABLE, best_untrained

__all__ = ["html_page"]

Run = Mapping[str, Any]

_SIGNS = {
    **VERDICT_SIGNS,
    DIVERGED: ("✗", "worse"),
    HOLDS: ("✓", "better"),
    PARTLY: ("◐", "within"),
    UNDECIDED: ("●", "within"),
    REFUTED: ("✗", "worse"),
    NOT_MEASURED: ("", "soft"),
}
_TITLES = {
    "gnn": "Graph networks",
    "graph_transformer": "Graph transformers",
    "image_classification": "Images",
    "ood": "Out-of-distribution detection",
    "runtime": "Speed",
    "commutativity": "Commutativity",
    "curvature": "Curvature",
    DEPTH_TABLE: "Depth",
    UNTRAINED_TABLE: "Untrained scores",
}
"""Names of the paper's tables in words."""
_VISIBLE_ROWS = 12  # a picture whose panels have more rows is shown on demand
_VISIBLE_PANELS = 3  # and so is one of more panels, in a section without an overview
_FEWEST_ROWS = 4  # in a panel, on average: the overview says as much as a picture of fewer methods
_verdict = partial(html_verdict, signs=_SIGNS)


def html_page(
    runs: Sequence[Run],
    claims: Sequence[Claim],
    notes: Notes | None = None,
    disk: DiskEmbedding | None = None,
) -> str:
    """Return the page.

    Args:
        runs: lines of results, see :func:`lresnet_paper.results.read_runs`.
        claims: the answers to the paper's claims, see :func:`lresnet_paper.pages.claims.answer_claims`.
        notes: what was tried, by table, cell and protocol.
        disk: graph for the interactive Poincaré disk; None: no disk.
    """
    results, comparisons = in_order(aggregate(runs)), compare_methods(runs)
    sections = [
        Section("summary", "Summary", _summary(results)),
        Section("claims", "Claims", _claims(claims), "The paper's claims"),
    ]
    for table, own in grouped(results, lambda one: one.table).items():
        if table == FEATURES_TABLE:
            continue  # a study of ours: the section on graphs has its sentence, the Markdown page its table
        paired = [one for one in comparisons if one.table == table]
        body = _table_section(table, own, paired, notes or {}, runs)
        title = _TITLES.get(table, table.replace("_", " "))
        sections.append(Section(table, title, body, title if title.lower() == table else f"{title} ({table})"))
    sections.append(Section("runs", "Runs", _run_details(runs), "Run details"))
    introduction, footer = _text().introduction(len(results)).strip(), _text().footer("python -m lresnet_paper").strip()
    return page.html_page(sections, disk, title="the paper's results", introduction=introduction, footer=footer)


def _summary(results: Sequence[Result]) -> Markup:
    known = [one for one in results if one.verdict and one.paper_mean is not None]
    values = {
        "results": len(results),
        "compared": len(known),
        "all_methods": _counts(one.verdict for one in known),
        "lorentz": _counts(one.verdict for one in known if one.method == "lorentz"),
        "names": _paragraphs(names_note()),
    }
    return Markup(_text().summary(**values))


def _text() -> Any:
    """Return the macros with the texts of the page."""
    return macros("results.html.j2")


def _counts(verdicts: Iterable[str]) -> list[tuple[str, int]]:
    """Count verdicts, good news first."""
    found = Counter(verdicts)
    return [(verdict, found[verdict]) for verdict in _SIGNS if verdict in found]


def _paragraphs(markdown: str) -> list[str]:
    """Return the paragraphs of a note without Markdown's marks and links."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("*", "").replace("`", "")
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


# --- one table of the paper -------------------------------------------------------------------------------------------


def _table_section(
    table: str, results: Sequence[Result], comparisons: Sequence[Comparison], notes: Notes, runs: Sequence[Run]
) -> Markup:
    keys = dict.fromkeys((one.table, one.cell, one.protocol) for one in results)
    tried = [{"cell": key[1], "protocol": key[2], "note": notes[key]} for key in keys if key in notes]
    if table == DEPTH_TABLE:
        body = _depth_body(runs)
    elif table == "ood":
        body = _ood_body(results, runs)
    else:
        lines = overview(results, comparisons)
        if table == "gnn":
            everything = aggregate(runs)
            lines = overview(results, comparisons, best_untrained(everything), without_column_sentences(everything))
        panels, shown = grouped(results, panel_title), _overview_table(lines)
        missing = missing_sentences(table, runs) if table in PLANNED_TABLES else []
        given_away = [one for one in lines if one.untrained is not None and one.untrained.mean >= one.lorentz.mean]
        values = {
            "verdict": _table_verdict(table, panels, lines),
            "remarks": [*missing, *untrained_sentences(results, given_away)],
            "overview": shown,
            "picture": _comparison_svg(results),
            "picture_is_folded": max(map(len, panels.values())) > _VISIBLE_ROWS
            or (len(results) < _FEWEST_ROWS * len(panels) if shown else len(panels) > _VISIBLE_PANELS),
            "results": _results_table(panels, comparisons),
            "rows": len(results),
            "summary": list(filter(None, _paragraphs(table_summary(results, lines)))),
        }
        body = Markup(_text().table_section(**values))
    return body + Markup(_text().tried(tried))


def _table_verdict(table: str, panels: Mapping[str, Sequence[Result]], lines: Sequence[CellLine]) -> str:
    """Return the sentence on one table; empty where there is nothing to compare."""
    finite = {own[0].cell: {one.name: one.mean for one in own if one.n} for own in panels.values()}
    if table == "runtime":
        return _runtime_verdict(panels)
    if table == UNTRAINED_TABLE:
        best = best_untrained(one for own in panels.values() for one in own)
        scores = [(untrained_cell_name(one), SCORE_LABELS[one.method], one.mean) for one in best.values()]
        return str(_text().untrained_verdict(scores)).strip()
    if table == "curvature":
        ranges = [(cell, max(means.values()) - min(means.values())) for cell, means in finite.items() if means]
        return str(_text().curvature_verdict(ranges)).strip()
    if table == "commutativity":
        one, other = "parallel_transport", "parallel_transport_reversed"
        both = [(cell, means) for cell, means in finite.items() if one in means and other in means]
        changes = [(cell, means[other] - means[one]) for cell, means in both]
        return str(_text().commutativity_verdict(changes)).strip() if changes else ""
    compared = [line for line in lines if line.best is not None]
    if not compared:
        return ""
    found = Counter(line.comparison.verdict for line in compared if line.comparison)
    counts = {"better": found["better"], "worse": found["worse"], "undecided": found["no difference shown"]}
    highest = sum(line.is_best for line in compared)
    return str(_text().lorentz_verdict(highest=highest, compared=len(compared), **counts)).strip()


def _runtime_verdict(panels: Mapping[str, Sequence[Result]]) -> str:
    """Return the time of the fastest form of each method as a multiple of the time of x + y."""
    sizes = []
    for cell, own in panels.items():
        fastest: dict[str, float] = {}
        for one in sorted(own, key=lambda one: method_key(one.name)):
            if one.n and "not synchronised" not in one.protocol:
                fastest[one.name] = min(one.mean, fastest.get(one.name, one.mean))
        sum_ = fastest.pop("euclidean", None)
        if sum_ is not None and fastest:
            ratios = [(name.replace("_", " "), time / sum_) for name, time in fastest.items()]
            sizes.append({"cell": cell, "ratios": ratios})
    return str(_text().runtime_verdict(sizes)).strip()


def _comparison_svg(results: Sequence[Result]) -> Markup:
    return inline_svg(comparison_picture(results), f"{results[0].table}: means of all methods with error bars")


def _depth_body(runs: Sequence[Run]) -> Markup:
    deepest = []
    for cell, own in all_runs_by_depth(runs).items():
        layers = depths_of(own)[-1]
        finite = {method: finite_values(by_depth.get(layers, [])).values() for method, by_depth in own.items()}
        means = {method: statistics.fmean(found) for method, found in finite.items() if found}
        if means:
            best = max(means, key=means.__getitem__)
            deepest.append({"method": shown_name(best), "cell": cell, "mean": means[best], "layers": layers})
    protocols = [
        {
            "name": name,
            "by_depth": inline_svg(depth_picture(runs, name), f"{name}: AUC, lead over none, runs not finite"),
            "by_layer": inline_svg(layers_picture(runs, None, name), f"{name}: norms, distances, gradients by layer"),
        }
        for name in depth_protocols(runs)
    ]
    values = {
        "verdict": str(_text().depth_verdict(deepest)).strip() if deepest else "",
        "picture": inline_svg(auc_picture(runs), "AUC by the number of layers"),
        "protocols": protocols,
        "reading": _paragraphs(render("notes/depth.md.j2")),
        "tables": _html_tables(depth_tables(runs)),
        "causes": _html_tables(depth_causes(runs)),
    }
    return Markup(_text().depth_section(**values))


def _ood_body(results: Sequence[Result], runs: Sequence[Run]) -> Markup:
    decided = family_verdicts(mean_detection_differences(first_protocol(ood_runs(runs))))
    counts = Counts.of(verdict for (_, other), verdict in decided.items() if other == "euclidean")
    values = {
        "verdict": str(_text().ood_verdict(**counts._asdict())).strip() if counts.total else "",
        "answers": ood_answers(runs),
        "picture": _comparison_svg(results),
        "reading": _paragraphs(ood_reading(runs)),
        "tables": _html_tables(ood_tables(runs)),
    }
    return Markup(_text().ood_section(**values))


def _html_tables(tables: Iterable[TextTable]) -> list[dict[str, Any]]:
    return [{"title": table.title, "table": _html_table(table)} for table in tables]


def _html_table(own: TextTable) -> Markup:
    """Return a table with a column for the sources where there are several."""
    sources = {row.source for row in own.rows} != {"ours"}
    rows = []
    for row in own.rows:
        is_lorentz = row.source == "ours" and row.name.startswith("lorentz")
        rows.append(Row(row.name, row.cells, (row.source,) if sources else (), is_lorentz))
    return html_table(Table(("method", *own.columns, *["source"] * sources), rows, own.note))


def _overview_table(lines: Sequence[CellLine]) -> Markup:
    """Return one row per cell for the Lorentz residual; empty where there is nothing to compare it with."""
    known, rows = has_paper_values([line.lorentz for line in lines]), []
    if not known and all(line.best is None for line in lines):
        return Markup()
    for line in lines:
        released = "" if line.released is None else str(line.released)
        best = "" if line.best is None else f"{line.best.label} {line.best.mean:.2f}"
        one = line.comparison
        against_best = Markup() if one is None else _verdict(one.verdict, f"{one.difference.mean:+.2f}")
        numbers = (our_value(line.lorentz), *[paper_value(line.lorentz), released] * known, best)
        rows.append(Row(line.cell, numbers, (*[_against_paper(line.lorentz)] * known, against_best)))
    columns = ("cell", "lorentz", *["paper", "released code"] * known, "best other")
    columns += (*["against the paper"] * known, "against the best other")
    caption = _text().overview_caption(known, released_notes(lines))
    return html_table(Table(columns, rows, Markup(" ").join(caption.split()), "overview")) if rows else Markup()


def _results_table(panels: Mapping[str, Sequence[Result]], comparisons: Sequence[Comparison]) -> Markup:
    paired = {(one.cell, one.protocol, one.method): one for one in comparisons}
    results = [one for own in panels.values() for one in own]
    known = has_paper_values(results)
    columns = ["method", "ours", "n", "valid.", *["paper"] * known, *["Lorentz minus it"] * bool(paired)]
    columns += [*["against the paper"] * known, *["Lorentz is"] * bool(paired)]
    rows: list[Row | Heading] = []
    for heading, own in panels.items():
        rows.append(Heading(heading))
        for one in own:
            comparison = paired.get((one.cell, one.protocol, one.name))
            numbers, texts = [our_value(one), one.runs, validation_text(one)], list[Markup]()
            if known:
                numbers.append(paper_value(one))
                texts.append(_against_paper(one))
            if paired:
                numbers.append("" if comparison is None else difference_text(comparison.difference))
                texts.append(
                    Markup() if comparison is None else _verdict(comparison.verdict, non_inferiority_text(comparison))
                )
            name = f"{one.name}, {one.protocol}" if one.table == "runtime" else one.label
            rows.append(Row(name, numbers, texts, one.method == "lorentz"))
    unit = unit_of(results[0].table)
    caption = _text().results_caption(unit, known, bool(paired))
    return html_table(Table(columns, rows, Markup(" ").join(caption.split())))


def _against_paper(result: Result) -> Markup:
    known = result.paper_mean is not None and result.n
    return _verdict(result.verdict, f"{result.mean - (result.paper_mean or 0.0):+.2f}" if known else "")


# --- claims and runs --------------------------------------------------------------------------------------------------


def _claims(claims: Sequence[Claim]) -> Markup:
    rows = [
        Row(
            Markup(_text().claim(claim.sentence, claim.evidence).strip()),
            (),
            (_verdict(claim.verdict), claim.topic.replace("_", " ")),
        )
        for claim in claims
    ]
    table = html_table(Table(("claim", "verdict", "about"), rows, "", "overview"))
    return Markup(_text().claims(len(claims), _counts(claim.verdict for claim in claims), table))


def _run_details(runs: Sequence[Run]) -> Markup:
    """Return commands, versions and hardware with their counts, and the runs of each cell."""
    final = [run for run in runs if run.get("stage", "final") == "final"]
    tables = [
        (table, [_run_group(*group) for group in grouped(own, lambda run: f"{run['cell']}, {run['protocol']}").items()])
        for table, own in grouped(final, lambda run: str(run["table"])).items()
    ]
    values = {
        "count": len(runs),
        "final": len(final),
        "time": computing_time(runs),
        "commands": _counted(runs, lambda run: str(run.get("command", "not recorded"))),
        "machines": _counted(runs, _machine),
        "tables": tables,
    }
    return Markup(_text().run_details(**values))


def _counted(runs: Sequence[Run], text: Callable[[Run], str]) -> Markup:
    counts = Counter(text(run) for run in runs)
    rows = [Row(Markup("<code>{}</code>").format(value), (f"{count:,}",)) for value, count in counts.items()]
    return html_table(Table(("", "runs"), rows, "", "overview"))


def _machine(run: Run) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run.get("versions", {}).items())
    return f"{versions or 'versions not recorded'}; {run.get('hardware', 'hardware not recorded')}"


def _run_group(title: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the settings of each method and a table with one row per run."""
    configs: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        configs.setdefault(run["method"], run.get("config", {}))
    columns = ("method", "seed", "split", "test", "validation", "best epoch", "seconds")
    settings = [(method, ", ".join(f"{k} {v}" for k, v in config.items())) for method, config in configs.items()]
    table = html_table(Table(columns, [_run_row(run) for run in runs]))
    return {"title": title, "count": len(runs), "settings": settings, "table": table}


def _run_row(run: Run) -> Row:
    numbers = (
        str(run["seed"]),
        "" if run.get("split") is None else str(run["split"]),
        "diverged" if run.get("value") is None else f"{run['value']:.4g}",
        "" if run.get("validation") is None else f"{run['validation']:.2f}",
        str(run.get("best_epoch", "")),
        "" if run.get("seconds") is None else f"{run['seconds']:.1f}",
    )
    return Row(run["method"], numbers)
