"""Graphs that were not used to develop lresnet: `lresnet train` without settings against PyG's GCN, GraphSAGE and GAE.

    python benchmarks/own_graphs.py FOLDER [--seeds 5] [--search 60s] [--workers 2] [--out own_graphs.jsonl]
    python benchmarks/own_graphs.py --table own_graphs.jsonl

FOLDER holds the graphs below, from public repositories; graphs that are missing are left out. Both sides have the same
split and choose the epoch (lresnet also the trial) on validation data. A seed is a random link split, an official node
split if there are several, and the parameters otherwise.

- node: citeseer (planetoid/ind.citeseer.*, public split, accuracy), minesweeper.npz (ROC AUC) and wisconsin.npz
  (accuracy) of the heterophilous-graphs repository;
- link: web-edu.edges, grqc.edges and bio-diseasome.edges (ROC AUC, no features), 85 / 5 / 10 % of the edges.

The baselines have their published recipes. GCN: 2 layers, width 16, dropout 0.5, weight decay 5e-4 on the first layer,
lr 0.01, 200 epochs (Kipf and Welling). GraphSAGE: PyG's example, 2 layers, width 64, dropout 0.5, lr 0.01, weight decay
5e-4, 200 epochs. GCN and GraphSAGE "deep": 5 layers of width 512 with residual connections, layer norm, feed-forward
layers and dropout 0.2, lr 3e-5, 1,000 epochs (Platonov et al., ICLR 2023), for minesweeper, whose authors published
them. GAE: GCN encoder of widths 32 and 16, inner products, lr 0.01, 200 epochs (Kipf and Welling).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

GRAPHS: dict[str, tuple[str, str, str | None]] = {
    "citeseer": ("node", "planetoid", None),
    "minesweeper": ("node", "minesweeper.npz", "roc_auc"),
    "wisconsin": ("node", "wisconsin.npz", None),
    "web-edu": ("link", "web-edu.edges", None),
    "grqc": ("link", "grqc.edges", None),
    "bio-diseasome": ("link", "bio-diseasome.edges", None),
}
BASELINES = {
    "node": ("GCN", "GraphSAGE"),
    "link": ("GAE",),
    "minesweeper": ("GCN", "GraphSAGE", "GCN deep", "GraphSAGE deep"),
}


def source_of(name: str, folder: Path) -> Path:
    """Return the file that `lresnet train` reads; CiteSeer is converted from Planetoid's pickles."""
    file = folder / GRAPHS[name][1]
    if name != "citeseer":
        return file
    from torch_geometric.io import read_planetoid_data

    target = Path(tempfile.mkdtemp()) / "citeseer.npz"
    data = read_planetoid_data(str(file), "citeseer")
    masks = {f"{part}_mask": data[f"{part}_mask"].numpy() for part in ("train", "val", "test")}
    np.savez(target, edge_index=data.edge_index.numpy(), x=data.x.numpy(), y=data.y.numpy(), **masks)
    return target


def task_of(name: str, folder: Path, seed: int) -> Any:
    """Return the task with the split that `lresnet train` makes for this seed."""
    from lresnet.data import link_task, node_task, read_graph

    kind, _, metric = GRAPHS[name]
    graph = read_graph(source_of(name, folder))
    if kind == "link":
        return link_task(graph, seed=seed)
    several = any(mask.dim() == 2 for mask in graph.masks.values())
    return node_task(graph, split=seed if several else None, seed=seed, metric=metric or "accuracy")


def ours(name: str, folder: Path, seed: int, search: str) -> dict[str, Any]:
    """Train by the command line, without settings, and evaluate."""
    from lresnet.cli import main as lresnet
    from lresnet.data import read_graph
    from lresnet.runs.graph_search import read_trials
    from lresnet.runs.run import Run

    kind, _, metric = GRAPHS[name]
    source, out = source_of(name, folder), Path(tempfile.mkdtemp())
    words = ["train", str(source), "--task", kind, "--seed", str(seed), "--search", search, "--device", "cpu"]
    words += ["--metric", metric] if metric else []
    if any(mask.dim() == 2 for mask in read_graph(source).masks.values()):
        words += ["--split", str(seed)]
    if lresnet([*words, "--out", str(out)]):
        raise RuntimeError(f"lresnet {' '.join(words)} failed")
    run = Run.open(out, device="cpu")
    ended = len(read_trials(out))
    return {"value": next(iter(run.evaluate().values())), "trials": ended, "chosen": run.record.command}


class Deep(torch.nn.Module):
    """Residual blocks of the heterophilous-graphs paper: x + MLP(conv(norm(x)))."""

    def __init__(self, inputs: int, classes: int, sage: bool, width: int = 512, layers: int = 5) -> None:
        super().__init__()
        self.sage = sage
        self.first, self.last = torch.nn.Linear(inputs, width), torch.nn.Linear(width, classes)
        wide = 2 * width if sage else width
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(layers))
        self.up = torch.nn.ModuleList(torch.nn.Linear(wide, width) for _ in range(layers))
        self.down = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x: Tensor, A: Tensor) -> Tensor:
        def drop(z: Tensor) -> Tensor:
            return F.dropout(z, 0.2, self.training)

        x = F.gelu(drop(self.first(x)))
        for norm, up, down in zip(self.norms, self.up, self.down, strict=True):
            z = norm(x)
            z = torch.cat([z, A @ z], dim=1) if self.sage else A @ z
            x = x + drop(down(F.gelu(drop(up(z)))))
        return self.last(self.norm(x))


def baseline(name: str, method: str, folder: Path, seed: int, device: str) -> dict[str, Any]:
    from torch_geometric.nn import GAE, GCNConv, SAGEConv
    from torch_geometric.utils import add_self_loops, degree, to_torch_csr_tensor

    from lresnet.metrics import link_metric, node_metric

    task = task_of(name, folder, seed).to(device)
    torch.manual_seed(seed)
    x = task.x.to_dense() if task.x.is_sparse else task.x
    edges, n, width = task.edge_index, task.num_nodes, x.shape[1]
    best, test = -math.inf, 0.0
    if method == "GAE":
        first, second = GCNConv(width, 32).to(device), GCNConv(32, 16).to(device)
        model: torch.nn.Module = torch.nn.ModuleList([first, second])
        gae = GAE(torch.nn.Identity())

        def encode() -> Tensor:
            return second(first(x, edges).relu(), edges)  # type: ignore[no-any-return]

        def loss() -> Tensor:
            z = encode()
            return gae.recon_loss(z, task.train_edges)  # type: ignore[no-any-return]

        def scores(part: str) -> float:
            z = encode()
            pairs = [getattr(task, f"{part}_{kind}") for kind in ("edges", "negatives")]
            return float(link_metric("roc_auc")(*((z[p[0]] * z[p[1]]).sum(-1) for p in pairs)))

        groups: Any = [{"params": model.parameters()}]
        lr, epochs = 0.01, 200
    else:
        metric, classes = node_metric(task.metric), task.num_classes
        if "deep" in method:
            model = Deep(width, classes, sage="SAGE" in method).to(device)
            looped, _ = add_self_loops(edges, num_nodes=n)
            graph = edges if "SAGE" in method else looped
            inverse = 1 / degree(graph[1], n).clamp(min=1)
            A = to_torch_csr_tensor(graph.flip(0), inverse[graph[1]], size=(n, n))
            call: Callable[[], Tensor] = lambda: model(x, A)  # noqa: E731
            groups, lr, epochs = [{"params": model.parameters()}], 3e-5, 1000
        else:
            conv, hidden = (GCNConv, 16) if method == "GCN" else (SAGEConv, 64)
            layers = torch.nn.ModuleList([conv(width, hidden), conv(hidden, classes)]).to(device)
            model = layers

            def call() -> Tensor:
                z = layers[0](F.dropout(x, 0.5, model.training), edges).relu()
                return layers[1](F.dropout(z, 0.5, model.training), edges)  # type: ignore[no-any-return]

            decays = (5e-4, 0.0) if method == "GCN" else (5e-4, 5e-4)
            groups = [
                {"params": layer.parameters(), "weight_decay": d} for layer, d in zip(layers, decays, strict=True)
            ]
            lr, epochs = 0.01, 200

        def loss() -> Tensor:
            return F.cross_entropy(call()[task.train_index], task.y[task.train_index])

        def scores(part: str) -> float:
            index = getattr(task, f"{part}_index")
            return float(metric(call()[index], task.y[index]))

    optimizer = torch.optim.Adam(groups, lr=lr)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            if (value := scores("val")) > best:
                best, test = value, scores("test")
    return {"value": 100 * test}


def run_one(job: tuple[str, str, Path, int, str, str]) -> dict[str, Any]:
    name, method, folder, seed, search, device = job
    started = time.perf_counter()
    own = method == "lresnet"
    found = ours(name, folder, seed, search) if own else baseline(name, method, folder, seed, device)
    seconds = round(time.perf_counter() - started, 1)
    return {"graph": name, "method": method, "seed": seed, "search": search, "seconds": seconds} | found


def table(rows: list[dict[str, Any]]) -> None:
    """Print means and deviations, and the paired difference to the better baseline."""
    heads = "at least the baseline - 1 s.e."
    print(f"{'graph':<14} {'task':<5} {'lresnet':>14} {'better baseline':>32} {'difference':>22}  {heads}")
    held = 0
    for name, (kind, _, _) in GRAPHS.items():
        values = {
            method: {row["seed"]: row["value"] for row in rows if row["graph"] == name and row["method"] == method}
            for method in ("lresnet", *BASELINES.get(name, BASELINES[kind]))
        }
        if not values["lresnet"] or not all(values.values()):
            continue
        own = values.pop("lresnet")
        best = max(values, key=lambda method: statistics.mean(values[method].values()))
        seeds = sorted(own.keys() & values[best].keys())
        differences = np.array([own[seed] - values[best][seed] for seed in seeds])
        error = float(differences.std(ddof=1) / math.sqrt(len(seeds))) if len(seeds) > 1 else math.nan
        low, high = stats.t.interval(0.95, len(seeds) - 1, differences.mean(), error) if error > 0 else (math.nan,) * 2
        ok = bool(differences.mean() >= -error)
        held += ok
        shown = [f"{statistics.mean(v.values()):.1f} ± {statistics.stdev(v.values()):.1f}" for v in (own, values[best])]
        change = f"{differences.mean():+.1f} ({low:+.1f} to {high:+.1f})"
        print(f"{name:<14} {kind:<5} {shown[0]:>14} {best + ' ' + shown[1]:>32} {change:>22}  {'yes' if ok else 'no'}")
    print(f"lresnet is at least the better baseline minus one standard error on {held} graphs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--search", default="60s")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="device of the baselines; lresnet runs on the CPU")
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS))
    parser.add_argument("--out", type=Path, default=Path("own_graphs.jsonl"))
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    if given.table is not None:
        table([json.loads(line) for line in given.table.read_text().splitlines()])
        return
    jobs = [
        (name, method, given.folder, seed, given.search, given.device)
        for name in given.graphs
        if (given.folder / GRAPHS[name][1]).exists()
        for method in ("lresnet", *BASELINES.get(name, BASELINES[GRAPHS[name][0]]))
        for seed in range(given.seeds)
    ]
    jobs.sort(key=lambda job: job[1] != "lresnet")
    rows = []
    with ProcessPoolExecutor(given.workers, mp_context=torch.multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run_one, job) for job in jobs]):
            rows.append(future.result())
            with given.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    table(rows)


if __name__ == "__main__":
    main()
