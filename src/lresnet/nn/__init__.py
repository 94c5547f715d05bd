"""Layers, one concept a file."""

from lresnet.nn.attention import LinearAttention, LorentzAttention
from lresnet.nn.euclidean import EuclideanGraphConv
from lresnet.nn.fermi_dirac import FermiDirac
from lresnet.nn.graph_conv import LorentzGraphConv
from lresnet.nn.hyperplane_linear import HyperplaneLinear
from lresnet.nn.linear import LorentzLinear
from lresnet.nn.mlr import LorentzMLR
from lresnet.nn.pooling import CentroidPool, PoincareMean, SpaceMean
from lresnet.nn.prototypes import Prototypes
from lresnet.nn.space_linear import SpaceLinear
from lresnet.nn.sparse import SparseMatrix, adjacency, symmetric_normalisation
from lresnet.nn.weighted_join import WeightedJoin

__all__ = [
    "CentroidPool",
    "EuclideanGraphConv",
    "FermiDirac",
    "HyperplaneLinear",
    "LinearAttention",
    "LorentzAttention",
    "LorentzGraphConv",
    "LorentzLinear",
    "LorentzMLR",
    "PoincareMean",
    "Prototypes",
    "SpaceLinear",
    "SpaceMean",
    "SparseMatrix",
    "WeightedJoin",
    "adjacency",
    "symmetric_normalisation",
]
