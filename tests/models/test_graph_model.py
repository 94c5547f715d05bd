"""Tests of graph models on PyG's data objects, of whole graphs, and of explanations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

from lresnet.models import LorentzGCN, LorentzGCNII, LorentzSAGE, LorentzSGFormer
from lresnet.nn import CentroidPool, LorentzSAGEConv
from lresnet.nn.sparse import mean_normalisation
from tests.models.common import CLASSES, FEATURES, NODES, features, graph

MODELS = {"gcn": LorentzGCN, "gcnii": LorentzGCNII, "sage": LorentzSAGE, "sgformer": LorentzSGFormer}
every_model = pytest.mark.parametrize("kind", MODELS)
node_models = pytest.mark.parametrize("kind", ["gcn", "gcnii", "sage"])
both_residuals = pytest.mark.parametrize("residual", ["lorentz", "euclidean"])


def make(kind: str, residual: str = "lorentz", **options: object):
    torch.manual_seed(0)
    given = {"in_features": FEATURES, "hidden": 5, "num_classes": CLASSES, "num_layers": 2, "residual": residual}
    return MODELS[kind](**given | options).eval()


def data(**others: object) -> Data:
    edge_index, weight = graph()
    return Data(x=features(), edge_index=edge_index, edge_weight=weight, **others)


@every_model
def test_a_data_object_equals_its_tensors(kind):
    model, one = make(kind), data()
    assert torch.equal(model(one), model(features(), *graph()))
    assert torch.equal(model.embed(one), model.embed(features(), *graph()))
    del one.edge_weight
    assert torch.equal(model(one), model(features(), graph()[0]))


@every_model
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_adj_t_and_sparse_features(kind):
    edge_index, weight = graph()
    weight, x = weight.double(), features(torch.float64)
    adj_t = torch.sparse_coo_tensor(edge_index.flip(0), weight, (NODES, NODES)).coalesce()
    model = make(kind).double()
    expected = model(x, edge_index, weight)
    torch.testing.assert_close(model(Data(x=x, adj_t=adj_t)), expected)
    torch.testing.assert_close(model(x.to_sparse(), adj_t.to_sparse_csr()), expected)
    torch.testing.assert_close(model(x, EdgeIndex(edge_index), weight), expected)


@every_model
def test_identity_features_stay_sparse(kind):
    """One learned row per node, without a matrix of N times N numbers."""
    model = make(kind, in_features=NODES)
    x = torch.sparse_coo_tensor(torch.arange(NODES).expand(2, -1), torch.ones(NODES), (NODES, NODES))
    torch.testing.assert_close(model(x, graph()[0]), model(torch.eye(NODES), graph()[0]))


@node_models
@both_residuals
def test_graphs_of_a_batch_are_pooled_before_the_head(kind, residual):
    model = make(kind, residual)
    parts = [data(), Data(x=features(seed=3)[:4], edge_index=torch.tensor([[0, 1], [1, 2]]), edge_weight=torch.ones(2))]
    batch = Batch.from_data_list(parts)
    logits = model(batch)
    assert logits.shape == (2, CLASSES)
    for i, part in enumerate(parts):
        z = model.embed(part)
        pooled = z.mean(0) if residual == "euclidean" else model.manifold.centroid(z)
        torch.testing.assert_close(logits[i], model.head(pooled.unsqueeze(0))[0])
    torch.testing.assert_close(model(batch.x, batch.edge_index, batch.edge_weight, batch.batch), logits)
    more = model(batch.x, batch.edge_index, batch.edge_weight, batch=batch.batch, batch_size=3)
    assert more.shape == (3, CLASSES)
    if residual == "lorentz":
        pool = CentroidPool(model.manifold)
        torch.testing.assert_close(model.head(pool(model.embed(batch), batch.batch)), logits)


def test_the_transformer_rejects_a_batch_of_graphs():
    with pytest.raises(ValueError, match="attends to all nodes of one graph"):
        make("sgformer")(Batch.from_data_list([data(), data()]))


@every_model
def test_batches_of_neighbour_loaders_are_used_as_they_come(kind):
    """n_id marks a sampled batch: ``batch`` is then the seed of each node, and there is no pooling."""
    n_id = torch.tensor([7, 2, 9, 4])
    sampled = Data(
        x=features()[n_id],
        edge_index=torch.tensor([[2, 3, 1], [0, 0, 1]]),
        n_id=n_id,
        e_id=torch.tensor([5, 8, 1]),
        batch_size=2,
        edge_label_index=torch.tensor([[0], [1]]),
        batch=torch.tensor([0, 1, 0, 0]),
    )
    rows = make(kind)(sampled)
    assert rows.shape == (4, CLASSES)
    assert torch.equal(rows[: sampled.batch_size], make(kind)(sampled.x, sampled.edge_index)[:2])


# --- HeteroData ------------------------------------------------------------------------------------------------------


def hetero(width: int = FEATURES) -> HeteroData:
    one = HeteroData()
    one["author"].x, one["paper"].x = features()[:5], features(seed=2)[:, :width]
    one["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 4], [3, 3, 13]])
    one["paper", "rev", "author"].edge_index = torch.tensor([[3, 3, 13], [0, 1, 4]])
    one["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1], [2, 2]])
    return one


@every_model
def test_hetero_data_is_one_graph_of_all_types(kind):
    model, one = make(kind), hetero()
    result = model(one)
    assert {name: tuple(rows.shape) for name, rows in result.items()} == {
        "author": (5, CLASSES),
        "paper": (NODES, CLASSES),
    }
    whole = one.to_homogeneous()
    torch.testing.assert_close(torch.cat([result["author"], result["paper"]]), model(whole.x, whole.edge_index))
    torch.testing.assert_close(model.embed(one)["paper"], model.embed(whole.x, whole.edge_index)[5:])


def test_hetero_data_with_features_of_several_widths_is_rejected():
    with pytest.raises(ValueError, match=r"features of one width .* got author 6, paper 2; .*HeteroConv"):
        make("gcn")(hetero(width=2))
    one = hetero()
    del one["author"].x
    with pytest.raises(ValueError, match="got author None, paper 6"):
        make("gcn")(one)


class HeteroSAGE(torch.nn.Module):
    """The network of the documentation: one convolution per edge type, joined by the sum of HeteroConv."""

    def __init__(self, edge_types: list[tuple[str, str, str]], hidden: int) -> None:
        super().__init__()
        from torch_geometric.nn import HeteroConv

        import lresnet

        self.manifold = lresnet.Lorentz(-1.0, learnable=True)
        self.convs = torch.nn.ModuleList(
            HeteroConv({kind: LorentzSAGEConv((-1, -1), hidden, manifold=self.manifold) for kind in edge_types})
            for _ in range(2)
        )

    def forward(self, x: dict[str, Tensor], edges: dict[tuple[str, str, str], Tensor]) -> dict[str, Tensor]:
        for conv in self.convs:
            x = {name: torch.relu(rows) for name, rows in conv(x, edges).items()}
        return x


def test_weights_of_their_own_for_every_edge_type():
    one = hetero(width=2)
    model = HeteroSAGE(one.edge_types, 4)
    rows = model(one.x_dict, one.edge_index_dict)
    assert rows["paper"].shape == (NODES, 4)
    sum(each.square().sum() for each in rows.values()).backward()
    assert model.manifold.log_kappa.grad.isfinite()


# --- explanations ----------------------------------------------------------------------------------------------------


@node_models
@both_residuals
def test_an_explainer_masks_the_edges_of_a_model(kind, residual):
    model = make(kind, residual)
    before = model(features(), graph()[0])
    explainer = Explainer(
        model,
        GNNExplainer(epochs=10),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    explanation = explainer(features(), graph()[0], index=0)
    assert explanation.edge_mask.shape == (40,)
    assert explanation.edge_mask.any()
    assert not model.is_observed()
    assert torch.equal(model(features(), graph()[0]), before)


@node_models
@both_residuals
@pytest.mark.parametrize("self_loops", [True, False])
def test_single_messages_give_the_same_output(kind, residual, self_loops):
    """In float64 and with weights of that dtype."""
    model = make(kind, residual, self_loops=self_loops).double()
    x, (edge_index, weight) = features(torch.float64), graph()
    expected = model(x, edge_index, weight.double())
    for module in model.modules():
        if hasattr(module, "register_message_forward_hook"):
            module.register_message_forward_hook(lambda *arguments: None)
    assert model.is_observed()
    torch.testing.assert_close(model(x, edge_index, weight.double()), expected, rtol=1e-12, atol=1e-12)
    A = model.graph(edge_index, NODES, weight.double())
    torch.testing.assert_close(model(x, A), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"aggregation": "mean"}, {"connection": "dense", "norm": "layer"}], ids=str)
@both_residuals
def test_a_mask_multiplies_the_edges_of_a_deep_network(options, residual):
    """A mask multiplies the normalised weights, as in PyG's GCNConv; self loops are not masked."""
    model = make("gcnii", residual, num_layers=4, **options).double()
    x, edge_index = features(torch.float64), graph()[0].unique(dim=1)
    mask = torch.rand(edge_index.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    A = model.graph(edge_index, NODES)
    dense = torch.eye(NODES, dtype=torch.float64)
    dense[edge_index[1], edge_index[0]] = torch.where(edge_index[0] == edge_index[1], 1.0, mask)
    expected = model(x, A.with_values(A.values * dense[A.row, A.col]))
    if options.get("aggregation") == "mean":  # a mean divides by the weights that are left
        expected = model(x, mean_normalisation(A.with_values(A.values * dense[A.row, A.col])))
    set_masks(model, mask, edge_index, apply_sigmoid=False)
    assert model.is_observed()
    torch.testing.assert_close(model(x, edge_index), expected, rtol=1e-12, atol=1e-12)
    clear_masks(model)
    assert not model.is_observed()


@every_model
@both_residuals
def test_edges_without_weights_are_exact_in_float64(kind, residual):
    model, x, edge_index = make(kind, residual).double(), features(torch.float64), graph()[0]
    ones = torch.ones(edge_index.shape[1], dtype=torch.float64)
    torch.testing.assert_close(model(x, edge_index), model(x, edge_index, ones), rtol=1e-13, atol=1e-13)


# --- wrong input -----------------------------------------------------------------------------------------------------


def test_wrong_inputs_are_rejected():
    model = make("gcn")
    with pytest.raises(TypeError, match="edge_index is missing; call the model with x and edge_index, or with a Data"):
        model(features())
    with pytest.raises(TypeError, match=r"a data object is the only argument: model\(data\)"):
        model(data(), graph()[0])
    with pytest.raises(TypeError, match="Data has no tensor 'x'"):
        model(Data(edge_index=graph()[0]))
    with pytest.raises(TypeError, match="Data has no tensor 'edge_index'"):
        model(Data(x=features()))
    with pytest.raises(TypeError, match="ndarray has no tensor 'x'"):
        model(features().numpy())
