"""Names of files, sets and classes, as they can be printed: a file may be called nearly anything."""

from __future__ import annotations

__all__ = ["one_line"]


def one_line(name: str) -> str:
    r"""What would break a line, command the terminal or cannot be encoded is escaped.

    Example:
        >>> print(one_line("two\nlines, \x1b[31mred"))
        two\nlines, \x1b[31mred
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name)
