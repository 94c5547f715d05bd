"""Training: the configuration, one engine, and one objective per task."""

from typing import TYPE_CHECKING

from lresnet._lazy import lazy_names

if TYPE_CHECKING:
    from lresnet.train.config import Augment, TrainConfig
    from lresnet.train.engine import Execution, Outcome, seed_everything, train_model
    from lresnet.train.image_classification import ImageClassification
    from lresnet.train.link_prediction import LinkPrediction
    from lresnet.train.node_classification import NodeClassification
    from lresnet.train.objective import Objective, make_objective
    from lresnet.train.sentry import NonFiniteError
    from lresnet.train.stack import StackError
    from lresnet.train.stacked_fit import own_generator, train_many

__all__ = [
    "Augment",
    "Execution",
    "ImageClassification",
    "LinkPrediction",
    "NodeClassification",
    "NonFiniteError",
    "Objective",
    "Outcome",
    "StackError",
    "TrainConfig",
    "make_objective",
    "own_generator",
    "seed_everything",
    "train_many",
    "train_model",
]

if not TYPE_CHECKING:  # a type checker reads the imports above, so it still reports a misspelt name
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Augment": "config",
            "Execution": "engine",
            "ImageClassification": "image_classification",
            "LinkPrediction": "link_prediction",
            "NodeClassification": "node_classification",
            "NonFiniteError": "sentry",
            "Objective": "objective",
            "Outcome": "engine",
            "StackError": "stack",
            "TrainConfig": "config",
            "make_objective": "objective",
            "own_generator": "stacked_fit",
            "seed_everything": "engine",
            "train_many": "stacked_fit",
            "train_model": "engine",
        },
    )
