"""Parse the options of a verb, then return the call. Errors are reported in one line."""

import contextlib
import functools
import inspect
import io
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["App", "Failed", "WrongCall", "read_call"]


class WrongCall(ValueError):
    """The command line is wrong; the message says what is wrong and which help to read."""


class Failed(Exception):
    """The command was valid but did not succeed; the message says why."""


class App:
    """A verb that has verbs of its own, such as ``lresnet data list``.

    Args:
        summary: what the verb does, in one sentence.

    Example:
        >>> plot = App("Draw pictures.")
        >>> @plot.command
        ... def curves() -> int:
        ...     "Draw curves."
        ...     return 0
        >>> read_call(plot, "lresnet plot", ["curves"])()
        0
    """

    def __init__(self, summary: str) -> None:
        self.summary, self.verbs = summary, dict[str, Callable[..., int]]()

    def command(self, verb: Callable[..., int]) -> Callable[..., int]:
        """Add a verb under its own name, without a trailing underscore; usable as a decorator."""
        self.verbs[verb.__name__.rstrip("_")] = verb
        return verb


def read_call(verb: App | Callable[..., int], prog: str, args: Sequence[str]) -> Callable[[], int]:
    """Return the call that ``args`` describe. A request for help prints it and exits.

    Raises:
        WrongCall: the arguments are wrong.
    """
    import tyro
    from tyro.extras import SubcommandApp

    from lresnet.cli.repeatable_options import accumulate

    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            call: Callable[[], int]
            if isinstance(verb, App):
                app = SubcommandApp()
                for name, own in verb.verbs.items():
                    app.command(name=name)(accumulate(_deferred(own)))
                call = app.cli(prog=prog, description=verb.summary, args=args)
            else:
                call = tyro.cli(accumulate(_deferred(verb)), prog=prog, args=args)
        except SystemExit as end:
            if not end.code:
                raise
            raise WrongCall(_one_line(errors.getvalue())) from None
    return call


def _deferred(verb: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    """Return a function with the verb's signature that returns the call instead of making it."""

    @functools.wraps(verb)
    def call(*args: Any, **options: Any) -> Callable[[], int]:
        return functools.partial(verb, *args, **options)

    # One line for each argument: tyro's help would keep the line breaks of the source.
    call.__doc__ = re.sub(r"\n {8}(?=\S)", " ", inspect.cleandoc(verb.__doc__ or ""))
    return call


def _one_line(box: str) -> str:
    """Turn tyro's box into one line: the error, a suggestion, and the help to read.

    Where the terminal cannot draw lines, the box consists of spaces and hyphens.
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
    """Join a part up to its first empty line; lines indented by eight explain an option and are left to the help."""
    lines = [line for line in itertools.takewhile(bool, part) if not line.startswith(" " * 8)]
    options = ", ".join(line.strip() for line in lines if line.startswith(" "))
    words = " ".join([*(line for line in lines if not line.startswith(" ")), options]).strip()
    return words if words.endswith("...") else words.removesuffix(".")
