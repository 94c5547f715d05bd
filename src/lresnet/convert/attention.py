r"""Conversion of attention: a module that calls stock attention computes Lorentz attention, with its own weights.

Queries, keys and values stay as they are, linear maps of space coordinates. The scores become Lorentzian inner products
divided by a learned temperature for each head, and the result of a head is the centroid of the values
(:func:`lresnet.nn.lorentz_attention`). As the curvature goes to 0, this becomes L2 attention, with the scores
:math:`-|q - k|^2/(2\tau)`, which is dot-product attention only if all keys have the same norm. So the conversion
changes what a network computes, whatever the curvature, and :func:`lresnet.lorentzify` does it on request only. Norms
stay: a norm of space coordinates is a layer on the hyperboloid already.
"""

from __future__ import annotations

import copyreg
import math
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable imports torch._dynamo at once, which takes seconds
from torch.overrides import TorchFunctionMode

from lresnet.convert.plan import Plan, copy_of, results_of
from lresnet.geometry import Lorentz, ManifoldModule
from lresnet.nn.inner_product_vectors import time_excess
from lresnet.nn.softmax_attention import lorentz_attention

__all__ = ["Attention", "AttentionPlace", "convert_attention", "find_attention"]

Attention: TypeAlias = Literal["keep", "lorentz"]
"""Whether a network keeps its attention, or gets Lorentz attention."""

_MARK = "_lorentz_attention"
_TEMPERATURE = "log_temperature"
_STOCK = torch.nn.functional.scaled_dot_product_attention


class AttentionPlace(NamedTuple):
    """A module that computes attention."""

    module: str
    """Path of the module."""
    heads: int
    width: int
    """Number of coordinates of a head's queries."""
    temperature: float
    """The number by which its scores are divided: the initial temperature of all heads."""


# Search --------------------------------------------------------------------------------------------------------------


def find_attention(module: torch.nn.Module, plan: Plan) -> list[AttentionPlace]:
    """Return the modules whose own code calls stock attention when the network runs on the example of a plan.

    These are :class:`torch.nn.MultiheadAttention`, and modules that call ``scaled_dot_product_attention`` in their
    ``forward``, directly or in a function, as those of transformers and timm do.

    Raises:
        ValueError: the plan has no example, the network has no such module, or one of them cannot be converted.
    """
    if plan.example is None:
        raise ValueError('attention="lorentz" needs a plan that was made from an example')
    network = copy_of(module)
    recorder = _Recorder(network)
    with recorder:
        try:
            results_of(network, plan, training=True)
        except Exception:  # the example does not fit, e.g. a batch of one image and batch norms
            results_of(network, plan, training=False)
    own = [path or "the network" for path in recorder.softmaxes if path not in recorder.found]
    named = f"{', '.join(own[:5])}{', ...' if own[5:] else ''}"
    if not recorder.found:
        raise ValueError(
            f"no attention was found in {plan.network}: neither torch.nn.MultiheadAttention nor a call of "
            "scaled_dot_product_attention ran; a network of transformers calls it with attn_implementation='sdpa'"
            + (f". These modules compute a softmax of scores themselves: {named}" if own else "")
        )
    if own:
        warnings.warn(
            f"{named}: not converted, because the module computes a softmax of scores itself. If it is attention, let "
            "it call scaled_dot_product_attention",
            stacklevel=3,
        )
    if recorder.dropout:
        warnings.warn(
            f"{', '.join(recorder.dropout[:5])}: Lorentz attention does not drop attention weights; other dropout "
            "stays",
            stacklevel=3,
        )
    return list(recorder.found.values())


class _Recorder(TorchFunctionMode):
    """Records which module calls stock attention, and which computes a softmax itself, while a network runs."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.found: dict[str, AttentionPlace] = {}
        self.dropout: list[str] = []
        self.softmaxes: list[str] = []
        self._running: list[str] = []
        for path, part in network.named_modules():
            part.register_forward_pre_hook(lambda *_, path=path: self._running.append(path))
            part.register_forward_hook(lambda *_: self._running.pop() and None, always_call=True)
            if isinstance(part, torch.nn.MultiheadAttention):
                part.register_forward_pre_hook(lambda own, *_, path=path: self._add_multihead(path, own))

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is _STOCK and self._running:
            self._add_call(self._running[-1], *args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in ("softmax", "_softmax") and self._running and _may_be_weights(result):
            self.softmaxes += [path for path in self._running[-1:] if path not in self.softmaxes]
        return result

    def _add_multihead(self, path: str, part: torch.nn.MultiheadAttention) -> None:
        if part.bias_k is not None or part.add_zero_attn:
            raise ValueError(
                f"{path or 'the network'} has add_bias_kv or add_zero_attn, which has no Lorentz attention"
            )
        self._add(path, AttentionPlace(path, part.num_heads, part.head_dim, math.sqrt(part.head_dim)), part.dropout)

    def _add_call(
        self,
        path: str,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        temperature = math.sqrt(query.shape[-1]) if scale is None else 1 / scale
        heads = query.shape[-3] if query.dim() > 2 else 1
        self._add(path, AttentionPlace(path, heads, query.shape[-1], temperature), dropout_p)

    def _add(self, path: str, place: AttentionPlace, dropout: float) -> None:
        if self.found.setdefault(path, place) != place:
            raise ValueError(
                f"{path or 'the network'} calls attention with {self.found[path].heads} and with {place.heads} heads, "
                "or with two scales; a module may have one temperature for each head"
            )
        if dropout and path not in self.dropout:
            self.dropout.append(path)


def _may_be_weights(x: object) -> bool:
    """Return whether x may hold attention weights, [..., T, S] of several sequences."""
    return isinstance(x, Tensor) and x.dim() > 2


# Conversion ----------------------------------------------------------------------------------------------------------


def convert_attention(network: torch.nn.Module, places: Sequence[AttentionPlace], manifold: Lorentz) -> None:
    """Give the modules at ``places`` a temperature for each head, and a class that computes Lorentz attention.

    Raises:
        ValueError: the network has no such module.
    """
    parts = dict(network.named_modules())
    for place in places:
        part = parts.get(place.module)
        if part is None or hasattr(part, _TEMPERATURE):
            problem = "no part" if part is None else f"an attribute {_TEMPERATURE} in"
            raise ValueError(f"{type(network).__name__} has {problem} {place.module!r}, where attention is converted")
        like = next((one for one in part.parameters() if one.is_floating_point()), torch.empty(0))
        start = torch.full((place.heads,), math.log(place.temperature), dtype=like.dtype, device=like.device)
        part.register_parameter(_TEMPERATURE, torch.nn.Parameter(start))
        part.__dict__["manifold"] = manifold  # refers to it; nn.Module.__setattr__ would register it
        part.__class__ = _attention_class(type(part))


def _attention_class(cls: type) -> type:
    """Return the subclass of ``cls`` that computes Lorentz attention; it has the same name and is made once."""
    known: type
    for known in type.__subclasses__(cls):
        if _MARK in vars(known):
            return known
    kind = _LorentzMultiheadAttention if issubclass(cls, torch.nn.MultiheadAttention) else _LorentzCaller
    body = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    body |= {_MARK: True, "__reduce_ex__": _reduce}
    return types.new_class(cls.__name__, (kind, cls), exec_body=lambda namespace: namespace.update(body))


def _reduce(self: Any, protocol: int) -> tuple[Any, ...]:
    """For pickle and deepcopy: make the object with its original class, then convert the class again."""
    cls: Any = next(base for base in type(self).__mro__ if _MARK in vars(base))
    make, arguments, *state = super(cls, self).__reduce_ex__(max(protocol, 2))
    if make is copyreg.__newobj__:  # type: ignore[attr-defined]
        arguments = (cls.__bases__[1], *arguments[1:])
    return _restored, (make, arguments), *state


def _restored(make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    made = make(*arguments)
    made.__class__ = _attention_class(type(made))
    return made


class _OnPoints(ManifoldModule):
    """A module whose heads are points, with one temperature for each head."""

    learned_numbers = (_TEMPERATURE,)  # with one head it has the shape [1]
    log_temperature: Tensor

    def __init_subclass__(cls, **options: Any) -> None:  # not a node of torch.fx graphs: it has layers inside
        pass

    @property
    def temperature(self) -> Tensor:
        """The temperature of each head, [H]."""
        found: Tensor = self.log_temperature.to(torch.promote_types(self.log_temperature.dtype, torch.float32)).exp()
        return found

    def extra_repr(self) -> str:
        own = super(ManifoldModule, self).extra_repr()
        return ", ".join(filter(None, [own, f"attention on {self.manifold.extra_repr()}"]))


class _LorentzCaller(_OnPoints):
    """A module whose calls of ``scaled_dot_product_attention`` are Lorentz attention.

    torch.compile, which cannot trace the interception, leaves the module out of its graphs.
    """

    @_disable_dynamo
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with _LorentzScores(self):
            return super().forward(*args, **kwargs)


class _LorentzScores(TorchFunctionMode):
    """Computes Lorentz attention in place of ``scaled_dot_product_attention``."""

    def __init__(self, owner: _OnPoints) -> None:
        super().__init__()
        self.owner = owner

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is _STOCK:
            return self.attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Return Lorentz attention; the arguments are those of stock attention.

        transformers gives heads that share keys as positions of one head, if there is one position.
        """
        temperature = self.owner.temperature if query.dim() > 2 else self.owner.temperature[0]
        packed, heads = query.shape[:-1], temperature.numel()
        is_packed = query.dim() > 3 and packed[-2] != heads and packed[-2] * packed[-1] == heads and not is_causal
        if is_packed:
            query = query.flatten(-3, -2).unsqueeze(-2)
            if attn_mask is not None and attn_mask.dim() > 2 and attn_mask.shape[-3] > 1:
                attn_mask = attn_mask.expand(*attn_mask.shape[:-2], *packed[-1:], -1).flatten(-3, -2).unsqueeze(-2)
        result = lorentz_attention(
            query,
            key,
            value,
            attn_mask,
            is_causal,
            K=self.owner.manifold.K,
            temperature=temperature,
            enable_gqa=enable_gqa or is_packed,
        )
        return result.reshape(*packed, -1) if is_packed else result


class _LorentzMultiheadAttention(_OnPoints):
    """:class:`torch.nn.MultiheadAttention` with Lorentz attention; its arguments, results and parameters are the same.

    A query that sees nothing gets the origin, where stock attention gives NaN.
    """

    batch_first: bool
    embed_dim: int
    num_heads: int
    in_proj_weight: Tensor | None
    in_proj_bias: Tensor | None
    out_proj: torch.nn.Linear
    q_proj_weight: Tensor
    k_proj_weight: Tensor
    v_proj_weight: Tensor

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        is_batched = query.dim() == 3
        given = (query, key, value)
        if not is_batched:
            given = tuple(one.unsqueeze(0) for one in given)  # type: ignore[assignment]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            given = tuple(one.transpose(0, 1) for one in given)  # type: ignore[assignment]
        q, k, v = (one.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for one in self._projected(given))
        # is_causal says that attn_mask is the causal mask, which the operator then need not read.
        causal = is_causal and key_padding_mask is None and not need_weights
        mask = None if causal else _visible(attn_mask, key_padding_mask, self.num_heads)
        points = lorentz_attention(q, k, v, mask, causal, K=self.manifold.K, temperature=self.temperature)
        result = self.out_proj(points.transpose(1, 2).flatten(-2))
        weights = _weights(q, k, mask, self.manifold.kappa, self.temperature) if need_weights else None
        if weights is not None:
            weights = weights.to(result.dtype)
            weights = weights.mean(1) if average_attn_weights else weights
        if not is_batched:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return result if self.batch_first else result.transpose(0, 1), weights

    def _projected(self, given: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
        if self.in_proj_weight is not None:
            matrices: Sequence[Tensor] = self.in_proj_weight.chunk(3)
        else:
            matrices = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        biases = [None] * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [torch.nn.functional.linear(*one) for one in zip(given, matrices, biases, strict=True)]


def _visible(attn_mask: Tensor | None, padding: Tensor | None, heads: int) -> Tensor | None:
    """Return one mask for [B, H, T, S]: True where a query sees a key, or numbers that are added to the scores.

    The masks of :class:`torch.nn.MultiheadAttention` are True where a query does *not* see a key.
    """
    if attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask.unflatten(0, (-1, heads))
    masks = [attn_mask, None if padding is None else padding[:, None, None]]
    given = [one for one in masks if one is not None]
    if all(one.dtype == torch.bool for one in given):
        hidden = [~one for one in given]
        return None if not hidden else hidden[0] if len(hidden) == 1 else hidden[0] & hidden[1]
    numbers = [
        torch.zeros(()).to(one.device).masked_fill(one, -math.inf) if one.dtype == torch.bool else one for one in given
    ]
    return numbers[0] if len(numbers) == 1 else numbers[0] + numbers[1]


def _weights(q: Tensor, k: Tensor, mask: Tensor | None, kappa: Tensor, temperature: Tensor) -> Tensor:
    """Return the weights of Lorentz attention, [B, H, T, S]; 0 for a query that sees nothing."""
    wide = torch.promote_types(q.dtype, torch.float32)
    q, k, kappa = q.to(wide), k.to(wide), kappa.to(q.device, wide)
    time, excess = time_excess(q, kappa)[0], time_excess(k, kappa)[1]
    scores = (q @ k.mT - time * excess.mT) / temperature[:, None, None]
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1).nan_to_num(0.0)
