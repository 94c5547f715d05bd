"""The paper's subject: residual connections as functions, as modules, by name, and in their textbook forms."""

from lresnet.residual.modules import (
    EuclideanResidual,
    LorentzResidual,
    NoResidual,
    ParallelTransportResidual,
    ReversedParallelTransportResidual,
    SpaceResidual,
    TangentResidual,
)
from lresnet.residual.registry import RESIDUALS, make_residual

__all__ = [
    "RESIDUALS",
    "EuclideanResidual",
    "LorentzResidual",
    "NoResidual",
    "ParallelTransportResidual",
    "ReversedParallelTransportResidual",
    "SpaceResidual",
    "TangentResidual",
    "make_residual",
]
