"""Training: the configuration, one engine, one objective per task, and stacks of many seeds."""

from typing import TYPE_CHECKING

from lresnet._lazy import lazy_names

if TYPE_CHECKING:
    from lresnet.train.config import Augment, TrainConfig
    from lresnet.train.dataset_classification import DatasetClassification
    from lresnet.train.engine import Execution, Outcome, TrainingState, seed_everything, train_model
    from lresnet.train.hierarchy_completion import HierarchyCompletion
    from lresnet.train.image_classification import ImageClassification
    from lresnet.train.link_prediction import LinkPrediction
    from lresnet.train.node_classification import NodeClassification
    from lresnet.train.non_finite import NonFiniteError
    from lresnet.train.norm_statistics import reestimate_statistics
    from lresnet.train.objective import Objective, make_objective
    from lresnet.train.sampled import SampledLinkPrediction, SampledNodeClassification
    from lresnet.train.stacking.engine import StackedTrainingState, fork_generator, train_many
    from lresnet.train.stacking.model import StackError
    from lresnet.train.text_modelling import TextModelling

__all__ = [
    "Augment",
    "DatasetClassification",
    "Execution",
    "HierarchyCompletion",
    "ImageClassification",
    "LinkPrediction",
    "NodeClassification",
    "NonFiniteError",
    "Objective",
    "Outcome",
    "SampledLinkPrediction",
    "SampledNodeClassification",
    "StackError",
    "StackedTrainingState",
    "TextModelling",
    "TrainConfig",
    "TrainingState",
    "fork_generator",
    "make_objective",
    "reestimate_statistics",
    "seed_everything",
    "train_many",
    "train_model",
]

if not TYPE_CHECKING:  # a type checker reads the imports above, so it still reports a misspelt name
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Augment": "config",
            "DatasetClassification": "dataset_classification",
            "Execution": "engine",
            "HierarchyCompletion": "hierarchy_completion",
            "ImageClassification": "image_classification",
            "LinkPrediction": "link_prediction",
            "NodeClassification": "node_classification",
            "NonFiniteError": "non_finite",
            "Objective": "objective",
            "Outcome": "engine",
            "SampledLinkPrediction": "sampled",
            "SampledNodeClassification": "sampled",
            "StackError": "stacking.model",
            "StackedTrainingState": "stacking.engine",
            "TextModelling": "text_modelling",
            "TrainConfig": "config",
            "TrainingState": "engine",
            "fork_generator": "stacking.engine",
            "make_objective": "objective",
            "reestimate_statistics": "norm_statistics",
            "seed_everything": "engine",
            "train_many": "stacking.engine",
            "train_model": "engine",
        },
    )
