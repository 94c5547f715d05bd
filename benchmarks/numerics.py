"""Measure the rounding error of every residual and render docs/performance/numerics.md from it.

    python benchmarks/numerics.py            # measure (about 20 s on a CPU), write results/numerics.jsonl, render
    python benchmarks/numerics.py --render   # render only

Inputs are rounded to the dtype under test. The reference is the exact result for the same rounded inputs: float64 for
float32 and bfloat16, 50 digits for float64. An error is the largest geodesic distance to it, in units of the radius of
curvature.
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

import torch
from torch import Tensor

import lresnet
from lresnet.residual import registry
from lresnet_paper.pages.numerics import TABLES, numerics_page, read_numerics

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from families import CURVATURES, FAMILIES, NORMS, exact_centroid, exact_distance, pairs  # noqa: E402

RESULTS, PAGE = ROOT / "results" / "numerics.jsonl", ROOT / "docs" / "performance" / "numerics.md"
METHODS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    method.name: (resolve_name(method.function), resolve_name(method.textbook_function))
    for method in registry.METHODS.values()
    if method.function and method.textbook_function
}


def measure_against_float64(method: str, family: str, norm: float, K: float, dtype: torch.dtype) -> dict[str, float]:
    """Return the errors in a narrower dtype against float64, on 256 pairs in 16 dimensions."""
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
    """Return the errors of the Lorentz residual in float64 against 50 digits, on 8 pairs."""
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
    """Return the errors of exp(log(y)) at the origin and at x in float32, ours and geoopt's, and the rounding of y."""
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
    """Write one line per dtype, method, family, norm and curvature."""
    stamp = {
        "table": "numerics",
        "command": "python benchmarks/numerics.py",
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "lresnet": lresnet.__version__},
        "hardware": f"CPU, {platform.machine()}",
        "date": dt.date.today().isoformat(),
    }
    narrow = [(dtype, method) for dtype, method in TABLES if dtype != "float64"]
    rows: list[dict[str, object]] = []
    for K in CURVATURES:
        for norm in NORMS:
            for family in FAMILIES:
                where = {"family": family, "norm": norm, "K": K}
                for dtype, method in narrow:
                    errors = measure_against_float64(method, family, norm, K, getattr(torch, dtype))
                    rows.append({"dtype": dtype, "method": method, **where, **errors})
                errors = measure_float64(family, norm, K)
                rows.append({"dtype": "float64", "method": "lorentz", **where, **errors})
            rows.append({"dtype": "float32", "method": "exp(log)", "norm": norm, "K": K, **measure_mapping(norm, K)})
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("".join(json.dumps({**stamp, **row}) + "\n" for row in rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--render",
        action="store_true",
        help="render docs/performance/numerics.md from results/numerics.jsonl, without measuring",
    )
    if not parser.parse_args().render:
        measure()
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(numerics_page(read_numerics(RESULTS.parent)))
