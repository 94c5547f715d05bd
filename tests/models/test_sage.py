"""Tests of lorentz_sage: its formula, the Euclidean limit and baseline, cached inputs, blocks of nodes, state."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import SAGEConv

from lresnet.models import LorentzSAGE, create_model
from lresnet.nn import SparseMatrix
from lresnet.nn.input_map import coordinate_input
from lresnet.optim.optimizers import parameter_groups
from lresnet.testing import assert_finite_gradients
from tests.models.common import CLASSES, FEATURES, NODES, RESIDUALS, features, graph, parameters_of

every_residual = pytest.mark.parametrize("residual", RESIDUALS)


def make(residual: str = "lorentz", **options: object) -> LorentzSAGE:
    torch.manual_seed(0)
    given = {"in_features": FEATURES, "hidden": 5, "num_classes": CLASSES, "residual": residual, "num_layers": 2}
    return LorentzSAGE(**given | options)


@every_residual
@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_shapes_and_gradients_of_all_parameters(residual, norm, sparse):
    model = make(residual, norm=norm, learn_curvature=True, curvature=-2.0, dropout=0.3)
    x = features().to_sparse() if sparse else features()
    logits = model(x, *graph())
    assert logits.shape == (NODES, CLASSES)
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert model.input_layer.weight.grad.any()
    assert make(residual, num_classes=None)(x, *graph()).shape == (NODES, 5)


@every_residual
@pytest.mark.parametrize("layer", ["space", "hybonet", "hyperplane"])
def test_the_model_is_the_formula_of_its_docstring(residual, layer):
    model = make(residual, curvature=-0.5, num_layers=3, layer=layer).double().eval()
    x, (edge_index, weight) = features(torch.float64), graph()
    weight = weight.double()
    z = torch.relu(model.input_layer(x))
    for block, join in zip(model.layers, model.residuals, strict=True):
        h = torch.nn.functional.layer_norm(z, (5,), block.norm.weight, block.norm.bias)
        z = join(z, block.linear(torch.relu(block.conv(h, edge_index, weight))))
    torch.testing.assert_close(model.embed(x, edge_index, weight), z)
    norm, head = model.head
    torch.testing.assert_close(model(x, edge_index, weight), head(norm(z)))


def simple_edges() -> Tensor:
    """Return the edges of the test graph without duplicates and self loops, which PyG's mean counts twice."""
    edges = graph()[0].unique(dim=1)
    return edges[:, edges[0] != edges[1]]


def test_the_euclidean_baseline_is_a_residual_network_of_pyg_s_layers():
    model = make("euclidean", norm="none").double().eval()
    edges, x = simple_edges(), features(torch.float64)
    z = torch.relu(torch.nn.functional.linear(x, model.input_layer.weight, model.input_layer.bias))
    for block in model.layers:
        conv = SAGEConv(5, 5).double()
        conv.load_state_dict(block.conv.state_dict())
        z = z + block.linear(torch.relu(conv(z, edges)))
    torch.testing.assert_close(model.embed(x, edges), z, rtol=1e-6, atol=1e-6)


def test_the_limit_for_curvature_zero_is_the_euclidean_baseline():
    flat = make("euclidean", norm="none", num_classes=None).double()
    curved = make("lorentz", norm="none", num_classes=None, curvature=-1e-8).double()
    state = parameters_of(flat.state_dict())
    state |= {k: v for k, v in curved.state_dict().items() if k not in state and ("residual" in k or "lin_r.bias" in k)}
    curved.load_state_dict(state)
    edges, x = simple_edges(), features(torch.float64)
    torch.testing.assert_close(curved(x, edges), flat(x, edges), rtol=1e-5, atol=1e-5)


def test_both_have_nearly_the_same_number_of_parameters():
    """The Lorentz network has a bias for the root, and one for each prototype's coordinates in place of the head."""
    counts = [sum(p.numel() for p in make(r, hidden=64).parameters()) for r in ("lorentz", "euclidean")]
    assert 0 <= counts[0] - counts[1] <= 2 * 64


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
def test_sparse_features_give_the_same_output_as_dense_ones(residual):
    model = make(residual, curvature=-2.0).double()
    x = features(torch.float64)
    for sparse in (SparseMatrix.from_dense(x), x.to_sparse(), x.to_sparse_csr()):
        torch.testing.assert_close(model(sparse, *graph()), model(x, *graph()))


@every_residual
def test_the_first_nodes_can_be_computed_alone(residual):
    """As sampled batches and inference by layers do: matrices whose rows are the first columns."""
    model = make(residual).double()
    edge_index, weight = graph()
    x, A = features(torch.float64), model.graph(edge_index, NODES, weight.double())
    keep = A.row < 6
    some = SparseMatrix(A.row[keep], A.col[keep], A.values[keep], (6, NODES))
    z = model.apply_layer(0, model.input_points(x), A)
    z = model.apply_layer(1, z, some)
    torch.testing.assert_close(z, model.embed(x, edge_index, weight.double())[:6])
    torch.testing.assert_close(model.head(z), model(x, edge_index, weight.double())[:6])


def test_norms_start_one_radius_of_curvature_from_the_origin():
    model = make(hidden=64, curvature=-4.0)
    h = model.layers[0].norm(torch.randn(10, 64))
    torch.testing.assert_close(h.norm(dim=-1), torch.full((10,), 0.5), rtol=1e-3, atol=1e-3)
    assert torch.equal(make("euclidean").layers[0].norm.weight, torch.ones(5))


def test_input_points_keep_lengths_up_to_the_bound():
    x = features()
    model = make(max_radius=2.0)
    points = coordinate_input(1000 * x, model.manifold, 2.0)
    far = x.any(-1)
    torch.testing.assert_close(model.manifold.dist0(points.x)[far], torch.full((int(far.sum()),), 2.0))
    torch.testing.assert_close(points.time.squeeze(-1), model.manifold.time(points.x))
    assert torch.equal(model.input_points(0.1 * x).x, 0.1 * x)
    sparse = coordinate_input(SparseMatrix.from_dense(1000 * x), model.manifold, 2.0)
    torch.testing.assert_close(sparse.x @ torch.eye(FEATURES), points.x)
    torch.testing.assert_close(sparse.time, points.time)


def test_finite_gradients_for_isolated_nodes_and_equal_coordinates():
    """A layer norm of a row of equal coordinates must not divide by 0."""
    model = make()
    assert_finite_gradients(lambda x: model(x, *graph()), features())
    assert_finite_gradients(lambda x: model(x, torch.empty(2, 0, dtype=torch.int64)), torch.zeros(NODES, FEATURES))


def test_dropout_is_active_in_training_only():
    model = make(dropout=0.5)
    assert not torch.equal(model(features(), *graph()), model(features(), *graph()))
    model.eval()
    assert torch.equal(model(features(), *graph()), make().eval()(features(), *graph()))


def test_options_reach_the_residuals():
    model = make(residual_options={"weight": 0.5})
    assert float(model.residuals[0].weight) == 0.5
    assert float(model.residuals[0].scale) == 1.5
    assert float(model.layers[0].conv.residual.scale) == 2.0
    assert make(residual_options={"scale": None}).residuals[0].scale is None


@every_residual
def test_saved_and_loaded_models_compute_the_same(residual, tmp_path):
    import lresnet

    model = create_model("lorentz_sage", residual=residual, in_features=FEATURES, hidden=5, num_classes=CLASSES).eval()
    loaded = lresnet.from_pretrained(model.save_pretrained(tmp_path / "model")).eval()
    assert torch.equal(loaded(features(), *graph()), model(features(), *graph()))
    copied = copy.deepcopy(model)
    assert torch.equal(copied(features(), *graph()), model(features(), *graph()))
    if residual != "euclidean":
        assert copied.layers[0].conv.manifold is copied.manifold


def test_prototypes_are_points_of_the_manifold_for_the_optimiser():
    assert list(parameter_groups(make()).manifold) == ["head.1.points"]


def test_a_model_learns_labels_that_differ_from_the_neighbours():
    """A bipartite graph with labels by side: the mean of the neighbours with self loops tells little."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 2
    edges = torch.randint(60, (2, 400), generator=g)
    edges = edges[:, y[edges[0]] != y[edges[1]]]
    x = torch.randn(60, FEATURES, generator=g) + 0.5 * y.unsqueeze(-1)
    for residual in ("lorentz", "euclidean"):
        model = make(residual, hidden=16, num_classes=2)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(40):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(x, edges), y).backward()
            optimiser.step()
        assert (model(x, edges).argmax(-1) == y).float().mean() > 0.9, residual


@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
def test_the_objectives_of_training_accept_the_model(residual):
    """Whole graphs, and sampled subgraphs with all neighbours, which give the same logits."""
    from lresnet.train.graph_inputs import GraphInputs
    from lresnet.train.host_graph import HostGraph, apply_layers

    model = make(residual, self_loops=True).double().eval()
    edge_index, weight = graph()
    x, weight = features(torch.float64), weight.double()
    whole = GraphInputs(x, edge_index, NODES, weight).apply(model)
    host = HostGraph(x, edge_index, NODES, weight)
    torch.testing.assert_close(host.apply(model), whole)
    seeds = torch.tensor([3, 0, 7])
    torch.testing.assert_close(apply_layers(model, host.sample(seeds, [-1, -1], key=0)), whole[seeds])


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")  # from torch's tracer
@pytest.mark.parametrize("residual", ["lorentz", "euclidean"])
def test_the_model_compiles_without_a_graph_break(residual):
    model = make(residual).eval()
    points, A = model.input_points(features()), model.graph(graph()[0], NODES)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(points, A), model(points, A))


def test_wrong_arguments_are_rejected():
    with pytest.raises(ValueError, match="norm must be one of none, layer, batch, got 'group'"):
        make(norm="group")
    with pytest.raises(ValueError, match="activation must be one of none, relu, gelu, got 'elu'"):
        make(activation="elu")
    with pytest.raises(ValueError, match="layer must be one of hybonet, space, hyperplane, got 'linear'"):
        make(layer="linear")
    with pytest.raises(ValueError, match="need num_layers >= 1 and 0 <= dropout < 1, got 0 and"):
        make(num_layers=0)
    with pytest.raises(TypeError, match=r"features must be floating point, got torch\.int64"):
        make()(torch.ones(NODES, FEATURES, dtype=torch.int64), graph()[0])
