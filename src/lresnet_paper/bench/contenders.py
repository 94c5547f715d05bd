"""Ways to compute a residual: ours by kernels and by formulas, the published forms, geoopt's; eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Literal

import torch
from torch import Tensor

from lresnet import functional
from lresnet.geometry import Lorentz
from lresnet.kernels import disabled, is_available
from lresnet.residual import registry

__all__ = ["FORMS", "METHODS", "Compiled", "Contender", "Form", "Function", "contenders", "why_not_compiled"]

Function = Callable[[Tensor, Tensor], Tensor]
Form = Literal["kernels", "reference", "reference compiled", "textbook", "textbook compiled", "geoopt"]
Compiled = Literal["auto", "yes", "no"]

FORMS: tuple[Form, ...] = ("kernels", "reference", "reference compiled", "textbook", "textbook compiled", "geoopt")

_REFERENCE: dict[str, Callable[..., Tensor]] = {
    method.name: resolve_name(method.function)
    for method in registry.METHODS.values()
    if method.function and method.textbook_function
}
_TEXTBOOK: dict[str, Callable[..., Tensor]] = {
    method.name: resolve_name(method.textbook_function)
    for method in registry.METHODS.values()
    if method.textbook_function
}
METHODS = ("euclidean", "space", *_REFERENCE)


@dataclass(frozen=True)
class Contender:
    """A way to compute a residual, or the reason why there is none here."""

    method: str
    form: str
    function: Function | None
    missing: str = ""

    @property
    def name(self) -> str:
        return f"{self.method}, {self.form}"

    @property
    def recordable(self) -> bool:
        """Whether it may become a CUDA graph; geoopt's functions are scripts that compile themselves as they run."""
        return self.form != "geoopt"


def contenders(device: torch.device, compiled: Compiled = "auto") -> list[Contender]:
    """All of them for curvature -1 and weight 1 on ``device``; ``x + y`` first.

    Args:
        compiled: whether torch.compile takes part; "auto": on CUDA.

    Example:
        >>> [c.name for c in contenders(torch.device("cpu")) if c.method == "tangent" and c.function]
        ['tangent, reference', 'tangent, textbook', 'tangent, geoopt']
    """
    found = [Contender("euclidean", "x + y", torch.add), Contender("space", "reference", functional.space_residual)]
    for method in _REFERENCE:
        for form in FORMS:
            function = _function(method, form, device, compiled)
            told = isinstance(function, str)
            found.append(Contender(method, form, None if told else function, function if told else ""))  # type: ignore[arg-type]
    return found


def why_not_compiled(device: torch.device, compiled: Compiled) -> str:
    """Empty if torch.compile takes part; else the reason."""
    if compiled == "auto" and device.type != "cuda":
        return "on a CPU for lresnet bench residual --compiled yes, which takes a minute more"
    return "not asked for" if compiled == "no" else ""


def _function(method: str, form: Form, device: torch.device, compiled: Compiled) -> Function | str:
    """The function, or why there is none."""
    if form == "geoopt":
        return _geoopt(method, device)
    if form == "kernels":
        available = is_available(device)
        return _weighted(_REFERENCE[method], method, device) if available else available.reason
    if "compiled" not in form:
        return _by_formulas(_weighted((_REFERENCE if form == "reference" else _TEXTBOOK)[method], method, device))
    if reason := why_not_compiled(device, compiled):
        return reason
    function = (_REFERENCE if form.startswith("reference") else _TEXTBOOK)[method]
    return _by_formulas(_weighted(torch.compile(function, dynamic=False), method, device))


def _weighted(function: Callable[..., Tensor], method: str, device: torch.device) -> Function:
    """With weight 1 as a tensor on the device, as a learned one is; a number would be brought there at every call."""
    if "weight" not in registry.METHODS[method].options:
        return function
    weight = torch.ones((), device=device)
    return lambda x, y: function(x, y, weight)


def _by_formulas(function: Function) -> Function:
    def call(x: Tensor, y: Tensor) -> Tensor:
        with disabled():
            return function(x, y)

    return call


def _geoopt(method: str, device: torch.device) -> Function | str:
    """What a user of geoopt would write on time-first vectors; lifting and dropping included."""
    M = Lorentz(-1.0)
    G = M.to_geoopt().float().to(device)

    def parallel_transport(x: Tensor, y: Tensor) -> Tensor:
        p, q = M.lift(x), M.lift(y)
        return G.expmap(p, G.transp0(p, G.logmap0(q)))[..., 1:]  # type: ignore[no-any-return]

    def tangent(x: Tensor, y: Tensor) -> Tensor:
        return G.expmap0(G.logmap0(M.lift(x)) + G.logmap0(M.lift(y)))[..., 1:]  # type: ignore[no-any-return]

    found = {"parallel_transport": parallel_transport, "tangent": tangent}
    return found.get(method, "geoopt has no such operation")
