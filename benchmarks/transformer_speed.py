"""Time lorentz_gpt, lorentz_vit_small and the attention between points against their Euclidean baselines.

    python benchmarks/transformer_speed.py --device cuda --results results      # about 10 minutes on an H200
    python benchmarks/transformer_speed.py --device cpu --methods "euclidean;lorentz" --results results

The second command takes about 15 minutes on one core and has small sizes: "gpt" has 4 blocks of width 256, 4 sequences
of 128 tokens; "vit" 4 blocks of width 192, 16 images.

On a GPU, "gpt" has 8 blocks of width 512, 25 M parameters and a context of 1,024 tokens; "vit" is lorentz_vit_small on
images of 32 x 32. A training step is forward, cross-entropy, backward and AdamW. "attention" is forward and backward of
one call with 8 heads of width 64; "rotary attention" has the rotary positions of queries and keys before it, as a
decoder has. All methods run in every round, in reverse order in every second one; a ratio is the median over the
rounds. "bfloat16" is autocast in the networks; attention itself gets bfloat16 tensors. On CUDA the clock is CUDA events
and the memory is the peak of torch's allocator during one call, with the parameters. On a CPU the clock is process time
of one thread, and the memory is what one call allocates at most, without the parameters.

What a compiled block must read and write in a forward pass, in units of one number for each token and coordinate. The
baseline: norms and residuals 4 in float32 and 4 in half precision, projections of attention 6, rotary positions 4,
attention 4, the gated perceptron 18. The Lorentz residual moves what the sum moves: compiled, both become part of the
kernel of the following norm ("residual kernel" calls the library's kernel instead). The times of queries and keys come
with the pass of the rotary positions. Additional are 4 in half precision: values are read and written for their times,
and the results of attention to become centroids. Attention alone, without rotary positions before it, has 8 additional
ones beside its own 4.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

from lresnet.models import create_model
from lresnet.nn import RotaryPositions, apply_rotary, lorentz_attention
from lresnet.optim import make_adam
from lresnet.residual import LorentzResidual
from lresnet.train.results import append_result
from lresnet_paper.bench.measurement import Measurement, line
from lresnet_paper.bench.timing import Batch, Task, as_cuda_graph, device_clock, first_line, interleave, ratios, spread

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
METHODS: dict[str, dict[str, Any]] = {
    "euclidean": {"residual": "euclidean"},
    "lorentz": {"residual": "lorentz"},
    "lorentz, learned curvature": {"residual": "lorentz", "learn_curvature": True, "curvature_per_layer": True},
    "euclidean, l2": {"residual": "euclidean", "scores": "l2"},
    "lorentz, residual kernel": {"residual": "lorentz"},  # compiled code calls the kernel instead of the formula
}
# Sizes on a GPU and on a CPU.
SIZES: dict[str, dict[str, dict[str, int]]] = {
    "cuda": {
        "gpt": {"batch": 16, "context": 1024, "layers": 8, "width": 512, "heads": 8},
        "vit": {"batch": 256, "side": 32, "layers": 12, "width": 384, "heads": 6},
        "attention": {"batch": 16, "context": 1024, "heads": 8},
    },
    "cpu": {
        "gpt": {"batch": 4, "context": 128, "layers": 4, "width": 256, "heads": 4},
        "vit": {"batch": 16, "side": 32, "layers": 4, "width": 192, "heads": 3},
        "attention": {"batch": 4, "context": 256, "heads": 4},
    },
}


def training_step(network: torch.nn.Module, form: str, inputs: Tensor, labels: Tensor, dtype: torch.dtype) -> Task:
    """Return one training step of a network."""
    optimizer = make_adam(network, lr=1e-4, weight_decay=0.1)
    run = torch.compile(network, fullgraph=True) if form.startswith("compiled") else network
    half = dtype != torch.float32
    cast = (lambda: torch.autocast(inputs.device.type, dtype)) if half else contextlib.nullcontext

    def step() -> None:
        optimizer.zero_grad()
        with cast():
            logits = run(inputs)
        cross_entropy(logits.flatten(0, -2), labels.flatten()).backward()
        optimizer.step()

    return step


def build(name: str, method: str, **shape: int) -> torch.nn.Module:
    """Return a network of this method."""
    torch.manual_seed(0)
    network = create_model(name, **shape, **METHODS[method])
    for module in network.modules():
        if isinstance(module, LorentzResidual) and method.endswith("residual kernel"):
            module.joined_by_compiler = False
    return network


def gpt_step(method: str, form: str, dtype: torch.dtype, size: dict[str, int], device: torch.device) -> Task:
    shape = {name: size[name] for name in ("context", "layers", "width", "heads")}
    network = build("lorentz_gpt", method, vocab_size=256, **shape).to(device)
    ids = torch.randint(256, (size["batch"], size["context"] + 1), device=device)
    return training_step(network, form, ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), dtype)


def vit_step(method: str, form: str, dtype: torch.dtype, size: dict[str, int], device: torch.device) -> Task:
    shape = {name: size[name] for name in ("layers", "width", "heads")}
    network = build("lorentz_vit", method, **shape).to(device)
    images = torch.randn(size["batch"], 3, size["side"], size["side"], device=device)
    labels = torch.randint(10, (size["batch"],), device=device)
    return training_step(network, form, images, labels, dtype)


def rotary_call(method: str, form: str, dtype: torch.dtype, size: dict[str, int], device: torch.device) -> Task:
    """Return forward and backward of attention behind rotary positions, as in a decoder."""
    return attention_call(method, form, dtype, size, device, rotate=True)


def attention_call(
    method: str, form: str, dtype: torch.dtype, size: dict[str, int], device: torch.device, rotate: bool = False
) -> Task:
    """Return forward and backward of attention: 61 and 63 coordinates between points, 64 in the baseline."""
    torch.manual_seed(0)
    curved = method.startswith("lorentz")
    shape = size["batch"], size["heads"], size["context"]
    widths = (61, 61, 63) if curved else (64, 64, 64)
    q, k, v = (torch.randn(*shape, n, device=device, dtype=dtype, requires_grad=True) for n in widths)
    g = torch.randn(*shape, widths[-1], device=device, dtype=dtype)
    cos, sin = RotaryPositions(widths[0]).to(device)(torch.arange(size["context"], device=device))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if rotate:
            q, k = (apply_rotary(t, cos, sin).to(dtype) for t in (q, k))
        if curved:
            return lorentz_attention(q, k, v, is_causal=True, K=-1 / 64)
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    run = torch.compile(attend, fullgraph=True) if form.startswith("compiled") else attend

    def call() -> None:
        for tensor in (q, k, v):
            tensor.grad = None
        run(q, k, v).backward(g)

    return call


STUDIES: dict[str, Callable[..., Task]] = {
    "attention": attention_call,
    "rotary attention": rotary_call,
    "gpt": gpt_step,
    "vit": vit_step,
}
_ATTENTIONS = ("euclidean", "lorentz")


def peak_memory(task: Task, device: torch.device) -> dict[str, float]:
    """Return the peak memory of one call in bytes; on a CPU without what was allocated before."""
    if device.type != "cuda":
        return {"peak_bytes": float(_peak_on_cpu(task))}
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    task()
    torch.cuda.synchronize()
    return {"peak_bytes": float(torch.cuda.max_memory_allocated())}


def _peak_on_cpu(task: Task) -> int:
    # The profiler reports a wrong size for memory that was allocated before it and is released inside: hold all of it.
    held = [found for found in gc.get_objects() if type(found) in (Tensor, torch.nn.Parameter)]
    held += [found.grad for found in held if found.is_leaf and found.grad is not None]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        task()
    found: Any = profiler.profiler
    events = (event for event in found.kineto_results.events() if event.name() == "[memory]")
    changes = (event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    return max(itertools.accumulate(changes), default=0)


def measure(study: str, form: str, dtype: str, methods: list[str], options: argparse.Namespace) -> list[Measurement]:
    """Time all methods in turn; one that fails has its reason in ``missing``."""
    device = torch.device(options.device)
    clock, size = device_clock(device), SIZES[device.type][study.removeprefix("rotary ")]
    cell = f"{study}/{', '.join(f'{name} {value}' for name, value in size.items())}, {dtype}"
    alone = study.endswith("attention")
    part = "forward + backward" if alone else "training step"
    tasks: dict[str, Task] = {}
    missing, memory = {}, {}
    for name in [name for name in methods if not alone or name in _ATTENTIONS]:
        try:
            if device.type == "cuda":
                torch.cuda.empty_cache()
            before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
            task = STUDIES[study](name, form, DTYPES[dtype], size, device)
            task()
            memory[name] = {key: value - before for key, value in peak_memory(task, device).items()}
            tasks[name] = as_cuda_graph(task) if form.endswith("CUDA graphs") else task
        except Exception as error:
            missing[name] = first_line(error)
    times = interleave({name: [Batch(task)] for name, task in tasks.items()}, clock, options.rounds)
    found = [Measurement("transformers", cell, name, form, part, missing=reason) for name, reason in missing.items()]
    for name, seconds in times.items():
        figures = dict(memory[name])
        against = {}
        if name != "euclidean" and "euclidean" in times:
            against["euclidean"] = ratios(times["euclidean"], seconds).median
            if figures:
                figures["memory_ratio"] = figures["peak_bytes"] / memory["euclidean"]["peak_bytes"]
        facts = {"clock": clock.name, "threads": torch.get_num_threads(), **size}
        found.append(Measurement("transformers", cell, name, form, part, spread(seconds), figures, against, facts))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--rounds", type=int, default=11, help="default: 11")
    parser.add_argument("--studies", default=",".join(STUDIES))
    parser.add_argument("--forms", help="default: compiled;eager, on a GPU also compiled, CUDA graphs")
    parser.add_argument("--dtypes", help="default: bfloat16,float32, on a CPU float32")
    parser.add_argument("--methods", default=";".join(METHODS), help=f"default: {';'.join(METHODS)}")
    parser.add_argument("--results", type=Path, help="append a line per result to transformer_speed.jsonl here")
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    if not on_gpu:
        torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    forms = options.forms or ("compiled;compiled, CUDA graphs;eager" if on_gpu else "compiled;eager")
    for study in options.studies.split(","):
        for dtype in (options.dtypes or ("bfloat16,float32" if on_gpu else "float32")).split(","):
            for form in forms.split(";"):
                started = time.perf_counter()
                for one in measure(study, form, dtype, options.methods.split(";"), options):
                    seconds = one.missing or f"{1e3 * one.seconds.median:.2f} ms"  # type: ignore[union-attr]
                    ratio = "".join(f", {1 / value:.3f} times {name}" for name, value in one.faster_than.items())
                    if "memory_ratio" in one.figures:
                        ratio += f", memory {one.figures['memory_ratio']:.3f}"
                    print(f"{one.cell}, {form}: {one.method} {seconds}{ratio}", flush=True)
                    if options.results is not None:
                        record = line(one, shlex.join(["python", *sys.argv]), torch.device(options.device))
                        append_result(options.results / "transformer_speed.jsonl", record)
                print(f"    ({time.perf_counter() - started:.0f} s)", flush=True)
                torch.compiler.reset()


if __name__ == "__main__":
    main()
