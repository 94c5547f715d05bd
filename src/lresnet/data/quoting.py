"""Text of users' files as error messages quote it: on one line, and never long."""

from __future__ import annotations

__all__ = ["quoted", "reason"]

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


def reason(error: BaseException) -> str:
    r"""Return the message of an error of another library on one line of at most 200 characters.

    Example:
        >>> reason(ValueError("bad\n  header"))
        'bad header'
        >>> reason(KeyError())
        'KeyError'
    """
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in str(error)).split())
    return text[:200] or type(error).__name__
