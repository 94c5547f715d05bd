"""Runs: one folder each to train, evaluate, predict and embed; presets, search, statistics, report."""

from typing import TYPE_CHECKING

from lresnet._lazy import lazy_names

if TYPE_CHECKING:
    from lresnet.runs.config import RunConfig
    from lresnet.runs.model_config import (
        EmbeddingConfig,
        GCNConfig,
        GCNIIConfig,
        GPTConfig,
        ModelConfig,
        ResNetConfig,
        SAGEConfig,
        SGFormerConfig,
        ViTConfig,
    )
    from lresnet.runs.presets import run_config
    from lresnet.runs.run import Run
    from lresnet.runs.task_config import GraphTaskConfig, ImageTaskConfig, TextTaskConfig
    from lresnet.runs.training import fit

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
            "EmbeddingConfig": "model_config",
            "GCNConfig": "model_config",
            "GCNIIConfig": "model_config",
            "GPTConfig": "model_config",
            "GraphTaskConfig": "task_config",
            "ImageTaskConfig": "task_config",
            "ModelConfig": "model_config",
            "ResNetConfig": "model_config",
            "Run": "run",
            "RunConfig": "config",
            "SAGEConfig": "model_config",
            "SGFormerConfig": "model_config",
            "TextTaskConfig": "task_config",
            "ViTConfig": "model_config",
            "fit": "training",
            "run_config": "presets",
        },
    )
