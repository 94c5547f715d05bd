"""A patch that makes Triton's interpreter faster for the tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def patch_once_per_grid() -> None:
    """Replace the functions of Triton's language once per module and grid.

    The interpreter replaces about 200 functions of the language whenever a kernel calls a device function, which takes
    as long as the arithmetic itself. They stay replaced until the grid has finished, so once per module is enough.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    try:
        from triton.runtime import interpreter

        replace, run = interpreter._patch_lang, interpreter.GridExecutor.__call__
    except (ImportError, AttributeError):  # no Triton, or a version with other internals: tests are slower
        return
    done: set[int] = set()

    def replace_once(function: Callable[..., object]) -> Any:
        module = id(function.__globals__)
        if module in done:
            return None
        done.add(module)
        return replace(function)

    def run_grid(self: Any, *arguments: Any, **options: Any) -> None:
        done.clear()
        run(self, *arguments, **options)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = replace_once, run_grid
