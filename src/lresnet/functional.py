"""The residual connections as pure functions on space coordinates."""

from lresnet.residual.charts import klein_residual, poincare_residual
from lresnet.residual.equivalence import EquivalentWeights, equivalent_weights
from lresnet.residual.lorentz import lorentz_residual, lorentz_residual_many
from lresnet.residual.parallel_transport import parallel_transport_residual
from lresnet.residual.space import space_residual
from lresnet.residual.tangent import tangent_residual

__all__ = [
    "EquivalentWeights",
    "equivalent_weights",
    "klein_residual",
    "lorentz_residual",
    "lorentz_residual_many",
    "parallel_transport_residual",
    "poincare_residual",
    "space_residual",
    "tangent_residual",
]
