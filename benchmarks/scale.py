"""Measure memory and time of large graphs on a CPU: PubMed link prediction, and 1,000,000 nodes with 10,000,000 edges.

    python benchmarks/scale.py             # LRESNET_DATA is the folder with PubMed; without it: a graph of its size
    python benchmarks/scale.py --sampled   # sampled batches: throughput, memory, accuracy on PubMed

Every measurement is a process of its own with one thread; the time is process time. The memory is the peak resident
size minus the one after the imports. The large graph is random, which is the worst case for caches; an edge is one
column of ``edge_index``, and self loops are added. The times are: building the adjacency, the first step (forward,
cross entropy, backward, optimiser), and a later step with warm memory. A graph of half the size is measured in the
same rounds, to check that the time grows no faster than the graph: the median of the rounds' ratios. The exit status
is 1 if a target is missed.

With ``--sampled`` the large graph has 10,000,000 undirected edges, which are 20,000,000 columns of ``edge_index``. A
measurement is a process of its own with two threads; the time is wall-clock time, and the memory is the peak resident
size of the whole process, imports included. On PubMed a run on the whole graph and one on sampled batches are compared
over ten seeds, with the settings of ``lresnet train pubmed/nc``.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

# Only the measuring processes import torch and the library, because a child inherits the peak of its parent.
NODES, EDGES, FEATURES, WIDTH, LAYERS = 1_000_000, 10_000_000, 16, 16, 3
EPOCHS, ROUNDS = 20, 3
TARGETS = {"pubmed": 2.0, "graph": 8.0, "doubling": 2.2, "sampled": 4.0, "points": 1.0}
# Sampled batches: the task, seed nodes or training edges per step, and neighbours per node.
SAMPLED = [("node", 1024, "10,10"), ("node", 1024, "10,10,10"), ("link", 1024, "10,10")]
STEPS, SEEDS, PUBMED_BATCH, PUBMED_NEIGHBOURS = 30, 10, 20, "10"


def peak() -> float:
    """Return the peak resident size of this process in GB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def pubmed() -> dict[str, Any]:
    """Load and split PubMed, and train link prediction for a few epochs."""
    from lresnet.data import link_task, load_task
    from lresnet.models import LorentzGCN
    from lresnet.train import LinkPrediction, TrainConfig, train_model

    before, started = peak(), time.process_time()
    try:
        task, data = load_task("pubmed/lp", split="legacy"), "PubMed"
    except OSError:
        task, data = link_task(_graph_of_pubmed_size()), "random graph of PubMed's size"
    model = LorentzGCN(task.x.shape[1], WIDTH, LAYERS, dropout=0.5)
    outcome = train_model(model, LinkPrediction(task), TrainConfig(epochs=EPOCHS, lr=0.01, eval_every=5))
    assert 0 <= outcome.validation <= 100
    return {"data": data, "memory": peak() - before, "seconds": time.process_time() - started}


def _graph_of_pubmed_size() -> Any:
    import numpy as np
    import scipy.sparse

    from lresnet.data import Graph

    rng = np.random.Generator(np.random.PCG64(0))
    n, edges, columns = 19_717, 44_324, 500
    features = scipy.sparse.random_array((n, columns), density=0.1, format="csr", rng=rng)
    return Graph.checked("random", features, rng.integers(n, size=(2, edges)), rng.integers(3, size=n))


def graph(nodes: int, edges: int) -> dict[str, Any]:
    """Return the seconds of the adjacency, of the first step and of the faster of the next two, and the memory."""
    import torch

    from lresnet.models import LorentzGCN
    from lresnet.optim import make_adam

    before = peak()
    torch.manual_seed(0)
    edge_index, x, y = torch.randint(nodes, (2, edges)), torch.randn(nodes, FEATURES), torch.randint(2, (nodes,))
    model = LorentzGCN(FEATURES, WIDTH, LAYERS, num_classes=2)
    optimizers = make_adam(model, lr=0.01)
    started = time.process_time()
    A = model.graph(edge_index, nodes)
    built, steps = time.process_time() - started, []
    for _ in range(3):
        started = time.process_time()
        optimizers.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, A), y)
        loss.backward()
        optimizers.step()
        steps.append(time.process_time() - started)
        assert loss.isfinite()
    return {"memory": peak() - before, "adjacency": built, "step": steps[0], "warm": min(steps[1:])}


def sampled(kind: str, batch_size: int, neighbours: str) -> dict[str, Any]:
    """Return samples per second, nodes of a batch, bytes of the gradients, seconds of an evaluation, and memory."""
    import torch

    from lresnet.data import LinkTask, NodeTask
    from lresnet.models import LorentzGCN
    from lresnet.train import TrainConfig, TrainingState, make_objective

    torch.manual_seed(0)
    edges = torch.randint(NODES, (2, EDGES))
    edge_index = torch.cat([edges, edges.flip(0)], dim=1)
    x = torch.randn(NODES, FEATURES)
    task: LinkTask | NodeTask
    if kind == "node":
        y, parts = torch.randint(2, (NODES,)), torch.randperm(NODES).split([NODES // 2, NODES // 4, NODES // 4])
        task = NodeTask("random", x, edge_index, y, *parts, num_classes=2, metric="accuracy")
        del edges
    else:
        held_out = torch.randint(NODES, (4, 2, EDGES // 100)).unbind()
        task = LinkTask("random", x, edge_index, edges, *held_out, num_nodes=NODES)
    config = TrainConfig(epochs=1, batch_size=batch_size, neighbours=neighbours)
    model = LorentzGCN(FEATURES, WIDTH, neighbours.count(",") + 1, num_classes=2 if kind == "node" else None)
    started = time.perf_counter()
    objective = make_objective(task, config)
    built = time.perf_counter() - started
    state = TrainingState(model, objective, config)
    model.train()
    objective.start_epoch()
    times, nodes = [], []
    for step in range(STEPS):
        started = time.perf_counter()
        objective.advance(step)
        state.step()
        times.append(time.perf_counter() - started)
        nodes.append(objective.current(model).graph.node.numel())
    started = time.perf_counter()
    state.model.eval()
    score = float(objective.validation(model))
    assert 0 <= score <= 1
    gradients = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    step_time = statistics.median(times[2:])
    return {
        "step": step_time,
        "rate": batch_size / step_time,
        "nodes": statistics.median(nodes),
        "bytes": gradients,
        "build": built,
        "evaluation": time.perf_counter() - started,
        "memory": peak(),
    }


def pubmed_accuracy(seed: int) -> dict[str, Any]:
    """Return the test accuracy and the seconds of a run on the whole graph of PubMed and of one on sampled batches."""
    import dataclasses

    from lresnet.runs import run_config
    from lresnet.runs.training import fit

    config, found = run_config("pubmed/nc", seed=seed), {}
    batches = {"batch_size": PUBMED_BATCH, "neighbours": PUBMED_NEIGHBOURS}
    for name, options in (("whole", {}), ("sampled", batches)):
        started = time.perf_counter()
        run = fit(config.task, config.model, dataclasses.replace(config.train, **options))
        found |= {name: run.evaluate()["accuracy"], f"{name}_seconds": time.perf_counter() - started}
    return found


def show_sampled() -> int:
    """Print the two tables of sampled batches; return 1 if a target is missed."""
    from rich.console import Console
    from rich.table import Table

    from lresnet.runs.statistics import mean_interval

    console, met = Console(width=140), []
    table = Table(title=f"{NODES:,} nodes, {EDGES:,} undirected edges, {FEATURES} features, width {WIDTH}, 2 threads")
    titles = ("task", "batch", "neighbours", "nodes per step", "step, ms", "samples/s", "gradient, bytes")
    for column in (*titles, "build, s", "evaluation, s", "peak memory, GB", ""):
        table.add_column(column, justify="left" if column == "task" else "right")
    for kind, batch, neighbours in SAMPLED:
        f = measure("sampled", kind, batch, neighbours)
        met.append(f["memory"] < TARGETS["sampled"])
        cells = (f"{f['nodes']:,.0f}", f"{1e3 * f['step']:.0f}", f"{f['rate']:,.0f}", f"{f['bytes']:,}")
        rest = (f"{f['build']:.1f}", f"{f['evaluation']:.1f}", f"{f['memory']:.2f}", "met" if met[-1] else "MISSED")
        table.add_row(kind, str(batch), neighbours, *cells, *rest)
    console.print(table)
    table = Table(title=f"PubMed, test accuracy; batches of {PUBMED_BATCH} nodes, {PUBMED_NEIGHBOURS} neighbours")
    for column in ("seed", "whole graph", "sampled", "difference", "seconds, whole", "seconds, sampled"):
        table.add_column(column, justify="right")
    runs = [measure("pubmed_accuracy", seed) for seed in range(SEEDS)]
    for seed, f in enumerate(runs):
        cells = (f["whole"], f["sampled"], f["sampled"] - f["whole"], f["whole_seconds"], f["sampled_seconds"])
        table.add_row(str(seed), *(f"{value:.1f}" for value in cells))
    differences = [f["sampled"] - f["whole"] for f in runs]
    interval = mean_interval(differences)
    assert interval is not None
    met.append(-TARGETS["points"] < interval.low and interval.high < TARGETS["points"])
    means = [statistics.mean(f[name] for f in runs) for name in ("whole", "sampled")]
    table.add_row("mean", *(f"{mean:.2f}" for mean in means), f"{statistics.mean(differences):+.2f}")
    console.print(table)
    within = "within" if met[-1] else "NOT within"
    console.print(
        f"95 % interval of the paired difference: {interval.low:+.2f} to {interval.high:+.2f} points, "
        f"{within} {TARGETS['points']:g} point"
    )
    return 0 if all(met) else 1


def measure(*arguments: object) -> dict[str, Any]:
    """Run one measurement in a fresh process and return its result."""
    command = [sys.executable, __file__, "--measure", *map(str, arguments)]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return result


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median times and the largest memory of several rounds."""
    chosen = {"memory": max}
    return {key: chosen.get(key, statistics.median)(figures[key] for figures in rounds) for key in rounds[0]}


def ratio(halves: list[dict[str, Any]], fulls: list[dict[str, Any]], *keys: str) -> float:
    """Return the time of the full graph divided by that of the half, as the median over the rounds."""
    pairs = zip(halves, fulls, strict=True)
    return statistics.median(sum(full[key] for key in keys) / sum(half[key] for key in keys) for half, full in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--sampled", action="store_true", help="measure sampled batches")
    options = parser.parse_args()
    if options.measure:
        import torch

        kind, *given = options.measure
        torch.set_num_threads(2 if kind == "sampled" else 1)
        if kind == "sampled":
            print(json.dumps(sampled(given[0], int(given[1]), given[2])))
        else:
            function = {"pubmed": pubmed, "graph": graph, "pubmed_accuracy": pubmed_accuracy}[kind]
            print(json.dumps(function(*map(int, given))))
        return 0
    if options.sampled:
        return show_sampled()
    from rich.console import Console
    from rich.table import Table

    small = measure("pubmed")
    halves, fulls = [], []
    for _ in range(ROUNDS):
        halves.append(measure("graph", NODES // 2, EDGES // 2))
        fulls.append(measure("graph", NODES, EDGES))
    half, full = summary(halves), summary(fulls)
    table = Table(
        title=f"lorentz_gcn, {LAYERS} layers, width {WIDTH}, one CPU thread: memory above imports, process time"
    )
    for column in ("graph", "memory, GB", "adjacency, s", "step, s", "warm, s", "target", ""):
        table.add_column(column, justify="left" if column == "graph" else "right")
    met = []

    def row(name: str, figures: dict[str, Any], target: str, ok: bool) -> None:
        met.append(ok)
        cells = [f"{figures[key]:.2f}" if key in figures else "" for key in ("memory", "adjacency", "step", "warm")]
        table.add_row(name, *cells, target, "met" if ok else "MISSED")

    title = f"{small['data']}, link prediction, load + split + {EPOCHS} epochs ({small['seconds']:.1f} s)"
    row(title, small, f"< {TARGETS['pubmed']:g} GB", small["memory"] < TARGETS["pubmed"])
    for figures, part in ((half, 2), (full, 1)):
        name = f"{NODES // part:,} nodes, {EDGES // part:,} edges, {FEATURES} features"
        row(name, figures, f"< {TARGETS['graph']:g} GB", figures["memory"] < TARGETS["graph"])
    # A user builds the adjacency once and then runs warm steps: each of them has the target.
    for what in (("adjacency", "step"), ("step",), ("warm",)):
        growth = ratio(halves, fulls, *what)
        row(
            f"twice the graph: {' + '.join(what)} {growth:.2f} times",
            {},
            f"<= {TARGETS['doubling']:g}",
            growth <= TARGETS["doubling"],
        )
    Console(width=140).print(table)
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
