"""Parse the options of a verb, then return the call. Errors are reported in one line."""

import contextlib
import functools
import inspect
import io
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from lresnet.runs.names import choose_one_of, did_you_mean

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
    return _reworded("; ".join(filter(None, shown))) or " ".join(box.split())


def _sentence(part: Sequence[str]) -> str:
    """Join a part up to its first empty line; lines indented by eight explain an option and are left to the help."""
    lines = [line for line in itertools.takewhile(bool, part) if not line.startswith(" " * 8)]
    options = ", ".join(line.strip() for line in lines if line.startswith(" "))
    words = " ".join([*(line for line in lines if not line.startswith(" ")), options]).strip()
    return words if words.endswith("...") else words.removesuffix(".")


def _reworded(message: str) -> str:
    """Word tyro's message as the other errors are worded; a message of another form stays as it is."""
    tail = re.search(r"; For full helptext, (?:run:?|see) (.*) --help$", message)
    error = message[: tail.start()] if tail else message
    for pattern, words in _WORDING:
        if found := re.fullmatch(pattern, error):
            error = words(*found.groups())
            break
    see = " See" if error.endswith("?") else "; see"
    return f"{error}{see} `{tail[1]} --help`" if tail else error


def _unknown(tokens: str, kind: str | None, names: str | None) -> str:
    """Word an error about words that are no options: the options among them, otherwise the first word."""
    tokens, *similar = re.split(r"; Arguments similar to \S+: ", tokens)  # of several options
    options = [word for word in tokens.split(", ") if word.startswith("-")]
    first = tokens.partition(", ")[0]
    if kind == "Perhaps you meant:" or similar:
        return f"unknown option {', '.join(options)}; did you mean {names or ', '.join(similar)}?"
    if kind == "Available subcommands:" and not options:
        return f"unknown verb {first!r}; {choose_one_of(first, (names or '').split(', '))}"
    return f"unknown option {', '.join(options)}" if options else f"unexpected argument {first!r}"


def _wrong_choice(value: str, option: str, choices: str) -> str:
    names = re.findall(r"'([^']*)'", choices)
    if "None" in names:  # an option that may be omitted; tyro has its choices in no fixed order
        names = sorted(set(names) - {"None"})
    return f"{option} must be one of {', '.join(names)}, got {value!r}; {did_you_mean(value, names)}".rstrip("; ")


def _wrong_type(option: str, kinds: str, value: str) -> str:
    words = {"INT": "an integer", "FLOAT": "a number", "{[INT [INT ...]]}": "integers"}
    allowed = [
        name for kind in kinds.split("|") for name in ([words[kind]] if kind in words else kind[1:-1].split(","))
    ]
    return f"{option} must be {' or '.join(name for name in allowed if name != 'None')}, got {value.strip('[]')}"


_WORDING: tuple[tuple[str, Callable[..., str]], ...] = (
    (r"Unrecognized options: (.+?)(?:; (Perhaps you meant:|Available subcommands:) (.+))?", _unknown),
    (
        r"Unrecognized or misplaced options: (\S+) .+?; Available subcommands: ([^;]+).*",
        "{} belongs after a verb; choose one of {}".format,
    ),
    (r"Missing value for argument '(.+)'\. Expected 1 values", "{} needs a value".format),
    (r"Missing value for argument '(.+)'\. Expected (\d+) values", "{} needs {} values".format),
    (r"Missing from .+?: (.+)", "{} is missing".format),
    (r"Expected one of \{(.+)\}", "a verb is missing; choose one of {}".format),
    (r"invalid choice '(.*)' for argument '(.+)'\. Expected one of \((.+)\)", _wrong_choice),
    (r"Error parsing (\S+): no type matching (.+) could be instantiated from (.+)", _wrong_type),
    (r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.+)", "{} must be an integer, got {}".format),
    (r"Error parsing (\S+): Could not find valid parse for arguments: \[(.+)\]", "{} does not take {}".format),
    (r"Error parsing (\S+): could not convert string to float: (.+)", "{} must be a number, got {}".format),
)
"""Messages of tyro as patterns, and our words for them."""
