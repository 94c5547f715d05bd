"""Hyperbolic space: the Lorentz manifold, its maps, distances and charts; Gromov's delta-hyperbolicity; class trees."""

from lresnet.geometry.checks import check_everywhere
from lresnet.geometry.class_tree import ClassTree
from lresnet.geometry.delta import Delta, delta_hyperbolicity
from lresnet.geometry.lorentz import Lorentz, ManifoldModule
from lresnet.geometry.nearest import NearestNeighbours, inner_product_points, inner_product_queries
from lresnet.geometry.pairwise import pairwise_dist

__all__ = [
    "ClassTree",
    "Delta",
    "Lorentz",
    "ManifoldModule",
    "NearestNeighbours",
    "check_everywhere",
    "delta_hyperbolicity",
    "inner_product_points",
    "inner_product_queries",
    "pairwise_dist",
]
