"""A training epoch of lorentz_gcn beside PyG's GCN of the same depth and width: one CPU thread, process time.

    python benchmarks/graphs.py            # disease/lp, airport/lp and cora/nc where their files are found

An epoch is forward, loss (negatives drawn afresh), backward and optimiser step; no validation. All contenders take
turns in every round, the median is reported and the ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch_geometric.nn
from rich.console import Console
from rich.table import Table

from lresnet.data import LinkTask, NegativeSampler, NodeTask, load_task
from lresnet.models import LorentzGCN
from lresnet.nn.pair_distance import lorentz_distance2, margin_loss
from lresnet.optim import make_adam
from lresnet.studies import METHODS
from lresnet.train import LinkPrediction, NodeClassification

CELLS = {"disease/lp": 0.0, "airport/lp": 0.0, "cora/nc": 0.5}  # cell: dropout
LAYERS, WIDTH = 3, 16


def ours(task: LinkTask | NodeTask, method: str, dropout: float) -> Callable[[], None]:
    """One epoch of our engine's step."""
    classes = task.num_classes if isinstance(task, NodeTask) else None
    model = LorentzGCN(task.x.shape[1], WIDTH, LAYERS, classes, residual=method, dropout=dropout, activation="relu")
    objective = LinkPrediction(task) if isinstance(task, LinkTask) else NodeClassification(task)
    optimizers = make_adam(model, lr=0.01)

    def epoch() -> None:
        optimizers.zero_grad()
        objective.loss(model).backward()
        optimizers.step()

    return epoch


def pyg(task: LinkTask | NodeTask, dropout: float) -> Callable[[], None]:
    """The same epoch as a user of PyG would write it, with its GCN and torch's Adam."""
    out = task.num_classes if isinstance(task, NodeTask) else WIDTH
    model = torch_geometric.nn.GCN(task.x.shape[1], WIDTH, LAYERS, out, dropout=dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = NegativeSampler(task, seed=0) if isinstance(task, LinkTask) else None

    def epoch() -> None:
        optimizer.zero_grad()
        z = model(task.x, task.edge_index)
        if isinstance(task, LinkTask) and sampler is not None:
            positive = task.train_edges
            pairs = torch.cat([positive, sampler()], dim=1)
            d2 = lorentz_distance2(z, pairs, None)
            loss = margin_loss(d2[: positive.shape[1]], d2[positive.shape[1] :], 2.0)
        else:
            loss = torch.nn.functional.cross_entropy(z[task.train_index], task.y[task.train_index])
        loss.backward()
        optimizer.step()

    return epoch


def measure(contenders: dict[str, Callable[[], None]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median milliseconds and median ratio to the last contender."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(rounds + 5):
        for name, epoch in contenders.items():
            start = time.process_time()
            epoch()
            if round_ >= 5:
                times[name].append(1e3 * (time.process_time() - start))
    base = times[list(contenders)[-1]]
    return {
        name: (statistics.median(t), statistics.median(a / b for a, b in zip(t, base, strict=True)))
        for name, t in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--cells", nargs="*", default=list(CELLS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title=f"Training epoch, {LAYERS} layers, width {WIDTH}, one CPU thread, process time")
    for column in ("cell", "model", "ms", "ratio to PyG's GCN"):
        table.add_column(column, justify="left" if column in ("cell", "model") else "right")
    for cell in options.cells:
        task = load_task(cell, split="legacy" if cell in CELLS else None)
        contenders = {f"lorentz_gcn, {m}": ours(task, m, CELLS.get(cell, 0.0)) for m in METHODS}
        contenders["PyG GCN"] = pyg(task, CELLS.get(cell, 0.0))
        for name, (milliseconds, ratio) in measure(contenders, options.rounds).items():
            table.add_row(cell, name, f"{milliseconds:.2f}", f"{ratio:.2f}")
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
