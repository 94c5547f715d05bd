"""Two branches of a network to one embedding, by any residual connection and a weight between 0 and 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.curvature import kappa_of
from lresnet.nn.bounded_exp import bounded_exp
from lresnet.nn.input_map import MAX_RADIUS
from lresnet.nn.vector_join import lorentz_join
from lresnet.residual import METHODS, LorentzResidual, make_residual
from lresnet.residual.base import FixedNumbers

__all__ = ["WeightedJoin"]


class WeightedJoin(ManifoldModule, FixedNumbers):
    r"""The residual of two branches with weights :math:`1 - \alpha` and :math:`\alpha` (LResNet, section 5.2).

    .. math:: (1 - \alpha) \exp_o z \oplus \alpha \exp_o g \quad\text{(lorentz, space)}, \qquad
        \exp_o((1 - \alpha) z) \oplus \exp_o(\alpha g) \quad\text{(parallel transport, tangent)}

    of tangent vectors z, g at the origin, without a time coordinate, which is 0 there: :meth:`of_vectors`. Points x, y
    stand for exp z and exp g: the module's call. Without curvature (``"euclidean"``) both are
    :math:`(1 - \alpha) z + \alpha g`; ``"none"`` is the second branch alone, unweighted.

    The parameter is the ratio :math:`w = \alpha/(1 - \alpha)`, the Lorentz residual's weight: \|w\| keeps alpha between
    0 and 1 whatever an optimiser does, and weight decay leaves it alone.

    Args:
        kind: a name of :data:`lresnet.residual.RESIDUALS`.
        weight: alpha, above 0 and below 1.
        learn_weight: train it, where the residual has a use for it.
        max_radius: radius, in radii of curvature, to which tangent vectors are shortened.
        options: of the residual.

    Shapes:
        [..., n], [..., n] -> [..., n]

    Example:
        >>> join = WeightedJoin("lorentz", Lorentz(-1.0), weight=0.8)
        >>> join.of_vectors(torch.randn(5, 4), torch.randn(5, 4)).shape
        torch.Size([5, 4])
    """

    def __init__(
        self,
        kind: str,
        manifold: Lorentz,
        weight: float = 0.5,
        *,
        learn_weight: bool = False,
        max_radius: float = MAX_RADIUS,
        **options: Any,
    ) -> None:
        super().__init__(manifold)
        if not 0 < weight < 1:
            raise ValueError(f"the weight of a branch must be above 0 and below 1, got {weight}")
        self.kind, self.max_radius = kind, max_radius
        ratio = weight / (1 - weight)
        self._branch_weights = METHODS[kind].branch_weights if kind in METHODS else "vectors"
        if self._branch_weights == "own":
            options |= {"weight": "learned", "initial_weight": ratio} if learn_weight else {"weight": ratio}
        elif learn_weight and self._branch_weights != "unused":
            self.raw_weight = torch.nn.Parameter(torch.tensor(ratio))
        else:
            self.fix("raw_weight", ratio)
        self.residual = make_residual(kind, manifold, **options)

    @property
    def weight(self) -> Tensor:
        """alpha; in a stack one for each member."""
        owner = self.residual if self._branch_weights == "own" else self
        ratio: Tensor = owner.raw_weight.abs()  # type: ignore[operator]
        return ratio / (1 + ratio)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Points, or vectors of the Euclidean twin."""
        if self._branch_weights == "vectors":
            z, g = self._weigh(self.manifold.logmap0(x), self.manifold.logmap0(y))
            return self.residual(self.manifold.expmap0(z), self.manifold.expmap0(g))  # type: ignore[no-any-return]
        if self._branch_weights == "coordinates":
            dtype = torch.promote_types(x.dtype, y.dtype)  # which differ under autocast
            x, y = x.to(dtype), y.to(dtype)
            return torch.lerp(x, y, self._alpha(x))  # (1 - alpha) x + alpha y, one array instead of three
        return self.residual(x, y)  # type: ignore[no-any-return]

    def of_vectors(self, z: Tensor, g: Tensor) -> Tensor:
        """Tangent vectors at the origin to a point."""
        if self._branch_weights == "vectors":
            z, g = self._weigh(z, g)
            return self.residual(self._exp(z), self._exp(g))  # type: ignore[no-any-return]
        if isinstance(self.residual, LorentzResidual) and self.residual.log_scale is None:
            wide = torch.promote_types(z.dtype, torch.float32)
            kappa = kappa_of(self.manifold.curvature, wide)
            return lorentz_join(z.to(wide), g.to(wide), self.residual.raw_weight, kappa, self.max_radius).to(z.dtype)
        return self(z, g) if self.kind == "euclidean" else self(self._exp(z), self._exp(g))  # type: ignore[no-any-return]

    def _weigh(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        alpha = self._alpha(x)
        return (1 - alpha) * x, alpha * y

    def _alpha(self, x: Tensor) -> Tensor:
        return self.weight.to(x.dtype).unsqueeze(-1)

    def _exp(self, z: Tensor) -> Tensor:
        wide = z.to(torch.promote_types(z.dtype, torch.float32))
        return bounded_exp(wide, kappa_of(self.manifold.curvature, wide.dtype), self.max_radius).to(z.dtype)

    def extra_repr(self) -> str:
        return f"alpha={float(self.weight.detach()):g}, {super().extra_repr()}"
