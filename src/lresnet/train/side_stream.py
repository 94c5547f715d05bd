"""Work on a second CUDA stream, beside what the first one does: for drawing what is needed only later in a step."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["Beside"]


class Beside:
    """Starts functions beside the current stream of a CUDA device; elsewhere they simply run.

    A recorded step keeps the two branches apart, and a replay runs them at the same time. What such a function gives
    is to be read after :meth:`join` only, from memory that stays where it is.

    Example:
        >>> beside, drawn = Beside(torch.device("cpu")), torch.empty(3)
        >>> beside.start(lambda: drawn.fill_(1.0))
        >>> beside.join()
        >>> drawn
        tensor([1., 1., 1.])
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def start(self, function: Callable[[], object]) -> None:
        """Run ``function`` after everything that was started before, and beside what comes next."""
        if self._stream is None:
            function()
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            function()

    def join(self) -> None:
        """Let the current stream go on only when what was started is done."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
