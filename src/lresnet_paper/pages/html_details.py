"""What was run, with what, and where: the details of every final run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from lresnet_paper.pages.computing_time import computing_time

__all__ = ["run_details"]

Record = Mapping[str, Any]
_SEARCH = "on validation data and on other seeds"


def run_details(runs: Sequence[Record]) -> Markup:
    """Commands, versions and hardware with their counts, then a foldable list for each table and cell."""
    final = [run for run in runs if run.get("stage", "final") == "final"]
    groups: dict[str, list[Record]] = {}
    for run in final:
        groups.setdefault(f"{run['table']}, {run['cell']}, {run['protocol']}", []).append(run)
    others = "" if len(final) == len(runs) else f", {len(final):,} of them final; the others are the search, {_SEARCH}"
    facts = [
        f"<p>{_number(len(runs), 'run')}{others}. {escape(computing_time(runs))}</p>",
        _folded("Commands", _counted(runs, lambda run: run.get("command", "not recorded"))),
        "<h3>Versions and hardware</h3>" + _counted(runs, _machine),
    ]
    return Markup("\n".join([*facts, *(_group(name, own) for name, own in groups.items())]))


def _machine(run: Record) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run.get("versions", {}).items())
    return f"{versions or 'versions not recorded'}; {run.get('hardware', 'hardware not recorded')}"


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("s" if count != 1 else "")


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{title}</summary>{text}</details>"


def _counted(runs: Sequence[Record], name: Callable[[Record], str]) -> str:
    counts = Counter(name(run) for run in runs)
    rows = "".join(
        f'<tr><td class="number">{count:,}</td><td><code>{escape(what)}</code></td></tr>'
        for what, count in counts.items()
    )
    head = '<thead><tr><th scope="col" class="number">runs</th><th scope="col"></th></tr></thead>'
    return f'<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div>'


def _group(name: str, runs: Sequence[Record]) -> str:
    """The chosen settings of each method, and a row a run."""
    settings: dict[str, dict[str, Any]] = {}
    for run in runs:
        settings.setdefault(run["method"], run.get("config", {}))
    chosen = "".join(
        f"<dt>{escape(method)}</dt><dd><code>{escape(_settings(config))}</code></dd>"
        for method, config in settings.items()
    )
    columns = ("method", "seed", "split", "test", "validation", "best epoch", "seconds")
    heads = "".join(f'<th scope="col"{" class=number" if k else ""}>{c}</th>' for k, c in enumerate(columns))
    rows = "".join(_run_row(run) for run in runs)
    table = f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    title = f"{escape(name)}: {_number(len(runs), 'final run')}"
    return _folded(title, f"<dl>{chosen}</dl>{table}")


def _settings(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in config.items()) or "not recorded"


def _run_row(run: Record) -> str:
    value = "diverged" if run.get("value") is None else f"{run['value']:.4g}"
    validation = run.get("validation")
    shown = (
        str(run["seed"]),
        "" if run.get("split") is None else str(run["split"]),
        value,
        "" if validation is None else f"{validation:.2f}",
        str(run.get("best_epoch", "")),
        "" if run.get("seconds") is None else f"{run['seconds']:.1f}",
    )
    cells = "".join(f'<td class="number">{escape(text)}</td>' for text in shown)
    return f'<tr><th scope="row">{escape(run["method"])}</th>{cells}</tr>'
