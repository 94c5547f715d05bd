"""Graphs on the host: exact inference in blocks, and sampled subgraphs that estimate the whole graph."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lresnet.models import LorentzGCN, LorentzSAGE
from lresnet.train import host_graph
from lresnet.train.graph_inputs import GraphInputs
from lresnet.train.host_graph import HostGraph, apply_layers

# The tests make CSR tensors, about which torch warns once per process.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")

NODES = 50


def graph(loops: bool = False, seed: int = 0) -> Tensor:
    """Return random directed edges in random order; nodes 45 to 49 have none, node 0 has many."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(45, (2, 300), generator=generator)
    edge_index[1, :60] = 0
    edge_index = edge_index.unique(dim=1)
    kept = edge_index if loops else edge_index[:, edge_index[0] != edge_index[1]]
    return kept[:, torch.randperm(kept.shape[1], generator=generator)]


def features(width: int = 6, zeros: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(NODES, width, dtype=torch.float64, generator=generator)
    return x * (torch.rand(x.shape, generator=generator) >= zeros)


def network(residual: str = "lorentz", **options: object) -> LorentzGCN:
    torch.manual_seed(2)
    given = {"num_classes": 3, "activation": "relu"} | options
    return LorentzGCN(6, 5, residual=residual, **given).double().eval()


def sage(residual: str = "lorentz", **options: object) -> LorentzSAGE:
    torch.manual_seed(2)
    return LorentzSAGE(6, 5, residual=residual, **{"num_classes": 3} | options).double().eval()


VARIANTS: dict[str, tuple[Callable[[], LorentzGCN | LorentzSAGE], dict[str, object]]] = {
    "lorentz": (network, {}),
    "euclidean": (lambda: network("euclidean"), {}),
    "no head, learned curvature": (lambda: network(num_classes=None, learn_curvature=True, curvature=-0.5), {}),
    "space layers": (lambda: network("tangent", layer="space", num_layers=2), {}),
    "one layer": (lambda: network(num_layers=1), {}),
    "no self loops": (lambda: network(self_loops=False), {}),
    "self loops of the graph": (network, {"loops": True}),
    "weights": (network, {"loops": True, "weighted": True}),
    "weights, euclidean": (lambda: network("euclidean"), {"weighted": True}),
    "sage": (lambda: sage(num_layers=2), {}),
    "sage, batch norm, self loops": (lambda: sage(norm="batch", self_loops=True), {"weighted": True}),
    "sage, euclidean": (lambda: sage("euclidean", num_classes=None), {}),
    "sparse features": (network, {"zeros": 0.9}),
    "sparse tensor": (network, {"zeros": 0.9, "layout": "coo"}),
    "sparse tensor, euclidean": (lambda: network("euclidean"), {"zeros": 0.9, "layout": "csr"}),
}


def variant(name: str) -> tuple[LorentzGCN, HostGraph, Tensor, GraphInputs]:
    """Return the model, the graph on the host, the output for the whole graph by definition, and the usual inputs."""
    make, options = VARIANTS[name]
    model, edge_index, x = make(), graph(bool(options.get("loops"))), features(zeros=float(options.get("zeros", 0)))
    ones = torch.ones(edge_index.shape[1], dtype=torch.float64)  # the default is float32, and so is its mean
    weight = None if not model.euclidean else ones
    if options.get("weighted"):
        weight = torch.rand(ones.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.1
    given = {"coo": x.to_sparse_coo, "csr": x.to_sparse_csr}.get(str(options.get("layout")), lambda: x)()
    host = HostGraph(given, edge_index, NODES, weight if options.get("weighted") else None)
    return model, host, model(x, edge_index, weight).detach(), GraphInputs(given, edge_index, NODES, weight)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("block", [2**24, 300, 1])
def test_inference_by_layers_equals_one_pass_over_the_graph(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, host, whole, usual = variant(name)
    monkeypatch.setattr(host_graph, "_BLOCK", block)
    blocks = list(host._blocks(6))
    assert torch.equal(torch.cat(blocks), torch.arange(NODES))
    assert {2**24: len(blocks) == 1, 300: 3 < len(blocks) < 20, 1: len(blocks) == NODES}[block]
    output = host.apply(model)
    assert not output.requires_grad
    torch.testing.assert_close(output, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(usual.apply(model).detach(), whole, rtol=0, atol=1e-12)
    if model.head is None:
        torch.testing.assert_close(host.embed(model), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_subgraph_of_all_neighbours_has_the_output_and_the_gradients_of_the_whole_graph(name: str) -> None:
    model, host, whole, usual = variant(name)
    seeds = torch.tensor([0, 49, 17, 8])
    layers = len(model.layers)
    sample = host.sample(seeds, [-1] * layers, key=0)
    output = apply_layers(model, sample)
    torch.testing.assert_close(output, whole[seeds], rtol=0, atol=1e-12)
    for A, hop in zip(sample.matrices(model), reversed(range(layers)), strict=True):
        assert A.shape == (sample.nodes[hop], sample.nodes[hop + 1])
    factor = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    (output * factor).sum().backward()
    gradients = {key: p.grad.clone() for key, p in model.named_parameters()}
    model.zero_grad()
    (usual.apply(model)[seeds] * factor).sum().backward()
    for key, p in model.named_parameters():
        torch.testing.assert_close(gradients[key], p.grad, rtol=1e-10, atol=1e-12, msg=key)


@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.slow), True])
def test_sampled_sums_have_the_sums_of_all_neighbours_as_their_mean(weighted: bool) -> None:
    """One layer with node 0, which has 40 neighbours, of which 4 are drawn; the errors are measured in their sigma."""
    model, host, _, _ = variant("weights" if weighted else "lorentz")
    x = features()
    seeds = torch.arange(20)
    exact = host.sample(seeds, [-1], key=0)
    h = x[exact.node]
    expected = exact.matrices(model)[0] @ h
    draws = []
    for key in range(2000):
        sample = host.sample(seeds, [4], key=key)
        assert sample.row.numel() <= 80
        A = sample.matrices(model)[0]
        draws.append(A @ x[sample.node])
        if not weighted:  # the sampled row of A has the same sum: the node itself keeps its share
            torch.testing.assert_close(A.row_sums(), exact.matrices(model)[0].row_sums())
    draws = torch.stack(draws)
    error = (draws.mean(0) - expected) / (draws.std(0) / len(draws) ** 0.5).clamp(min=1e-12)
    assert draws.std(0)[0].min() > 0.1
    assert float(error.abs().max()) < 4.5  # 120 normal numbers exceed it once in a thousand times


def test_a_subgraph_moves_to_another_device_with_all_its_tensors() -> None:
    _, host, _, _ = variant("sparse features")
    moved = host.sample(torch.arange(5), [2, 2], key=0).to(torch.device("meta"))
    tensors = [value for value in vars(moved).values() if isinstance(value, Tensor)] + list(moved.features)
    assert len(tensors) == 8
    assert {tensor.device.type for tensor in tensors} == {"meta"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", VARIANTS)
def test_a_graph_on_the_host_and_a_model_on_a_gpu_agree_with_one_pass(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, host, whole, _ = variant(name)
    monkeypatch.setattr(host_graph, "_BLOCK", 300)
    host.device = torch.device("cuda")
    model.cuda()
    torch.testing.assert_close(host.apply(model).cpu(), whole, rtol=0, atol=1e-12)
    sample = host.sample(torch.arange(9), [-1] * len(model.layers), key=0).pin().to(host.device)
    torch.testing.assert_close(apply_layers(model, sample).detach().cpu(), whole[:9], rtol=0, atol=1e-12)


def test_sparse_features_are_gathered_without_a_warning_of_torch() -> None:
    # torch warns about CSR tensors once per process, which another test may have used up: hence a process of its own.
    code = (
        "import warnings, torch; from lresnet.train.host_graph import _feature_rows; warnings.simplefilter('error');"
        "x = torch.tensor([[0.0, 2.0], [0.0, 0.0], [3.0, 4.0]]);"
        "row, column, value = _feature_rows(x.to_sparse())(torch.tensor([2, 0]));"
        "print(torch.stack([row, column, value]).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[[0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [3.0, 4.0, 2.0]]", done.stderr


@pytest.mark.parametrize("make", [network, sage])
@pytest.mark.parametrize("zeros", [0.0, 0.9], ids=["dense", "sparse"])
def test_features_take_the_precision_of_the_model(make: Callable[[], LorentzGCN], zeros: float) -> None:
    model, x = make(), features(zeros=zeros).float()
    found = HostGraph(x, graph(), NODES).apply(model)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, model(x.double(), graph()), rtol=1e-6, atol=1e-6)
