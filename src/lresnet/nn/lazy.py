"""Linear layers whose input size is taken from the first input, as PyG's lazy layers do."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parameter import UninitializedParameter

from lresnet.geometry import ManifoldModule

__all__ = ["LAZY", "LazyInput"]

LAZY = -1
"""The input size of a layer that waits for its first input."""


class LazyInput(ManifoldModule):
    """Base class of linear layers with a ``weight`` [rows, in_features], where ``in_features`` may be :data:`LAZY`.

    The weight is then uninitialised until the first call, or until a state dict is loaded.
    """

    in_features: int
    weight: torch.nn.Parameter
    _rows: int

    def make_weight(self, rows: int, **factory: Any) -> None:
        """Register ``weight``, uninitialised if the input size is not known yet."""
        if self.in_features < 1 and self.in_features != LAZY:
            raise ValueError(
                f"the number of input features must be at least 1, or {LAZY} to take it from the first input, "
                f"got {self.in_features}"
            )
        self._rows = rows
        if self.in_features == LAZY:
            self.weight = UninitializedParameter(**factory)  # type: ignore[assignment]
        else:
            self.weight = torch.nn.Parameter(torch.empty(rows, self.in_features, **factory))

    def is_lazy(self) -> bool:
        """Return whether the layer waits for its first input."""
        return isinstance(self.weight, UninitializedParameter)

    def materialise(self, in_features: int) -> None:
        """Fix the input size and initialise all parameters."""
        self._set_size(in_features)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the parameters; does nothing as long as the input size is unknown."""
        raise NotImplementedError

    def _set_size(self, in_features: int) -> None:
        assert isinstance(self.weight, UninitializedParameter)
        self.weight.materialize((self._rows, in_features))
        self.in_features = in_features

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        saved = state_dict.get(prefix + "weight")
        if self.is_lazy() and isinstance(saved, torch.Tensor) and not isinstance(saved, UninitializedParameter):
            self._set_size(saved.shape[-1])
        super()._load_from_state_dict(state_dict, prefix, *arguments)
