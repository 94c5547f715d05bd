"""Language modelling: bits per byte against the definition, windows, resuming, and processes that share a batch."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lresnet.data import text_task
from lresnet.metrics.checks import NonFiniteScores
from lresnet.train import TextModelling, TrainConfig, seed_everything, train_model
from lresnet.train.distributed import Processes
from lresnet.train.objective import make_objective
from lresnet.train.text_modelling import text_loss

TEXT = b"".join(b"%d green bottles hanging on the wall\n" % i for i in range(100))


class Bigram(torch.nn.Module):
    """Logits of the next token by the token before it."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(vocab_size, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens)


@pytest.mark.parametrize("tokens", ["bytes", "bpe"])
@pytest.mark.parametrize("context", [1, 7, 64, 5000])
def test_bits_per_byte_are_those_of_the_definition(tokens: str, context: int) -> None:
    task = text_task(TEXT, tokens=tokens, vocab_size=300 if tokens == "bpe" else None, context=16)  # type: ignore[arg-type]
    model = Bigram(task.vocab_size).double()
    found = text_loss(model, task.test, task.tokenizer.lengths, context)
    ids = task.test.long().tolist()
    log_p = model.table.weight.detach().log_softmax(-1)
    nats = -sum(float(log_p[one, two]) for one, two in itertools.pairwise(ids))
    size = len(task.tokenizer.decode(ids[1:]))
    assert (found.tokens, found.bytes) == (len(ids) - 1, size)
    assert found.nats == pytest.approx(nats, rel=1e-12)
    assert found.bits_per_byte == pytest.approx(nats / math.log(2) / size, rel=1e-12)


def test_a_uniform_model_needs_eight_bits_per_byte() -> None:
    task = text_task(TEXT, context=32)
    uniform = Bigram(256)
    torch.nn.init.zeros_(uniform.table.weight)
    found = TextModelling(task).test(uniform)
    assert found == {"bits_per_byte": pytest.approx(8.0), "loss": pytest.approx(math.log(256))}


def test_a_window_hides_what_is_before_it() -> None:
    """The sum over a window depends on the tokens inside it only."""
    seen: list[Tensor] = []

    def model(tokens: Tensor) -> Tensor:
        seen.append(tokens)
        return torch.zeros(*tokens.shape, 256)

    task = text_task(TEXT, context=10)
    text_loss(model, task.test, task.tokenizer.lengths, 10)
    rows = torch.cat([one.flatten() for one in seen])[: len(task.test) - 1]
    assert torch.equal(rows, task.test[:-1].long())


def test_fixed_windows_are_evaluated_in_validation() -> None:
    task = text_task(TEXT * 20, context=4)
    model, lengths = Bigram(256), task.tokenizer.lengths
    some = text_loss(model, task.val, lengths, 4, windows=10)
    assert some.tokens == 9 * 4 + ((len(task.val) - 1) % 4 or 4)  # the last window ends with the text
    assert some == text_loss(model, task.val, lengths, 4, windows=10)


def test_a_loss_that_is_not_finite_is_reported() -> None:
    task = text_task(TEXT, context=8)
    model = Bigram(256)
    torch.nn.init.constant_(model.table.weight, math.nan)
    with pytest.raises(NonFiniteScores, match="nan"):
        text_loss(model, task.test, task.tokenizer.lengths, 8)


def test_windows_follow_the_seed_and_reach_the_ends_of_the_text() -> None:
    task = text_task(bytes(range(1, 101)), context=85)
    objective, again, other = (TextModelling(task, batch_size=64, seed=seed) for seed in (0, 0, 1))
    for one in (objective, again, other):
        one.advance(0)
    assert torch.equal(objective._windows, again._windows)
    assert not torch.equal(objective._windows, other._windows)
    assert set(objective._windows[:, 0].tolist()) == {1, 2, 3, 4, 5}  # 90 tokens hold five windows of 86
    assert torch.equal(objective._windows.diff(dim=1), torch.ones(64, 85, dtype=torch.long))


def test_an_epoch_may_have_a_given_number_of_steps() -> None:
    assert TextModelling(text_task(TEXT, context=8), batch_size=4).steps_per_epoch > 3
    assert TextModelling(text_task(TEXT, context=8, steps_per_epoch=3), batch_size=4).steps_per_epoch == 3


def test_processes_share_a_batch() -> None:
    task = text_task(TEXT, context=8)
    whole = TextModelling(task, batch_size=6)
    parts = [TextModelling(task, batch_size=6, processes=Processes(rank, 2)) for rank in range(2)]
    for one in (whole, *parts):
        one.advance(0)
    assert torch.equal(torch.cat([one._windows for one in parts]), whole._windows)
    with pytest.raises(ValueError, match="not a multiple"):
        TextModelling(task, batch_size=7, processes=Processes(0, 2))


def test_training_resumes_bit_for_bit_and_keeps_the_lowest_bits(tmp_path: Path) -> None:
    task, config = text_task(TEXT, context=8), TrainConfig(epochs=4, lr=0.1, batch_size=32, eval_every=1)

    def trained(epochs: int, checkpoint: Path | None) -> tuple[Bigram, list[tuple[int, float]], float | None]:
        seed_everything(0)
        model, own = Bigram(256), config
        objective = make_objective(task, own)
        if epochs < 4:

            def stop(epoch: int, _: float | None) -> None:
                if epoch == epochs:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                train_model(model, objective, own, checkpoint=checkpoint, checkpoint_every=1, on_epoch=stop)
            return model, [], None
        outcome = train_model(model, objective, own, checkpoint=checkpoint, checkpoint_every=1)
        return model, outcome.curve, outcome.validation

    whole, curve, best = trained(4, None)
    trained(2, tmp_path / "checkpoint.pt")
    resumed, again, _ = trained(4, tmp_path / "checkpoint.pt")
    assert curve == again
    assert torch.equal(whole.table.weight, resumed.table.weight)
    assert best == min(value for _, value in curve)
    assert best < curve[0][1] < 9  # it learns


def test_options_of_other_tasks_are_refused() -> None:
    task = text_task(TEXT, context=8)
    for options, message in (
        ({"neighbours": "3"}, "is a text"),
        ({"loss": "margin"}, "texts are trained"),
        ({"batch_size": 0}, "at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            make_objective(task, TrainConfig(**options))  # type: ignore[arg-type]
    model = Bigram(300)
    model.config = {"vocab_size": 300}  # type: ignore[assignment]
    with pytest.raises(ValueError, match="vocab_size=300"):
        TextModelling(task).require_model(model)
