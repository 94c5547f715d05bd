"""lorentz_gcnii: deep graph networks with an initial residual and an identity map, on the hyperboloid.

After Chen et al., "Simple and Deep Graph Convolutional Networks" (ICML 2020), with the residual connections of this
library in place of the sum. A chain of 32 residuals at weight 1 collapses in its first training steps
(docs/theory/depth.md); here every layer returns to the first embedding.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from lresnet._options import ABOVE_0_BELOW_1, AT_LEAST_1, FROM_0_BELOW_1, Range
from lresnet.geometry import Lorentz
from lresnet.geometry.checks import full_precision
from lresnet.geometry.curvature import kappa_of
from lresnet.geometry.stack import times_rows
from lresnet.models.graph_model import GraphModel
from lresnet.nn.aggregation import aggregate, centroid_of_sums, rescaled_aggregate, with_unitless_time
from lresnet.nn.dropout import dropout, dropout_mask
from lresnet.nn.euclidean import EuclideanLinear, sparse_linear
from lresnet.nn.input_map import MAX_RADIUS, Points, coordinate_input, dropout_values
from lresnet.nn.message_passing import Sizes, SumPassing
from lresnet.nn.mlr import LorentzMLR
from lresnet.nn.prototypes import Prototypes
from lresnet.nn.row_norm import ROW_NORMS
from lresnet.nn.sparse import BlockDiagonal, SparseMatrix, adjacency, mean_normalisation, symmetric_normalisation
from lresnet.nn.weighted_join import WeightedJoin

__all__ = ["CONNECTIONS", "GCNIILayer", "LorentzGCNII"]

Connection: TypeAlias = Literal["initial", "chain", "dense", "jumping"]

CONNECTIONS: dict[str, float] = {"initial": 0.1, "chain": 0.5, "dense": 0.1, "jumping": 0.5}
"""Connections by name, with their default weight of the skip branch."""

_AGGREGATIONS = ("symmetric", "mean")
_SKIPS = ("identity", "linear")
_HEADS = ("linear", "prototypes", "mlr")
# log(theta + 1), the weight of the first matrix beside the identity, is at most 1.
_THETA = Range("above 0 and at most e - 1 = 1.718", lambda value: 0 < value <= math.e - 1)


class LorentzGCNII(GraphModel):
    r"""Deep graph network with an initial residual and an identity map; ``residual="euclidean"`` is GCNII itself.

    .. math:: x_0 &= \mathrm{relu}(W_{in} f + b) \\
        m_l &= \rho \odot \mathrm{centroid}_{\hat A}(x_{l-1}) \\
        r_l &= \alpha\, s_l \oplus (1 - \alpha)\, m_l \\
        x_l &= \mathrm{relu}\big(\nu((1 - \beta_l)\, r_l + \beta_l W_l r_l)\big), \qquad
        \beta_l = \log(\theta / l + 1)

    All maps act on space coordinates. :math:`\hat A` is the symmetrically normalised adjacency and :math:`\rho` the sum
    of each of its rows: a rescaling along the radius that depends on the degree, as the sum :math:`\hat A x` of GCNII
    has it. It commutes with rotations about the origin, not with boosts. The pair of weights :math:`(\alpha, 1 -
    \alpha)` is defined for every residual (:class:`~lresnet.nn.WeightedJoin`). As the curvature goes to 0, the network
    becomes GCNII. :math:`\nu` is a norm or the identity, and :math:`s_l` the skip branch, set by ``connection``:

    - "initial": :math:`s_l = x_0`, as in GCNII;
    - "chain": :math:`s_l = x_{l-1}`, as in a residual network;
    - "dense": :math:`s_l` is the mean of :math:`x_0, \dots, x_{l-1}`, taken with the residual connection;
    - "jumping": no residual inside (:math:`r_l = m_l`); the output is the mean of :math:`x_0, \dots, x_L`.

    Args:
        in_features: Number of node features, which are the space coordinates of points.
        hidden: Dimension n of the space, for all layers.
        num_layers: Number L of layers.
        num_classes: Classes of the head. None: the output is the embeddings, and the last layer has no ReLU, which
            would confine them to one orthant.
        residual: A name of :data:`lresnet.residual.METHODS`; "none" ignores the skip branch.
        residual_options: Options of the residual, e.g. ``{"scale": "1+w"}`` with :math:`w = (1 - \alpha)/\alpha`. Its
            weight is set by ``alpha``.
        curvature: K < 0.
        learn_curvature: Train the curvature.
        dropout: Dropout rate of the features and of the space coordinates that enter a layer or the head.
        self_loops: Make every node its own neighbour.
        max_radius: Distance of the farthest input point, in radii of curvature.
        connection: "initial", "chain", "dense" or "jumping".
        alpha: Weight of the skip branch, above 0 and below 1. None: 0.1, and 0.5 for "chain". The closer to 1, the less
            the later layers contribute.
        learn_alpha: Train one alpha for each layer.
        identity_map: Without it :math:`\beta_l = 1`: plain layers, as in a graph convolutional network.
        theta: Strength of the matrices :math:`W_l` beside the identity, lambda in the paper.
        aggregation: Weights of the neighbours: "symmetric", or "mean" (without :math:`\rho`).
        skip: "identity", or "linear": a matrix of its own maps the skip branch, and the identity map acts on
            :math:`m_l` instead of :math:`r_l`.
        norm: Norm of the space coordinates before the ReLU: "none", "layer" or "batch". A batch norm in evaluation has
            statistics re-estimated without dropout (:func:`~lresnet.train.norm_statistics.reestimate_statistics`).
        head: "linear", a linear map of the space coordinates as in GCNII, "prototypes" or "mlr". The Euclidean baseline
            has the linear head only.
        activation_checkpointing: Store the activations of about the square root of L layers and compute the others
            again in the backward pass. The results are the same. torch.compile ignores it: a compiler decides itself
            what to compute again.

    Shapes:
        x [N, in], edge_index [2, E], edge_weight [E], batch [N] -> embeddings [N, hidden] or logits [N, num_classes];
        with batch [B, hidden] or [B, num_classes]

    Example:
        >>> model = LorentzGCNII(in_features=8, num_layers=32, num_classes=3, curvature=-0.1)
        >>> model(torch.randn(5, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([5, 3])
    """

    model_name = "lorentz_gcnii"
    norm_statistics = "reestimated"
    generators: Sequence[torch.Generator] = ()
    """Random generators of dropout in a stack, one for each member. Empty: torch's own generator."""

    def __init__(
        self,
        in_features: int,
        hidden: int = 64,
        num_layers: int = 16,
        num_classes: int | None = None,
        residual: str = "lorentz",
        residual_options: dict[str, Any] | None = None,
        curvature: float = -0.1,
        learn_curvature: bool = False,
        dropout: float = 0.0,
        self_loops: bool = True,
        max_radius: float = MAX_RADIUS,
        connection: Connection = "initial",
        alpha: float | None = None,
        learn_alpha: bool = False,
        identity_map: bool = True,
        theta: float = 0.5,
        aggregation: Literal["symmetric", "mean"] = "symmetric",
        skip: Literal["identity", "linear"] = "identity",
        norm: Literal["none", "layer", "batch"] = "none",
        head: Literal["linear", "prototypes", "mlr"] = "linear",
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        for name, value, known in (
            ("connection", connection, tuple(CONNECTIONS)),
            ("aggregation", aggregation, _AGGREGATIONS),
            ("skip", skip, _SKIPS),
            ("norm", norm, tuple(ROW_NORMS)),
            ("head", head, _HEADS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        _require_ranges(in_features, hidden, num_layers, dropout, theta)
        _require_compatible(residual, residual_options, connection, skip, head)
        if connection == "jumping" and (alpha is not None or learn_alpha or residual_options):
            raise ValueError(
                "connection='jumping' has no skip branch inside a layer; leave out alpha, learn_alpha and the options "
                "of the residual, such as scale"
            )
        self.euclidean = residual == "euclidean"
        self.dropout, self.self_loops, self.max_radius = dropout, self_loops, max_radius
        self.connection, self.symmetric = connection, aggregation == "symmetric"
        self.activation_checkpointing = activation_checkpointing
        self.manifold = Lorentz(curvature, learnable=learn_curvature and not self.euclidean)
        self.input_layer = EuclideanLinear(in_features, hidden)
        self.passing = SumPassing(self_loops=self_loops)  # of all layers
        share = CONNECTIONS[connection] if alpha is None else alpha
        if share not in ABOVE_0_BELOW_1 or 1 - share == 1:
            raise ValueError(f"alpha must be {ABOVE_0_BELOW_1}, got {alpha!r}")
        options = residual_options or {}

        def join(weight: float, learned: bool = False, **own: Any) -> WeightedJoin:
            return WeightedJoin(residual, self.manifold, weight, learn_weight=learned, **own)

        def layer(number: int) -> GCNIILayer:
            own = None if connection == "jumping" else join(1 - share, learn_alpha, **options)
            beta = math.log(theta / number + 1) if identity_map else 1.0
            last = number == num_layers and num_classes is None
            return GCNIILayer(hidden, beta, own, linear_skip=skip == "linear", norm=norm, relu=not last)

        self.layers = torch.nn.ModuleList(layer(number) for number in range(1, num_layers + 1))
        # The mean of x_0, ..., x_l is that of x_0, ..., x_(l-1) with weight l/(l + 1), and x_l.
        means = {"dense": num_layers - 1, "jumping": num_layers}.get(connection, 0)
        self.means = torch.nn.ModuleList(join(1 / (number + 1)) for number in range(1, means + 1))
        self.head: torch.nn.Module | None = None if num_classes is None else self._head(hidden, num_classes, head)

    def _head(self, hidden: int, num_classes: int, kind: str) -> torch.nn.Module:
        if kind == "prototypes":
            return Prototypes(hidden, num_classes, manifold=self.manifold)
        if kind == "mlr":
            return LorentzMLR(hidden, num_classes, manifold=self.manifold)
        return EuclideanLinear(hidden, num_classes)

    @property
    def alphas(self) -> list[float]:
        """The weight of the skip branch in every layer; empty without skip branches."""
        joins = [module for name, module in self.named_modules() if name.endswith(".join")]
        return [1 - float(join.weight.detach()) for join in joins if join.kind != "none"]

    def layer_modules(self) -> list[torch.nn.Module]:
        return list(self.layers)

    def embed_nodes(
        self, x: Tensor | SparseMatrix | Points, edge_index: Tensor | SparseMatrix, edge_weight: Tensor | None
    ) -> Tensor:
        points = x if isinstance(x, Points) else self.input_points(x)
        A: SparseMatrix | _Messages
        if self.passing.is_observed():
            A = self._messages(edge_index, points.x.shape[0], edge_weight)
        elif isinstance(edge_index, SparseMatrix):
            A = edge_index
        else:
            A = self.graph(edge_index, points.x.shape[0], edge_weight)
        return self._run_layers(self._start(points), A)

    def logits(self, embedding: Tensor) -> Tensor:
        return embedding if self.head is None else self.head(self._drop(embedding))

    def input_points(self, features: Tensor | SparseMatrix) -> Points:
        """Return the features as points. They are constant unless the curvature is learned: build them once."""
        shape = features.member_shape if isinstance(features, BlockDiagonal) else tuple(features.shape)
        if len(shape) < 2 or shape[-1] != self.input_layer.in_features:
            raise ValueError(f"the model was built for features [N, {self.input_layer.in_features}], got shape {shape}")
        return coordinate_input(features, None if self.euclidean else self.manifold, self.max_radius)

    def graph(self, edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None) -> SparseMatrix:
        """Return the normalised adjacency matrix for the layers, to be built once for many calls."""
        weights = self.weights_of_edges(edge_index, edge_weight)
        A = adjacency(edge_index, num_nodes, weights, self_loops=self.self_loops)
        if self.symmetric:
            return symmetric_normalisation(A)
        return mean_normalisation(A)  # scaling a row does not change its centroid

    def _messages(self, edge_index: Tensor | SparseMatrix, num_nodes: int, edge_weight: Tensor | None) -> _Messages:
        """Return the entries of :meth:`graph` as edges, in the order that the masks of PyG's explainers expect."""
        sizes = Sizes((num_nodes, num_nodes), same=not isinstance(edge_index, SparseMatrix))
        edges, weight = self.passing.message_edges(edge_index, edge_weight, sizes)
        if self.symmetric and not isinstance(edge_index, SparseMatrix):  # a matrix is normalised already
            weight = weight.to(torch.promote_types(self.input_layer.weight.dtype, torch.float32))
            degree = weight.new_zeros(num_nodes).index_add(0, edges[1], weight)
            root = torch.where(degree > 0, degree, 1.0).rsqrt()
            weight = weight * root[edges[0]] * root[edges[1]]
        return _Messages(edges, weight, sizes)

    def _start(self, points: Points) -> Tensor:
        """Return x_0."""
        x = points.x
        if self.training and self.dropout > 0:
            sparse = isinstance(x, SparseMatrix)
            x = dropout_values(x, self.dropout, self.generators) if sparse else self._drop(x)  # type: ignore[arg-type]
        return torch.relu(sparse_linear(self.input_layer, x))

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.generators) if self.training and self.dropout > 0 else x

    # --- The layers ---------------------------------------------------------------------------------------------------

    def _run_layers(self, start: Tensor, A: SparseMatrix | _Messages) -> Tensor:
        """Return the embeddings, given x_0. A state is (x, mean of the earlier layers or an empty tensor)."""
        state = start, start if self.means else start.new_empty(0)
        if torch.compiler.is_compiling() or not (self.activation_checkpointing and torch.is_grad_enabled()):
            for number in range(len(self.layers)):
                state = self.run_layer(number, state, start, A, self._drop)
        else:
            # The parameters of this call: those of a stack are gone when the backward pass computes a segment again.
            parameters = {f"model.{name}": parameter for name, parameter in self.named_parameters()}
            for numbers in _segments(len(self.layers)):
                # The masks are drawn here, in the order of the layers: a recomputed layer must not draw again.
                masks = [self._mask(state[0]) for _ in numbers]
                state = checkpoint(
                    functional_call,
                    _Segment(self, numbers, masks),
                    parameters,
                    (*state, start, A),
                    use_reentrant=False,
                    preserve_rng_state=False,
                    context_fn=lambda: (contextlib.nullcontext(), _UntrackedStatistics(self)),
                )
        return state[1] if self.connection == "jumping" else state[0]

    def run_layer(
        self,
        number: int,
        state: tuple[Tensor, Tensor],
        start: Tensor,
        A: SparseMatrix | _Messages,
        drop: Callable[[Tensor], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Return the state after layer ``number``, counted from 0."""
        x, mean = state
        skip = {"initial": start, "chain": x}.get(self.connection, mean)
        x = self.layers[number](self._aggregate(drop(x), A), skip)
        return x, self.means[number](mean, x) if number < len(self.means) else mean

    def _aggregate(self, x: Tensor, A: SparseMatrix | _Messages) -> Tensor:
        """Return m of the formula."""
        if isinstance(A, _Messages):
            return self._aggregate_messages(x, A)
        if self.euclidean:
            return A.product(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        with full_precision(wide):
            kappa = kappa_of(self.manifold.curvature, wide.dtype)
            return (rescaled_aggregate if self.symmetric else aggregate)(wide, A, kappa).to(x.dtype)

    def _aggregate_messages(self, x: Tensor, A: _Messages) -> Tensor:
        """Return m by single messages, whose masks multiply the weights of the edges."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        kappa = kappa_of(self.manifold.curvature, wide.dtype)
        h = wide if self.euclidean else with_unitless_time(wide, kappa)
        sums, total = self.passing.message_sums(h, *A).tensor_split([h.shape[-1]], dim=-1)
        if not self.euclidean:
            sums = centroid_of_sums(sums.contiguous(), total.detach(), kappa, some_empty=True)
            sums = sums * total if self.symmetric else sums
        elif not self.symmetric:
            sums = sums / torch.where(total > 0, total, 1.0)
        return sums.to(x.dtype)

    def _mask(self, x: Tensor) -> Tensor | None:
        active = self.training and self.dropout > 0
        return dropout_mask(x, self.dropout, self.generators).bool() if active else None


class _Messages(NamedTuple):
    """Edges [2, E] with their normalised weights [E], for the arguments of ``message_sums``."""

    edges: Tensor
    weight: Tensor
    sizes: Sizes


class _Segment(torch.nn.Module):
    """Some layers of a model as one module, for activation checkpointing."""

    def __init__(self, model: LorentzGCNII, numbers: range, masks: Sequence[Tensor | None]) -> None:
        super().__init__()
        self.model, self.numbers, self.masks = model, numbers, masks

    def forward(self, x: Tensor, mean: Tensor, start: Tensor, A: SparseMatrix | _Messages) -> tuple[Tensor, Tensor]:
        state = x, mean
        for number, mask in zip(self.numbers, self.masks, strict=True):
            state = self.model.run_layer(number, state, start, A, partial(_masked, mask, 1 - self.model.dropout))
        return state


def _masked(mask: Tensor | None, keep: float, x: Tensor) -> Tensor:
    return x if mask is None else x * mask.to(x.dtype).div_(keep)


class _UntrackedStatistics:
    """Keep batch norms from counting the rows of a recomputed layer again in their running statistics.

    A second backward pass through the same graph (``retain_graph=True``) enters the context again.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.norms = [each for each in model.modules() if isinstance(each, torch.nn.BatchNorm1d)]
        self.before: list[tuple[float | None, Tensor | None]] = []

    def __enter__(self) -> None:
        self.before = [(norm.momentum, norm.num_batches_tracked) for norm in self.norms]
        for norm in self.norms:
            norm.momentum, norm.num_batches_tracked = 0.0, None

    def __exit__(self, *error: object) -> None:
        for norm, (momentum, batches) in zip(self.norms, self.before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches


class GCNIILayer(torch.nn.Module):
    r"""One layer: residual connection, identity map, norm and ReLU of the aggregated neighbours.

    .. math:: x = \mathrm{relu}\big(\nu((1 - \beta)\, r + \beta W r)\big), \qquad r = \alpha\, s \oplus (1 - \alpha)\, m

    Args:
        hidden: Dimension n.
        beta: Weight of the matrix, above 0; 1 is without the identity.
        join: Residual connection of s and m, with the weight :math:`1 - \alpha` of m. None: :math:`r = m`.
        linear_skip: A matrix V maps the skip branch, and the identity map acts on m:
            :math:`r = \alpha V s \oplus (1 - \alpha)((1 - \beta) m + \beta W m)` and :math:`x = \mathrm{relu}(\nu(r))`.
        norm: A name of :data:`~lresnet.nn.row_norm.ROW_NORMS`.
        relu: Whether to apply the ReLU.

    Shapes:
        m, s [N, n] -> [N, n]; in a stack [N, S, n].
    """

    def __init__(
        self, hidden: int, beta: float, join: WeightedJoin | None, *, linear_skip: bool, norm: str, relu: bool
    ) -> None:
        super().__init__()
        self.beta, self.join, self.relu = beta, join, relu
        self.weight = torch.nn.Parameter(torch.empty(hidden, hidden))
        self.skip_weight: Tensor | None = None
        if linear_skip:
            self.skip_weight = torch.nn.Parameter(torch.empty(hidden, hidden))
        self.norm = ROW_NORMS[norm](hidden)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the matrices as GCNII does: uniform within 1/sqrt(n)."""
        bound = self.weight.shape[-1] ** -0.5
        for weight in (self.weight, self.skip_weight):
            if weight is not None:
                torch.nn.init.uniform_(weight, -bound, bound)

    def forward(self, m: Tensor, s: Tensor) -> Tensor:
        if self.skip_weight is not None:
            s, m = times_rows(self.skip_weight, s), self._identity_map(m)
        r = m if self.join is None else self.join(s, m)
        if self.skip_weight is None:
            r = self._identity_map(r)
        r = self.norm(r)
        return torch.relu(r) if self.relu else r

    def _identity_map(self, x: Tensor) -> Tensor:
        """Return ``(1 - beta) x + beta W x`` as the product with one matrix: the identity costs no pass over x."""
        if self.beta == 1.0:
            return times_rows(self.weight, x)
        identity = torch.eye(x.shape[-1], dtype=self.weight.dtype, device=x.device)
        return times_rows(torch.lerp(identity, self.weight, self.beta), x)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[-1]}, beta={self.beta:.3g}"


def _segments(layers: int) -> Iterator[range]:
    """Split the layers into about as many segments as a segment has layers, which minimises the stored activations."""
    length = max(1, round(math.sqrt(layers)))
    for first in range(0, layers, length):
        yield range(first, min(first + length, layers))


# --- Checks of arguments ----------------------------------------------------------------------------------------------


def _require_ranges(in_features: int, hidden: int, num_layers: int, dropout: float, theta: float) -> None:
    for name, size in (("in_features", in_features), ("hidden", hidden), ("num_layers", num_layers)):
        if size not in AT_LEAST_1:
            raise ValueError(f"{name} must be {AT_LEAST_1}, got {size!r}")
    if dropout not in FROM_0_BELOW_1:
        raise ValueError(f"dropout must be {FROM_0_BELOW_1}, got {dropout!r}")
    if theta not in _THETA:
        raise ValueError(f"theta must be {_THETA}, got {theta!r}")


def _require_compatible(residual: str, options: dict[str, Any] | None, connection: str, skip: str, head: str) -> None:
    if own := {"weight", "initial_weight"} & set(options or {}):
        raise ValueError(
            f"the weight of lorentz_gcnii's residual is set by alpha (--alpha) and learn_alpha; leave out {min(own)}"
        )
    if skip == "linear" and (residual == "none" or connection == "jumping"):
        reason = "residual='none' ignores it" if residual == "none" else "connection='jumping' has none"
        raise ValueError(f"skip='linear' maps the skip branch, but {reason}; use skip='identity'")
    if residual == "euclidean" and head != "linear":
        raise ValueError(f"the Euclidean baseline has the linear head only, got head={head!r}")
