"""Metrics of classification, class trees, rankings and out-of-distribution detection, on the device of their input."""

from lresnet._metric_names import HIERARCHY_METRICS, LINK_METRICS, NODE_METRICS
from lresnet.metrics.ancestor_order import AncestorOrder, ancestor_order
from lresnet.metrics.by_name import hits_at, link_metric, mean_reciprocal_rank, node_metric
from lresnet.metrics.class_tree import (
    hierarchical_distance,
    hierarchy_metrics,
    mistake_severity,
    superclass_accuracy,
)
from lresnet.metrics.classification import accuracy, f1
from lresnet.metrics.hierarchy_ranking import (
    RankedAnswers,
    ScoreRows,
    average_distortion,
    norm_depth_correlation,
    rank_answers,
    ranking_metric,
    ranking_metrics,
)
from lresnet.metrics.ood import OOD_METRICS, ood_metrics, ood_metrics_by_draws
from lresnet.metrics.ood_scores import energy_score
from lresnet.metrics.ranking import average_precision, link_scores, roc_auc
from lresnet.metrics.untrained_hierarchy import (
    UNTRAINED_HIERARCHY_SCORES,
    untrained_hierarchy_scores,
)
from lresnet.metrics.untrained_links import (
    UNTRAINED_SCORES,
    PairScores,
    UntrainedScore,
    best_untrained_score,
    untrained_link_scores,
)

__all__ = [
    "HIERARCHY_METRICS",
    "LINK_METRICS",
    "NODE_METRICS",
    "OOD_METRICS",
    "UNTRAINED_HIERARCHY_SCORES",
    "UNTRAINED_SCORES",
    "AncestorOrder",
    "PairScores",
    "RankedAnswers",
    "ScoreRows",
    "UntrainedScore",
    "accuracy",
    "ancestor_order",
    "average_distortion",
    "average_precision",
    "best_untrained_score",
    "energy_score",
    "f1",
    "hierarchical_distance",
    "hierarchy_metrics",
    "hits_at",
    "link_metric",
    "link_scores",
    "mean_reciprocal_rank",
    "mistake_severity",
    "node_metric",
    "norm_depth_correlation",
    "ood_metrics",
    "ood_metrics_by_draws",
    "rank_answers",
    "ranking_metric",
    "ranking_metrics",
    "roc_auc",
    "superclass_accuracy",
    "untrained_hierarchy_scores",
    "untrained_link_scores",
]
