r"""A graph that stays in the memory of the host: sampled subgraphs of it, and exact inference in blocks of nodes.

A layer averages over neighbours: its matrix A has non-negative weights, self loops included, and the result does not
depend on the scale of a row (the centroid, or the mean). A sampled row keeps the self loop and k of the d other
entries, each multiplied by d/k:

.. math:: \hat A_{ii} = A_{ii}, \qquad \hat A_{ij} = \frac dk A_{ij} \text{ for the k entries drawn}, \qquad
    E[\hat A h] = A h.

Without the factor the node itself would have the weight 1/(k+1) in place of 1/(d+1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from lresnet.data import GraphTask
from lresnet.data.neighbour_sampler import ALL, NeighbourSampler
from lresnet.models import LorentzGCN
from lresnet.nn.input_map import Points
from lresnet.nn.sparse import SparseMatrix, mean_normalisation
from lresnet.train.graph_inputs import in_precision_of, is_sparse

__all__ = ["HostGraph", "Subgraph", "apply_layers"]

# Numbers gathered for one block of exact inference: 64 MB in float32, large enough to hide the cost of a launch.
_BLOCK = 2**24


@dataclasses.dataclass(frozen=True, eq=False)
class Subgraph:
    """Nodes and edges around some seeds, with the features of the nodes.

    Args:
        node: Numbers of the nodes in the graph, the seeds first, then hop by hop.
        features: Features of the nodes: dense ``[n, F]``, or the rows, columns and values of the non-zero ones.
        width: F.
        row: Source of each edge, numbered as in ``node``.
        col: Target of each edge, ascending.
        weight: Weight of each edge.
        loops: Nodes that get a self loop of weight 1, ascending.
        nodes: Number of nodes within 0, 1, ... hops.
        edges: Number of edges whose targets are within 0, 1, ... hops.
    """

    node: Tensor
    features: tuple[Tensor, ...]
    width: int
    row: Tensor
    col: Tensor
    weight: Tensor
    loops: Tensor
    nodes: tuple[int, ...]
    edges: tuple[int, ...]

    def pin(self) -> Subgraph:
        """Return the subgraph in page-locked memory, from which copies to a GPU do not block."""
        return self._map(lambda tensor: tensor.pin_memory())

    def to(self, device: torch.device) -> Subgraph:
        """Return the subgraph on ``device``; copies from page-locked memory do not block."""
        return self if device.type == "cpu" else self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def matrices(self, model: LorentzGCN) -> list[SparseMatrix]:
        """Return the matrix of every layer, the first layer first: the nodes that it computes, from one hop more."""
        layers = range(len(self.edges))
        return [self._matrix(model, self.nodes[hop], self.nodes[hop + 1], self.edges[hop]) for hop in reversed(layers)]

    def inputs(self) -> Tensor | SparseMatrix:
        """Return the features of the nodes as the input of a model."""
        if len(self.features) == 1:
            return self.features[0]
        row, col, values = self.features
        return SparseMatrix(row, col, values, (self.nodes[-1], self.width))

    def points(self, model: LorentzGCN) -> Points:
        """Return the features of the nodes as the model's input, in its precision."""
        return model.input_points(in_precision_of(model, self.inputs()))

    def _matrix(self, model: LorentzGCN, targets: int, sources: int, edges: int) -> SparseMatrix:
        row, col, weight = self.col[:edges], self.row[:edges], self.weight[:edges]
        if model.self_loops:
            loops = self.loops[: int(torch.searchsorted(self.loops, targets))]
            row, col = torch.cat([row, loops]), torch.cat([col, loops])
            weight = torch.cat([weight, weight.new_ones(loops.numel())])
        A = SparseMatrix.from_coo((row, col), weight, (targets, sources))
        return mean_normalisation(A) if model.euclidean else A

    def _map(self, function: Any) -> Subgraph:
        fields = {key: function(value) for key, value in vars(self).items() if isinstance(value, Tensor)}
        return dataclasses.replace(self, **fields, features=tuple(map(function, self.features)))


def apply_layers(model: LorentzGCN, graph: Subgraph) -> Tensor:
    """Return the output of the model for the seeds of a subgraph with one hop per layer.

    Every layer computes only the nodes that the seeds need.
    """
    matrices = graph.matrices(model)
    z = model.apply_layer(0, graph.points(model), matrices[0])
    for number, A in enumerate(matrices[1:], 1):
        z = model.apply_layer(number, z, A)
    return z if model.head is None else model.head(z)


class HostGraph:
    """Features and edges of a graph in the memory of the host.

    Args:
        x: features ``[N, F]``, dense or a sparse tensor of torch; stored as sparse rows if less than 30 % of them are
            non-zero.
        edge_index: edges ``[2, E]``.
        num_nodes: N.
        edge_weight: weights ``[E]``, not negative; None: 1.
        device: where models are, and where results go.

    Example:
        >>> graph = HostGraph(torch.eye(3), torch.tensor([[0, 1, 2], [1, 2, 0]]), 3)
        >>> graph.sample(torch.tensor([0]), [5], key=0).node
        tensor([0, 2])
        >>> graph.apply(LorentzGCN(3, num_classes=2)).shape
        torch.Size([3, 2])
    """

    def __init__(
        self,
        x: Tensor,
        edge_index: Tensor,
        num_nodes: int,
        edge_weight: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.device, self.num_nodes, self.width = torch.device(device), num_nodes, x.shape[1]
        self._sampler = NeighbourSampler(edge_index.cpu(), num_nodes, [ALL])
        order = self._sampler.edge_permutation
        weight = None if edge_weight is None else edge_weight.cpu()
        self._weight = weight if weight is None or order is None else weight[order]
        source, target = edge_index
        self._has_loop = torch.zeros(num_nodes, dtype=torch.bool)
        self._has_loop[source[source == target].cpu()] = True
        self._rows = _feature_rows(x.cpu())
        self._dtype = x.dtype

    @classmethod
    def of(cls, task: GraphTask, device: torch.device | str) -> HostGraph:
        """Return the graph of a task."""
        return cls(task.x, task.edge_index, task.num_nodes, getattr(task, "edge_weight", None), device)

    def sample(self, seeds: Tensor, neighbours: Sequence[int], key: int) -> Subgraph:
        """Return a sampled subgraph around ``seeds``, a function of the arguments.

        Args:
            seeds: Nodes ``[m]`` on the host.
            neighbours: Number of neighbours per node for every hop, the hop next to the seeds first; -1 takes all.
            key: Any whole number.
        """
        graph = self._edges(seeds, neighbours, key)
        return dataclasses.replace(graph, features=self._rows(graph.node))

    def _edges(self, seeds: Tensor, neighbours: Sequence[int], key: int) -> Subgraph:
        """Return the subgraph without features."""
        out = self._sampler.sample(seeds, key, neighbours)
        nodes, edges = np.cumsum(out.num_sampled_nodes), np.cumsum(out.num_sampled_edges)
        targets = out.node[: nodes[-2]]
        drawn = torch.bincount(out.col, minlength=len(targets)).clamp(min=1)
        weight = (self._sampler.degrees(targets).to(self._dtype) / drawn)[out.col]
        if self._weight is not None:
            weight *= self._weight[out.edge]
        loops = (~self._has_loop[targets]).nonzero().squeeze(-1)
        return Subgraph(
            out.node, (), self.width, out.row, out.col, weight, loops, tuple(nodes.tolist()), tuple(edges.tolist())
        )

    @torch.no_grad()
    def embed(self, model: LorentzGCN) -> Tensor:
        """Return the points of all nodes as in one pass over the whole graph, ``[N, n]`` on the device.

        The nodes are computed layer by layer in blocks, so that the device holds two layers of points, and one block of
        features and edges.
        """
        z = torch.empty(0)
        for number in range(len(model.layers)):
            width = self.width if number == 0 else z.shape[1]
            parts = []
            for block in self._blocks(width):
                graph = self._edges(block, [ALL], key=0)
                if number == 0:
                    graph = dataclasses.replace(graph, features=self._rows(graph.node)).to(self.device)
                    inputs: Any = graph.points(model)
                else:
                    graph = graph.to(self.device)
                    inputs = z[graph.node]
                parts.append(model.apply_layer(number, inputs, graph.matrices(model)[0]))
            z = torch.cat(parts)
        return z

    def apply(self, model: LorentzGCN) -> Tensor:
        """Return the output of the model for all nodes: logits, or points if the model has no head."""
        z = self.embed(model)
        if model.head is None:
            return z
        with torch.no_grad():
            return torch.cat([model.head(rows) for rows in z.split(max(1, _BLOCK // z.shape[1]))])

    def _blocks(self, width: int) -> Iterator[Tensor]:
        """Split the nodes so that a block gathers about ``_BLOCK`` numbers; a node's edges are never split."""
        budget = max(1, _BLOCK // width)
        entries = torch.arange(1, self.num_nodes + 1) + self._sampler.degrees(torch.arange(self.num_nodes)).cumsum(0)
        numbers = (entries - 1).div(budget, rounding_mode="floor")
        yield from torch.arange(self.num_nodes).split(torch.unique_consecutive(numbers, return_counts=True)[1].tolist())


def _feature_rows(x: Tensor) -> Any:
    """Return a function that gathers the features of nodes, see :attr:`Subgraph.features`."""
    if x.layout == torch.strided and not is_sparse(x):
        return lambda nodes: (x.index_select(0, nodes),)
    entries = x.to_sparse_coo().coalesce()  # to_sparse_csr would print torch's warning about a beta state
    row, column = entries.indices().numpy()
    matrix = sparse.csr_array((entries.values().numpy(), (row, column.astype(np.int32))), shape=tuple(x.shape))

    def gather(nodes: Tensor) -> tuple[Tensor, ...]:
        part = matrix[nodes.numpy()]
        row = np.repeat(np.arange(len(nodes)), np.diff(part.indptr))
        return torch.from_numpy(row), torch.from_numpy(part.indices).long(), torch.from_numpy(part.data)

    return gather
