"""The table of models by name, and models built from a name or read from a folder.

It loads without torch; classes are named as ``"module:name"`` and imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from lresnet.models.pretrained import Pretrained

__all__ = ["MODELS", "create_model", "from_pretrained"]

_RESNET = "lresnet.models.resnet:LorentzResNet"
_VIT = "lresnet.models.vit:LorentzViT"
# The class of every model and its leading arguments.
_TABLE: dict[str, tuple[Any, ...]] = {
    "lorentz_gcn": ("lresnet.models.gcn:LorentzGCN",),
    "lorentz_embedding": ("lresnet.models.embedding:LorentzNodeEmbedding",),
    "lorentz_gcnii": ("lresnet.models.gcnii:LorentzGCNII",),
    "lorentz_gpt": ("lresnet.models.gpt:LorentzGPT",),
    "lorentz_mlp": ("lresnet.models.mlp:LorentzMLP",),
    "lorentz_resnet": (_RESNET,),
    "lorentz_sage": ("lresnet.models.sage:LorentzSAGE",),
    "lorentz_sgformer": ("lresnet.models.sgformer:LorentzSGFormer",),
    "lorentz_vit": (_VIT,),
    "lorentz_resnet18": (_RESNET, 18),
    "lorentz_resnet20": (_RESNET, 20),
    "lorentz_resnet32": (_RESNET, 32),
    "lorentz_resnet34": (_RESNET, 34),
    "lorentz_resnet50": (_RESNET, 50),
    "lorentz_vit_tiny": (_VIT, 12, 192, 3),
    "lorentz_vit_small": (_VIT, 12, 384, 6),
}
# Other arguments that a name sets; the caller may replace them.
_KEYWORDS: dict[str, dict[str, Any]] = {"lorentz_resnet50": {"block": "bottleneck"}}


class _Models(Mapping[str, "Callable[..., Pretrained]"]):
    """The constructors of ``_TABLE``, imported on first use."""

    def __getitem__(self, name: str) -> Callable[..., Pretrained]:
        return _constructor(name)

    def __contains__(self, name: object) -> bool:
        return name in _TABLE

    def __iter__(self) -> Iterator[str]:
        return iter(_TABLE)

    def __len__(self) -> int:
        return len(_TABLE)


@cache
def _constructor(name: str) -> Callable[..., Pretrained]:
    model, *arguments = _TABLE[name]
    found: type[Pretrained] = resolve_name(model)
    return partial(found, *arguments, **_KEYWORDS.get(name, {})) if arguments else found


MODELS: Mapping[str, Callable[..., Pretrained]] = _Models()
"""The constructor of every model by name; iterating over the names does not import torch."""


def create_model(name: str, residual: str = "lorentz", curvature: float | None = None, **config: Any) -> Pretrained:
    """Return a new model.

    Args:
        name: A name of :data:`MODELS`.
        residual: A name of :data:`lresnet.residual.METHODS`.
        curvature: K < 0. Default: that of the model, -1 for graphs and vectors, -0.02 for most ResNets, -0.1/width for
            transformers.
        config: Other arguments of the model's class.

    Example:
        >>> model = create_model("lorentz_gcn", residual="space", in_features=8, num_classes=3)
    """
    from lresnet.models.pretrained import build

    if curvature is not None:
        config["curvature"] = curvature
    return build(MODELS, name, residual=residual, **config)


def from_pretrained(
    folder: str | Path,
    device: torch.device | str = "cpu",
    *,
    num_classes: int | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> Pretrained:
    """Return the model that ``save_pretrained`` has written to a folder, or ``push_to_hub`` to the Hugging Face hub.

    Only ``config.json`` and ``model.safetensors`` are read, never a pickle, and no code is downloaded.

    Args:
        folder: A local folder, or a string ``"owner/name"``, the name of a repository on the hub. A local folder takes
            precedence. The hub needs the package ``huggingface_hub``.
        device: Device of the model.
        num_classes: Number of classes of a new head, for fine-tuning. Its tensors keep their random initial values, all
            others are loaded. None, or the saved number: the saved head.
        revision: Branch, tag or commit of the repository. Give a commit to get the same weights always.
        token: Access token for a private or gated repository; None: that of ``hf auth login``; False: none.
        cache_dir: Folder of the downloads; None: the cache of ``huggingface_hub``.
        local_files_only: Use the cache only, as ``HF_HUB_OFFLINE=1`` does for all programs.

    Raises:
        FileNotFoundError: There is neither a saved model nor a repository of that name, or it has no such revision.
        ImportError: The hub is needed, but ``huggingface_hub`` is missing.
        OSError: Access to the repository is denied, or the hub cannot be reached.
        ValueError: The files are damaged or not those of a model of this library.

    Example:
        >>> import tempfile
        >>> folder = create_model("lorentz_mlp", in_features=4).save_pretrained(tempfile.mkdtemp())
        >>> from_pretrained(folder).config["model"]
        'lorentz_mlp'
    """
    from lresnet.models import hub
    from lresnet.models.pretrained import read

    options = {"token": token, "cache_dir": cache_dir, "local_files_only": local_files_only}
    found, place = hub.locate(folder, revision=revision, **options)
    return read(MODELS, found, device, place=place, num_classes=num_classes)
