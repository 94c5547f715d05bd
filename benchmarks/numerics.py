"""Measure the rounding error of every residual and render docs/numerics.md from it.

    python benchmarks/numerics.py            # measure (about 20 s on a CPU), write results/numerics.jsonl, render
    python benchmarks/numerics.py --render   # render only

Inputs are rounded to the dtype under test; the reference is the exact result on the same rounded inputs (float64 for
float32, 50 digits for float64). An error is the largest geodesic distance to it, in units of the radius of curvature.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor

import lresnet
from lresnet.residual import registry

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from families import CURVATURES, FAMILIES, NORMS, exact_centroid, exact_distance, pairs  # noqa: E402

RESULTS, PAGE = ROOT / "results" / "numerics.jsonl", ROOT / "docs" / "numerics.md"
METHODS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    method.name: (resolve_name(method.function), resolve_name(method.textbook_function))
    for method in registry.METHODS.values()
    if method.function and method.textbook_function
}
NARROW = [
    ("float32", "lorentz"),
    ("bfloat16", "lorentz"),
    ("float32", "parallel_transport"),
    ("float32", "tangent"),
]

INTRODUCTION = """\
# Numerics: what float32 costs, measured

Rendered from `results/numerics.jsonl` by `make docs` (`{command}`; torch {torch}, {hardware}, {date}).

An error is the largest geodesic distance, in radii of curvature, to the exact result on the same rounded inputs (256
pairs in 16 dimensions for float32 and bfloat16 against float64; 8 pairs for float64 against 50 digits). *floor* is the
error of the exact result rounded to the dtype: no implementation can promise less. *textbook* is the published form:
the norm of the sum by subtraction for the Lorentz residual, exp and log with acosh for the others; nan where it gives
NaN or infinity. Bfloat16 is stored so and computed in float32, in both forms.

Pairs: *random* directions; *near*, y = x + 1e-3 |x| v; *equal*, y = x; *radial*, y = 1.5 x; *zero*, y = 0. Columns: the
norm of the space part.

Over all curvatures ({curvatures}), families and norms the Lorentz residual's error is at most {ratio:.1f} times the
floor (or below 3e-7), reached at K = {worst[K]:g}, {worst[family]}, norm {worst[norm]:g}; the textbook form's largest
is {lost:.0f} radii, i.e. no digit is left."""

MAPPING = """\
## Mapping error far from the origin, float32, K = -1

The paper's limitation (iv): going to a tangent space and back. Error of exp(log(y)) against y for random directions, at
the origin and at a point x of the same norm, and for scale the distance by which y moves when each coordinate changes
by one unit in the last place. At x most of the error is the rounding of the tangent vector itself, whose direction a
geodesic of that length magnifies: no formula takes it away. The Lorentz residual makes no such trip.

"""

PROMISES = """\
## What the tests hold us to

- Lorentz residual and centroid: at most 4 times the floor plus 3e-7 radii, in every family, norms 1e-3 to 1e4,
  K = -0.1, -1, -2, -10; exactly the point itself for equal points.
- `dist(x, x)` and `logmap(x, x)` are exactly 0; `dist(x, y)` and `dist(y, x)` are the same number.
- `dist` of points however near: within 6 units in the last place, relatively, and for two points on one ray within T
  more, T being the unitless time; its gradient has length 1 within 8 + T units.
- Gradients for near pairs up to norm 1e3 within 1e-4 of float64; finite for every pattern of zeros and subnormals, and
  up to norm 1e15 (Lorentz, space) and 1e8 (parallel transport, tangent) in float32.
- The normaliser is never below 1 + w, both as float32 numbers: no clamp and no eps in the residual.
- bfloat16 and float16 inputs are computed in float32 and rounded once at the end.

How: a point is its space part; norms of sums are sums of non-negative terms (`lresnet/geometry/pair.py`,
`chord.py`, `centroid.py`), maps work in the radial frame (`maps.py`), backward passes are closed forms in difference
vectors."""


def measure_against_float64(method: str, family: str, norm: float, K: float, dtype: torch.dtype) -> dict[str, float]:
    """Errors in a narrower dtype against float64 on 256 pairs in 16 dimensions."""
    ours, textbook = METHODS[method]
    M = lresnet.Lorentz(K)
    x, y = (p.to(dtype) for p in pairs(family, norm))
    exact = ours(x.double(), y.double(), K=K)

    def error(z: Tensor) -> float:
        d = M.dist(z.double(), exact) * math.sqrt(-K)
        return float(d.max()) if bool(d.isfinite().all()) else math.nan

    return {
        "ours": error(ours(x, y, K=K)),
        "floor": error(exact.to(dtype)),
        "textbook": error(textbook(x, y, K=K)),
    }


def measure_float64(family: str, norm: float, K: float) -> dict[str, float]:
    """Errors of the Lorentz residual in float64 against 50 digits on 8 pairs."""
    x, y = pairs(family, norm, count=8)
    ours, textbook = (function(x, y, K=K) for function in METHODS["lorentz"])
    errors: dict[str, float] = {"ours": 0.0, "floor": 0.0, "textbook": 0.0}
    for i in range(len(x)):
        exact = exact_centroid([x[i].tolist(), y[i].tolist()], [1.0, 1.0], -K)
        rounded = [float(c) for c in exact]
        for name, z in (("ours", ours[i].tolist()), ("floor", rounded), ("textbook", textbook[i].tolist())):
            errors[name] = max(errors[name], math.sqrt(-K) * exact_distance(z, exact, -K))
    return errors


def measure_mapping(norm: float, K: float) -> dict[str, float]:
    """exp(log(y)) at the origin and at x, float32, random directions: ours and geoopt's, and the rounding of y."""
    M = lresnet.Lorentz(K)
    G = lresnet.Lorentz(K).to_geoopt().float()
    x, y = (p.float() for p in pairs("random", norm))

    def error(z: Tensor) -> float:
        d = M.dist(z.double(), y.double()) * math.sqrt(-K)
        return float(d.max()) if bool(d.isfinite().all()) else math.nan

    X, Y = M.lift(x), M.lift(y)
    nudged = torch.nextafter(y, torch.full_like(y, math.inf))
    return {
        "origin, ours": error(M.expmap0(M.logmap0(y))),
        "origin, geoopt": error(G.expmap0(G.logmap0(Y))[..., 1:]),
        "at x, ours": error(M.expmap(x, M.logmap(x, y))),
        "at x, geoopt": error(G.expmap(X, G.logmap(X, Y))[..., 1:]),
        "one unit in the last place of y": error(nudged),
    }


def measure() -> None:
    """Write one line per cell."""
    stamp = {
        "table": "numerics",
        "command": "python benchmarks/numerics.py",
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "lresnet": lresnet.__version__},
        "hardware": f"CPU, {platform.machine()}",
        "date": dt.date.today().isoformat(),
    }
    rows: list[dict[str, object]] = []
    for K in CURVATURES:
        for norm in NORMS:
            for family in FAMILIES:
                where = {"family": family, "norm": norm, "K": K}
                for dtype, method in NARROW:
                    errors = measure_against_float64(method, family, norm, K, getattr(torch, dtype))
                    rows.append({"dtype": dtype, "method": method, **where, **errors})
                errors = measure_float64(family, norm, K)
                rows.append({"dtype": "float64", "method": "lorentz", **where, **errors})
            rows.append({"dtype": "float32", "method": "exp(log)", "norm": norm, "K": K, **measure_mapping(norm, K)})
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("".join(json.dumps({**stamp, **row}) + "\n" for row in rows))


def render() -> None:
    """docs/numerics.md from results/numerics.jsonl."""
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    parts = [_introduction(rows)]
    for dtype, method in [*NARROW, ("float64", "lorentz")]:
        title = f"## {method.replace('_', ' ').capitalize()} residual, {dtype}, K = -1"
        parts.append(f"{title}\n\n{_errors(rows, dtype, method)}")
    parts.append(_mapping(rows))
    parts.append(PROMISES)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n\n".join(parts) + "\n")


def _introduction(rows: list[dict[str, Any]]) -> str:
    cells = [r for r in rows if r["method"] == "lorentz" and r["dtype"] == "float32"]
    worst = max(cells, key=lambda r: (r["ours"] - 3e-7) / max(r["floor"], 1e-30))
    return INTRODUCTION.format(
        command=rows[0]["command"],
        hardware=rows[0]["hardware"],
        date=rows[0]["date"],
        torch=rows[0]["versions"]["torch"],
        curvatures=", ".join(f"{K:g}" for K in CURVATURES),
        ratio=worst["ours"] / worst["floor"],
        worst=worst,
        lost=max(r["textbook"] for r in cells if not math.isnan(r["textbook"])),
    )


def _errors(rows: list[dict[str, float]], dtype: str, method: str) -> str:
    chosen = {(r["family"], r["norm"]): r for r in rows if (r["dtype"], r["method"], r["K"]) == (dtype, method, -1.0)}
    lines = ["| pairs | | " + " | ".join(f"{norm:g}" for norm in NORMS) + " |", "|---|---|" + "---:|" * len(NORMS)]
    for family in FAMILIES:
        for kind in ("ours", "floor", "textbook"):
            cells = " | ".join(_number(chosen[family, norm][kind]) for norm in NORMS)
            lines.append(f"| {family if kind == 'ours' else ''} | {kind} | {cells} |")
    return "\n".join(lines)


def _mapping(rows: list[dict[str, Any]]) -> str:
    chosen = {r["norm"]: r for r in rows if r["method"] == "exp(log)" and r["K"] == -1.0}
    kinds = [k for k in chosen[NORMS[0]] if "ours" in k or "geoopt" in k or "unit" in k]
    lines = ["| exp(log(y)) | " + " | ".join(f"{norm:g}" for norm in NORMS) + " |", "|---|" + "---:|" * len(NORMS)]
    lines += [f"| {kind} | " + " | ".join(_number(chosen[norm][kind]) for norm in NORMS) + " |" for kind in kinds]
    return MAPPING + "\n".join(lines)


def _number(value: float) -> str:
    return (
        "nan" if math.isnan(value) else "0" if value == 0 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--render", action="store_true", help="render docs/numerics.md from results/numerics.jsonl only"
    )
    if not parser.parse_args().render:
        measure()
    render()
