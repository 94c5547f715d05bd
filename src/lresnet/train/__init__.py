"""One engine, one small objective per task."""

from lresnet.train.engine import Execution, Outcome, fit, seed_everything
from lresnet.train.image_classification import ImageClassification
from lresnet.train.link_prediction import LinkPrediction
from lresnet.train.node_classification import NodeClassification
from lresnet.train.objective import Objective
from lresnet.train.schedule import Schedule
from lresnet.train.sentry import NonFiniteError
from lresnet.train.stack import StackError
from lresnet.train.stacked_fit import fit_many, own_generator

__all__ = [
    "Execution",
    "ImageClassification",
    "LinkPrediction",
    "NodeClassification",
    "NonFiniteError",
    "Objective",
    "Outcome",
    "Schedule",
    "StackError",
    "fit",
    "fit_many",
    "own_generator",
    "seed_everything",
]
