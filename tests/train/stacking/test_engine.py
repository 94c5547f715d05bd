"""A stack of training runs: every run ends as it does alone, whatever happens to the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lresnet.data import LinkTask, NodeTask
from lresnet.geometry.checks import check_nowhere
from lresnet.models import LorentzGCN
from lresnet.train import LinkPrediction, NodeClassification, NonFiniteError, Outcome, TrainConfig, train_model
from lresnet.train.sampled import SampledLinkPrediction
from lresnet.train.stacking import StackedTrainingState, StackError, fork_generator, train_many
from tests.train.tree import link_task, node_task

S = 3
CONFIG = TrainConfig(epochs=20, lr=0.02, weight_decay=0.01, clip=0.5, eval_every=3, keep="last")
# For options of a model or a task: a mix-up between runs shows within a step or two.
BRIEF = dataclasses.replace(CONFIG, epochs=10)
LP, NC = link_task(), node_task()

Objectives = LinkPrediction | NodeClassification


def wide(task: LinkTask | NodeTask) -> LinkTask | NodeTask:
    return dataclasses.replace(task, x=task.x.double())


def objective(task: LinkTask | NodeTask, seed: int, **options: object) -> Objectives:
    if isinstance(task, LinkTask):
        return LinkPrediction(task, seed=seed, **{"margin": 5.0} | options)
    return NodeClassification(task, **options)


def runs(
    tasks: Sequence[LinkTask | NodeTask] | LinkTask | NodeTask,
    model: dict[str, object] | None = None,
    loss: dict[str, object] | None = None,
) -> list[tuple[LorentzGCN, Objectives, torch.Generator]]:
    """For each seed: a model, an objective, and the generator of its dropout."""
    tasks = tasks if isinstance(tasks, Sequence) else [tasks] * S
    made = []
    for seed, task in enumerate(tasks):
        torch.manual_seed(seed)
        classes = task.num_classes if isinstance(task, NodeTask) else None
        network = LorentzGCN(task.x.shape[1], 6, num_classes=classes, **model or {}).to(task.x.dtype)
        made.append((network, objective(task, seed, **loss or {}), fork_generator("cpu")))
    return made


def alone(made: Callable[[], list], config: TrainConfig) -> list[tuple[LorentzGCN, Outcome | NonFiniteError]]:
    results = []
    for network, task, generator in made():
        torch.set_rng_state(generator.get_state())
        try:
            results.append((network, train_model(network, task, config)))
        except NonFiniteError as error:
            results.append((network, error))
    return results


def together(made: Callable[[], list], config: TrainConfig) -> list[tuple[LorentzGCN, Outcome | NonFiniteError]]:
    networks, tasks, generators = zip(*made(), strict=True)
    return list(zip(networks, train_many(networks, tasks, config, generators=generators), strict=True))


def agree(made: Callable[[], list], config: TrainConfig = BRIEF, rtol: float = 1e-6) -> list[Outcome]:
    """Assert that parameters and outcomes agree, and return the outcomes."""
    expected, got = alone(made, config), together(made, config)
    for (a, one), (b, other) in zip(expected, got, strict=True):
        assert isinstance(other, Outcome), other
        assert dataclasses.replace(one, seconds=0, validation=0) == dataclasses.replace(other, seconds=0, validation=0)
        assert other.validation == pytest.approx(one.validation, rel=max(rtol, 1e-12))
        assert not b.training
        assert distance(a, b) <= rtol
    return [outcome for _, outcome in got]


def distance(a: LorentzGCN, b: LorentzGCN) -> float:
    """The largest relative difference of two parameters.

    Distances of nodes do not depend on the biases of the Euclidean baseline: their gradients are rounding errors, which
    Adam scales to steps of full length.
    """
    pairs = zip(a.named_parameters(), b.parameters(), strict=True)
    free = a.euclidean and a.head is None
    compared = [(p.detach(), q.detach()) for (name, p), q in pairs if not (free and name.endswith("bias"))]
    return max(float((p - q).norm() / p.norm()) for p, q in compared)


def weighted(task: LinkTask | NodeTask, seed: int) -> LinkTask | NodeTask:
    """Return the task with a weight of its own for every edge."""
    g = torch.Generator().manual_seed(seed)
    weight = 0.1 + 5 * torch.rand(task.edge_index.shape[1], generator=g, dtype=torch.float64)
    return dataclasses.replace(wide(task), edge_weight=weight)


# --- a run's trajectory does not depend on the others -----------------------------------------------------------------


@pytest.mark.parametrize("residual", ["lorentz", "euclidean", "space", "tangent", "parallel_transport", "none"])
@pytest.mark.parametrize("task", [LP, NC], ids=["lp", "nc"])
def test_parameters_after_twenty_steps_are_those_of_single_runs(task, residual):
    agree(lambda: runs(wide(task), {"residual": residual, "curvature": -2.0, "activation": "relu"}), CONFIG)


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
@pytest.mark.parametrize("seeds", [(0, 0, 0), (0, 1, 2)], ids=["shared", "own"])
@pytest.mark.parametrize("task", [LP, NC], ids=["lp", "nc"])
def test_edge_weights_count_as_in_single_runs(task, seeds, residual):
    agree(lambda: runs([weighted(task, seed) for seed in seeds], {"residual": residual}))


@pytest.mark.parametrize("metric", ["mrr", "hits@3", "roc_auc"])
def test_the_metric_of_a_link_task_selects_as_in_single_runs(metric):
    agree(lambda: runs(dataclasses.replace(wide(LP), metric=metric)), dataclasses.replace(BRIEF, keep="best"))


def test_sampled_objectives_are_refused():
    made = [
        (network, SampledLinkPrediction(LP, batch_size=8, seed=seed, margin=5.0), generator)
        for seed, (network, _, generator) in enumerate(runs(LP))
    ]
    with pytest.raises(StackError, match="SampledLinkPrediction; run them one by one"):
        together(lambda: made, BRIEF)


@pytest.mark.parametrize("task", [LP, NC], ids=["lp", "nc"])
def test_float32_runs_differ_no_more_than_after_rounding_the_initial_parameters(task):
    """Adam divides by the size of a gradient: where that is near 0, twenty steps amplify 1e-7 a thousand times."""

    def rounded(seed: int) -> list:
        made, g = runs(task), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in (p for network, _, _ in made for p in network.parameters()):
                parameter.mul_(1 + 2.0**-24 * torch.randn(parameter.shape, generator=g).sign())
        return made

    expected = alone(lambda: runs(task), CONFIG)
    moved = [alone(lambda seed=seed: rounded(seed), CONFIG) for seed in range(3)]
    bar = max(distance(a, b) for others in moved for (a, _), (b, _) in zip(expected, others, strict=True))
    assert bar < 0.1
    for (a, _), (b, _) in zip(expected, together(lambda: runs(task), CONFIG), strict=True):
        assert distance(a, b) <= 5 * bar


@pytest.mark.parametrize("task", [LP, NC], ids=["lp", "nc"])
def test_losses_and_gradients_in_float32(task):
    made = runs(task)
    losses = [own.loss(network) for network, own, _ in made]
    for loss in losses:
        loss.backward()
    networks, tasks, _ = zip(*runs(task), strict=True)
    run = StackedTrainingState(networks, tasks, CONFIG, (), "fast")
    stacked = run.stack.call(run.objective.loss)
    torch.testing.assert_close(stacked, torch.stack(losses), rtol=1e-6, atol=0)
    stacked.sum().backward()
    gradients = run.stack.views([leaf.grad for leaf in run.leaves])
    for s, (network, _, _) in enumerate(made):
        names = [name for name, _ in network.named_parameters()]
        expected = torch.cat([network.get_parameter(name).grad.flatten() for name in names])
        got = torch.cat([gradients[name][s].flatten() for name in names])
        assert (got - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
@pytest.mark.parametrize("task", [LP, NC], ids=["lp", "nc"])
def test_dropout_is_drawn_from_the_run_s_own_generator(task, residual):
    agree(lambda: runs(wide(task), {"dropout": 0.4, "residual": residual}))


def sparse(task: NodeTask) -> NodeTask:
    """The task with one-hot features, which are stored as a sparse matrix."""
    x = torch.nn.functional.one_hot(torch.arange(task.num_nodes) % 10, 10).double()
    return dataclasses.replace(task, x=x)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize(
    "model", [{}, {"residual": "euclidean"}, {"learn_curvature": True}, {"layer": "space"}], ids=str
)
def test_sparse_features(model, dropout):
    agree(lambda: runs(sparse(NC), model | {"dropout": dropout}))


@pytest.mark.parametrize("learned", [False, True])
def test_space_layers(learned):
    model = {"layer": "space", "activation": "relu", "learn_curvature": learned, "curvature": -2.0}
    agree(lambda: runs(wide(NC), model), dataclasses.replace(BRIEF, optimizer="adam_l2"))


@pytest.mark.parametrize("scale", ["learned", "1+w"])
@pytest.mark.parametrize("task", [LP, NC], ids=["lp", "nc"])
def test_learned_curvature_weights_and_scales(task, scale):
    options = {"weight": "learned", "scale": scale}
    agree(lambda: runs(wide(task), {"learn_curvature": True, "residual_options": options, "curvature": -0.5}))


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
@pytest.mark.parametrize("learned", [False, True])
def test_cross_entropy_of_links_and_margin_loss_of_nodes(residual, learned):
    model = {"residual": residual, "learn_curvature": learned, "curvature": -2.0}
    agree(lambda: runs(wide(LP), model, {"loss": "cross_entropy"}))
    agree(lambda: runs(wide(NC), model, {"loss": "margin", "margin": 2.0}))


@pytest.mark.parametrize(
    "change",
    [
        {"lr_schedule": "cosine", "warmup": 4.0},
        {"weight_decay": 0.5, "decay": "all"},
        {"weight_decay": 0.0, "clip": None},
        {"optimizer": "adam_l2", "weight_decay": 0.5},
        {"average": 0.8, "keep": "best"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_schedules(change):
    agree(lambda: runs(wide(NC)), dataclasses.replace(CONFIG, **change))


def test_a_stack_of_one_run():
    agree(lambda: runs([wide(LP)]))


def test_one_graph_and_split_per_run():
    tasks = [wide(link_task(seed=seed)) for seed in range(S)]
    assert not torch.equal(tasks[0].edge_index, tasks[1].edge_index)
    for residual in ("lorentz", "euclidean"):
        agree(lambda residual=residual: runs(tasks, {"residual": residual}))


def test_index_sets_of_different_sizes_and_nodes_listed_twice():
    base = wide(NC)
    twice = torch.cat([base.train_index, base.train_index[:4]])
    tasks = [
        base,
        dataclasses.replace(base, train_index=base.val_index, val_index=base.train_index[:9]),
        dataclasses.replace(base, train_index=twice),
    ]
    agree(lambda: runs(tasks), dataclasses.replace(CONFIG, keep="best"))


# --- validation, patience, the best parameters ------------------------------------------------------------------------


def test_each_run_keeps_its_best_and_stops_when_it_is_out_of_patience():
    config = TrainConfig(epochs=60, lr=0.05, eval_every=2, patience=10)
    outcomes = agree(lambda: runs([wide(LP)] * 5), config)
    assert len({outcome.epochs for outcome in outcomes}) > 1
    assert any(outcome.epochs < 60 for outcome in outcomes)


@pytest.mark.parametrize("loss", ["cross_entropy", "margin"])
def test_each_run_keeps_its_lowest_validation_loss_if_that_is_the_criterion(loss):
    config = TrainConfig(epochs=60, lr=0.05, eval_every=2, patience=10, criterion="loss")
    outcomes = agree(lambda: runs([wide(NC)] * 5, loss={"loss": loss}), config)
    by_score = agree(lambda: runs([wide(NC)] * 5, loss={"loss": loss}), dataclasses.replace(config, criterion="score"))
    assert [one.best_epoch for one in outcomes] != [one.best_epoch for one in by_score]


def test_best_scores_are_reported_at_every_validation_pass():
    seen, (networks, tasks, _) = [], zip(*runs(LP), strict=True)
    config = dataclasses.replace(CONFIG, epochs=8, keep="best")
    outcomes = train_many(networks, tasks, config, on_epoch=lambda epoch, best: seen.append((epoch, best)))
    assert [epoch for epoch, _ in seen] == [3, 6, 8]
    assert [outcome.validation for outcome in outcomes] == seen[-1][1]
    assert all(a <= b for a, b in zip(seen[0][1], seen[1][1], strict=True))


# --- runs that diverge ------------------------------------------------------------------------------------------------


def broken(task: LinkTask | NodeTask, **model: object) -> list:
    """Three runs, the second of which starts with a parameter that is NaN."""
    made = runs(wide(task), model)
    with torch.no_grad():
        made[1][0].layers[0].linear.weight[0, 0] = float("nan")
    return made


@pytest.mark.parametrize("model", [{}, {"learn_curvature": True}], ids=str)
@pytest.mark.parametrize("task", [LP, NC], ids=["lp", "nc"])
def test_a_run_that_diverges_has_the_error_of_a_single_run_and_does_not_change_the_others(task, model):
    expected, got = (train(lambda: broken(task, **model), BRIEF) for train in (alone, together))
    assert isinstance(got[1][1], NonFiniteError)
    assert str(got[1][1]) == str(expected[1][1])
    assert "'layers.0.linear.weight' is not finite" in str(got[1][1])
    for s in (0, 2):
        assert got[s][1].validation == expected[s][1].validation
        assert distance(expected[s][0], got[s][0]) <= 1e-6


def test_non_finite_parameters_of_the_last_step_are_found_by_the_validation_pass():
    made = runs(wide(LP))
    networks, tasks, _ = zip(*made, strict=True)
    run = StackedTrainingState(networks, tasks, dataclasses.replace(CONFIG, eval_every=1), (), "fast")
    run.train_epoch()
    with torch.no_grad():
        run.stack.views()["layers.1.linear.bias"][2, 0] = float("inf")
    with check_nowhere():
        run.validate()
    assert run.running == {0, 1}
    assert "parameter 'layers.1.linear.bias' is not finite at step 0" in str(run.ends[2])


def test_steps_after_the_end_of_a_run_do_not_count_for_it():
    made = runs(wide(LP))
    networks, tasks, _ = zip(*made, strict=True)
    run = StackedTrainingState(networks, tasks, dataclasses.replace(CONFIG, keep="best", patience=3), (), "fast")
    with check_nowhere():
        for _ in range(3):
            run.train_epoch()
        run.validate()
        kept, best = run.kept[0][1].clone(), float(run.progress.best[1])
        run._end(1, run.epoch)
        with torch.no_grad():
            run.leaves[0][1] = float("nan")
        run.train_epoch()
        run.validate()
    assert run.ends == {1: 3}
    outcomes = run.results(seconds=1.0)
    assert (outcomes[1].epochs, outcomes[1].best_epoch, outcomes[1].validation) == (3, 3, best)
    assert torch.equal(run.kept[0][1], kept)
    assert all(p.isfinite().all() for network in networks for p in network.parameters())


# --- requirements of a captured step ----------------------------------------------------------------------------------


class Operations(TorchDispatchMode):
    """Counts operations, and refuses those that read a value on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name
        assert name not in ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero"), name
        self.count += 1
        return function(*args, **kwargs or {})


def operations(task: LinkTask | NodeTask, members: int, **model: object) -> tuple[int, int]:
    """Number of operations of a step and of a validation pass."""
    networks, tasks, generators = zip(*runs([task] * members, model), strict=True)
    run = StackedTrainingState(networks, tasks, CONFIG, generators, "fast")
    run.device = torch.device("cuda")  # skips the check of every loss that a CPU run makes
    counts = []
    with check_nowhere():
        for call in (run.step, run._update_best):
            call()
            with Operations() as seen:
                call()
            counts.append(seen.count)
    return counts[0], counts[1]


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
def test_a_step_reads_nothing_on_the_host_and_needs_no_more_operations_for_more_runs(residual):
    few, many = (operations(LP, members, residual=residual) for members in (2, 7))
    assert many[0] - few[0] == 5  # one draw for each of the five additional generators
    assert many[1] == few[1]


def test_node_classification_reads_nothing_on_the_host_either():
    few, many = (operations(NC, members, dropout=0.3) for members in (2, 7))
    assert many[0] - few[0] < 0.05 * many[0]


def test_all_changing_tensors_keep_their_memory():
    networks, tasks, generators = zip(*runs(NC, {"dropout": 0.3}), strict=True)
    run = StackedTrainingState(networks, tasks, dataclasses.replace(CONFIG, average=0.9), generators, "fast")

    def addresses() -> list[int]:
        moments = [t for o in run.optimizers.optimizers for m in o.state.values() for t in m.values()]
        state = [t for t in vars(run.progress).values() if isinstance(t, Tensor)]
        return [t.data_ptr() for t in (*run.leaves, *run.kept, *run.average, *state, *moments)]

    run.train_epoch()
    run.validate()
    before = addresses()
    run.train_epoch()
    run.validate()
    assert addresses() == before


# --- runs that cannot be stacked --------------------------------------------------------------------------------------


def test_a_forked_generator_continues_from_torch_s_state():
    torch.manual_seed(5)
    torch.rand(3)
    own, expected = fork_generator("cpu"), torch.rand(4)
    assert torch.equal(torch.rand(4, generator=own), expected)


@pytest.mark.parametrize(
    ("made", "config", "message"),
    [
        (lambda: runs([LP, LP, NC]), CONFIG, "different classes or configurations"),
        (lambda: runs([LP, link_task(nodes=90)]), CONFIG, "different numbers of edges"),
        (
            lambda: runs([LP, dataclasses.replace(LP, num_nodes=81, x=torch.cat([LP.x, LP.x[:1]]))]),
            CONFIG,
            "different numbers of nodes or kinds of features",
        ),
        (lambda: runs(LP), dataclasses.replace(CONFIG, optimizer="sgd"), "trained with adam or adam_l2, not 'sgd'"),
        (
            lambda: [(m, objective(LP, 0, margin=i), g) for i, (m, _, g) in enumerate(runs(LP))],
            CONFIG,
            r"different loss and margin cannot be stacked \(\('margin', 0\) and \('margin', 1\)\)",
        ),
    ],
)
def test_runs_that_differ_are_refused(made, config, message):
    with pytest.raises(StackError, match=message):
        together(made, config)


def test_arguments_of_different_lengths_are_refused():
    networks, tasks, generators = zip(*runs(NC, {"dropout": 0.1}), strict=True)
    with pytest.raises(ValueError, match="models is empty"):
        train_many([], [], CONFIG)
    with pytest.raises(ValueError, match="got 3 models and 2 objectives"):
        train_many(networks, tasks[:2], CONFIG, generators=generators)
    with pytest.raises(ValueError, match="got 3 models and 1 generators"):
        train_many(networks, tasks, CONFIG, generators=generators[:1])
    with pytest.raises(ValueError, match="dropout needs one generator per model"):
        train_many(networks, tasks, CONFIG)
