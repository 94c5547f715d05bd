"""Tests of lorentz_gcnii: formula, GCNII of PyG, the limit for curvature 0, options, stacks, checkpointing, state."""

from __future__ import annotations

import copy
import dataclasses
import math

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GCN2Conv

import lresnet
from lresnet.data import LinkTask
from lresnet.models import LorentzGCNII, create_model
from lresnet.models.gcnii import CONNECTIONS
from lresnet.nn import SparseMatrix
from lresnet.optim.optimizers import parameter_groups
from lresnet.testing import assert_compiles, assert_finite_gradients
from lresnet.train import LinkPrediction, NodeClassification, TrainConfig, train_model
from lresnet.train.stacking import fork_generator, train_many
from tests.models.common import CLASSES, FEATURES, NODES, RESIDUALS, features, graph, parameters_of
from tests.train.tree import link_task, node_task

every_residual = pytest.mark.parametrize("residual", RESIDUALS)
every_connection = pytest.mark.parametrize("connection", CONNECTIONS)


def make(residual: str = "lorentz", **options: object) -> LorentzGCNII:
    torch.manual_seed(0)
    given = {"in_features": FEATURES, "hidden": 5, "num_classes": CLASSES, "residual": residual, "num_layers": 3}
    return LorentzGCNII(**given | options)


def simple_edges() -> Tensor:
    """Return the edges of the test graph in both directions, without duplicates and self loops."""
    edges = graph()[0]
    edges = torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1)
    return edges[:, edges[0] != edges[1]]


def share_parameters(source: LorentzGCNII, target: LorentzGCNII) -> None:
    own = target.state_dict()
    target.load_state_dict(own | {k: v for k, v in parameters_of(source.state_dict()).items() if k in own})


def test_the_euclidean_network_is_gcnii_of_pyg():
    model = make("euclidean", num_layers=64, hidden=16, alpha=0.2, theta=0.7).double().eval()
    x, edges = features(torch.float64), simple_edges()
    z = start = torch.relu(model.input_layer(x))
    for number, layer in enumerate(model.layers, 1):
        conv = GCN2Conv(16, alpha=0.2, theta=0.7, layer=number, shared_weights=True).double()
        with torch.no_grad():
            conv.weight1.copy_(layer.weight.T)
        z = torch.relu(conv(z, start, edges))
    torch.testing.assert_close(model.embed(x, edges), z, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model(x, edges), model.head(z), rtol=1e-10, atol=1e-10)


@every_connection
@pytest.mark.parametrize("options", [{}, {"norm": "batch"}, {"aggregation": "mean"}, {"skip": "linear"}], ids=str)
def test_the_limit_for_curvature_zero_is_the_euclidean_network(connection, options):
    if connection == "jumping":  # which has no skip branch that a matrix could map
        options = {name: value for name, value in options.items() if name != "skip"}
    options = {"connection": connection, "num_layers": 12, **options}
    flat = make("euclidean", **options).double()
    x, edges = features(torch.float64), simple_edges()
    errors = []
    for kappa in (1e-4, 1e-6):
        curved = make("lorentz", curvature=-kappa, **options).double()
        share_parameters(flat, curved)
        errors.append(float((curved(x, edges) - flat(x, edges)).detach().norm() / flat(x, edges).detach().norm()))
    assert errors[1] < 1e-5
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.1)  # proportional to kappa


def test_one_layer_is_the_formula_of_the_docstring():
    K, alpha = -0.5, 0.3
    model = make(curvature=K, num_layers=1, alpha=alpha, theta=1.0, aggregation="symmetric").double()
    x, edges = features(torch.float64), simple_edges()
    start = torch.relu(model.input_layer(x))
    A = torch.eye(NODES, dtype=torch.float64)
    A[edges[1], edges[0]] = 1
    degree = A.sum(1)
    A = A / degree.sqrt().outer(degree.sqrt())
    points = model.manifold.lift(start)
    sums = A @ points
    length = (-(sums[:, 1:].square().sum(1) - sums[:, 0].square())).sqrt()
    m = A.sum(1, keepdim=True) * sums[:, 1:] / length.unsqueeze(1) * (-1 / K) ** 0.5
    both = alpha * points + (1 - alpha) * model.manifold.lift(m)
    r = both[:, 1:] / ((both[:, 0].square() - both[:, 1:].square().sum(1)) * -K).sqrt().unsqueeze(1)
    beta, (layer,) = math.log(2.0), model.layers
    expected = torch.relu((1 - beta) * r + beta * r @ layer.weight.T)
    torch.testing.assert_close(model.embed(x, edges), expected)


def test_the_means_of_dense_and_jumping_networks_weigh_all_layers_equally():
    """In the Euclidean network, where the mean is the arithmetic one."""
    x, edges = features(torch.float64), simple_edges()
    for connection in ("dense", "jumping"):
        model = make("euclidean", connection=connection, num_layers=4, alpha=None if connection == "jumping" else 0.25)
        model = model.double()
        A = model.graph(edges, NODES)
        outputs = [torch.relu(model.input_layer(x))]
        for layer in model.layers:
            m, s = A @ outputs[-1], torch.stack(outputs).mean(0)
            r = 0.25 * s + 0.75 * m if connection == "dense" else m
            outputs.append(torch.relu((1 - layer.beta) * r + layer.beta * r @ layer.weight.T))
        expected = torch.stack(outputs).mean(0) if connection == "jumping" else outputs[-1]
        torch.testing.assert_close(model.embed(x, edges), expected)


@every_residual
@every_connection
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_shapes_and_gradients_of_all_parameters(residual, connection, sparse):
    options = {"norm": "layer", "dropout": 0.3, "curvature": -0.5, "connection": connection}
    options["learn_alpha"] = connection != "jumping"
    model = make(residual, **options, learn_curvature=True, theta=1.5)
    x = features().to_sparse() if sparse else features()
    logits = model(x, *graph())
    assert logits.shape == (NODES, CLASSES)
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        if residual in ("space", "none") and name == "manifold.log_kappa":
            continue  # without a curved residual the aggregation still depends on it, except in rare cases
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert make(residual, num_classes=None)(x, *graph()).shape == (NODES, 5)


@pytest.mark.parametrize("head", ["linear", "prototypes", "mlr"])
@pytest.mark.parametrize("skip", ["identity", "linear"])
def test_heads_and_skips(head, skip):
    model = make(head=head, skip=skip, norm="batch", identity_map=False, connection="chain")
    batch = torch.tensor([0] * 6 + [1] * 8)
    assert model(features(), *graph(), batch).shape == (2, CLASSES)
    assert_finite_gradients(lambda x: model(x, *graph()), features())
    assert (model.layers[0].skip_weight is not None) == (skip == "linear")


def test_embeddings_without_a_head_are_not_confined_to_one_orthant():
    assert (make(num_classes=None).embed(features(), *graph()) < 0).any()
    assert (make().embed(features(), *graph()) >= 0).all()


def test_alphas_are_reported_and_learned():
    assert make(num_layers=4).alphas == pytest.approx([0.1] * 4)
    assert make(connection="chain").alphas == pytest.approx([0.5] * 3)
    assert make("none").alphas == []
    assert make(connection="jumping").alphas == []
    assert "weights=(0.1, 0.9)" in repr(make(alpha=0.1).layers[0])  # of the skip branch and of the layer
    for residual in ("lorentz", "euclidean", "tangent"):
        model = make(residual, learn_alpha=True, alpha=0.3)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
        model(features(), *graph()).square().sum().backward()
        optimiser.step()
        assert all(0 < alpha < 1 for alpha in model.alphas)
        assert all(alpha != pytest.approx(0.3, abs=1e-4) for alpha in model.alphas)
        assert len(parameter_groups(model).geometric) == 3


@every_residual
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_prepared_inputs_give_the_same_output_as_raw_ones(residual, sparse):
    model = make(residual, dropout=0.4)
    x = SparseMatrix.from_dense(features()) if sparse else features()
    edge_index, weight = graph()
    points, A = model.input_points(x), model.graph(edge_index, NODES, weight)
    results = []
    for inputs in ((x, edge_index, weight), (points, A), (x, A), (points, edge_index, weight)):
        torch.manual_seed(5)
        results.append(model(*inputs))
    assert all(torch.equal(a, results[0]) for a in results)


@every_residual
def test_saved_and_loaded_models_compute_the_same(residual, tmp_path):
    options = {"norm": "batch", "connection": "dense", "num_layers": 4}
    model = create_model("lorentz_gcnii", residual=residual, in_features=FEATURES, num_classes=CLASSES, **options)
    model(features(), *graph())  # gives the norms running statistics
    model.eval()
    loaded = lresnet.from_pretrained(model.save_pretrained(tmp_path / "model")).eval()
    assert torch.equal(loaded(features(), *graph()), model(features(), *graph()))
    copied = copy.deepcopy(model)
    assert torch.equal(copied(features(), *graph()), model(features(), *graph()))


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_activation_checkpointing_changes_neither_results_nor_gradients(connection):
    options = {"num_layers": 7, "dropout": 0.4, "connection": connection, "norm": "batch"}
    results = []
    for active in (False, True):
        model = make(**options, activation_checkpointing=active)
        torch.manual_seed(3)
        loss = model(features(), *graph()).square().sum()
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters()), *model.buffers(), torch.get_rng_state()])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    model = make(**options, activation_checkpointing=True).eval()
    assert torch.equal(model(features(), *graph()), make(**options).eval()(features(), *graph()))


def test_activation_checkpointing_allows_a_second_backward_pass():
    model = make(num_layers=4, dropout=0.4, norm="batch", activation_checkpointing=True)
    loss = model(features(), *graph()).square().sum()
    loss.backward(retain_graph=True)
    once = [parameter.grad.clone() for parameter in model.parameters()]
    statistics = [buffer.clone() for buffer in model.buffers()]
    loss.backward()
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], [2 * grad for grad in once])
    assert all(map(torch.equal, model.buffers(), statistics))


def test_activation_checkpointing_stores_less():
    """The bytes of the tensors that autograd keeps for the backward pass."""

    def stored(layers: int, active: bool) -> int:
        model = make(num_layers=layers, dropout=0.4, hidden=16, activation_checkpointing=active)
        kept: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        x = torch.randn(300, FEATURES)
        edges = torch.randint(300, (2, 900))
        A = model.graph(edges, 300)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(model.input_points(x), A)
        return sum(kept.values())

    assert stored(64, active=True) < 2 * stored(8, active=False) < stored(64, active=False)


@pytest.mark.parametrize(
    ("residual", "options"),
    [
        ("lorentz", {"norm": "batch"}),
        ("lorentz", {"connection": "dense", "learn_alpha": True, "learn_curvature": True}),
        ("euclidean", {"norm": "layer", "skip": "linear", "connection": "chain"}),
        ("tangent", {"connection": "jumping", "activation_checkpointing": True}),
        ("lorentz", {"activation_checkpointing": True, "head": "prototypes"}),
        ("lorentz", {"head": "mlr", "learn_curvature": True}),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["node", "link"])
def test_a_stack_trains_as_its_members_do_alone(residual, options, kind):
    task = node_task() if kind == "node" else link_task()
    task = dataclasses.replace(task, x=task.x.double())
    config = TrainConfig(
        epochs=6, lr=0.02, weight_decay=1e-3, layer_decay=0.1, optimizer="adam_l2", eval_every=2, keep="last"
    )
    classes = None if isinstance(task, LinkTask) else task.num_classes
    sizes = {"in_features": task.x.shape[1], "hidden": 6, "num_layers": 4, "num_classes": classes, "dropout": 0.3}

    def runs() -> list[tuple[LorentzGCNII, object, torch.Generator]]:
        made = []
        for seed in range(3):
            torch.manual_seed(seed)
            model = LorentzGCNII(residual=residual, **sizes | options).double()
            objective = LinkPrediction(task, seed=seed) if classes is None else NodeClassification(task)
            made.append((model, objective, fork_generator("cpu")))
        return made

    alone = []
    for model, objective, generator in runs():
        torch.set_rng_state(generator.get_state())
        alone.append((model, train_model(model, objective, config)))
    models, objectives, generators = zip(*runs(), strict=True)
    outcomes = train_many(models, objectives, config, generators=generators)
    for (single, _), member in zip(alone, models, strict=True):
        for (name, p), q in zip(single.named_parameters(), member.parameters(), strict=True):
            torch.testing.assert_close(q, p, rtol=1e-6, atol=1e-9, msg=name)
        for (name, buffer), other in zip(single.named_buffers(), member.buffers(), strict=True):
            torch.testing.assert_close(other, buffer, rtol=1e-6, atol=1e-9, msg=name)
    has_norms = options.get("norm") == "batch"
    assert {each.norm_statistics for each in outcomes} == {"reestimated" if has_norms else None}
    if not has_norms:  # a stack validates by the biased variance of the nodes, and running variances are unbiased
        assert [each.validation for each in outcomes] == pytest.approx([one.validation for _, one in alone])


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's tracer
def test_compiles_into_one_graph():
    model = make(num_layers=2, norm="layer").eval()
    A = model.graph(*(graph()[0], NODES, graph()[1]))
    A.has_empty_rows()
    assert_compiles(lambda x: model(x, A), features())


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # torch's tracer
def test_activation_checkpointing_is_left_to_the_compiler():
    models = [make(num_layers=3, activation_checkpointing=active) for active in (False, True)]
    A = models[0].graph(*(graph()[0], NODES, graph()[1]))
    compiled = torch.compile(models[1], fullgraph=True, backend="aot_eager")
    for model, call in zip(models, (models[0], compiled), strict=True):
        call(features(), A).square().sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(other.grad, one.grad)


@pytest.mark.parametrize("sparse", [False, True])
def test_features_of_another_width_are_named(sparse):
    x = features()[:, :-1]
    with pytest.raises(
        ValueError, match=rf"was built for features \[N, {FEATURES}\], got shape \({NODES}, {FEATURES - 1}\)"
    ):
        make()(x.to_sparse() if sparse else x, *graph())


def test_half_precision_and_autocast():
    model = make(num_layers=4).eval()
    x, edges = features(), simple_edges()
    expected = model(x, edges)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model(x, edges)
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.05)


def test_decay_of_the_layers_is_a_setting_of_its_own():
    model = make("euclidean", learn_alpha=True)
    optimizers = lresnet.optim.make_adam_l2(model, 0.01, 5e-4, decay="all", layer_decay=0.01)
    rates = {id(p): group["weight_decay"] for group in optimizers.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        geometric = name.endswith("raw_weight")
        expected = 0.0 if geometric else 0.01 if name.startswith("layers.") else 5e-4
        assert rates[id(parameter)] == expected, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"connection": "sideways"}, "connection must be one of initial, chain, dense, jumping, got 'sideways'"),
        ({"alpha": 1.0}, "alpha must be above 0 and below 1, got 1.0"),
        ({"alpha": "0.1"}, "alpha must be above 0 and below 1, got '0.1'"),
        ({"alpha": 1e-30}, "alpha must be above 0 and below 1, got 1e-30"),
        ({"theta": 2.0}, "theta must be above 0 and at most e - 1"),
        ({"theta": math.nan}, "theta must be above 0 and at most e - 1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"num_layers": 0}, "num_layers must be at least 1"),
        ({"num_layers": 2.5}, "num_layers must be at least 1, got 2.5"),
        ({"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ({"max_radius": -1.0}, "max_radius must be positive and finite, got -1.0"),
        ({"max_radius": math.nan}, "max_radius must be positive and finite, got nan"),
        ({"residual_options": {"weight": 2.0}}, "set by alpha"),
        ({"connection": "jumping", "alpha": 0.5}, "has no skip branch inside a layer"),
        ({"connection": "jumping", "residual_options": {"scale": "1+w"}}, "has no skip branch inside a layer"),
        ({"skip": "linear", "residual": "none"}, "residual='none' ignores it"),
        ({"skip": "linear", "connection": "jumping"}, "connection='jumping' has none"),
        ({"head": "mlr", "residual": "euclidean"}, "the Euclidean baseline has the linear head only"),
    ],
)
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_a_network_of_64_layers_keeps_distances_and_gradients():
    """Before training, the last layer still separates the nodes, and every layer receives a gradient."""
    model = make(num_layers=64, hidden=16, curvature=-0.1)
    z = model.embed(features(), simple_edges())
    assert (
        model.manifold.dist(z[:-1], z[1:]).mean()
        > 0.1
        * model.manifold.dist(
            torch.relu(model.input_layer(features()))[:-1], torch.relu(model.input_layer(features()))[1:]
        ).mean()
    )
    model(features(), simple_edges()).square().sum().backward()
    norms = torch.stack([layer.weight.grad.norm() for layer in model.layers])
    assert norms.min() > 0


@pytest.mark.parametrize("aggregation", ["symmetric", "mean"])
@pytest.mark.parametrize("residual", ["lorentz", "none", "euclidean"])
def test_gradients_of_edge_weights(residual, aggregation):
    model, x = make(residual, aggregation=aggregation).double(), features(torch.float64)
    edge_index, weight = graph()
    weight = weight.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda own: model(x, edge_index, own), (weight,))
    derivative, total = torch.func.grad_and_value(lambda own: model(x, edge_index, own).sum())(weight.detach())
    (own,) = torch.autograd.grad(model(x, edge_index, weight).sum(), weight)
    torch.testing.assert_close(derivative, own)
    torch.testing.assert_close(total, model(x, edge_index, weight.detach()).sum())
