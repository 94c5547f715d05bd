"""Benchmarks of residuals, ResNets and graph networks: ``lresnet bench`` and ``lresnet reproduce runtime``.

All candidates run in every round; medians and quartiles are reported. On CUDA the clock is CUDA events; short kernels
are replayed as CUDA graphs, on more memory than the cache holds. On a CPU the clock is process time of one thread.
"""

from lresnet_paper.bench.measurement import Measurement, line, runtime_line
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
