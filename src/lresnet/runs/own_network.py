"""Networks that a user built: how a run describes them, keeps their weights, and finds the points before their head."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_safetensors
from torch import Tensor

from lresnet._files import has_file, write_atomically
from lresnet.geometry import Lorentz
from lresnet.models.pretrained import Pretrained
from lresnet.nn.mlr import LorentzMLR
from lresnet.nn.prototypes import Prototypes
from lresnet.residual.base import Residual
from lresnet.residual.registry import RESIDUALS

__all__ = [
    "HeadInput",
    "describe_network",
    "head_input",
    "is_own_network",
    "load_weights",
    "network_weights",
    "require_logits",
    "save_weights",
]

_WEIGHTS = "model.safetensors"
_OWN = "own"  # what a run calls the residual of a network that has none of ours, or several kinds
_LONGEST_REASON = 400  # characters of an error message


def is_own_network(record_of_model: dict[str, Any]) -> bool:
    """Whether ``run.json`` describes a network that its user built, so that no file can rebuild it."""
    return record_of_model.get("from") == "python" and "class" in record_of_model


def describe_network(net: torch.nn.Module) -> dict[str, Any]:
    """Return class, residual and sizes of a user's network as JSON values.

    Example:
        >>> describe_network(torch.nn.Linear(3, 2))["parameters"]
        8
    """
    residuals = {type(module) for module in net.modules() if isinstance(module, Residual)}
    names = [name for name, kind in RESIDUALS.items() if kind in residuals]
    parameters = list(net.parameters())
    return {
        "name": type(net).__name__,
        "from": "python",
        "class": type(net).__name__,
        "residual": names[0] if len(names) == 1 else _OWN,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "trained_parameters": sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
    }


def network_weights(net: torch.nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a network as safetensors takes them: contiguous, and none shares its memory.

    Raises:
        ValueError: the state of the network holds something else than tensors.
    """
    weights, seen = dict[str, Tensor](), set[int]()
    for name, value in net.state_dict().items():
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            kind = value.layout if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"{name} in the state of {type(net).__name__} is {kind}, and a run folder holds dense tensors only; "
                "train without a folder (out=None) and save the network yourself"
            )
        place = value.untyped_storage().data_ptr()
        weights[name] = value.detach().clone() if place in seen else value.detach().contiguous()
        seen.add(place)
    return weights


def save_weights(net: torch.nn.Module, folder: Path) -> None:
    """Write the tensors of a network to ``folder/model.safetensors``."""
    write_atomically(folder / _WEIGHTS, to_safetensors(network_weights(net)))


def load_weights(net: torch.nn.Module, folder: Path) -> None:
    """Give a network the tensors that :func:`save_weights` wrote.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: the file is damaged, or belongs to another network.
    """
    file = folder / _WEIGHTS
    if not has_file(file):
        raise FileNotFoundError(f"{folder} holds no weights: {_WEIGHTS} is missing")
    try:
        net.load_state_dict(load_file(file))
    except (RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise ValueError(f"{file} does not fit the given {type(net).__name__}: {reason}") from error


def require_logits(net: torch.nn.Module, task: object) -> None:
    """Raise an error if a user's network cannot be trained on a task, which must be one of images or other tensors."""
    from lresnet.data import DatasetTask, ImageTask

    if not isinstance(task, DatasetTask | ImageTask):
        raise TypeError(
            f"fit takes a model of lresnet.create_model for a graph, got {type(net).__name__}; train networks of your "
            "own on graphs with lresnet.nn and a loop of your own"
        )


class HeadInput(NamedTuple):
    """What the head of a network takes."""

    points: Tensor
    """Vectors or space coordinates, ``[N, n]``."""
    manifold: Lorentz | None
    """The manifold of the points; None: they are vectors."""


def head_input(net: torch.nn.Module, inputs: Tensor) -> HeadInput:
    """Return the input of the head for a batch: the last linear layer, ``LorentzMLR`` or ``Prototypes`` that is called.

    Raises:
        ValueError: the network has no such head, or its head does not take one vector per item.

    Example:
        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        >>> head_input(net, torch.randn(5, 1, 2, 2)).points.shape
        torch.Size([5, 3])
    """
    if isinstance(net, Pretrained) and callable(embed := getattr(net, "embed", None)):
        euclidean = getattr(net, "euclidean", True)
        return HeadInput(embed(inputs), None if euclidean else net.manifold)  # type: ignore[arg-type]
    with _last_call(net) as last:
        net(inputs)
    if not last:
        raise ValueError(
            f"{type(net).__name__} has no head that is a linear layer, LorentzMLR or Prototypes, so the points before "
            "its head are unknown"
        )
    head, points = last[-1]
    if points.dim() != 2 or len(points) != len(inputs):
        raise ValueError(f"the head of {type(net).__name__} takes {list(points.shape)}, not one vector for each item")
    return HeadInput(points, head.manifold if isinstance(head, LorentzMLR | Prototypes) else None)


@contextmanager
def _last_call(net: torch.nn.Module) -> Iterator[list[tuple[torch.nn.Module, Tensor]]]:
    """Record the last call of a module that can be a head, with its input."""
    last = list[tuple[torch.nn.Module, Tensor]]()

    def record(module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        if arguments and isinstance(arguments[0], Tensor):
            last[:] = [(module, arguments[0].detach())]

    heads = [module for module in net.modules() if isinstance(module, torch.nn.Linear | LorentzMLR | Prototypes)]
    handles = [module.register_forward_pre_hook(record) for module in heads]
    try:
        yield last
    finally:
        for handle in handles:
            handle.remove()
