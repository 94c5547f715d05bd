r"""Softmax attention between points of the hyperboloid, by stock ``scaled_dot_product_attention``.

The Lorentzian inner product :math:`\langle q, k\rangle = q_s \cdot k_s - q_t k_t` is a dot product of vectors with one
more coordinate, so the fast kernels of torch compute it. Two measures keep it accurate:

- **Scores.** With :math:`e = t - 1/\sqrt\kappa = |x|^2/(t + 1/\sqrt\kappa)`, computed without cancellation,
  :math:`\langle q, k\rangle = q_s \cdot k_s - q_t e_k - q_t/\sqrt\kappa`. The last term depends on the query alone and
  falls out of the softmax. In half precision the rounding of :math:`q_t` multiplies :math:`e_k`, so both are split into
  a leading part and a remainder (hi, lo):

  .. math:: q' = [q_s, -q_{hi}, -q_{hi}, -q_{lo}], \qquad k' = [k_s, e_{hi}, e_{lo}, e_{hi}]

  The times are those of the space coordinates *after* they were rounded.

- **Values.** The centroid of the values needs the sum of their times. With :math:`v' = [v_s, e_v]`, the weighted mean
  :math:`[O_s, O_e]`, :math:`O_t = O_e + 1/\sqrt\kappa` and :math:`T = \sqrt{|O_s|^2 + 1/\kappa}`,

  .. math:: y = O_s / n, \qquad n^2 = \kappa (O_t^2 - |O_s|^2)
      = 1 + \kappa \max\Big(0,\; O_e - \frac{|O_s|^2}{T + 1/\sqrt\kappa}\Big) (O_t + T) .

As the curvature goes to 0, the scores become :math:`-|q - k|^2/2` (L2 attention, not dot-product attention) and the
centroid becomes the mean. torch's fast kernels have no second derivatives: use
``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`` for them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.geometry.checks import full_precision, require_features, require_points
from lresnet.geometry.curvature import Curvature, kappa_of
from lresnet.kernels.tiles import Heads
from lresnet.nn.inner_product_vectors import (
    APPENDED,
    centroids,
    fused_vectors,
    head_width,
    key_vectors,
    query_vectors,
    supports_fused_vectors,
    value_vectors,
    wide_dtype,
)
from lresnet.nn.plain_modules import is_plain_linear
from lresnet.nn.rotary import Rotary, apply_rotary

__all__ = [
    "KeyValueCache",
    "LorentzAttention",
    "Scores",
    "lorentz_attention",
    "lorentz_scores",
    "operator_dtype",
]

Scores: TypeAlias = Literal["lorentz", "l2", "dot"]

_ALIGNMENT = 8  # of the columns of a matrix product, in numbers


def lorentz_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    *,
    K: Curvature = -1.0,
    temperature: float | Tensor | None = None,
    enable_gqa: bool = False,
    precise: bool = False,
) -> Tensor:
    r"""Return the centroids of the values, weighted by a softmax of Lorentzian inner products.

    .. math:: y_i = \mathrm{centroid}(v, p_i), \qquad
        p_i = \mathrm{softmax}_j\big(\langle q_i, k_j\rangle / \tau\big)

    The arguments are those of :func:`torch.nn.functional.scaled_dot_product_attention`, which computes it.

    Args:
        query: Points [..., H, T, n].
        key: Points [..., H, S, n].
        value: Points [..., H, S, m].
        attn_mask: True where a query sees a key; or numbers that are added to the scores. It broadcasts to
            [..., H, T, S]; a mask of padded sequences, [B, S], is given as ``mask[:, None, None]``. The result of a
            query that sees nothing is the origin, the centroid of no points, and its gradients are 0.
        is_causal: Query i sees the first i + 1 keys only.
        K: Curvature, a negative float or 0-dimensional tensor (gradients flow into a tensor).
        temperature: :math:`\tau > 0`, a number or one for each head, [H]. None: :math:`\sqrt n`.
        enable_gqa: Several heads of the query share a head of key and value, whose number divides H.
        precise: Compute half-precision inputs in float32, which is slower. In half precision torch rounds the mean of
            the values, so n has a relative error of up to :math:`6 \cdot 10^{-3}` in bfloat16 if
            :math:`\kappa |v|^2 \le 2`, and a larger one for longer values.

    Returns:
        Points, [..., H, T, m], in the dtype of the inputs, or that of autocast.

    Example:
        >>> x = torch.randn(2, 4, 10, 8)
        >>> lorentz_attention(x, x, x, is_causal=True, K=-0.1).shape
        torch.Size([2, 4, 10, 8])
    """
    _require_alike(query, key, value, enable_gqa)
    dtype = operator_dtype(query)
    inner = wide_dtype(query.dtype) if precise else dtype
    kappa = kappa_of(K, wide_dtype(inner))
    tau = math.sqrt(query.shape[-1]) if temperature is None else temperature
    if isinstance(tau, Tensor) and tau.dim() > 0:
        if query.dim() < 3 or tau.shape not in ((1,), query.shape[-3:-2]):
            raise ValueError(
                f"temperature must be a number or one for each head of query {tuple(query.shape)}, got shape "
                f"{tuple(tau.shape)}"
            )
        tau = tau[..., None, None]
    width, n = head_width(query.shape[-1], value.shape[-1], inner), value.shape[-1]
    mean = _attend(
        query_vectors(query, kappa, tau, inner, width),
        key_vectors(key, kappa, inner, width),
        value_vectors(value, kappa, inner, width),
        attn_mask,
        is_causal,
        enable_gqa=enable_gqa,
    )
    return centroids(mean, n, kappa, with_excess=False).to(dtype)


def lorentz_scores(query: Tensor, key: Tensor, kappa: Curvature, temperature: float | Tensor) -> Tensor:
    r"""Return :math:`(\langle q, k\rangle + q_t/\sqrt\kappa)/\tau`, which has the softmax of the inner products.

    Shapes:
        [..., n], [S, n] -> [..., S]

    Example:
        >>> lorentz_scores(torch.zeros(2, 3), torch.ones(4, 3), 1.0, 1.0)[0]
        tensor([-1., -1., -1., -1.])
    """
    dtype = operator_dtype(query)
    width = head_width(query.shape[-1], query.shape[-1], dtype)
    q = query_vectors(query, kappa, temperature, dtype, width)
    return torch.nn.functional.linear(q, key_vectors(key, kappa, dtype, width))


# --- The operator of torch -------------------------------------------------------------------------------------------


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    *,
    offset: int = 0,
    scale: float = 1.0,
    enable_gqa: bool = False,
) -> Tensor:
    """Return stock attention, with 0 for queries that see nothing.

    Args:
        offset: Number of keys before the first query, which all queries see.
    """
    if attn_mask is not None:
        _require_mask(attn_mask, (*q.shape[:-1], k.shape[-2]))
    if k.shape[-2] == 0:
        return (q.sum(-1, keepdim=True) * 0).expand(*q.shape[:-1], v.shape[-1])
    empty = None
    if is_causal and (attn_mask is not None or offset > 0):
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril(offset)
        attn_mask, is_causal = _restricted(attn_mask, seen), False
    if attn_mask is not None:
        is_boolean = attn_mask.dtype == torch.bool
        attn_mask = attn_mask if is_boolean else attn_mask.to(q.dtype)  # may round to -inf, e.g. the least float32
        empty = ~(attn_mask if is_boolean else attn_mask != -math.inf).any(-1, keepdim=True)
        # Kernels differ in what they return for such rows, some NaN: let the row see everything instead.
        attn_mask = attn_mask.masked_fill(empty, True if is_boolean else 0.0)
    with full_precision(q):
        mean = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    return mean if empty is None else mean.masked_fill(empty, 0.0)


def _restricted(mask: Tensor | None, seen: Tensor) -> Tensor:
    if mask is None:
        return seen
    return mask & seen if mask.dtype == torch.bool else mask.masked_fill(~seen, -math.inf)


def operator_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which torch would compute attention or a product of x: that of autocast for float32.

    Example:
        >>> operator_dtype(torch.zeros(2))
        torch.float32
    """
    if x.dtype == torch.float32 and _is_autocast(x):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


def _is_autocast(x: Tensor) -> bool:
    return x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)


def _require_alike(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    """Raise an error unless these are points that attention can join."""
    for tensor, name in ((query, "query"), (key, "key"), (value, "value")):
        require_points(tensor, name=name)
        if tensor.dim() < 2:
            raise ValueError(f"{name} must have shape [..., length, coordinates], got {tuple(tensor.shape)}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key must have equally many coordinates, got {query.shape[-1]} and {key.shape[-1]}")
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"key and value must have the same length, got {key.shape[-2]} and {value.shape[-2]}")
    if not query.dtype == key.dtype == value.dtype and not _is_autocast(query):
        raise TypeError(
            f"query, key and value must have one dtype, got {query.dtype}, {key.dtype} and {value.dtype}; convert them"
        )
    heads = [tensor.shape[-3] if tensor.dim() > 2 else 1 for tensor in (query, key, value)]
    if enable_gqa and any(heads[0] % max(1, count) for count in heads[1:]):
        raise ValueError(
            f"the heads of key and value must divide those of query, got {heads[1]} and {heads[2]} for {heads[0]}"
        )
    if not enable_gqa and heads[1] != heads[2] and 1 not in heads[1:]:
        raise ValueError(f"key and value must have equally many heads, got {heads[1]} and {heads[2]}")
    if not enable_gqa and min(query.dim(), key.dim()) > 2 and key.shape[-3] not in (1, query.shape[-3]):
        raise ValueError(
            f"query has {query.shape[-3]} heads and key {key.shape[-3]}; pass enable_gqa=True to share heads of key "
            "and value"
        )


def _require_mask(mask: Tensor, scores: tuple[int, ...]) -> None:
    """Raise an error unless this is a mask of scores of this shape."""
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            "attn_mask must be bool, True where a query sees a key, or floating point, added to the scores; got "
            f"{mask.dtype}. Convert a mask of 0 and 1 by mask.bool()"
        )
    ends = zip(reversed(mask.shape), reversed(scores), strict=False)
    if mask.dim() > len(scores) or any(own not in (1, size) for own, size in ends):
        raise ValueError(
            f"attn_mask has shape {tuple(mask.shape)}, which does not broadcast to the scores, {tuple(scores)}; a mask "
            "of padding [B, S] is given as mask[:, None, None]"
        )


# --- The layers ------------------------------------------------------------------------------------------------------


class KeyValueCache:
    """Keys and values of earlier positions, so that a decoder computes each position once.

    They are stored as the attention operator reads them, with their times, in memory that is allocated once. They are
    constants for autograd: no gradient flows into keys and values.

    Args:
        capacity: Largest number of positions.

    Example:
        >>> cache = KeyValueCache(16)
        >>> keys, _ = cache.append(torch.zeros(1, 2, 5, 8), torch.zeros(1, 2, 5, 8))
        >>> keys.shape, cache.length
        (torch.Size([1, 2, 5, 8]), 5)
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity, self.length = capacity, 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values of T new positions, [B, H, T, ...], and return those of all positions."""
        end = self.length + keys.shape[-2]
        if end > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} positions, but {end} are needed; give a larger capacity")
        if self._keys is None or self._values is None or not (_fits(self._keys, keys) and _fits(self._values, values)):
            if self.length:
                raise ValueError(
                    f"the cache holds keys {_stored(self._keys)} and values {_stored(self._values)}, but got keys "
                    f"{_stored(keys)} and values {_stored(values)}; call reset(), or use a new cache for another batch"
                )
            self._keys, self._values = (
                t.new_empty(*t.shape[:-2], self.capacity, t.shape[-1]) for t in (keys.detach(), values.detach())
            )
        self._keys[..., self.length : end, :] = keys.detach()
        self._values[..., self.length : end, :] = values.detach()
        self.length = end
        return self._keys[..., :end, :], self._values[..., :end, :]

    def reset(self) -> None:
        """Forget all positions; the memory is kept."""
        self.length = 0


def _fits(stored: Tensor, new: Tensor) -> bool:
    """Return whether ``new`` differs from ``stored`` in the number of positions only."""
    sizes = stored.shape[:-2] == new.shape[:-2] and stored.shape[-1] == new.shape[-1]
    return sizes and stored.dtype == new.dtype and stored.device == new.device


def _stored(x: Tensor | None) -> str:
    return "nothing" if x is None else f"{[*x.shape[:-2], x.shape[-1]]} in {x.dtype} on {x.device}"


class LorentzAttention(ManifoldModule):
    r"""Multi-head softmax attention between points, on torch's ``scaled_dot_product_attention``.

    .. math:: o^h_i = \mathrm{centroid}_j\big(v^h_j,\;
        \mathrm{softmax}_j \langle q^h_i, k^h_j\rangle / \tau_h\big), \qquad
        y_i = W\, [o^1_i, \dots, o^H_i]

    Queries, keys and values are linear maps of the space coordinates, each head on a hyperboloid of its own. The
    temperature :math:`\tau_h` of a head is learned. The last map takes the ambient vectors of the centroids: their
    space coordinates and the excess of their time over that of the origin, so that centroids at the origin give 0.

    The attention operator has a fixed width for each head. Of these, times take 3 in queries and keys and 1 in values
    (:mod:`lresnet.nn.softmax_attention`): a head of width 64 has 61 coordinates in queries and keys and 63 in values.

    Args:
        embed_dim: Dimension n of the space of inputs and outputs.
        num_heads: Number of heads H of the queries.
        num_kv_heads: Number of heads of keys and values, which divides H. None: H.
        head_dim: Width of a head, with its times. None: ``embed_dim // num_heads``.
        scores: "lorentz", or the Euclidean baselines "dot", the dot-product attention of Vaswani et al. with
            temperature :math:`\sqrt{\text{head\_dim}}`, and "l2", scores :math:`-|q - k|^2/(2\tau)`, the limit of
            "lorentz" for curvature 0. Their values are joined by the mean.
        bias: Whether the linear maps have biases.
        precise: As for :func:`lorentz_attention`.
        manifold: Owner of the curvature. It is not registered as a submodule.

    Shapes:
        query [B, T, n], key and value [B, S, n] -> [B, T, n]

    Up to lresnet 0.2 the name stood for :class:`LorentzLinearAttention`. Until 0.4, a second positional argument or
    ``out_features``, which only that layer has, returns it, with a ``DeprecationWarning``.

    Example:
        >>> attention = LorentzAttention(64, num_heads=4, manifold=Lorentz(-0.1))
        >>> attention(torch.randn(2, 10, 64), is_causal=True).shape
        torch.Size([2, 10, 64])
    """

    learned_numbers = ("log_temperature",)  # with one head it has the shape [1]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is LorentzAttention and (len(args) > 1 or "out_features" in kwargs):
            from lresnet.nn.attention import LorentzLinearAttention

            warnings.warn(
                "lresnet.nn.LorentzAttention(in_features, out_features) is deprecated and will be removed in lresnet "
                "0.4; use lresnet.nn.LorentzLinearAttention. Softmax attention takes num_heads as a keyword",
                DeprecationWarning,
                stacklevel=2,
            )
            return LorentzLinearAttention(*args, **kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        embed_dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        scores: Scores = "lorentz",
        bias: bool = False,
        precise: bool = False,
        manifold: Lorentz,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(manifold)
        if scores not in get_args(Scores):
            raise ValueError(f"scores must be one of {', '.join(get_args(Scores))}, got {scores!r}")
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        if min(embed_dim, num_heads, kv_heads) < 1 or num_heads % kv_heads:
            raise ValueError(
                "embed_dim, num_heads and num_kv_heads must be at least 1, and num_kv_heads must divide num_heads; "
                f"got {embed_dim}, {num_heads} and {kv_heads}"
            )
        if head_dim is None and embed_dim % num_heads:
            raise ValueError(f"embed_dim={embed_dim} is not a multiple of num_heads={num_heads}; give head_dim")
        width = embed_dim // num_heads if head_dim is None else head_dim
        appended = {"lorentz": (APPENDED, 1), "l2": (APPENDED, 0), "dot": (0, 0)}[scores]
        if width <= appended[0]:
            raise ValueError(
                f"a head has {width} coordinates, but needs at least {appended[0] + 1} with scores={scores!r}; "
                "use fewer heads or more coordinates"
            )
        self.embed_dim, self.num_heads, self.num_kv_heads, self.head_dim = embed_dim, num_heads, kv_heads, width
        self.scores, self.precise = scores, precise
        self.query_features, self.value_features = width - appended[0], width - appended[1]
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self._rows = (
            num_heads * self.query_features,
            kv_heads * self.query_features,
            kv_heads * self.value_features,
        )
        self.in_proj = torch.nn.Linear(embed_dim, sum(self._rows), bias, **place)
        self.out_proj = torch.nn.Linear(num_heads * width, embed_dim, bias, **place)
        if scores != "dot":
            self.log_temperature = torch.nn.Parameter(torch.full((num_heads,), 0.5 * math.log(width), **place))

    @property
    def temperature(self) -> Tensor:
        """The temperature of each head, [H]."""
        if self.scores == "dot":
            return self.out_proj.weight.new_full((self.num_heads,), math.sqrt(self.head_dim))
        return self.log_temperature.to(wide_dtype(self.log_temperature.dtype)).exp()

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        rotary: Rotary | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Return the attention of ``query`` to ``key``.

        Args:
            query: Points [B, T, n].
            key: Points [B, S, n]. None: ``query``, self attention.
            value: Points [B, S, n]. None: ``key``.
            attn_mask, is_causal: As for :func:`lorentz_attention`. The mask of a padded batch [B, S] is given as
                ``mask[:, None, None]``. With a cache, a causal query sees all cached positions.
            rotary: Positions of queries and keys, in self attention only.
            cache: Keys and values of earlier positions, to which the new ones are appended; self attention only.
        """
        require_features(require_points(query, name="query"), self.embed_dim, "LorentzAttention")
        if key is not None and (rotary is not None or cache is not None):
            raise ValueError("rotary and cache are for self attention, but a key was given; leave one of them out")
        for tensor, name in ((key, "key"), (value, "value")):
            if tensor is not None:
                require_features(require_points(tensor, name=name), self.embed_dim, f"LorentzAttention ({name})")
        offset = 0 if cache is None else cache.length
        dtype = operator_dtype(query)
        inner = wide_dtype(dtype) if self.precise else dtype
        kappa = None if self.scores != "lorentz" else kappa_of(self.manifold.curvature, wide_dtype(inner))
        q, k, v = (t.transpose(-3, -2) for t in self._vectors(query, key, value, kappa, inner, rotary))
        scale = self.head_dim**-0.5 if self.scores == "dot" else 1.0
        if cache is not None:
            k, v = cache.append(k, v)
            is_causal = is_causal and q.shape[-2] > 1
        grouped = self.num_kv_heads != self.num_heads
        mean = _attend(q, k, v, attn_mask, is_causal, offset=offset, scale=scale, enable_gqa=grouped)
        mean = mean.transpose(-3, -2)  # the heads of a token are adjacent in memory, as the projections read them
        if kappa is not None:
            mean = centroids(mean, self.value_features, kappa, with_excess=True)
        result: Tensor = self.out_proj(mean.to(dtype).flatten(-2))
        return result

    def _vectors(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        kappa: Curvature | None,
        dtype: torch.dtype,
        rotary: Rotary | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the attention operator joins, by head, [B, T, H, ...]."""
        if key is None and value is not None:
            raise ValueError("a value was given without a key; give both, or neither for self attention")
        if (
            kappa is not None
            and key is None
            and is_plain_linear(self.in_proj)
            and supports_fused_vectors(query, kappa, dtype, rotary, self.query_features, self.head_dim)
        ):
            joint = torch.nn.functional.linear(query, *self._aligned_projection())
            heads = Heads(self.num_heads, self.num_kv_heads, self.query_features, self.value_features, self.head_dim)
            return fused_vectors(joint, kappa, self.temperature, dtype, rotary, heads)
        counts = self.num_heads, self.num_kv_heads, self.num_kv_heads
        parts = self._projected(query, key, value)
        q, k, v = (part.unflatten(-1, (count, -1)) for part, count in zip(parts, counts, strict=True))
        turns = None if rotary is None else (rotary[0].unsqueeze(-2), rotary[1].unsqueeze(-2))
        if self.scores == "dot":
            if turns is not None:
                q, k = apply_rotary(q, *turns), apply_rotary(k, *turns)
            return q.to(dtype), k.to(dtype), v.to(dtype)
        return (
            query_vectors(q, kappa, self.temperature.unsqueeze(-1), dtype, self.head_dim, turns),
            key_vectors(k, kappa, dtype, self.head_dim, turns),
            v.to(dtype) if kappa is None else value_vectors(v, kappa, dtype, self.head_dim),
        )

    def _aligned_projection(self) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias of the projection with rows of 0, so that each head has ``head_dim`` of them."""
        own: Tensor | None = self.in_proj.bias
        return self._aligned(self.in_proj.weight), None if own is None else self._aligned(own.unsqueeze(-1)).squeeze(-1)

    def _aligned(self, weight: Tensor) -> Tensor:
        queries, values = weight.split([self._rows[0] + self._rows[1], self._rows[2]])
        heads = queries.unflatten(0, (-1, self.query_features)), values.unflatten(0, (-1, self.value_features))
        return torch.cat([torch.nn.functional.pad(w, (0, 0, 0, self.head_dim - w.shape[1])) for w in heads]).flatten(
            0, 1
        )

    def _projected(self, query: Tensor, key: Tensor | None, value: Tensor | None) -> Sequence[Tensor]:
        """Return the projections of query, key and value, all heads of each in one tensor."""
        if key is None:
            parts: Sequence[Tensor] = self._joint(query).split(self._rows, -1)
            return parts
        sources = query, key, key if value is None else value
        if not is_plain_linear(self.in_proj):
            return tuple(self.in_proj(x).split(self._rows, -1)[i] for i, x in enumerate(sources))
        weights = self.in_proj.weight.split(self._rows)
        own: Tensor | None = self.in_proj.bias
        biases = (None,) * 3 if own is None else own.split(self._rows)
        return tuple(map(torch.nn.functional.linear, sources, weights, biases))

    def _joint(self, x: Tensor) -> Tensor:
        """Return queries, keys and values of x as one product, whose number of columns is aligned on a GPU."""
        missing = -sum(self._rows) % _ALIGNMENT
        if missing == 0 or x.device.type != "cuda" or not is_plain_linear(self.in_proj):
            joint: Tensor = self.in_proj(x)
            return joint
        bias: Tensor | None = self.in_proj.bias
        bias = None if bias is None else torch.nn.functional.pad(bias, (0, missing))
        weight = torch.nn.functional.pad(self.in_proj.weight, (0, 0, 0, missing))
        return torch.nn.functional.linear(x, weight, bias)[..., : sum(self._rows)]

    def extra_repr(self) -> str:
        grouped = "" if self.num_kv_heads == self.num_heads else f", num_kv_heads={self.num_kv_heads}"
        return (
            f"{self.embed_dim}, num_heads={self.num_heads}{grouped}, head_dim={self.head_dim}, "
            f"scores={self.scores!r}, {super().extra_repr()}"
        )
