"""The page docs/howto/convert_zoo.md, from ``results/conversion.jsonl``."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lresnet.train.results import read_results
from lresnet_paper.render import render

__all__ = ["conversion_page", "read_conversions", "read_hand_counts"]

Record = dict[str, Any]

_FAILED = ("wrong", "error", "cannot run")
_STATUSES = ("converted", "post-norm", "refused", "nothing to convert", *_FAILED)
_TOLERANCE = 0.05


def read_conversions(folder: Path) -> list[Record]:
    """Return the lines of ``conversion.jsonl`` in ``folder``.

    Raises:
        FileNotFoundError: there are none.
    """
    records = list(read_results(folder / "conversion.jsonl"))
    if not records:
        raise FileNotFoundError(f"no conversion.jsonl in {folder}; run `python benchmarks/convert_zoo.py` to write it")
    return records


def read_hand_counts(benchmarks: Path) -> dict[str, Record]:
    """Return ``conversion_truth.toml``: for each network the connections counted by hand, and why."""
    return tomllib.loads((benchmarks / "conversion_truth.toml").read_text(encoding="utf-8"))


def conversion_page(records: Sequence[Record], counts: Mapping[str, Record]) -> str:
    """Return the page: a summary by package, the networks counted by hand, and one table per package."""
    packages = list(dict.fromkeys(record["package"] for record in records))
    slopes = [record["slopes"] for record in records if record.get("slopes")]
    measured = [[one for one in row if one is not None] for row in slopes]
    counted = [record for record in records if "by_hand" in record]
    return render(
        "conversion.md.j2",
        command=records[0]["command"],
        hardware=records[0]["hardware"],
        date=max(record["date"] for record in records),
        torch=records[0]["versions"]["torch"],
        total=len(records),
        statuses=Counter(record["status"] for record in records),
        failed=[_row(record) for record in records if record["status"] in _FAILED],
        curved=len(slopes),
        all_decades=sum(len(row) == 4 and all(abs(one - 1) <= _TOLERANCE for one in row) for row in measured),
        last_decade=sum(bool(row) and abs(row[-1] - 1) <= _TOLERANCE for row in measured),
        below=[f"{r['package']} {r['name']}" for r in records if r.get("slopes_below") and r["status"] == "converted"],
        no_effect=sum(not row for row in measured),
        summary=[_summary(name, [one for one in records if one["package"] == name]) for name in packages],
        names=_STATUSES,
        counted=[_row(record) | _count(record, counts) for record in counted],
        verdicts=Counter(record["compared"] for record in counted),
        tables=[(name, [_row(one) for one in records if one["package"] == name]) for name in packages],
        versions=dict(sorted(_versions(records).items())),
    )


def _count(record: Record, counts: Mapping[str, Record]) -> Record:
    optional = f" (+{record['optional']})" if record["optional"] else ""
    why = counts.get(f"{record['package']}/{record['name']}", {}).get("why", "")
    verdict = "" if record["compared"] == "same" else f"{record['compared']}: "
    return {"by_hand": f"{record['by_hand']}{optional}", "verdict": verdict, "why": why.replace("|", "\\|")}


def _summary(package: str, records: Sequence[Record]) -> Record:
    statuses = Counter(record["status"] for record in records)
    return {"package": package, "total": len(records), "counts": [statuses[name] for name in _STATUSES]}


def _row(record: Record) -> Record:
    reasons = record.get("reasons", {})
    left = sum(count for reason, count in reasons.items() if not reason.startswith("post-norm"))
    problem = "; ".join(record.get("failures") or []) or record.get("reason", "")
    last = next((one for one in reversed(record.get("slopes") or []) if one is not None), None)
    return {
        "network": f"{record['package']} {record['name']}",
        "name": record["name"],
        "status": record["status"],
        "sums": record.get("sums", ""),
        "connections": record.get("connections", ""),
        "converted": record.get("converted", ""),
        "post_norm": record.get("post_norm", ""),
        "left": left if "sums" in record else "",
        "slope": "" if last is None else f"{last:.3f}",
        "problem": " ".join(problem.split()).replace("|", "\\|")[:200],
    }


def _versions(records: Sequence[Record]) -> dict[str, str]:
    return {name: version for record in records for name, version in record["versions"].items() if name != "python"}
