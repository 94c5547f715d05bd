"""The space: pure functions, then the Lorentz manifold, isometries to other models, and Gromov's delta."""

from lresnet.geometry.checks import check_everywhere
from lresnet.geometry.lorentz import Lorentz
from lresnet.geometry.module import ManifoldModule

__all__ = ["Lorentz", "ManifoldModule", "check_everywhere"]
