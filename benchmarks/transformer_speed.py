"""Time lorentz_gpt, lorentz_vit_small and the attention between points against their Euclidean baselines.

    python benchmarks/transformer_speed.py --device cuda --results results
    python benchmarks/transformer_speed.py --device cuda --dtypes bfloat16 --methods "euclidean;lorentz" \
        --forms "compiled blocks;compiled blocks, CUDA graphs" --seconds 100 --results results
    python benchmarks/transformer_speed.py --device cpu --methods "euclidean;lorentz" --results results

The second command measures the most important cases first and starts none after 100 seconds; most of the time goes to
compilation. The third one takes about 15 minutes on one core and has small sizes: "gpt" has 4 blocks of width 256, 4
sequences of 128 tokens; "vit" 4 blocks of width 192, 16 images.

On a GPU, "gpt" has 9 blocks of width 512, 29 M parameters and a context of 1,024 tokens; "vit" is lorentz_vit_small on
images of 32 x 32. A training step is forward, cross-entropy, backward and AdamW. "attention" is forward and backward of
one call with 8 heads of width 64; "rotary attention" has the rotary positions of queries and keys before it, as a
decoder has; "attention layer" has the linear maps, too. Code is compiled for fixed sizes. All methods run in every
round, in reverse order in every second one; a ratio is the median over the rounds. "bfloat16" is autocast in the
networks; attention itself gets bfloat16 tensors. "compiled" compiles the whole network, "compiled blocks" one block for
all, as training does; for attention they are the same. On CUDA the clock is CUDA events and the memory is the peak of
torch's allocator during one call, with the parameters. On a CPU the clock is process time of one thread, and the memory
is what one call allocates at most, without the parameters.

What a compiled block of lorentz_gpt reads and writes beyond its baseline, in units of one number in half precision for
each token and coordinate (bfloat16, width 512; matrix products and the attention operator excluded):

- forward: 2 for values, which are read and written for their times, and 2 for the results of attention, which become
  centroids;
- backward: 3 for the residuals, whose two kernels read all branches and move 9 and 10 (kernels/residual_norm.py), where
  the baseline reads sums and moves 8 each, and 3 for centroids. The gradient of the projection takes 9
  (kernels/attention_vectors.py); the baseline turns and joins three gradients (10).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

from lresnet import Lorentz
from lresnet.models import create_model
from lresnet.models.transformer import Transformer
from lresnet.nn import LorentzAttention, RotaryPositions, apply_rotary, lorentz_attention
from lresnet.nn.softmax_attention import Scores
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
        "gpt": {"batch": 16, "context": 1024, "layers": 9, "width": 512, "heads": 8},
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
    if isinstance(network, Transformer):
        network.compiles_blocks = form.startswith("compiled blocks")
    whole = form.startswith("compiled") and not form.startswith("compiled blocks")
    run = torch.compile(network, fullgraph=True, dynamic=False) if whole else network
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

    run = torch.compile(attend, fullgraph=True, dynamic=False) if form.startswith("compiled") else attend

    def call() -> None:
        for tensor in (q, k, v):
            tensor.grad = None
        run(q, k, v).backward(g)

    return call


def layer_call(method: str, form: str, dtype: torch.dtype, size: dict[str, int], device: torch.device) -> Task:
    """Return forward and backward of the attention layer of a decoder: linear maps, rotary positions, attention."""
    torch.manual_seed(0)
    width = 64 * size["heads"]
    scores: Scores = "lorentz" if method.startswith("lorentz") else "dot"
    manifold = Lorentz(-0.1 / width)
    layer = LorentzAttention(width, num_heads=size["heads"], scores=scores, manifold=manifold).to(device, dtype)
    rotary = RotaryPositions(layer.query_features)(torch.arange(size["context"], device=device))
    x, g = (torch.randn(size["batch"], size["context"], width, device=device, dtype=dtype) for _ in range(2))
    x.requires_grad_()
    compiled = form.startswith("compiled")
    run = torch.compile(layer, fullgraph=True, dynamic=False) if compiled else layer

    def call() -> None:
        x.grad = None
        layer.zero_grad()
        run(x, is_causal=True, rotary=rotary).backward(g)

    return call


STUDIES: dict[str, Callable[..., Task]] = {
    "gpt": gpt_step,
    "vit": vit_step,
    "attention": attention_call,
    "attention layer": layer_call,
    "rotary attention": rotary_call,
}
_ATTENTIONS = ("euclidean", "lorentz")
_CALLS = 5  # of attention, which takes less than a millisecond, in one measurement


def peak_memory(task: Task, device: torch.device) -> float:
    """Return the peak memory of one call in bytes; on a CPU without what was allocated before."""
    if device.type != "cuda":
        return float(_peak_on_cpu(task))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    task()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated())


def _allocated(device: torch.device) -> float:
    """Return the memory in use on a GPU; on a CPU, where the peak of a call leaves it out, 0."""
    if device.type != "cuda":
        return 0.0
    # The first product of each thread allocates a workspace of cuBLAS, which must not count for the first method.
    for dtype in DTYPES.values():
        x = torch.ones(64, 64, device=device, dtype=dtype, requires_grad=True)
        (x @ x).sum().backward()
    del x
    gc.collect()  # networks and their compiled code refer to each other
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return float(torch.cuda.memory_allocated())


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


def _repeated(task: Task, count: int) -> Task:
    def run() -> None:
        for _ in range(count):
            task()

    return run


def measure(
    study: str, forms: list[str], dtype: str, methods: list[str], options: argparse.Namespace
) -> Iterator[tuple[str, list[Measurement]]]:
    """Time all methods in turn, in each of these forms of one compilation; one that fails has its reason."""
    device = torch.device(options.device)
    alone = "attention" in study
    clock, size = device_clock(device), SIZES[device.type]["attention" if alone else study]
    cell = f"{study}/{', '.join(f'{name} {value}' for name, value in size.items())}, {dtype}"
    part, count = ("forward + backward", _CALLS) if alone else ("training step", 1)
    tasks: dict[str, Task] = {}
    missing: dict[str, str] = {}
    memory: dict[str, float] = {}
    for name in [name for name in methods if not alone or name in _ATTENTIONS]:
        try:
            before = _allocated(device)
            task = STUDIES[study](name, forms[0], DTYPES[dtype], size, device)
            task()
            memory[name] = peak_memory(task, device) - before
            tasks[name] = task
        except Exception as error:
            missing[name] = first_line(error)
    for form in forms:
        batches: dict[str, list[Batch]] = {}
        for name, task in tasks.items():
            try:
                calls = _repeated(task, count)
                batches[name] = [Batch(as_cuda_graph(calls) if form.endswith("CUDA graphs") else calls, count)]
            except Exception as error:
                missing[name] = first_line(error)
        times = interleave(batches, clock, options.rounds)
        found = [
            Measurement("transformers", cell, name, form, part, missing=reason) for name, reason in missing.items()
        ]
        for name, seconds in times.items():
            figures, against = {"peak_bytes": memory[name]}, {}
            if name != "euclidean" and "euclidean" in times:
                against["euclidean"] = ratios(times["euclidean"], seconds).median
                figures["memory_ratio"] = memory[name] / memory["euclidean"]
            facts = {"clock": clock.name, "threads": torch.get_num_threads(), "calls": count, **size}
            found.append(Measurement("transformers", cell, name, form, part, spread(seconds), figures, against, facts))
        yield form, found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--rounds", type=int, default=11, help="default: 11")
    parser.add_argument("--studies", default=",".join(STUDIES))
    parser.add_argument("--forms", help="default: compiled;eager, on a GPU also compiled, CUDA graphs")
    parser.add_argument("--dtypes", help="default: bfloat16,float32, on a CPU float32")
    parser.add_argument("--methods", default=";".join(METHODS), help=f"default: {';'.join(METHODS)}")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no case later than this")
    parser.add_argument("--results", type=Path, help="append a line per result to transformer_speed.jsonl here")
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    if not on_gpu:
        torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    forms = (options.forms or ("compiled;compiled, CUDA graphs;eager" if on_gpu else "compiled;eager")).split(";")
    kinds = dict.fromkeys(form.partition(",")[0] for form in forms)
    together = [[form for form in forms if form.partition(",")[0] == kind] for kind in kinds]
    dtypes = (options.dtypes or ("bfloat16,float32" if on_gpu else "float32")).split(",")
    cases = [(s, d, f) for f in together for d in dtypes for s in options.studies.split(",")]
    began = time.perf_counter()
    for study, dtype, alike in cases:
        if time.perf_counter() - began > options.seconds:
            print(f"{study}, {dtype}, {'; '.join(alike)}: not started after {options.seconds:g} s", flush=True)
            continue
        started = time.perf_counter()
        for form, found in measure(study, alike, dtype, options.methods.split(";"), options):
            for one in found:
                seconds = one.missing or f"{1e3 * one.seconds.median:.3f} ms"  # type: ignore[union-attr]
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
