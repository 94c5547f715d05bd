"""Benchmarks with an honest clock: residuals, ResNets, graph networks; ``lresnet bench`` and ``reproduce runtime``.

Contenders take turns in every round; medians and quartiles; on CUDA events, graphs replayed where launches would be
what is timed, and memory that no cache can hold; on a CPU process time of one thread.
"""

from lresnet_paper.bench.measurement import Measurement, line
from lresnet_paper.bench.runtime import runtime_line
from lresnet_paper.bench.suite import (
    bench_gcn,
    bench_residual,
    bench_resnet,
    bench_runtime,
    bench_sgformer,
    bench_training,
)

__all__ = [
    "Measurement",
    "bench_gcn",
    "bench_residual",
    "bench_resnet",
    "bench_runtime",
    "bench_sgformer",
    "bench_training",
    "line",
    "runtime_line",
]
