"""One engine, one small objective per task."""

from lresnet.train.engine import Outcome, Schedule, fit, seed_everything
from lresnet.train.link_prediction import LinkPrediction
from lresnet.train.node_classification import NodeClassification
from lresnet.train.objective import Objective
from lresnet.train.sentry import NonFiniteError

__all__ = [
    "LinkPrediction",
    "NodeClassification",
    "NonFiniteError",
    "Objective",
    "Outcome",
    "Schedule",
    "fit",
    "seed_everything",
]
