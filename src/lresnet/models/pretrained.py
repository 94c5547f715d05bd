"""Base class of the models, which can be written to a folder: ``config.json`` and ``model.safetensors``, no pickle."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

__all__ = ["Pretrained", "build", "read"]


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
        self.__dict__["config"] = {"model": cls.model_name, **given}
        return self

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write ``config.json`` and ``model.safetensors`` into ``folder``, which is created if missing."""
        folder, config = Path(folder), json.dumps(self.config, indent=2)  # can fail, so it comes before the files
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: tensor.detach().contiguous() for name, tensor in self.state_dict().items()}
        save_file(state, folder / "model.safetensors")
        (folder / "config.json").write_text(config + "\n")
        return folder


def build(registry: Mapping[str, Callable[..., Pretrained]], name: str, **config: Any) -> Pretrained:
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
    registry: Mapping[str, Callable[..., Pretrained]], folder: str | Path, device: torch.device | str = "cpu"
) -> Pretrained:
    """Return the model that :meth:`Pretrained.save_pretrained` has written to ``folder``."""
    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{folder} is not a saved model: {name} is missing; give a folder that save_pretrained has written"
            )
    try:
        config = json.loads((folder / "config.json").read_text())
        if not isinstance(config, dict) or "model" not in config:
            raise ValueError('config.json has no entry "model"')
        model = build(registry, config.pop("model"), **config)
        state = load_file(folder / "model.safetensors", device=str(device))
        model.to(device)
        for name, own in model.state_dict(keep_vars=True).items():
            if name in state:
                own.data = own.data.to(state[name].dtype)  # as saved: norms may be wider than the rest
        model.load_state_dict(state)
    except (RuntimeError, SafetensorError, TypeError, ValueError) as error:
        raise ValueError(f"{folder} cannot be read as a model that save_pretrained has written: {error}") from error
    return model
