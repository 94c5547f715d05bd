"""Words to verbs: first all of them are read, then the verb is called; what is wrong about them is said plainly."""

import contextlib
import functools
import io
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from tyro.extras import SubcommandApp

from lresnet.cli.repeatable_options import adding_up

__all__ = ["App", "Failed", "WrongCall", "read_call"]


class WrongCall(ValueError):
    """The words are no call; what is wrong, and which help to read."""


class Failed(Exception):
    """What was asked for was possible, and did not succeed; why."""


class App(SubcommandApp):
    """Verbs by name. Of a verb that is asked for, the app gives the call, yet to be made."""

    def command(self, func: Any = None, **options: Any) -> Any:
        """As tyro's: a decorator, or a call with a verb or with an app of verbs."""
        if func is None:
            return functools.partial(self.command, **options)
        super().command(func if isinstance(func, SubcommandApp) else adding_up(_later(func)), **options)
        return func


def _later(verb: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    @functools.wraps(verb)
    def call(*args: Any, **options: Any) -> Callable[[], int]:
        return functools.partial(verb, *args, **options)

    return call


def read_call(app: App, prog: str, description: str, args: Sequence[str]) -> Callable[[], int]:
    """The call that ``args`` stand for; a wish for help is granted, and ends the process.

    Raises:
        WrongCall: they stand for none.
    """
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            call: Callable[[], int] = app.cli(prog=prog, description=description, args=args)
        except SystemExit as end:
            if not end.code:
                raise
            raise WrongCall(_plain(said.getvalue())) from None
    return call


def _plain(box: str) -> str:
    """tyro's box of several lines as one: what is wrong, what may have been meant, where to read on.

    Where the terminal has no characters to draw with, the box is one of spaces and hyphens.
    """
    parts: list[list[str]] = [[]]
    for line in re.sub(r"\x1b\[[\d;]*m", "", box).splitlines()[1:]:
        text = line[2:].rstrip(" │")
        if text and not text.strip("─╯-"):  # a rule between two parts, or the end of the box
            parts.append([])
        else:
            parts[-1].append(text)
    shown = [_sentence(part) for part in parts if part and not part[0].startswith("Argument helptext")]
    return "; ".join(filter(None, shown)) or " ".join(box.split())


def _sentence(part: Sequence[str]) -> str:
    """Up to the first empty line; what is set in by eight explains an option, and is left to the help."""
    lines = [line for line in itertools.takewhile(bool, part) if not line.startswith(" " * 8)]
    options = ", ".join(line.strip() for line in lines if line.startswith(" "))
    words = " ".join([*(line for line in lines if not line.startswith(" ")), options]).strip()
    return words if words.endswith("...") else words.removesuffix(".")
