"""Recipes: what each published number needs, as TOML; and what the paper and its released code have."""

import functools
import tomllib
from importlib import resources
from typing import Any

__all__ = ["paper", "released"]


@functools.cache
def paper() -> dict[str, Any]:
    """``paper.toml``: the paper's tables by name, its sentences under ``claims``, later figures under ``later_work``.

    Example:
        >>> paper()["curvature"]["columns"][0]
        'disease/lp'
    """
    return _read("paper.toml")


@functools.cache
def released() -> dict[str, Any]:
    """``released.toml``: our runs of the released code, by table and cell."""
    return _read("released.toml")


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("lresnet_paper.recipes").joinpath(name).read_text(encoding="utf-8"))
