"""Names that a user may have misspelt, and names that are safe to print."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Sequence

__all__ = ["choose_one_of", "composed", "did_you_mean", "one_line", "require_known"]


def composed(name: str) -> str:
    """Return a name with composed letters: an é may be one character or two, and a file and a terminal may differ.

    Example:
        >>> composed("e\u0301") == "é"
        True
    """
    return unicodedata.normalize("NFC", name)


def require_known(what: str, name: str, known: Iterable[str]) -> None:
    """Raise an error for a name that is not ``known``, and suggest the nearest one.

    Raises:
        ValueError: the name is unknown.
    """
    names = list(known)
    if name not in names:
        raise ValueError(f"unknown {what} {name!r}; {choose_one_of(name, names)}")


def choose_one_of(name: str, names: Sequence[str]) -> str:
    """Return what follows the error about an unknown name: the nearest of the names if there is one, and all of them.

    Example:
        >>> choose_one_of("lst", ["list", "fetch"]), choose_one_of("x", ["list", "fetch"])
        ("did you mean 'list'? Choose one of list, fetch", 'choose one of list, fetch')
    """
    question = did_you_mean(name, names)
    return f"{question}{'Choose' if question else 'choose'} one of {', '.join(names)}"


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return a suggestion if one of the names is close to ``name``, otherwise an empty string.

    A name that differs in upper and lower case or in accents only comes first.

    Example:
        >>> did_you_mean("cifar1", ["cifar10", "svhn"])
        "did you mean 'cifar10'? "
    """
    plain = {_without_accents(each): each for each in reversed(names)}
    same = [each for each in names if _folded(each) == _folded(name)][:1]
    near = same or difflib.get_close_matches(name, names, n=1)
    near = near or [plain[each] for each in difflib.get_close_matches(_without_accents(name), list(plain), n=1)]
    return f"did you mean {near[0]!r}? " if near else ""


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _without_accents(name: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFKD", _folded(name)) if not unicodedata.combining(each))


def one_line(name: str) -> str:
    r"""Return ``name`` with line breaks, control characters and characters that cannot be encoded escaped.

    Example:
        >>> print(one_line("two\nlines, \x1b[31mred"))
        two\nlines, \x1b[31mred
    """
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name)
