"""When the kernels run, and how they become differentiable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.curvature import Curvature
from lresnet.kernels import switch

__all__ = ["LONGEST_ROW", "fused", "serves"]

# Coordinates of a row: it is held in registers. Rows are numbered in 32 bits, places in 64.
LONGEST_ROW = 2048


def serves(x: Tensor, kappa: Curvature | None) -> bool:
    """Whether the kernels compute on rows like those of x; a learned curvature is left to torch's operations."""
    if not switch.serves(x, x, dim=-1):
        return False
    return x.dtype == torch.float32 and x.shape[-1] <= LONGEST_ROW and x.numel() > 0 and not isinstance(kappa, Tensor)


def fused(
    forward: Callable[..., Tensor],
    backward: Callable[..., tuple[Tensor | None, ...]],
    reference: Callable[..., Tensor],
    *tensors: Tensor,
    **constants: Curvature | None,
) -> Tensor:
    """``forward(*tensors)``, differentiated by ``backward(g, *tensors)``; twice, as ``reference(*tensors)``.

    All three are given the ``constants``.
    """
    functions = [partial(function, **constants) for function in (forward, backward, reference)]
    result: Tensor = _Fused.apply(*functions, *tensors)  # type: ignore[no-untyped-call]
    return result


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forward: Any, backward: Any, reference: Any, *tensors: Tensor) -> Tensor:
        ctx.kernel, ctx.reference = backward, reference
        ctx.save_for_backward(*tensors)
        result: Tensor = forward(*tensors)
        return result

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        tensors, needed = ctx.saved_tensors, ctx.needs_input_grad[3:]
        if not torch.is_grad_enabled():
            return None, None, None, *ctx.kernel(g, *tensors)
        # A second derivative is wanted: let autograd do both, on aliases of the inputs.
        aliases = [tensor.view_as(tensor) for tensor in tensors]
        wanted = [alias for alias, need in zip(aliases, needed, strict=True) if need]
        found = iter(torch.autograd.grad(ctx.reference(*aliases), wanted, g, create_graph=True))
        return None, None, None, *(next(found) if need else None for need in needed)
