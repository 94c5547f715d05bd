"""Options of ``lresnet train``, made from the configuration's dataclasses: names, types, help texts and ranges.

An option that is not given is None, and the preset decides. A boolean setting is therefore two flags, ``--flip`` and
``--no-flip``.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, get_type_hints

from tyro.conf import FlagCreatePairsOff, arg

from lresnet._options import InvalidSetting, option_name, placeholder
from lresnet.runs.config import DATA_KINDS
from lresnet.runs.model_config import (
    MODEL_CONFIGS,
    GCNIIConfig,
    ModelConfig,
    ResNetConfig,
    SAGEConfig,
    SGFormerConfig,
    ViTConfig,
)
from lresnet.runs.task_config import GraphTaskConfig, ImageTaskConfig, TextTaskConfig
from lresnet.train.config import Augment, TrainConfig

__all__ = [
    "GCNIIOptions",
    "GraphOptions",
    "ImageOptions",
    "RunOptions",
    "SGFormerOptions",
    "TextOptions",
    "TransformerOptions",
    "given_settings",
    "options_named_as_typed",
    "require_seeds",
]

_option = functools.partial(arg, help_behavior_hint="")  # without "(default: None)": the preset decides
_OF_GRAPHS = DATA_KINDS["graphs"].training
_NOT_OPTIONS = {"name", "residual", "seed", "augment", "split", "split_index", "task"}


def _fields(owner: type, names: Iterable[str] | None = None, without: Iterable[str] = ()) -> dict[str, tuple[Any, str]]:
    """Return type and help text of a dataclass's settings by name."""
    hints = get_type_hints(owner)
    found = {}
    for field in dataclasses.fields(owner):
        if field.name in _NOT_OPTIONS or field.name in without or (names is not None and field.name not in names):
            continue
        metadata = {"name": option_name(field.name), "metavar": placeholder(field, hints[field.name])}
        found[field.name] = (hints[field.name], field.metadata["help"], metadata)
    return found  # type: ignore[return-value]


def _group(name: str, title: str, settings: dict[str, Any]) -> Any:
    """Return a dataclass in which every setting is an option that may be omitted."""
    options: list[tuple[str, Any, Any]] = []
    for setting, (hint, help_text, metadata) in settings.items():
        typed = metadata["name"]
        if hint in (bool, bool | None):
            flag, off = FlagCreatePairsOff[bool], f"Turn off --{typed}."
            options.append((setting, Annotated[flag, _option(help=help_text)], False))
            options.append((f"no_{setting}", Annotated[flag, _option(help=off)], False))
        else:
            options.append((setting, Annotated[hint | None, _option(help=help_text, **metadata)], None))
    made = dataclasses.make_dataclass(name, options, frozen=True)
    made.__doc__ = title
    return made


_MODEL = {
    "model": (
        Literal[tuple(MODEL_CONFIGS)],
        "Network: lorentz_gcn, lorentz_gcnii, lorentz_sage, lorentz_sgformer or lorentz_embedding for graphs; "
        "lorentz_resnet18, 20, 32, 34 or 50, lorentz_vit, lorentz_vit_tiny or lorentz_vit_small for images; "
        "lorentz_gpt for texts.",
        {"name": "model", "metavar": "NAME"},
    )
}
# The settings of lorentz_sage include those of lorentz_gcn, with the same choices or more.
_OF_GRAPH_MODELS = {field.name for field in dataclasses.fields(SAGEConfig)}
_OF_OTHER_TRANSFORMERS = {"num_layers", "heads", "dropout", "activation_checkpointing", "pooling", "head"}
_BASE = {field.name for field in dataclasses.fields(ModelConfig)}

RunOptions = _group(
    "RunOptions",
    "Settings of every task.",
    _MODEL | _fields(ModelConfig) | _fields(TrainConfig, without=_OF_GRAPHS),
)
GraphOptions = _group(
    "GraphOptions",
    "Settings for graphs.",
    _fields(SAGEConfig, without=_BASE) | _fields(GraphTaskConfig) | _fields(TrainConfig, _OF_GRAPHS),
)
GCNIIOptions = _group(
    "GCNIIOptions",
    "Settings of lorentz_gcnii.",
    # --head is among the settings for images, with the same choices.
    _fields(GCNIIConfig, without=_BASE | _OF_GRAPH_MODELS | {"head"}),
)
SGFormerOptions = _group(
    "SGFormerOptions",
    "Settings of lorentz_sgformer.",
    _fields(SGFormerConfig, without=_BASE | _OF_GRAPH_MODELS),
)
TransformerOptions = _group(
    "TransformerOptions",
    "Settings of lorentz_gpt and lorentz_vit.",
    _fields(ViTConfig, without=_BASE | _OF_OTHER_TRANSFORMERS),
)
TextOptions = _group("TextOptions", "Settings for texts.", _fields(TextTaskConfig))
ImageOptions = _group(
    "ImageOptions",
    "Settings for images.",
    _fields(ResNetConfig, without=_BASE) | _fields(ImageTaskConfig) | _fields(Augment),
)


def given_settings(*groups: Any) -> dict[str, Any]:
    """Return the settings that the command line gave, by name.

    Raises:
        ValueError: both flags of a boolean setting were given.
    """
    given = {field.name: getattr(group, field.name) for group in groups for field in dataclasses.fields(group)}
    given = {name: value for name, value in given.items() if value is not None and value is not False}  # 0 is given
    for name in [name for name in given if name.startswith("no_")]:
        setting = name.removeprefix("no_")
        if setting in given:
            typed = option_name(setting)
            raise ValueError(f"--{typed} and --no-{typed} contradict each other; leave one out")
        del given[name]
        given[setting] = False
    return given


@contextlib.contextmanager
def options_named_as_typed(given: Mapping[str, Any]) -> Iterator[None]:
    """Let an error about a setting of ``given`` name its option, ``--layers``, and not the setting, ``num_layers``."""
    try:
        yield
    except InvalidSetting as error:
        if error.setting not in given:
            raise
        raise ValueError(f"--{option_name(error.setting)} {error.problem}") from error


def require_seeds(option: str, *seeds: int) -> None:
    """Raise an error for a seed out of range, and name the option that gave it."""
    for seed in seeds:
        if not 0 <= seed < 2**32:  # NumPy's limit; torch's is higher
            raise ValueError(f"{option} must be 0 or more and below 2^32, got {seed}")
