"""Hyperbolic space: the Lorentz manifold, its maps, distances and charts; Gromov's delta-hyperbolicity; class trees."""

from lresnet.geometry.checks import check_everywhere
from lresnet.geometry.class_tree import ClassTree
from lresnet.geometry.delta import Delta, delta_hyperbolicity
from lresnet.geometry.lorentz import Lorentz, ManifoldModule
from lresnet.geometry.pairwise import pairwise_dist

__all__ = [
    "ClassTree",
    "Delta",
    "Lorentz",
    "ManifoldModule",
    "check_everywhere",
    "delta_hyperbolicity",
    "pairwise_dist",
]
