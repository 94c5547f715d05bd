"""Base class of the graph models: PyG's data objects as input, readout of whole graphs, and explanations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from lresnet.geometry import Lorentz
from lresnet.models.pretrained import Pretrained
from lresnet.nn.input_map import Points
from lresnet.nn.message_passing import WeightedPassing
from lresnet.nn.pooling import graph_centroid_pool, graph_space_mean
from lresnet.nn.sparse import SparseMatrix

__all__ = ["GraphInput", "GraphModel", "Inputs", "is_data", "unpack_data"]

GraphInput: TypeAlias = Tensor | SparseMatrix | Points | Any
"""Features, points, or a data object of PyG (which has no types)."""


class Inputs(NamedTuple):
    """What a graph model reads of a data object."""

    x: Tensor | SparseMatrix
    edge_index: Tensor
    edge_weight: Tensor | None
    batch: Tensor | None
    num_graphs: int | None
    node_counts: dict[str, int] | None
    """Number of nodes of every type; None for a graph with one type."""


class GraphModel(Pretrained):
    """A network of nodes. Subclasses compute ``embed``; the head and the readout are here."""

    euclidean: bool
    manifold: Lorentz
    head: torch.nn.Module | None
    drops_features = True
    """Whether dropout applies to the features themselves, so that each member of a stack has its own."""
    norm_statistics: ClassVar[Literal["running", "reestimated"]] = "running"
    """Statistics of batch norms in evaluation, see :class:`~lresnet.train.TrainConfig`, which may give other ones."""

    def forward(
        self,
        x: GraphInput,
        edge_index: Tensor | SparseMatrix | None = None,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Any:
        """Return logits, or embeddings if the model has no head; of each node or, with ``batch``, of each graph.

        For many calls build the inputs once: ``x`` may be the result of ``input_points``, and ``edge_index`` the
        result of ``graph``.

        Args:
            x: Features [N, in], dense or sparse (also a sparse tensor of torch); or a ``Data`` or ``HeteroData`` of
                PyG, then the only argument. From ``Data`` come ``x``, ``edge_index`` (or ``adj_t``), ``edge_weight``
                and ``batch``. The batches of PyG's ``NeighborLoader`` and ``LinkNeighborLoader`` are such objects: as
                in PyG, the first ``batch_size`` rows of the result belong to the seeds. The nodes and edges of
                ``HeteroData`` form one graph, whose types share all weights; the result is a dict by node type. (For
                weights of their own see :class:`~lresnet.nn.LorentzSAGEConv` in PyG's ``HeteroConv``.)
            edge_index: Edges [2, E], or PyG's ``adj_t`` as a sparse tensor of torch, whose rows are targets.
            edge_weight: Weights [E]. Default: 1.
            batch: Graph of each node, [N]. The embeddings are then pooled before the head, by the Lorentzian centroid
                (by the mean in the Euclidean baseline).
            batch_size: Number of graphs. Default: one more than the largest number in ``batch``.

        Returns:
            [N, ...], or [B, ...] with ``batch``.
        """
        if not is_data(x):
            return self.logits(self.pool(self.embed(x, edge_index, edge_weight), batch, batch_size))
        inputs = unpack_data(x, edge_index)
        z = self.embed(inputs.x, inputs.edge_index, inputs.edge_weight)
        result = self.logits(self.pool(z, inputs.batch, inputs.num_graphs))
        return result if inputs.batch is not None else by_type(result, inputs.node_counts)

    def embed(
        self,
        x: GraphInput,
        edge_index: Tensor | SparseMatrix | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the embeddings of the nodes, [N, hidden], in space coordinates. The arguments are those of a call."""
        node_counts = None
        if is_data(x):
            x, edge_index, edge_weight, _, _, node_counts = unpack_data(x, edge_index)
        if edge_index is None:
            raise TypeError("edge_index is missing; call the model with x and edge_index, or with a Data of PyG")
        result: Tensor = by_type(self.embed_nodes(x, edge_index, edge_weight), node_counts)
        return result

    def embed_nodes(
        self, x: Tensor | SparseMatrix | Points, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None
    ) -> Tensor:
        """Return the embeddings of the nodes of one graph."""
        raise NotImplementedError

    def pool(self, embedding: Tensor, batch: Tensor | None, batch_size: int | None = None) -> Tensor:
        """Return one point per graph, [N, n] -> [B, n]; without ``batch`` the embeddings unchanged."""
        if batch is None:
            return embedding
        if self.euclidean:
            return graph_space_mean(embedding, batch, batch_size)
        return graph_centroid_pool(embedding, batch, batch_size, K=self.manifold.curvature)

    def logits(self, embedding: Tensor) -> Tensor:
        """Return the result of the head, or without a head the embeddings."""
        return embedding if self.head is None else self.head(embedding)

    def layer_modules(self) -> Sequence[torch.nn.Module]:
        """Return the modules whose outputs are the nodes after every layer, in order; [] if there are none.

        Each runs once in a pass over a whole graph, so a forward hook sees the output of its layer.
        """
        return []

    def weights_of_edges(self, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor | None:
        """Return the weights of the edges; where none are given, ones in the model's precision."""
        dtype = next((each.dtype for each in self.parameters() if each.is_floating_point()), torch.float32)
        if edge_weight is not None or edge_index.layout != torch.strided or dtype != torch.float64:
            return edge_weight
        return torch.ones(edge_index.shape[-1], dtype=dtype, device=edge_index.device)

    def is_observed(self) -> bool:
        """Return whether a convolution needs single messages, as in an explanation of PyG."""
        return any(module.is_observed() for module in self.modules() if isinstance(module, WeightedPassing))


def is_data(x: object) -> bool:
    """Return whether x is neither features nor points, that is, a data object of PyG."""
    return not isinstance(x, Tensor | SparseMatrix | Points)


def unpack_data(data: Any, edge_index: object = None) -> Inputs:
    """Return what a graph model reads of a ``Data`` or ``HeteroData``."""
    if edge_index is not None:
        raise TypeError("a data object is the only argument: model(data), or model(data.x, data.edge_index, ...)")
    if hasattr(data, "node_types"):
        return _unpack_hetero(data)
    x, edges = getattr(data, "x", None), getattr(data, "edge_index", None)
    edges = getattr(data, "adj_t", None) if edges is None else edges
    if not isinstance(x, Tensor) or not isinstance(edges, Tensor):
        missing = "x" if not isinstance(x, Tensor) else "edge_index"
        raise TypeError(
            f"{type(data).__name__} has no tensor {missing!r}; the model needs x [N, in] and edge_index [2, E] "
            "(without features, x may be a sparse identity matrix)"
        )
    weight = getattr(data, "edge_weight", None)
    # In sampled batches "batch" is the seed of each node, not its graph.
    batch = None if hasattr(data, "n_id") else getattr(data, "batch", None)
    return Inputs(x, edges, weight, batch, None if batch is None else getattr(data, "num_graphs", None), None)


def _unpack_hetero(data: Any) -> Inputs:
    """Return the nodes of all types in their order as one graph, with all edges."""
    features: dict[str, Any] = {name: getattr(data[name], "x", None) for name in data.node_types}
    widths = {name: x.shape[1] if isinstance(x, Tensor) else None for name, x in features.items()}
    if None in widths.values() or len(set(widths.values())) != 1:
        sizes = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise ValueError(
            f"the node types of HeteroData must have features of one width to share a model, got {sizes}; give them "
            "equal widths, or use HeteroConv({edge_type: lresnet.nn.LorentzSAGEConv((-1, -1), hidden, manifold=M)})"
        )
    counts = {name: x.shape[0] for name, x in features.items()}
    starts, total = {}, 0
    for name, count in counts.items():
        starts[name], total = total, total + count
    edges, weights = [], []
    for source, relation, target in data.edge_types:
        store = data[source, relation, target]
        edges.append(store.edge_index + torch.tensor([[starts[source]], [starts[target]]]).to(store.edge_index))
        weight = getattr(store, "edge_weight", None)
        weights.append(torch.ones(store.edge_index.shape[1]).to(store.edge_index.device) if weight is None else weight)
    x = torch.cat(list(features.values()))
    edge_index = torch.cat(edges, dim=1) if edges else torch.empty(2, 0, dtype=torch.int64, device=x.device)
    return Inputs(x, edge_index, torch.cat(weights) if weights else None, None, None, counts)


def by_type(rows: Tensor, counts: dict[str, int] | None) -> Any:
    """Return the rows of every node type in a dict; without types the rows unchanged."""
    return rows if counts is None else dict(zip(counts, rows.split(list(counts.values())), strict=True))
