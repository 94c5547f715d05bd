"""Value of a name in a forward method: what it was computed from, and whether through a layer."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Literal

__all__ = ["Value", "Values"]

Kind = Literal["tensor", "sequence", "layer", "fact"]
_NONE: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """One value, known by its number; the sets hold the numbers of values."""

    number: int
    same: frozenset[int]
    """Itself, and the values that it is a shortcut of."""
    direct: frozenset[int]
    """Itself, and what it comes from with no layer between."""
    through: frozenset[int] = _NONE
    """What it comes from through a layer."""
    main: frozenset[int] = _NONE
    """Of that, what was the first argument of every layer: not what it was told beside, as a mask or a condition."""
    memory: frozenset[int] = _NONE
    """Values that share it are aliases: a sum in place of one is seen in the other."""
    parts: tuple[str, ...] = ()
    """The parts of the module that it went through, in that order."""
    kind: Kind = "tensor"
    """A fact is a number, a shape, a dtype: what is computed from it does not come from the tensor that was asked."""

    @property
    def before(self) -> frozenset[int]:
        """All that it comes from, itself among it."""
        return self.direct | self.through

    @property
    def last_part(self) -> str:
        """The last part that it went through, dropout apart."""
        return next((part.lower() for part in reversed(self.parts) if "drop" not in part.lower()), "")

    def is_skip_of(self, branch: Value) -> bool:
        """Whether ``branch`` is computed from it, by layers only."""
        return bool(self.same & branch.through) and not self.same & branch.direct


class Values:
    """Where values come into being."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._before: dict[int, frozenset[int]] = {}

    def new(self, *sources: Value, kind: Kind = "tensor", part: str | None = None, view: bool = False) -> Value:
        """A value computed from the ``sources`` by anything but a layer; one that is a ``view`` of them shares memory.

        Example:
            >>> values = Values()
            >>> x = values.new()
            >>> y = values.new(x)
            >>> x.number in y.direct, x.number in values.layer([y]).direct, x.number in values.layer([y]).through
            (True, False, True)
        """
        if sources and kind == "tensor" and all(source.kind == "fact" for source in sources):
            kind = "fact"
        sources = tuple(source for source in sources if source.kind != "fact")
        number = next(self._numbers)
        own = frozenset({number})
        parts = _parts(sources) if part is None else (*_parts(sources), part)
        value = Value(
            number,
            own,
            own.union(*(source.direct for source in sources)),
            _NONE.union(*(source.through for source in sources)),
            _NONE.union(*(source.main for source in sources)),
            own.union(*(source.memory for source in sources)) if view else own,
            parts,
            kind,
        )
        return self._kept(value)

    def layer(self, sources: Iterable[Value], parts: tuple[str, ...] = (), shortcut_of: Value | None = None) -> Value:
        """What a layer makes of the sources."""
        sources = [source for source in sources if source.kind != "fact"]
        first = sources if any(source.kind == "layer" for source in sources) else sources[:1]  # checkpoint(self.f, x)
        value = self.new()
        return self._kept(
            dataclasses.replace(
                value,
                same=value.same if shortcut_of is None else value.same | shortcut_of.same,
                through=_NONE.union(*(source.before for source in sources)),
                main=_NONE.union(*(source.direct | source.main for source in first)),
                parts=(*_parts(sources), *parts),
            )
        )

    def either(self, first: Value, second: Value) -> Value:
        """One or the other, as a condition has it: a shortcut of both."""
        if first is second:
            return first
        order: tuple[Kind, ...] = ("sequence", "layer", "tensor", "fact")
        kind = min(first.kind, second.kind, key=order.index)
        value = self.new(first, second, kind=kind, view=True)
        return self._kept(dataclasses.replace(value, same=value.same | first.same | second.same))

    def taken(self, met: Value, unmet: Value) -> Value:
        """What a known condition gives: a layer is a shortcut where its input would be there with other settings."""
        return self.either(met, unmet) if unmet.same & met.before else met

    def copy(self, value: Value) -> Value:
        """The same in memory of its own."""
        return dataclasses.replace(value, memory=self.new().same)

    def forks(self, first: Value, second: Value) -> frozenset[int]:
        """The last values that both come from."""
        common = first.before & second.before
        earlier = _NONE.union(*(self._before[number] - {number} for number in common))
        return common - earlier

    def _kept(self, value: Value) -> Value:
        self._before[value.number] = value.before
        return value


def _parts(sources: Iterable[Value]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for source in sources for part in source.parts))
