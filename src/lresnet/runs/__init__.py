"""Runs: one folder each to train, evaluate, predict and embed; presets, search, statistics, report."""

from typing import TYPE_CHECKING

from lresnet._lazy import lazy_names

if TYPE_CHECKING:
    from lresnet.runs.config import (
        EmbeddingConfig,
        GCNConfig,
        GCNIIConfig,
        GPTConfig,
        GraphTaskConfig,
        ImageTaskConfig,
        ModelConfig,
        ResNetConfig,
        RunConfig,
        SAGEConfig,
        SGFormerConfig,
        TextTaskConfig,
        ViTConfig,
    )
    from lresnet.runs.presets import run_config
    from lresnet.runs.run import Run, fit

__all__ = [
    "EmbeddingConfig",
    "GCNConfig",
    "GCNIIConfig",
    "GPTConfig",
    "GraphTaskConfig",
    "ImageTaskConfig",
    "ModelConfig",
    "ResNetConfig",
    "Run",
    "RunConfig",
    "SAGEConfig",
    "SGFormerConfig",
    "TextTaskConfig",
    "ViTConfig",
    "fit",
    "run_config",
]

if not TYPE_CHECKING:  # a type checker reads the imports above, so it still reports a misspelt name
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "EmbeddingConfig": "config",
            "GCNConfig": "config",
            "GCNIIConfig": "config",
            "GPTConfig": "config",
            "GraphTaskConfig": "config",
            "ImageTaskConfig": "config",
            "ModelConfig": "config",
            "ResNetConfig": "config",
            "Run": "run",
            "RunConfig": "config",
            "SAGEConfig": "config",
            "SGFormerConfig": "config",
            "TextTaskConfig": "config",
            "ViTConfig": "config",
            "fit": "run",
            "run_config": "presets",
        },
    )
