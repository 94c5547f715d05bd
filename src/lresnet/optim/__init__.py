"""Parameter groups: which parameter gets which update."""

from lresnet.optim.groups import Optimizers, ParameterGroups, make_adam, parameter_groups

__all__ = ["Optimizers", "ParameterGroups", "make_adam", "parameter_groups"]
