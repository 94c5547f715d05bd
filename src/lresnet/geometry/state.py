"""What a state dict holds of curvatures and learned numbers: a fixed curvature as extra state, numbers of shape [1]."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

if TYPE_CHECKING:
    from lresnet.geometry.lorentz import Lorentz

__all__ = ["EXTRA_STATE", "CurvatureState", "LearnedNumbers", "is_learned_number", "is_sharded", "number"]

EXTRA_STATE = "_extra_state"
"""Last part of the key of a module's extra state; the name is torch's."""

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_SAME = 1e-6  # relative difference of curvatures that float32 cannot tell apart
# The state dict that each manifold was last written to: a network with many layers saves a shared curvature once.
_last_written: weakref.WeakKeyDictionary[torch.nn.Module, tuple[weakref.ref[Any], str]] = weakref.WeakKeyDictionary()


def number(parameter: Tensor) -> Tensor:
    """Return a learned number, stored with shape [1], as a 0-dimensional tensor; other shapes unchanged.

    A tensor [1] of float32 times a bfloat16 tensor is float32, a 0-dimensional one leaves the product in bfloat16.

    Example:
        >>> number(torch.tensor([0.5])), number(torch.zeros(3)).shape
        (tensor(0.5000), torch.Size([3]))
    """
    if is_sharded(parameter):
        parameter = _gathered(parameter)
    return parameter.reshape(()) if parameter.dim() == 1 and parameter.shape[0] == 1 else parameter


def is_sharded(parameter: Tensor) -> bool:
    """Return whether FSDP2 has distributed the parameter over several processes, so that reading it communicates."""
    return hasattr(parameter, "full_tensor")


def _gathered(parameter: Any) -> Tensor:
    """Return the whole parameter; its gradient is the mean over all processes, as FSDP2 computes it.

    FSDP2 gathers the parameters of a module only while that module runs. A curvature may be read outside of it: by
    another block, or by a loss.
    """
    from torch.distributed.tensor import Partial

    whole: Tensor = parameter.full_tensor(grad_placements=[Partial("avg")] * parameter.device_mesh.ndim)
    return whole


class LearnedNumbers(torch.nn.Module):
    """A module with parameters that are one number each, stored with shape [1]: FSDP2 rejects 0-dimensional parameters.

    Up to lresnet 0.2 they were 0-dimensional; such state dicts still load.
    """

    learned_numbers: ClassVar[tuple[str, ...]] = ()
    """Names of parameters that are one number if they are learned."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        for name in self.learned_numbers:
            saved, own = state_dict.get(prefix + name), getattr(self, name, None)
            if isinstance(saved, Tensor) and saved.dim() == 0 and isinstance(own, Tensor) and own.shape == (1,):
                state_dict[prefix + name] = saved.reshape(1)  # torch passes a copy of the caller's dict
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def is_learned_number(model: torch.nn.Module, name: str) -> bool:
    """Return whether ``name`` in ``model.named_parameters()`` is one number, stored with shape [1].

    Example:
        >>> from lresnet import LorentzResidual, Lorentz
        >>> is_learned_number(LorentzResidual(Lorentz(-1.0)), "raw_weight")
        True
    """
    owner, _, leaf = name.rpartition(".")
    module = model.get_submodule(owner)
    return isinstance(module, LearnedNumbers) and leaf in module.learned_numbers and getattr(module, leaf).shape == (1,)


class CurvatureState(LearnedNumbers):
    """A module whose state dict holds the fixed curvature of its manifold, as extra state.

    One state dict holds the curvature of a manifold once, under the first module that refers to it. A learned curvature
    is a parameter and has no extra state. State dicts without a curvature load.
    """

    saves_curvature: ClassVar[bool] = True
    """False for modules whose result does not depend on the curvature."""

    @property
    def curvature_owner(self) -> Lorentz:
        """The manifold whose curvature is saved."""
        raise NotImplementedError

    def get_extra_state(self) -> Tensor:
        """Return K as a float64 tensor [1] on the CPU; casts of the module do not round it."""
        return torch.tensor([self.curvature_owner.fixed_curvature], dtype=torch.float64, device="cpu")

    def set_extra_state(self, state: Any) -> None:
        """Compare ``state``, the curvature that was saved, with the network's own.

        Raises:
            RuntimeError: they differ. A fixed curvature is an argument of the network, so it is not replaced.
        """
        owner = self.curvature_owner
        if owner.learnable or not self.saves_curvature or (saved := _read(state)) is None:
            return
        if not _equal(saved, owner.fixed_curvature):
            raise RuntimeError(
                f"the state dict was saved with curvature {saved:g}, this network has curvature "
                f"{owner.fixed_curvature:g}; build it with curvature {saved:g}, or, to keep the network's curvature on "
                "purpose, remove the keys that end in _extra_state from the state dict"
            )

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        owner, key = self.curvature_owner, prefix + EXTRA_STATE
        if owner.learnable or not self.saves_curvature or _is_written(owner, destination, key):
            del destination[key]

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        key = prefix + EXTRA_STATE
        state = state_dict.get(key)
        try:
            if state is not None:
                self.set_extra_state(state)
        except RuntimeError as error:
            error_msgs.append(f"{key}: {error}")
        state_dict[key] = self.get_extra_state()  # torch would report a missing key; old files have none
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def _is_written(manifold: Lorentz, destination: dict[str, Any], key: str) -> bool:
    """Return whether this state dict holds the curvature of the manifold under another key; if not, note ``key``."""
    written_to, written_key = _last_written.get(manifold, (None, key))
    if written_to is not None and written_to() is destination and written_key != key and written_key in destination:
        return True
    try:
        _last_written[manifold] = weakref.ref(destination), key
    except TypeError:  # a plain dict, given by the caller: every module writes the curvature
        _last_written.pop(manifold, None)
    return False


def _read(state: Any) -> float | None:
    """Return the saved number, or None where a tensor has no values."""
    if isinstance(state, Tensor):
        if state.is_meta or isinstance(state, FakeTensor):
            return None
        if state.numel() != 1:
            raise RuntimeError(f"the saved curvature must be one number, got a tensor of shape {tuple(state.shape)}")
        return float(state.detach())
    if isinstance(state, (int, float)):
        return float(state)
    raise RuntimeError(f"the saved curvature must be a tensor of one number, got {type(state).__name__}")


def _equal(saved: float, own: float) -> bool:
    """Return whether ``saved`` is the curvature ``own``, possibly rounded with the rest of a state dict."""
    rounded = (float(torch.tensor(own, dtype=dtype, device="cpu")) for dtype in _DTYPES)
    return math.isclose(saved, own, rel_tol=_SAME) or saved in rounded
