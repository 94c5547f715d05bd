"""The page docs/performance/numerics.md, from ``results/numerics.jsonl``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lresnet.train.results import read_results
from lresnet_paper.render import render

__all__ = ["TABLES", "numerics_page", "read_numerics", "worst_case"]

Record = dict[str, Any]

TABLES = (
    ("float32", "lorentz"),
    ("bfloat16", "lorentz"),
    ("float32", "parallel_transport"),
    ("float32", "tangent"),
    ("float64", "lorentz"),
)
"""The tables of the page by dtype and method."""

_TOLERANCE = 3e-7  # errors below it are not compared with the floor
_SMALLEST = 1e-30  # stands for a floor of 0


def read_numerics(folder: Path) -> list[Record]:
    """Return the lines of ``numerics.jsonl`` in ``folder``.

    Raises:
        FileNotFoundError: there are none.
    """
    records = list(read_results(folder / "numerics.jsonl"))
    if not records:
        raise FileNotFoundError(f"no numerics.jsonl in {folder}; run `python benchmarks/numerics.py` to write it")
    return records


def numerics_page(records: Sequence[Record]) -> str:
    """Return the page: a table for each dtype and method at K = -1, and the worst case over all curvatures."""
    norms = list(dict.fromkeys(record["norm"] for record in records))
    worst = worst_case(records)
    return render(
        "numerics.md.j2",
        command=records[0]["command"],
        torch=records[0]["versions"]["torch"],
        hardware=records[0]["hardware"],
        date=records[0]["date"],
        curvatures=[f"{K:g}" for K in dict.fromkeys(record["K"] for record in records)],
        worst=worst,
        textbook_error=worst["textbook"],
        norms=[f"{norm:g}" for norm in norms],
        tables=[_table(records, norms, dtype, method) for dtype, method in TABLES],
        mapping=_mapping_rows(records, norms),
    )


def worst_case(records: Sequence[Record]) -> dict[str, str]:
    """Return where the error of the Lorentz residual in float32 is largest relative to the floor, as text.

    ``ratio`` is that error over the floor, and ``textbook`` the largest error of the published form, in radii.
    """
    narrow = [r for r in records if r["method"] == "lorentz" and r["dtype"] == "float32"]
    worst = max(narrow, key=lambda r: (r["ours"] - _TOLERANCE) / max(r["floor"], _SMALLEST))
    return {
        "ratio": f"{worst['ours'] / worst['floor']:.1f}",
        "K": f"{worst['K']:g}",
        "family": worst["family"],
        "norm": f"{worst['norm']:g}",
        "textbook": f"{max(r['textbook'] for r in narrow if not math.isnan(r['textbook'])):.0f}",
    }


def _table(records: Sequence[Record], norms: Sequence[float], dtype: str, method: str) -> dict[str, Any]:
    own = [r for r in records if (r["dtype"], r["method"], r["K"]) == (dtype, method, -1.0)]
    errors = {(r["family"], r["norm"]): r for r in own}
    rows = []
    for family in dict.fromkeys(r["family"] for r in own):
        for kind in ("ours", "floor", "textbook"):
            texts = [_error_text(errors[family, norm][kind]) for norm in norms]
            rows.append({"pairs": family if kind == "ours" else "", "kind": kind, "errors": texts})
    return {"method": method.replace("_", " ").capitalize(), "dtype": dtype, "rows": rows}


def _mapping_rows(records: Sequence[Record], norms: Sequence[float]) -> list[dict[str, Any]]:
    own = {r["norm"]: r for r in records if r["method"] == "exp(log)" and r["K"] == -1.0}
    kinds = [key for key in own[norms[0]] if "ours" in key or "geoopt" in key or "unit" in key]
    return [{"kind": kind, "errors": [_error_text(own[norm][kind]) for norm in norms]} for kind in kinds]


def _error_text(value: float) -> str:
    """Return an error with one digit.

    Example:
        >>> _error_text(2.4e-7), _error_text(0.0), _error_text(12.0)
        ('2e-7', '0', '1e1')
    """
    if math.isnan(value):
        return "nan"
    return "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
