"""Time a training epoch of lorentz_gcnii against its Euclidean baseline, and count the activations that it stores.

    python benchmarks/deep_graphs.py --results results                  # about three minutes on one core
    python benchmarks/deep_graphs.py --device cuda --results results    # about two minutes on a GPU

The graph is random and has the size of Cora: 2,708 nodes, 5,278 edges, 1,433 features of which 1.3 % are not zero. An
epoch is one step: forward pass, cross entropy of 140 nodes, backward pass, Adam; on a GPU it is captured as a CUDA
graph, as in every training. Both networks run in every round, in reverse order in every second one; the ratio is the
median over the rounds. On a CPU the clock is process time of one thread, which other programs affect least.

Memory is the peak of a training step above what is in use before it, on a random graph of 20,000 nodes: allocated
memory on a GPU, resident memory of a fresh process on a CPU.

What an epoch must cost at least: the Lorentz layer reads and writes one column more (the times) and computes about
forty operations more per number in the centroid and the residual, which need no data that the Euclidean layer does not
read. Matrices, dropout and the sparse product are the same. The floor of the ratio is therefore near 1.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

import torch

from lresnet.data import NodeTask
from lresnet.models import create_model
from lresnet.train import NodeClassification, TrainConfig, TrainingState
from lresnet.train.results import append_result, environment
from lresnet_paper.bench.memory import peak_resident, print_json, process_result, resident, start_process
from lresnet_paper.bench.timing import Batch, device_clock, interleave, ratios, single_thread, spread

NODES, EDGES, FEATURES, CLASSES, TRAINING = 2708, 5278, 1433, 7, 140
METHODS = ("lorentz", "none", "tangent", "euclidean")
LAYERS, SHALLOW, WIDTH, DROPOUT = 64, 8, 64, 0.6


def cora_like(nodes: int = NODES) -> NodeTask:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(nodes, (2, EDGES * nodes // NODES), generator=generator)
    x = (torch.rand(nodes, FEATURES, generator=generator) < 0.013).float()
    order = torch.randperm(nodes, generator=generator)
    return NodeTask(
        name="random",
        x=x / x.sum(1, keepdim=True).clamp(min=1),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=torch.randint(CLASSES, (nodes,), generator=generator),
        train_index=order[:TRAINING],
        val_index=order[TRAINING : TRAINING + 500],
        test_index=order[-1000:],
        num_classes=CLASSES,
    )


def training(
    method: str, layers: int, device: torch.device, checkpointing: bool = False, nodes: int = NODES
) -> TrainingState:
    torch.manual_seed(0)
    options = {"num_layers": layers, "hidden": WIDTH, "dropout": DROPOUT, "activation_checkpointing": checkpointing}
    model = create_model("lorentz_gcnii", method, -0.1, in_features=FEATURES, num_classes=CLASSES, **options)
    config = TrainConfig(epochs=10_000, optimizer="adam_l2", weight_decay=5e-4, layer_decay=0.01, decay="all")
    return TrainingState(model.to(device), NodeClassification(cora_like(nodes), device=device), config)


def peak_bytes(method: str, layers: str, checkpointing: str, device: str) -> None:
    """Print the peak memory of a training step, without what was in use before it."""
    print_json(lambda: {"peak_bytes": _peak(method, int(layers), checkpointing == "True", torch.device(device))})


def _peak(method: str, layers: int, checkpointing: bool, device: torch.device) -> int:
    state = training(method, layers, device, checkpointing, nodes=20_000)
    state.model.train()
    with torch.no_grad():
        state.objective.loss(state.model)  # builds the constant inputs
    if device.type == "cpu":
        before = resident()
        state._step()
        return peak_resident() - before
    state._step()  # builds the state of the optimiser
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    state._step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    command = shlex.join(["python", "benchmarks/deep_graphs.py", *sys.argv[1:]])
    shared = {"layers": LAYERS, "width": WIDTH, "command": command} | environment(arguments.device)
    lines = []
    with single_thread(device):
        trainings = {method: training(method, LAYERS, device) for method in METHODS}
        for state in trainings.values():  # the engine captures its step in the fourth epoch
            for _ in range(6 if device.type == "cuda" else 1):
                state.train_epoch()
        clock = device_clock(device)
        batches = {method: [Batch(state.train_epoch, 1)] for method, state in trainings.items()}
        seconds = interleave(batches, clock, arguments.rounds)
    for method in METHODS:
        ratio = ratios(seconds[method], seconds["euclidean"])
        figures = {
            "seconds": spread(seconds[method]).median,
            "ratio": ratio.median,
            "ratio_range": [ratio.low, ratio.high],
        }
        lines.append({"benchmark": "deep_graphs", "method": method, "clock": clock.name} | figures | shared)
        print(f"{method:10} {1e3 * figures['seconds']:8.1f} ms an epoch, {ratio.median:.2f} x the Euclidean baseline")
    forms = {"8 layers": (SHALLOW, False), "64 layers": (LAYERS, False), "64 layers, checkpointing": (LAYERS, True)}
    for method in ("lorentz", "euclidean"):
        peaks = {}
        for form, (layers, checkpointing) in forms.items():
            path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
            asked = method, layers, checkpointing, device
            # Memory of freed tensors goes back to the system at once, so that resident memory is memory in use.
            variables = {"PYTHONPATH": path, "MALLOC_MMAP_THRESHOLD_": "65536"}
            process = start_process("deep_graphs", "peak_bytes", *asked, environment=variables)
            peaks[form] = process_result(process)["peak_bytes"]
            facts = shared | {"layers": layers, "peak_bytes": peaks[form]}
            lines.append({"benchmark": "deep_graphs memory", "method": method, "form": form} | facts)
        shown = ", ".join(f"{form} {size / 2**20:.0f} MB" for form, size in peaks.items())
        print(f"{method:10} {shown}: {peaks['64 layers, checkpointing'] / peaks['8 layers']:.2f} x 8 layers")
    if arguments.results:
        for line in lines:
            append_result(arguments.results / "deep_speed.jsonl", line)


if __name__ == "__main__":
    main()
