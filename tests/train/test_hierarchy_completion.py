"""The objective of hierarchy completion: what is ranked in a step, and that it learns a tree."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lresnet import create_model
from lresnet.data import HierarchyTask, hierarchy_task, load_task
from lresnet.metrics import ancestor_order, rank_answers, ranking_metrics, untrained_hierarchy_scores
from lresnet.metrics.hierarchy_completion import completion_metric, completion_metrics
from lresnet.nn import ordered_ranking_loss, pairwise_ancestor_energy
from lresnet.train import HierarchyCompletion, TrainConfig, make_objective, seed_everything, train_model
from lresnet.train.hierarchy_completion import ancestor_scores

TREE = [(f"n{i}", f"n{(i - 1) // 3}") for i in range(1, 121)]


def model_of(task: HierarchyTask, residual: str = "lorentz", hidden: int = 8) -> torch.nn.Module:
    seed_everything(0)
    return create_model("lorentz_embedding", residual, in_features=task.x.shape[1], hidden=hidden)


def test_loss_is_the_ordered_ranking_of_the_training_ancestors_among_all_other_nodes() -> None:
    task = hierarchy_task(TREE)
    model = model_of(task)
    objective = HierarchyCompletion(task, batch_size=1)
    objective.start_epoch()
    objective.advance(3)
    (node,) = objective.nodes[objective._batch].tolist()
    ancestors = task.train_pairs[1, task.train_pairs[0] == node]
    parents = task.parents[1, task.parents[0] == node]
    z = model.weight.detach()  # type: ignore[union-attr, operator]
    scores = -pairwise_ancestor_energy(z[[node]], z)[0] / 0.1
    others = torch.ones(task.num_nodes, dtype=torch.bool)
    others[ancestors] = others[node] = False
    steps = torch.where(torch.isin(ancestors, parents), 1, task.depths[node] - task.depths[ancestors])
    expected = ordered_ranking_loss(scores[None, ancestors], scores[None, others], levels=steps[None])
    assert objective.loss(model).item() == pytest.approx(expected.item(), rel=1e-5)  # type: ignore[arg-type]


def test_drawn_candidates_are_ranked_like_all_of_them() -> None:
    task = hierarchy_task(TREE)
    model = model_of(task)
    some = HierarchyCompletion(task, candidates=task.num_nodes - 1, seed=1)
    some.start_epoch()
    some.advance(0)
    nodes, ancestors = some.nodes[some._batch], some.ancestors[some._batch]
    chosen, places, own = some._drawn(nodes, ancestors)
    assert torch.where(places >= 0, chosen[places], -1).equal(ancestors)
    drawn = own[:, 0] >= 0
    assert chosen[own[drawn, 0]].equal(nodes[drawn])
    assert not torch.isin(nodes[~drawn], chosen).any()
    assert torch.isfinite(some.loss(model))  # type: ignore[arg-type]


@pytest.mark.parametrize(("residual", "loss"), [("lorentz", "ranking"), ("lorentz", "cones"), ("euclidean", "ranking")])
def test_a_tree_is_learned(residual: str, loss: str) -> None:
    task = hierarchy_task(TREE)
    model = model_of(task, residual)
    config = TrainConfig(epochs=60, lr=0.05, eval_every=20, loss=loss)  # type: ignore[arg-type]
    objective = make_objective(task, config)
    train_model(model, objective, config)
    found = objective.test(model)
    assert list(found) == [
        *("ordered_mrr", "mrr", "order", "parent_first", "mean_average_precision", "hits@10", "mean_rank"),
        *("distortion", "norm_depth_correlation"),
    ]
    (untrained,) = untrained_hierarchy_scores(task)
    assert untrained.metrics is not None
    assert found["mrr"] > 70 > untrained.metrics["mrr"]


def test_test_metrics_are_those_of_the_filtered_ranking() -> None:
    task = hierarchy_task(TREE, metric="hits@3")
    model = model_of(task)
    z = model.weight.detach()  # type: ignore[union-attr, operator]
    ranked = rank_answers(lambda q: ancestor_scores(z[q], z, 1.0, "ranking"), task.test_pairs, 121, known=task.closure)
    pairs, steps = task.ancestors_in_order(task.test_pairs)
    order = ancestor_order(lambda q: ancestor_scores(z[q], z, 1.0, "ranking"), pairs, steps, 121)
    expected = ranking_metrics(ranked, "hits@3", order)
    found = HierarchyCompletion(task).test(model)  # type: ignore[arg-type]
    assert next(iter(found)) == "hits@3"
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_the_search_metric_sees_the_order_that_cones_do_not_learn() -> None:
    found = {}
    for loss in ("ranking", "cones"):
        task = hierarchy_task(TREE)
        model = model_of(task)
        config = TrainConfig(epochs=60, lr=0.05, eval_every=20, loss=loss)  # type: ignore[arg-type]
        objective = make_objective(task, config)
        train_model(model, objective, config)
        found[loss] = objective.test(model) | {"validation": 100 * objective.validation(model).item()}
    assert found["ranking"]["order"] > 95 > 80 > found["cones"]["order"]
    assert found["ranking"]["validation"] > found["cones"]["validation"]
    assert found["ranking"]["ordered_mrr"] == pytest.approx(
        found["ranking"]["mrr"] * found["ranking"]["order"] / 100, rel=1e-6
    )


def test_validation_chooses_the_preference_for_general_nodes_that_ranks_unseen_leaves() -> None:
    for seed in range(3):
        task = hierarchy_task(TREE, node_features="names", seed=seed)
        model = create_model("lorentz_embedding", "lorentz", in_features=task.x.shape[1], hidden=8)
        objective = HierarchyCompletion(task, seed=seed)
        with torch.no_grad():
            z = model(task.x, task.edge_index)

        def measured(alpha: float, pairs: Tensor, z: Tensor = z, n: int = task.num_nodes) -> float:
            ranked = rank_answers(lambda q: ancestor_scores(z[q], z, 1.0, "ranking", alpha), pairs, n)
            return 100 * float(ranked.mean_reciprocal_rank())

        values = {alpha: measured(alpha, task.val_pairs) for alpha in task.new_term_alphas}
        alpha = objective.new_term_alpha(model)
        assert values[alpha] == max(values.values())
        assert 100 * objective.validation(model).item() == pytest.approx(values[alpha], abs=1e-3)
        assert objective.test(model)["ordered_mrr"] == pytest.approx(measured(alpha, task.test_pairs))
    first = replace(task, new_term_alphas=(0.25,))
    assert HierarchyCompletion(first).new_term_alpha(model) == 0.25
    assert HierarchyCompletion(hierarchy_task(TREE)).new_term_alpha(model_of(hierarchy_task(TREE))) == 0.5


def test_parents_of_unseen_leaves_compete_with_the_other_ancestors() -> None:
    task = hierarchy_task(TREE, node_features="names")
    known = torch.zeros(task.num_nodes, task.num_nodes)
    known[task.parents[0], task.parents[1]] = 1.0

    def root_first(nodes: Tensor) -> Tensor:
        return known[nodes] - (task.depths == 0).float() * -2.0

    found = completion_metrics(task, root_first, task.test_pairs)
    assert (found["mrr"], found["ordered_mrr"], found["parent_first"]) == (100.0, 50.0, 0.0)
    assert completion_metric(task, root_first, task.test_pairs).item() == 0.5
    found = completion_metrics(task, lambda nodes: known[nodes], task.test_pairs)
    assert (found["mrr"], found["ordered_mrr"], found["parent_first"]) == (100.0, 100.0, 100.0)


def test_what_does_not_fit_is_refused() -> None:
    task = hierarchy_task(TREE)
    with pytest.raises(ValueError, match="cones needs a hyperbolic space"):
        HierarchyCompletion(task, loss="cones").require_model(model_of(task, "euclidean"))  # type: ignore[arg-type]
    for settings, words in (
        ({"loss": "margin"}, "loss=margin is not for a hierarchy"),
        ({"margin": 1.0}, "margin=1.0"),
    ):
        with pytest.raises(ValueError, match=words):
            make_objective(task, TrainConfig(**settings))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="loss=cones is for hierarchies"):
        make_objective(load_task("disease_tree/lp"), TrainConfig(loss="cones"))


def test_untrained_scores_know_the_parent_of_a_similar_name() -> None:
    pairs = [(kind, "thing") for kind in ("bear", "oak", "fish", "bird")]
    pairs += [(f"{colour} {kind}", kind) for kind, _ in pairs for colour in ("brown", "green", "polar", "tiny", "vast")]
    task = hierarchy_task(pairs, node_features="names", validation=0.1, test=0.2)
    found = {one.name: one for one in untrained_hierarchy_scores(task)}
    assert set(found) == {"descendants", "text_cosine", "similar_child"}
    assert found["text_cosine"].value == found["text_cosine"].validation == 100
    assert found["similar_child"].label == "parent of the node with the most similar features"
