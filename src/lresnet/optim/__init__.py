"""Which parameter gets which update."""

from lresnet.optim.groups import ParameterGroups, parameter_groups
from lresnet.optim.optimizers import Optimizers, make_adam, make_adam_l2, make_sgd
from lresnet.optim.riemannian import RiemannianAdam

__all__ = [
    "Optimizers",
    "ParameterGroups",
    "RiemannianAdam",
    "make_adam",
    "make_adam_l2",
    "make_sgd",
    "parameter_groups",
]
