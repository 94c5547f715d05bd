"""Base class of the transformers: their manifolds, blocks and initialisation.

Why the scale 1 + w: the Lorentz residual without a scale is a weighted midpoint. In a transformer of L blocks the share
of the embedding would be (1 + w)^(-2L) at the end. With the scale the stream is a sum near curvature 0.

Why the curvature -0.1/n: a residual of points far from the origin has a norm of about 1/sqrt(kappa), whatever theirs
(:mod:`lresnet.models.resnet`), so later blocks would replace what earlier ones wrote. The stream of the Euclidean
baseline grows to coordinates of root mean square 1.5 (4 blocks) to 4 (12 blocks), that is norms of 1.5 to 4 sqrt(n).
The table shows the mean loss in nats per byte over the last 40 steps of lorentz_gpt of width 96 on 550 kB of English
text (AdamW, learning rate 0.003, one seed; 220 steps of 768 bytes for 4 blocks, 150 for 12). Among the values tried,
0.1/n is the largest kappa that trains both as well as the baseline does (benchmarks/transformer_defaults.py).

    blocks                          4      12
    Lorentz, kappa = 96/n           2.58
    Lorentz, kappa = 1/n            2.41   3.36
    Lorentz, kappa = 0.25/n                3.33
    Lorentz, kappa = 0.1/n          2.39   2.83
    Lorentz, kappa = 1/n, no scale  3.51
    Euclidean baseline              2.41   2.92
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lresnet.geometry import Lorentz
from lresnet.models.pretrained import Pretrained
from lresnet.nn.plain_modules import is_plain
from lresnet.nn.point_norm import LorentzLayerNorm, LorentzRMSNorm
from lresnet.nn.residual_norm import autocast_dtype
from lresnet.nn.rotary import Rotary
from lresnet.nn.softmax_attention import KeyValueCache, Scores
from lresnet.nn.transformer_block import LorentzTransformerBlock, scores_of
from lresnet.residual import METHODS

__all__ = ["Transformer"]

_CURVATURE = -0.1  # times the width (the module's docstring)
_MOST_COMPILATIONS = 128  # of blocks, in one process
_STD = 0.02  # standard deviation of initial weights, as in GPT-2


class Transformer(Pretrained):
    """Base class of the transformers: a sequence of :class:`~lresnet.nn.LorentzTransformerBlock`.

    With ``curvature_per_layer`` a block reads the space coordinates that the previous block wrote as a point of its
    own hyperboloid: every vector of space coordinates is a point of each.

    The attribute ``euclidean`` tells whether no part depends on the curvature: the points of the network are vectors.
    """

    euclidean: bool
    manifold: Lorentz
    """The manifold of embedding and head, and of all blocks unless each has its own."""
    compiles_blocks: bool = False
    """Whether training compiles the blocks, one by one: :func:`lresnet.train.train_model` sets it while it trains. All
    blocks of the same kind and sizes share one compilation, whatever the depth and the curvature; compiling the whole
    network takes a time that grows with the depth.

    A block also computes the norm that follows it, so that the compiler joins it with the block's last residual. Then
    the last block has its own compilation if its norm has another dtype than the others. Norms with hooks and norms
    that are replaced or sharded are called by themselves, as with activation checkpointing, where the result of the
    norm would be stored for each block, with caches, and if a block has its norms last."""

    def _build(
        self,
        *,
        layers: int,
        width: int,
        heads: int,
        kv_heads: int | None,
        hidden: int | None,
        residual: str,
        residual_options: dict[str, Any] | None,
        curvature: float | None,
        learn_curvature: bool,
        curvature_per_layer: bool,
        scores: Scores | None,
        flat_head: bool,
        dropout: float,
        precise: bool,
        activation_checkpointing: bool,
    ) -> None:
        """Make manifolds and blocks; the arguments are those of the models."""
        for name, count in (("layers", layers), ("width", width), ("heads", heads)):
            if count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")
        if width % heads:
            raise ValueError(f"width={width} is not a multiple of heads={heads}; change one of them")
        flat_blocks = residual in METHODS and not METHODS[residual].curved and scores_of(residual, scores) != "lorentz"
        self.euclidean = flat_blocks and flat_head
        if curvature is None:
            curvature = _CURVATURE / width
        if "curvature" in self.config:
            self.config["curvature"] = curvature  # saved as chosen
        self.width, self.activation_checkpointing = width, activation_checkpointing
        owns = curvature_per_layer and not flat_blocks
        shared_is_used = not self.euclidean and not (owns and flat_head)
        self.manifold = Lorentz(curvature, learnable=learn_curvature and shared_is_used)
        own = [Lorentz(curvature, learnable=learn_curvature) for _ in range(layers)] if owns else []
        self.manifolds = torch.nn.ModuleList(own)
        self.layers = torch.nn.ModuleList(
            LorentzTransformerBlock(
                width,
                num_heads=heads,
                num_kv_heads=kv_heads,
                hidden=hidden,
                residual=residual,
                residual_options=residual_options,
                scores=scores,
                dropout=dropout,
                precise=precise,
                manifold=own[i] if owns else self.manifold,
            )
            for i in range(layers)
        )
        self._initialise(layers)

    @torch.no_grad()
    def _initialise(self, layers: int) -> None:
        """Initialise linear maps as GPT-2 does: the last map of a branch smaller, the deeper the network."""
        for block in self.layers:
            for name, module in block.named_modules():
                if isinstance(module, torch.nn.Linear):
                    last = name.endswith("out_proj")
                    torch.nn.init.normal_(module.weight, std=_STD * ((2 * layers) ** -0.5 if last else 1.0))
                    if module.bias is not None:
                        torch.nn.init.zeros_(module.bias)

    def _run(
        self,
        x: Tensor,
        rotary: Rotary,
        is_causal: bool,
        norm: torch.nn.Module,
        caches: Sequence[KeyValueCache] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Return the norm of the points after the last block.

        Args:
            x: Points [B, T, n] before the first block.
            rotary, is_causal: As for :class:`~lresnet.nn.LorentzTransformerBlock`.
            norm: That of the last points.
            caches: One for each block, or None.
            dtype: To which the caller converts the result. A compiled block may return it in this dtype. None: the
                caller reads the result in its own dtype.
        """
        trains = self.training and torch.is_grad_enabled()
        compiles = self.compiles_blocks and trains
        if compiles and caches is None and not self.activation_checkpointing and self._is_chained(norm):
            return self._run_chained(x, rotary, is_causal, norm, dtype)
        for i, block in enumerate(self.layers):
            if caches is not None:
                x = block(x, None, is_causal, rotary=rotary, cache=caches[i])
            elif self.activation_checkpointing and trains:
                call = _call_compiled if compiles else _call
                x = checkpoint(call, block, x, is_causal, rotary, use_reentrant=False)
            else:
                x = _call_compiled(block, x, is_causal, rotary) if compiles else _call(block, x, is_causal, rotary)
        result: Tensor = norm(x)
        return result

    def _run_chained(
        self, x: Tensor, rotary: Rotary, is_causal: bool, norm: torch.nn.Module, dtype: torch.dtype | None
    ) -> Tensor:
        """Return the same by compiled blocks, each of which also computes the norm that follows it.

        The compiler joins the norm with the residual before it. Between two blocks it cannot.
        """
        blocks = [block for block in self.layers if isinstance(block, LorentzTransformerBlock)]
        following = [(block.attention_norm, autocast_dtype(block.attention, x)) for block in blocks]
        last = norm, None if dtype == x.dtype else dtype
        with _compiling():
            rows: Tensor = _compiled(_normed)(*following[0], x)
            for block, (next_norm, next_dtype) in zip(blocks, [*following[1:], last], strict=True):
                x, rows = _compiled(_call_chained)(block, x, rows, is_causal, rotary, next_norm, next_dtype)
        return rows

    def _is_chained(self, norm: torch.nn.Module) -> bool:
        """Return whether each block may compute the norm of the next one: nobody observes, replaces or shards them."""
        norms = [norm]
        for block in self.layers:
            if type(block) is not LorentzTransformerBlock or not (block.norm_first and is_plain(block)):
                return False
            norms.append(block.attention_norm)
        return all(map(_is_local_norm, norms))


def _is_local_norm(norm: torch.nn.Module) -> bool:
    """Return whether this is a norm of this library without hooks, whose parameters this process holds as a whole."""
    # FSDP2 turns the parameters of a module that does not run into tensors of another class.
    whole = all(type(p) in (Tensor, torch.nn.Parameter) for p in norm._parameters.values() if p is not None)
    return type(norm) in (LorentzRMSNorm, LorentzLayerNorm) and is_plain(norm) and whole


def _call(block: torch.nn.Module, x: Tensor, is_causal: bool, rotary: Rotary) -> Tensor:
    result: Tensor = block(x, None, is_causal, rotary=rotary)
    return result


def _call_compiled(block: torch.nn.Module, x: Tensor, is_causal: bool, rotary: Rotary) -> Tensor:
    with _compiling():
        result: Tensor = _compiled(_call)(block, x, is_causal, rotary)
        return result


def _call_chained(
    block: torch.nn.Module,
    x: Tensor,
    rows: Tensor,
    is_causal: bool,
    rotary: Rotary,
    next_norm: torch.nn.Module,
    next_dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor]:
    options = {"normed": rows, "next_norm": next_norm, "next_dtype": next_dtype}
    result: tuple[Tensor, Tensor] = block(x, None, is_causal, rotary=rotary, **options)
    return result


def _normed(norm: torch.nn.Module, dtype: torch.dtype | None, x: Tensor) -> Tensor:
    rows: Tensor = norm(x)
    return rows if dtype is None else rows.to(dtype)


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
    return compiled


def _compiling() -> contextlib.AbstractContextManager[None]:
    # torch's own limit, 8, counts all kinds and sizes of blocks in this process. Beyond it, torch runs eager code.
    # Blocks share compiled code, so that of a block without hooks must not run for one with hooks.
    patch: contextlib.AbstractContextManager[None] = torch._dynamo.config.patch(
        recompile_limit=_MOST_COMPILATIONS, skip_nnmodule_hook_guards=False
    )
    return patch
