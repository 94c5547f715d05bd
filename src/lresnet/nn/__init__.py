"""Layers, one concept a file. Graph convolutions import torch_geometric, the other layers do not."""

from typing import TYPE_CHECKING

from lresnet._lazy import lazy_names

if TYPE_CHECKING:
    from lresnet.nn.attention import LinearAttention, LorentzLinearAttention
    from lresnet.nn.classifier_head import ClassifierHead
    from lresnet.nn.embedding import LorentzEmbedding, LorentzPatchEmbedding
    from lresnet.nn.entailment import EntailmentConeLoss, cone_aperture, entailment_loss, exterior_angle
    from lresnet.nn.euclidean import EuclideanGraphConv, EuclideanSAGEConv
    from lresnet.nn.fermi_dirac import FermiDirac
    from lresnet.nn.gat_conv import LorentzGATConv
    from lresnet.nn.gated_mlp import LorentzGatedMLP
    from lresnet.nn.graph_conv import LorentzGraphConv
    from lresnet.nn.hierarchical_loss import hierarchical_cross_entropy, path_log_probabilities
    from lresnet.nn.hierarchy_energy import ancestor_energy, pairwise_ancestor_energy, pairwise_entailment_energy
    from lresnet.nn.hyperplane_linear import HyperplaneLinear
    from lresnet.nn.image_text_contrastive import ImageTextContrastiveLoss, image_text_contrastive_loss
    from lresnet.nn.linear import LorentzLinear
    from lresnet.nn.mlr import LorentzMLR
    from lresnet.nn.point_norm import LorentzLayerNorm, LorentzRMSNorm
    from lresnet.nn.pooling import CentroidPool, PoincareMean, SpaceMean
    from lresnet.nn.prototypes import Prototypes
    from lresnet.nn.ranking import HierarchyRankingLoss, ordered_ranking_loss, ranking_loss, split_candidates
    from lresnet.nn.rotary import RotaryPositions, apply_rotary
    from lresnet.nn.sage_conv import LorentzSAGEConv
    from lresnet.nn.softmax_attention import KeyValueCache, LorentzAttention, lorentz_attention
    from lresnet.nn.space_linear import SpaceLinear
    from lresnet.nn.sparse import SparseMatrix, adjacency, symmetric_normalisation
    from lresnet.nn.supervised_contrastive import SupervisedContrastiveLoss, supervised_contrastive_loss
    from lresnet.nn.transformer_block import LorentzTransformerBlock
    from lresnet.nn.weighted_join import WeightedJoin

__all__ = [
    "CentroidPool",
    "ClassifierHead",
    "EntailmentConeLoss",
    "EuclideanGraphConv",
    "EuclideanSAGEConv",
    "FermiDirac",
    "HierarchyRankingLoss",
    "HyperplaneLinear",
    "ImageTextContrastiveLoss",
    "KeyValueCache",
    "LinearAttention",
    "LorentzAttention",
    "LorentzEmbedding",
    "LorentzGATConv",
    "LorentzGatedMLP",
    "LorentzGraphConv",
    "LorentzLayerNorm",
    "LorentzLinear",
    "LorentzLinearAttention",
    "LorentzMLR",
    "LorentzPatchEmbedding",
    "LorentzRMSNorm",
    "LorentzSAGEConv",
    "LorentzTransformerBlock",
    "PoincareMean",
    "Prototypes",
    "RotaryPositions",
    "SpaceLinear",
    "SpaceMean",
    "SparseMatrix",
    "SupervisedContrastiveLoss",
    "WeightedJoin",
    "adjacency",
    "ancestor_energy",
    "apply_rotary",
    "cone_aperture",
    "entailment_loss",
    "exterior_angle",
    "hierarchical_cross_entropy",
    "image_text_contrastive_loss",
    "lorentz_attention",
    "ordered_ranking_loss",
    "pairwise_ancestor_energy",
    "pairwise_entailment_energy",
    "path_log_probabilities",
    "ranking_loss",
    "split_candidates",
    "supervised_contrastive_loss",
    "symmetric_normalisation",
]

if not TYPE_CHECKING:  # a type checker reads the imports above and reports a misspelt name
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "CentroidPool": "pooling",
            "ClassifierHead": "classifier_head",
            "EntailmentConeLoss": "entailment",
            "EuclideanGraphConv": "euclidean",
            "EuclideanSAGEConv": "euclidean",
            "FermiDirac": "fermi_dirac",
            "HierarchyRankingLoss": "ranking",
            "HyperplaneLinear": "hyperplane_linear",
            "ImageTextContrastiveLoss": "image_text_contrastive",
            "KeyValueCache": "softmax_attention",
            "LinearAttention": "attention",
            "LorentzAttention": "softmax_attention",
            "LorentzEmbedding": "embedding",
            "LorentzGATConv": "gat_conv",
            "LorentzGatedMLP": "gated_mlp",
            "LorentzGraphConv": "graph_conv",
            "LorentzLayerNorm": "point_norm",
            "LorentzLinear": "linear",
            "LorentzLinearAttention": "attention",
            "LorentzMLR": "mlr",
            "LorentzPatchEmbedding": "embedding",
            "LorentzRMSNorm": "point_norm",
            "LorentzSAGEConv": "sage_conv",
            "LorentzTransformerBlock": "transformer_block",
            "PoincareMean": "pooling",
            "Prototypes": "prototypes",
            "RotaryPositions": "rotary",
            "SpaceLinear": "space_linear",
            "SpaceMean": "pooling",
            "SparseMatrix": "sparse",
            "SupervisedContrastiveLoss": "supervised_contrastive",
            "WeightedJoin": "weighted_join",
            "adjacency": "sparse",
            "ancestor_energy": "hierarchy_energy",
            "apply_rotary": "rotary",
            "cone_aperture": "entailment",
            "entailment_loss": "entailment",
            "exterior_angle": "entailment",
            "hierarchical_cross_entropy": "hierarchical_loss",
            "image_text_contrastive_loss": "image_text_contrastive",
            "lorentz_attention": "softmax_attention",
            "ordered_ranking_loss": "ranking",
            "pairwise_ancestor_energy": "hierarchy_energy",
            "pairwise_entailment_energy": "hierarchy_energy",
            "path_log_probabilities": "hierarchical_loss",
            "ranking_loss": "ranking",
            "split_candidates": "ranking",
            "supervised_contrastive_loss": "supervised_contrastive",
            "symmetric_normalisation": "sparse",
        },
    )
