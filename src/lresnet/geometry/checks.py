"""What is checked of the tensors a caller passes in.

Shapes and dtypes are checked always: they are known without looking at the data. *Values* (a negative weight, a
point off the hyperboloid) are looked at only for eager CPU tensors; under compile, export, vmap and on CUDA reading
a value would break the graph or stall the device. :func:`check_everywhere` lifts the CUDA exception for debugging.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

__all__ = [
    "check_everywhere",
    "check_nowhere",
    "checks_values",
    "forward_mode",
    "full_precision",
    "prepare",
    "require_features",
    "require_points",
    "traced",
    "transformed",
]

_everywhere: ContextVar[bool] = ContextVar("lresnet_check_everywhere", default=False)
_nowhere: ContextVar[bool] = ContextVar("lresnet_check_nowhere", default=False)

# Below float32 the squares of the coordinates lose the hyperboloid: geometry is computed in float32 or wider.
_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


@contextlib.contextmanager
def check_everywhere() -> Iterator[None]:
    """Check values on every device while the context is open (synchronises CUDA: for debugging).

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
    """Check no values while the context is open: in a stack one member may be NaN while the others go on.

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
    """Whether derivatives are taken forwards: by torch.autograd.forward_ad or torch.func's jvp, jacfwd and hessian.

    An autograd.Function is no help there: a compiler takes none with a rule for tangents, and within a second jvp torch
    drops the tangents that such a rule computes. Functions with a backward of their own give way to plain operations.
    """
    return forward_ad._current_level >= 0


def transformed() -> bool:
    """Whether the code runs under a torch.func transform or in forward mode."""
    return torch._C._are_functorch_transforms_active() or forward_mode()


def traced() -> bool:
    """Whether the code runs under torch.compile or torch.export, or is :func:`transformed`."""
    return torch.compiler.is_compiling() or transformed()


def full_precision(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """Keep autocast out: a matrix product in bfloat16 would lose the geometry. (The meta device knows no autocast.)"""
    return contextlib.nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)


def checks_values(x: Tensor) -> bool:
    """Whether the values of ``x`` may be read here and now."""
    if traced():
        return False
    if isinstance(x, FakeTensor) or _nowhere.get():
        return False
    return x.device.type == "cpu" or (x.device.type == "cuda" and _everywhere.get())


def require_points(x: object, dim: int = -1, name: str = "x") -> Tensor:
    """Refuse what cannot be points: not a tensor, not floating point, or without coordinates along ``dim``."""
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
            "A space of dimension 0 has one point only; use at least one coordinate"
        )
    return x


def require_features(x: Tensor, n: int, layer: str) -> None:
    """Refuse points of another dimension than the layer was built for."""
    if x.shape[-1] != n:
        raise ValueError(
            f"{layer} was built for points of dimension {n}, got shape {tuple(x.shape)}; tensors here carry the n "
            "space coordinates only (drop() removes the time coordinate)"
        )


def prepare(
    *tensors: Tensor, dim: int = -1, names: Sequence[str] = ("x", "y", "u")
) -> tuple[list[Tensor], torch.dtype]:
    """Check points (or tangent vectors), broadcast them together and widen them to float32 at least.

    Returns:
        The tensors ready for the formulas, and the dtype in which the result is to be given back.
    """
    for tensor, name in zip(tensors, names, strict=False):
        require_points(tensor, dim, name)
    first = tensors[0]
    if first.dtype not in _WIDER and all(t.shape == first.shape and t.dtype == first.dtype for t in tensors[1:]):
        return list(tensors), first.dtype  # the usual case, and worth it: the checks below cost as much as a kernel
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
    return [tensor.to(wide).expand(shape) for tensor in tensors], dtype


def _shapes(tensors: Sequence[Tensor], names: Sequence[str]) -> str:
    return " and ".join(f"{name} {tuple(t.shape)}" for t, name in zip(tensors, names, strict=False))
