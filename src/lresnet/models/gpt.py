"""lorentz_gpt: a decoder that predicts the next token, on the hyperboloid, with its Euclidean baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from lresnet.geometry.curvature import kappa_of
from lresnet.geometry.state import number
from lresnet.models.transformer import Transformer
from lresnet.nn.embedding import LorentzEmbedding
from lresnet.nn.inner_product_vectors import wide_dtype
from lresnet.nn.point_norm import LorentzRMSNorm
from lresnet.nn.rotary import RotaryPositions
from lresnet.nn.softmax_attention import KeyValueCache, Scores, lorentz_scores, operator_dtype

__all__ = ["LorentzGPT"]

Head: TypeAlias = Literal["linear", "lorentz"]

_STEPS = ("embed", "logits")


class LorentzGPT(Transformer):
    r"""Decoder of :class:`~lresnet.nn.LorentzTransformerBlock`; with ``residual="euclidean"`` the Euclidean baseline.

    .. math:: x^{(0)}_i = E_{s_i}, \qquad x^{(l)} = \mathrm{block}_l(x^{(l-1)}), \qquad
        \text{logit}_{iv} = E_v \cdot \nu(x^{(L)}_i)

    Tokens are embedded as points, and positions turn queries and keys (rotary positions). The network is causal.

    The head is a matrix product with the space coordinates, the same as in the baseline: :math:`x_s \cdot z` is, up to
    a factor, sinh of the distance of x from the hyperplane through the origin with normal vector z. ``head="lorentz"``
    scores by the Lorentzian inner product with the points of the tokens, which prefers tokens that are near. It costs a
    pass over the embedding in every step.

    The baseline has about 1 % more parameters with the default shape: in its attention 64 of 64 coordinates of a head
    are learned, and here 61 for queries and keys and 63 for values. In return there are a weight for each residual
    connection and a temperature for each head.

    Args:
        vocab_size: Number of tokens; 256 for bytes.
        context: Largest number of tokens that the network sees at once.
        layers: Number L of blocks.
        width: Dimension n of the space.
        heads: Heads of the queries. ``width / heads`` should be 64 on a GPU.
        kv_heads: Heads of keys and values, which divides ``heads``. None: ``heads``.
        hidden: Width of the gated perceptrons. None: 8n/3, rounded up to a multiple of 32.
        residual: A name of :data:`lresnet.residual.METHODS`.
        residual_options: Options of the residual. Default of the Lorentz residual: a learned weight, initially 1, and
            ``scale="1+w"``.
        curvature: K < 0. Default: -0.1/width (:mod:`lresnet.models.transformer`).
        learn_curvature: Train the curvature.
        curvature_per_layer: Give every block a curvature of its own.
        scores: Scores of attention, "lorentz", "l2" or "dot". None: "dot" for ``residual="euclidean"``, otherwise
            "lorentz". Only "lorentz" joins values by the centroid, the others take the mean.
        head: "linear" or "lorentz".
        tied: Use the embedding as the matrix of the head.
        dropout: Dropout rate of the branches.
        precise: Compute attention in float32 also where the network runs in half precision, which is slower. It is for
            curvatures with :math:`-K |v|^2` above 2 (:func:`~lresnet.nn.lorentz_attention`).
        activation_checkpointing: Recompute the activations of each block in the backward pass, to save memory.

    Shapes:
        ids [B, T], integers -> logits [B, T, vocab_size], float32 or wider

    Example:
        >>> model = LorentzGPT(vocab_size=256, context=64, layers=2, width=64, heads=4)
        >>> model(torch.randint(256, (2, 10))).shape
        torch.Size([2, 10, 256])
        >>> model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=5).shape
        torch.Size([1, 8])
    """

    model_name = "lorentz_gpt"

    def __init__(
        self,
        vocab_size: int = 256,
        context: int = 1024,
        layers: int = 6,
        width: int = 384,
        heads: int = 6,
        kv_heads: int | None = None,
        hidden: int | None = None,
        residual: str = "lorentz",
        residual_options: dict[str, Any] | None = None,
        curvature: float | None = None,
        learn_curvature: bool = False,
        curvature_per_layer: bool = False,
        scores: Scores | None = None,
        head: Head = "linear",
        tied: bool = True,
        dropout: float = 0.0,
        precise: bool = False,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        if context < 1:
            raise ValueError(f"context must be at least 1, got {context}")
        if head not in get_args(Head):
            raise ValueError(f"head must be one of {', '.join(get_args(Head))}, got {head!r}")
        self._build(
            layers=layers,
            width=width,
            heads=heads,
            kv_heads=kv_heads,
            hidden=hidden,
            residual=residual,
            residual_options=residual_options,
            curvature=curvature,
            learn_curvature=learn_curvature,
            curvature_per_layer=curvature_per_layer,
            scores=scores,
            flat_head=head == "linear",
            dropout=dropout,
            precise=precise,
            activation_checkpointing=activation_checkpointing,
        )
        self.vocab_size, self.context, self.head = vocab_size, context, head
        self.embedding = LorentzEmbedding(vocab_size, width, manifold=self.manifold)
        self.output = None if tied else LorentzEmbedding(vocab_size, width, manifold=self.manifold)
        self.rotary = RotaryPositions(self.layers[0].attention.query_features)  # type: ignore[union-attr, arg-type]
        self.norm = LorentzRMSNorm(width, manifold=self.manifold)
        self.log_temperature = torch.nn.Parameter(torch.zeros(1)) if head == "lorentz" else None

    def forward(self, ids: Tensor, caches: Sequence[KeyValueCache] | None = None) -> Tensor:
        """Return the logits of the token after each position.

        Args:
            ids: Tokens [B, T].
            caches: Those of :meth:`make_caches`, which hold the positions before and receive the new ones. No
                gradient flows through them: train without caches.
        """
        own = all(
            name not in self.__dict__ and getattr(type(self), name) is getattr(LorentzGPT, name) for name in _STEPS
        )
        if not own:  # a subclass or an instance replaces a step
            return self.logits(self.embed(ids, caches))
        return self.logits(self._points(ids, caches, as_factor=self.head == "linear"))

    def embed(self, ids: Tensor, caches: Sequence[KeyValueCache] | None = None) -> Tensor:
        """Return one point for each position, [B, T, width], which :meth:`logits` maps to scores."""
        return self._points(ids, caches, as_factor=False)

    def _points(self, ids: Tensor, caches: Sequence[KeyValueCache] | None, as_factor: bool) -> Tensor:
        """Return the points; ``as_factor`` allows compiled blocks to round them as autocast does in a product."""
        if caches is not None and len(caches) != len(self.layers):
            raise ValueError(f"one cache for each of {len(self.layers)} blocks is needed, got {len(caches)}")
        start = 0 if caches is None else caches[0].length
        self._require_ids(ids, start)
        tokens = self.embedding(ids)
        positions = torch.arange(start, start + ids.shape[1], device=ids.device, dtype=wide_dtype(tokens.dtype))
        dtype = operator_dtype(tokens) if as_factor else None
        return self._run(tokens, self.rotary(positions), True, self.norm, caches, dtype)

    def logits(self, points: Tensor) -> Tensor:
        """Return the scores of all tokens, [..., vocab_size], in float32 or wider."""
        weight = self.embedding.weight if self.output is None else self.output.weight
        if self.log_temperature is None:
            scores = torch.nn.functional.linear(points, weight.to(points.dtype))
        else:
            wide = torch.promote_types(points.dtype, torch.float32)
            kappa = kappa_of(self.manifold.curvature, wide)
            scores = lorentz_scores(points, weight, kappa, number(self.log_temperature).to(wide).exp())
        return scores.to(torch.promote_types(scores.dtype, torch.float32))

    def make_caches(self, positions: int | None = None) -> list[KeyValueCache]:
        """Return empty caches of keys and values, one for each block.

        Args:
            positions: Largest number of positions, at most the context. None: the context.
        """
        capacity = self.context if positions is None else min(positions, self.context)
        return [KeyValueCache(capacity) for _ in self.layers]

    @torch.no_grad()
    def generate(
        self,
        prompt_ids: Tensor,
        max_new_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
        *,
        top_p: float | None = None,
        use_cache: bool = True,
    ) -> Tensor:
        """Return the prompt, followed by new tokens drawn from the predictions of the network.

        The network sees the last tokens of a text that is longer than its context. Whenever the context is full, it
        keeps the last half of it.

        Args:
            prompt_ids: Tokens [B, T] or [T], at least one.
            max_new_tokens: Number of new tokens.
            temperature: Divides the logits; 0 takes the most likely token.
            top_k: Draw from the k most likely tokens only. None: from all.
            generator: Random numbers, on the device of the prompt. None: torch's own.
            top_p: Draw from the most likely tokens whose probabilities add up to this number only (nucleus sampling,
                Holtzman et al., 2020). None: from all. With ``top_k``, from the tokens that both leave.
            use_cache: Store keys and values, so that each position is computed once. The logits are the same up to
                rounding.

        Returns:
            Tokens [B, T + max_new_tokens], or [T + max_new_tokens].
        """
        if not isinstance(prompt_ids, Tensor):
            kind = type(prompt_ids).__name__
            raise TypeError(f"prompt_ids must be a tensor, got {kind}; use torch.tensor([[1, 2, 3]])")
        if prompt_ids.dim() not in (1, 2) or prompt_ids.shape[-1] == 0:
            raise ValueError(f"prompt_ids must have shape [B, T] or [T], T at least 1, got {tuple(prompt_ids.shape)}")
        if max_new_tokens < 0 or not temperature >= 0 or (top_k is not None and top_k < 1):
            raise ValueError(
                "max_new_tokens and temperature must be 0 or more, and top_k at least 1; "
                f"got {max_new_tokens}, {temperature} and {top_k}"
            )
        if top_p is not None and not 0 < top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}")
        ids: Tensor = torch.atleast_2d(prompt_ids)
        was_training = self.training
        self.eval()
        try:
            caches = self.make_caches(ids.shape[1] + max_new_tokens) if use_cache else None
            start = max(0, ids.shape[1] - self.context)
            for _ in range(max_new_tokens):
                if ids.shape[1] - start > self.context:
                    start = ids.shape[1] - max(1, self.context // 2)
                    for cache in caches or ():
                        cache.reset()
                done = 0 if caches is None else caches[0].length
                last = self.logits(self.embed(ids[:, start + done :], caches)[:, -1])
                ids = torch.cat([ids, _next_token(last, temperature, top_k, top_p, generator)], dim=1)
        finally:
            self.train(was_training)
        return ids[0] if prompt_ids.dim() == 1 else ids

    def _require_ids(self, ids: Tensor, start: int) -> None:
        if ids.dim() != 2 or ids.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"ids must be int64 or int32 [B, T], got {ids.dtype} of shape {tuple(ids.shape)}")
        if start + ids.shape[1] > self.context:
            raise ValueError(
                f"{start + ids.shape[1]} tokens are more than the context of {self.context}; give fewer tokens, or "
                "build the network with a larger context"
            )


def _next_token(
    logits: Tensor, temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator | None
) -> Tensor:
    """Return one token for each row of logits [B, V], [B, 1]."""
    if logits.device.type == "cpu" and not logits.isfinite().all():
        raise ValueError(
            "the logits of the next token are not finite; the weights are damaged, or training has diverged"
        )
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    # The largest score is 0, so that no temperature, however small, overflows.
    scores = (logits - logits.amax(-1, keepdim=True)) / max(temperature, torch.finfo(logits.dtype).tiny)
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, -1).values[:, -1:]
        scores = scores.masked_fill(logits < least, -torch.inf)
    if top_p is not None:
        likely, order = scores.softmax(-1).sort(-1, descending=True)
        beyond = likely.cumsum(-1) - likely >= top_p  # never the most likely token
        scores = scores.masked_fill(beyond.scatter(-1, order, beyond), -torch.inf)
    return torch.multinomial(scores.softmax(-1), 1, generator=generator)
