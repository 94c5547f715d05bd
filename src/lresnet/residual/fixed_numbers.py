"""Numbers that a module is given and keeps: buffers that have all their digits in whatever dtype the module is in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["FixedNumbers"]

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class FixedNumbers(torch.nn.Module):
    """A module whose fixed numbers survive a change of dtype: 0.1 in float32 and then ``.double()`` is 0.1.

    A buffer that holds anything else than its number was loaded or changed, and stays as it is.
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
        """Whether the buffer is still its number, in this dtype or as a narrower one has rounded it."""
        buffer, number = self.get_buffer(name), self._numbers[name]
        if buffer.is_meta or isinstance(buffer, FakeTensor):
            return True  # nothing but shapes
        value = float(buffer)
        return any(value == float(torch.tensor(number, dtype=dtype, device="cpu")) for dtype in _DTYPES)

    def restore(self) -> None:
        """Write the numbers anew, where the module has got a wider dtype or the values of another one."""
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
