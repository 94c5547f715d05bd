"""``cosh d - 1`` between every point of one set and every point of another, by one matrix product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry.checks import full_precision, traced
from lresnet.geometry.curvature import Curvature, constant, root
from lresnet.geometry.pair import dot, radial_part, unit, unitless_time
from lresnet.geometry.smooth import with_derivatives_of
from lresnet.geometry.stack import outer_rows, sum_to, times_rows

__all__ = ["cross_separation"]


def cross_separation(x: Tensor, y: Tensor, kappa: Curvature) -> Tensor:
    r"""[..., n] and [C, n] -> [..., C], without forming the [..., C, n] differences; stacks too: [N, S, n], [S, C, n].

    The radial part is exact; the angular part :math:`R_x R_y (1 - \cos)` takes the cosine from a matrix product and
    so is exact up to one rounding of the cosine (6e-8 R_x R_y in float32). For the last digit of coincident points use
    :meth:`lresnet.Lorentz.dist`.

    Example:
        >>> cross_separation(torch.zeros(2, 3), torch.zeros(4, 3), 1.0).shape
        torch.Size([2, 4])
    """
    with full_precision(x):
        if traced():
            value, _, _ = _value(x.detach(), y.detach(), constant(kappa))
            return with_derivatives_of(value, _smooth(x, y, kappa))
        kappa_tensor = kappa if isinstance(kappa, Tensor) else None
        result: Tensor = _CrossSeparation.apply(x, y, kappa_tensor, kappa)  # type: ignore[no-untyped-call]
        return result


def _value(x: Tensor, y: Tensor, kappa: Curvature) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and the times T of x, [..., 1], and of y, [C]."""
    (u, r_x), (v, r_y) = unit(x, -1), unit(y, -1)
    R_x, R_y = root(kappa) * r_x, root(kappa) * r_y.squeeze(-1)
    T_x, T_y = (1 + R_x.square()).sqrt(), (1 + R_y.square()).sqrt()
    value = radial_part(R_x, T_x, R_y, T_y)[1] + R_x * R_y * (1 - times_rows(v, u)).clamp(min=0.0)
    return value, T_x, T_y


def _smooth(x: Tensor, y: Tensor, kappa: Curvature) -> Tensor:
    """The same function in the form that is differentiable everywhere."""
    T_x, T_y = unitless_time(x, kappa, -1), (1 + kappa * dot(y, y, -1).squeeze(-1)).sqrt()
    return T_x * T_y - kappa * times_rows(y, x)


class _CrossSeparation(torch.autograd.Function):
    r"""The derivatives of :math:`T_x T_y - \kappa\, x \cdot y`, which the value is not computed from:

    .. math:: \partial x_i &= \kappa \sum_k g_{ik} (T_k / T_i\, x_i - y_k), \qquad
        \partial y_k = \kappa \sum_i g_{ik} (T_i / T_k\, y_k - x_i) \\
        \partial \kappa &= \sum_{ik} g_{ik} \big(\tfrac{T_k}{2 T_i} |x_i|^2 + \tfrac{T_i}{2 T_k} |y_k|^2
            - x_i \cdot y_k\big)
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, kappa_tensor: Tensor | None, kappa: Curvature) -> Tensor:
        value, T_x, T_y = _value(x, y, kappa)
        ctx.kappa = None if kappa_tensor is not None else kappa
        ctx.save_for_backward(x, y, T_x, T_y, kappa_tensor)
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y, T_x, T_y, kappa_tensor = ctx.saved_tensors
        kappa = kappa_tensor if kappa_tensor is not None else ctx.kappa
        if torch.is_grad_enabled():  # a second derivative is wanted: let autograd do both
            # Aliases, so that derivatives stop here: points may depend on kappa.
            inputs = [t if t is None else t.view_as(t) for t in (x, y, kappa_tensor)]
            smooth = _smooth(inputs[0], inputs[1], kappa if inputs[2] is None else inputs[2])
            wanted = [i for i in range(3) if ctx.needs_input_grad[i]]
            found = torch.autograd.grad(smooth, [inputs[i] for i in wanted], g, create_graph=True)
            grads = dict(zip(wanted, found, strict=True))
            return grads.get(0), grads.get(1), grads.get(2), None
        h, gx, gy, gk = kappa * g, None, None, None
        if ctx.needs_input_grad[0]:
            pull = (h * T_y).sum(-1, keepdim=True) / T_x
            gx = (pull * x - times_rows(y.mT, h)).sum_to_size(x.shape)
        if ctx.needs_input_grad[1]:
            pull = (h * T_x).sum_to_size(T_y.shape) / T_y
            sums = outer_rows(h, x) if y.dim() == 3 else h.reshape(-1, y.shape[0]).mT @ x.reshape(-1, y.shape[1])
            gy = pull.unsqueeze(-1) * y - sums
        if ctx.needs_input_grad[2]:
            spread = T_y / T_x * (0.5 * dot(x, x, -1)) + T_x / T_y * (0.5 * dot(y, y, -1).squeeze(-1))
            gk = sum_to(kappa_tensor.shape, (g * (spread - times_rows(y, x))).sum(-1, keepdim=True))
        return gx, gy, gk, None

