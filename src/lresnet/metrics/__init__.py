"""How good a result is, as tensors on the device they were computed on."""

from lresnet.metrics.accuracy import accuracy
from lresnet.metrics.average_precision import average_precision
from lresnet.metrics.f1 import f1
from lresnet.metrics.roc_auc import link_scores, roc_auc

__all__ = ["accuracy", "average_precision", "f1", "link_scores", "roc_auc"]
