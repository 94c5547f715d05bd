"""``cosh d - 1`` between points and prototypes, with a backward pass in closed form, and the logits made of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import full_precision, traced
from lresnet.geometry.curvature import Curvature
from lresnet.geometry.distance import cross_separation, cross_separation_value, dot, unitless_time
from lresnet.geometry.stack import outer_rows, sum_to, times_rows
from lresnet.kernels import supports_rows

__all__ = ["prototype_logits", "prototype_separation"]


# The gradient of the prototypes reads the points once for each class, from the cache; beyond, products are faster.
_MOST_CLASSES = 64


def prototype_logits(x: Tensor, y: Tensor, bias: Tensor, kappa: Curvature) -> Tensor:
    r""":math:`\beta_k - d_L^2(x, y_k)` with :math:`d_L^2 = \frac2\kappa (\cosh d - 1)`; on CUDA by one kernel.

    Shapes:
        x [..., n], y [C, n], bias [C] -> [..., C]; stacks: [N, S, n], [S, C, n], [S, C] -> [N, S, C]

    Example:
        >>> prototype_logits(torch.zeros(2, 3), torch.zeros(4, 3), torch.ones(4), 1.0).shape
        torch.Size([2, 4])
    """
    if not traced() and supports_rows(x, kappa) and _kernels_take(x, y, bias):
        from lresnet.kernels.prototypes import fused_logits

        return fused_logits(x, y, bias, float(kappa), _plain_logits)
    return bias - 2 / kappa * prototype_separation(x, y, kappa)


def _kernels_take(x: Tensor, y: Tensor, bias: Tensor) -> bool:
    """Whether these are points and prototypes of one network, or of each member of a stack, and not too many."""
    if any(t.dtype != torch.float32 or t.device != x.device for t in (y, bias)) or bias.shape != y.shape[:-1]:
        return False
    alike = y.dim() == 2 or (y.dim() == x.dim() == 3 and y.shape[0] == x.shape[1])
    return alike and x.shape[-1] == y.shape[-1] and 0 < y.shape[-2] <= _MOST_CLASSES


def _plain_logits(x: Tensor, y: Tensor, bias: Tensor, kappa: float) -> Tensor:
    """By formulas that autograd sees through, to any order."""
    return bias - 2 / kappa * cross_separation(x, y, kappa)


def prototype_separation(x: Tensor, y: Tensor, kappa: Curvature) -> Tensor:
    """:func:`lresnet.geometry.distance.cross_separation` at half its cost where a network is trained.

    Shapes:
        x [..., n], y [C, n] -> [..., C]; stacks: [N, S, n], [S, C, n] -> [N, S, C]

    Example:
        >>> prototype_separation(torch.zeros(2, 3), torch.zeros(4, 3), 1.0).shape
        torch.Size([2, 4])
    """
    if traced():
        return cross_separation(x, y, kappa)
    kappa_tensor = kappa if isinstance(kappa, Tensor) else None
    with full_precision(x):
        result: Tensor = _Separation.apply(x, y, kappa_tensor, kappa)  # type: ignore[no-untyped-call]
        return result


class _Separation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, kappa_tensor: Tensor | None, kappa: Curvature) -> Tensor:
        ctx.kappa = None if kappa_tensor is not None else kappa
        ctx.save_for_backward(x, y, kappa_tensor)
        return cross_separation_value(x, y, kappa)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        r"""The derivatives of :math:`T_x T_y - \kappa\, x \cdot y`, with :math:`T = \sqrt{1 + \kappa |x|^2}`:

        .. math:: \partial x_i &= \kappa \sum_k g_{ik} (T_k / T_i\, x_i - y_k), \qquad
            \partial y_k = \kappa \sum_i g_{ik} (T_i / T_k\, y_k - x_i) \\
            \partial \kappa &= \sum_{ik} g_{ik} \big(\tfrac{T_k}{2 T_i} |x_i|^2 + \tfrac{T_i}{2 T_k} |y_k|^2
                - x_i \cdot y_k\big)
        """
        x, y, kappa_tensor = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        if torch.is_grad_enabled():
            return *_second_order(ctx, g, x, y, kappa_tensor), None
        T_x, T_y = unitless_time(x, kappa, -1), (1 + kappa * dot(y, y, -1).squeeze(-1)).sqrt()
        h, gx, gy, gk = kappa * g, None, None, None
        if ctx.needs_input_grad[0]:
            pull = (h * T_y).sum(-1, keepdim=True) / T_x
            gx = torch.addcmul(times_rows(y.mT, -h), x, pull).sum_to_size(x.shape)
        if ctx.needs_input_grad[1]:
            pull = (h * T_x).sum_to_size(T_y.shape) / T_y
            sums = outer_rows(h, x) if y.dim() == 3 else h.reshape(-1, y.shape[0]).mT @ x.reshape(-1, y.shape[1])
            gy = pull.unsqueeze(-1) * y - sums
        if ctx.needs_input_grad[2]:
            spread = T_y / T_x * (0.5 * dot(x, x, -1)) + T_x / T_y * (0.5 * dot(y, y, -1).squeeze(-1))
            gk = sum_to(kappa_tensor.shape, (g * (spread - times_rows(y, x))).sum(-1, keepdim=True))
        return gx, gy, gk, None


def _second_order(ctx: Any, g: Tensor, x: Tensor, y: Tensor, kappa: Tensor | None) -> tuple[Tensor | None, ...]:
    """A second derivative is wanted: let autograd do both. Aliases, so that derivatives stop here."""
    inputs = [t if t is None else t.view_as(t) for t in (x, y, kappa)]
    own = ctx.kappa if inputs[2] is None else inputs[2]
    value = cross_separation(inputs[0], inputs[1], own)  # type: ignore[arg-type]
    wanted = [i for i in range(3) if ctx.needs_input_grad[i]]
    found = torch.autograd.grad(value, [inputs[i] for i in wanted], g, create_graph=True)  # type: ignore[arg-type]
    grads = dict(zip(wanted, found, strict=True))
    return tuple(grads.get(i) for i in range(3))
