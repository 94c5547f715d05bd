"""Printable names: files, sets and classes may have any name."""

from __future__ import annotations

__all__ = ["one_line"]


def one_line(name: str) -> str:
    r"""Return ``name`` with line breaks, control characters and characters that cannot be encoded escaped.

    Example:
        >>> print(one_line("two\nlines, \x1b[31mred"))
        two\nlines, \x1b[31mred
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name)
