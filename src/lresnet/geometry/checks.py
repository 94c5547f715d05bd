"""Checks of points, weights and scales that callers pass in.

Shapes and dtypes are always checked. *Values* (a negative weight, a point off the hyperboloid) are checked only for
eager CPU tensors: under compile, export and vmap, and on CUDA, reading a value would break the graph or stall the
device. :func:`check_everywhere` enables the checks on CUDA too, for debugging.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

__all__ = [
    "check_everywhere",
    "check_nowhere",
    "checked_points",
    "checks_values",
    "forward_mode",
    "full_precision",
    "in_range",
    "on_host",
    "overflowed",
    "require_features",
    "require_finite",
    "require_nonnegative",
    "require_points",
    "require_positive",
    "stored",
    "traced",
    "transformed",
    "weight_rows",
]


_everywhere: ContextVar[bool] = ContextVar("lresnet_check_everywhere", default=False)
_nowhere: ContextVar[bool] = ContextVar("lresnet_check_nowhere", default=False)

# In half precision the squares of coordinates are too inaccurate: geometry is computed in float32 or wider.
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


@contextlib.contextmanager
def check_everywhere() -> Iterator[None]:
    """Check values on every device inside the context, for debugging: each check synchronises CUDA.

    Example:
        >>> with check_everywhere():
        ...     pass
    """
    token = _everywhere.set(True)
    try:
        yield
    finally:
        _everywhere.reset(token)


@contextlib.contextmanager
def check_nowhere() -> Iterator[None]:
    """Check no values inside the context: one member of a stack may become NaN while the others train on.

    Example:
        >>> with check_nowhere():
        ...     pass
    """
    token = _nowhere.set(True)
    try:
        yield
    finally:
        _nowhere.reset(token)


def forward_mode() -> bool:
    """Return whether forward-mode derivatives are computed (forward_ad, or torch.func's jvp, jacfwd, hessian).

    An ``autograd.Function`` does not work there: torch.compile supports none with a ``jvp`` rule, and inside a second
    jvp torch drops the tangents that such a rule computes. Functions with their own backward use plain operations then.
    """
    return forward_ad._current_level >= 0


def transformed() -> bool:
    """Return whether the code runs under a torch.func transform or in forward mode."""
    return torch._C._are_functorch_transforms_active() or forward_mode()


def traced() -> bool:
    """Return whether the code runs under torch.compile or torch.export, or is :func:`transformed`."""
    return torch.compiler.is_compiling() or transformed()


def stored(x: Tensor) -> Tensor:
    """Return ``x``, which torch.compile then stores where it is computed.

    By default it computes x in every place that reads it. That costs a pass over memory if x depends on more numbers
    than it has. torch.compile stores a tensor before it is read with other strides.
    """
    if torch.compiler.is_compiling() and not transformed():
        x = x.contiguous()  # in backward passes torch.compile knows the strides of no other tensor
        return x.as_strided(x.shape, x.stride())
    return x


def full_precision(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Return a context without autocast: bfloat16 matrix products are too inaccurate. (Meta tensors need none.)"""
    return contextlib.nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)


def checks_values(x: Tensor) -> bool:
    """Return whether the values of ``x`` may be read (see the module's docstring)."""
    if traced():
        return False
    if isinstance(x, FakeTensor) or _nowhere.get():
        return False
    return x.device.type == "cpu" or (x.device.type == "cuda" and _everywhere.get())


def on_host(x: Tensor) -> bool:
    """Return whether a formula may branch on the values of ``x``: an eager tensor on a CPU, outside check_nowhere().

    In a stack, a member that has become NaN must not change how the others are computed.
    """
    return x.device.type == "cpu" and not traced() and not isinstance(x, FakeTensor) and not _nowhere.get()


def overflowed(result: Tensor) -> bool:
    """Return whether float32 may have overflowed on the way to ``result``, where :func:`on_host` allows reading it."""
    return result.dtype == torch.float32 and on_host(result) and not math.isfinite(float(result.detach().sum()))


def in_range(formula: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Return ``formula(*arguments)``, computed again in float64 if float32 overflowed on the way (:func:`overflowed`).

    The squares of norms above 1.8e19 overflow in float32, although the result may be a float32 number.
    """
    result = formula(*arguments)
    if overflowed(result):
        result = formula(*(a.double() if isinstance(a, Tensor) else a for a in arguments)).to(result.dtype)
    return result


def require_points(x: object, dim: int = -1, name: str = "x") -> Tensor:
    """Return ``x``; raise unless it is a floating-point tensor with at least one coordinate along ``dim``."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}; wrap it in torch.as_tensor(...)")
    if not x.is_floating_point():
        raise TypeError(f"{name} must be a floating point tensor, got {x.dtype}; convert it, e.g. {name}.float()")
    if x.dim() == 0:
        raise ValueError(f"{name} is a 0-dimensional tensor; a point needs a coordinate axis, e.g. shape [n]")
    if not -x.dim() <= dim < x.dim():
        raise ValueError(f"dim={dim} is not an axis of {name}, which has shape {tuple(x.shape)}")
    if x.shape[dim] == 0:
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}: axis {dim} holds the coordinates and is empty. "
            "Use at least one coordinate"
        )
    return x


def require_features(x: Tensor, n: int, layer: str) -> None:
    """Raise ``ValueError`` unless the points have the dimension n that the layer was built for."""
    if x.shape[-1] != n:
        raise ValueError(
            f"{layer} was built for points of dimension {n}, got shape {tuple(x.shape)}; tensors here carry the n "
            "space coordinates only (drop() removes the time coordinate)"
        )


def checked_points(
    *tensors: Tensor, dim: int = -1, names: Sequence[str] = ("x", "y", "u")
) -> tuple[list[Tensor], torch.dtype]:
    """Check points (or tangent vectors), broadcast them together and convert half precision to float32.

    Returns:
        The tensors to compute with, and the dtype of the result.
    """
    for tensor, name in zip(tensors, names, strict=False):
        require_points(tensor, dim, name)
    first = tensors[0]
    if first.dtype not in _WIDER and all(t.shape == first.shape and t.dtype == first.dtype for t in tensors[1:]):
        return list(tensors), first.dtype  # the usual case; the checks below take as long as a kernel
    if len({tensor.shape[dim] for tensor in tensors}) > 1:
        raise ValueError(
            f"{_shapes(tensors, names)}: the coordinate axis ({dim}) must have the same size in all of them. "
            "Tensors here carry the n space coordinates only; drop() removes the time coordinate of [..., n+1] points"
        )
    try:
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
    except RuntimeError as error:
        raise ValueError(f"{_shapes(tensors, names)} do not broadcast against each other") from error
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    wide = _WIDER.get(dtype, dtype)
    return [t.to(wide) if t.shape == shape else t.to(wide).expand(shape) for t in tensors], dtype


def _shapes(tensors: Sequence[Tensor], names: Sequence[str]) -> str:
    return " and ".join(f"{name} {tuple(t.shape)}" for t, name in zip(tensors, names, strict=False))


def weight_rows(weight: float | Tensor, points: Tensor, dim: int, name: str = "weight") -> Tensor:
    """Return ``weight`` as a tensor that broadcasts against ``points`` with the coordinate axis ``dim`` at size 1.

    Args:
        weight: A number, a 0-dimensional tensor, a tensor that broadcasts to the shape of ``points`` without the axis
            ``dim``, or a tensor with as many axes as ``points`` and size 1 along ``dim``.
        points: The points; each gets one weight.
        dim: The coordinate axis.
        name: Name of the weight in error messages.
    """
    if not isinstance(weight, Tensor):
        if not isinstance(weight, Real):
            kind = type(weight).__name__
            raise TypeError(f"{name} must be a number or a torch.Tensor, got {kind}; wrap it in torch.as_tensor(...)")
        # torch.full launches a kernel on CUDA; new_tensor would copy from the host and synchronise
        return torch.full((), float(weight), dtype=points.dtype, device=points.device)
    if not weight.is_floating_point():
        raise TypeError(f"{name} must be a floating point tensor, got {weight.dtype}; convert it, e.g. .float()")
    weight = weight.to(points.dtype)
    axis = dim % points.dim()
    if weight.dim() == 0:
        return weight
    if weight.dim() == points.dim() and weight.shape[axis] == 1:
        rows = weight
    elif weight.dim() < points.dim():
        missing = points.dim() - 1 - weight.dim()
        rows = weight.reshape((1,) * missing + tuple(weight.shape)).unsqueeze(axis)
    else:
        rows = weight
    target = list(points.shape)
    target[axis] = 1
    fits = rows.dim() == len(target) and all(r in (1, t) for r, t in zip(rows.shape, target, strict=True))
    if not fits:
        without = tuple(size for i, size in enumerate(points.shape) if i != axis)
        raise ValueError(
            f"{name} has shape {tuple(weight.shape)}, but the points need one weight each: a number or a tensor that "
            f"broadcasts to {without}. A weight per coordinate would not give a point of the hyperboloid"
        )
    return rows


def require_finite(weight: float | Tensor, what: str = "weight") -> None:
    """Raise ``ValueError`` if a weight is not finite; of a tensor, if :func:`checks_values` allows reading it."""
    bad = 0.0
    if isinstance(weight, Tensor):
        if checks_values(weight) and not bool(weight.isfinite().all()):
            bad = float(weight.detach()[~weight.isfinite()].flatten()[0])
    elif isinstance(weight, Real):
        bad = float(weight)
    if not math.isfinite(bad):
        raise ValueError(f"{what} must be finite, got {bad:g}")


def require_nonnegative(weight: Tensor, what: str) -> None:
    """Raise ``ValueError`` if a weight is negative or not finite and :func:`checks_values` allows reading it."""
    if checks_values(weight) and not bool((weight >= 0).all() & weight.isfinite().all()):
        bad = weight.detach()[~((weight >= 0) & weight.isfinite())].flatten()[0]
        raise ValueError(
            f"{what} must be finite and not negative, got {float(bad):g}: with a negative weight the result may be off "
            "the hyperboloid. Use weight.abs(), or softplus of a free parameter"
        )


def require_positive(scale: Tensor, what: str) -> None:
    """Raise ``ValueError`` if a scale is not positive and finite and :func:`checks_values` allows reading it."""
    if checks_values(scale) and not bool(((scale > 0) & scale.isfinite()).all()):
        bad = scale.detach()[~((scale > 0) & scale.isfinite())].flatten()[0]
        raise ValueError(f"{what} must be positive and finite, got {float(bad):g}; exp of a free parameter always is")
