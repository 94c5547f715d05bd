"""Language modelling: cross entropy of the next token in random windows of a text, bits per byte on its other parts."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from lresnet.data.text import TextTask
from lresnet.metrics.checks import NonFiniteScores
from lresnet.train.config import Augment, TrainConfig
from lresnet.train.distributed import ONE_PROCESS, Processes
from lresnet.train.objective import Objective, given_options, require_no_graph_settings

__all__ = ["TextLoss", "TextModelling", "next_token_logits", "text_loss"]

_BATCH_SIZE = 32
# Validation reads as many windows at most, evenly spaced: the same ones in every pass. The test reads all.
_VALIDATION_WINDOWS = 512
# Tokens evaluated at once, and the logits of a GPU: more would fill the memory, fewer would leave a GPU idle.
_EVALUATED_TOKENS, _EVALUATED_LOGITS = 2**13, 2**25
_IGNORED = -100


class TextLoss(NamedTuple):
    """How well a model predicts a text."""

    nats: float
    """Sum of -log p over the predicted tokens."""
    tokens: int
    """Number of predicted tokens."""
    bytes: int
    """Number of bytes for which they stand."""

    @property
    def bits_per_byte(self) -> float:
        """Bits that the model needs for a byte of the text; it does not depend on what the tokens are."""
        return self.nats / math.log(2) / self.bytes

    @property
    def loss(self) -> float:
        """Mean cross entropy of a token."""
        return self.nats / self.tokens


def next_token_logits(model: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """Return the logits of the token after each of ``tokens``, in float32 or wider.

    On CUDA the model runs in bfloat16 (autocast).

    Shapes:
        tokens: whole numbers ``[batch, length]``.
        returns: ``[batch, length, vocab_size]``.
    """
    on_gpu = tokens.device.type == "cuda"
    with torch.autocast("cuda", torch.bfloat16) if on_gpu else contextlib.nullcontext():
        logits = model(tokens)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


@torch.no_grad()
def text_loss(
    model: Callable[[Tensor], Tensor], tokens: Tensor, lengths: Tensor, context: int, windows: int | None = None
) -> TextLoss:
    """Return how well a model predicts ``tokens`` in windows of ``context`` tokens that follow each other.

    Every token but the first is predicted once, from the tokens before it in its window: from one of them at the
    beginning of a window, and from ``context`` at its end.

    Args:
        model: Maps tokens ``[batch, length]`` to logits ``[batch, length, vocab_size]``.
        tokens: The text, ``[n]``, with at least two tokens.
        lengths: Number of bytes of each token, ``[vocab_size]``.
        context: Number of tokens that the model sees at once.
        windows: Evaluate this many evenly spaced windows at most; None: all.

    Raises:
        NonFiniteScores: The sum is NaN or infinite.
    """
    starts = torch.arange(0, len(tokens) - 1, context, device=tokens.device)
    if windows is not None and len(starts) > windows:
        starts = starts[torch.linspace(0, len(starts) - 1, windows, dtype=torch.float64).long()]
    nats = torch.zeros((), dtype=torch.float64, device=tokens.device)
    count = torch.zeros((), dtype=torch.int64, device=tokens.device)
    size = torch.zeros((), dtype=torch.int64, device=tokens.device)
    places = torch.arange(min(context, len(tokens) - 1) + 1, device=tokens.device)
    lengths = lengths.to(tokens.device)
    for own in starts.split(max(1, _together(tokens.device, len(lengths)) // context)):
        index = own[:, None] + places
        inside = index < len(tokens)
        window = tokens[index.clamp(max=len(tokens) - 1)].long()
        targets = window[:, 1:].masked_fill(~inside[:, 1:], _IGNORED)
        logits = next_token_logits(model, window[:, :-1])
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=_IGNORED, reduction="none"
        )
        nats += losses.sum(dtype=torch.float64)
        known = targets[targets != _IGNORED]
        count += known.numel()
        size += lengths[known].sum()
    if not bool(nats.isfinite()):
        raise NonFiniteScores(f"the cross entropy of the text is {float(nats)}")
    return TextLoss(float(nats), int(count), int(size))


def _together(device: torch.device, vocab_size: int) -> int:
    """Return the number of tokens that are evaluated at once."""
    return max(_EVALUATED_TOKENS, _EVALUATED_LOGITS // vocab_size if device.type == "cuda" else 0)


class TextModelling(Objective[torch.nn.Module]):
    r"""Objective of language modelling: mean cross entropy of the next token, in nats.

    A step reads ``batch_size`` windows of ``context + 1`` tokens at random places of the training part. An epoch has
    ``steps_per_epoch`` steps of the task, or as many as are needed to read as many tokens as there are. Several
    processes draw the same places, and each takes its share. On CUDA the model runs in bfloat16 (autocast).

    Validation and test report bits per byte, lower is better:

    .. math:: -\frac{1}{\text{bytes}} \sum_i \log_2 p(t_i \mid t_{i-k}, \dots, t_{i-1})

    Args:
        task: The text.
        batch_size: Windows per step, over all processes together; None: 32.
        seed: Seed of the places.
        device: Where the tokens are kept.
        processes: The processes that share each batch.

    Raises:
        ValueError: ``batch_size`` is below 1, or the processes cannot share a batch evenly.
    """

    compiles: ClassVar[bool] = True
    percent: ClassVar[bool] = False
    lower_is_better: ClassVar[bool] = True

    def __init__(
        self,
        task: TextTask,
        *,
        batch_size: int | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        processes: Processes = ONE_PROCESS,
    ) -> None:
        batch_size = _BATCH_SIZE if batch_size is None else batch_size
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.task, self.processes = task.to(device), processes
        self.device, self.batch_size = self.task.train.device, batch_size
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self._share = processes.share(batch_size, batch_size)
        self._lengths = task.tokenizer.lengths
        self._places = torch.arange(task.context + 1, device=self.device)
        # A captured step reads this tensor: advance() copies each batch into it.
        rows = self._share.stop - self._share.start
        self._windows = torch.zeros(rows, task.context + 1, dtype=torch.int64, device=self.device)

    @classmethod
    def from_config(
        cls, task: TextTask, config: TrainConfig, device: torch.device | str, processes: Processes
    ) -> TextModelling:
        require_no_graph_settings(task, config)
        if config.augment != Augment():
            raise ValueError(f"augment={config.augment} is for images, but {task.name} is a text; leave it out")
        return cls(task, seed=config.seed, device=device, processes=processes, **given_options(config, "batch_size"))

    def require_model(self, model: torch.nn.Module) -> None:
        config = getattr(model, "config", {})
        for name, needed in (("vocab_size", self.task.vocab_size), ("context", self.task.context)):
            found = config.get(name, needed) if isinstance(config, dict) else needed
            if found != needed and (name == "vocab_size" or found < needed):
                raise ValueError(
                    f"the model has {name}={found}, but {self.task.name} needs {needed}; build it with {name}={needed}"
                )

    @property
    def checkpoint_every(self) -> int:
        return 1  # an epoch reads all data, which may take hours

    @property
    def steps_per_epoch(self) -> int:
        return self.task.steps_per_epoch or max(1, len(self.task.train) // (self.batch_size * self.task.context))

    def advance(self, step: int) -> None:
        last = len(self.task.train) - self.task.context  # the first place at which no window begins
        starts = torch.randint(last, (self.batch_size,), generator=self.generator, device=self.device)[self._share]
        self._windows.copy_(self.task.train[starts[:, None] + self._places])

    def loss(self, model: Callable[[Tensor], Tensor]) -> Tensor:
        logits = next_token_logits(model, self._windows[:, :-1])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), self._windows[:, 1:].flatten())

    def validation(self, model: torch.nn.Module) -> Tensor | None:
        found = text_loss(model, self.task.val, self._lengths, self.task.context, _VALIDATION_WINDOWS)
        return torch.tensor(found.bits_per_byte, dtype=torch.float64)

    def test(self, model: torch.nn.Module) -> dict[str, float]:
        found = text_loss(model, self.task.test, self._lengths, self.task.context)
        return {"bits_per_byte": found.bits_per_byte, "loss": found.loss}

    def state_dict(self) -> dict[str, Any]:
        return {"places": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["places"])
