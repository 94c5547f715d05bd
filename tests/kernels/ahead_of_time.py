"""``python -m tests.kernels.ahead_of_time``: compile kernels for a GPU, also on a machine without one.

This is a separate program because Triton chooses between its compiler and its interpreter at import. It prints a line
of JSON per kernel: its name, the width of its heads if it has some, the order in which its code loads, waits for all
warps, and stores, the number of these accesses to global memory by their size in bytes, and the bytes of its stack,
where registers are spilled.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime.jit import JITFunction

from lresnet.kernels import (
    attention_vectors,
    centroid_pooling,
    join,
    norm_relu,
    pairwise_distance,
    pooling,
    prototypes,
    residual_norm,
)
from lresnet.kernels.riemannian_adam import fused_step
from lresnet.kernels.tiles import Heads

_H200 = GPUTarget("cuda", 90, 32)
_POINTERS = {torch.float32: "*fp32", torch.float64: "*fp64", torch.bfloat16: "*bf16"}
_KINDS = {"ld.global": "load", "bar.sync": "wait", "st.global": "store"}


def compiled(kernel: JITFunction, *arguments: Any, **constants: Any) -> CompiledKernel:
    """Compile the kernel for these arguments, specialised like Triton's: integers 1 and multiples of 16."""
    options = {"num_warps": constants.pop("num_warps")} if "num_warps" in constants else {}
    given = dict(zip((p.name for p in kernel.params), arguments, strict=False)) | constants
    signature, values, attributes = {}, {}, {}
    for i, parameter in enumerate(kernel.params):
        value = given[parameter.name]
        number = value.data_ptr() if isinstance(value, Tensor) else value
        if parameter.is_constexpr or value is None or (isinstance(value, int) and value == 1):
            signature[parameter.name], values[(i,)] = "constexpr", value
            continue
        kind = _POINTERS[value.dtype] if isinstance(value, Tensor) else "fp32" if isinstance(value, float) else "i32"
        signature[parameter.name] = kind
        if isinstance(number, int) and number % 16 == 0:
            attributes[(i,)] = [["tt.divisibility", 16]]
    return triton.compile(ASTSource(kernel, signature, values, attributes), target=_H200, options=options)


def accesses(ptx: str) -> dict[str, Counter[int]]:
    """Return the number of loads and stores of global memory by the bytes that a thread moves."""
    found: dict[str, Counter[int]] = {"load": Counter(), "store": Counter()}
    for kind, vector, bits in re.findall(r"\b(ld|st)\.global(?:\.v(\d))?\.b(\d+)", ptx):
        found["load" if kind == "ld" else "store"][int(vector or 1) * int(bits) // 8] += 1
    for size in re.findall(r"\bcp\.async\.c[ag]\.shared\.global \[[^]]*\], \[[^]]*\], (0x\w+)", ptx):
        found["load"][int(size, 16)] += 1
    return found


def stack(cubin: bytes) -> int:
    """Return the bytes of the stack of this machine code."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        program = triton.knobs.nvidia.cuobjdump.path
        usage = subprocess.run([program, "-res-usage", file], capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"STACK:(\d+)", usage)[0])


def print_order(kernel: JITFunction, grid: tuple[int, ...]) -> Any:
    def launch(*arguments: Any, **constants: Any) -> None:
        code = compiled(kernel, *arguments, **constants).asm
        lines = re.findall("|".join(_KINDS), code["ptx"])
        facts = {"kernel": kernel.fn.__name__, "width": constants.get("WIDTH"), "stack": stack(code["cubin"])}
        facts |= {"order": [_KINDS[line] for line in lines]} | accesses(code["ptx"])
        sys.stdout.write(json.dumps(facts) + "\n")

    return launch


def main() -> None:
    JITFunction.__getitem__ = print_order  # type: ignore[method-assign]
    for n, rows, members in ((1, 1, 1), (64, 70, 3)):
        z, w = torch.randn(rows, members, n), torch.randn(members)
        join.forward(z, z, w, kappa=1.0, max_radius=10.0)
        join.backward(z, z, z, w, kappa=1.0, max_radius=10.0)
        join.backward_with_weight(z, z, z, w, kappa=1.0, max_radius=10.0)
        y, bias = torch.randn(members, n, n), torch.randn(members, n)
        prototypes.forward(z, y, bias, kappa=1.0)
        prototypes.backward(torch.randn(rows, members, n), z, y, bias, kappa=1.0)
    for n in (1, 16, 40):
        x, y = torch.randn(70, n), torch.randn(65, n)
        for kappa in (1.0, None):
            d = pairwise_distance.forward(x, y, kappa=kappa)
            pairwise_distance.backward(d, x, y, d, kappa=kappa)
    for n in (1, 16, 64, 300):
        x, one, count = torch.randn(7, n), torch.zeros(7, 1), torch.zeros(7, 1, dtype=torch.float64)
        fused_step(x, x, x, one, count, torch.tensor(0.1), kappa=1.0, betas=(0.9, 0.999), eps=1e-8)
    for n, rows in ((3, 1), (3, 70), (512, 2048)):
        x, one = torch.randn(rows, n, dtype=torch.bfloat16), torch.ones(n)
        z, statistics = norm_relu.forward(x, one, one, 1e-5)
        norm_relu.backward(z, x, statistics)
    for n, side in ((1, 1), (32, 8), (512, 4), (2048, 7)):
        x = torch.randn(3, n, side, side, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        pooling.backward(pooling.forward(x, kappa=0.02), x, kappa=0.02)
        centroid_pooling.backward(centroid_pooling.forward(x, kappa=0.02), x, kappa=0.02)
    for dtype, turned in ((torch.bfloat16, True), (torch.float32, False)):
        heads, one = Heads(4, 2, 13, 15, 16), torch.ones(4)
        x, angles = torch.randn(2, 5, heads.columns, dtype=dtype), torch.randn(5, 6) if turned else None
        vectors = attention_vectors.forward(x, one, one[0], angles, angles, dtype, heads)
        for needs_sums in (False, True):
            attention_vectors.backward(vectors, vectors, one, one[0], angles, angles, dtype, heads, needs_sums)
    # lorentz_gpt: 16 x 1,024 tokens, 8 heads.
    heads, one, angles = Heads(8, 8, 61, 63, 64), torch.ones(8), torch.empty(1024, 32)
    x = torch.empty(16, 1024, heads.columns, dtype=torch.bfloat16)
    vectors = attention_vectors.forward(x, one, one[0], angles, angles, x.dtype, heads)
    by_head = [torch.empty_like(v.transpose(1, 2)).transpose(1, 2) for v in vectors]
    attention_vectors.backward(by_head, vectors, one, one[0], angles, angles, x.dtype, heads, True)
    for n, dtype in ((1, torch.float32), (64, torch.bfloat16), (384, torch.bfloat16), (512, torch.bfloat16),
                     (512, torch.float32), (1000, torch.bfloat16), (2048, torch.bfloat16)):  # fmt: skip
        x, y, norm = torch.randn(70, n), torch.randn(70, n, dtype=dtype), torch.ones(n)
        for scale in (None, norm[0]):
            residual_norm.backward(x, y, x, y, norm, norm[0], scale, norm[0], 1e-6)
            residual_norm.backward(x, y, x, y, norm, norm[0], scale, norm[0], 1e-6, y, norm[0], scale)


if __name__ == "__main__":
    main()
