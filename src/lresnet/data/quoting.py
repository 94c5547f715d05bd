"""Text of users' files as error messages quote it: on one line, and never long."""

from __future__ import annotations

__all__ = ["quoted"]

_LONGEST = 60


def quoted(text: object) -> str:
    """Return ``repr(text)``, shortened to about 60 characters.

    Example:
        >>> quoted("a name")
        "'a name'"
        >>> quoted("x" * 1_000_000)
        "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' (1,000,000 characters)"
    """
    text = str(text)
    if len(text) <= _LONGEST:
        return repr(text)
    return f"{text[:40] + '...'!r} ({len(text):,} characters)"
