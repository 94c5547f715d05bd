"""A training step as one CUDA graph: recorded once, replayed without the host in the way."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator

import torch

__all__ = ["CapturedStep"]

# Before a recording, autotuners and optimisers have to have chosen and allocated everything; torch advises three runs.
_WARM_UP = 3


class CapturedStep:
    """``step``, run eagerly on a stream of its own for its first calls, then recorded, then replayed.

    Every call is one real step: the first ones are not lost on warming up. What the step reads and writes has to stay
    where it is in memory; what it draws from ``generators`` goes on from call to call.

    Launching the few hundred kernels of a small network takes the host longer than they take the GPU; a replay is one
    launch.
    """

    def __init__(self, step: Callable[[], None], generators: Iterable[torch.Generator] = ()) -> None:
        self._step, self._generators = step, list(generators)
        self._calls = 0
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self._calls < _WARM_UP:
            self._warm_up()
        else:
            if self._graph is None:
                self._graph = self._record()
            self._graph.replay()
        self._calls += 1

    def _warm_up(self) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._step()
        torch.cuda.current_stream().wait_stream(self._stream)

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        with _no_garbage(), torch.cuda.graph(graph, stream=self._stream):
            self._step()
        return graph


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    """Collect it now, and none inside: to free what an earlier recording holds breaks the one under way."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
