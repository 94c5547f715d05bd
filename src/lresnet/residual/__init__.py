"""Residual connections: the table of methods, and each method as a function and as a module."""

from typing import TYPE_CHECKING

from lresnet._lazy import lazy_names
from lresnet.residual.registry import METHODS, RESIDUALS, Method, make_residual, residual_options

if TYPE_CHECKING:
    from lresnet.residual.lorentz import LorentzResidual
    from lresnet.residual.parallel_transport import ParallelTransportResidual, ReversedParallelTransportResidual
    from lresnet.residual.space import EuclideanResidual, NoResidual, SpaceResidual
    from lresnet.residual.tangent import TangentResidual

__all__ = [
    "METHODS",
    "RESIDUALS",
    "EuclideanResidual",
    "LorentzResidual",
    "Method",
    "NoResidual",
    "ParallelTransportResidual",
    "ReversedParallelTransportResidual",
    "SpaceResidual",
    "TangentResidual",
    "make_residual",
    "residual_options",
]

if not TYPE_CHECKING:  # a type checker reads the imports above and reports a misspelt name
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "EuclideanResidual": "space",
            "LorentzResidual": "lorentz",
            "NoResidual": "space",
            "ParallelTransportResidual": "parallel_transport",
            "ReversedParallelTransportResidual": "parallel_transport",
            "SpaceResidual": "space",
            "TangentResidual": "tangent",
        },
    )
