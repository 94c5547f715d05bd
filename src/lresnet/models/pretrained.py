"""Base class of the models, which can be written to a folder: ``config.json`` and ``model.safetensors``, no pickle."""

from __future__ import annotations

import difflib
import inspect
import json
import math
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch.nn.parameter import is_lazy

from lresnet._files import has_file, write_atomically
from lresnet._json import read_json
from lresnet._limits import LAYERS, LIST_ITEMS
from lresnet._options import AT_LEAST_1, POSITIVE
from lresnet.geometry.state import EXTRA_STATE
from lresnet.models import hub
from lresnet.models.weights import compare_checksums, weights_file

__all__ = [
    "DAMAGE",
    "Pretrained",
    "build",
    "load_tensors",
    "read",
    "require_plausible",
    "require_same_tensors",
    "tensor_shapes",
]


class Pretrained(torch.nn.Module):
    """A model that stores the arguments of its constructor and can be written to a folder.

    A subclass sets ``model_name``. Its constructor takes JSON values only.

    Example:
        >>> import lresnet, tempfile
        >>> model = lresnet.create_model("lorentz_mlp", in_features=4)
        >>> folder = model.save_pretrained(tempfile.mkdtemp())
        >>> lresnet.from_pretrained(folder).config == model.config
        True
    """

    model_name: ClassVar[str]
    config: dict[str, Any]
    """Name of the model and arguments of its constructor."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Pretrained:
        self = super().__new__(cls)
        # bind_partial, because copy and pickle call this without arguments and restore the config afterwards.
        bound = inspect.signature(cls.__init__).bind_partial(self, *args, **kwargs)
        bound.apply_defaults()
        given = {k: v for k, v in bound.arguments.items() if k != "self"}
        if (classes := given.get("num_classes")) is not None and classes not in AT_LEAST_1:
            raise ValueError(f"num_classes must be {AT_LEAST_1}, got {classes!r}")
        if (radius := given.get("max_radius")) is not None and radius not in POSITIVE:
            raise ValueError(f"max_radius must be {POSITIVE}, got {radius!r}")
        self.__dict__["config"] = {"model": cls.model_name, **given}
        return self

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write ``config.json`` and ``model.safetensors`` into ``folder``, which is created if missing.

        The metadata of ``model.safetensors`` hold a checksum of both, which :func:`lresnet.from_pretrained` compares.
        """
        folder, config = Path(folder), json.dumps(self.config, indent=2)  # can fail, so it comes before the files
        state = {name: tensor.detach().contiguous() for name, tensor in self.state_dict().items()}
        write_atomically(folder / "model.safetensors", weights_file(state, json.loads(config)))
        write_atomically(folder / "config.json", (config + "\n").encode())
        return folder

    def push_to_hub(
        self,
        repo: str,
        *,
        card: str | None = None,
        private: bool = True,
        commit_message: str | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
    ) -> str:
        """Upload the model to the Hugging Face hub and return the address of the commit.

        The repository gets ``config.json``, ``model.safetensors`` and, with a card, ``README.md``. Other files in it
        stay as they are. :meth:`lresnet.Run.push_to_hub` writes the card from a run.

        Args:
            repo: ``"owner/name"``; created if missing.
            card: text of ``README.md``; None: none is uploaded.
            private: whether a new repository is private. An existing one keeps its visibility.
            commit_message: message of the commit.
            revision: branch to commit to; it must exist. None: the default branch.
            token: access token with write access; None: that of ``hf auth login``.

        Raises:
            ImportError: ``huggingface_hub`` is missing.
            OSError: access is denied, or the hub cannot be reached.
            ValueError: ``repo`` is not a valid name.
        """
        return hub.upload(
            repo,
            self,
            card=card,
            private=private,
            commit_message=commit_message,
            revision=revision,
            token=token,
        )


def build(registry: Mapping[str, Callable[..., Pretrained]], name: str, /, **config: Any) -> Pretrained:
    """Return ``registry[name](**config)``. Errors name the nearest model or the accepted arguments."""
    if name not in registry:
        near = difflib.get_close_matches(str(name), registry, n=1, cutoff=0.0)
        raise ValueError(f"unknown model {name!r}; did you mean {near[0]!r}? Known: {', '.join(registry)}")
    accepted = [p for p in inspect.signature(registry[name]).parameters if p != "self"]
    unknown = sorted(set(config) - set(accepted))
    if unknown:
        raise TypeError(
            f"model {name!r} has no argument {', '.join(map(repr, unknown))}; it takes {', '.join(accepted)}"
        )
    return registry[name](**config)


def read(
    registry: Mapping[str, Callable[..., Pretrained]],
    folder: str | Path,
    device: torch.device | str = "cpu",
    *,
    place: str | None = None,
    num_classes: int | None = None,
) -> Pretrained:
    """Return the model that :meth:`Pretrained.save_pretrained` has written to ``folder``.

    The files may come from strangers. Only ``config.json`` and ``model.safetensors`` are read. The network is built
    only if its tensors are those of ``model.safetensors``, so no configuration can request more memory than those need.

    Args:
        place: what messages call the folder; None: its path.
        num_classes: number of classes of a new head, see :func:`lresnet.from_pretrained`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, or is not one of this library.
    """
    folder = Path(folder)
    place = str(folder) if place is None else place
    config, weights = folder / "config.json", folder / "model.safetensors"
    _require_file(config, place)
    try:
        name, arguments = _read_config(config)
        saved = {"model": name, **arguments}
        _require_file(weights, place)
        shapes = tensor_shapes(weights)
        require_plausible(arguments, shapes)
        with torch.device("meta"):  # takes no memory
            require_same_tensors(build(registry, name, **arguments), shapes, name)
        if num_classes is not None:
            if arguments.get("num_classes") is None:
                raise ValueError(f"num_classes needs a saved classifier, and this {name} was saved without classes")
            arguments["num_classes"] = num_classes
        model = build(registry, name, **arguments)
        load_tensors(model, weights, device, saved, place, new_head=num_classes is not None)
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        raise ValueError(f"{place} cannot be read as a model that save_pretrained has written: {reason}") from error
    return model


def load_tensors(
    model: torch.nn.Module,
    weights: Path,
    device: torch.device | str,
    config: Mapping[str, Any],
    place: str,
    *,
    shared: Mapping[str, str] | None = None,
    new_head: bool = False,
) -> None:
    """Move a model to a device and load the tensors of a safetensors file into it, in the saved precision.

    Args:
        config: the content of ``config.json``, compared with its checksum in the file.
        place: what a warning about the configuration calls the folder.
        shared: names of tensors that are another one of the file, by name.
        new_head: leave tensors as they are that have another number of rows in the file.

    Raises:
        ValueError: the tensors do not match their checksum.
    """
    state = load_file(weights, device=str(device))
    edited = compare_checksums(weights, state, config)
    for name, kept in (shared or {}).items():
        state[name] = state[kept]
    model.to(device)
    for name, own in _tensors(model).items():
        if new_head and not is_lazy(own) and own.shape[1:] == state[name].shape[1:] and own.shape != state[name].shape:
            state[name] = own.detach().clone()
        else:
            own.data = own.data.to(state[name].dtype)  # as saved: norms may be wider than the rest
    model.load_state_dict(state)
    if edited is not None:
        warnings.warn(f"{place}: {edited}", stacklevel=3)


DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
)
"""Errors that a damaged model folder may raise."""
_LONGEST_REASON = 400  # characters of an error message
_LAYER_COUNT = re.compile("(layers?|depths?|blocks|experts)$")  # each of them has one tensor at least
_SMALL = 1000  # up to this size the comparison of the tensors has the better message


def _require_file(path: Path, place: str) -> None:
    if not has_file(path):
        raise FileNotFoundError(
            f"{place} is not a saved model: {path.name} is missing; give a folder that save_pretrained has written, or "
            "the name 'owner/name' of such a model on the Hugging Face hub"
        )


def _read_config(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of the model and the arguments of its constructor."""
    try:
        config = read_json(path)
    except ValueError as error:
        raise ValueError(f"config.json: {error}") from error
    if not isinstance(config, dict) or "model" not in config:
        other = config.get("model_type", config.get("architecture")) if isinstance(config, dict) else None
        hint = f"; it describes a model of another library, {str(other)[:40]!r}" if other is not None else ""
        raise ValueError(f'config.json has no entry "model", as lresnet writes it{hint}')
    name = config.pop("model")
    if not isinstance(name, str):
        raise ValueError(f'the entry "model" of config.json is {name!r}, not the name of a model')
    return name, config


def tensor_shapes(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and type of every tensor of a file; the tensors are not read."""
    with safe_open(path, framework="pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        return {name: (tuple(one.get_shape()), str(one.get_dtype())) for name, one in slices.items()}


def require_plausible(
    arguments: Mapping[str, Any], shapes: Mapping[str, tuple[tuple[int, ...], str]], small: int = _SMALL
) -> None:
    """Raise an error for sizes that the tensors of the file exclude: building such a network would take for ever.

    Args:
        arguments: The content of ``config.json``.
        shapes: Shape and type of every tensor of the file.
        small: A number that is allowed in any case.
    """
    elements = sum(math.prod(shape) for shape, _ in shapes.values())
    for name, value in arguments.items():
        if isinstance(value, dict):
            require_plausible(value, shapes, small)
            continue
        items = value if isinstance(value, list) else [value]
        if len(items) > max(LIST_ITEMS, len(shapes)):
            raise ValueError(f"config.json has a list {name} of {len(items):,} items; the limit is {LIST_ITEMS:,}")
        is_count = _LAYER_COUNT.search(name) is not None
        limit, unit, least = (len(shapes), "tensors", LAYERS) if is_count else (elements, "numbers", small)
        for item in items:
            if isinstance(item, list | dict):
                require_plausible({name: item} if isinstance(item, list) else item, shapes, small)
            elif isinstance(item, int) and item > max(limit, least):
                raise ValueError(f"config.json has {name}={item}, but model.safetensors has only {limit} {unit}")


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name, without extra state, which files of lresnet 0.2 do not have."""
    state = model.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in state.items() if not name.endswith(EXTRA_STATE)}


def require_same_tensors(
    model: torch.nn.Module, shapes: Mapping[str, tuple[tuple[int, ...], str]], title: str, new_head: bool = False
) -> None:
    """Raise an error if the tensors of a file are not those of the network."""
    own = _tensors(model)
    for name, tensor in own.items():
        if name not in shapes:
            raise ValueError(f"model.safetensors has no tensor {name}, which {title} needs")
        if is_lazy(tensor):  # takes its shape from the file
            continue
        shape, dtype = shapes[name]
        if new_head and shape[1:] == tuple(tensor.shape)[1:]:
            continue
        if shape != tuple(tensor.shape) and {shape, tuple(tensor.shape)} != {(), (1,)}:
            raise ValueError(
                f"size mismatch for {name}: it is {list(shape)} in model.safetensors and {list(tensor.shape)} in "
                f"{title} as config.json describes it"
            )
        if dtype.startswith(("F", "BF")) != tensor.is_floating_point():
            raise ValueError(f"{name} has the type {dtype} in model.safetensors, but {tensor.dtype} is needed")
    unknown = [name for name in shapes if name not in own and not name.endswith(EXTRA_STATE)]
    if unknown:
        raise ValueError(f"model.safetensors has a tensor {unknown[0]!r}, which {title} does not have")
