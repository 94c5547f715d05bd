"""HTML page of a user's own runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from lresnet.plots.comparison import MethodResult, Panel, comparison_picture
from lresnet.plots.html.page import (
    Row,
    Section,
    Table,
    environment,
    html_page,
    html_table,
    html_verdict,
    inline_svg,
)
from lresnet.plots.poincare_disk import DiskEmbedding
from lresnet.runs.graph_search import changed_settings, read_trials
from lresnet.runs.report import (
    BASELINE,
    DeviceTime,
    FolderState,
    Report,
    RunGroup,
    RunRecord,
    computing_time,
    settings_of,
    shown,
    untrained_result,
)

__all__ = ["runs_page"]


def runs_page(report: Report, disk: DiskEmbedding | None = None) -> str:
    """Return the page: embedding, results with a picture, and the details of every run.

    Args:
        report: The runs, see :func:`lresnet.runs.report.read_report`.
        disk: Graph for the interactive Poincaré disk; None: no disk.
    """
    text: Any = environment().get_template("runs.html.j2").module
    counts = Counter(group.task for group in report.groups for _ in group.runs)
    sections = [Section("runs", "Runs", _details(report, text), "Run details")]
    if report.groups:
        sections.insert(0, Section("results", "Results", _results(report, text)))
    introduction = text.introduction(list(counts.items())).strip()
    return html_page(sections, disk, title="your runs", introduction=introduction, footer=text.footer().strip())


def _results(report: Report, text: Any) -> Markup:
    panels = [Panel(title, [_result(one) for one in own], own[0].metric) for title, own in report.tables.items()]
    has_bars = any(group.test.n > 1 for group in report.groups)
    unit = ", percent" if all(group.unit for group in report.groups) else ""
    picture = comparison_picture(panels, f"test{unit}; bars: one deviation" if has_bars else f"test{unit}")
    html: Markup = text.results(
        inline_svg(picture, "means of all methods with error bars"),
        [
            {"title": title, "verdict": _verdict(own), "table": _results_table(own, text)}
            for title, own in report.tables.items()
        ],
    )
    return html


def _verdict(groups: Sequence[RunGroup]) -> dict[str, Any]:
    """Return the values of the sentence above a table."""
    lower_is_better = not groups[0].unit
    best = (min if lower_is_better else max)(groups, key=lambda group: group.test.mean)
    found = Counter(group.difference.verdict for group in groups if group.difference is not None)
    counts = {"better": found["better"], "worse": found["worse"], "undecided": found["no difference shown"]}
    return {
        "best": best.name,
        "mean": f"{best.test.mean:{best.spec}}",
        "extreme": "lowest" if lower_is_better else "highest",
        "runs": best.test.n,
        "metric": best.metric,
        "methods": len(groups),
        "counts": counts | {"total": found.total()} if found else None,
    }


def _results_table(groups: Sequence[RunGroup], text: Any) -> Markup:
    compared = [group.difference for group in groups if group.difference is not None]
    rows = [_row(group, with_difference=bool(compared)) for group in groups]
    untrained = untrained_result(record for group in groups for record in group.records)
    if untrained is not None:
        numbers = [f"{untrained.test:.2f}", str(untrained.test.n), f"{untrained.validation.mean:.2f}"]
        empty = [""] if compared else []
        rows.append(Row(f"untrained: {untrained.label}", [*numbers, *empty], empty))
    caption = text.caption(BASELINE, bool(compared), any(one.resampled for one in compared), groups[0].unit)
    columns = ("method", "test", "n", "valid.", *(("difference", f"against {BASELINE}") if compared else ()))
    return html_table(Table(columns, rows, " ".join(caption.split()), "details" if compared else ""))


def _result(group: RunGroup) -> MethodResult:
    return MethodResult(group.name, group.method, group.test.mean, group.test.deviation if group.test.n > 1 else None)


def _row(group: RunGroup, *, with_difference: bool) -> Row:
    validation = f"{group.validation.mean:{group.spec}}" if group.validation.n else ""
    numbers = [f"{group.test:{group.spec}}", str(group.test.n), validation]
    if not with_difference:
        return Row(group.name, numbers, (), group.method == "lorentz")
    number, verdict = "", Markup()
    if group.difference is not None:
        number, verdict = f"{group.difference.estimate:+{group.spec}}", html_verdict(group.difference.verdict)
        if group.difference.settings:
            verdict = Markup("{} other settings: {}").format(verdict, group.difference.settings)
    return Row(group.name, [*numbers, number], [verdict], group.method == "lorentz")


def _details(report: Report, text: Any) -> Markup:
    records = report.records
    html: Markup = text.details(
        count=len(records),
        times=[_time(one) for one in computing_time(records)],
        commands=_counts(record.command for record in records),
        machines=_counts(map(_machine, records)),
        folders=html_table(Table(("folder", "state"), [_folder_row(one) for one in report.folders], "", "details")),
        not_evaluated=len(report.folders) - len(records),
        groups=[_group_details(title, own) for title, own in report.tables.items()],
    )
    return html


def _time(time: DeviceTime) -> dict[str, Any]:
    # 0.1 hours is at least 180 seconds.
    length = f"{time.seconds / 3600:.1f} hours" if time.seconds >= 180 else f"{time.seconds:.0f} seconds"
    return {"kind": time.kind, "length": length, "runs": time.runs, "hardware": ", ".join(time.hardware)}


def _counts(values: Iterable[str]) -> Markup:
    rows = [Row(Markup("<code>{}</code>").format(value), (f"{count:,}",)) for value, count in Counter(values).items()]
    return html_table(Table(("", "runs"), rows, "", "overview"))


def _machine(record: RunRecord) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    return f"{versions or 'versions not recorded'}; {record.hardware}"


def _folder_row(state: FolderState) -> Row:
    code = re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(state.state)))
    return Row(Markup("<code>{}</code>").format(state.folder), (), (Markup(code),))


def _group_details(title: str, groups: Sequence[RunGroup]) -> dict[str, Any]:
    """Return the settings of each group and a table of its runs."""
    columns = ("method", "seed", "split", "test", "validation", "best epoch", "seconds", "folder")
    rows = [_run_row(group, folder, record) for group in groups for folder, record in group.runs]
    settings = [(group.name, group.other_metrics, _settings(group.runs[0][1])) for group in groups]
    return {
        "title": title,
        "count": len(rows),
        "settings": settings,
        "table": html_table(Table(columns, rows)),
        "searches": [found for group in groups for folder, _ in group.runs if (found := _search(folder)) is not None],
    }


def _search(folder: Path) -> dict[str, Any] | None:
    """Return the trials of the search that chose the settings of a run; None: its settings were given."""
    trials = read_trials(folder)
    if not trials:
        return None
    rows = []
    for trial, changed in changed_settings(trials):
        words = ", ".join(f"{name} {shown(value)}" for name, value in changed.items())
        result = "diverged" if trial.validation is None else f"{trial.validation:.2f}"
        numbers = (result, str(trial.epochs), f"{trial.seconds:.1f}")
        rows.append(Row(str(trial.number), numbers, (words or ("the first settings" if trial is trials[0] else ""),)))
    columns = ("trial", "validation", "epochs", "seconds", "settings that differ from the first")
    return {"folder": folder, "count": len(trials), "table": html_table(Table(columns, rows, "", "details"))}


def _settings(record: RunRecord) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in settings_of(record).items())


def _run_row(group: RunGroup, folder: Path, record: RunRecord) -> Row:
    numbers = (
        str(record.seed),
        "" if record.split_index is None else str(record.split_index),
        f"{(record.metrics or {})[group.metric]:.4g}",
        "" if record.validation is None else f"{record.validation:{group.spec}}",
        str(record.best_epoch),
        "" if record.seconds is None else f"{record.seconds:.1f}",
    )
    return Row(group.name, numbers, (Markup("<code>{}</code>").format(folder),))
