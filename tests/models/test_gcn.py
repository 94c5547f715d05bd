"""Tests of lorentz_gcn: every residual, fixed and learned curvature, cached inputs, the Euclidean baseline."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import SimpleConv

from lresnet.models import LorentzGCN, create_model, gcn
from lresnet.nn import EuclideanGraphConv, LorentzGraphConv, SparseMatrix, adjacency
from lresnet.nn.input_map import features_to_points
from lresnet.residual import make_residual
from lresnet.testing import assert_finite_gradients
from tests.models.common import CLASSES, FEATURES, NODES, RESIDUALS, features, graph, parameters_of

every_residual = pytest.mark.parametrize("residual", RESIDUALS)


def make(residual: str = "lorentz", **options: object) -> LorentzGCN:
    torch.manual_seed(0)
    return LorentzGCN(**{"in_features": FEATURES, "hidden": 5, "num_classes": CLASSES, "residual": residual} | options)


@every_residual
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_shapes_and_gradients_of_all_parameters(residual, learned, sparse):
    model = make(residual, learn_curvature=learned, curvature=-2.0, dropout=0.3)
    x = SparseMatrix.from_dense(features()) if sparse else features()
    logits = model(x, *graph())
    assert logits.shape == (NODES, CLASSES)
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
    assert make(residual, num_classes=None)(x, *graph()).shape == (NODES, 5)


@every_residual
def test_the_model_is_the_formula_of_its_docstring(residual):
    model = make(residual, curvature=-0.5, num_layers=4, activation="relu").double().eval()
    x, (edge_index, weight) = features(torch.float64), graph()
    A = model.graph(edge_index, NODES, weight.double())
    points = x if residual == "euclidean" else features_to_points(x, 0.5).x
    z = model.layers[0](points, A)
    for layer, join in zip(model.layers[1:], model.residuals, strict=True):
        z = join(z, layer(torch.relu(z), A))
    expected = model.head(z)
    torch.testing.assert_close(model(x, edge_index, weight.double()), expected)
    torch.testing.assert_close(model.embed(x, edge_index, weight.double()), z)
    assert len(model.residuals) == 3
    plain = make(residual, curvature=-0.5, num_layers=4).double().eval()
    assert not torch.equal(plain(x, edge_index), model(x, edge_index))  # the activation has an effect


@every_residual
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_model_with_the_space_layer_is_linear_maps_and_centroids(residual, sparse):
    """The centroids are computed by the manifold's own function."""
    model = make(residual, layer="space", num_layers=2, activation="relu", curvature=-0.5).double().eval()
    x, (edge_index, _) = features(torch.float64), graph()
    A = model.graph(edge_index, NODES)

    def convolve(layer: torch.nn.Module, x: Tensor) -> Tensor:
        h = x @ layer.linear.weight.T + layer.linear.bias
        if residual == "euclidean":  # the same linear maps
            return A @ h
        rows = [(A.col[A.row == node], A.values[A.row == node].double()) for node in range(NODES)]
        return torch.stack([model.manifold.centroid(h[columns], weights) for columns, weights in rows])

    points = x if residual == "euclidean" else features_to_points(x, 0.5).x
    z = convolve(model.layers[0], points)
    expected = model.head(model.residuals[0](z, convolve(model.layers[1], torch.relu(z))))
    torch.testing.assert_close(model(SparseMatrix.from_dense(x) if sparse else x, edge_index), expected)


def test_an_unknown_layer_is_rejected_for_every_residual():
    for residual in ("lorentz", "euclidean"):
        with pytest.raises(ValueError, match="layer must be one of hybonet, space, hyperplane, got 'linear'"):
            make(residual, layer="linear")


@every_residual
def test_every_residual_gives_a_different_network(residual):
    others = [kind for kind in RESIDUALS if kind != residual]
    # "space" and "euclidean" add the same way, but their layers differ.
    x, (edge_index, weight) = features(), graph()
    found = make(residual)(x, edge_index, weight)
    for other in others:
        assert not torch.equal(found, make(other)(x, edge_index, weight))


def test_the_default_lorentz_weight_is_1_and_options_are_passed_on():
    model = make()
    assert [float(r.raw_weight) for r in model.residuals] == [1.0, 1.0]
    assert not any("raw_weight" in name for name, _ in model.named_parameters())
    scaled = make(residual_options={"scale": 2.0})  # another option does not change the weight
    assert not any("raw_weight" in name for name, _ in scaled.named_parameters())
    learned = make(residual_options={"weight": "learned", "scale": 2.0})
    assert sum("raw_weight" in name for name, _ in learned.named_parameters()) == 2
    assert float(learned.residuals[0].scale) == pytest.approx(2.0)
    with pytest.raises(TypeError, match="residual 'space' has no option 'weight'"):
        make("space", residual_options={"weight": 1.0})


# --- curvature --------------------------------------------------------------------------------------------------------


@every_residual
def test_a_learned_curvature_is_one_parameter_under_one_key(residual):
    keys = [key for key in make(residual, learn_curvature=True).state_dict() if "kappa" in key]
    assert keys == ([] if residual == "euclidean" else ["manifold.log_kappa"])
    assert not [key for key in make(residual).state_dict() if "kappa" in key]


def test_the_euclidean_baseline_has_no_manifold_parameter():
    import geoopt

    baseline = make("euclidean", learn_curvature=True)
    assert not any(isinstance(p, geoopt.ManifoldParameter) for p in baseline.parameters())
    assert not list(baseline.manifold.parameters())
    assert all(isinstance(layer, EuclideanGraphConv) for layer in baseline.layers)
    assert isinstance(baseline.head, torch.nn.Linear)
    assert sum(isinstance(p, geoopt.ManifoldParameter) for p in make().parameters()) == 1


def test_the_euclidean_baseline_is_a_residual_network_of_pyg_s_mean_aggregation():
    baseline = make("euclidean", num_layers=3, activation="relu").double().eval()
    x, (edge_index, _) = features(torch.float64), graph()
    edge_index = edge_index[:, edge_index[0] != edge_index[1]].unique(dim=1)  # PyG would add a second self loop
    mean = SimpleConv(aggr="mean", combine_root="self_loop")
    first, *others = [layer.linear for layer in baseline.layers]
    z = mean(first(x), edge_index)
    for linear in others:
        z = z + mean(linear(torch.relu(z)), edge_index)
    torch.testing.assert_close(baseline.embed(x, edge_index), z)


@pytest.mark.parametrize("K", [-0.5, -2.0])
def test_the_curvature_only_sets_the_unit_of_length(K):
    """On one hyperboloid, with lengths in radii of curvature, K does not change the result."""
    one, other = make(curvature=-1.0, num_classes=None).double(), make(curvature=K, num_classes=None).double()
    radius = (-K) ** -0.5
    x, (edge_index, weight) = features(torch.float64), graph()
    with torch.no_grad():
        for a, b in zip(one.layers, other.layers, strict=True):
            b.linear.load_state_dict(parameters_of(a.linear.state_dict()))
            b.linear.log_scale.add_(torch.tensor(radius).log())
            b.linear.floor = a.linear.floor * radius
            b.linear.weight.mul_(1 / radius)
            b.linear.time_weight.mul_(1 / radius)
    torch.testing.assert_close(other(radius * x, edge_index, weight), radius * one(x, edge_index, weight))


def test_a_learned_curvature_changes_the_output_and_all_layers_share_it():
    model = make(learn_curvature=True).eval()
    assert all(module.manifold is model.manifold for module in (*model.layers, *model.residuals, model.head))
    assert all(layer.linear.manifold is model.manifold for layer in model.layers)
    before = model(features(), *graph())
    with torch.no_grad():
        model.manifold.log_kappa.fill_(torch.tensor(2.0).log())
    after = model(features(), *graph())
    assert not torch.allclose(before, after, rtol=0.01)
    fixed = make(curvature=-2.0).eval()
    fixed.load_state_dict({key: value for key, value in model.state_dict().items() if key != "manifold.log_kappa"})
    torch.testing.assert_close(fixed(features(), *graph()), after)


# --- inputs -----------------------------------------------------------------------------------------------------------


@every_residual
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("learned", [False, True], ids=["fixed", "learned"])
def test_prepared_inputs_give_the_same_output_as_raw_ones(residual, sparse, learned):
    model = make(residual, dropout=0.4, learn_curvature=learned)
    x = SparseMatrix.from_dense(features()) if sparse else features()
    edge_index, weight = graph()
    points, A = model.input_points(x), model.graph(edge_index, NODES, weight)
    results = []
    for inputs in ((x, edge_index, weight), (points, A), (x, A), (points, edge_index, weight)):
        torch.manual_seed(5)
        results.append(model(*inputs))
    for a, b in itertools.pairwise(results):
        assert torch.equal(a, b)


@every_residual
def test_sparse_features_give_the_same_output_as_dense_ones(residual):
    model = make(residual, curvature=-2.0).double()
    x = features(torch.float64)
    torch.testing.assert_close(model(SparseMatrix.from_dense(x), *graph()), model(x, *graph()))


def test_gradients_are_finite_for_isolated_nodes_and_without_edges():
    none = torch.empty(2, 0, dtype=torch.int64)
    for residual, self_loops in itertools.product(RESIDUALS, (True, False)):
        model = make(residual, self_loops=self_loops)
        assert_finite_gradients(lambda x, model=model: model(x, *graph()), features())
        assert_finite_gradients(lambda x, model=model: model(x, none), features())
    assert not make(self_loops=False, num_classes=None)(features(), none).any()


def test_the_output_depends_on_edges_and_weights():
    model, x = make().eval(), features()
    edge_index, weight = graph()
    y = model(x, edge_index, weight)
    assert not torch.allclose(y, model(x, edge_index))
    assert not torch.allclose(y, model(x, edge_index.flip(0), weight))
    loops = adjacency(edge_index, NODES, weight)  # only the ratios of weights matter, with self loops
    torch.testing.assert_close(y, model(x, loops.with_values(8 * loops.values)))


def test_max_radius_shortens_long_rows():
    x = 1000 * features()
    short, long = make(max_radius=1.0).eval(), make(max_radius=10.0).eval()
    assert torch.allclose(short.manifold.dist0(short.input_points(x).x).max(), torch.tensor(1.0))
    assert torch.allclose(long.manifold.dist0(long.input_points(x).x).max(), torch.tensor(10.0))


@every_residual
def test_dropout_is_active_in_training_only(residual):
    model = make(residual, dropout=0.5)
    x, (edge_index, weight) = features(), graph()
    assert not torch.equal(model(x, edge_index, weight), model(x, edge_index, weight))
    model.eval()
    y = model(x, edge_index, weight)
    assert torch.equal(y, model(x, edge_index, weight))
    assert torch.equal(y, make(residual).eval()(x, edge_index, weight))


def test_seeds_reproduce_parameters_and_dropout():
    def outcome(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return LorentzGCN(FEATURES, num_classes=CLASSES, dropout=0.5)(features(), *graph())

    assert torch.equal(outcome(3), outcome(3))
    assert not torch.equal(outcome(3), outcome(4))


@every_residual
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast_are_close_to_float32(residual, dtype):
    model = make(residual, curvature=-2.0, learn_curvature=True).eval()
    x = features(dtype)
    expected = model(x.float(), *graph())
    if residual != "euclidean":  # torch's own layers need inputs in their dtype
        y = model(x, *graph())
        assert y.dtype == dtype
        torch.testing.assert_close(y.float(), expected, rtol=0.1, atol=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        y = model(x.float(), *graph())
    torch.testing.assert_close(y.float(), expected, rtol=0.1, atol=0.1)
    if residual != "euclidean":
        assert torch.equal(y, expected)


@every_residual
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("self_loops", [True, False])
def test_a_large_graph_in_blocks_of_rows_gives_the_same_result(residual, sparse, self_loops, monkeypatch):
    """Values and gradients, including those of edge weights, with blocks of 4 of the 14 rows."""
    results = []
    for rows in (4, 1000):
        monkeypatch.setattr(gcn, "_ROWS", rows)
        options = {"learn_curvature": True, "activation": "relu", "self_loops": self_loops}
        model = make(residual, curvature=-0.5, **options).double()
        x = features(torch.float64).requires_grad_(not sparse)
        edge_index, weight = graph()
        weight = weight.double().requires_grad_()
        y = model(SparseMatrix.from_dense(x) if sparse else x, edge_index, weight)
        y.square().sum().backward()
        wanted = [weight, *model.parameters()] if sparse else [x, weight, *model.parameters()]
        results.append([y.detach(), *(tensor.grad for tensor in wanted)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_blocks_of_rows_support_dropout_and_half_precision(monkeypatch):
    monkeypatch.setattr(gcn, "_ROWS", 4)
    model, (edge_index, weight) = make(dropout=0.5, num_classes=None), graph()
    assert not torch.equal(model(features(), edge_index, weight), model(features(), edge_index, weight))
    model.eval()
    assert torch.equal(model(features(), edge_index, weight), model(features(), edge_index, weight))
    assert model(features(torch.bfloat16), edge_index, weight).dtype == torch.bfloat16


# --- wrong input ------------------------------------------------------------------------------------------------------


def test_wrong_arguments_are_rejected():
    with pytest.raises(ValueError, match="activation must be one of none, relu, got 'gelu'"):
        make(activation="gelu")
    with pytest.raises(ValueError, match="need num_layers >= 1 and 0 <= dropout < 1, got 0 and"):
        make(num_layers=0)
    with pytest.raises(ValueError, match=r"0 <= dropout < 1, got 3 and 1\.0"):
        make(dropout=1.0)
    with pytest.raises(ValueError, match="unknown residual 'lorenz'; did you mean 'lorentz'"):
        make("lorenz")
    with pytest.raises(ValueError, match="curvature must be negative"):
        make(curvature=1.0)


def test_wrong_inputs_are_rejected():
    model = make()
    with pytest.raises(TypeError, match=r"features must be floating point, got torch.int64; .*x\.float\(\)"):
        model(torch.ones(NODES, FEATURES, dtype=torch.int64), graph()[0])
    with pytest.raises(ValueError, match="edge_index has node 14, but nodes are 0 to 13"):
        model(features(), torch.tensor([[0], [NODES]]))


# --- state ------------------------------------------------------------------------------------------------------------


def test_state_dict_keys():
    conv = [f"layers.{i}.linear.{name}" for i in range(2) for name in ("weight", "time_weight", "bias", "log_scale")]
    head = ["head.points", "head.bias"]
    fixed = "manifold._extra_state"
    assert list(make(num_layers=2).state_dict()) == [fixed, *conv, "residuals.0.raw_weight", *head]
    assert list(make("space", num_layers=2).state_dict()) == [fixed, *conv, *head]
    assert list(make(num_layers=2, learn_curvature=True, num_classes=None).state_dict()) == [
        "manifold.log_kappa",
        *conv,
        "residuals.0.raw_weight",
    ]
    assert list(make("euclidean", num_layers=2).state_dict()) == [
        fixed,
        *(f"layers.{i}.linear.{name}" for i in range(2) for name in ("weight", "bias")),
        "head.weight",
        "head.bias",
    ]


@every_residual
def test_a_deep_copy_has_its_own_parameters_and_one_manifold(residual):
    import geoopt

    model = make(residual, learn_curvature=True)
    copied = copy.deepcopy(model)
    assert copied.config == model.config
    assert copied.layers[0] is not model.layers[0]
    for module in copied.modules():
        if isinstance(module, LorentzGraphConv):
            assert module.manifold is copied.manifold
    for parameter in copied.parameters():
        if isinstance(parameter, geoopt.ManifoldParameter):
            assert parameter.manifold is copied.manifold
    x, (edge_index, weight) = features(), graph()
    before = model(x, edge_index, weight)
    assert torch.equal(copied(x, edge_index, weight), before)
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.add_(0.1)
    assert torch.equal(model(x, edge_index, weight), before)
    assert not torch.equal(copied(x, edge_index, weight), before)


def test_a_model_of_one_layer_has_no_residual():
    model = make(num_layers=1)
    assert len(model.residuals) == 0
    assert model(features(), *graph()).shape == (NODES, CLASSES)


def test_create_model_builds_the_same_model():
    torch.manual_seed(0)
    model = create_model("lorentz_gcn", residual="tangent", curvature=-2.0, in_features=FEATURES, hidden=5)
    expected = make("tangent", curvature=-2.0, num_classes=None)
    assert torch.equal(model(features(), *graph()), expected(features(), *graph()))
    assert isinstance(model.residuals[0], type(make_residual("tangent", model.manifold)))


@pytest.mark.parametrize(
    ("residual", "sparse", "rows"),
    [
        ("lorentz", True, 2**15),
        pytest.param("lorentz", False, 2**15, marks=pytest.mark.slow),
        ("lorentz", False, 4),
        ("euclidean", True, 4),
        pytest.param("none", False, 2**15, marks=pytest.mark.slow),
        pytest.param("none", True, 4, marks=pytest.mark.slow),
        # The other combinations; each takes three seconds to compile.
        pytest.param("lorentz", True, 4, marks=pytest.mark.slow),
        pytest.param("euclidean", True, 2**15, marks=pytest.mark.slow),
        pytest.param("none", False, 4, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # from torch's tracer
def test_the_model_compiles_without_a_graph_break(residual, sparse, rows, monkeypatch):
    monkeypatch.setattr(gcn, "_ROWS", rows)  # larger graphs are computed in blocks in eager code
    model = make(residual, num_layers=2 if sparse else 3).eval()  # sparse features enter the first layer only
    points = model.input_points(SparseMatrix.from_dense(features()) if sparse else features())
    A = model.graph(graph()[0], NODES)
    torch.compiler.reset()  # there are more cases than torch recompiles a function
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(points, A), model(points, A), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("K", [-1e-6, -4.0])
def test_the_initial_prototypes_are_where_the_option_puts_them(K):
    torch.manual_seed(0)
    model = LorentzGCN(6, 64, num_classes=100, curvature=K, prototype_distance=1.0)
    assert float(model.manifold.dist0(model.head.points.detach()).mean()) == pytest.approx(1.0, rel=0.05)
    assert model.config["prototype_distance"] == 1.0
