"""Tests of the graph convolutions as PyG layers: pairs, lazy sizes, adj_t, hetero graphs, hooks and explanations."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import HeteroConv, MessagePassing, to_hetero
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from lresnet import Lorentz
from lresnet.nn import (
    EuclideanGraphConv,
    EuclideanSAGEConv,
    LorentzGATConv,
    LorentzGraphConv,
    LorentzSAGEConv,
    SparseMatrix,
    adjacency,
)
from lresnet.nn.message_passing import Sizes
from lresnet.nn.sparse import mean_normalisation

NODES, TARGETS = 9, 5
LORENTZ = {"graph": LorentzGraphConv, "sage": LorentzSAGEConv, "gat": LorentzGATConv}
EUCLIDEAN = {"euclidean_graph": EuclideanGraphConv, "euclidean_sage": EuclideanSAGEConv}
every_lorentz = pytest.mark.parametrize("kind", LORENTZ)
sparse_of_torch = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # torch warns once about its own beta
every_conv = pytest.mark.parametrize("kind", [*LORENTZ, *EUCLIDEAN])


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def graph(nodes: int = NODES, targets: int = NODES, edges: int = 24) -> tuple[Tensor, Tensor]:
    """Return a weighted graph with a few self loops and double edges; the last target has no neighbours."""
    g = torch.Generator().manual_seed(1)
    source, target = torch.randint(nodes, (edges,), generator=g), torch.randint(targets - 1, (edges,), generator=g)
    source[:2] = target[:2]
    source[3], target[3] = source[2], target[2]
    return torch.stack([source, target]), 0.1 + torch.rand(edges, generator=g, dtype=torch.float64)


def make(kind: str, in_channels: object = 4, out_channels: int = 3, K: float = -2.0, **options: object):
    torch.manual_seed(0)
    if kind in EUCLIDEAN:
        return EUCLIDEAN[kind](in_channels, out_channels, **options).double()
    return LORENTZ[kind](in_channels, out_channels, manifold=Lorentz(K), **options).double()


def observed(conv: MessagePassing) -> MessagePassing:
    """Return the layer with a hook that changes nothing, so that single messages are computed."""
    conv.register_message_forward_hook(lambda module, inputs, output: None)
    return conv


# --- one product or single messages ---------------------------------------------------------------------------------


@every_conv
@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_single_messages_give_the_same_points_and_gradients(kind, self_loops, weighted):
    conv = make(kind, self_loops=self_loops)
    edge_index, weight = graph()
    results = []
    for layer in (conv, observed(copy.deepcopy(conv))):
        x, w = normals(NODES, 4).requires_grad_(), weight.clone().requires_grad_()
        y = layer(x, edge_index, w if weighted else None)
        (y * normals(NODES, 3, seed=2)).sum().backward()
        gradients = [p.grad for p in layer.parameters()] + [x.grad] + [w.grad] * weighted
        results.append([y.detach(), *gradients])
    assert observed(copy.deepcopy(conv)).is_observed()
    assert not conv.is_observed()
    # The mean's inverse degrees have the dtype of the weights, float32 by default.
    tolerance = 1e-12 if weighted or kind in LORENTZ else 1e-6
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_the_gradient_of_the_curvature_is_the_same_too():
    gradients = []
    for hooked in (False, True):
        torch.manual_seed(0)
        M = Lorentz(-0.5, learnable=True).double()
        conv = LorentzGraphConv(4, 3, manifold=M).double()
        edge_index, weight = graph()
        (observed(conv) if hooked else conv)(normals(NODES, 4), edge_index, weight).square().sum().backward()
        gradients.append(M.log_kappa.grad)
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


@every_conv
def test_a_mask_of_an_edge_multiplies_its_weight(kind):
    """As an explainer sets it: the mask of edges; self loops keep their weight."""
    conv = make(kind)
    edge_index, weight = graph()
    others = edge_index[0] != edge_index[1]  # PyG does not mask self loops
    edge_index, weight = edge_index[:, others], weight[others]
    mask = torch.rand(edge_index.shape[1], generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    expected = conv(normals(NODES, 4), edge_index, weight * mask)
    conv.explain, conv._edge_mask, conv._apply_sigmoid = True, mask, False
    conv._loop_mask = edge_index[0] != edge_index[1]
    torch.testing.assert_close(conv(normals(NODES, 4), edge_index, weight), expected, rtol=1e-12, atol=1e-12)


def test_a_message_of_a_subclass_is_used():
    class Doubled(LorentzGraphConv):
        def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
            return torch.where(edge_weight > 0.5, edge_weight, 0.0).unsqueeze(-1) * x_j

    edge_index, weight = graph()
    x = normals(NODES, 4)
    torch.manual_seed(0)
    conv = Doubled(4, 3, manifold=Lorentz(-2.0), self_loops=False).double()
    expected = make("graph", self_loops=False)(x, edge_index, torch.where(weight > 0.5, weight, 0.0))
    torch.testing.assert_close(conv(x, edge_index, weight), expected)


def test_hooks_see_the_messages_of_an_adjacency_matrix():
    seen = []
    conv = make("graph")
    conv.register_message_forward_hook(lambda module, inputs, output: seen.append(output))
    A = adjacency(graph()[0], NODES, graph()[1])
    expected = make("graph")(normals(NODES, 4), A)
    torch.testing.assert_close(conv(normals(NODES, 4), A), expected, rtol=1e-12, atol=1e-12)
    assert seen[0].shape == (A.values.numel(), 3 + 2)


# --- arguments as in PyG --------------------------------------------------------------------------------------------


@sparse_of_torch
@every_conv
@pytest.mark.parametrize("self_loops", [True, False])
def test_adj_t_of_torch_equals_edge_index(kind, self_loops):
    conv = make(kind, self_loops=self_loops)
    edge_index, weight = graph()
    x, expected = normals(NODES, 4), conv(normals(NODES, 4), edge_index, weight)
    for convert in (to_torch_coo_tensor, to_torch_csr_tensor, to_torch_csc_tensor):
        adj_t = convert(edge_index.flip(0), weight, size=(NODES, NODES), is_coalesced=False)
        torch.testing.assert_close(conv(x, adj_t), expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(observed(copy.deepcopy(conv))(x, adj_t), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(conv(x, EdgeIndex(edge_index), weight), expected)


@every_conv
def test_a_matrix_of_this_library_equals_edge_index(kind):
    conv = make(kind, self_loops=True)
    edge_index, weight = graph()
    A = adjacency(edge_index, NODES, weight)
    A = mean_normalisation(A) if kind in EUCLIDEAN else A
    expected = conv(normals(NODES, 4), edge_index, weight)
    torch.testing.assert_close(conv(normals(NODES, 4), A), expected, rtol=1e-12, atol=1e-12)


@sparse_of_torch
@every_conv
def test_bipartite_graphs(kind):
    """Sources and targets in one graph without edges to sources give the same targets."""
    conv = make(kind, (4, 4) if "sage" in kind or kind == "gat" else 4, self_loops=False)
    edge_index, weight = graph(NODES, TARGETS)
    x, targets = normals(NODES, 4), normals(TARGETS, 4, seed=5)
    together = conv(torch.cat([x, targets]), torch.stack([edge_index[0], edge_index[1] + NODES]), weight)
    y = conv((x, targets), edge_index, weight)
    torch.testing.assert_close(y, together[NODES:], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(conv((x, targets), edge_index, weight, size=(NODES, TARGETS)), y)
    adj_t = to_torch_csr_tensor(edge_index.flip(0), weight, size=(TARGETS, NODES), is_coalesced=False)
    torch.testing.assert_close(conv((x, targets), adj_t), y, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(observed(conv)((x, targets), edge_index, weight), y, rtol=1e-12, atol=1e-12)


@every_conv
def test_a_pair_of_one_tensor_is_one_graph_and_other_pairs_have_no_self_loops(kind):
    conv = make(kind, self_loops=True)
    edge_index, weight = graph()
    x = normals(NODES, 4)
    assert torch.equal(conv((x, x), edge_index, weight), conv(x, edge_index, weight))
    without = make(kind, self_loops=False)
    torch.testing.assert_close(conv((x, x.clone()), edge_index, weight), without(x, edge_index, weight))


@pytest.mark.parametrize("kind", ["graph", "sage", "euclidean_graph", "euclidean_sage"])
def test_targets_may_be_missing(kind):
    conv = make(kind, self_loops=False)
    edge_index, weight = graph(NODES, TARGETS)
    y = conv((normals(NODES, 4), None), edge_index, weight, size=(NODES, TARGETS))
    assert y.shape == (TARGETS, 3)
    if "graph" in kind:
        assert torch.equal(y, conv((normals(NODES, 4), normals(TARGETS, 2)), edge_index, weight))


@sparse_of_torch
def test_sizes_that_do_not_match_are_rejected():
    conv = make("graph")
    edge_index, weight = graph(NODES, TARGETS)
    x = normals(NODES, 4), normals(TARGETS, 4)
    with pytest.raises(ValueError, match=r"size\[0\] is 8, but x has 9 sources"):
        conv(x, edge_index, weight, size=(8, TARGETS))
    with pytest.raises(ValueError, match=r"size\[1\] is 9, but x has 5 targets"):
        conv(x, edge_index, weight, size=(NODES, NODES))
    with pytest.raises(ValueError, match="edge_index has node 7, but targets are 0 to 4"):
        conv(x, torch.tensor([[0], [7]]))
    with pytest.raises(ValueError, match="must be None with an adjacency matrix"):
        conv(normals(NODES, 4), to_torch_csr_tensor(graph()[0], size=(NODES, NODES)), weight)
    with pytest.raises(ValueError, match=r"shape \[targets, sources\] = \[5, 9\] .* got \(9, 5\)"):
        conv(x, torch.zeros(NODES, TARGETS).to_sparse())
    with pytest.raises(ValueError, match=r"a pair \(sources, targets\), got 3 elements"):
        conv((*x, x[0]), edge_index)
    with pytest.raises(ValueError, match="self loops need the same nodes"):
        adjacency(edge_index, (NODES, TARGETS))
    assert Sizes.of(x[0], None).pair == (NODES, NODES)


@sparse_of_torch
@pytest.mark.parametrize("kind", ["graph", "gat", "euclidean_graph"])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_points_of_torch_equal_dense_ones(kind, layout):
    conv = make(kind)
    x = normals(NODES, 4) * (normals(NODES, 4, seed=3) > 0)
    expected = conv(x, *graph())
    torch.testing.assert_close(conv(x.to_sparse(layout=layout), *graph()), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(conv(SparseMatrix.from_dense(x), *graph()), expected, rtol=1e-12, atol=1e-12)


def test_sage_rejects_sparse_points():
    with pytest.raises(TypeError, match="needs dense points, got sparse ones; apply a linear layer first"):
        make("sage")(torch.eye(NODES).to_sparse(), graph()[0])


# --- lazy sizes -----------------------------------------------------------------------------------------------------


@every_lorentz
@pytest.mark.parametrize("layer", ["hybonet", "space", "hyperplane"])
def test_lazy_sizes_give_the_same_layer(kind, layer):
    expected = make(kind, 4, layer=layer)
    conv = make(kind, -1, layer=layer)
    conv.reset_parameters()  # does nothing yet, but must not fail: to_hetero calls it
    copied, edges = copy.deepcopy(conv), graph()
    for lazy in (conv, copied):
        torch.manual_seed(0)
        y = lazy(normals(NODES, 4), *edges)
        assert [p.shape for p in lazy.parameters()] == [p.shape for p in expected.parameters()]
        assert all(p.dtype == torch.float64 for p in lazy.parameters())
        lazy.load_state_dict(expected.state_dict())
        assert torch.equal(lazy(normals(NODES, 4), *edges), expected(normals(NODES, 4), *edges))
        assert y.isfinite().all()
    fresh = make(kind, -1, layer=layer)
    fresh.load_state_dict(expected.state_dict())
    assert torch.equal(fresh(normals(NODES, 4), *edges), expected(normals(NODES, 4), *edges))


@pytest.mark.parametrize("kind", ["sage", "gat"])
def test_lazy_pairs(kind):
    conv = make(kind, (-1, -1))
    y = conv((normals(NODES, 4), normals(TARGETS, 2)), *graph(NODES, TARGETS))
    assert y.shape == (TARGETS, 3)
    layers = (conv.lin_l, conv.lin_r) if kind == "sage" else (conv.lin_src, conv.lin_dst)
    assert [layer.in_features for layer in layers] == [4, 2]


def test_a_lazy_layer_can_be_given_to_an_optimiser_before_its_first_call():
    conv = make("graph", -1)
    optimiser = torch.optim.Adam(conv.parameters(), lr=0.1)
    before = None
    for _ in range(2):
        optimiser.zero_grad()
        conv(normals(NODES, 4), *graph()).square().sum().backward()
        before = conv.linear.weight.detach().clone()
        optimiser.step()
    assert not torch.equal(before, conv.linear.weight)


def test_impossible_sizes_are_rejected():
    with pytest.raises(ValueError, match="at least 1, or -1 to take it from the first input, got 0"):
        make("graph", 0)


@every_conv
def test_reset_parameters_repeats_the_initialisation(kind):
    fresh, trained = make(kind), make(kind)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.add_(1.0)
    for conv in (fresh, trained):
        torch.manual_seed(1)
        conv.reset_parameters()
    assert len(fresh.state_dict()) > 0
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(tensor, trained.state_dict()[name]), name


# --- HeteroConv, to_hetero, explanations ----------------------------------------------------------------------------

METADATA = (
    ["author", "paper"],
    [("author", "writes", "paper"), ("paper", "rev", "author"), ("paper", "cites", "paper")],
)


def hetero() -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor]]:
    g = torch.Generator().manual_seed(4)
    counts = {"author": 6, "paper": 8}
    x = {"author": normals(6, 3, seed=6), "paper": normals(8, 5, seed=7)}
    edges = {
        (a, r, b): torch.stack(
            [torch.randint(counts[a], (12,), generator=g), torch.randint(counts[b], (12,), generator=g)]
        )
        for a, r, b in METADATA[1]
    }
    return x, edges


@every_lorentz
def test_hetero_conv(kind):
    M = Lorentz(-1.0)
    sizes = -1 if kind == "graph" else (-1, -1)
    convs = {edge: LORENTZ[kind](sizes, 4, manifold=M).double() for edge in METADATA[1]}
    x, edges = hetero()
    layer = HeteroConv(convs, aggr="sum")
    y = layer(x, edges)
    assert {name: tuple(rows.shape) for name, rows in y.items()} == {"author": (6, 4), "paper": (8, 4)}
    pair = x["paper"], x["author"]
    torch.testing.assert_close(y["author"], convs["paper", "rev", "author"](pair, edges["paper", "rev", "author"]))
    cites = convs["paper", "cites", "paper"](x["paper"], edges["paper", "cites", "paper"])
    writes = convs["author", "writes", "paper"]((x["author"], x["paper"]), edges["author", "writes", "paper"])
    torch.testing.assert_close(y["paper"], writes + cites)


class Network(torch.nn.Module):
    """Two convolutions of one kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.manifold = Lorentz(-1.0)
        sizes = -1 if kind == "graph" else (-1, -1)
        self.first = LORENTZ[kind](sizes, 6, manifold=self.manifold)
        self.second = LORENTZ[kind](sizes, 2, manifold=self.manifold)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)


@every_lorentz
def test_to_hetero(kind):
    x, edges = hetero()
    x = {name: rows.float() for name, rows in x.items()}
    net = to_hetero(Network(kind), METADATA)
    y = net(x, edges)
    assert {name: tuple(rows.shape) for name, rows in y.items()} == {"author": (6, 2), "paper": (8, 2)}
    sum(rows.square().sum() for rows in y.values()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for n, p in net.named_parameters() if "second" in n)


@every_lorentz
def test_an_explainer_finds_the_edges_that_matter(kind):
    """Node 0 has three neighbours; only the edge from node 1, whose features are large, can change its output."""
    torch.manual_seed(0)
    edge_index = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 5]])
    x = torch.zeros(6, 4)
    x[1] = 1.0
    conv = LORENTZ[kind](4, 3, manifold=Lorentz(-1.0), self_loops=False)
    explainer = Explainer(
        conv,
        GNNExplainer(epochs=20),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    explanation = explainer(x, edge_index, index=0)
    assert explanation.edge_mask.shape == (4,)
    assert explanation.edge_mask[:3].min() > 0
    assert explanation.edge_mask[3] == 0  # not in the neighbourhood of node 0
    assert explanation.node_mask[1].any()
    assert not conv.is_observed()
    assert list(conv.state_dict()) == list(LORENTZ[kind](4, 3, manifold=Lorentz(-1.0)).state_dict())


def test_an_explanation_needs_edges_and_not_a_matrix():
    conv = make("graph")
    conv.explain = True
    with pytest.raises(ValueError, match=r"an explanation needs edge_index \[2, E\], got a SparseMatrix"):
        conv(normals(NODES, 4), adjacency(graph()[0], NODES))


# --- modules --------------------------------------------------------------------------------------------------------


@every_conv
def test_copies_and_pickles_compute_the_same(kind):
    conv, edges = make(kind), graph()
    y = conv(normals(NODES, 4), *edges)
    for other in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert torch.equal(other(normals(NODES, 4), *edges), y)


def test_repr():
    M = Lorentz(-1.0)
    assert repr(LorentzGraphConv(8, 4, manifold=M)) == "LorentzGraphConv(8, 4, curvature=-1)"
    assert repr(LorentzSAGEConv((-1, -1), 4, manifold=M)) == "LorentzSAGEConv((-1, -1), 4, curvature=-1)"
    assert repr(LorentzGATConv(8, 4, heads=2, manifold=M)) == "LorentzGATConv(8, 4, heads=2, curvature=-1)"
    assert repr(EuclideanGraphConv(8, 4)) == "EuclideanGraphConv(8, 4)"


@every_lorentz
def test_the_manifold_is_not_part_of_the_state(kind):
    conv = LORENTZ[kind](4, 3, manifold=Lorentz(-1.0, learnable=True))
    assert not any("log_kappa" in name for name in conv.state_dict())
    assert not any(module is conv.manifold for module in conv.modules())
