"""Measure memory, time and error of all pairwise distances, [N, M] without [N, M, n], and of the neighbour search.

    python benchmarks/pairwise.py --results results                  # about two minutes on one core
    python benchmarks/pairwise.py --device cuda --results results

Float32 points in 16 dimensions, curvature -1, norms from 0.01 to 100. A quarter of the rows of y equal the row of x, a
quarter are near it (a step of 1e-3 of its norm), a quarter lie on its ray, and a quarter are random.

Every measurement runs in a fresh process with one thread. Memory is the peak of the process, and the peak above what
is in use before, which does not count Python and torch. On a GPU it is allocated memory. Seconds are process time on
a CPU. Errors are relative, against 50 digits, over 400 pairs of equal rows and 100 others, without equal points. The
forms:

- pairwise_dist: float64 matrix products in blocks of rows on a CPU; one kernel on CUDA.
- pairwise_dist, backward: the same, and the gradients of the sum of the distances in x and y.
- Lorentz.dist, broadcast, and geoopt, broadcast: the distance of pairs, on [N, 1, n] and [1, M, n].
- float32 product: acosh of the Lorentzian inner product by one float32 matrix product, the textbook form.
- NearestNeighbours: the 10 nearest of every point of x among y. Its error is the share of wrong neighbours, against
  sorting float64 distances of 200 queries.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import geoopt
import torch
from torch import Tensor

from lresnet import Lorentz
from lresnet.geometry import NearestNeighbours, pairwise_dist
from lresnet.train.results import append_result, environment
from lresnet_paper.bench.memory import peak_resident, print_json, process_result, resident, start_process

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from families import exact_distance  # noqa: E402

DIMENSION = 16
NEIGHBOURS = 10


def points(count: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    norms = 10 ** (4 * torch.rand(count, 1, generator=g) - 2)
    x, step, other = (torch.nn.functional.normalize(torch.randn(count, DIMENSION, generator=g)) for _ in range(3))
    x = norms * x
    kinds = torch.arange(count).unsqueeze(1) % 4
    y = torch.where(kinds == 0, x, x + 1e-3 * norms * step)
    y = torch.where(kinds == 2, 1.5 * x, y)
    return x, torch.where(kinds == 3, norms.flip(0) * other, y)


def backward(x: Tensor, y: Tensor) -> Tensor:
    d = pairwise_dist(x.requires_grad_(), y.requires_grad_())
    d.sum().backward()
    return d.detach()


def broadcast(x: Tensor, y: Tensor) -> Tensor:
    return Lorentz().dist(x.unsqueeze(1), y.unsqueeze(0))


def geoopt_broadcast(x: Tensor, y: Tensor) -> Tensor:
    M = Lorentz()
    d: Tensor = geoopt.Lorentz(k=1.0).to(x.device).dist(M.lift(x).unsqueeze(1), M.lift(y).unsqueeze(0))
    return d


def product(x: Tensor, y: Tensor) -> Tensor:
    M = Lorentz()
    inner = M.time(x).unsqueeze(1) * M.time(y) - x @ y.mT
    return inner.clamp_(min=1.0).acosh_()


def search(x: Tensor, y: Tensor) -> Tensor:
    return NearestNeighbours(y).query(x, NEIGHBOURS).indices


FORMS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...]]] = {
    "pairwise_dist": (pairwise_dist, (2_000, 20_000)),
    "pairwise_dist, backward": (backward, (2_000, 20_000)),
    "Lorentz.dist, broadcast": (broadcast, (2_000,)),
    "geoopt, broadcast": (geoopt_broadcast, (2_000,)),
    "float32 product": (product, (2_000, 20_000)),
    "NearestNeighbours": (search, (2_000, 20_000)),
}


def measured(form: str, count: str, device: str) -> None:
    """Print memory, seconds and error of one form."""
    print_json(lambda: measure(form, int(count), torch.device(device)))


def measure(form: str, count: int, device: torch.device) -> dict[str, float]:
    torch.set_num_threads(1)
    compute = FORMS[form][0]
    compute(*(t.to(device) for t in points(64)))  # loads what the first call loads
    host = points(count)
    x, y = (t.to(device) for t in host)
    if device.type == "cuda":
        compute(x, y)  # compiles the kernels
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, start = torch.cuda.memory_allocated(), time.perf_counter()
        result = compute(x, y)
        torch.cuda.synchronize()
        seconds, peak = time.perf_counter() - start, torch.cuda.max_memory_allocated()
    else:
        before, start = resident(), time.process_time()
        result = compute(x, y)
        seconds, peak = time.process_time() - start, peak_resident()
    figures = {"seconds": seconds, "peak_bytes": peak, "peak_bytes_above_start": peak - before}
    error = wrong_neighbours if result.dtype == torch.int64 else worst_error
    return figures | error(*host, result)


def worst_error(x: Tensor, y: Tensor, d: Tensor) -> dict[str, float]:
    g = torch.Generator().manual_seed(1)
    own = torch.randperm(len(x), generator=g)[:400]
    i = torch.cat([own, torch.randint(len(x), (100,), generator=g)])
    j = torch.cat([own, torch.randint(len(y), (100,), generator=g)])
    exact = [exact_distance(x[a].tolist(), y[b].tolist(), 1.0) for a, b in zip(i, j, strict=True)]
    got = d[i.to(d.device), j.to(d.device)].detach().cpu().double()
    equal = (x[i] == y[j]).all(1)
    right = torch.tensor(exact, dtype=torch.float64)
    relative = ((got - right).abs() / right)[~equal]
    return {"relative_error": float(relative.max()), "distance_of_equal_points": float(got[equal].max())}


def wrong_neighbours(x: Tensor, y: Tensor, found: Tensor) -> dict[str, float]:
    rows = torch.arange(0, len(x), len(x) // 200)
    M = Lorentz()
    order = [M.dist(x[i].double(), y.double()).argsort(stable=True)[:NEIGHBOURS] for i in rows.tolist()]
    return {"wrong_share": float((found[rows.to(found.device)].cpu() != torch.stack(order)).double().mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    command = shlex.join(["python", "benchmarks/pairwise.py", *sys.argv[1:]])
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    for form, (_compute, counts) in FORMS.items():
        for count in counts:
            asked = form, count, arguments.device
            figures = process_result(start_process("pairwise", "measured", *asked, environment={"PYTHONPATH": path}))
            line = {"benchmark": "pairwise", "form": form, "points": count, "dimension": DIMENSION} | figures
            if "missing" in figures:
                print(f"{form:26} {count:6} x {count}: {figures['missing']}")
            else:
                error = figures.get("relative_error", figures.get("wrong_share"))
                size = f"{figures['peak_bytes'] / 2**30:.2f} GiB peak, {figures['peak_bytes_above_start'] / 2**30:.2f}"
                print(
                    f"{form:26} {count:6} x {count}: {figures['seconds']:6.2f} s, {size} above start, error {error:.1e}"
                )
            if arguments.results:
                record = line | {"command": command} | environment(arguments.device)
                append_result(arguments.results / "pairwise.jsonl", record)


if __name__ == "__main__":
    main()
