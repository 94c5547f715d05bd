"""Names that a user may have misspelt, and names that are safe to print."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

__all__ = ["did_you_mean", "one_line", "require_known"]


def require_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raise an error for a name that is not ``known``, and suggest the nearest one.

    Raises:
        ValueError: the name is unknown.
    """
    names = list(known)
    if name not in names:
        raise ValueError(f"unknown {what} {name!r}; {did_you_mean(name, names)}Known: {', '.join(names)}")


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return a suggestion if one of the names is close to ``name``, otherwise an empty string.

    Example:
        >>> did_you_mean("cifar1", ["cifar10", "svhn"])
        "did you mean 'cifar10'? "
    """
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def one_line(name: str) -> str:
    r"""Return ``name`` with line breaks, control characters and characters that cannot be encoded escaped.

    Example:
        >>> print(one_line("two\nlines, \x1b[31mred"))
        two\nlines, \x1b[31mred
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name)
