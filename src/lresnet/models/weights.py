"""``model.safetensors`` with a checksum of its tensors and of the configuration beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save

from lresnet._files import checksum
from lresnet._json import parse_json

__all__ = ["compare_checksums", "weights_file"]

_ENTRY = "lresnet"  # of the metadata of the file; other programs ignore it
_TENSORS, _CONFIG = "tensors_sha256", "config_sha256"
_LENGTH = 8  # bytes before the header, and what its length is a multiple of


def weights_file(
    state: Mapping[str, torch.Tensor], config: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> Iterable[bytes | memoryview]:
    """Return the content of ``model.safetensors`` in pieces: the same bytes for the same tensors.

    Args:
        state: The tensors, contiguous.
        config: The content of ``config.json``.
        metadata: Further metadata of the file.
    """
    sums = {_TENSORS: _digest(state), _CONFIG: checksum(config)}
    content = memoryview(save(dict(state), metadata={**(metadata or {}), _ENTRY: json.dumps(sums)}))
    end = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    header = json.loads(bytes(content[_LENGTH:end]))
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))  # safetensors has them in a random order
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH)
    return [len(text).to_bytes(_LENGTH, "little"), text, content[end:]]


def compare_checksums(path: Path, state: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> str | None:
    """Compare tensors that were read from ``path``, and their configuration, with the checksums in the file.

    A file without checksums is accepted: of an older version, or of another program that has replaced the weights. A
    configuration that is not the saved one is no error, because people edit it.

    Args:
        path: The file.
        state: All its tensors.
        config: The content of ``config.json``.

    Returns:
        What to warn of; None: nothing.

    Raises:
        ValueError: The tensors are not those that were saved.
    """
    with safe_open(path, framework="pt") as file:
        entry = (file.metadata() or {}).get(_ENTRY)
    sums = None if entry is None else parse_json(entry)
    if not isinstance(sums, dict):
        return None
    if sums.get(_TENSORS, "") != _digest(state):
        raise ValueError(
            f"model.safetensors does not match its checksum, so it is damaged; if you have changed its tensors, remove "
            f'"{_ENTRY}" from the metadata of the file'
        )
    if sums.get(_CONFIG, "") == checksum(config):
        return None
    return (
        "config.json is not the one that was saved with model.safetensors: it was edited, is damaged or belongs to "
        "other weights; save_pretrained of the loaded model writes both anew"
    )


def _digest(state: Mapping[str, torch.Tensor]) -> str:
    """Return the sha256 of names, types, shapes and bytes of tensors, whatever their order."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
