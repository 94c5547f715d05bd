"""Arguments of a method, inferred from its calls: in ``self.output(self.attention(x), x)`` a branch and its skip.

Their sum is in another module, method or function, where both are ordinary arguments.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from lresnet.convert.parts import Parts, is_doubtful_name
from lresnet.convert.values import Value

__all__ = ["Callers", "Pairs", "Related", "Site", "is_torchs", "related"]

Related = Mapping[tuple[str, str], tuple[str, ...]]
"""Pairs of arguments, one and what layers have made of it; with the parts of the same module that it went through."""


class Pairs(NamedTuple):
    """What the calls tell."""

    agreed: Related
    """Those of all calls that give both arguments."""
    told: Related
    """Those of one of them at least."""


class Site(NamedTuple):
    """A call."""

    called: tuple[str, ...] | types.FunctionType
    """Parts of the module, of which it is one; or a method of it; or a function."""
    parts: Parts
    """Those of the module whose code it stands in."""
    given: Sequence[Value]
    named: Mapping[str, Value]

    def calls(self, name: str) -> bool:
        """Whether it may be a call of that part, or method."""
        return isinstance(self.called, tuple) and name in self.called


def related(sites: Sequence[Site], names: Sequence[str], own: bool = False) -> Pairs:
    """The pairs of the arguments ``names``; ``own``: the calls are those of a method within its module."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    refuted = set()
    for site in sites:
        given = dict(zip(names, site.given, strict=False)) | dict(site.named)
        tensors = {name: value for name, value in given.items() if value.kind == "tensor"}
        for pair in ((skip, branch) for skip in tensors for branch in tensors if skip != branch):
            skip, branch = (tensors[name] for name in pair)
            doubtful = site.parts.is_doubtful(branch.last_part) or any(map(is_doubtful_name, pair))
            if skip.is_skip_of(branch) and skip.same & branch.main and not doubtful:
                found[pair] = (*found.get(pair, ()), *branch.parts) if own else ()
            else:
                refuted.add(pair)
    return Pairs({pair: parts for pair, parts in found.items() if pair not in refuted}, found)


class Callers:
    """Who calls the modules of a network: the ones that they are parts of, or whose lists of parts they are in."""

    def __init__(self, network: torch.nn.Module) -> None:
        self._owners: dict[int, list[tuple[int, str]]] = {}
        self._sites: dict[int, Sequence[Site]] = {}
        for owner in network.modules():
            for name, part in [] if is_torchs(type(owner)) else owner._modules.items():
                for one in _listed(part):
                    self._owners.setdefault(id(one), []).append((id(owner), name))

    def note(self, owner: torch.nn.Module, sites: Sequence[Site]) -> None:
        """Keep the calls that the code of a module has."""
        self._sites[id(owner)] = sites

    def related(self, module: torch.nn.Module, names: Sequence[str]) -> Pairs:
        """Of the arguments of its forward; none are agreed where a module that may call it is still to be read."""
        owners = self._owners.get(id(module), [])
        sites = [site for owner, name in owners for site in self._sites.get(owner, ()) if site.calls(name)]
        pairs = related(sites, names)
        return pairs if all(owner in self._sites for owner, _ in owners) else pairs._replace(agreed={})


def is_torchs(cls: type) -> bool:
    """Not so a class that torch derives from the user's, for a parametrization."""
    return all(base.__module__.startswith("torch.nn.") for base in cls.__mro__ if issubclass(base, torch.nn.Module))


def _listed(part: torch.nn.Module | None) -> Iterator[torch.nn.Module]:
    """The module, and those that it is a list of."""
    if part is not None:
        yield part
        for one in part._modules.values() if is_torchs(type(part)) else ():
            yield from _listed(one)
