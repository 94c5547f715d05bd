"""Runs on texts: checks of a user's network, and continuations of a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lresnet.data import TextTask, Tokenizer
from lresnet.runs.record import TOKENIZER_FILE, require_undamaged
from lresnet.train.text_modelling import next_token_logits

if TYPE_CHECKING:
    from lresnet.runs.run import Run

__all__ = ["generate", "require_no_text", "require_token_logits", "tokenizer_of"]


def require_no_text(run: Run, what: str) -> None:
    """Raise an error for a run on a text, which has no ``what``.

    Raises:
        ValueError: the run is on a text.
    """
    if run.record.text is not None:
        raise ValueError(
            f"{run.place} holds a run on the text {run.record.data_name}, which has no {what}; `lresnet generate` "
            "continues a text"
        )


@torch.no_grad()
def require_token_logits(net: torch.nn.Module, task: TextTask, device: torch.device) -> None:
    """Raise an error if a user's network does not map tokens to logits of the next one.

    Raises:
        ValueError: the logits have another shape.
    """
    tokens = torch.zeros(1, min(task.context, 4), dtype=torch.int64, device=device)
    was_training = net.training
    logits = next_token_logits(net.to(device).eval(), tokens)
    net.train(was_training)
    wanted = [*tokens.shape, task.vocab_size]
    if list(logits.shape) != wanted:
        raise ValueError(
            f"{type(net).__name__} returns logits of shape {list(logits.shape)} for tokens {list(tokens.shape)}, but "
            f"{task.name} needs {wanted}: one for each of its {task.vocab_size} tokens"
        )


def tokenizer_of(run: Run) -> Tokenizer:
    """Return the tokeniser of a run on a text.

    Raises:
        ValueError: the run is not on a text.
        FileNotFoundError: the file of the tokeniser is missing.
    """
    if run.record.text is None:
        raise ValueError(
            f"{run.place} holds a run on {run.record.data_name}, which is no text; generate needs a run of "
            "`lresnet train TEXT_FILE --task text`"
        )
    if isinstance(run.known_task, TextTask):
        return run.known_task.tokenizer
    if run.folder is None:
        raise ValueError(f"{run.place} has no folder with its tokeniser; pass its task: Run(..., task=task)")
    require_undamaged(run.folder, run.record, [TOKENIZER_FILE])
    return Tokenizer.read(run.folder / TOKENIZER_FILE)


@torch.no_grad()
def generate(
    run: Run,
    prompt: str | bytes,
    *,
    tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
) -> str:
    """Return the prompt and its continuation, see :meth:`lresnet.Run.generate`."""
    tokenizer = tokenizer_of(run)
    draw = getattr(run.model, "generate", None)
    if not callable(draw):
        raise ValueError(f"{type(run.model).__name__} has no method generate; lorentz_gpt has one")
    if type(tokens) is not int or tokens < 1:
        raise ValueError(f"tokens must be a whole number of at least 1, got {tokens!r}")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be at least 0 and finite, got {temperature!r}")
    if top_k is not None and (type(top_k) is not int or top_k < 1):
        raise ValueError(f"top_k must be a whole number of at least 1, or None, got {top_k!r}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, or None, got {top_p!r}")
    size = getattr(run.model, "vocab_size", tokenizer.vocab_size)
    if size != tokenizer.vocab_size:
        raise ValueError(
            f"the model of {run.place} has {size:,} tokens, but its {TOKENIZER_FILE} has {tokenizer.vocab_size:,}; "
            "restore the file, or train again"
        )
    # A document begins after the end of another one, or after a line break.
    start = [tokenizer.end] if tokenizer.end is not None else tokenizer.encode(b"\n").tolist()
    given = prompt.encode(errors="surrogateescape") if isinstance(prompt, str) else prompt
    first = tokenizer.encode(given).tolist() or start
    generator = torch.Generator(run.device).manual_seed(seed)
    ids = torch.tensor([first], dtype=torch.int64, device=run.device)
    try:
        found = draw(
            ids,
            tokens,
            temperature=temperature,
            top_k=None if top_k is None else min(top_k, tokenizer.vocab_size),
            generator=generator,
            **({} if top_p is None else {"top_p": top_p}),  # other models may not have it
        )
    except ValueError as error:
        raise ValueError(f"the model of {run.place} cannot continue the text: {error}") from error
    drawn = found.flatten()[len(first) :].tolist()
    return (given + tokenizer.decode(drawn)).decode(errors="replace")
