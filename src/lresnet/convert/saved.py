"""Converted networks in a folder: ``config.json`` describes the conversion, ``model.safetensors`` holds the weights."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from lresnet._files import has_file, write_atomically
from lresnet._json import read_json
from lresnet._limits import LIST_ITEMS, SIZE
from lresnet._version import __version__
from lresnet.convert.attention import AttentionPlace
from lresnet.convert.lorentzify import CONVERSION, lorentzify
from lresnet.convert.places import Place
from lresnet.convert.plan import Plan, Sum
from lresnet.geometry import Lorentz
from lresnet.models import hub
from lresnet.models.pretrained import DAMAGE, load_tensors, require_plausible, require_same_tensors, tensor_shapes
from lresnet.models.registry import from_pretrained as _own_from_pretrained
from lresnet.models.weights import weights_file

__all__ = ["from_pretrained", "save_converted"]

_KEY = "lresnet"  # of config.json
_FORMAT = 1
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]*", re.ASCII)
# Settings of transformers that download code, or change how weights are stored.
_VARYING = ("training", "grad_checkpointing", "activation_relu_or_gelu")  # settings that do not belong to the network
_UNSAFE = ("auto_map", "quantization_config", "_attn_implementation", "attn_implementation", "_experts_implementation")


def save_converted(
    net: torch.nn.Module, folder: str | Path, *, state_dict: Mapping[str, Any] | None = None, **_: Any
) -> Path:
    """Write a converted network into ``folder``, which is created if missing, and return the folder.

    ``config.json`` holds the conversion and, for networks of timm and transformers, their names. For a network of
    transformers it is also its own ``config.json``, so ``AutoModel.from_pretrained`` reads the folder; it returns the
    flat network, without the residuals.

    Args:
        net: a network that :func:`lresnet.lorentzify` has returned.
        folder: the folder.
        state_dict: what to save; None: the state of ``net``.

    Raises:
        ValueError: ``net`` is only a part of a converted network, or has a state that is not a tensor.
    """
    conversion = net.__dict__.get(CONVERSION)
    if conversion is None:
        raise ValueError(f"this {type(net).__name__} is a part of a converted network; save the whole network")
    manifold = next(module for module in net.modules() if isinstance(module, Lorentz))
    state, shared = _tensors(net.state_dict() if state_dict is None else state_dict)
    config, origin = _origin(net)
    record = {
        "format": _FORMAT,
        "version": __version__,
        "network": origin,
        "curvature": float(manifold.K.detach()) if conversion["learned_curvature"] else manifold.fixed_curvature,
        **conversion,
        "shared": shared,
    }
    try:
        text = json.dumps({**config, _KEY: record}, indent=2)
    except TypeError as error:
        raise ValueError(f"the options of the residual cannot be saved as JSON: {error}") from error
    folder = Path(folder)
    write_atomically(folder / "model.safetensors", weights_file(state, json.loads(text), {"format": "pt"}))
    write_atomically(folder / "config.json", (text + "\n").encode())
    return folder


def _tensors(state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the tensors to save, each once, and for the names of shared tensors the name that is saved."""
    saved: dict[str, torch.Tensor] = {}
    shared: dict[str, str] = {}
    places: dict[tuple[Any, ...], str] = {}
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"the state {name!r} is a {type(tensor).__name__}; only tensors can be saved")
        place = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and place in places:
            shared[name] = places[place]
            continue
        places[place] = name
        saved[name] = tensor.detach().clone(memory_format=torch.contiguous_format)
    return saved, shared


def _origin(net: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the library's own entries of ``config.json``, and how to build the network."""
    transformers = sys.modules.get("transformers")
    if transformers is not None and isinstance(net, getattr(transformers, "PreTrainedModel", ())):
        config = {**net.config.to_dict(), "architectures": [type(net).__name__]}  # type: ignore[union-attr, operator]
        return json.loads(json.dumps(config, default=str)), {"library": "transformers", "name": type(net).__name__}
    known = getattr(net, "pretrained_cfg", None)
    name = known.get("architecture") if isinstance(known, dict) else getattr(known, "architecture", None)
    if isinstance(name, str) and type(net).__module__.startswith("timm."):
        classes = getattr(net, "num_classes", None)
        arguments = {"num_classes": classes} if isinstance(classes, int) else {}
        if _is_built_by(net, name, arguments):
            return {}, {"library": "timm", "name": name, "arguments": arguments}
    return {}, {"library": None, "name": type(net).__name__}


def _is_built_by(net: torch.nn.Module, name: str, arguments: dict[str, Any]) -> bool:
    """Whether timm builds the network from its name and number of classes alone: all settings of all parts agree."""
    try:
        with torch.device("meta"):
            built = import_module("timm").create_model(name, pretrained=False, **arguments)
    except Exception:
        return False
    own = dict(net.named_modules())
    return all(
        path in own and type(own[path]).__name__ == type(part).__name__ and _settings(own[path]) == _settings(part)
        for path, part in built.named_modules()
    )


def _settings(module: torch.nn.Module) -> dict[str, str]:
    """Return the attributes of a module that are numbers, strings or tuples of them."""
    plain = (bool, int, float, str, type(None))
    found = {}
    for name, value in vars(module).items():
        parts = value if isinstance(value, tuple) else (value,)
        if not name.startswith("_") and name not in _VARYING and all(isinstance(part, plain) for part in parts):
            found[name] = repr(value)
    return found


def from_pretrained(
    folder: str | Path,
    device: torch.device | str = "cpu",
    *,
    net: torch.nn.Module | None = None,
    num_classes: int | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> Any:
    """Return the model that ``save_pretrained`` has written to a folder, or ``push_to_hub`` to the Hugging Face hub.

    Only ``config.json`` and ``model.safetensors`` are read, never a pickle, and no code is downloaded. A converted
    network (:func:`lresnet.lorentzify`) is built from ``net``, or by its name if it is a network of timm or
    transformers; nothing else that a file names is imported.

    Args:
        folder: A local folder, or a string ``"owner/name"``, the name of a repository on the hub. A local folder takes
            precedence. The hub needs the package ``huggingface_hub``.
        device: Device of the model.
        net: For a converted network, the flat network, built by the caller. It is converted as saved, and its weights
            are replaced by the saved ones in a copy.
        num_classes: Number of classes of a new head, for fine-tuning. Its tensors keep their random initial values, all
            others are loaded. With ``net``, its head must have that number. None, or the saved number: the saved head.
        revision: Branch, tag or commit of the repository. Give a commit to get the same weights always.
        token: Access token for a private or gated repository; None: that of ``hf auth login``; False: none.
        cache_dir: Folder of the downloads; None: the cache of ``huggingface_hub``.
        local_files_only: Use the cache only, as ``HF_HUB_OFFLINE=1`` does for all programs.

    Raises:
        FileNotFoundError: There is neither a saved model nor a repository of that name, or it has no such revision.
        ImportError: The hub, timm or transformers is needed, but the package is missing.
        OSError: Access to the repository is denied, or the hub cannot be reached.
        ValueError: The files are damaged, or not those of a model of this library, or ``net`` is another network.

    Example:
        >>> import lresnet, tempfile
        >>> flat = torch.nn.Sequential(torch.nn.TransformerEncoderLayer(8, 2, norm_first=True))
        >>> folder = lresnet.lorentzify(flat, curvature=-0.1).save_pretrained(tempfile.mkdtemp())
        >>> from_pretrained(folder, net=flat)[0].residual
        LorentzResidual(curvature=-0.1, dim=-1, weight=learned, scale=learned)
    """
    if num_classes is not None and (type(num_classes) is not int or num_classes < 1):
        raise ValueError(f"num_classes must be a whole number from 1, got {num_classes!r}")
    options = {"token": token, "cache_dir": cache_dir, "local_files_only": local_files_only}
    found, place = hub.locate(folder, revision=revision, **options)
    config = _read_config(found / "config.json")
    record = config.pop(_KEY, None)
    if record is None:
        if net is not None:
            raise ValueError(f"{place} does not hold a converted network; leave net out")
        return _own_from_pretrained(
            folder, device, num_classes=num_classes, revision=revision, token=token, cache_dir=cache_dir,
            local_files_only=local_files_only,
        )  # fmt: skip
    weights = found / "model.safetensors"
    if not has_file(weights):
        raise FileNotFoundError(f"{place} is not a saved model: model.safetensors is missing")
    try:
        if not isinstance(record, dict) or record.get("format") != _FORMAT:
            raise ValueError(f"config.json has another format than {_FORMAT}; use the version of lresnet that wrote it")
        shared = {str(name): str(kept) for name, kept in dict(record["shared"]).items()}
        new_head, shapes = num_classes is not None, tensor_shapes(weights)
        shapes |= {name: shapes[kept] for name, kept in shared.items()}
        require_plausible(config, shapes, SIZE)
        if net is None:
            with torch.device("meta"):  # takes no memory, whatever the file requests
                require_same_tensors(_convert(_build(record, config, num_classes), record), shapes, place, new_head)
            net = _build(record, config, num_classes)
        network = _convert(net, record)
        require_same_tensors(network, shapes, type(network).__name__, new_head)
        if num_classes is not None and not any(len(one) == num_classes for one in network.parameters() if one.dim()):
            raise ValueError(
                f"the network has no head of {num_classes} classes; build net with num_classes={num_classes}"
            )
        saved = {**config, _KEY: record}
        load_tensors(network, weights, device, saved, place, shared=shared, new_head=new_head)
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:400]
        raise ValueError(f"{place} cannot be read as a converted network: {reason}") from error
    return network


def _read_config(path: Path) -> dict[str, Any]:
    """Return ``config.json``; an empty dict if it is missing or damaged, which the reader of our own models reports."""
    if not has_file(path):
        return {}
    try:
        config = read_json(path)
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def _build(record: Mapping[str, Any], config: Mapping[str, Any], num_classes: int | None) -> torch.nn.Module:
    """Return the flat network by its name, if it is one of timm or transformers."""
    origin = record["network"]
    library, name = origin["library"], origin["name"]
    if library not in ("timm", "transformers"):
        raise ValueError(
            f"the network {str(name)[:60]!r} cannot be built by its name: it is not of timm or transformers, or it was "
            "built with other arguments; build it and pass net="
        )
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{str(name)[:60]!r} is not the name of a network of {library}")
    try:
        package = import_module(library)
    except ImportError as error:
        raise ImportError(f"the network {name} needs the package {library}; install it, or pass net=") from error
    if library == "timm":
        if not package.is_model(name):
            raise ValueError(f"timm {package.__version__} has no model {name!r}")
        saved = {key: value for key, value in origin.get("arguments", {}).items() if key == "num_classes"}
        arguments = saved if num_classes is None else {"num_classes": num_classes}
        built: torch.nn.Module = package.create_model(name, pretrained=False, **arguments)
        return built
    cls = getattr(package, name, None)
    if not (isinstance(cls, type) and issubclass(cls, package.PreTrainedModel)):
        raise ValueError(f"transformers {package.__version__} has no model {name!r}")
    settings = {key: value for key, value in config.items() if key not in _UNSAFE}
    kind = settings.pop("model_type", None)
    settings.pop("architectures", None)
    if num_classes is not None:
        settings = {key: value for key, value in settings.items() if key not in ("id2label", "label2id")}
        settings["num_labels"] = num_classes
    flat: torch.nn.Module = cls(package.AutoConfig.for_model(kind, **settings))
    return flat


def _attention_place(path: object, heads: object, width: object, temperature: object) -> AttentionPlace:
    """Return the attention that a file records for one module, checked: a large number of heads would take memory."""
    if type(heads) is not int or type(width) is not int or not 0 < heads <= LIST_ITEMS:
        raise ValueError(
            f"config.json: attention has {str(heads)[:20]} heads of width {str(width)[:20]}; both must be whole "
            f"numbers, with 1 to {LIST_ITEMS:,} heads; restore the file"
        )
    if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        raise ValueError(
            f"config.json: attention has the temperature {str(temperature)[:20]}; it must be positive and finite; "
            "restore the file"
        )
    return AttentionPlace(str(path), heads, width, float(temperature))


def _convert(net: torch.nn.Module, record: Mapping[str, Any]) -> torch.nn.Module:
    """Convert a network as the record of a saved one says."""
    sums = []
    for line, entry in enumerate(record["sums"]):  # the order gives the residuals their names
        calls = tuple((int(number), str(text)) for number, text in entry["calls"])
        loop = entry["loop"] if isinstance(entry["loop"], str) else None
        place = Place(
            None, str(entry["method"]), calls, int(entry["ordinal"]), str(entry["text"]), "", line, 0,
            (0, 0), str(entry["method"]), loop, False, False, "",
        )  # fmt: skip
        one = Sum(str(entry["module"]), str(entry["class"]), place)
        one.axis, one.skip_first, one.converted = int(entry["axis"]), bool(entry["skip_first"]), True
        sums.append(one)
    manifold = Lorentz(record["curvature"], learnable=bool(record["learned_curvature"]))
    plan = Plan(type(net).__name__, sums)
    places = [_attention_place(*entry) for entry in record.get("attention", ())]
    options = dict(record["options"])
    return lorentzify(net, manifold, str(record["residual"]), plan=plan, attention=places, **options)
