"""Riemannian Adam whose every number lies on the device, so that a step of it can be recorded as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import maps
from lresnet.geometry.curvature import Curvature, kappa_of

__all__ = ["RiemannianAdam"]


class RiemannianAdam(torch.optim.Optimizer):
    r"""Adam on points of the hyperboloid (Becigneul and Ganea, ICLR 2019).

    .. math:: m \leftarrow \beta_1 m + (1 - \beta_1) g, \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2) \langle g, g\rangle_x, \\
        x' = \exp_x\Big(-\eta \frac{\hat m}{\sqrt{\hat v} + \epsilon}\Big), \quad m \leftarrow P_{x \to x'} m

    with the Riemannian gradient g and one second moment v for each point. The same steps as
    ``geoopt.optim.RiemannianAdam``, which counts them on the host and so cannot be recorded.

    Args:
        points: tensors [..., n] of space coordinates.
        curvature: asked for K at every step: a float, or a tensor that broadcasts to [..., 1].
        lr: a number or, to change while a recorded step is replayed, a tensor on the points' device.

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
        """One step on the gradients that are there; ``closure`` is torch's argument, and refused."""
        if closure is not None:
            raise ValueError("RiemannianAdam takes no closure; compute the gradients before the step")
        K = self.curvature()
        for group in self.param_groups:
            for x in group["params"]:
                if x.grad is not None:
                    self._move(x, kappa_of(K, x.dtype), **{name: group[name] for name in ("lr", "betas", "eps")})

    def _move(self, x: Tensor, kappa: Curvature, lr: Any, betas: tuple[float, float], eps: float) -> None:
        state = self.state[x]
        if not state:
            # In float64: 1 - 0.999 ** step would lose four digits of float32.
            state["step"] = torch.zeros((), dtype=torch.float64, device=x.device)
            state["mean"], state["square"] = torch.zeros_like(x), torch.zeros_like(x[..., :1])
        count, mean, square = state["step"], state["mean"], state["square"]
        g = maps.egrad2rgrad(x, x.grad, kappa, -1)  # type: ignore[arg-type]
        count.add_(1)
        mean.lerp_(g, 1 - betas[0])
        square.lerp_(maps.inner(x, g, g, kappa, -1), 1 - betas[1])
        spread = (square / (1 - betas[1] ** count)).sqrt() + eps
        y = maps.expmap_value(x, -lr * (mean / (1 - betas[0] ** count)) / spread, kappa, -1)
        mean.copy_(maps.transp_value(x, y, mean, kappa, -1))
        x.copy_(y)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's; the step counters go where the points are and keep their digits."""
        super().load_state_dict(state_dict)
        for x, state in self.state.items():
            state["step"] = torch.as_tensor(state["step"], dtype=torch.float64, device=x.device)
