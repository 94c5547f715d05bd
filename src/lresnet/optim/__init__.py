"""Optimisers: parameter groups, and Riemannian steps for points of a manifold."""

from lresnet.optim.optimizers import (
    Optimizers,
    ParameterGroups,
    make_adam,
    make_adam_l2,
    make_sgd,
    parameter_groups,
    reshape_loaded_state,
)
from lresnet.optim.riemannian import RiemannianAdam

__all__ = [
    "Optimizers",
    "ParameterGroups",
    "RiemannianAdam",
    "make_adam",
    "make_adam_l2",
    "make_sgd",
    "parameter_groups",
    "reshape_loaded_state",
]
