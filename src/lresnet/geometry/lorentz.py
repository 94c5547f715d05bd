"""The Lorentz manifold in space coordinates, as a geoopt manifold, and the base class of modules that use it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Self

import geoopt
import torch
from torch import Tensor

from lresnet.geometry import charts, distance, maps, pairwise
from lresnet.geometry.centroid import centroid
from lresnet.geometry.checks import (
    checked_points,
    checks_values,
    in_range,
    require_nonnegative,
    require_points,
    weight_rows,
)
from lresnet.geometry.curvature import Curvature, kappa_of, parse_curvature
from lresnet.geometry.state import EXTRA_STATE, CurvatureState, is_sharded, number
from lresnet.geometry.tracing import as_graph_node

__all__ = [
    "Lorentz",
    "ManifoldModule",
]


class Lorentz(CurvatureState, geoopt.manifolds.Manifold):
    r"""Hyperbolic space of curvature K < 0: the hyperboloid :math:`\{\langle x, x\rangle = 1/K, x_t > 0\}`.

    A point is stored as its space part: **every tensor of shape [..., n] is a point**, and its time is
    :math:`x_t = \sqrt{|x|^2 - 1/K}`. No point can leave the manifold, so ``projx`` and ``proju`` are identities.
    Tangent vectors are stored as space parts too. :meth:`lift` and :meth:`drop` convert to and from time-first vectors.

    The manifold owns its curvature. Layers hold a reference to it and never copy it. A model registers it once
    (``self.manifold = manifold``), so that ``learnable=True`` trains it. The parameter is :math:`\log\kappa`, of shape
    [1], so the curvature stays negative during training.

    A fixed curvature moves to a device with the layers that refer to it. Layers on different devices need a manifold
    each if they are compiled.

    A state dict holds a learned curvature as the parameter ``log_kappa`` and a fixed one as extra state, once for all
    layers that refer to the manifold. Loading a state dict with another fixed curvature is a ``RuntimeError``, also
    with ``strict=False``. State dicts without a curvature (lresnet 0.2) load. A learned curvature starts from a fixed
    one that was saved.

    Args:
        curvature: Signed sectional curvature K < 0, as in the paper; from -1e30 to -1e-30.
        learnable: Whether to train the curvature.

    Example:
        >>> M = Lorentz(curvature=-1.0)
        >>> x, y = torch.tensor([2.0, -2.0]), torch.tensor([2.0, 2.0])
        >>> M.time(x), M.centroid(torch.stack([x, y]))
        (tensor(3.), tensor([0.8944, 0.0000]))
    """

    name = "Lorentz"
    ndim = 1
    reversible = False
    learned_numbers = ("log_kappa",)
    _traced_K: Tensor

    def __init__(self, curvature: float = -1.0, learnable: bool = False) -> None:
        super().__init__()
        K = parse_curvature(curvature)
        self._fixed = K  # unused if the curvature is learned
        if learnable:
            self.log_kappa = torch.nn.Parameter(torch.tensor([math.log(-K)]))
        else:
            self.register_buffer("_traced_K", torch.tensor([K], dtype=torch.float64), persistent=False)

    @classmethod
    def from_geoopt(cls, k: float | Tensor | geoopt.Lorentz) -> Self:
        """Return the same space as ``geoopt.Lorentz(k)``, where ``<x, x> = -k``: its curvature is ``-1/k``."""
        value = k.k if isinstance(k, geoopt.Lorentz) else k
        try:
            number = float(value.detach() if isinstance(value, Tensor) else value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"k must be one positive number or a geoopt.Lorentz, got {type(k).__name__}") from error
        if isinstance(k, (str, bool)) or not 0 < number < math.inf:
            raise ValueError(f"geoopt's k is positive and finite (points satisfy <x, x> = -k), got {k!r}")
        return cls(-1 / number)

    def to_geoopt(self) -> geoopt.Lorentz:
        """Return the same space in geoopt's convention, ``k = -1/K``, for points [..., n+1] from :meth:`lift`."""
        return geoopt.Lorentz(k=1 / self.kappa.detach().double())

    # --- curvature ---------------------------------------------------------------------------------------------

    @property
    def curvature(self) -> Curvature:
        """K for the functional interface: a float if it is fixed, a differentiable tensor if it is learnable.

        Compiled code reads a fixed curvature from a tensor too: torch.compile would treat a number as a constant and
        compile again for every other curvature. The tensor has shape [1]: torch.compile first turns a 0-dimensional CPU
        tensor into a number, and then has to trace everything a second time.
        """
        if self.learnable:
            log_kappa = number(self.log_kappa)
            # In half precision the exponential underflows: 1e-8 would become 0.
            return -log_kappa.to(torch.promote_types(log_kappa.dtype, torch.float32)).exp()
        return self._traced_K[0] if torch.compiler.is_compiling() else self._fixed

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        traced = self._buffers.pop("_traced_K", None)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if traced is not None:
            self._buffers["_traced_K"] = traced
            self.move_traced(fn)
        return self

    def move_traced(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Move the tensor that compiled code reads with a module, without rounding it to the module's dtype."""
        if not self.learnable:
            dtype, device = self._traced_K.dtype, fn(torch.empty(0, device=self._traced_K.device)).device
            if device != self._traced_K.device:
                self._traced_K = torch.tensor([self._fixed], dtype=dtype, device=device)

    @property
    def fixed_curvature(self) -> float:
        """The curvature given to the constructor: K if it is fixed, its initial value if it is learned."""
        return self._fixed

    @property
    def curvature_owner(self) -> Lorentz:
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Load a curvature that was fixed into a learned one; report a learned one that differs from a fixed one."""
        name, fixed = prefix + "log_kappa", state_dict.get(prefix + EXTRA_STATE)
        if self.learnable and name not in state_dict and isinstance(fixed, Tensor) and fixed.numel() == 1:
            state_dict[name] = (-fixed.double()).log().reshape(1).to(self.log_kappa.dtype)
        if not self.learnable and isinstance(saved := state_dict.get(name), Tensor) and saved.numel() == 1:
            self._report_difference(saved, name, arguments[-1])
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _report_difference(self, log_kappa: Tensor, name: str, error_msgs: list[str]) -> None:
        try:
            self.set_extra_state(-log_kappa.double().exp().to(torch.promote_types(log_kappa.dtype, torch.float32)))
        except RuntimeError as error:
            error_msgs.append(f"{name}: {error}")

    @property
    def learnable(self) -> bool:
        """Whether the curvature is a parameter."""
        return "log_kappa" in self._parameters

    @property
    def K(self) -> Tensor:
        """Signed curvature, a 0-dimensional tensor."""
        K = self.curvature
        return K if isinstance(K, Tensor) else torch.tensor(K, dtype=torch.float64, device="cpu")

    @property
    def kappa(self) -> Tensor:
        """``-K > 0``, a 0-dimensional tensor."""
        return -self.K

    def extra_repr(self) -> str:
        if not self.learnable:
            return f"curvature={self._fixed:g}"
        # A sharded curvature is not read: all processes would have to print.
        unreadable = is_sharded(self.log_kappa) or self.log_kappa.is_meta
        return f"curvature={'?' if unreadable else f'{float(self.K.detach()):g}'}, learnable"

    # --- time-first vectors of other libraries ----------------------------------------------------------------

    def time(self, x: Tensor) -> Tensor:
        r"""Return the time coordinate :math:`\sqrt{|x|^2 - 1/K}`: [..., n] -> [...]."""
        return self._scalar(distance.time_of, (x,), False)

    def lift(self, x: Tensor) -> Tensor:
        """Return space coordinates as time-first vectors: [..., n] -> [..., n+1]."""
        return torch.cat([self.time(x).unsqueeze(-1), x], dim=-1)

    def drop(self, p: Tensor, check: bool = True) -> Tensor:
        """Return time-first vectors as space coordinates: [..., n+1] -> [..., n].

        Args:
            p: Points on the hyperboloid, time first.
            check: Raise ``ValueError`` if a time differs from the one that its space part requires by more than a
                relative error of the square root of the dtype's epsilon. Smaller differences are rounding.
        """
        require_points(p, name="p")
        if p.shape[-1] < 2:
            raise ValueError(
                f"p has shape {tuple(p.shape)}: expected [..., n+1], the time first, then n >= 1 space coordinates"
            )
        space = p[..., 1:]
        if check and checks_values(p):
            self._require_on_hyperboloid(p[..., 0].detach(), self.time(space).detach())
        return space

    def _require_on_hyperboloid(self, given: Tensor, expected: Tensor) -> None:
        tolerance = torch.finfo(given.dtype).eps ** 0.5
        off = ~((given - expected).abs() <= tolerance * expected)  # negated, so that NaN counts as off
        if bool(off.any()):
            index, norm = tuple(off.nonzero()[0].tolist()), 1 / float(self.K.detach())
            raise ValueError(
                f"{int(off.sum())} of {off.numel()} points are off the hyperboloid <p, p> = 1/K = {norm:g}: "
                f"point {index} has time {float(given[index]):.6g}, its space part needs {float(expected[index]):.6g}. "
                "drop() expects [..., n+1] with time first and this manifold's curvature; "
                "drop(p, check=False) ignores the time"
            )

    # --- metric geometry ---------------------------------------------------------------------------------------

    def dist(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        """Return the geodesic distance, [..., n] and [..., n] -> [...]; exactly 0 for equal points.

        Float32 points on a CPU: accurate to 6 units in the last place. Elsewhere points on nearly one ray, far from the
        origin, lose up to 2 T more, where T is the unitless time (:mod:`lresnet.geometry.distance`).
        """
        return self._scalar(distance.dist, (x, y), keepdim)

    def dist2(self, x: Tensor, y: Tensor, *, keepdim: bool = False) -> Tensor:
        """Return the squared geodesic distance; smooth, also at x = y."""
        return self._scalar(distance.dist2, (x, y), keepdim)

    def pairwise_dist(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Return the distances of all points of x to all points of y, without an [N, M, n] tensor.

        :func:`lresnet.geometry.pairwise_dist` describes shapes and accuracy. Without y, the points of x are compared
        with each other.

        Example:
            >>> Lorentz().pairwise_dist(torch.zeros(3, 2), torch.ones(4, 2)).shape
            torch.Size([3, 4])
        """
        return pairwise.pairwise_dist(x, y, K=self.curvature)

    def dist0(self, x: Tensor, *, keepdim: bool = False) -> Tensor:
        """Return the geodesic distance to the origin."""
        return self.dist(torch.zeros_like(require_points(x)), x, keepdim=keepdim)

    def inner(self, x: Tensor, u: Tensor, v: Tensor | None = None, *, keepdim: bool = False) -> Tensor:
        r"""Return the Riemannian inner product at x: :math:`u \cdot v - (x \cdot u)(x \cdot v)/x_t^2`."""
        return self._scalar(maps.inner, (x, u, u if v is None else v), keepdim, ("x", "u", "v"))

    def expmap(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the point that the geodesic from x with velocity u reaches after unit time."""
        return self._vector(maps.expmap, (x, u), ("x", "u"))

    def logmap(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the velocity at x of the geodesic that reaches y after unit time; exactly 0 for equal points."""
        return self._vector(maps.logmap, (x, y), ("x", "y"))

    def expmap0(self, u: Tensor) -> Tensor:
        """Return :meth:`expmap` at the origin."""
        return self._vector(maps.expmap0, (u,), ("u",))

    def logmap0(self, x: Tensor) -> Tensor:
        """Return :meth:`logmap` at the origin."""
        return self._vector(maps.logmap0, (x,), ("x",))

    def transp(self, x: Tensor, y: Tensor, u: Tensor) -> Tensor:
        """Return the parallel transport of the tangent vector u from x to y along the geodesic."""
        return self._vector(maps.transp, (x, y, u), ("x", "y", "u"))

    def boost(self, x: Tensor, y: Tensor) -> Tensor:
        """Translate y by the Lorentz boost that maps the origin to x; ``boost(-x, .)`` is the inverse."""
        return self._vector(maps.boost, (x, y), ("x", "y"))

    def centroid(self, x: Tensor, weight: Tensor | None = None, dim: int = -2) -> Tensor:
        r"""Return the weighted Lorentzian centroid :math:`\sum_i w_i x_i / (\sqrt{-K} |\sum_i w_i x_i|)` of N points.

        Args:
            x: Points; the last axis holds the coordinates, axis ``dim`` the N points.
            weight: Non-negative weights that broadcast to x's shape without the last axis. Default: all equal.
            dim: Axis of the points; the result does not have it.

        Example:
            >>> M = Lorentz()
            >>> M.centroid(torch.randn(8, 5, 3), torch.rand(8, 5)).shape
            torch.Size([8, 3])
        """
        (points,), dtype = checked_points(x)
        if points.dim() < 2 or not -points.dim() <= dim < points.dim() or dim % points.dim() == points.dim() - 1:
            raise ValueError(
                f"dim={dim} must be an axis of points, not the coordinate axis, of x with shape {tuple(x.shape)}"
            )
        rows = weight_rows(1.0 if weight is None else weight, points, -1)
        require_nonnegative(rows, "centroid weights")
        rows = rows.expand(*points.shape[:-1], 1).movedim(dim, -2)
        return centroid(points.movedim(dim, -2), rows, kappa_of(self.curvature, points.dtype)).to(dtype)

    # --- charts ------------------------------------------------------------------------------------------------

    def to_poincare(self, x: Tensor) -> Tensor:
        r"""Return x in the Poincare ball of radius :math:`1/\sqrt{-K}`: :math:`x / (1 + \sqrt{-K} x_t)`."""
        return self._vector(charts.to_poincare, (x,), ("x",))

    def from_poincare(self, p: Tensor) -> Tensor:
        """Return a point of the Poincare ball in space coordinates."""
        charts.require_inside(p, kappa_of(self.curvature, torch.float64), -1, "Poincare ball")
        return self._vector(charts.from_poincare, (p,), ("p",))

    def to_klein(self, x: Tensor) -> Tensor:
        """Return x in the Klein model, the unit ball for every curvature: ``x / x_t``; its geodesics are straight."""
        return self._vector(charts.to_klein, (x,), ("x",))

    def from_klein(self, p: Tensor) -> Tensor:
        """Return a point of the Klein model in space coordinates."""
        charts.require_inside(p, 1.0, -1, "Klein model")
        return self._vector(charts.from_klein, (p,), ("p",))

    # --- geoopt's interface ------------------------------------------------------------------------------------

    def egrad2rgrad(self, x: Tensor, g: Tensor) -> Tensor:
        r"""Return the Riemannian gradient for a Euclidean gradient g: :math:`(I - K x x^T) g`."""
        return self._vector(maps.egrad2rgrad, (x, g), ("x", "g"))

    def retr(self, x: Tensor, u: Tensor) -> Tensor:
        """Return the retraction: the exponential map itself, which costs little more and is exact for large steps."""
        return self.expmap(x, u)

    def projx(self, x: Tensor) -> Tensor:
        return x

    def proju(self, x: Tensor, u: Tensor) -> Tensor:
        return u

    def random(self, *size: int, std: float = 1.0, **factory: Any) -> Tensor:
        """Draw points whose logarithm at the origin is normal with standard deviation ``std``.

        ``factory``: dtype, device and generator of :func:`torch.randn`.

        Example:
            >>> Lorentz().random(10, 3).shape
            torch.Size([10, 3])
        """
        return self.expmap0(std * torch.randn(*size, **factory))

    def origin(
        self, *size: int, dtype: torch.dtype | None = None, device: Any = None, seed: int | None = None
    ) -> Tensor:
        """Return the origin, with space coordinates 0: ``origin(n)`` or ``origin(..., n)``. ``seed`` is unused."""
        return torch.zeros(*size, dtype=dtype, device=device)

    def _check_point_on_manifold(self, x: Tensor, **_: Any) -> tuple[bool, str | None]:
        ok = bool(torch.isfinite(x).all())
        return ok, None if ok else "space coordinates must be finite"

    def _check_vector_on_tangent(self, x: Tensor, u: Tensor, **_: Any) -> tuple[bool, str | None]:
        return self._check_point_on_manifold(u)

    # --- computation in float32 or wider; results in the dtype of the inputs ------------------------------------

    def _vector(self, f: Callable[..., Tensor], tensors: tuple[Tensor, ...], names: tuple[str, ...]) -> Tensor:
        """Return ``f(*tensors, kappa, -1)``. Wrong types and shapes are reported by :func:`checks.checked_points`."""
        points, dtype = checked_points(*tensors, names=names)
        return in_range(f, *points, kappa_of(self.curvature, points[0].dtype), -1).to(dtype)

    def _scalar(
        self, f: Callable[..., Tensor], tensors: tuple[Tensor, ...], keepdim: bool, names: tuple[str, ...] = ("x", "y")
    ) -> Tensor:
        result = self._vector(f, tensors, names)
        return result if keepdim else result.squeeze(-1)


class ManifoldModule(CurvatureState):
    """A module that refers to ``manifold`` without registering it as a submodule.

    The curvature has one owner: the model registers the manifold, its layers only refer to it. If every layer
    registered the manifold, the state dict would contain the same parameter under many keys, and safetensors would
    reject it. A fixed curvature is in the state dict, also if the manifold is not registered (:class:`Lorentz`).

    In a graph of torch.fx a module of this kind is one node.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in cls.__dict__:
            cls.forward = as_graph_node(cls.__dict__["forward"])

    def __init__(self, manifold: Lorentz) -> None:
        super().__init__()
        if not isinstance(manifold, Lorentz):
            raise TypeError(
                f"manifold must be an lresnet.Lorentz, got {type(manifold).__name__}; "
                "e.g. lresnet.Lorentz(-1.0), or lresnet.Lorentz.from_geoopt(k) to convert a geoopt manifold"
            )
        self.__dict__["manifold"] = manifold  # nn.Module.__setattr__ would register it

    manifold: Lorentz
    point_parameters: ClassVar[tuple[str, ...]] = ()
    """Names of parameters that are points of the manifold."""

    @property
    def curvature_owner(self) -> Lorentz:
        return self.manifold

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move a fixed curvature with the layer: compiled code on a GPU cannot read it from a tensor on the CPU."""
        self.manifold.move_traced(fn)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def extra_repr(self) -> str:
        return self.manifold.extra_repr()
