"""Base classes of the residual modules: manifold, coordinate axis, weight."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from lresnet.geometry import Lorentz, ManifoldModule, state
from lresnet.geometry.checks import require_finite

__all__ = ["FixedNumbers", "Residual", "WeightedResidual", "require_learned", "require_positive_number"]

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Residual(ManifoldModule, abc.ABC):
    """A residual connection ``residual(x, y)`` of the skip branch x and the layer's output y.

    Args:
        manifold: Owner of the curvature; it is referenced, not registered as a submodule.
        dim: The coordinate axis; 1 for images.

    Shapes:
        x, y: [..., n] (coordinates along ``dim``) -> the same.
    """

    def __init__(self, manifold: Lorentz, dim: int = -1) -> None:
        super().__init__(manifold)
        self.dim = dim

    @abc.abstractmethod
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the residual of the skip branch x and the layer's output y."""

    def kernel(self) -> dict[str, Any] | None:
        """Return arguments for :func:`lresnet.nn.batch_norm.norm_tail`, or None if no kernel computes this residual."""
        return None

    def extra_repr(self) -> str:
        return f"{self.manifold.extra_repr()}, dim={self.dim}"


class FixedNumbers(torch.nn.Module):
    """A module whose fixed numbers stay exact when its dtype changes: 0.1 in float32, then ``.double()``, is 0.1.

    A buffer whose value differs from its number was loaded or changed, and is left as it is.
    """

    _numbers: dict[str, float]

    def fix(self, name: str, number: float, *, persistent: bool = True, **factory: Any) -> None:
        """Register ``number`` as the buffer ``name``."""
        if "_numbers" not in self.__dict__:
            self._numbers = {}
            self.register_load_state_dict_post_hook(_restore)  # type: ignore[no-untyped-call]
        self._numbers[name] = number
        self.register_buffer(name, torch.tensor(number, **factory), persistent)

    def holds(self, name: str) -> bool:
        """Return whether the buffer equals its number, exactly or rounded to a narrower dtype."""
        buffer, number = self.get_buffer(name), self._numbers[name]
        if buffer.is_meta or isinstance(buffer, FakeTensor):
            return True  # there are no values to compare
        value = float(buffer)
        return any(value == float(torch.tensor(number, dtype=dtype, device="cpu")) for dtype in _DTYPES)

    def restore(self) -> None:
        """Write the numbers again, after a change of dtype or after loading a state dict."""
        for name, number in self.__dict__.get("_numbers", {}).items():
            if self.holds(name):
                self.get_buffer(name).fill_(number)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.restore()
        return self


def _restore(module: torch.nn.Module, _: Any) -> None:
    assert isinstance(module, FixedNumbers)
    module.restore()


class WeightedResidual(Residual, FixedNumbers):
    """A residual with a weight w_y = \\|raw_weight\\|: learned, fixed, or one per point.

    Args:
        manifold, dim: As for :class:`Residual`.
        weight: ``"learned"`` (one parameter, of shape [1]), a number, or a tensor with one weight per point; a
            Parameter is trained.
        initial_weight: Initial value of a learned weight.
        factory: ``device`` and ``dtype`` of the weight.
    """

    learned_numbers: ClassVar[tuple[str, ...]] = ("raw_weight",)
    raw_weight: Tensor

    def __init__(
        self,
        manifold: Lorentz,
        weight: str | float | Tensor = "learned",
        dim: int = -1,
        *,
        initial_weight: float = 1.0,
        **factory: Any,
    ) -> None:
        super().__init__(manifold, dim)
        if isinstance(weight, str):
            require_learned("weight", weight, "a tensor")
            start = require_positive_number("initial_weight", initial_weight)
            self.raw_weight = torch.nn.Parameter(torch.tensor([start], **factory))
        elif isinstance(weight, torch.nn.Parameter):
            self.raw_weight = weight
        elif isinstance(weight, Tensor):
            require_finite(weight)
            self.register_buffer("raw_weight", weight)
        elif math.isfinite(weight):
            self.fix("raw_weight", float(weight), **factory)
        else:
            raise ValueError(f"weight must be finite, got {weight}")

    @property
    def weight(self) -> Tensor:
        """The effective weight w_y >= 0; w_x is 1."""
        return self.signed_weight.abs()

    @property
    def signed_weight(self) -> Tensor:
        """The weight before its absolute value is taken: a 0-dimensional tensor, or one weight per point."""
        return state.number(self.raw_weight)

    def extra_repr(self) -> str:
        kind = "learned" if isinstance(self.raw_weight, torch.nn.Parameter) else "fixed"
        shape = "" if self.raw_weight.shape in ((), (1,)) else f", one per point {tuple(self.raw_weight.shape)}"
        return f"{super().extra_repr()}, weight={kind}{shape}"


def require_learned(name: str, value: str, other: str) -> None:
    """Raise ``ValueError`` unless the string given for ``name`` is ``"learned"``; ``other`` is allowed as well."""
    if value != "learned":
        raise ValueError(f"{name} must be 'learned', a number or {other}; got {value!r}")


def require_positive_number(name: str, value: float) -> float:
    """Return ``value`` as a float; raise ``ValueError`` unless it is positive and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}")
    return float(value)
