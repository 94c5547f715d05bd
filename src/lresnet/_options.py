"""Fields of configuration dataclasses: default, help text and allowed range in one declaration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

__all__ = [
    "ABOVE_0_BELOW_1",
    "AT_LEAST_1",
    "FROM_0_BELOW_1",
    "FROM_0_TO_1",
    "NOT_NEGATIVE",
    "POSITIVE",
    "SEED",
    "InvalidSetting",
    "Range",
    "check_options",
    "option",
    "option_name",
    "placeholder",
]


@dataclass(frozen=True)
class Range:
    """The numbers that an option accepts.

    Args:
        words: the range as messages state it, after "must be".
        contains: whether a number is in the range.

    Example:
        >>> 0.5 in POSITIVE, float("nan") in POSITIVE, "0.5" in POSITIVE
        (True, False, False)
        >>> str(POSITIVE)
        'positive and finite'
    """

    words: str
    contains: Callable[[Any], bool]

    def __contains__(self, value: object) -> bool:
        return isinstance(value, Real) and self.contains(value)

    def __str__(self) -> str:
        return self.words


# True is an Integral, but nobody means 1 by it.
AT_LEAST_1 = Range("at least 1", lambda n: type(n) is not bool and isinstance(n, Integral) and int(n) >= 1)
POSITIVE = Range("positive and finite", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = Range("not negative, and finite", lambda value: 0 <= value < math.inf)
FROM_0_BELOW_1 = Range("at least 0 and below 1", lambda value: 0 <= value < 1)
FROM_0_TO_1 = Range("0 to 1", lambda value: 0 <= value <= 1)
ABOVE_0_BELOW_1 = Range("above 0 and below 1", lambda value: 0 < value < 1)
# NumPy's generators take no larger seed; torch's would.
SEED = Range("a whole number from 0 to 2^32 - 1", lambda value: isinstance(value, Integral) and 0 <= int(value) < 2**32)


class InvalidSetting(ValueError):
    """A setting of a configuration is out of its range, or not among its choices.

    Args:
        setting: its name in Python.
        problem: what is wrong, to be read after the name.
    """

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(setting, problem)  # pickle calls the class with these arguments, e.g. in a worker process
        self.setting, self.problem = setting, problem

    def __str__(self) -> str:
        return f"{self.setting} {self.problem}"


def option(default: Any, help: str, *, range: Range | None = None, metavar: str | None = None) -> Any:
    """Return a dataclass field with its help text, allowed range and placeholder in ``metadata``.

    Args:
        default: value of the field. None also means that None is allowed.
        help: one sentence for the command line and the documentation.
        range: the numbers that the field accepts.
        metavar: what the command line shows in place of the value, e.g. ``"EPOCHS"``. A ``Literal`` needs none: see
            :func:`placeholder`.
    """
    return field(default=default, metadata={"help": help, "range": range, "metavar": metavar})


def option_name(setting: str) -> str:
    """Return the command-line option of a setting, without its dashes.

    Example:
        >>> option_name("num_layers"), option_name("weight_decay")
        ('layers', 'weight-decay')
    """
    return setting.removeprefix("num_").replace("_", "-")


def placeholder(setting: Field[Any], hint: Any) -> str | None:
    """Return what the command line shows in place of a value: the field's ``metavar``, or the choices of its type.

    Args:
        setting: a field made by :func:`option`.
        hint: its type.

    Example:
        >>> @dataclass
        ... class Config:
        ...     keep: Literal["best", "last"] = option("best", "Which parameters are kept.")
        >>> placeholder(fields(Config)[0], Literal["best", "last"])
        'best|last'
    """
    metavar: str | None = setting.metadata["metavar"]
    return metavar or "|".join(map(str, _choices(hint))) or None


def check_options(config: Any) -> None:
    """Check every field of a dataclass made of :func:`option` fields; call it from ``__post_init__``.

    Raises:
        InvalidSetting: a number is out of its range, or a word is not among the choices of its ``Literal``.
    """
    hints = get_type_hints(type(config))
    for each in fields(config):
        value, allowed = getattr(config, each.name), each.metadata.get("range")
        if value is None and each.default is None:
            continue
        if allowed is not None and value not in allowed:
            raise InvalidSetting(each.name, f"must be {allowed}, got {value!r}")
        choices = _choices(hints[each.name])
        words = choices or (_words(hints[each.name]) if isinstance(value, str) else ())
        if words and value not in words:
            listed = [*map(str, words), *([] if choices else ["a number"])]
            raise InvalidSetting(each.name, f"must be {', '.join(listed[:-1])} or {listed[-1]}, got {value!r}")


def _choices(hint: Any) -> tuple[Any, ...]:
    """The values that a type allows, if it is a ``Literal`` or a ``Literal | None``; otherwise none."""
    own = _alternatives(hint)
    return get_args(own[0]) if len(own) == 1 and get_origin(own[0]) is Literal else ()


def _words(hint: Any) -> tuple[Any, ...]:
    """The words that a type allows beside numbers: those of ``Literal["learned"] | float``."""
    own = _alternatives(hint)
    return tuple(word for each in own if get_origin(each) is Literal for word in get_args(each)) if float in own else ()


def _alternatives(hint: Any) -> list[Any]:
    given = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [each for each in given if each is not type(None)]
