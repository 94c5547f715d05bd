"""Hyperbolic space: the Lorentz manifold, its maps, distances and charts, and Gromov's delta-hyperbolicity."""

from lresnet.geometry.checks import check_everywhere
from lresnet.geometry.delta import Delta, delta_hyperbolicity
from lresnet.geometry.lorentz import Lorentz, ManifoldModule

__all__ = ["Delta", "Lorentz", "ManifoldModule", "check_everywhere", "delta_hyperbolicity"]
