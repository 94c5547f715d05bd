"""Triton's interpreter, without the work it repeats."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def patch_once_a_grid() -> None:
    """Let the functions of a kernel find Triton's language as the first of their module left it.

    The interpreter exchanges some 200 functions of the language whenever a kernel calls a function, which takes it as
    long as all the arithmetic. They stay exchanged until the grid is done: one exchange for each module is enough.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    try:
        from triton.runtime import interpreter

        exchange, run = interpreter._patch_lang, interpreter.GridExecutor.__call__
    except (ImportError, AttributeError):  # no Triton, or one that is built differently: slower, and no harm
        return
    done: set[int] = set()

    def exchange_once(function: Callable[..., object]) -> Any:
        module = id(function.__globals__)
        if module in done:
            return None
        done.add(module)
        return exchange(function)

    def run_grid(self: Any, *arguments: Any, **options: Any) -> None:
        done.clear()
        run(self, *arguments, **options)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = exchange_once, run_grid
