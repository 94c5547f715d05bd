"""A task as a CUDA graph: where kernels take no longer than their launches, the launches would be what is timed."""

from __future__ import annotations

import torch

from lresnet_paper.bench.clock import Task

__all__ = ["replayed"]

_WARM_UP = 3


def replayed(task: Task) -> Task:
    """A task that replays what ``task`` does on the GPU, at one launch. ``task`` runs three times before.

    Raises:
        RuntimeError: it cannot be recorded, e.g. because it waits for the GPU.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            task()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        task()
    return graph.replay
