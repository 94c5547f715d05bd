"""What one residual connection costs beside x + y, on the CPU, one thread.

    python benchmarks/residual.py            # a table, and JSON lines with --json FILE

Every method runs in turn within each round (interleaved), process time, the median over rounds and its spread; ratios
to x + y of the same round. "geoopt" is the composition a user would write with that library today.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import lresnet
from lresnet import functional as F
from lresnet.residual import textbook

M = lresnet.Lorentz(-1.0)
G = M.to_geoopt().float()


def geoopt_parallel_transport(x: Tensor, y: Tensor) -> Tensor:
    """exp, transport and log of geoopt on time-first vectors; lifting and dropping included."""
    p, q = M.lift(x), M.lift(y)
    return G.expmap(p, G.transp0(p, G.logmap0(q)))[..., 1:]


METHODS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x + y": torch.add,
    "space": F.space_residual,
    "lorentz": F.lorentz_residual,
    "lorentz, textbook": textbook.lorentz_textbook,
    "parallel transport (boost)": F.parallel_transport_residual,
    "parallel transport, textbook": textbook.parallel_transport_textbook,
    "parallel transport, geoopt": geoopt_parallel_transport,
    "tangent": F.tangent_residual,
    "tangent, textbook": textbook.tangent_textbook,
}


def seconds(f: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, *, backward: bool) -> float:
    """Process time of one call, with or without its backward pass."""
    if backward:
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    start = time.process_time()
    z = f(x, y)
    if backward:
        z.backward(torch.ones_like(z))
    return time.process_time() - start


def measure(points: int, dimension: int, rounds: int) -> list[dict[str, object]]:
    """One row per method: median milliseconds and ratios to x + y, forward and forward + backward."""
    torch.set_num_threads(1)
    x, y = torch.randn(2, points, dimension).unbind(0)
    rows: list[dict[str, object]] = []
    for backward in (False, True):
        times: dict[str, list[float]] = {name: [] for name in METHODS}
        for round_ in range(rounds + 2):
            for name, f in METHODS.items():
                spent = seconds(f, x, y, backward=backward)
                if round_ >= 2:  # two rounds to warm up
                    times[name].append(spent)
        for name, spent in times.items():
            ratios = [a / b for a, b in zip(spent, times["x + y"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            rows.append(
                {
                    "method": name,
                    "pass": "forward + backward" if backward else "forward",
                    "points": points,
                    "dimension": dimension,
                    "milliseconds": 1e3 * statistics.median(spent),
                    "ratio": middle,
                    "ratio_quartiles": [low, high],
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--dimension", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", type=Path, help="also write the rows as JSON lines")
    options = parser.parse_args()
    rows = measure(options.points, options.dimension, options.rounds)
    table = Table(title=f"One residual, {options.points} x {options.dimension} float32, one CPU thread; ratio to x + y")
    for column in ("method", "pass", "ms", "ratio", "quartiles"):
        table.add_column(column, justify="left" if column in ("method", "pass") else "right")
    for row in rows:
        low, high = row["ratio_quartiles"]  # type: ignore[misc]
        cells = (f"{row['milliseconds']:.1f}", f"{row['ratio']:.1f}", f"{low:.1f} - {high:.1f}")  # type: ignore[has-type]
        table.add_row(str(row["method"]), str(row["pass"]), *cells)
    Console().print(table)
    if options.json:
        options.json.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
