"""Tests of lorentz_sgformer: every residual, both kinds of branches, learned weights, the Euclidean baseline."""

from __future__ import annotations

import itertools

import geoopt
import pytest
import torch
from torch_geometric.nn import GCNConv

from lresnet.geometry import ManifoldModule
from lresnet.models import LorentzSGFormer
from lresnet.nn import SparseMatrix
from lresnet.nn.input_map import features_to_points
from lresnet.optim import parameter_groups
from lresnet.testing import assert_finite_gradients, assert_on_manifold
from tests.models.common import CLASSES, FEATURES, NODES, RESIDUALS, features, graph
from tests.models.sgformers import CASES, both_branches, every_case, make, no_dropout, one_graph

# --- the formulas -----------------------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_shapes_and_gradients_of_all_parameters(residual, branches, learned, sparse):
    options = {"learn_curvature": learned, "learn_graph_weight": learned, "branches": branches, "dropout": 0.2}
    model = make(residual, curvature=-2.0, **options)
    x = SparseMatrix.from_dense(features()) if sparse else features()
    logits = model(x, *graph())
    assert logits.shape == (NODES, CLASSES)
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        if residual == "none" and "attentions" in name:  # only the graph branch is used
            assert parameter.grad is None or not parameter.grad.any(), name
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
    assert make(residual, num_classes=None, branches=branches)(x, *graph()).shape == (NODES, 5)


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("residual", ["lorentz", "tangent", "euclidean"])
def test_euclidean_branches_equal_the_formulas_of_sgformer(residual, norm):
    model = make(residual, curvature=-0.5, num_layers=3, norm=norm, attention_weight=0.3, graph_weight=0.7).double()
    x, (edge_index, weight) = features(torch.float64), graph()
    edge_index, keep = edge_index[:, edge_index[0] != edge_index[1]], edge_index[0] != edge_index[1]
    weight = weight[keep].double()
    nu = torch.nn.LayerNorm(5, dtype=torch.float64) if norm == "layer" else torch.nn.Identity()
    branches = model.branches
    for conv in branches.convs:
        torch.nn.init.normal_(conv.linear.bias)  # the initial bias, 0, would not show where it is added
    start = torch.relu(nu(branches.input(x)))
    z = start
    for attention in branches.attentions:
        z = nu(0.7 * z + 0.3 * attention(z))
    g = start
    for i, conv in enumerate(branches.convs):
        pyg = GCNConv(5, 5).double()
        pyg.lin.weight, pyg.bias = conv.linear.weight, conv.linear.bias
        g = pyg(torch.relu(nu(g)) if i else g, edge_index, weight)
    alpha, exp = 0.7, lambda u: features_to_points(u, 0.5).x
    if residual == "euclidean":
        expected = (1 - alpha) * z + alpha * g
    elif residual == "lorentz":
        expected = model.manifold.centroid(
            torch.stack([exp(z), exp(g)], 1), torch.tensor([1 - alpha, alpha]).double().expand(NODES, 2)
        )
    else:
        expected = model.join.residual(exp((1 - alpha) * z), exp(alpha * g))
    torch.testing.assert_close(model.embed(x, edge_index, weight), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(model(x, edge_index, weight), model.head(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("residual", RESIDUALS)
def test_branches_with_the_options_of_the_released_code_equal_its_formulas(residual, sparse):
    """Convolutions of the features, and values without a matrix."""
    model = make(residual, num_layers=3, graph_input="features", values="identity", heads=1).double()
    x, (edge_index, _) = features(torch.float64), graph()
    A, branches = model.graph(edge_index, NODES), model.branches
    for conv in branches.convs:
        torch.nn.init.normal_(conv.linear.bias)
    z = torch.relu(branches.input(x))
    for attention in branches.attentions:
        q, k = attention.query(z), attention.key(z)
        weights = torch.eye(NODES) + (q / q.norm()) @ (k / k.norm()).T / NODES
        z = 0.5 * z + 0.5 * (weights / weights.sum(-1, keepdim=True)) @ z
    g = x
    for i, conv in enumerate(branches.convs):
        g = A @ ((torch.relu(g) if i else g) @ conv.linear.weight.T) + conv.linear.bias
    expected = model.head(model.join.of_vectors(z, g))
    torch.testing.assert_close(model(SparseMatrix.from_dense(x) if sparse else x, edge_index), expected)
    names = [name for name, _ in model.named_parameters()]
    assert not any("value" in name for name in names)


@pytest.mark.parametrize("residual", [kind for kind in RESIDUALS if kind != "euclidean"])
def test_lorentz_branches_use_the_residual_for_every_skip(residual):
    model = make(residual, curvature=-0.5, branches="lorentz", graph_weight=0.6).double()
    x, (edge_index, _) = features(torch.float64), graph()
    A, branches = model.graph(edge_index, NODES), model.branches
    start = branches.input(features_to_points(x, 0.5).x)
    z = start
    for attention, join in zip(branches.attentions, branches.joins, strict=True):
        z = join(z, attention(torch.relu(z)))
    g = branches.convs[0](torch.relu(start), A)
    for conv, skip in zip(branches.convs[1:], branches.residuals, strict=True):
        g = skip(g, conv(torch.relu(g), A))
    y = model.embed(x, edge_index)
    torch.testing.assert_close(y, model.join(z, g))
    assert_on_manifold(y, model.manifold)
    kinds = {type(skip) for skip in (*branches.residuals, *(join.residual for join in branches.joins))}
    assert kinds == {type(model.join.residual)}


@every_case
def test_every_configuration_gives_a_different_network(residual, branches):
    x, (edge_index, weight) = features(), graph()
    found = make(residual, branches=branches)(x, edge_index, weight)
    for other, kind in CASES:
        if (other, kind) != (residual, branches):
            assert not torch.equal(found, make(other, branches=kind)(x, edge_index, weight))


@both_branches
def test_the_order_of_nodes_does_not_matter(branches):
    model = make(branches=branches).double().eval()
    x, (edge_index, weight) = features(torch.float64), graph()
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(2))
    position = torch.argsort(order)  # new index of each node
    y = model(x, edge_index, weight.double())
    torch.testing.assert_close(model(x[order], position[edge_index], weight.double()), y[order])


# --- attention --------------------------------------------------------------------------------------------------------


@both_branches
@pytest.mark.parametrize("layer", [0, 1])
def test_attention_rows_sum_to_one_and_belong_to_the_layer(branches, layer):
    model = make(branches=branches).double().eval()
    x = features(torch.float64)
    nodes = torch.tensor([3, 0, 13])
    rows = model.attention(x, nodes, layer)
    assert rows.shape == (3, NODES)
    torch.testing.assert_close(rows.sum(-1), torch.ones(3, dtype=torch.float64))
    assert not torch.allclose(rows, model.attention(x, nodes, 1 - layer))
    start = model.branches.start(model.input_points(x), no_dropout)
    z = model.branches.attend(start, no_dropout, layer)
    z = torch.relu(z) if branches == "lorentz" else z
    assert torch.equal(rows, model.branches.attentions[layer].rows(z, nodes))


def test_wrong_attention_layers_are_rejected():
    for layer in (-1, 2):
        with pytest.raises(ValueError, match=f"layer must be 0 to 1, as there are 2 attention layers, got {layer}"):
            make().attention(features(), torch.tensor([0]), layer)


# --- curvature, weights, baseline ------------------------------------------------------------------------------------


@every_case
def test_a_learned_curvature_has_one_owner(residual, branches):
    model = make(residual, branches=branches, learn_curvature=True)
    keys = [key for key in model.state_dict() if "kappa" in key]
    assert keys == ([] if residual == "euclidean" else ["manifold.log_kappa"])
    owners = [module.manifold for module in model.modules() if isinstance(module, ManifoldModule)]
    assert all(manifold is model.manifold for manifold in owners)


@both_branches
def test_the_output_depends_on_the_curvature(branches):
    x, (edge_index, _) = features(), graph()
    a, b = (make(branches=branches, curvature=K)(x, edge_index) for K in (-0.5, -2.0))
    assert not torch.allclose(a, b, rtol=0.01)


def test_the_graph_weight_selects_between_the_branches():
    x, (edge_index, _) = features(), graph()
    for residual in ("lorentz", "space", "tangent", "parallel_transport", "euclidean"):
        graph_only = make(residual, graph_weight=1 - 1e-6, num_classes=None)(x, edge_index)
        attention_only = make(residual, graph_weight=1e-6, num_classes=None)(x, edge_index)
        assert torch.allclose(
            attention_only[:1],
            make(residual, graph_weight=1e-6, num_classes=None)(x, edge_index[:, :0])[:1],
            atol=1e-4,
        )
        none = make("none" if residual != "euclidean" else residual, graph_weight=1 - 1e-6, num_classes=None)
        assert torch.allclose(graph_only, none(x, edge_index), atol=1e-4)
        assert not torch.allclose(graph_only, attention_only, atol=1e-2)


def test_learned_weights_have_no_weight_decay():
    groups = parameter_groups(make(learn_graph_weight=True, learn_curvature=True))
    assert set(groups.geometric) == {"manifold.log_kappa", "join.residual.raw_weight"}
    assert set(groups.manifold) == {"head.points"}
    assert set(parameter_groups(make("space", learn_graph_weight=True)).geometric) == {"join.raw_weight"}


def test_the_euclidean_baseline_has_no_manifold_parameter():
    baseline = make("euclidean", learn_curvature=True)
    assert not any(isinstance(p, geoopt.ManifoldParameter) for p in baseline.parameters())
    assert not list(baseline.manifold.parameters())
    assert isinstance(baseline.head, torch.nn.Linear)


# --- inputs -----------------------------------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_prepared_inputs_give_the_same_output_as_raw_ones(residual, branches, sparse):
    model = make(residual, branches=branches, dropout=0.4)
    x = SparseMatrix.from_dense(features()) if sparse else features()
    edge_index, weight = graph()
    points, A = model.input_points(x), model.graph(edge_index, NODES, weight)
    results = []
    for inputs in ((x, edge_index, weight), (points, A), (x, A), (points, edge_index, weight)):
        torch.manual_seed(5)
        results.append(model(*inputs))
    for a, b in itertools.pairwise(results):
        assert torch.equal(a, b)
    dense = model.eval()(features(), edge_index, weight)
    torch.testing.assert_close(model(x, edge_index, weight), dense, rtol=1e-4, atol=1e-4)


@every_case
def test_gradients_are_finite_for_isolated_nodes_without_edges_and_for_a_single_node(residual, branches):
    none = torch.empty(2, 0, dtype=torch.int64)
    alone = make(residual, branches=branches, self_loops=False)
    assert_finite_gradients(lambda x: alone(x, *graph()), features())
    assert_finite_gradients(lambda x: alone(x, none), features())
    model = make(residual, branches=branches)
    assert_finite_gradients(lambda x: model(x, *graph()), features())
    assert_finite_gradients(lambda x: model(x, none), features())
    assert_finite_gradients(lambda x: model(x, none), features()[:1])
    assert_finite_gradients(lambda x: model(x, none), torch.zeros(3, FEATURES))
    assert model.attention(features()[:1], torch.tensor([0])).tolist() == [[pytest.approx(1.0)]]


@every_case
def test_dropout_is_active_in_training_only(residual, branches):
    model, (edge_index, weight) = make(residual, branches=branches, dropout=0.5), graph()
    x = features()
    assert not torch.equal(model(x, edge_index, weight), model(x, edge_index, weight))
    y = model.eval()(x, edge_index, weight)
    assert torch.equal(y, make(residual, branches=branches).eval()(x, edge_index, weight))


@both_branches
def test_gradients_in_float64(branches):
    model = make(branches=branches, learn_curvature=True, learn_graph_weight=True, num_classes=2).double()
    x, (edge_index, _) = features(torch.float64)[:5, :].requires_grad_(), graph()
    edge_index = edge_index[:, (edge_index < 5).all(0)]
    assert torch.autograd.gradcheck(lambda x: model(x + 0.1, edge_index), (x,))


@pytest.mark.parametrize(
    ("residual", "branches", "sparse"),
    [
        ("lorentz", "euclidean", False),
        ("lorentz", "euclidean", True),
        ("tangent", "euclidean", False),
        ("lorentz", "lorentz", False),
    ],
)
@pytest.mark.slow
@one_graph
def test_the_model_compiles_without_a_graph_break(residual, branches, sparse):
    """The adjacency is built before; a sparse product is one node of the compiled graph."""
    assert_compiles_without_break(residual, branches, sparse, "aot_eager")


@pytest.mark.slow
@one_graph
@pytest.mark.parametrize("branches", ["euclidean", "lorentz"])
def test_the_model_compiles_with_inductor(branches):
    assert_compiles_without_break("lorentz", branches, False, "inductor")


def assert_compiles_without_break(residual: str, branches: str, sparse: bool, backend: str) -> None:
    model = make(residual, branches=branches, learn_graph_weight=True).double()
    A, results = model.graph(graph()[0], NODES), []
    x = SparseMatrix.from_dense(features(torch.float64) + 0.1) if sparse else features(torch.float64) + 0.1
    torch.compiler.reset()
    for network in (model, torch.compile(model, fullgraph=True, backend=backend)):
        model.zero_grad()
        y = network(x, A)
        y.square().sum().backward()
        results.append([y.detach(), *(parameter.grad for parameter in model.parameters())])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-7, atol=1e-7)


# --- wrong input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"branches": "poincare"}, "branches must be one of euclidean, lorentz, got 'poincare'"),
        ({"norm": "batch"}, "norm must be one of none, layer, got 'batch'"),
        ({"branches": "lorentz", "residual": "euclidean"}, "needs a residual on the hyperboloid, got residual='euclid"),
        ({"branches": "lorentz", "norm": "layer"}, "norms are for Euclidean branches; use norm='none'"),
        ({"graph_input": "raw"}, "graph_input must be one of embedding, features, got 'raw'"),
        ({"values": "none"}, "values must be one of matrix, identity, got 'none'"),
        ({"branches": "lorentz", "values": "identity"}, "values='identity' is for Euclidean branches; use 'matrix'"),
        ({"branches": "lorentz", "graph_input": "features"}, "is for Euclidean branches; use 'embedding' with"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"attention_layers": 0}, "attention_layers must be at least 1, got 0"),
        ({"hidden": 0}, "hidden must be at least 1, got 0"),
        ({"residual_options": {"weight": 2.0}}, "must not contain 'weight'; set the weight with graph_weight"),
        ({"dropout": 1.0}, r"dropout must be at least 0 and below 1, got 1\.0"),
        ({"graph_weight": 1.0}, r"must be above 0 and below 1, got 1\.0"),
        ({"residual": "lorenz"}, "unknown residual 'lorenz'; did you mean 'lorentz'"),
        ({"curvature": 1.0}, "curvature must be negative"),
    ],
)
def test_wrong_arguments_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_wrong_inputs_are_rejected():
    with pytest.raises(TypeError, match=r"features must be floating point, got torch.int64; .*x\.float\(\)"):
        make()(torch.ones(NODES, FEATURES, dtype=torch.int64), graph()[0])
    with pytest.raises(ValueError, match="edge_index has node 14, but nodes are 0 to 13"):
        make()(features(), torch.tensor([[0], [NODES]]))


@both_branches
def test_wrong_widths_of_features_and_wrong_nodes_are_rejected(branches):
    model = make(branches=branches)
    for wrong in (features()[:, 1:], features()[0]):
        with pytest.raises(ValueError, match=rf"built for features \[N, {FEATURES}\], got shape \("):
            model(wrong, graph()[0])
    for number in (-1, NODES):
        with pytest.raises(ValueError, match=f"nodes has {number}, but nodes are 0 to 13"):
            model.attention(features(), torch.tensor([0, number]))
    for wrong in (torch.tensor(0), torch.tensor([0.0])):
        with pytest.raises(ValueError, match=r"nodes must be integers of shape \[R\], got torch"):
            model.attention(features(), wrong)


def test_the_initial_prototypes_are_where_the_option_puts_them():
    for K in (-1e-6, -4.0):
        torch.manual_seed(0)
        model = LorentzSGFormer(6, 64, num_classes=100, curvature=K, prototype_distance=1.0)
        distances = model.manifold.dist0(model.head.points.detach())
        assert float(distances.mean()) == pytest.approx(1.0, rel=0.05)
        assert model.config["prototype_distance"] == 1.0


@both_branches
def test_a_graph_without_nodes(branches):
    model = make(branches=branches)
    assert model(features()[:0], torch.zeros(2, 0, dtype=torch.int64)).shape == (0, CLASSES)
