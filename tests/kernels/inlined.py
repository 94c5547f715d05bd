"""``python -m tests.kernels.inlined``: trace forward and backward of the operators that torch.compile inlines.

This is a separate program because Triton chooses between its compiler and its interpreter at import. It prints a line
of JSON per graph: the case, the targets of its nodes, facts about its kernels, and the results of kernels that it
returns; and a line per kernel of a graph that runs: whether it gets what it gets from a launch in eager mode.
"""

from __future__ import annotations

import json
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from torch._inductor.decomposition import select_decomp_table
from torch._library.triton import triton_ops_to_kernels
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from lresnet.kernels import attention_vectors, residual_norm, runtime
from lresnet.kernels.tiles import Heads

_HEADS = Heads(4, 2, 61, 63, 64)


class _Driver:
    """The parts of Triton's driver that the analysis of kernels needs."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_benchmarker(self) -> None:
        return None


def facts(graph: fx.Graph) -> dict[str, Any]:
    """Return the targets of the nodes, what each kernel gets, and which of its results the graph returns."""
    calls = graph.find_nodes(op="call_function", target=torch.ops.higher_order.triton_kernel_wrapper_functional)
    targets = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    (results,) = graph.find_nodes(op="output")[0].args
    returned = {origin.args[1] for origin in map(_origin, results) if origin is not None and origin.args[0] in calls}
    return {"targets": targets, "kernels": [kernel_facts(call) for call in calls], "returned": sorted(returned)}


def _origin(node: Any) -> fx.Node | None:
    """Return the node that ``node`` is an alias of, if it is the item of a tuple or dictionary."""
    while isinstance(node, fx.Node) and node.target is torch.ops.aten.alias.default:
        node = node.args[0]
    return node if isinstance(node, fx.Node) and node.target is operator.getitem else None


def kernel_facts(call: fx.Node) -> dict[str, Any]:
    kernel, given = kernel_side_table.get_kernel(call.kwargs["kernel_idx"]), call.kwargs["kwargs"]
    (config,) = kernel.configs
    return {
        "kernel": kernel.fn.fn.__name__,
        "symbolic": any(isinstance(size, fx.Node) for size in call.kwargs["grid"][0]),
        "num_warps": config.num_warps,
        "changed": call.kwargs["tensors_to_clone"],
        "allocated": [str(given[name].target) for name in call.kwargs["tensors_to_clone"]],
        "absent": sorted(kernel_side_table.get_constant_args(call.kwargs["constant_args_idx"])),
    }


class _Run(fx.Interpreter):
    """Run a graph. The results of a kernel are 0, and its arguments are compared with those of an eager launch."""

    def __init__(self, module: fx.GraphModule, case: str, eager: Callable[[dict[str, Any]], object]) -> None:
        super().__init__(module)
        self.case, self.eager = case, eager

    def run_node(self, n: fx.Node) -> Any:
        if n.target is not torch.ops.higher_order.triton_kernel_wrapper_functional:
            return super().run_node(n)
        _, call = self.fetch_args_kwargs_from_env(n)
        constants = kernel_side_table.get_constant_args(call["constant_args_idx"])
        kernel = kernel_side_table.get_kernel(call["kernel_idx"])
        given = {**constants, **call["kwargs"], "num_warps": kernel.configs[0].num_warps, "grid": call["grid"][0][0]}
        given, expected = _plain_strides(given), _plain_strides(eager_launch(lambda: self.eager(given)))
        results = call["tensors_to_clone"]
        differing = [
            name
            for name in sorted({*given, *expected})
            if not _same(given.get(name), expected.get(name), name in results)
        ]
        facts = {"case": self.case, "graph": f"launch of {kernel.fn.fn.__name__}", "differing": differing}
        sys.stdout.write(json.dumps(facts | {"arguments": len(given)}) + "\n")
        return {name: torch.zeros_like(given[name]) for name in results}


def eager_launch(run: Callable[[], object]) -> dict[str, Any]:
    """Return the arguments of the kernel that ``run`` launches, by name, with the number of warps and the grid."""
    found: dict[str, Any] = {}

    def launch(kernel: JITFunction, grid: Sequence[int], *arguments: Any, **options: Any) -> None:
        found.update(dict(zip(kernel.arg_names, arguments, strict=False)), **options, grid=grid[0])

    modules = attention_vectors, residual_norm
    before = [module.launch for module in modules]
    for module in modules:
        module.launch = launch
    try:
        run()
    finally:
        for module, own in zip(modules, before, strict=True):
            module.launch = own
    return found


def _plain_strides(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with strides in numbers; with sizes that are not known in a trace the unit is 1 number."""
    unit = arguments.get("UNIT", 1)
    strides = {name: unit * n for name, n in arguments.items() if name.endswith(("_batch", "_time", "_head"))}
    return {name: value for name, value in (arguments | strides).items() if name != "UNIT"}


def _same(one: Any, other: Any, is_result: bool) -> bool:
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return one is other or (type(one) is type(other) and bool(one == other))
    alike = (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
    return alike and (is_result or torch.equal(one, other))


def eager_vectors(given: dict[str, Any]) -> object:
    """Call what launched a kernel of ``attention_vectors``, with the tensors that it got."""
    tensors = [given[f"{name}_pointer"] for name in ("factor", "radius", "cos", "sin")]
    if "x_pointer" in given:
        return attention_vectors.forward(given["x_pointer"], *tensors, torch.bfloat16, _HEADS)
    gradients, vectors = ([given[f"{prefix}{name}_pointer"] for name in "qkv"] for prefix in ("g", ""))
    return attention_vectors.backward(gradients, vectors, *tensors, torch.bfloat16, _HEADS, given["SUMS"])


def eager_residual_norm(given: dict[str, Any]) -> object:
    """Call what launched the kernel of ``residual_norm``, with the tensors that it got."""
    names = "gz", "gr", "x", "y", "norm", "weight", "scale", "kappa", "branch", "branch_weight", "branch_scale"
    tensors = [given[f"{name}_pointer"] for name in names]
    return residual_norm.backward(*tensors[:8], given["EPS"], *tensors[8:])


def report(case: str, *, turned: bool = True, learned: bool = True, dynamic: bool = False) -> None:
    """Compile on the CPU, because autograd follows no traced tensors of a GPU that does not exist."""

    def function(x: Tensor, factor: Tensor, radius: Tensor, *angles: Tensor) -> list[Tensor]:
        cos, sin = angles or (None, None)
        vectors = attention_vectors.attention_vectors(2 * x, factor, radius, cos, sin, torch.bfloat16, *_HEADS)
        return [3 * v.transpose(1, 2) for v in vectors]

    def keep(name: str) -> Any:
        def compiler(module: fx.GraphModule, inputs: object) -> Any:
            sys.stdout.write(json.dumps({"case": case, "graph": name} | facts(module.graph)) + "\n")
            return make_boxed_func(lambda *inputs: _Run(module, case, eager_vectors).run(*inputs))

        return compiler

    torch.compiler.reset()
    backend = aot_autograd(
        fw_compiler=keep("forward"),
        bw_compiler=keep("backward"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    x = torch.randn(2, 70, _HEADS.columns, dtype=torch.bfloat16, requires_grad=True)
    numbers = [torch.rand(shape, requires_grad=learned) for shape in ((4,), ())]
    angles = [torch.rand(70, 32), torch.rand(70, 32)] if turned else []
    found = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=backend)(x, *numbers, *angles)
    sum((v.float() * torch.randn(v.shape)).sum() for v in found).backward()


def report_residual_norm(case: str, *, branch: bool) -> None:
    """Compile one call of ``residual_norm_backward``, which has no derivative."""

    def compiler(module: fx.GraphModule, inputs: object) -> Any:
        sys.stdout.write(json.dumps({"case": case, "graph": "forward"} | facts(module.graph)) + "\n")
        return make_boxed_func(lambda *inputs: _Run(module, case, eager_residual_norm).run(*inputs))

    def function(*rows: Tensor) -> Sequence[Tensor]:
        first, (norm, number) = [2 * row for row in rows[:5]], rows[5:]
        more = (first[4], number, number) if branch else ()
        return residual_norm.residual_norm_backward(*first[:4], norm, number, number, number, 1e-6, *more)

    torch.compiler.reset()
    backend = aot_autograd(fw_compiler=compiler, decompositions=select_decomp_table())
    points = [torch.randn(2, 70, 512).to(dtype) for dtype in (torch.float32, torch.bfloat16) * 2]
    torch.compile(function, fullgraph=True, backend=backend)(*points, points[1], torch.ones(512), torch.tensor(1.0))


def main() -> None:
    triton.runtime.driver.set_active(_Driver())
    report("all arguments")
    report("no angles", turned=False, learned=False)
    report("symbolic sizes", dynamic=True)
    report_residual_norm("residual and norm", branch=False)
    report_residual_norm("two residuals and norm", branch=True)
    exported = torch.export.export(_Exported(), (torch.empty(2, 5, _HEADS.columns), torch.empty(4)))
    sys.stdout.write(json.dumps({"case": "exported", "graph": "forward"} | facts(exported.graph)) + "\n")
    kernels = [
        kernel for name, kernels in triton_ops_to_kernels.items() if name.startswith("lresnet") for kernel in kernels
    ]
    sources = {(k.__name__, name): found for k in kernels for name, found in functions_of(k).items()}
    found = {"case": "all", "graph": "", "in background": len(runtime._requested), "kernels": len(kernels)}
    found["ambiguous"] = sorted(name for name, functions in sources.items() if len(functions) > 1)
    found["with backslash"] = sorted(n for n, functions in sources.items() if any("\\" in f.src for f in functions))
    sys.stdout.write(json.dumps(found) + "\n")


def functions_of(kernel: JITFunction) -> dict[str, set[JITFunction]]:
    """Return the functions that the kernel calls, directly or not, and itself, by the names in the source."""
    found, waiting = {kernel.__name__: {kernel}}, [kernel]
    while waiting:
        caller = waiting.pop()
        for name in caller.fn.__code__.co_names:
            called = caller.fn.__globals__.get(name)
            if isinstance(called, JITFunction) and called not in found.setdefault(name, set()):
                found[name].add(called)
                waiting.append(called)
    return found


class _Exported(torch.nn.Module):
    def forward(self, x: Tensor, factor: Tensor) -> Tensor:
        vectors = attention_vectors.attention_vectors(x, factor, factor[0], None, None, torch.float32, *_HEADS)
        return sum(v.sum() for v in vectors)


if __name__ == "__main__":
    main()
