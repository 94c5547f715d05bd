"""Riemannian Adam with its whole state on the device, so that a step can be recorded as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import maps
from lresnet.geometry.curvature import Curvature, kappa_of
from lresnet.kernels import supports_rows

__all__ = ["RiemannianAdam"]

# Names of the state of each point, here and in geoopt.
_NAMES = (("step", "step"), ("mean", "exp_avg"), ("square", "exp_avg_sq"))


class RiemannianAdam(torch.optim.Optimizer):
    r"""Adam on points of the hyperboloid (Becigneul and Ganea, ICLR 2019).

    .. math:: m \leftarrow \beta_1 m + (1 - \beta_1) g, \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2) \langle g, g\rangle_x, \\
        x' = \exp_x\Big(-\eta \frac{\hat m}{\sqrt{\hat v} + \epsilon}\Big), \quad m \leftarrow P_{x \to x'} m

    with the Riemannian gradient g and one second moment v per point. The steps are those of
    ``geoopt.optim.RiemannianAdam``, which counts them on the host and so cannot be recorded. On CUDA a step in float32
    with a fixed curvature is one kernel (:mod:`lresnet.kernels.riemannian_adam`).

    Args:
        points: Tensors [..., n] of space coordinates, or parameter groups of them.
        curvature: Function that returns K at every step, a float or a tensor that broadcasts to [..., 1].
        lr: Learning rate, a number or a tensor on the points' device. A tensor can change between replays of a
            recorded step.
        betas: Decay rates of the first and second moments.
        eps: Added to the denominator.

    Shapes:
        points [..., n], changed in place.

    Example:
        >>> points = torch.randn(7, 16, requires_grad=True)
        >>> optimizer = RiemannianAdam([points], lambda: -1.0, lr=0.1)
        >>> points.square().sum().backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        points: Iterable[Tensor],
        curvature: Callable[[], Curvature],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(points, {"lr": lr, "betas": betas, "eps": eps})
        self.curvature = curvature

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step for all points that have a gradient. ``closure`` must be None."""
        if closure is not None:
            raise ValueError("RiemannianAdam takes no closure; compute the gradients before the step")
        K = self.curvature()
        for group in self.param_groups:
            for x in group["params"]:
                if x.grad is not None:
                    kappa = kappa_of(K, _precision(x))
                    self._move(x, kappa, **{name: group[name] for name in ("lr", "betas", "eps")})

    def _move(self, x: Tensor, kappa: Curvature, lr: Any, betas: tuple[float, float], eps: float) -> None:
        if not self.state[x]:
            self.state[x] = _state_of(x)
        state, g = self.state[x], x.grad
        moments = state["mean"], state["square"], state["step"]
        if supports_rows(x, kappa) and x.is_contiguous() and g.dtype == x.dtype:  # type: ignore[union-attr]
            from lresnet.kernels.riemannian_adam import fused_step

            rate = lr.to(x.device) if isinstance(lr, Tensor) else torch.full((), lr, device=x.device)
            fused_step(x, g, *moments, rate, kappa=float(kappa), betas=betas, eps=eps)  # type: ignore[arg-type]
        else:
            _step(x, g, *moments, lr, kappa, betas, eps)  # type: ignore[arg-type]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of this optimiser or of geoopt's. torch's own method would round moments and step counters."""
        super().load_state_dict(state_dict)
        indices = [index for group in state_dict["param_groups"] for index in group["params"]]
        points = [x for group in self.param_groups for x in group["params"]]
        for index, x in zip(indices, points, strict=True):
            if saved := state_dict["state"].get(index):
                self.state[x] = _state_of(x, *(saved.get(name, saved.get(theirs)) for name, theirs in _NAMES))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, with the curvature, which torch's own method omits."""
        return super().__getstate__() | {"curvature": self.curvature}


def _precision(x: Tensor) -> torch.dtype:
    """Return the dtype of computation and moments, float32 or wider: squared gradients underflow in half precision."""
    return torch.promote_types(x.dtype, torch.float32)


def _state_of(
    x: Tensor, step: float | Tensor = 0.0, mean: float | Tensor = 0.0, square: float | Tensor = 0.0
) -> dict[str, Tensor]:
    """Return step counters [..., 1] and moments of the points x, contiguous in memory. A number applies to all points.

    Every point has its own counter, so that one kernel can read and increment them. Counters are float64:
    1 - 0.999 ** step would lose four digits in float32.
    """

    def filled(value: float | Tensor, columns: int, dtype: torch.dtype) -> Tensor:
        values = torch.as_tensor(value, dtype=dtype, device=x.device).expand(x.shape)
        return values[..., :columns].clone(memory_format=torch.contiguous_format)

    dtype = _precision(x)
    return {
        "step": filled(step, 1, torch.float64),
        "mean": filled(mean, x.shape[-1], dtype),
        "square": filled(square, 1, dtype),
    }


def _step(
    x: Tensor,
    g: Tensor,
    mean: Tensor,
    square: Tensor,
    count: Tensor,
    lr: float | Tensor,
    kappa: Curvature,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """Take one step with torch operations. All tensors except g and lr are changed in place."""
    points, g = x.to(mean.dtype), g.to(mean.dtype)
    g = maps.egrad2rgrad(points, g, kappa, -1)
    count.add_(1)
    first, second = ((1 - beta**count).to(mean.dtype) for beta in betas)
    mean.lerp_(g, 1 - betas[0])
    square.lerp_(maps.inner(points, g, g, kappa, -1), 1 - betas[1])
    y = maps.expmap_value(points, -lr * (mean / first) / ((square / second).sqrt() + eps), kappa, -1)
    mean.copy_(maps.transp_value(points, y, mean, kappa, -1))
    x.copy_(y)
