r"""Energies of directed pairs, "is v an ancestor of u?": low for ancestors, and for all candidates at once.

**Distance and norm.** In a tree whose root is at the origin, v is an ancestor of u exactly where
:math:`d(u, v) + d(0, v) - d(0, u) = 0`: v lies on the geodesic from the origin to u. With a weight :math:`\alpha` of
the norms,

.. math:: E(u, v) = d(u, v) + \alpha\, (\rho_v - \rho_u), \qquad \rho_x = d(0, x).

In that tree, an ancestor k steps up has the energy :math:`(1 - \alpha) k` and a descendant k steps down
:math:`(1 + \alpha) k`. :math:`\alpha = 0` is the symmetric distance; :math:`\alpha = 1` does not rank the ancestors.
The product of Nickel and Kiela (NeurIPS 2017), :math:`(1 + \alpha (|p_v| - |p_u|))\, d(u, v)` with norms p in the unit
ball, is available too. Where its factor is negative, a larger distance has a lower energy: it grades given pairs, and
is unsuitable for ranking all candidates.

**Cones.** The exterior angle at v minus the aperture of v (:mod:`lresnet.nn.entailment`), negative inside the cone. For
all pairs, one matrix product gives the cosines of the angles :math:`\theta` at the origin. With hyperbolic radii a of v
and b of u, :math:`R = \sinh`, :math:`T = \cosh`, and :math:`S = \cosh d - 1`
(:func:`lresnet.geometry.pairwise.separation`):

.. math:: \phi = \operatorname{atan2}\big(R_u \sin\theta,\; \sinh(b - a) - T_v R_u (1 - \cos\theta)\big),

.. math:: \frac{\partial \phi}{\partial a} = \frac{R_u \sin\theta\, (1 + S)}{S (2 + S)}, \qquad
    \frac{\partial \phi}{\partial b} = \frac{- R_v \sin\theta}{S (2 + S)}, \qquad
    \frac{\partial \phi}{\partial \theta} = R_u \frac{\sinh(b - a) + R_v T_u (1 - \cos\theta)}{S (2 + S)} .

As for :func:`lresnet.geometry.pairwise_dist`, the product is computed in float64, in blocks of rows, and pairs whose
angle at the origin is near 0 or :math:`\pi` are computed again by :func:`lresnet.nn.exterior_angle`, on CUDA too, in
float64. Backward needs matrix products only. Errors of the angle against 60 digits, over the families of
``tests/families.py`` (``tests/nn/test_hierarchy_energy.py``): at most 3e-7 for float32 points, which is half a unit in
the last place of :math:`\pi`, and 1e-15 for float64 points, or :math:`\epsilon T` on one ray. Compiled code does not
compute near pairs again: the angles of pairs with :math:`\theta` or :math:`\pi - \theta` below 1e-7 are then
inaccurate.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from lresnet.geometry import distance, pairwise_dist
from lresnet.geometry.checks import checked_points, full_precision, require_points, traced
from lresnet.geometry.curvature import Curvature, kappa_of, root
from lresnet.geometry.pairwise import NEAR, NEAR_COORDINATES, Rows, row_blocks, separation, working_dtype
from lresnet.geometry.smooth import safe_sqrt
from lresnet.nn.entailment import DEFAULT_MIN_RADIUS, cone_aperture, exterior_angle

__all__ = ["DEFAULT_ALPHA", "ancestor_energy", "pairwise_ancestor_energy", "pairwise_entailment_energy"]

DEFAULT_ALPHA = 0.5

Form = Literal["sum", "product"]


# --- distance and norm ------------------------------------------------------------------------------------------------


def ancestor_energy(
    child: Tensor,
    ancestor: Tensor,
    *,
    K: Curvature | None = -1.0,
    alpha: float | Tensor = DEFAULT_ALPHA,
    form: Form = "sum",
) -> Tensor:
    r"""Return the energy of each pair (child, ancestor), low for ancestors: distance plus difference of norms.

    ``"sum"``: :math:`d(u, v) + \alpha (\rho_v - \rho_u)` with the distances :math:`\rho` to the origin. ``"product"``:
    :math:`(1 + \alpha (|p_v| - |p_u|))\, d(u, v)` with norms in the unit ball, minus the score of Nickel and Kiela
    (NeurIPS 2017, `arXiv 1705.08039 <https://arxiv.org/abs/1705.08039>`_; they use :math:`\alpha = 1000`). See the
    module's docstring for which to use.

    Args:
        child: Points u.
        ancestor: Points v; both broadcast.
        K: Curvature K < 0. None: Euclidean distances and norms.
        alpha: Weight of the norms, 0 or more; for ``"sum"``, up to 1.
        form: ``"sum"`` or ``"product"``.

    Shapes:
        [..., n] and [..., n] -> [...]

    Example:
        >>> parent, child = torch.tensor([1.0, 0.0]), torch.tensor([3.0, 0.0])
        >>> ancestor_energy(child, parent) < ancestor_energy(parent, child)
        tensor(True)
    """
    (child, ancestor), dtype = checked_points(child, ancestor, names=("child", "ancestor"))
    with full_precision(child):
        if K is None:
            d = safe_sqrt((child - ancestor).square().sum(-1))
        else:
            d = distance.dist(child, ancestor, kappa_of(K, child.dtype), -1).squeeze(-1)
        return _combine(d, _depth(child, K, form), _depth(ancestor, K, form), alpha, form).to(dtype)


def pairwise_ancestor_energy(
    children: Tensor,
    ancestors: Tensor,
    *,
    K: Curvature | None = -1.0,
    alpha: float | Tensor = DEFAULT_ALPHA,
    form: Form = "sum",
) -> Tensor:
    """Return :func:`ancestor_energy` of all children with all candidate ancestors, without a [B, M, n] tensor.

    Args:
        children: B points.
        ancestors: M points.
        K: Curvature K < 0, a number or a 0-dimensional tensor. None: Euclidean distances and norms.
        alpha: Weight of the norms, see :func:`ancestor_energy`.
        form: ``"sum"`` or ``"product"``.

    Shapes:
        children [..., B, n], ancestors [..., M, n] -> [..., B, M], float32 or wider

    Example:
        >>> pairwise_ancestor_energy(torch.randn(4, 3), torch.randn(10, 3)).argmin(1).shape
        torch.Size([4])
    """
    d = pairwise_dist(children, ancestors, K=K)
    with full_precision(d):
        own, other = (_depth(points.to(d.dtype), K, form) for points in (children, ancestors))
        return _combine(d, own.unsqueeze(-1), other.unsqueeze(-2), alpha, form)


def _combine(d: Tensor, child: Tensor, ancestor: Tensor, alpha: float | Tensor, form: Form) -> Tensor:
    if not isinstance(alpha, Tensor) and not 0 <= alpha < math.inf:
        raise ValueError(f"alpha must be 0 or more and finite, got {alpha}")
    higher = alpha * (ancestor - child)
    return d + higher if form == "sum" else (1 + higher) * d


def _depth(x: Tensor, K: Curvature | None, form: Form) -> Tensor:
    """Return the distances to the origin, or for the product the norms in the unit ball."""
    if form not in ("sum", "product"):
        raise ValueError(f"form must be 'sum' or 'product', got {form!r}")
    r: Tensor = torch.linalg.vector_norm(x, dim=-1)
    if K is None:
        return r
    scale = root(kappa_of(K, x.dtype))
    R = scale * r
    return R.asinh() / scale if form == "sum" else R / (1 + torch.hypot(R, torch.ones_like(R)))


# --- cones ------------------------------------------------------------------------------------------------------------


def pairwise_entailment_energy(
    children: Tensor,
    ancestors: Tensor,
    *,
    K: Curvature = -1.0,
    min_radius: float = DEFAULT_MIN_RADIUS,
    clamp: bool = False,
) -> Tensor:
    r"""Return how far each child lies outside the cone of each candidate ancestor, without a [B, M, n] tensor.

    :math:`E(u, v) = \phi(v, u) - \psi(v)`, with the :func:`lresnet.nn.exterior_angle` at the ancestor v and its
    :func:`lresnet.nn.cone_aperture`, in radians. It is negative inside the cone; :func:`lresnet.nn.entailment_loss` is
    the mean of the positive part.

    Args:
        children: B points u.
        ancestors: M points v, which have the cones.
        K: Curvature K < 0, a number or a 0-dimensional tensor.
        min_radius: See :func:`lresnet.nn.cone_aperture`.
        clamp: Whether to return 0 inside the cone. Candidates are then not ranked within it.

    Shapes:
        children [..., B, n], ancestors [..., M, n] -> [..., B, M], float32 or wider

    Example:
        >>> children, ancestors = torch.tensor([[2.0, 0.1], [-2.0, 0.0]]), torch.tensor([[1.0, 0.0]])
        >>> pairwise_entailment_energy(children, ancestors) < 0
        tensor([[ True],
                [False]])
    """
    require_points(children, name="children"), require_points(ancestors, name="ancestors")
    if children.dim() < 2 or ancestors.dim() < 2 or children.shape[-1] != ancestors.shape[-1]:
        raise ValueError(
            f"children {tuple(children.shape)} and ancestors {tuple(ancestors.shape)} must be sets of points "
            "[..., B, n] and [..., M, n] of one dimension n"
        )
    dtype = torch.promote_types(torch.promote_types(children.dtype, ancestors.dtype), torch.float32)
    sets = torch.broadcast_shapes(children.shape[:-2], ancestors.shape[:-2])
    y, x = (t.to(dtype).expand(*sets, *t.shape[-2:]) for t in (children, ancestors))
    kappa = kappa_of(K, dtype)
    if isinstance(kappa, Tensor):
        if kappa.numel() != 1:
            raise ValueError(f"K must be one curvature, got shape {tuple(kappa.shape)}")
        kappa = kappa.reshape(())
    with full_precision(y):
        energy = _angles(y, x, kappa) - cone_aperture(x, K=-kappa, min_radius=min_radius).unsqueeze(-2)
    return torch.relu(energy) if clamp else energy


def _angles(y: Tensor, x: Tensor, kappa: Curvature) -> Tensor:
    """Return the exterior angles at x [..., M, n] of the points y [..., B, n], [..., B, M]."""
    if traced():
        return _plain_angles(y, x, kappa)
    tensor = kappa if isinstance(kappa, Tensor) else None
    angles: Tensor
    angles, near = _FarAngles.apply(y, x, tensor, kappa)  # type: ignore[no-untyped-call]
    for some in near.split(max(1, NEAR_COORDINATES // y.shape[-1])):
        *sets, i, j = some.unbind(-1)
        tip, other = (points.to(working_dtype(y)) for points in (x[(*sets, j)], y[(*sets, i)]))
        angles[(*sets, i, j)] = exterior_angle(tip, other, K=-kappa).to(angles.dtype)
    return angles


def _parts(y: Rows, x: Rows) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return S, ``1 - cos``, sin, and the parts of the logarithm of y at x across the ray of x and along it."""
    S, apart = separation(y, x)
    apart = apart.clamp(max=2.0)
    sine = (apart * (2 - apart)).sqrt()
    sinh = distance.radial_part(y.R, y.T, x.R.mT, x.T.mT)[0]
    return S, apart, sine, y.R * sine, torch.addcmul(sinh, x.T.mT * y.R, apart, value=-1)


class _FarAngles(torch.autograd.Function):
    """The angles, and the indices of the pairs that the caller computes again: they have gradient 0 here."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, tensor: Tensor | None, kappa: Curvature) -> tuple[Tensor, Tensor]:
        rows, columns = _rows(y, x, kappa)
        angles = y.new_empty(*y.shape[:-1], x.shape[-2])
        found = []
        for part in row_blocks(y, x.shape[-2]):
            own = rows.part(part)
            _S, apart, _sine, across, along = _parts(own, columns)
            at_origin = columns.R.mT == 0
            angles[..., part, :] = torch.atan2(across, along).masked_fill(at_origin, 0.0)
            least = NEAR[y.dtype, apart.dtype]
            near = ((apart < least) | (apart > 2 - least)) & ~at_origin & (own.R > 0)
            index = near.nonzero()
            index[:, -2] += part.start
            found.append(index)
        near_pairs = torch.cat(found) if found else torch.empty(0, y.dim(), dtype=torch.int64, device=y.device)
        ctx.kappa = kappa if tensor is None else None
        ctx.save_for_backward(y, x, tensor, near_pairs)
        ctx.mark_non_differentiable(near_pairs)
        return angles, near_pairs

    @staticmethod
    def backward(ctx: Any, g: Tensor, _near: Tensor) -> tuple[Tensor | None, ...]:
        y, x, tensor, near = ctx.saved_tensors
        g = g.index_put(near.unbind(-1), g.new_zeros(()))
        if torch.is_grad_enabled():
            return *_second_order(ctx, g, y, x, tensor), None
        kappa: Curvature = tensor if tensor is not None else ctx.kappa
        rows, columns = _rows(y, x, kappa)
        scale = root(kappa.to(rows.x.dtype) if isinstance(kappa, Tensor) else kappa)
        gy, gx = torch.zeros_like(rows.x), torch.zeros_like(columns.x)
        radial_x, turned_x = torch.zeros_like(columns.R), torch.zeros_like(columns.R)
        gk = rows.x.new_zeros(())
        R_x, T_x = columns.R.mT, columns.T.mT
        for part in row_blocks(y, x.shape[-2]):
            own = rows.part(part)
            S, apart, sine, across, _along = _parts(own, columns)
            squared = S * (2 + S)  # sinh^2 d
            defined = (squared > 0) & (R_x > 0)
            h = torch.where(defined, g[..., part, :].to(S.dtype) / torch.where(defined, squared, 1.0), 0.0)
            by_x = h * across * (1 + S)
            by_y = -h * sine * R_x
            # The angle at the origin has no direction of ascent where it is 0 or pi.
            turns = sine > torch.finfo(sine.dtype).eps ** 0.5
            slope = distance.radial_part(own.R, own.T, R_x, T_x)[0] + R_x * own.T * apart
            turn = -h * slope / torch.where(turns, sine, torch.inf)  # by the cosine, over R_y
            cosine = 1 - apart
            gy[..., part, :] = own.unit * (by_y.sum(-1, keepdim=True) / own.T)
            gy[..., part, :] += turn @ columns.unit - own.unit * (turn * cosine).sum(-1, keepdim=True)
            turn = turn * own.R
            gx += turn.mT @ own.unit
            turned_x += (turn * cosine).sum(-2).unsqueeze(-1)
            radial_x += by_x.sum(-2).unsqueeze(-1)
            gk += (by_x * (R_x / T_x)).sum() + (by_y * (own.R / own.T)).sum()
        tiny = torch.finfo(torch.float32).tiny
        gx = columns.unit * (radial_x / columns.T) + (gx - columns.unit * turned_x) / columns.R.clamp(min=tiny)
        wanted = ctx.needs_input_grad
        return (
            (scale * gy).to(y.dtype) if wanted[0] else None,
            (scale * gx).to(x.dtype) if wanted[1] else None,
            (gk / (2 * kappa)).to(tensor.dtype) if wanted[2] else None,
            None,
        )


def _rows(y: Tensor, x: Tensor, kappa: Curvature) -> tuple[Rows, Rows]:
    wide = working_dtype(y)
    k = kappa.to(wide) if isinstance(kappa, Tensor) else kappa
    return Rows(y.to(wide), k), Rows(x.to(wide), k)


def _plain_angles(y: Tensor, x: Tensor, kappa: Curvature) -> Tensor:
    """Return the angles by operations that autograd and torch.func differentiate to any order, in one block."""
    rows, columns = _rows(y, x, kappa)
    _S, apart = separation(rows, columns)
    apart = apart.clamp(max=2.0)
    sin2 = apart * (2 - apart)
    turns = sin2 > torch.finfo(sin2.dtype).eps
    across = rows.R * torch.where(turns, torch.where(turns, sin2, 1.0).sqrt(), 0.0)
    sinh = distance.radial_part(rows.R, rows.T, columns.R.mT, columns.T.mT)[0]
    along = sinh - columns.T.mT * rows.R * apart
    defined = ((across > 0) | (along != 0)) & (columns.R.mT > 0)
    return torch.atan2(torch.where(defined, across, 0.0), torch.where(defined, along, 1.0)).to(y.dtype)


def _second_order(ctx: Any, g: Tensor, y: Tensor, x: Tensor, kappa: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return differentiable gradients, computed by autograd with respect to aliases, so that they stop here."""
    inputs = [t if t is None else t.view_as(t) for t in (y, x, kappa)]
    value = _plain_angles(inputs[0], inputs[1], ctx.kappa if inputs[2] is None else inputs[2])  # type: ignore[arg-type]
    wanted = [i for i in range(3) if ctx.needs_input_grad[i]]
    found = torch.autograd.grad(value, [inputs[i] for i in wanted], g, create_graph=True)  # type: ignore[arg-type]
    grads = dict(zip(wanted, found, strict=True))
    return tuple(grads.get(i) for i in range(3))
