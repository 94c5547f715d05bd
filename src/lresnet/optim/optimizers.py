"""Parameter groups, and optimisers: fused torch optimisers for Euclidean parameters, Riemannian ones for points."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, NamedTuple

import geoopt
import torch

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.state import is_sharded
from lresnet.optim.riemannian import RiemannianAdam

__all__ = [
    "Decay",
    "Optimizers",
    "ParameterGroups",
    "adam_l2",
    "adamw",
    "decay_rates",
    "device_rate",
    "make_adam",
    "make_adam_l2",
    "make_sgd",
    "parameter_groups",
    "reshape_loaded_state",
]

Decay = Literal["matrices", "all"]

_MOMENTUM = 0.9

# Names of parameters without weight decay: curvature, residual weights and scales, temperatures of attention.
_GEOMETRIC = ("log_kappa", "raw_weight", "log_scale", "log_temperature")


class ParameterGroups(NamedTuple):
    """The trainable parameters of a model by kind of update. Groups map names to parameters, in the model's order."""

    decayed: dict[str, torch.nn.Parameter]
    """Parameters with two or more dimensions, with weight decay."""
    plain: dict[str, torch.nn.Parameter]
    """Biases and parameters of norms, with weight decay only if requested (``decay="all"``)."""
    geometric: dict[str, torch.nn.Parameter]
    """Curvature, residual weights, scales and temperatures, never with weight decay."""
    manifold: dict[str, torch.nn.Parameter]
    """Points of a manifold, with Riemannian updates and without weight decay."""

    def summary(self) -> str:
        """Return one line per group with its numbers of parameters and tensors."""
        lines = []
        for name, group in self._asdict().items():
            count = sum(p.numel() for p in group.values())
            lines.append(f"{name:9} {count:>9,} parameters in {len(group)} tensors")
        return "\n".join(lines)


def parameter_groups(model: torch.nn.Module) -> ParameterGroups:
    """Return the trainable parameters of ``model``, sorted into groups.

    Raises:
        ValueError: FSDP2 has sharded points of a manifold, which then have no manifold and no Riemannian optimiser.

    Example:
        >>> parameter_groups(torch.nn.Linear(3, 2)).decayed.keys()
        dict_keys(['weight'])
    """
    _require_whole_points(model)
    groups = ParameterGroups({}, {}, {}, {})
    # By identity: the weight of a residual may be a parameter of the user's module and have a second name.
    all_names = model.named_parameters(remove_duplicate=False)
    geometric = {id(parameter) for name, parameter in all_names if name.rsplit(".", 1)[-1] in _GEOMETRIC}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if isinstance(parameter, geoopt.ManifoldParameter):
            groups.manifold[name] = parameter
        elif id(parameter) in geometric:
            groups.geometric[name] = parameter
        elif parameter.dim() >= 2:
            groups.decayed[name] = parameter
        else:
            groups.plain[name] = parameter
    return groups


def _require_whole_points(model: torch.nn.Module) -> None:
    for name, module in model.named_modules():
        for parameter in module.point_parameters if isinstance(module, ManifoldModule) else ():
            if is_sharded(getattr(module, parameter)):
                raise ValueError(
                    f"{name}.{parameter} holds points of a manifold, which FSDP2 cannot shard: use another head, "
                    "such as LorentzMLR, or DistributedDataParallel, or ignored_params, and average their gradients"
                )


class Optimizers(torch.optim.Optimizer):
    """Several optimisers as one: torch's schedulers of the learning rate and ``GradScaler`` accept it.

    If all parameters are on one CUDA device, the learning rates are tensors on it, so that a step recorded as a CUDA
    graph uses their current values.

    Args:
        optimizers: Optimisers of different parameters.

    Example:
        >>> layer = torch.nn.Linear(3, 2)
        >>> optimizers = Optimizers([torch.optim.SGD([layer.weight], lr=0.1), torch.optim.Adam([layer.bias], lr=0.1)])
        >>> layer(torch.ones(3)).sum().backward()
        >>> optimizers.step()
    """

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        # Without Optimizer.__init__, which would copy the groups: each optimiser keeps its own groups and state.
        self.optimizers = list(optimizers)
        self.defaults = self.optimizers[0].defaults if self.optimizers else {}
        for group in self.param_groups:
            group.setdefault("initial_lr", float(group["lr"]))

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The parameter groups of all optimisers."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @property
    def state(self) -> dict[torch.Tensor, Any]:  # type: ignore[override]
        """The state of all optimisers, by parameter."""
        return {parameter: own for optimizer in self.optimizers for parameter, own in optimizer.state.items()}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def capturable(self) -> bool:
        """Whether a step can be recorded as a CUDA graph. geoopt's optimisers count steps on the host and cannot."""
        return not any(isinstance(optimizer, geoopt.optim.mixin.OptimMixin) for optimizer in self.optimizers)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set all gradients to None, or to 0."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step with every optimiser. ``closure`` computes loss and gradients; its result is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss

    def scale_lr(self, factor: float) -> None:
        """Set every learning rate to ``factor`` times its initial value, without synchronising CUDA."""
        for group in self.param_groups:
            rate = group["initial_lr"] * factor
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def state_dict(self) -> dict[str, Any]:
        """Return the state dicts of the optimisers, by position."""
        return {str(i): optimizer.state_dict() for i, optimizer in enumerate(self.optimizers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the result of :meth:`state_dict`. Learning rates keep their current values."""
        rates = [group["lr"] for group in self.param_groups]
        for i, optimizer in enumerate(self.optimizers):
            optimizer.load_state_dict(state[str(i)])
            reshape_loaded_state(optimizer)
            if isinstance(optimizer, geoopt.optim.RiemannianAdam):
                # geoopt counts steps in Python. torch loads them as float32, which would round the bias corrections.
                for moments in optimizer.state.values():
                    moments["step"] = int(moments["step"])
        for group, rate in zip(self.param_groups, rates, strict=True):
            group["lr"] = rate  # keep the tensor; scale_lr sets its value before the next step


def reshape_loaded_state(optimizer: torch.optim.Optimizer) -> None:
    """Give the loaded state of one-element parameters the shape [1].

    Up to lresnet 0.2, learned weights, scales and curvatures were 0-dimensional, and so were their moments. The
    optimisers of :func:`make_adam` and :func:`make_sgd` call this function. Call it after ``load_state_dict`` of an
    optimiser of your own if the checkpoint is that old.

    Example:
        >>> number = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = torch.optim.SGD([number], lr=0.1, momentum=0.9)
        >>> optimizer.state[number] = {"momentum_buffer": torch.tensor(0.5)}
        >>> reshape_loaded_state(optimizer)
        >>> optimizer.state[number]
        {'momentum_buffer': tensor([0.5000])}
    """
    for parameter, own in optimizer.state.items():
        if parameter.shape == (1,):
            for name, value in own.items():
                if name != "step" and isinstance(value, torch.Tensor) and value.dim() == 0:
                    own[name] = value.reshape(1)


def make_adam(
    model: torch.nn.Module,
    lr: float,
    weight_decay: float = 0.0,
    *,
    decay: Decay = "matrices",
    layer_decay: float | None = None,
    expect_manifold: bool = False,
) -> Optimizers:
    """Return AdamW (fused, decoupled decay) for Euclidean parameters and RiemannianAdam for points of a manifold.

    Args:
        model: Model to train.
        lr: Learning rate.
        weight_decay: Decoupled weight decay.
        decay: Parameters with weight decay: "matrices", or "all" for norms and biases too.
        layer_decay: Weight decay of the parameters whose names start with ``layers.``; None: ``weight_decay``.
        expect_manifold: Warn if the model has no manifold parameter, so that a Riemannian optimiser has no effect.

    Example:
        >>> make_adam(torch.nn.Linear(3, 2), lr=0.01, weight_decay=1e-4).optimizers[0].__class__.__name__
        'AdamW'
    """
    groups = parameter_groups(model)
    if expect_manifold and not groups.manifold:
        warnings.warn(
            "a Riemannian optimiser was requested, but the model has no geoopt.ManifoldParameter: "
            "all of its parameters get ordinary Adam updates",
            stacklevel=2,
        )
    return _adam(groups, adamw, lr, (weight_decay, decay, layer_decay))


def make_adam_l2(
    model: torch.nn.Module,
    lr: float,
    weight_decay: float = 0.0,
    *,
    decay: Decay = "matrices",
    layer_decay: float | None = None,
) -> Optimizers:
    r"""Return Adam with weight decay in the gradient, :math:`g + \lambda w`, the penalty :math:`\lambda |w|^2 / 2`.

    Adam rescales the penalty together with the gradient. If few labels give small gradients, a weight shrinks by about
    lr per step until the gradient of the data outweighs the penalty. With the decoupled decay of :func:`make_adam` it
    would shrink by lr times ``weight_decay`` times its value. Points of a manifold have no decay. The arguments are
    those of :func:`make_adam`.
    """
    return _adam(parameter_groups(model), adam_l2, lr, (weight_decay, decay, layer_decay))


def _adam(
    groups: ParameterGroups,
    euclidean_adam: Callable[[list[dict[str, Any]], float], torch.optim.Optimizer],
    lr: float,
    decay: tuple[float, Decay, float | None],
) -> Optimizers:
    optimizers: list[torch.optim.Optimizer] = []
    if euclidean := _euclidean(groups, *decay):
        optimizers.append(euclidean_adam(euclidean, lr))
    if groups.manifold:
        optimizers.append(_riemannian_adam(list(groups.manifold.values()), lr))
    return Optimizers(optimizers)


def _riemannian_adam(points: list[torch.nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Return our own optimiser if all points are on one hyperboloid, otherwise geoopt's.

    Ours takes the same steps in half the time, and they can be recorded as a CUDA graph.
    """
    manifolds = [getattr(point, "manifold", None) for point in points]
    first = manifolds[0]
    if isinstance(first, Lorentz) and all(other is first for other in manifolds):
        return RiemannianAdam(points, partial(getattr, first, "curvature"), device_rate(lr, points))
    adam: torch.optim.Optimizer = geoopt.optim.RiemannianAdam(points, lr=lr, weight_decay=0.0)
    return adam


def adamw(groups: list[dict[str, Any]], lr: float) -> torch.optim.AdamW:
    """Return torch's AdamW for parameter groups with their own ``weight_decay``, fused, and capturable on CUDA."""
    # AdamW shrinks weights by lr * weight_decay, as the decoupled decay of the released code does.
    options = _fused(groups, lr)
    return torch.optim.AdamW(groups, **options, capturable=isinstance(options["lr"], torch.Tensor))


def adam_l2(groups: list[dict[str, Any]], lr: float) -> torch.optim.Adam:
    """Return torch's Adam, which adds ``weight_decay`` times the parameter to the gradient; else as :func:`adamw`."""
    options = _fused(groups, lr)
    return torch.optim.Adam(groups, **options, capturable=isinstance(options["lr"], torch.Tensor))


def make_sgd(
    model: torch.nn.Module,
    lr: float,
    weight_decay: float = 0.0,
    *,
    decay: Decay = "matrices",
    layer_decay: float | None = None,
) -> Optimizers:
    """Return SGD (fused, Nesterov momentum 0.9) for Euclidean parameters and RiemannianSGD for points of a manifold.

    Args:
        model: Model to train.
        lr: Learning rate.
        weight_decay: Weight decay, added to the gradient as in the paper.
        decay: Parameters with weight decay: "matrices", or "all" for norms and biases too.
        layer_decay: Weight decay of the parameters whose names start with ``layers.``; None: ``weight_decay``.
    """
    groups = parameter_groups(model)
    optimizers: list[torch.optim.Optimizer] = []
    if euclidean := _euclidean(groups, weight_decay, decay, layer_decay):
        optimizers.append(torch.optim.SGD(euclidean, **_fused(euclidean, lr), momentum=_MOMENTUM, nesterov=True))
    if groups.manifold:
        points = list(groups.manifold.values())
        optimizers.append(geoopt.optim.RiemannianSGD(points, lr=lr, momentum=_MOMENTUM, nesterov=True))
    return Optimizers(optimizers)


def decay_rates(
    groups: ParameterGroups, weight_decay: float, decay: Decay = "matrices", layer_decay: float | None = None
) -> dict[str, float]:
    """Return the weight decay of every Euclidean parameter by name.

    Args:
        groups: Parameters of a model.
        weight_decay: Weight decay.
        decay: Parameters with weight decay: "matrices", or "all" for norms and biases too.
        layer_decay: Weight decay of the parameters whose names start with ``layers.``; None: ``weight_decay``.

    Example:
        >>> net = torch.nn.ModuleDict({"layers": torch.nn.Linear(3, 2), "head": torch.nn.Linear(2, 2)})
        >>> decay_rates(parameter_groups(net), 0.1, layer_decay=0.5)
        {'layers.weight': 0.5, 'head.weight': 0.1, 'layers.bias': 0.0, 'head.bias': 0.0}
    """
    names = [*groups.decayed, *groups.plain]
    # torch.compile and DistributedDataParallel put a word before each name.
    inner = {name for name in names if name.removeprefix("_orig_mod.").removeprefix("module.").startswith("layers.")}
    if layer_decay is not None and not inner:
        raise ValueError("layer_decay has no effect: no parameter of this model is in its 'layers'; leave it out")
    decayed = {name: weight_decay if layer_decay is None or name not in inner else layer_decay for name in names}
    plain = {} if decay == "all" else dict.fromkeys(groups.plain, 0.0)
    return decayed | plain | dict.fromkeys(groups.geometric, 0.0)


def _euclidean(
    groups: ParameterGroups, weight_decay: float, decay: Decay, layer_decay: float | None = None
) -> list[dict[str, Any]]:
    """Return the parameter groups of a torch optimiser, without empty ones."""
    rates = decay_rates(groups, weight_decay, decay, layer_decay)
    return [
        {"params": [group[name] for name in group if rates[name] == rate], "weight_decay": rate}
        for group in (groups.decayed, groups.plain, groups.geometric)
        for rate in dict.fromkeys(rates[name] for name in group)
    ]


def _fused(groups: list[dict[str, Any]], lr: float) -> dict[str, Any]:
    """Return options for a fused step where torch has one, with the learning rate on the device."""
    parameters = [p for g in groups for p in g["params"]]
    return {"lr": device_rate(lr, parameters), "fused": {p.device.type for p in parameters} <= {"cpu", "cuda"}}


def device_rate(lr: float, parameters: Iterable[torch.Tensor]) -> float | torch.Tensor:
    """Return ``lr``, as a tensor if all parameters are on one CUDA device: a recorded step then reads its value."""
    devices = {p.device for p in parameters}
    one_cuda = len(devices) == 1 and all(device.type == "cuda" for device in devices)
    return torch.tensor(lr, device=devices.pop()) if one_cuda else lr
