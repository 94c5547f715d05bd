"""Assertions for tests of layers on the Lorentz manifold.

Each raises :class:`AssertionError` with the worst case. ``f`` maps points in space coordinates to points.

Example:
    >>> import lresnet
    >>> M = lresnet.Lorentz(-1.0)
    >>> layer = lresnet.make_residual("lorentz", M)
    >>> assert_commutative(layer, torch.randn(5, 3), torch.randn(5, 3))
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, check_everywhere
from lresnet.geometry.checks import require_points

__all__ = [
    "assert_commutative",
    "assert_compiles",
    "assert_finite_gradients",
    "assert_isometry_equivariant",
    "assert_on_manifold",
    "check_everywhere",
]


def assert_on_manifold(x: Tensor, manifold: Lorentz, *, rounding: float = 8.0) -> None:
    r"""Assert that points in space coordinates are finite and, lifted, satisfy :math:`\langle p, p\rangle = 1/K`.

    Args:
        x: Points, [..., n].
        manifold: The manifold.
        rounding: Largest error, relative to :math:`\kappa x_t^2`, in units of the dtype's epsilon. (The absolute error
            grows with the norm, even for a correctly rounded point.)
    """
    require_points(x)
    _assert_finite("points", x)
    p = manifold.lift(x).detach().double()
    kappa = manifold.kappa.detach().double().to(p.device)
    off = (kappa * (p[..., 1:].square().sum(-1) - p[..., 0].square()) + 1).abs() / (kappa * p[..., 0].square())
    bound = rounding * torch.finfo(x.dtype).eps
    if off.numel() and not float(off.max()) <= bound:  # negated, so that NaN (a time that overflows) fails
        raise AssertionError(f"off the hyperboloid: relative constraint error {float(off.max()):.3g} > {bound:.3g}")


def assert_commutative(f: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, *, tolerance: float = 0.0) -> None:
    """Assert that ``f(x, y)`` equals ``f(y, x)``, bit for bit or to a relative ``tolerance``."""
    a, b = f(x, y).detach(), f(y, x).detach()
    gap = (a - b).abs()
    if not bool((gap <= tolerance * torch.maximum(a.abs(), b.abs())).all()):
        index = tuple(int(i) for i in torch.unravel_index(gap.argmax(), gap.shape))
        raise AssertionError(f"not commutative: {float(a[index]):.9g} and {float(b[index]):.9g} at {index}")


def assert_isometry_equivariant(
    f: Callable[..., Tensor],
    manifold: Lorentz,
    *points: Tensor,
    tolerance: float = 1e-6,
    trials: int = 3,
    seed: int = 0,
) -> None:
    """Assert that ``f(g x, g y, ...) = g f(x, y, ...)`` for random isometries g, a rotation followed by a boost.

    Args:
        f: Function of points to a point.
        manifold: The manifold.
        points: Arguments of ``f``, [..., n] each.
        tolerance: Largest geodesic distance of the two sides, in radii of curvature.
        trials: Number of random isometries.
        seed: Seed of the isometries.
    """
    generator = torch.Generator().manual_seed(seed)
    root = float(manifold.kappa.detach()) ** 0.5
    for _ in range(trials):
        n = points[0].shape[-1]
        rotation, shift = _random_isometry(n, generator, root)
        rotation, shift = (t.to(points[0].device, points[0].dtype) for t in (rotation, shift))

        def move(x: Tensor, rotation: Tensor = rotation, shift: Tensor = shift) -> Tensor:
            return manifold.boost(shift.expand_as(x), x @ rotation)

        gap = root * manifold.dist(f(*map(move, points)), move(f(*points))).detach()
        if gap.numel() and not float(gap.max()) <= tolerance:
            raise AssertionError(f"not equivariant under isometries: off by {float(gap.max()):.3g} > {tolerance:.3g}")


def assert_finite_gradients(f: Callable[..., Tensor], *tensors: Tensor) -> None:
    """Assert that outputs and gradients of ``f`` are finite, for the sum and for an alternating sum of the outputs."""
    for alternate in (False, True):
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        out = f(*leaves)
        _assert_finite("output", out)
        sign = out.new_ones(out.numel())
        if alternate:
            sign[1::2] = -1
        (out * sign.view(out.shape)).sum().backward()
        for index, leaf in enumerate(leaves):
            if leaf.grad is not None:
                _assert_finite(f"gradient of argument {index}", leaf.grad)


def assert_compiles(
    f: Callable[..., Tensor], *tensors: Tensor, backend: str = "aot_eager", tolerance: float = 1e-5
) -> None:
    """Assert that ``torch.compile(f, fullgraph=True)`` gives the outputs and gradients of ``f``.

    Args:
        f: Function or module.
        tensors: Arguments of ``f``.
        backend: ``"aot_eager"`` checks the tracing and takes a second; ``"inductor"`` also checks the generated code.
        tolerance: Relative and absolute tolerance.
    """
    from torch._dynamo.exc import TorchDynamoException  # imported here: it takes seconds

    torch.compiler.reset()
    target = copy.deepcopy(f) if isinstance(f, torch.nn.Module) else f
    compiled = torch.compile(target, fullgraph=True, backend=backend)
    try:
        results = _forward_backward(compiled, tensors)
    except TorchDynamoException as error:
        raise AssertionError(f"does not compile into one graph: {error}") from error
    for expected, got in zip(_forward_backward(f, tensors), results, strict=True):
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def _forward_backward(f: Callable[..., Tensor], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    out = f(*leaves)
    if out.requires_grad:
        out.square().sum().backward()
    return [out.detach(), *(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves)]


def _random_isometry(n: int, generator: torch.Generator, root: float) -> tuple[Tensor, Tensor]:
    q, _ = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))
    return q, torch.randn(n, generator=generator, dtype=torch.float64) / (n**0.5 * root)


def _assert_finite(what: str, t: Tensor) -> None:
    bad = ~torch.isfinite(t)
    if bool(bad.any()):
        index = tuple(bad.nonzero()[0].tolist())
        raise AssertionError(f"{what} not finite: {int(bad.sum())} of {bad.numel()} entries, the first at {index}")
