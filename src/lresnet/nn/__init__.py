"""Layers, one concept a file. Graph convolutions import torch_geometric, the other layers do not."""

from typing import TYPE_CHECKING

from lresnet._lazy import Deprecated, lazy_names

if TYPE_CHECKING:
    from lresnet.nn.attention import LinearAttention, LorentzLinearAttention
    from lresnet.nn.euclidean import EuclideanGraphConv, EuclideanSAGEConv
    from lresnet.nn.fermi_dirac import FermiDirac
    from lresnet.nn.gat_conv import LorentzGATConv
    from lresnet.nn.graph_conv import LorentzGraphConv
    from lresnet.nn.hyperplane_linear import HyperplaneLinear
    from lresnet.nn.linear import LorentzLinear
    from lresnet.nn.mlr import LorentzMLR
    from lresnet.nn.pooling import CentroidPool, PoincareMean, SpaceMean
    from lresnet.nn.prototypes import Prototypes
    from lresnet.nn.sage_conv import LorentzSAGEConv
    from lresnet.nn.space_linear import SpaceLinear
    from lresnet.nn.sparse import SparseMatrix, adjacency, symmetric_normalisation
    from lresnet.nn.weighted_join import WeightedJoin

__all__ = [
    "CentroidPool",
    "EuclideanGraphConv",
    "EuclideanSAGEConv",
    "FermiDirac",
    "HyperplaneLinear",
    "LinearAttention",
    "LorentzGATConv",
    "LorentzGraphConv",
    "LorentzLinear",
    "LorentzLinearAttention",
    "LorentzMLR",
    "LorentzSAGEConv",
    "PoincareMean",
    "Prototypes",
    "SpaceLinear",
    "SpaceMean",
    "SparseMatrix",
    "WeightedJoin",
    "adjacency",
    "symmetric_normalisation",
]

if not TYPE_CHECKING:  # a type checker reads the imports above and reports a misspelt name
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "CentroidPool": "pooling",
            "EuclideanGraphConv": "euclidean",
            "EuclideanSAGEConv": "euclidean",
            "FermiDirac": "fermi_dirac",
            "HyperplaneLinear": "hyperplane_linear",
            "LinearAttention": "attention",
            "LorentzGATConv": "gat_conv",
            "LorentzGraphConv": "graph_conv",
            "LorentzLinear": "linear",
            "LorentzLinearAttention": "attention",
            "LorentzMLR": "mlr",
            "LorentzSAGEConv": "sage_conv",
            "PoincareMean": "pooling",
            "Prototypes": "prototypes",
            "SpaceLinear": "space_linear",
            "SpaceMean": "pooling",
            "SparseMatrix": "sparse",
            "WeightedJoin": "weighted_join",
            "adjacency": "sparse",
            "symmetric_normalisation": "sparse",
        },
        # The name is meant for softmax attention.
        {"LorentzAttention": Deprecated("lresnet.nn.LorentzLinearAttention", "0.4")},
    )
