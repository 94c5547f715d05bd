"""The device of a run, by its name."""

from __future__ import annotations

import torch

__all__ = ["usable_device"]


def usable_device(name: str) -> torch.device:
    """Return the device called ``name``; ``"auto"`` is a GPU if there is one, otherwise the CPU.

    Raises:
        ValueError: the device cannot be used on this machine; the message gives torch's reason.

    Example:
        >>> usable_device("cpu")
        device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:  # torch's message lists every kind of device
        raise ValueError(f"unknown kind of device {name!r}; use auto, cpu, cuda or cuda:1") from error
    try:
        torch.zeros(1, device=device).item()  # a meta tensor, for example, has no values
    except (RuntimeError, AssertionError) as error:  # torch without CUDA raises AssertionError
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise ValueError(f"device {name!r} cannot be used here: {reason}") from error
    if device.type == "cpu" and device.index is not None:  # torch accepts it, safetensors does not
        raise ValueError(f"device {name!r} cannot be used here: a CPU has no number; use cpu")
    return device
