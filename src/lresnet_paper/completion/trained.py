"""Trained methods of hierarchy completion: residual networks, shallow embeddings and a graph autoencoder.

All but the autoencoder have one score and one loss, so that they differ in the embedding only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import geoopt
import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from lresnet.geometry import Lorentz, pairwise_dist
from lresnet.models import LorentzGCN, create_model
from lresnet.nn.pair_distance import lorentz_distance2
from lresnet.nn.sparse import SparseMatrix, adjacency, symmetric_normalisation
from lresnet_paper.completion.data import Cell, Side
from lresnet_paper.completion.evaluation import Scorer, mean_reciprocal_rank

__all__ = ["Outcome", "train"]


_TABLE = 2**24  # entries of a table of all pairs
_SCALAR_LR = 0.1  # of temperature and radial weight, in every arm


class Outcome(NamedTuple):
    """A trained method at its best validation pass."""

    scorer: Scorer
    validation: float
    """Filtered mean reciprocal rank of the validation pairs, in percent."""
    step: int
    """The training step of that pass; 0 if no pass had finite points. All scores are then equal."""


def train(
    cell: Cell,
    features: sparse.csr_array | None,
    settings: Mapping[str, Any],
    dimension: int,
    schedule: Mapping[str, Any],
    seed: int,
    device: str = "cpu",
) -> Outcome:
    """Train one method on a split. The state with the best validation ranking is kept; test pairs are not read.

    Args:
        cell: the split; its tensors are on ``device``.
        features: gloss words of the nodes; None for methods that do not read them.
        settings: those of the arm, ``family`` and ``lr`` among them, see ``completion.toml``.
        dimension: dimension of the embeddings.
        schedule: the plan's ``training``: steps, eval_every, batch_pairs, negatives, and the share of the leaves that
            a graph network must place without their edges in a step (task ``"leaves"``).
        seed: seed of initialisation, dropout and negatives.
        device: where to train.
    """
    torch.manual_seed(seed)
    method = _method(cell, features, settings, dimension).to(device)
    optimisers = method.optimisers(settings["lr"])
    sampler = _Negatives(cell, schedule["negatives"], device)
    # Held-out leaves have no edges, so training leaves must do without theirs.
    hides = cell.task == "leaves" and settings["family"] != "shallow" and settings.get("messages", True)
    best = Outcome(_constant(cell.nouns.num_nodes), 0.0, 0)  # of a training that is never finite
    for step in range(1, schedule["steps"] + 1):
        method.train()
        pairs = cell.split.train
        if hides:
            edges, pairs = _hide_leaves(cell, schedule["hidden_leaves"])
            method.set_edges(edges)
        loss = method.loss(_batch(pairs, schedule["batch_pairs"]), sampler)
        for optimiser in optimisers:
            optimiser.zero_grad()
        loss.backward()
        for optimiser in optimisers:
            optimiser.step()
        if step % schedule["eval_every"] == 0 or step == schedule["steps"]:
            if hides:
                method.set_edges(cell.message_edges)
            if not _is_finite(method.eval()):
                break
            scorer = method.scorer()
            value = mean_reciprocal_rank(scorer, cell.val, cell.nouns.num_nodes)
            if value > best.validation:
                best = Outcome(scorer, value, step)
    return best


@torch.no_grad()
def _is_finite(method: _Embedding | _Autoencoder) -> bool:
    """Return whether all parameters and points are finite: on a GPU, scores of NaN raise no error and rank first."""
    return all(bool(own.isfinite().all()) for own in (method.points(), *method.parameters()))


def _constant(nodes: int) -> Scorer:
    return lambda queries, side: torch.zeros(queries.numel(), nodes, device=queries.device)


def _method(
    cell: Cell, features: sparse.csr_array | None, settings: Mapping[str, Any], dimension: int
) -> _Embedding | _Autoencoder:
    family = settings["family"]
    if family == "shallow":
        return _Shallow(cell.nouns.num_nodes, dimension, settings)
    assert features is not None, f"a {family} reads glosses"
    return (_Network if family == "network" else _Autoencoder)(cell, features, dimension, settings)


def _batch(pairs: Tensor, most: int) -> Tensor:
    if pairs.shape[1] <= most:
        return pairs
    return pairs[:, torch.randint(pairs.shape[1], (most,), device=pairs.device)]


def _hide_leaves(cell: Cell, share: float) -> tuple[Tensor, Tensor]:
    """Return message edges without those of some random training leaves, and the pairs of these leaves."""
    node, ancestor = cell.split.train
    hidden = torch.rand(cell.nouns.num_nodes, device=node.device) < share
    hidden[ancestor] = False
    edges = cell.message_edges
    return edges[:, ~hidden[edges].any(dim=0)], cell.split.train[:, hidden[node]]


class _Negatives:
    """Uniform candidates for both ranked ends; those that make a training pair are marked."""

    def __init__(self, cell: Cell, count: int, device: str) -> None:
        self.nodes, self.count, self.sides = cell.nouns.num_nodes, count, cell.sides
        self.taken = (cell.split.train[0] * self.nodes + cell.split.train[1]).sort().values
        self.table: Tensor | None = None  # of a small hierarchy, where looking up is faster than searching
        if self.nodes**2 <= _TABLE:
            self.table = torch.zeros(self.nodes**2, dtype=torch.bool, device=device)
            self.table[self.taken] = True

    def draw(self, pairs: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """Return candidates ``[m, k]`` for the ``side`` end of pairs ``[2, m]``, and which of them are wrong."""
        drawn = torch.randint(self.nodes, (pairs.shape[1], self.count), device=pairs.device)
        node, ancestor = (pairs[0][:, None], drawn) if side == "ancestor" else (drawn, pairs[1][:, None])
        code = node * self.nodes + ancestor
        if self.table is not None:
            is_taken = self.table[code]
        else:
            place = torch.searchsorted(self.taken, code).clamp(max=self.taken.numel() - 1)
            is_taken = self.taken[place] == code
        return drawn, ~is_taken & (node != ancestor)


# --- embeddings in a geometry -----------------------------------------------------------------------------------------


class _Embedding(torch.nn.Module):
    r"""Points with the score of a pair (x, ancestor a), :math:`s(x, a) = -\tau d(x, a) + b (r(x) - r(a))`.

    d is the distance and r the distance from the origin of the geometry; :math:`\tau` and b are learned. b lets the
    score know that ancestors lie nearer to the origin. The loss is the cross entropy of the true candidate among
    sampled ones, as in Nickel and Kiela (2017), for every end that is ranked.
    """

    def __init__(self, curvature: float | None) -> None:
        super().__init__()
        self.curvature = curvature
        self.log_temperature = torch.nn.Parameter(torch.tensor(1.4))
        self.radial = torch.nn.Parameter(torch.zeros(()))

    def points(self) -> Tensor:
        """Return the points of all nodes in space coordinates, ``[n, d]``."""
        raise NotImplementedError

    def set_edges(self, edges: Tensor) -> None:
        """Pass messages along these edges ``[2, e]`` from now on."""
        raise NotImplementedError

    def optimisers(self, lr: float) -> list[torch.optim.Optimizer]:
        """Return the optimisers of one step."""
        scalars = [self.log_temperature, self.radial]
        others = [own for own in self.parameters() if all(own is not one for one in scalars)]
        return [*self._optimisers(others, lr), torch.optim.Adam(scalars, lr=_SCALAR_LR)]

    def _optimisers(self, others: Sequence[torch.nn.Parameter], lr: float) -> list[torch.optim.Optimizer]:
        return [torch.optim.Adam(others, lr=lr)]

    def loss(self, pairs: Tensor, sampler: _Negatives) -> Tensor:
        """Return the mean cross entropy of the pairs."""
        ends, wrong = [pairs], []
        for side in sampler.sides:
            drawn, is_wrong = sampler.draw(pairs, side)
            nodes, ancestors = (end[:, None].expand_as(drawn) for end in pairs)
            ends.append(torch.stack([nodes, drawn] if side == "ancestor" else [drawn, ancestors]).flatten(1))
            wrong.append(is_wrong)
        true, *others = self._scores(torch.cat(ends, dim=1)).split([one.shape[1] for one in ends])
        losses = [
            torch.cat([true[:, None], own.view_as(mask).masked_fill(~mask, -torch.inf)], dim=1).log_softmax(dim=1)[:, 0]
            for own, mask in zip(others, wrong, strict=True)
        ]
        return -torch.stack(losses).mean()

    @torch.no_grad()
    def scorer(self) -> Scorer:
        """Return the scores of the present points."""
        z = self.points().detach().clone()
        return _Geometric(z, self.curvature, float(self.log_temperature.exp()), float(self.radial))

    def _scores(self, pairs: Tensor) -> Tensor:
        z = self.points()
        outward = self.radial * _radius(z, self.curvature)
        d = _distances(z, pairs, self.curvature)
        return outward[pairs[0]] - outward[pairs[1]] - self.log_temperature.exp() * d


class _Geometric:
    """Scores of fixed points, see :class:`_Embedding`."""

    def __init__(self, z: Tensor, curvature: float | None, temperature: float, radial: float) -> None:
        self.z, self.curvature, self.temperature = z, curvature, temperature
        outward = radial * _radius(z, curvature)
        self.offset = {"node": outward, "ancestor": -outward}

    def __call__(self, queries: Tensor, side: Side) -> Tensor:
        d = pairwise_dist(self.z[queries], self.z, K=self.curvature)
        return self.offset[side] - self.temperature * d


def _distances(z: Tensor, pairs: Tensor, curvature: float | None) -> Tensor:
    """Return the distances of pairs of points ``[m]``; the gradient of a zero distance is 0."""
    kappa = None if curvature is None else -curvature
    square = lorentz_distance2(z, pairs, kappa)
    chord = torch.where(square > 0, square, 1.0).sqrt() * (square > 0)
    return chord if kappa is None else 2 / kappa**0.5 * torch.asinh(chord * kappa**0.5 / 2)


def _radius(z: Tensor, curvature: float | None) -> Tensor:
    if curvature is not None:
        return Lorentz(curvature).dist0(z)
    square = z.square().sum(-1)
    return torch.where(square > 0, square, 1.0).sqrt() * (square > 0)


class _Network(_Embedding):
    """Residual graph network on gloss words, whose layers all have the dimension of the embedding."""

    def __init__(self, cell: Cell, features: sparse.csr_array, dimension: int, settings: Mapping[str, Any]) -> None:
        flat = settings["residual"] == "euclidean"
        super().__init__(None if flat else -settings["kappa"])
        options = {"scale": settings["scale"]} if settings.get("scale", "none") != "none" else {}
        model = create_model(
            "lorentz_gcn",
            in_features=features.shape[1],
            hidden=dimension,
            num_layers=settings["num_layers"],
            residual=settings["residual"],
            residual_options=options,
            curvature=-1.0 if flat else -settings["kappa"],
            dropout=settings.get("dropout", 0.0),
            activation="relu",
            layer=settings["layer"],
        )
        assert isinstance(model, LorentzGCN)
        self.model = model
        edges = cell.message_edges if settings.get("messages", True) else cell.message_edges[:, :0]
        self.inputs = model.input_points(_sparse(features).to(edges.device))
        self.nodes = cell.nouns.num_nodes
        self.set_edges(edges)

    def set_edges(self, edges: Tensor) -> None:
        self.graph = self.model.graph(edges, self.nodes)

    def points(self) -> Tensor:
        return self.model.embed(self.inputs, self.graph)


class _Shallow(_Embedding):
    """One free point per node, in space coordinates of the hyperboloid, in the Poincare ball, or in flat space.

    Adam moves space coordinates on the hyperboloid and in flat space, so that kappa -> 0 is the Euclidean embedding. In
    the ball it is the Riemannian Adam of geoopt.
    """

    def __init__(self, nodes: int, dimension: int, settings: Mapping[str, Any]) -> None:
        self.geometry = settings["geometry"]
        super().__init__(None if self.geometry == "euclidean" else -settings["kappa"])
        start = settings["init"] * torch.randn(nodes, dimension)
        if self.geometry == "poincare":
            ball = geoopt.PoincareBall(c=settings["kappa"])
            self.table: Tensor = geoopt.ManifoldParameter(Lorentz(-settings["kappa"]).to_poincare(start), manifold=ball)
        else:
            self.table = torch.nn.Parameter(start)

    def points(self) -> Tensor:
        if self.geometry == "poincare":
            assert self.curvature is not None
            return Lorentz(self.curvature).from_poincare(self.table)
        return self.table

    def _optimisers(self, others: Sequence[torch.nn.Parameter], lr: float) -> list[torch.optim.Optimizer]:
        if self.geometry == "poincare":
            return [geoopt.optim.RiemannianAdam(others, lr=lr)]
        return super()._optimisers(others, lr)


# --- graph autoencoder ------------------------------------------------------------------------------------------------


class _Autoencoder(torch.nn.Module):
    r"""GAE of Kipf and Welling (2016): :math:`Z = S \operatorname{relu}(S X W_1) W_2`, score :math:`z_i \cdot z_j`.

    The hidden layer is twice as wide as the embedding. The loss is the binary cross entropy of training pairs and of as
    many random pairs.
    """

    def __init__(self, cell: Cell, features: sparse.csr_array, dimension: int, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.dropout = settings.get("dropout", 0.0)
        self.features = _sparse(features).to(cell.message_edges.device)
        self.set_edges(cell.message_edges)
        self.first = torch.nn.Parameter(torch.empty(features.shape[1], 2 * dimension))
        self.second = torch.nn.Parameter(torch.empty(2 * dimension, dimension))
        for weight in (self.first, self.second):
            torch.nn.init.xavier_uniform_(weight)

    def set_edges(self, edges: Tensor) -> None:
        """Pass messages along these edges ``[2, e]`` from now on."""
        self.graph = symmetric_normalisation(adjacency(edges, self.features.shape[0], None, self_loops=True))

    def optimisers(self, lr: float) -> list[torch.optim.Optimizer]:
        """Return Adam, as the paper has."""
        return [torch.optim.Adam(self.parameters(), lr=lr)]

    def points(self) -> Tensor:
        """Return the vectors of all nodes, ``[n, d]``."""
        hidden = torch.relu(self.graph @ (self.features @ self.first))
        hidden = torch.nn.functional.dropout(hidden, self.dropout, self.training)
        return self.graph @ (hidden @ self.second)

    def loss(self, pairs: Tensor, sampler: _Negatives) -> Tensor:
        """Return the binary cross entropy."""
        z = self.points()
        true = (z[pairs[0]] * z[pairs[1]]).sum(-1)
        random = torch.randint(sampler.nodes, pairs.shape, device=pairs.device)
        other = (z[random[0]] * z[random[1]]).sum(-1)
        return -(torch.nn.functional.logsigmoid(true).mean() + torch.nn.functional.logsigmoid(-other).mean()) / 2

    @torch.no_grad()
    def scorer(self) -> Scorer:
        """Return the inner products of the present vectors."""
        z = self.points().detach()
        return lambda queries, side: z[queries] @ z.T


def _sparse(features: sparse.csr_array) -> SparseMatrix:
    entries: Sequence[Any] = features.tocoo().coords
    index = torch.from_numpy(np.stack(entries).astype(np.int64))
    shape = (features.shape[0], features.shape[1])
    return SparseMatrix.from_coo(index, torch.from_numpy(features.tocoo().data.astype(np.float32)), shape)
