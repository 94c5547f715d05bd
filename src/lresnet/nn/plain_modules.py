"""Whether calling a module runs its own code and nothing else, so that a kernel may replace the call."""

from __future__ import annotations

import torch

__all__ = ["is_plain", "is_plain_linear"]


def is_plain(module: torch.nn.Module) -> bool:
    """Return whether a call of the module runs the ``forward`` of its class: no hooks, nothing replaced or compiled.

    Hooks may observe or change what the module computes, or gather its parameters (FSDP2).

    Example:
        >>> layer = torch.nn.Linear(3, 2)
        >>> is_plain(layer)
        True
        >>> hook = layer.register_forward_hook(print)
        >>> is_plain(layer)
        False
    """
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return not hooks and "forward" not in module.__dict__ and module._compiled_call_impl is None


def is_plain_linear(layer: torch.nn.Module) -> bool:
    """Return whether a product with the layer's weight replaces a call of the layer.

    A subclass or an adapter such as LoRA may compute something else. Hooks may compute the weight (``weight_norm``,
    pruning) or gather it (FSDP2), so such a layer must be called.
    """
    return type(layer) is torch.nn.Linear and is_plain(layer)
